// Chooses a storage type for every real value, and the arithmetic of statements.
// requires: optimizer, so that every function is there.
// guarantees: no value of type REAL; Module.compute is F32 or F64. In bf16 and fp16 a value of 16 bits is
//             rounded where its statement makes it, and nothing later adds or removes a rounding.
// invalidates: positions of statements and values.
//
// In bf16 and fp16 all arithmetic is float's. Of 16 bits are parameters in all functions but the update,
// arguments and results of calls, and values that are kept (precision/keep.c). Float are
//   - scalars, data, totals, what is accumulated (+=), results of entries; all of `count` and `update`;
//   - statistics: results of reductions that are no matrix products, and what is made of these, of
//     constants and of positions alone;
//   - what attention has between its operands and its results;
//   - what is F32 before: values of layers whose precision is fp32, and their adjoints. Products with such
//     an operand or result take float copies of the others;
//   - with `residual = fp32`, the residual stream (precision/residual.c);
//   - other terms. A term that the backward pass reads is saved as a rounded copy.
// An argument or result of a call is float where any value that it goes by elsewhere has to be.
#include "passes/passes.h"
#include "passes/precision/types.h"
#include "passes/util.h"

// ---- values that must have the same type

Id types_root(const Types *t, Id number) {
  while (t->same[number] != number) number = t->same[number] = t->same[t->same[number]];
  return number;
}

static void unite(Types *t, Id a, Id b) {
  t->fact[a] |= LINKED;
  t->fact[b] |= LINKED;
  a = types_root(t, a);
  b = types_root(t, b);
  t->same[a] = b;
  t->fact[b] |= t->fact[a] & (WIDE | STATISTIC);
}

static bool is_param(const Types *t, Id fn, Id value) {
  return t->fact[number_of(t, fn, value)] & PARAMETER;
}

static Id carried_formal(const Call *c, const Fn *callee, uint32_t result) {
  uint32_t nth = 0, i = 0;
  for (uint32_t r = 0; r < result; r++) nth += c->result[r].mode == RES_CARRY;
  for (;; i++)
    if (c->arg[i].mode == ACT_CARRY && nth-- == 0) return callee->arg.at[i];
}

static void unite_call(Types *t, Id fn, const Call *c) {
  const Fn *callee = &t->m->fn.at[c->fn];
  for (uint32_t i = 0; i < c->narg; i++) {
    Id formal = callee->arg.at[i], actual = c->arg[i].value;
    if (c->arg[i].mode == ACT_ITER || is_param(t, fn, actual)) continue;
    unite(t, number_of(t, c->fn, formal), number_of(t, fn, actual));
  }
  for (uint32_t i = 0; i < c->nresult; i++) {
    Id result = number_of(t, c->fn, callee->result.at[i]);
    t->fact[result] |= LINKED | (c->result[i].mode == RES_SLICE ? SAVED : KEPT);
    if (c->result[i].mode != RES_DROP) unite(t, result, number_of(t, fn, c->result[i].value));
    if (c->result[i].mode == RES_CARRY)
      unite(t, result, number_of(t, c->fn, carried_formal(c, callee, i)));
  }
}

// Formals that parameters are passed for have 16 bits, unless other calls make them float.
static void link_params(Types *t, Id fn, const Call *c) {
  for (uint32_t i = 0; i < c->narg; i++) {
    Id formal = number_of(t, c->fn, t->m->fn.at[c->fn].arg.at[i]);
    if (c->arg[i].mode != ACT_ITER && is_param(t, fn, c->arg[i].value)) t->fact[formal] |= LINKED;
  }
}

static void each_call(Types *t, void (*visit)(Types *t, Id fn, const Call *c)) {
  for (Id f = 0; f < t->m->fn.n; f++)
    for (uint32_t i = 0; i < t->m->fn.at[f].stmt.n; i++)
      if (t->m->fn.at[f].stmt.at[i].call) visit(t, f, t->m->fn.at[f].stmt.at[i].call);
}

// ---- facts

static void reach(const Module *m, Id fn, bool *reached) {
  if (reached[fn]) return;
  reached[fn] = true;
  for (uint32_t i = 0; i < m->fn.at[fn].stmt.n; i++)
    if (m->fn.at[fn].stmt.at[i].call) reach(m, m->fn.at[fn].stmt.at[i].call->fn, reached);
}

