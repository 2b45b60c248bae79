// Recognises the body of attention, from its results back to its arguments. Expressions are
// hash-consed and flat: a value is followed to the statement that defines it, in which each index
// has the letter of the dimension that was read.
#include "ir/attention.h"

#include <math.h>

// A statement of the function, and the letter of each of its indices: b batch, t query, s key, g
// group, r query head of the group, e feature; 0: none yet.
typedef struct View {
  const Stmt *s;
  char letter[MAX_INDEX];
} View;

// Bounds on how far a key is before its query: least <= t - s <= most.
typedef struct Bounds {
  int64_t least, most;
} Bounds;
static const Bounds no_bounds = {INT64_MIN, INT64_MAX};
enum { FAR = 1 << 30 }; // more positions than any sequence has
enum { MOST_STEPS = 8 }; // statements one after another that scores may be written in

typedef struct Match {
  Module *m;
  const Fn *f;
  int64_t extent[128]; // by letter; 0: not known yet
  Id scores; // the value that holds them, and the letters of its dimensions
  char score_dims[MAX_RANK + 1];
  Id largest; // the value that exponents are less by, and those of its
  char largest_dims[MAX_RANK + 1];
  Attention a;
  Bounds bounds;
} Match;

static Id arg(const Match *x, Id e, uint32_t i) { return ex_arg(x->m, e, i); }
static bool is(const Match *x, Id e, Op op) { return ex_is(x->m, e, op); }

// ---- the signature

static bool fits(Match *x, Id value, const char *dims) {
  const Value *v = &x->f->value.at[value];
  if (scalar_of(v->type) != SC_REAL || v->rank != strlen(dims)) return false;
  for (uint32_t d = 0; d < v->rank; d++) {
    int64_t *extent = &x->extent[(int)dims[d]];
    if (!*extent) *extent = v->extent[d];
    if (*extent != v->extent[d]) return false;
  }
  return true;
}

static bool fits_signature(Match *x) {
  static const char *const dims[] = {"btgre", "bsge", "bsge", "gr", "gr"};
  const Fn *f = x->f;
  if (f->arg.n < 3 || f->arg.n > 5 || f->result.n != 2) return false;
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (f->value.at[f->arg.at[i]].role != ROLE_IN || !fits(x, f->arg.at[i], dims[i])) return false;
  return fits(x, f->result.at[0], "btgre") && fits(x, f->result.at[1], "bgrt");
}

// ---- following values

// The letters of a read's subscripts, in order; false where one of them is no index.
static bool letters_of(const Match *x, const View *v, Id read, char *to) {
  uint32_t n = ex(x->m, read)->narg;
  for (uint32_t d = 0; d < n; d++) {
    Id sub = arg(x, read, d);
    if (!is(x, sub, OP_INDEX)) return false;
    to[d] = v->letter[ex(x->m, sub)->integer];
  }
  to[n] = 0;
  return true;
}

static bool reads(const Match *x, const View *v, Id e, Id value, const char *dims) {
  char letter[MAX_RANK + 1];
  return is(x, e, OP_READ) && (Id)ex(x->m, e)->integer == value && letters_of(x, v, e, letter) &&
         !strcmp(letter, dims);
}

static bool reads_arg(const Match *x, const View *v, Id e, uint32_t i, const char *dims) {
  return i < x->f->arg.n && reads(x, v, e, x->f->arg.at[i], dims);
}

static const Stmt *definition(const Match *x, Id value) {
  const Stmt *found = NULL;
  for (uint32_t i = 0; i < x->f->stmt.n; i++) {
    const Stmt *s = &x->f->stmt.at[i];
    if (s->lhs != value) continue;
    if (found || s->kind != ST_COMP || s->acc) return NULL;
    found = s;
  }
  return found;
}

