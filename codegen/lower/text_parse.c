// Parses the text of the lowered level: recursive descent as in ir/text/parse.c, one grammar rule a function, the rule
// above it. Numbers are in range when it is done; whether kernels compute what they should is the verifier's.
#include <stdlib.h>

#include "codegen/lower/nest.h"
#include "codegen/lower/text.h"
#include "codegen/lower/words.h"
#include "ir/text/parser.h"

// The function whose kernels are parsed.
typedef struct LevelParser {
  Plan *p; // NULL before `lowered`
  uint32_t nfn; // functions then: the others come too late
  FnPlan *fp;
  Fn *f;
  Kernel k; // the kernel that is parsed
  int64_t frame; // its `frame`, or -1
  Str name[MAX_VAR]; // of its variables, in the text
  VEC(int64_t) frames; // of each kernel
} LevelParser;

static bool end_of_line(Parser *p) { return p_expect(p, TOK_LINE, "the end of the line"); }

static void skip_line(Parser *p) {
  while (!is(p, TOK_LINE) && !is(p, TOK_END)) next(p);
  accept(p, TOK_LINE);
}

// value = NAME
static bool value(Parser *p, Id *v) {
  const Token *t = tok(p);
  Str text;
  return p_name(p, "a value", &text) && (*v = p_find_value(p, t)) != NONE;
}

// An offset or a stride: of elements that a process can address.
static bool distance(Parser *p, int64_t *out) {
  const Token *t = tok(p);
  if (!p_integer(p, out)) return false;
  return llabs(*out) <= INT64_C(1) << ADDRESS_BITS || p_fail(p, t, "this number is too large");
}

// place = NAME '+' OFFSET
static bool place(Parser *p, Id *v, int64_t *offset) {
  return value(p, v) && p_expect(p, '+', "`+`") && distance(p, offset);
}

static bool size(Parser *p, const char *what, int64_t *out) {
  const Token *t = tok(p);
  if (!distance(p, out)) return false;
  return *out >= 0 || p_fail(p, t, "%s is not below 0", what);
}

// numbers = INT {',' INT}, n of them
static bool numbers(Parser *p, int64_t *out, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if ((i && !p_expect(p, ',', "`,`")) || !distance(p, &out[i])) return false;
  return true;
}

// ---- storage

// strides = 'by' numbers, one for each dimension; none of a scalar
static bool strides(Parser *p, const Value *v, Layout *l) {
  if (!v->rank) return true;
  if (!accept_word(p, "by")) return p_fail(p, tok(p), "expected `by` and %u strides", v->rank);
  return numbers(p, l->stride, v->rank);
}

// storage = 'value' NAME ['at' BYTES] | 'view' NAME 'in' place strides | 'inside' NAME strides
static bool storage(Parser *p, LevelParser *x, Id *v) {
  bool view = is_word(tok(p), "view"), inside = is_word(tok(p), "inside");
  next(p);
  const Token *t = tok(p);
  if (!value(p, v)) return false;
  Layout *l = &x->fp->layout[*v];
  if (l->buffer != NONE) return p_fail(p, t, "the storage of `%s` is here already", t->text);
  *l = layout_own(x->f, *v);
  l->internal = inside;
  if (view) {
    const Token *of = ahead(p, 1);
    if (!accept_word(p, "in")) return p_fail(p, tok(p), "expected `in`");
    if (!place(p, &l->buffer, &l->offset)) return false;
    if (l->buffer == *v) return p_fail(p, of, "`%s` is no view of itself", t->text);
  }
  if ((view || inside) && !strides(p, &x->f->value.at[*v], l)) return false;
  if (view || inside || !accept_word(p, "at")) return true;
  if (x->p->level != LEVEL_PLAN) return p_fail(p, t, "there are no addresses before pass plan");
  return size(p, "an address", &x->fp->address[*v]);
}

static bool storage_here(const Parser *p) {
  return is_word(tok(p), "value") || is_word(tok(p), "view") || is_word(tok(p), "inside");
}