static void note_params(Types *t, Entry e) {
  const Module *m = t->m;
  if (m->entry[e] == NONE || t->wide[m->entry[e]]) return;
  const Fn *f = &m->fn.at[m->entry[e]];
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    if (v->role != ROLE_IN || !is_real(v)) continue;
    t->fact[number_of(t, m->entry[e], f->arg.at[i])] |= v->means == MEANS_PARAM ? PARAMETER : WIDE;
  }
  for (uint32_t i = 0; i < f->result.n; i++)
    t->fact[number_of(t, m->entry[e], f->result.at[i])] |= WIDE;
}

static void note_values(Types *t, Id fn) {
  const Fn *f = &t->m->fn.at[fn];
  for (Id v = 0; v < f->value.n; v++) {
    const Value *x = &f->value.at[v];
    bool inside = f->intrinsic && x->role == ROLE_LOCAL;
    if (t->wide[fn] || !x->rank || x->role == ROLE_INOUT || inside)
      t->fact[number_of(t, fn, v)] |= WIDE;
  }
  for (uint32_t i = 0; f->intrinsic && !t->wide[fn] && i < f->result.n; i++)
    t->fact[number_of(t, fn, f->result.at[i])] = 0;
  for (Id v = 0; v < f->value.n; v++)
    if (f->value.at[v].type == DT_F32) t->fact[number_of(t, fn, v)] |= WIDE | ASKED;
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].acc) t->fact[number_of(t, fn, f->stmt.at[i].lhs)] |= WIDE;
}

typedef struct Origin {
  const Types *t;
  Id fn;
  bool statistic;
} Origin;

static void note_origin(const Module *m, Id read, void *ctx) {
  Origin *o = ctx;
  Id value = (Id)ex(m, read)->integer;
  const Value *v = &m->fn.at[o->fn].value.at[value];
  if (is_real(v) && v->rank) o->statistic &= has_fact(o->t, number_of(o->t, o->fn, value), STATISTIC);
}

// Marks what is a statistic; whether that is new.
static bool note_statistics(Types *t, Id fn) {
  const Fn *f = &t->m->fn.at[fn];
  bool any = false;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->kind != ST_COMP || s->acc || !is_real(&f->value.at[s->lhs])) continue;
    Id root = types_root(t, number_of(t, fn, s->lhs));
    if (t->fact[root] & STATISTIC) continue;
    Origin o = {t, fn, true};
    if (s->red == RED_NONE) ex_reads(t->m, s->body, note_origin, &o);
    else o.statistic = !is_product(t->m, s);
    if (o.statistic) t->fact[root] |= STATISTIC | WIDE;
    any |= o.statistic;
  }
  return any;
}

static Types types_new(Module *m) {
  Types t = {.m = m, .first = NEWN(m->arena, Id, m->fn.n + 1)};
  t.wide = NEWN(m->arena, bool, m->fn.n + 1);
  for (Id f = 0; f < m->fn.n; f++) t.first[f + 1] = t.first[f] + m->fn.at[f].value.n;
  t.same = NEWN(m->arena, Id, t.first[m->fn.n] + 1);
  t.fact = NEWN(m->arena, uint8_t, t.first[m->fn.n] + 1);
  for (Id n = 0; n < t.first[m->fn.n]; n++) t.same[n] = n;
  Fn *update = entry_fn(m, ENTRY_UPDATE);
  if (m->entry[ENTRY_COUNT] != NONE) reach(m, m->entry[ENTRY_COUNT], t.wide);
  if (update && arg_find(update, MEANS_PIECE, PIECE_PARAM) != NONE)
    reach(m, m->entry[ENTRY_UPDATE], t.wide);
  for (int e = 0; e < NENTRY; e++) note_params(&t, (Entry)e);
  for (Id f = 0; f < m->fn.n; f++) note_values(&t, f);
  each_call(&t, unite_call);
  each_call(&t, link_params);
  return t;
}

// ---- results of entries, and parameters that are passed where float is

typedef struct Use {
  Id value;
  bool found;
} Use;

static void find_use(Id value, void *ctx) {
  Use *u = ctx;
  u->found |= value == u->value;
}

// Whether one comprehension makes the value and nothing reads it.
static bool is_last(const Module *m, const Fn *f, Id value) {
  bool made = false;
  Use u = {value, false};
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    made |= f->stmt.at[i].kind == ST_COMP && f->stmt.at[i].lhs == value;
    stmt_reads(m, f, &f->stmt.at[i], find_use, &u);
  }
  return made && !u.found;
}

static Id value_like(Module *m, Fn *f, Id of, const char *end, Dtype type) {
  Value v = f->value.at[of];
  return fn_value(m, f, str_printf("%s.%s", v.name, end), type, v.extent, v.rank, ROLE_LOCAL, v.loc);
}