// The statement that defines a value read with these letters: `bound` is what it reduces, 0:
// nothing. Its left side is bare, and its indices go over all of their letters.
static bool view(const Match *x, Id value, const char *dims, Red red, char bound, View *to) {
  const Stmt *s = to->s = definition(x, value);
  uint32_t rank = (uint32_t)strlen(dims);
  if (!s || (bound && strchr(dims, bound)) || s->red != red || s->nfree != rank ||
      s->nindex != rank + (bound != 0) || x->f->value.at[value].rank != rank)
    return false;
  memset(to->letter, 0, sizeof to->letter);
  for (uint32_t d = 0; d < rank; d++) {
    if (!is(x, s->sub[d], OP_INDEX)) return false;
    char *letter = &to->letter[ex(x->m, s->sub[d])->integer];
    if (*letter) return false;
    *letter = dims[d];
  }
  if (bound) to->letter[rank] = bound;
  for (uint32_t i = 0; i < s->nindex; i++)
    if (!to->letter[i] || s->index[i].local ||
        s->index[i].extent != x->extent[(int)to->letter[i]])
      return false;
  return true;
}

// As view, of what expression e reads.
static bool follow(const Match *x, const View *from, Id e, Red red, char bound, View *to) {
  char dims[MAX_RANK + 1];
  return is(x, e, OP_READ) && letters_of(x, from, e, dims) &&
         view(x, (Id)ex(x->m, e)->integer, dims, red, bound, to);
}

// ---- constants and positions

static bool is_constant(const Match *x, Id e, double *v) {
  double w;
  switch (ex(x->m, e)->op) {
  case OP_REAL: *v = ex(x->m, e)->real; return true;
  case OP_INT: *v = (double)ex(x->m, e)->integer; return true;
  case OP_TO_REAL:
  case OP_STOP: return is_constant(x, arg(x, e, 0), v);
  case OP_NEG:
    if (!is_constant(x, arg(x, e, 0), &w)) return false;
    *v = -w;
    return true;
  case OP_SQRT:
    if (!is_constant(x, arg(x, e, 0), &w)) return false;
    *v = sqrt(w);
    return true;
  case OP_MUL:
  case OP_DIV: {
    double u;
    if (!is_constant(x, arg(x, e, 0), &u) || !is_constant(x, arg(x, e, 1), &w)) return false;
    *v = ex_is(x->m, e, OP_MUL) ? u * w : u / w;
    return true;
  }
  default: return false;
  }
}

static bool is_real_constant(const Match *x, Id e, double v) {
  return is(x, e, OP_REAL) && ex(x->m, e)->real == v;
}

// An int as query * t + key * s + rest; apart: its absolute value.
typedef struct Line {
  int64_t query, key, rest;
  bool apart;
} Line;

static void add_line(Line *to, Line a, int64_t by) {
  to->query += by * a.query;
  to->key += by * a.key;
  to->rest += by * a.rest;
}

static bool find_line(const Match *x, const View *v, Id e, Line *to) {
  const Expr *k = ex(x->m, e);
  Line a, b;
  *to = (Line){0};
  if (k->op == OP_INT) {
    to->rest = k->integer;
    return k->integer > -FAR && k->integer < FAR;
  }
  if (k->op == OP_INDEX) {
    char c = v->letter[k->integer];
    to->query = c == 't';
    to->key = c == 's';
    return c == 't' || c == 's';
  }
  if (k->op != OP_NEG && k->op != OP_ADD && k->op != OP_SUB && k->op != OP_ABS) return false;
  if (!find_line(x, v, arg(x, e, 0), &a) || a.apart) return false;
  if (k->op == OP_ABS) {
    *to = a;
    return to->apart = true;
  }
  add_line(to, a, k->op == OP_NEG ? -1 : 1);
  if (k->op == OP_NEG) return true;
  if (!find_line(x, v, arg(x, e, 1), &b) || b.apart) return false;
  add_line(to, b, k->op == OP_ADD ? 1 : -1);
  return true;
}

static void at_most(Bounds *b, int64_t most) { b->most = most < b->most ? most : b->most; }
static void at_least(Bounds *b, int64_t least) { b->least = least > b->least ? least : b->least; }

// line <= 0, or < 0
static bool bound_line(Bounds *b, Line l, bool less) {
  int64_t most = -l.rest - less;
  if (l.query == 1 && l.key == -1) return at_most(b, most), true;
  if (l.query == -1 && l.key == 1) return at_least(b, -most), true;
  return false;
}