// Values as numbered in the module that was printed: in the order of their storage's lines.
static bool renumber(Parser *p, LevelParser *x, const Token *t, const Id *order, uint32_t n) {
  uint32_t nvalue = x->f->value.n;
  Id *to = NEWN(p->a, Id, nvalue + 1);
  for (Id v = 0; v < nvalue; v++)
    if (x->fp->layout[v].buffer == NONE)
      return p_fail(p, t, "there is no storage of `%s`", x->f->value.at[v].name);
  for (uint32_t i = 0; i < n; i++) to[order[i]] = i;
  Layout *layout = NEWN(p->a, Layout, nvalue + 1);
  int64_t *address = NEWN(p->a, int64_t, nvalue + 1);
  for (Id v = 0; v < nvalue; v++) {
    layout[to[v]] = x->fp->layout[v];
    layout[to[v]].buffer = to[x->fp->layout[v].buffer];
    address[to[v]] = x->fp->address[v];
  }
  x->fp->layout = layout;
  x->fp->address = address;
  fn_renumber(p->m, x->f, to);
  return true;
}

// {storage LINE}
static bool all_storage(Parser *p, LevelParser *x, const Token *t) {
  uint32_t n = 0;
  Id *order = NEWN(p->a, Id, x->f->value.n + 1);
  x->fp->layout = NEWN(p->a, Layout, x->f->value.n + 1);
  x->fp->address = NEWN(p->a, int64_t, x->f->value.n + 1);
  for (Id v = 0; v < x->f->value.n; v++) x->fp->layout[v].buffer = NONE, x->fp->address[v] = -1;
  bool ok = true;
  while (storage_here(p)) {
    Id v;
    if (storage(p, x, &v) && end_of_line(p)) {
      order[n++] = v;
      continue;
    }
    ok = false;
    skip_line(p);
  }
  return ok && renumber(p, x, t, order, n);
}

// ---- loops

// The number of the variable of that name, or NO_VAR.
static uint8_t find_var(const LevelParser *x, Str name) {
  for (uint32_t v = 0; v < x->k.loops->var.n; v++)
    if (x->name[v] == name) return (uint8_t)v;
  return NO_VAR;
}

// var = NAME ['as' NAME] '<' extent, which makes it | NAME
static bool variable(Parser *p, LevelParser *x, bool may_be_new, uint8_t *v) {
  const Token *t = tok(p);
  LoopVar var;
  Str name;
  if (!p_name(p, "a variable", &var.name)) return false;
  name = var.name;
  bool renamed = accept_word(p, "as");
  if (renamed && !p_name(p, "the variable's name", &name)) return false;
  *v = find_var(x, name);
  if (!renamed && !is(p, '<'))
    return *v != NO_VAR || p_fail(p, t, "there is no variable `%s` in this kernel", name);
  if (!may_be_new) return p_fail(p, t, "no variable is made here");
  if (*v != NO_VAR) return p_fail(p, t, "variable `%s` is there already", name);
  if (x->k.loops->var.n == MAX_VAR) return p_fail(p, t, "a kernel has at most %d variables", MAX_VAR);
  if (!p_expect(p, '<', "`<`") || !p_extent(p, &var.extent)) return false;
  *v = (uint8_t)x->k.loops->var.n;
  x->name[*v] = name;
  PUSH(p->a, x->k.loops->var, var);
  return true;
}

// grid = var ['by' TILE] {',' var ['by' TILE]}
static bool grid(Parser *p, LevelParser *x) {
  Loops *l = x->k.loops;
  if (l->var.n) return p_fail(p, tok(p), "the grid comes before nests, and once");
  do {
    uint8_t v;
    const Token *t = tok(p);
    if (l->tile) return p_fail(p, t, "only the last variable of a grid is cut in tiles");
    if (l->ngrid == MAX_INDEX) return p_fail(p, t, "a grid has at most %d variables", MAX_INDEX);
    if (!variable(p, x, true, &v)) return false;
    l->ngrid++;
    if (accept_word(p, "by") && !p_extent(p, &l->tile)) return false;
  } while (accept(p, ','));
  return true;
}

static bool statement_number(Parser *p, const LevelParser *x, Id *stmt) {
  const Token *t = tok(p);
  if (!p_small(p, stmt)) return false;
  return *stmt < x->f->stmt.n || p_fail(p, t, "`%s` has %u statements", x->f->name, x->f->stmt.n);
}

