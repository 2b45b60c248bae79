// Models of dtc, for editors. Line ends are blanks here: no statement can go on where another may begin, so
// that what the lexer of dtc needs them for, messages and one-line mistakes, is all that is lost.
const P = {or: 2, and: 3, not: 4, compare: 5, add: 6, mul: 7, neg: 8, pow: 9, postfix: 10};
const list = (x) => seq(x, repeat(seq(',', x)));

module.exports = grammar({
  name: 'dtc',
  extras: ($) => [/\s/, $.comment],
  word: ($) => $.identifier,
  conflicts: ($) => [[$.conditional], [$.param, $.conditional], [$.metric, $.conditional], [$.return, $.conditional], [$.accumulation, $.conditional], [$.assignment, $.conditional], [$.method, $._primary]],

  rules: {
    source_file: ($) => repeat(choice($._declaration, ';')),
    comment: () => token(seq('#', /.*/)),

    _declaration: ($) => choice($.use, $.layer, $.model, $.function, $.train),
    use: ($) => seq('use', field('name', $.identifier)),
    layer: ($) => seq('layer', field('name', $.identifier), $.formals, $.block),
    model: ($) => seq('model', field('name', $.identifier), optional($.formals), $.block),
    function: ($) => seq(optional('intrinsic'), 'fn', field('name', $.identifier), $.formals, $.block),
    train: ($) => seq('train', field('name', $.identifier), $.block),
    formals: ($) => seq('(', optional($._arguments), ')'),
    block: ($) => seq('{', repeat(choice($._statement, ';')), '}'),

    _statement: ($) => choice($.assignment, $.accumulation, $.return, $.if, $.param, $.method, $.metric),
    assignment: ($) => seq(list($._expression), '=', $._expression, optional($.shard)),
    accumulation: ($) => seq($._expression, '+=', $._expression, optional($.shard)),
    return: ($) => prec.right(seq('return', list($._expression), optional(seq('=', $._expression, optional($.shard))))),
    if: ($) => prec.right(seq('if', $._expression, $.block, optional(seq('else', choice($.block, $.if))))),
    param: ($) => prec.right(seq('param', field('name', $.identifier), '[', optional(list($._expression)),
      optional(seq('|', optional(list($._expression)))), ']', optional($.shard),
      optional(choice(seq('=', $._expression), seq('if', $._expression))),
      repeat(seq(',', $.identifier, '=', $._expression)))),
    method: ($) => seq(field('name', $.identifier), $.formals, $.block),
    metric: ($) => seq('metric', field('name', $.identifier), '=', $._expression),
    shard: ($) => seq('shard', '(', list(seq(choice($.identifier, $.integer), ':', $.identifier)), ')'),

    _expression: ($) => choice($._postfix, $.unary, $.binary, $.conditional, $.stack),
    unary: ($) => choice(prec(P.neg, seq('-', $._expression)), prec(P.not, seq('not', $._expression))),
    binary: ($) => choice(
      ...[['or', P.or], ['and', P.and], ['+', P.add], ['-', P.add], ['*', P.mul], ['/', P.mul], ['//', P.mul], ['%', P.mul],
        ['<', P.compare], ['<=', P.compare], ['>', P.compare], ['>=', P.compare], ['==', P.compare], ['!=', P.compare]]
        .map(([op, p]) => prec.left(p, seq($._expression, op, $._expression))),
      prec.right(P.pow, seq($._expression, '**', $._expression))),
    conditional: ($) => seq($._expression, 'if', $._expression, optional(seq('else', $._expression))),
    stack: ($) => seq('stack', $._expression, 'of', $._postfix),

    _postfix: ($) => choice($._primary, $.field, $.call, $.index),
    field: ($) => prec(P.postfix, seq($._postfix, '.', field('name', $.identifier))),
    call: ($) => prec(P.postfix, seq(field('function', $._postfix), '(', optional($._arguments), ')')),
    index: ($) => prec(P.postfix, seq($._postfix, '[', optional($._arguments), ']')),
    _primary: ($) => choice($.identifier, $.integer, $.real, $.string, $.boolean, $.dots, $.tuple, $.group),
    tuple: ($) => seq('(', list($._expression), ')'),
    group: ($) => choice(
      seq('(', $.identifier, repeat1($.group_item), ')'),
      seq('(', $.identifier, '=', $._expression, repeat($.group_item), ')'),
      seq('(', choice($.integer, seq('(', $._expression, ')')), repeat1($.group_item), ')')),
    group_item: ($) => prec.right(seq($.identifier, optional(seq('=', $._expression)))),
    _arguments: ($) => seq(list($._argument), optional(',')),
    _argument: ($) => choice($._expression, $.named, $.bounded),
    named: ($) => seq(field('name', $.identifier), '=', $._expression),
    bounded: ($) => seq($._expression, ':', $._expression),

    identifier: () => /[A-Za-z_][A-Za-z0-9_]*/,
    integer: () => /[0-9]([0-9_]*[0-9])?/,
    real: () => token(choice(/[0-9][0-9_]*\.[0-9]*([eE][+-]?[0-9]+)?/, /\.[0-9]+([eE][+-]?[0-9]+)?/, /[0-9][0-9_]*[eE][+-]?[0-9]+/)),
    string: () => /"([^"\\\n]|\\.)*"/,
    boolean: () => choice('true', 'false'),
    dots: () => '...',
  },
});