// a <= b, or a < b
static bool compare(Bounds *to, Line a, Line b, bool less) {
  Line l = {0};
  if (b.apart) return false;
  if (!a.apart) {
    add_line(&l, a, 1);
    add_line(&l, b, -1);
    return bound_line(to, l, less);
  }
  if (b.query || b.key) return false;
  Line up = {a.query, a.key, a.rest - b.rest, false};
  Line down = {-a.query, -a.key, -a.rest - b.rest, false};
  return bound_line(to, up, less) && bound_line(to, down, less);
}

// The bounds that a condition says, added to *to.
static bool find_bounds(const Match *x, const View *v, Id e, Bounds *to) {
  Op op = (Op)ex(x->m, e)->op;
  Line a, b;
  if (op == OP_BOOL) return ex(x->m, e)->integer;
  if (op == OP_AND)
    return find_bounds(x, v, arg(x, e, 0), to) && find_bounds(x, v, arg(x, e, 1), to);
  if (op < OP_LT || op > OP_GE || ex(x->m, arg(x, e, 0))->type != SC_INT ||
      !find_line(x, v, arg(x, e, 0), &a) || !find_line(x, v, arg(x, e, 1), &b))
    return false;
  bool less = op == OP_LT || op == OP_GT;
  return op == OP_LT || op == OP_LE ? compare(to, a, b, less) : compare(to, b, a, less);
}

// ---- scores

// Takes constant factors off a product of reals: *by times what is left, NONE: 1.
static Id without_factors(const Match *x, Id e, double *by) {
  double c;
  if (is_constant(x, e, &c)) {
    *by *= c;
    return NONE;
  }
  if (is(x, e, OP_NEG)) {
    *by = -*by;
    return without_factors(x, arg(x, e, 0), by);
  }
  if (is(x, e, OP_DIV) && is_constant(x, arg(x, e, 1), &c)) {
    *by /= c;
    return without_factors(x, arg(x, e, 0), by);
  }
  for (uint32_t i = 0; i < 2 && is(x, e, OP_MUL); i++)
    if (is_constant(x, arg(x, e, i), &c)) {
      *by *= c;
      return without_factors(x, arg(x, e, 1 - i), by);
    }
  return e;
}

// sum(e: q * k), perhaps times a constant, and 0 where the query does not see the key.
static bool is_product(Match *x, const View *from, Id e) {
  View v;
  Bounds bounds = no_bounds;
  if (!follow(x, from, e, RED_SUM, 'e', &v)) return false;
  Id body = v.s->body;
  if (is(x, body, OP_WHERE)) {
    if (!find_bounds(x, &v, arg(x, body, 0), &bounds) ||
        !is_real_constant(x, arg(x, body, 2), 0))
      return false;
    body = arg(x, body, 1);
  }
  // What is taken to be 0 must be out of sight.
  if (bounds.least > x->bounds.least || bounds.most < x->bounds.most) return false;
  body = without_factors(x, body, &x->a.scale);
  if (body == NONE || !is(x, body, OP_MUL)) return false;
  Id p = without_factors(x, arg(x, body, 0), &x->a.scale);
  Id q = without_factors(x, arg(x, body, 1), &x->a.scale);
  if (p == NONE || q == NONE) return false;
  return (reads_arg(x, &v, p, 0, "btgre") && reads_arg(x, &v, q, 1, "bsge")) ||
         (reads_arg(x, &v, q, 0, "btgre") && reads_arg(x, &v, p, 1, "bsge"));
}

// The distance s - t, or t - s, or |s - t|, as a real.
static bool is_distance(const Match *x, const View *v, Id e, double *sign, bool *apart) {
  Line l = {0}, a, b;
  bool outside = is(x, e, OP_ABS);
  if (outside) e = arg(x, e, 0);
  if (is(x, e, OP_SUB) && is(x, arg(x, e, 0), OP_TO_REAL) && is(x, arg(x, e, 1), OP_TO_REAL)) {
    if (!find_line(x, v, arg(x, arg(x, e, 0), 0), &a) || a.apart ||
        !find_line(x, v, arg(x, arg(x, e, 1), 0), &b) || b.apart)
      return false;
    add_line(&l, a, 1);
    add_line(&l, b, -1);
  } else if (!is(x, e, OP_TO_REAL) || ex(x->m, arg(x, e, 0))->type != SC_INT ||
             !find_line(x, v, arg(x, e, 0), &l)) {
    return false;
  }
  *apart = l.apart || outside;
  *sign = *apart ? 1 : l.key;
  return !l.rest && l.key == -l.query && (l.key == 1 || l.key == -1);
}