// member = 'stmt' NUMBER '(' [{(NAME | '_') ','}] ')' ['init']
static bool member(Parser *p, LevelParser *x, Nest *n) {
  NestStmt ns = {0};
  const Token *t = tok(p);
  memset(ns.var, NO_VAR, sizeof ns.var);
  if (!accept_word(p, "stmt")) return p_fail(p, t, "expected `stmt`, found %s", token_text(p->a, t));
  if (!statement_number(p, x, &ns.stmt)) return false;
  const Stmt *s = &x->f->stmt.at[ns.stmt];
  if (s->kind != ST_COMP) return p_fail(p, t, "statement %u is no comprehension", ns.stmt);
  if (!p_expect(p, '(', "`(`")) return false;
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (i && !p_expect(p, ',', "`,`")) return false;
    if (!accept_word(p, "_") && !variable(p, x, false, &ns.var[i])) return false;
  }
  if (!p_expect(p, ')', "`)`")) return false;
  ns.init = accept_word(p, "init");
  PUSH(p->a, n->stmt, ns);
  PUSH(p->a, x->k.stmt, ns.stmt);
  return true;
}

// nest = '(' [{var ','}] ['|' {var ','}] ')' ['lanes' NAME] '{' LINE {member LINE} '}'
static bool nest(Parser *p, LevelParser *x) {
  Nest n = {.vec = NO_VAR};
  bool bound = false;
  if (!p_expect(p, '(', "`(`")) return false;
  while (!accept(p, ')')) {
    const Token *t = tok(p);
    if (!bound && accept(p, '|')) {
      bound = true;
      n.nfree = n.nloop;
    } else if (n.nloop && !p_expect(p, ',', "`,`")) {
      return false;
    }
    if (n.nloop == MAX_INDEX) return p_fail(p, t, "a nest has at most %d loops", MAX_INDEX);
    if (!variable(p, x, true, &n.loop[n.nloop])) return false;
    n.nloop++;
  }
  if (!bound) n.nfree = n.nloop;
  if (accept_word(p, "lanes") && !variable(p, x, false, &n.vec)) return false;
  if (!p_expect(p, '{', "`{`") || !end_of_line(p)) return false;
  while (!accept(p, '}'))
    if (!member(p, x, &n) || !end_of_line(p)) return false;
  if (!n.stmt.n) return p_fail(p, tok(p), "a nest has statements");
  PUSH(p->a, x->k.loops->nest, n);
  return true;
}

// args = ['write'] NAME {',' ['write'] NAME}
static bool args(Parser *p, LevelParser *x) {
  do {
    Id v;
    bool written = is_word(tok(p), "write") && (ahead(p, 1)->kind == TOK_NAME || ahead(p, 1)->kind == TOK_STRING);
    if (written) next(p);
    if (!value(p, &v)) return false;
    PUSH(p->a, x->k.arg, v);
    PUSH(p->a, x->k.written, written);
  } while (accept(p, ','));
  return true;
}

// inplace = NAME 'over' NAME
static bool inplace(Parser *p, LevelParser *x) {
  InPlace q;
  if (!value(p, &q.out)) return false;
  if (!accept_word(p, "over")) return p_fail(p, tok(p), "expected `over`");
  if (!value(p, &q.in)) return false;
  PUSH(p->a, x->k.inplace, q);
  return true;
}

// A field of a kernel of loops; *mine where it is one.
static bool loops_field(Parser *p, LevelParser *x, bool *mine) {
  *mine = true;
  if (accept_word(p, "args")) return args(p, x);
  if (accept_word(p, "random")) return x->k.random = true;
  if (accept_word(p, "task")) return p_extent(p, &x->k.chunk);
  if (x->k.loops && accept_word(p, "grid")) return grid(p, x);
  if (x->k.loops && accept_word(p, "nest")) return nest(p, x);
  if (!x->k.loops && accept_word(p, "zeros")) return value(p, &x->k.fill);
  return *mine = false;
}

// ---- other kernels

// stride = place 'by' numbers
static bool strided(Parser *p, Id *v, int64_t *offset, int64_t *stride, uint32_t n) {
  if (!place(p, v, offset)) return false;
  if (!accept_word(p, "by")) return p_fail(p, tok(p), "expected `by`");
  return numbers(p, stride, n);
}

static bool loop_around(Parser *p, GemmPlan *g) {
  const Token *t = tok(p);
  int64_t move[3];
  enum { MOST = sizeof g->batch / sizeof g->batch[0] };
  if (g->nbatch == MOST) return p_fail(p, t, "a product has at most %d loops around it", MOST);
  if (!p_extent(p, &g->batch[g->nbatch].count) || !p_expect(p, ':', "`:`") || !numbers(p, move, 3)) return false;
  g->batch[g->nbatch].a = move[0];
  g->batch[g->nbatch].b = move[1];
  g->batch[g->nbatch++].c = move[2];
  return true;
}