// to = from, of the same shape.
static Stmt copy_stmt(Module *m, Fn *f, Id to, Id from, Id loc) {
  fn_copy_stmt(m, f, to, from, loc);
  return f->stmt.at[--f->stmt.n];
}

// An array that an entry gives is float: made so where nothing else reads it, else as a copy.
static void copy_results(Module *m, Entry e) {
  if (m->entry[e] == NONE || e == ENTRY_COUNT || e == ENTRY_UPDATE) return;
  Fn *f = &m->fn.at[m->entry[e]];
  for (uint32_t i = 0; i < f->result.n; i++) {
    Id v = f->result.at[i];
    if (!is_real(&f->value.at[v]) || !f->value.at[v].rank || is_last(m, f, v)) continue;
    Id out = value_like(m, f, v, "out", DT_REAL);
    fn_copy_stmt(m, f, out, v, f->value.at[v].loc);
    f->result.at[i] = out;
  }
}

typedef VEC(Stmt) Stmts;

// Passes float copies of parameters to calls that take float there. False after an error.
static bool widen_params(Types *t, Id fn, Stmts *out, Stmt *s) {
  Module *m = t->m;
  Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; s->call && i < s->call->narg; i++) {
    Actual *a = &s->call->arg[i];
    if (a->mode == ACT_ITER || !is_param(t, fn, a->value)) continue;
    Id formal = m->fn.at[s->call->fn].arg.at[i];
    if (!has_fact(t, number_of(t, s->call->fn, formal), WIDE)) continue;
    if (a->mode == ACT_SLICE) {
      diag_error(m->src, s->loc, "parameter `%s` goes where other calls pass float32: in 16 bits this is not possible",
                 f->value.at[a->value].name);
      return false;
    }
    Id copy = value_like(m, f, a->value, "wide", DT_F32);
    PUSH(m->arena, *out, copy_stmt(m, f, copy, a->value, s->loc));
    a->value = copy;
  }
  return true;
}

// ---- types

static bool is_kept(const Types *t, Id fn, Id value) {
  Id n = number_of(t, fn, value);
  return !has_fact(t, n, WIDE) && (t->fact[n] & (PARAMETER | LINKED | KEPT | SAVED));
}

// A term that is saved: made as float, read so in the loss, and copied.
static bool needs_copy(const Types *t, Id fn, const Stmt *s) {
  const Fn *f = &t->m->fn.at[fn];
  if (s->kind != ST_COMP || s->acc || !is_real(&f->value.at[s->lhs])) return false;
  Id n = number_of(t, fn, s->lhs);
  return (t->fact[n] & SAVED) && !has_fact(t, n, WIDE) && !(t->fact[n] & KEPT) &&
         !is_renaming(t->m, f, s);
}

typedef struct Asked {
  const Types *t;
  Id fn;
  bool found;
} Asked;

static void find_asked(Id value, void *ctx) {
  Asked *a = ctx;
  a->found |= (a->t->fact[number_of(a->t, a->fn, value)] & ASKED) != 0;
}

// A product in float: of a layer whose precision is fp32, or of its derivative.
static bool is_asked(const Types *t, Id fn, const Stmt *s) {
  Asked a = {t, fn, false};
  if (!is_product(t->m, s)) return false;
  find_asked(s->lhs, &a);
  product_operands(t->m, s, find_asked, &a);
  return a.found;
}

typedef struct Widen {
  Types *t;
  Id fn, loc;
  Stmts *out;
  Id *copy; // by value, of the first n: its float copy, or NONE
  uint32_t n;
} Widen;

static void widen_factor(Id value, void *ctx) {
  Widen *w = ctx;
  Module *m = w->t->m;
  Fn *f = &m->fn.at[w->fn];
  if (value >= w->n || !is_kept(w->t, w->fn, value) || w->copy[value] != NONE) return;
  w->copy[value] = value_like(m, f, value, "wide", DT_F32);
  PUSH(m->arena, *w->out, copy_stmt(m, f, w->copy[value], value, w->loc));
}

static void read_instead(Module *m, const Fn *f, Stmt *s, const Id *instead, uint32_t n) {
  bool any = false;
  Id *value = NEWN(m->arena, Id, f->value.n + 1);
  for (Id v = 0; v < f->value.n; v++) {
    value[v] = v < n && instead[v] != NONE ? instead[v] : v;
    any |= value[v] != v && ex_has_read(m, s->body, v);
  }
  if (any) s->body = ex_rename(m, s->body, NULL, value);
}