// Slopes have no derivative: they are stop_gradient(slopes[g, r]).
static bool is_slope(Match *x, const View *v, Id e) {
  if (!is(x, e, OP_STOP) || x->a.slopes) return false;
  for (uint8_t i = 3; i < x->f->arg.n; i++)
    if (reads_arg(x, v, arg(x, e, 0), i, "gr")) x->a.slopes = i;
  return x->a.slopes != 0;
}

// A product of constants, at most one slope and one distance; negative where it is taken off.
static bool is_bias(Match *x, const View *v, Id e, double by) {
  double sign;
  bool apart;
  uint8_t before = x->a.slopes;
  e = without_factors(x, e, &by);
  if (e == NONE || x->a.bias != 0) return false;
  if (is(x, e, OP_MUL)) {
    Id p = without_factors(x, arg(x, e, 0), &by), q = without_factors(x, arg(x, e, 1), &by);
    if (p == NONE || q == NONE) return false;
    if (is_slope(x, v, p)) e = q;
    else if (is_slope(x, v, q)) e = p;
    else return false;
  }
  if (!is_distance(x, v, e, &sign, &apart) || by == 0) {
    x->a.slopes = before;
    return false;
  }
  x->a.bias = by * sign;
  x->a.apart = apart;
  return true;
}

static bool is_capped(Match *x, const View *v, Id e) {
  double by = 1, within = 1;
  e = without_factors(x, e, &by);
  if (e == NONE) return false;
  if (!is(x, e, OP_TANH)) {
    x->a.scale *= by;
    return is_product(x, v, e);
  }
  Id in = without_factors(x, arg(x, e, 0), &within);
  if (in == NONE || by == 0) return false;
  x->a.cap = fabs(by);
  x->a.scale *= by * within;
  return is_product(x, v, in);
}

static bool is_score(Match *x, const View *v, Id e) {
  if (is(x, e, OP_WHERE) && is_real_constant(x, arg(x, e, 2), -INFINITY))
    return find_bounds(x, v, arg(x, e, 0), &x->bounds) && is_score(x, v, arg(x, e, 1));
  if (is(x, e, OP_ADD)) {
    if (is_bias(x, v, arg(x, e, 1), 1)) return is_score(x, v, arg(x, e, 0));
    return is_bias(x, v, arg(x, e, 0), 1) && is_score(x, v, arg(x, e, 1));
  }
  if (is(x, e, OP_SUB))
    return is_bias(x, v, arg(x, e, 1), -1) && is_score(x, v, arg(x, e, 0));
  return is_capped(x, v, e);
}

// Every query must see a key: the softmax of nothing is no number, and a kernel's is 0.
static bool find_mask(Match *x) {
  Bounds *b = &x->bounds;
  int64_t t = x->extent['t'], s = x->extent['s'];
  Attention *a = &x->a;
  if (b->least > 0 || b->most < 0 || b->least > b->most || t - 1 - b->most > s - 1) return false;
  a->causal = b->least > -(s - 1); // else the last key is not out of sight of the first query
  a->ahead = a->causal ? -b->least : 0;
  a->window = b->most < t - 1 ? b->most + 1 : 0;
  if (a->apart && a->causal && a->ahead == 0) { // |s - t| is t - s
    a->apart = false;
    a->bias = -a->bias;
  }
  return true;
}

// Pointwise definitions of values over (b, g, r, t, s) are put where they are read: a body may
// write its scores in several statements.
typedef struct Expand {
  Match *x;
  const View *v;
  int depth;
} Expand;