// A product is C = beta * C + A * B over m, n, k, each at least 1.
static bool product_size(Parser *p, GemmPlan *g) {
  return p_extent(p, &g->m) && p_expect(p, ',', "`,`") && p_extent(p, &g->n) && p_expect(p, ',', "`,`") &&
         p_extent(p, &g->k);
}

static bool function_of_sum(Parser *p, GemmPlan *g) {
  for (int i = ACT_NONE + 1; i < NACT; i++)
    if (accept_word(p, act_word[i])) {
      g->act = (GemmAct)i;
      return true;
    }
  return p_fail(p, tok(p), "expected a function of the sum, found %s", token_text(p->a, tok(p)));
}

static bool product_field(Parser *p, GemmPlan *g, bool *mine) {
  int64_t by[2];
  *mine = true;
  if (accept_word(p, "size")) return product_size(p, g);
  if (accept_word(p, "a")) {
    if (!strided(p, &g->a, &g->a_offset, by, 2)) return false;
    g->a_row = by[0], g->a_col = by[1];
    return true;
  }
  if (accept_word(p, "b")) {
    if (!strided(p, &g->b, &g->b_offset, by, 2)) return false;
    g->b_row = by[0], g->b_col = by[1];
    return true;
  }
  if (is_word(tok(p), "c") || is_word(tok(p), "add")) {
    g->accumulate = accept_word(p, "add");
    if (!accept_word(p, "c")) return p_fail(p, tok(p), "expected `c`");
    return strided(p, &g->c, &g->c_offset, &g->c_row, 1);
  }
  if (accept_word(p, "bias")) return place(p, &g->bias, &g->bias_offset);
  if (accept_word(p, "plus")) {
    g->plus_first = g->bias == NONE;
    return place(p, &g->plus, &g->plus_offset);
  }
  if (accept_word(p, "keep")) return value(p, &g->kept);
  if (accept_word(p, "act")) return function_of_sum(p, g);
  if (accept_word(p, "loop")) return loop_around(p, g);
  return *mine = false;
}

static bool scan_dim(Parser *p, ScanDim *d) {
  return p_extent(p, &d->count) && p_expect(p, ':', "`:`") && distance(p, &d->x) && p_expect(p, ',', "`,`") &&
         distance(p, &d->y);
}

static bool scan_field(Parser *p, ScanPlan *s, bool *mine) {
  enum { MOST = sizeof s->loop / sizeof s->loop[0] };
  *mine = true;
  if (accept_word(p, "from")) return place(p, &s->from, &s->from_offset);
  if (is_word(tok(p), "to") || is_word(tok(p), "add")) {
    s->add = accept_word(p, "add");
    if (!accept_word(p, "to")) return p_fail(p, tok(p), "expected `to`");
    return place(p, &s->to, &s->to_offset);
  }
  if (accept_word(p, "along")) return scan_dim(p, &s->along);
  if (accept_word(p, "column")) return scan_dim(p, &s->column);
  if (accept_word(p, "reverse")) return s->reverse = true;
  if (accept_word(p, "exclusive")) return s->exclusive = true;
  if (!accept_word(p, "loop")) return *mine = false;
  if (s->nloop == MOST) return p_fail(p, tok(p), "a scan has at most %d loops around it", MOST);
  return scan_dim(p, &s->loop[s->nloop++]);
}

static bool stmt_field(Parser *p, LevelParser *x) {
  Id stmt;
  if (!statement_number(p, x, &stmt)) return false;
  PUSH(p->a, x->k.stmt, stmt);
  return true;
}

// field = 'cost' BYTES ',' FLOPS | 'frame' BYTES | inplace | those of the kernel's kind
static bool field(Parser *p, LevelParser *x) {
  bool mine = false, ok = true;
  if (accept_word(p, "cost"))
    return p_real(p, &x->k.bytes) && p_expect(p, ',', "`,`") && p_real(p, &x->k.flops);
  if (accept_word(p, "inplace")) return inplace(p, x);
  if (x->p->level == LEVEL_PLAN && accept_word(p, "frame")) return size(p, "an address", &x->frame);
  if (x->k.kind == K_LOOPS) ok = loops_field(p, x, &mine);
  if (x->k.kind == K_GEMM) ok = product_field(p, &x->k.gemm, &mine);
  if (x->k.kind == K_SCAN) ok = scan_field(p, &x->k.scan, &mine);
  if (mine) return ok;
  if (x->k.kind != K_LOOPS && accept_word(p, "stmt")) return stmt_field(p, x);
  return p_fail(p, tok(p), "expected a field of a kernel, found %s", token_text(p->a, tok(p)));
}