// New statements, where copies are needed. False after an error.
static bool insert_copies(Types *t, Id fn) {
  Module *m = t->m;
  Fn *f = &m->fn.at[fn];
  Stmts out = {0};
  uint32_t n = f->value.n, end = types_backward(m, fn), ncopy = 0;
  Id *wide = NEWN(m->arena, Id, n + 1), *copy = NEWN(m->arena, Id, n + 1);
  for (Id v = 0; v < n; v++) wide[v] = copy[v] = NONE;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    Stmt s = f->stmt.at[i];
    if (!widen_params(t, fn, &out, &s)) return false;
    if (ncopy && i < end && s.kind == ST_COMP) read_instead(m, f, &s, wide, n);
    Id made = s.lhs;
    bool copies = i < end && needs_copy(t, fn, &s), asked = is_asked(t, fn, &f->stmt.at[i]);
    if (asked) {
      Widen w = {t, fn, s.loc, &out, copy, n};
      product_operands(m, &s, widen_factor, &w);
      read_instead(m, f, &s, copy, n);
    }
    if (copies) s.lhs = wide[made] = value_like(m, f, made, "wide", DT_F32);
    else if (asked && !s.acc && is_kept(t, fn, made)) s.lhs = value_like(m, f, made, "wide", DT_F32);
    PUSH(m->arena, out, s);
    if (s.lhs != made) PUSH(m->arena, out, copy_stmt(m, f, made, s.lhs, s.loc));
    ncopy += copies;
  }
  f->stmt.at = out.at;
  f->stmt.n = out.n;
  f->stmt.cap = out.cap;
  return true;
}

static void choose_types(const Types *t, Id fn, uint32_t n, Dtype half) {
  Fn *f = &t->m->fn.at[fn];
  for (Id v = 0; v < n; v++)
    if (is_real(&f->value.at[v])) f->value.at[v].type = is_kept(t, fn, v) ? half : DT_F32;
  for (uint32_t i = 0; i < f->stmt.n; i++) { // another name of what has 16 bits
    const Stmt *s = &f->stmt.at[i];
    if (!is_renaming(t->m, f, s) || s->lhs >= n) continue;
    Dtype from = f->value.at[ex(t->m, s->body)->integer].type;
    if (from == half && !has_fact(t, number_of(t, fn, s->lhs), WIDE)) f->value.at[s->lhs].type = half;
  }
}

static bool half_precision(Module *m, Dtype half) {
  m->compute = DT_F32;
  m->store = half;
  for (int e = 0; e < NENTRY; e++) copy_results(m, (Entry)e);
  Types t = types_new(m);
  if (m->train.residual && !types_residual(&t)) {
    diag_error(m->src, 0,
               "residual = fp32: this model has no residual stream, no sum x + f(x) where f has a matrix product");
    return false;
  }
  for (bool more = true; more;) {
    more = false;
    for (Id f = 0; f < m->fn.n; f++) more |= note_statistics(&t, f);
  }
  for (Id f = 0; f < m->fn.n; f++) {
    uint32_t n = m->fn.at[f].value.n;
    if (!t.wide[f]) types_keep(&t, f);
    if (!insert_copies(&t, f)) return false;
    choose_types(&t, f, n, half);
  }
  return true;
}

// The type that a precision stores values in; DT_REAL after an error.
static Dtype stored_type(const Module *m, Str precision) {
  static const struct {
    const char *name;
    Dtype type;
  } known[] = {{"fp32", DT_F32}, {"fp64", DT_F64}, {"bf16", DT_BF16}, {"fp16", DT_F16}};
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
    Dtype t = known[i].type, computed = is_half(t) ? DT_F32 : t;
    if (strcmp(precision, known[i].name)) continue;
    if (m->stores >> t & m->stores >> computed & 1) return t;
    diag_error(m->src, 0, "precision = %s: the target has no values of type %s", precision,
               dtype_name[m->stores >> t & 1 ? computed : t]);
    return DT_REAL;
  }
  diag_error(m->src, 0, "unknown precision `%s`: fp32, fp64, bf16 or fp16 is expected", precision);
  return DT_REAL;
}

bool pass_precision(Module *m) {
  Dtype store = stored_type(m, m->train.precision ? m->train.precision : str_intern("fp32"));
  if (store == DT_REAL) return false;
  if (is_half(store)) return half_precision(m, store);
  m->compute = store;
  for (Id f = 0; f < m->fn.n; f++)
    for (Id v = 0; v < m->fn.at[f].value.n; v++) {
      Value *x = &m->fn.at[f].value.at[v];
      if (x->type == DT_REAL || x->type == DT_F32) x->type = m->compute;
    }
  return true;
}