static Id expand_read(Module *m, Id e, void *ctx) {
  Expand *k = ctx;
  char dims[MAX_RANK + 1];
  View to;
  Id index[MAX_INDEX];
  if (k->depth == MOST_STEPS || !ex_is(m, e, OP_READ) || !letters_of(k->x, k->v, e, dims) ||
      strlen(dims) != 5 || !view(k->x, (Id)ex(m, e)->integer, dims, RED_NONE, 0, &to))
    return e;
  for (uint32_t i = 0; i < to.s->nindex; i++) {
    uint32_t j = 0;
    while (k->v->letter[j] != to.letter[i]) j++;
    index[i] = ex_index(m, j);
  }
  Expand in = {k->x, &to, k->depth + 1};
  return ex_rename(m, ex_map(m, to.s->body, expand_read, &in), index, NULL);
}

static bool find_scores(Match *x, const View *from, Id read) {
  char *dims = x->score_dims;
  View v;
  if (!is(x, read, OP_READ) || !letters_of(x, from, read, dims)) return false;
  x->scores = (Id)ex(x->m, read)->integer;
  if (view(x, x->scores, dims, RED_SUM, 'e', &v)) return is_product(x, from, read);
  if (!view(x, x->scores, dims, RED_NONE, 0, &v)) return false;
  Expand k = {x, &v, 0};
  return is_score(x, &v, ex_map(x->m, v.s->body, expand_read, &k));
}

// ---- the softmax

static bool reads_scores(const Match *x, const View *v, Id e) {
  return reads(x, v, e, x->scores, x->score_dims);
}

static bool reads_largest(const Match *x, const View *v, Id e) {
  return reads(x, v, e, x->largest, x->largest_dims);
}

// exp(a - b): a and b.
static bool is_exp_less(const Match *x, Id e, Id *a, Id *b) {
  if (!is(x, e, OP_EXP) || !is(x, arg(x, e, 0), OP_SUB)) return false;
  *a = arg(x, arg(x, e, 0), 0);
  *b = arg(x, arg(x, e, 0), 1);
  return true;
}

static Id stopped(const Match *x, Id e) { return is(x, e, OP_STOP) ? arg(x, e, 0) : e; }

// A constant, or sinks[g, r].
static bool is_sink(const Match *x, const View *v, Id e, uint8_t *which, double *constant) {
  *which = 0;
  if (is_constant(x, e, constant)) return true;
  *constant = 0;
  for (uint8_t i = 3; i < x->f->arg.n; i++)
    if (reads_arg(x, v, e, i, "gr")) *which = i;
  return *which != 0;
}

static bool is_the_sink(const Match *x, const View *v, Id e) {
  uint8_t which;
  double constant;
  return x->a.has_sink && is_sink(x, v, stopped(x, e), &which, &constant) &&
         which == x->a.sinks && constant == x->a.sink;
}

// max(s: z), read; a gradient through it is 0 in all, stopped or not.
static bool is_top(const Match *x, const View *from, Id e) {
  View v;
  return follow(x, from, stopped(x, e), RED_MAX, 's', &v) &&
         reads_scores(x, &v, stopped(x, v.s->body));
}

// What exponents are less by: the greatest score, or the greater of that and the sink.
static bool is_largest(const Match *x, const View *from, Id e) {
  View v;
  if (is_top(x, from, e)) return true;
  if (!follow(x, from, e, RED_NONE, 0, &v)) return false;
  Id body = stopped(x, v.s->body);
  if (!is(x, body, OP_MAX)) return false;
  Id a = arg(x, body, 0), b = arg(x, body, 1);
  return (is_top(x, &v, a) && is_the_sink(x, &v, b)) || (is_top(x, &v, b) && is_the_sink(x, &v, a));
}

// sum(s: exp(z - m)), read
static bool is_weights(const Match *x, const View *from, Id e) {
  View v;
  Id z, top;
  return follow(x, from, e, RED_SUM, 's', &v) && is_exp_less(x, v.s->body, &z, &top) &&
         reads_scores(x, &v, z) && reads_largest(x, &v, top);
}