static int by_number(const void *x, const void *y) {
  Id a = *(const Id *)x, b = *(const Id *)y;
  return a < b ? -1 : a > b;
}

static bool are_of_kind(const LevelParser *x, StmtKind one, StmtKind other) {
  for (uint32_t i = 0; i < x->k.stmt.n; i++) {
    StmtKind k = x->f->stmt.at[x->k.stmt.at[i]].kind;
    if (k != one && k != other) return false;
  }
  return true;
}

// What a kernel of each kind must have.
static bool complete(Parser *p, LevelParser *x, const Token *t) {
  Kernel *k = &x->k;
  const GemmPlan *g = &k->gemm;
  // A statement adds one term or two; a sum that is kept is a statement of the sum, or a copy.
  bool bias = g->bias != NONE, plus = g->plus != NONE, product = k->kind == K_GEMM;
  uint32_t least = product ? 1 + (bias || plus) + (g->act != ACT_NONE) : 1;
  uint32_t most = product ? least + (bias && plus) + (g->kept != NONE) : 1;
  switch (k->kind) {
  case K_LOOPS:
    if (k->chunk < 1) return p_fail(p, t, "this kernel has no `task`");
    if (k->loops ? !k->loops->nest.n : k->fill == NONE) return p_fail(p, t, "this kernel computes nothing");
    if (!kernel_count_grid(x->f, k)) return p_fail(p, t, "the grid has more points than 64 bits count");
    if (k->stmt.n) qsort(k->stmt.at, k->stmt.n, sizeof *k->stmt.at, by_number);
    return true;
  case K_GEMM:
    if (!k->gemm.m || k->gemm.a == NONE || k->gemm.b == NONE || k->gemm.c == NONE)
      return p_fail(p, t, "a product has `size`, `a`, `b` and `c`");
    break;
  case K_SCAN:
    if (k->scan.from == NONE || k->scan.to == NONE || !k->scan.along.count || !k->scan.column.count)
      return p_fail(p, t, "a scan has `from`, `to`, `along` and `column`");
    break;
  default: break;
  }
  if (k->stmt.n < least || k->stmt.n > most)
    return p_fail(p, t, "this kernel has %u statements, not %u", least, k->stmt.n);
  bool call = k->kind == K_CALL || k->kind == K_INTRINSIC, coll = k->kind == K_COLL || k->kind == K_WAIT;
  if (!are_of_kind(x, call ? ST_CALL : coll ? ST_COLL : ST_COMP, call ? ST_REPEAT : coll ? ST_COLL : ST_COMP))
    return p_fail(p, t, "this kernel is of another kind than its statement");
  if (x->p->level == LEVEL_PLAN && call && x->frame < 0) return p_fail(p, t, "this kernel has no `frame`");
  return call || x->frame < 0 || p_fail(p, t, "only calls have a `frame`");
}

// kernel = WORD NAME '{' LINE {field LINE} '}'
static bool kernel(Parser *p, LevelParser *x) {
  const Token *t = tok(p);
  int word = 0;
  while (word < NKERNEL_WORD && !is_word(t, kernel_word[word])) word++;
  if (word == NKERNEL_WORD)
    return p_fail(p, t, "expected storage or a kernel, found %s", token_text(p->a, t));
  next(p);
  x->k = (Kernel){.kind = word == FILL_WORD ? K_LOOPS : (KernelKind)word, .fill = NONE, .bytes = 0};
  x->k.gemm = (GemmPlan){.a = NONE, .b = NONE, .c = NONE, .bias = NONE, .plus = NONE, .kept = NONE};
  x->k.scan = (ScanPlan){.from = NONE, .to = NONE};
  x->frame = -1;
  if (word == K_LOOPS) x->k.loops = NEW(p->a, Loops);
  if (!p_name(p, "the kernel's name", &x->k.name) || !p_expect(p, '{', "`{`") || !end_of_line(p)) return false;
  while (!accept(p, '}'))
    if (!field(p, x) || !end_of_line(p)) return false;
  if (!complete(p, x, t) || !end_of_line(p)) return false;
  PUSH(p->a, x->fp->kernel, x->k);
  PUSH(p->a, x->frames, x->frame);
  return true;
}

// A collective's kernel knows where it is waited for.
static void find_waits(FnPlan *fp) {
  for (uint32_t i = 0; i < fp->kernel.n; i++)
    for (uint32_t j = i; fp->kernel.at[i].kind == K_COLL && j < fp->kernel.n; j++)
      if (fp->kernel.at[j].kind == K_WAIT && fp->kernel.at[j].stmt.at[0] == fp->kernel.at[i].stmt.at[0])
        fp->kernel.at[i].wait = j;
}

// After a mistake: up to the next function's kernels.
static void skip_function(Parser *p) {
  while (!is(p, TOK_END) && !(is(p, TOK_LINE) && is_word(ahead(p, 1), "kernels"))) next(p);
}

// function = 'kernels' NAME '{' LINE ['frame' BYTES LINE] {storage LINE} {kernel} '}'
static bool function(Parser *p, LevelParser *x) {
  const Token *t = tok(p);
  Str name;
  if (!x->p) return p_fail(p, t, "`lowered` comes before kernels");
  if (!p_name(p, "a function", &name)) return false;
  Id fn = fn_find(p->m, name);
  if (fn == NONE) return p_fail(p, t, "there is no function `%s`", name);
  if (fn >= x->nfn || x->p->reached[fn]) return p_fail(p, t, "the kernels of `%s` are there already", name);
  if (!p_expect(p, '{', "`{`") || !end_of_line(p)) return false;
  bool planned = x->p->level == LEVEL_PLAN;
  x->p->reached[fn] = true;
  x->fp = &x->p->fn[fn];
  x->f = p->f = &p->m->fn.at[fn];
  x->fp->fn = fn;
  x->frames.n = 0;
  if (planned && !accept_word(p, "frame")) return p_fail(p, tok(p), "expected `frame` and the bytes of it");
  bool ok = (!planned || (size(p, "a frame", &x->fp->frame_bytes) && end_of_line(p))) && all_storage(p, x, t);
  while (ok && !is(p, '}') && !is(p, TOK_END)) ok = kernel(p, x);
  if (!ok) skip_function(p);
  else if (!p_expect(p, '}', "`}`")) return false;
  find_waits(x->fp);
  if (!planned) {
    x->fp->address = NULL;
    return ok;
  }
  x->fp->callee_frame = NEWN(p->a, int64_t, x->fp->kernel.n + 1);
  for (uint32_t i = 0; i < x->frames.n; i++) x->fp->callee_frame[i] = x->frames.at[i];
  return ok;
}

// lowered = 'lowered' LEVEL
static bool lowered(Parser *p, LevelParser *x) {
  const Token *t = tok(p);
  int level = 0;
  while (level < NLEVEL && !is_word(t, level_name[level])) level++;
  if (level == NLEVEL) return p_fail(p, t, "expected `fuse`, `overlap` or `plan`, found %s", token_text(p->a, t));
  next(p);
  if (x->p) return p_fail(p, t, "`lowered` is here already");
  x->nfn = p->m->fn.n;
  x->p = NEW(p->a, Plan);
  *x->p = (Plan){.m = p->m, .level = (PlanLevel)level};
  x->p->fn = NEWN(p->a, FnPlan, x->nfn + 1);
  x->p->reached = NEWN(p->a, bool, x->nfn + 1);
  p->m->lowered = x->p;
  return true;
}

static bool item(Parser *p, void *ctx, bool *mine) {
  LevelParser *x = ctx;
  *mine = true;
  if (accept_word(p, "lowered")) return lowered(p, x);
  if (accept_word(p, "kernels")) return function(p, x);
  return *mine = false;
}

Module *level_parse(Arena *a, Sources *s, Str name, const char *text, size_t n) {
  LevelParser x = {0};
  Module *m = ir_parse_more(a, s, name, text, n, item, &x);
  if (!m || !x.p || m->fn.n == x.nfn) return m;
  diag_error(s, 0, "%s: functions come before `lowered`", name);
  return NULL;
}