static bool is_sink_term(Match *x, const View *v, Id e) {
  Id a, b;
  Attention *to = &x->a;
  if (!is_exp_less(x, e, &a, &b) || !reads_largest(x, v, b) ||
      !is_sink(x, v, a, &to->sinks, &to->sink))
    return false;
  return to->has_sink = to->sinks != to->slopes || !to->sinks;
}

// log(sum + sink) + m
static bool is_lse(Match *x) {
  View v;
  if (!view(x, x->f->result.at[1], "bgrt", RED_NONE, 0, &v) || !is(x, v.s->body, OP_ADD))
    return false;
  Id log = arg(x, v.s->body, 0), top = arg(x, v.s->body, 1);
  if (!is(x, log, OP_LOG)) log = top, top = arg(x, v.s->body, 0);
  if (!is(x, log, OP_LOG) || !is(x, top, OP_READ) || !letters_of(x, &v, top, x->largest_dims))
    return false;
  x->largest = (Id)ex(x->m, top)->integer;
  Id sum = arg(x, log, 0);
  if (is(x, sum, OP_ADD)) {
    Id a = arg(x, sum, 0), b = arg(x, sum, 1);
    if (is_sink_term(x, &v, b)) sum = a;
    else if (is_sink_term(x, &v, a)) sum = b;
    else return false;
  }
  return is_weights(x, &v, sum) && is_largest(x, &v, top);
}

// o = sum(s: exp(z - lse) * v): the scores
static Id scores_of_output(const Match *x, View *v) {
  Id z, lse;
  if (!view(x, x->f->result.at[0], "btgre", RED_SUM, 's', v) || !is(x, v->s->body, OP_MUL))
    return NONE;
  Id a = arg(x, v->s->body, 0), b = arg(x, v->s->body, 1);
  if (!is(x, a, OP_EXP)) b = a, a = arg(x, v->s->body, 1);
  bool fits = is_exp_less(x, a, &z, &lse) && reads(x, v, lse, x->f->result.at[1], "bgrt") &&
              reads_arg(x, v, b, 2, "bsge");
  return fits ? z : NONE;
}

// Every argument is used, or its derivative would be missed.
static bool uses_arguments(const Match *x) {
  for (uint32_t i = 3; i < x->f->arg.n; i++)
    if (i != x->a.slopes && i != x->a.sinks) return false;
  return true;
}

const char *attention_differs(Module *m, const Fn *f, Attention *to) {
  Match x = {.m = m, .f = f, .a = {.known = true, .scale = 1}, .bounds = no_bounds};
  View out;
  if (!fits_signature(&x))
    return "does not take q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, e] and perhaps slopes[g, r] "
           "and sinks[g, r], and return o[b, t, g, r, e], lse[b, g, r, t]";
  Id z = scores_of_output(&x, &out);
  if (z == NONE) return "does not compute the softmax of its scores as nn.form does";
  if (!find_scores(&x, &out, z) || !find_mask(&x))
    return "has other scores than `scale * sum(e: q * k)`, perhaps as `cap * tanh(. / cap)`, plus "
           "`slope * (s - t)`, masked by bounds on t - s";
  if (!is_lse(&x) || !uses_arguments(&x))
    return "does not compute the softmax of its scores as nn.form does";
  if (!attention_is_finite(&x.a)) return "has a number that is not finite";
  *to = x.a;
  return NULL;
}

// ---- all functions

static const char *asked_of_layout(const Module *m) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    if (m->axis.at[a].ring) return "ring";
    if (m->axis.at[a].heads) return "alltoall";
  }
  return NULL;
}

bool intrinsics_recognise(Module *m) {
  const char *how = asked_of_layout(m);
  bool ok = true;
  for (Id i = 0; i < m->fn.n; i++) {
    Fn *f = &m->fn.at[i];
    const char *why = f->intrinsic && !f->backward ? attention_differs(m, f, &f->form) : NULL;
    if (!why) continue;
    f->intrinsic = INTR_NONE;
    if (!how) continue;
    diag_error(m->src, f->loc, "--cp-attention %s cannot cut `%s`: it %s", how, f->name, why);
    diag_note(m->src, f->loc, "--cp-attention gather computes any body as it is written");
    ok = false;
  }
  return ok;
}
