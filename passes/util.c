#include "passes/util.h"

#include <stdlib.h>

Stmt stmt_copy(Module *m, const Fn *f, const Stmt *s) {
  Stmt t = *s;
  if (s->nindex) t.index = arena_copy(m->arena, s->index, s->nindex * sizeof(Index));
  if (s->kind == ST_COMP)
    t.sub = arena_copy(m->arena, s->sub, f->value.at[s->lhs].rank * sizeof(Id));
  if (s->call) {
    t.call = arena_copy(m->arena, s->call, sizeof(Call));
    t.call->arg = arena_copy(m->arena, s->call->arg, s->call->narg * sizeof(Actual));
    t.call->result = arena_copy(m->arena, s->call->result, s->call->nresult * sizeof(Result));
  }
  return t;
}

static Id renumber(Id v, const Id *value) { return v == NONE ? v : value[v]; }

Stmt stmt_renumber(Module *m, const Fn *f, const Stmt *s, const Id *value) {
  Stmt t = stmt_copy(m, f, s);
  if (s->kind == ST_COMP) {
    uint32_t rank = f->value.at[s->lhs].rank;
    for (uint32_t d = 0; d < rank; d++) t.sub[d] = ex_rename(m, s->sub[d], NULL, value);
    t.body = ex_rename(m, s->body, NULL, value);
    t.lhs = renumber(s->lhs, value);
    return t;
  }
  if (!s->call) {
    t.lhs = renumber(s->lhs, value);
    t.from = renumber(s->from, value);
    return t;
  }
  for (uint32_t i = 0; i < t.call->narg; i++)
    t.call->arg[i].value = renumber(t.call->arg[i].value, value);
  for (uint32_t i = 0; i < t.call->nresult; i++)
    t.call->result[i].value = renumber(t.call->result[i].value, value);
  return t;
}

typedef struct FindRead {
  Id read;
  uint32_t at, n; // of n so far; at == UINT32_MAX: not found
} FindRead;

static void find_read(const Module *m, Id read, void *ctx) {
  FindRead *q = ctx;
  (void)m;
  if (read == q->read) q->at = q->n;
  q->n++;
}

Id stmt_read_loc(const Module *m, const Stmt *s, Id read) {
  FindRead q = {read, UINT32_MAX, 0};
  if (!s->read_loc) return s->loc;
  ex_reads(m, s->body, find_read, &q);
  if (q.n != s->nread_loc || q.at >= q.n || !s->read_loc[q.at]) return s->loc;
  const Loc *at = &m->src->loc.at[s->read_loc[q.at]];
  return loc_new(m->src, at->file, at->line, at->col, at->len, m->src->loc.at[s->loc].parent);
}

void call_add_arg(Module *m, Call *c, ActualMode mode, Id value) {
  Actual *arg = NEWN(m->arena, Actual, c->narg + 1);
  if (c->narg) memcpy(arg, c->arg, c->narg * sizeof *arg);
  arg[c->narg++] = (Actual){mode, value};
  c->arg = arg;
}

void call_add_result(Module *m, Call *c, ResultMode mode, Id value) {
  Result *result = NEWN(m->arena, Result, c->nresult + 1);
  if (c->nresult) memcpy(result, c->result, c->nresult * sizeof *result);
  result[c->nresult++] = (Result){mode, value};
  c->result = result;
}

static bool ex_is_random(const Module *m, Id e) {
  if (ex_is(m, e, OP_RANDOM)) return true;
  for (uint32_t i = 0; i < ex(m, e)->narg; i++)
    if (ex_is_random(m, ex_arg(m, e, i))) return true;
  return false;
}

bool fn_is_random(const Module *m, Id fn) {
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->call ? fn_is_random(m, s->call->fn) : s->kind == ST_COMP && ex_is_random(m, s->body))
      return true;
  }
  return false;
}

Id fn_clone(Module *m, Id fn, Str name) {
  Id id = fn_new(m, name, m->fn.at[fn].loc);
  Fn *g = &m->fn.at[id];
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->value.n; i++) PUSH(m->arena, g->value, f->value.at[i]);
  for (uint32_t i = 0; i < f->arg.n; i++) PUSH(m->arena, g->arg, f->arg.at[i]);
  for (uint32_t i = 0; i < f->result.n; i++) PUSH(m->arena, g->result, f->result.at[i]);
  for (uint32_t i = 0; i < f->alias.n; i++) PUSH(m->arena, g->alias, f->alias.at[i]);
  for (uint32_t i = 0; i < f->stmt.n; i++) PUSH(m->arena, g->stmt, stmt_copy(m, f, &f->stmt.at[i]));
  g->intrinsic = f->intrinsic;
  g->form = f->form;
  g->backward = f->backward;
  return id;
}

typedef struct Live {
  bool *at;
  bool any;
} Live;

static void live_set(Id v, void *ctx) { ((Live *)ctx)->at[v] = true; }
static void live_test(Id v, void *ctx) { ((Live *)ctx)->any |= ((Live *)ctx)->at[v]; }

void fn_remove_dead(Module *m, Fn *f, uint32_t *mark) {
  Live live = {calloc(f->value.n + 1, sizeof(bool)), false};
  bool *keep = calloc(f->stmt.n + 1, sizeof(bool));
  ALLOCATED(live.at && keep);
  for (uint32_t i = 0; i < f->result.n; i++) live.at[f->result.at[i]] = true;
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (f->value.at[f->arg.at[i]].role == ROLE_INOUT) live.at[f->arg.at[i]] = true;
  for (uint32_t i = f->stmt.n; i-- > 0;) {
    Stmt *s = &f->stmt.at[i];
    live.any = false;
    stmt_writes(m, s, live_test, &live);
    if (!(keep[i] = live.any)) continue;
    if (s->kind == ST_REPEAT)
      for (uint32_t r = 0; r < s->call->nresult; r++)
        if (s->call->result[r].mode == RES_SLICE && !live.at[s->call->result[r].value])
          s->call->result[r] = (Result){RES_DROP, NONE};
    stmt_reads(m, f, s, live_set, &live);
  }
  uint32_t n = 0, at = mark ? *mark : 0;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    if (mark && i == at) *mark = n;
    if (keep[i]) f->stmt.at[n++] = f->stmt.at[i];
  }
  if (mark && at == f->stmt.n) *mark = n;
  f->stmt.n = n;
  free(live.at);
  free(keep);
}

void fn_compact(Module *m, Fn *f) {
  Live used = {calloc(f->value.n + 1, sizeof(bool)), false};
  Id *to = malloc((f->value.n + 1) * sizeof(Id));
  ALLOCATED(used.at && to);
  for (uint32_t i = 0; i < f->arg.n; i++) used.at[f->arg.at[i]] = true;
  for (uint32_t i = 0; i < f->result.n; i++) used.at[f->result.at[i]] = true;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    stmt_reads(m, f, &f->stmt.at[i], live_set, &used);
    stmt_writes(m, &f->stmt.at[i], live_set, &used);
  }
  uint32_t n = 0;
  for (Id v = 0; v < f->value.n; v++) to[v] = used.at[v] ? n++ : NONE;
  if (n < f->value.n) {
    for (uint32_t i = 0; i < f->stmt.n; i++)
      f->stmt.at[i] = stmt_renumber(m, f, &f->stmt.at[i], to);
    for (uint32_t i = 0; i < f->arg.n; i++) f->arg.at[i] = to[f->arg.at[i]];
    for (uint32_t i = 0; i < f->result.n; i++) f->result.at[i] = to[f->result.at[i]];
    for (uint32_t i = 0; i < f->alias.n; i++)
      if (f->alias.at[i] != NONE) f->alias.at[i] = to[f->alias.at[i]];
    for (Id v = 0; v < f->value.n; v++) {
      Value *x = &f->value.at[v];
      if (x->means == MEANS_ADJOINT && (x->of = to[x->of]) == NONE) x->means = MEANS_NONE, x->of = 0;
      if (to[v] != NONE) f->value.at[to[v]] = *x;
    }
    f->value.n = n;
  }
  free(used.at);
  free(to);
}

static uint32_t postorder(const Module *m, Id fn, bool *seen, Id *order, uint32_t n) {
  if (seen[fn]) return n;
  seen[fn] = true;
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].call) n = postorder(m, f->stmt.at[i].call->fn, seen, order, n);
  order[n] = fn;
  return n + 1;
}

uint32_t module_postorder(const Module *m, Id *order) {
  bool *seen = calloc(m->fn.n + 1, sizeof(bool));
  ALLOCATED(seen);
  uint32_t n = 0;
  for (int e = 0; e < NENTRY; e++)
    if (m->entry[e] != NONE) n = postorder(m, m->entry[e], seen, order, n);
  for (uint32_t i = 0; i < m->chunk.n * NCHUNK_PART; i++) {
    Id fn = m->chunk.at[i / NCHUNK_PART].fn[i % NCHUNK_PART];
    if (fn != NONE) n = postorder(m, fn, seen, order, n);
  }
  free(seen);
  return n;
}

// A copy whose original is gone takes its name: "block.2" becomes "block".
static void restore_names(Module *m) {
  for (Id f = 0; f < m->fn.n; f++) {
    Str name = m->fn.at[f].name;
    size_t n = strlen(name);
    while (n && name[n - 1] >= '0' && name[n - 1] <= '9') n--;
    if (n < 2 || !name[n] || name[n - 1] != '.') continue;
    Str old = str_internn(name, n - 1);
    if (fn_find(m, old) == NONE) m->fn.at[f].name = old;
    m->names = NULL; // it is found out anew
  }
}

void module_sweep(Module *m) {
  Id *order = NEWN(m->arena, Id, m->fn.n + 1), *to = NEWN(m->arena, Id, m->fn.n + 1);
  uint32_t n = module_postorder(m, order), k = 0;
  bool *reached = NEWN(m->arena, bool, m->fn.n + 1);
  for (uint32_t i = 0; i < n; i++) reached[order[i]] = true;
  for (Id f = 0; f < m->fn.n; f++) {
    to[f] = reached[f] ? k : NONE;
    if (reached[f]) m->fn.at[k++] = m->fn.at[f];
  }
  m->fn.n = k;
  for (Id f = 0; f < k; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++)
      if (m->fn.at[f].stmt.at[i].call)
        m->fn.at[f].stmt.at[i].call->fn = to[m->fn.at[f].stmt.at[i].call->fn];
  for (int e = 0; e < NENTRY; e++)
    if (m->entry[e] != NONE) m->entry[e] = to[m->entry[e]];
  for (uint32_t i = 0; i < m->chunk.n * NCHUNK_PART; i++) {
    Id *fn = &m->chunk.at[i / NCHUNK_PART].fn[i % NCHUNK_PART];
    if (*fn != NONE) *fn = to[*fn];
  }
  restore_names(m);
}

void bare_indices(const Value *v, Index *index) {
  static const char *const name[MAX_RANK] = {"i", "j", "k", "l", "m", "n", "o", "p"};
  for (uint32_t d = 0; d < v->rank; d++)
    index[d] = (Index){.name = str_intern(name[d]), .extent = v->extent[d]};
}

Id read_bare(Module *m, const Fn *f, Id value) {
  Id sub[MAX_RANK];
  for (uint32_t d = 0; d < f->value.at[value].rank; d++) sub[d] = ex_index(m, d);
  return ex_read(m, f, value, sub);
}

void fn_copy_stmt(Module *m, Fn *f, Id to, Id from, Id loc) {
  Index index[MAX_RANK];
  Id sub[MAX_RANK];
  const Value *v = &f->value.at[to];
  bare_indices(v, index);
  for (uint32_t d = 0; d < v->rank; d++) sub[d] = ex_index(m, d);
  fn_comp(m, f, to, sub, false, RED_NONE, index, v->rank, v->rank, read_bare(m, f, from), loc);
}

static bool name_taken(Str s, const Index *index, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (index[i].name == s) return true;
  return false;
}

Str index_name(Str want, const Index *index, uint32_t n) {
  static const char letters[] = "uvwxyzijklmnopqrst";
  if (want && !name_taken(want, index, n)) return want;
  for (const char *c = letters; *c; c++) {
    Str s = str_internn(c, 1);
    if (!name_taken(s, index, n)) return s;
  }
  BUG("%u indices have all names", n);
}

typedef struct Subst {
  const Index *extent;
  const Id *index;
  uint32_t ungroup;
  Id *memo;
} Subst;

// A group whose members became arg[]. Members of extent 1 that became 0 go; what is left is written
// out where it can't be a group: a later member is no index, an index is there twice, or the set
// `ungroup` has it.
static Id substitute_group(Module *m, Id e, const Subst *s, const Id *arg) {
  Id left[MAX_INDEX], r;
  int64_t extent[MAX_INDEX];
  uint32_t n = 0, narg = ex(m, e)->narg, seen = 0;
  bool flat = false;
  for (uint32_t i = 0; i < narg; i++) {
    const Expr *old = ex(m, ex_arg(m, e, i)), *x = ex(m, arg[i]);
    bool index = x->op == OP_INDEX, was = old->op == OP_INDEX;
    int64_t size = was ? s->extent[old->integer].extent : 0;
    if (size == 1 && x->op == OP_INT && x->integer == 0) continue;
    flat |= n && (!index || (s->ungroup >> old->integer & 1));
    flat |= index && (seen >> x->integer & 1);
    if (index) seen |= 1u << x->integer;
    extent[n] = size;
    left[n++] = arg[i];
  }
  if (!n) return ex_int(m, 0);
  if (n == 1 || !flat) return n == 1 ? left[0] : ex_group(m, left, n);
  r = left[0];
  for (uint32_t i = 1; i < n; i++)
    r = fold_add(m, fold_mul(m, r, ex_int(m, extent[i])), left[i]);
  return r;
}

static Id substitute(Module *m, Id e, Subst *s) {
  if (s->memo[e] != NONE) return s->memo[e];
  Expr x = *ex(m, e);
  Id arg[64], r = e;
  bool changed = false, ungroup = false;
  CHECK(x.narg <= 64);
  for (uint32_t i = 0; i < x.narg; i++) {
    Id old = ex_arg(m, e, i);
    arg[i] = substitute(m, old, s);
    changed |= arg[i] != old;
    ungroup |= x.op == OP_GROUP && i && (s->ungroup >> ex(m, old)->integer & 1);
  }
  if (x.op == OP_GROUP && (changed || ungroup)) r = substitute_group(m, e, s, arg);
  else if (x.op == OP_INDEX && s->index && s->index[x.integer] != NONE) r = s->index[x.integer];
  else if (changed) r = ex_like(m, e, x.integer, arg);
  return s->memo[e] = r;
}

Id ex_substitute(Module *m, Id e, const Index *extent, const Id *index, uint32_t ungroup) {
  Subst s = {extent, index, ungroup, malloc((e + 1) * sizeof(Id))};
  ALLOCATED(s.memo);
  memset(s.memo, 0xff, (e + 1) * sizeof(Id));
  Id r = substitute(m, e, &s);
  free(s.memo);
  return r;
}

static bool is_const(const Module *m, Id e, double v) {
  const Expr *x = ex(m, e);
  return (x->op == OP_REAL && x->real == v) || (x->op == OP_INT && (double)x->integer == v);
}
static bool is_real(const Module *m, Id e) { return ex_is(m, e, OP_REAL); }
static bool is_int(const Module *m, Id e) { return ex_is(m, e, OP_INT); }
static bool fits32(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }

Id ex_zero(Module *m, Scalar type) {
  return type == SC_REAL ? ex_real(m, 0.0) : type == SC_INT ? ex_int(m, 0) : ex_bool(m, false);
}

Id fold_neg(Module *m, Id a) {
  if (ex_is(m, a, OP_NEG)) return ex_arg(m, a, 0);
  if (ex_is(m, a, OP_SUB)) return fold_sub(m, ex_arg(m, a, 1), ex_arg(m, a, 0));
  if (is_real(m, a)) return ex_real(m, -ex(m, a)->real);
  if (is_int(m, a) && fits32(-ex(m, a)->integer)) return ex_int(m, -ex(m, a)->integer);
  return ex1(m, OP_NEG, a);
}

Id fold_add(Module *m, Id a, Id b) {
  if (is_const(m, a, 0)) return b;
  if (is_const(m, b, 0)) return a;
  if (is_real(m, a) && is_real(m, b)) return ex_real(m, ex(m, a)->real + ex(m, b)->real);
  if (is_int(m, a) && is_int(m, b) && fits32(ex(m, a)->integer + ex(m, b)->integer))
    return ex_int(m, ex(m, a)->integer + ex(m, b)->integer);
  if (is_int(m, b) && ex(m, b)->integer < 0) return ex2(m, OP_SUB, a, fold_neg(m, b));
  if (a == b && ex(m, a)->type == SC_REAL) return fold_mul(m, ex_real(m, 2.0), a);
  if (ex_is(m, b, OP_NEG)) return ex2(m, OP_SUB, a, ex_arg(m, b, 0));
  return ex2(m, OP_ADD, a, b);
}

Id fold_sub(Module *m, Id a, Id b) {
  if (is_const(m, b, 0)) return a;
  if (is_int(m, a) && is_int(m, b)) return fold_add(m, a, fold_neg(m, b));
  if (is_real(m, a) && is_real(m, b)) return ex_real(m, ex(m, a)->real - ex(m, b)->real);
  if (is_const(m, a, 0)) return fold_neg(m, b);
  if (is_int(m, b) && ex(m, b)->integer < 0) return ex2(m, OP_ADD, a, fold_neg(m, b));
  if (ex_is(m, b, OP_NEG)) return ex2(m, OP_ADD, a, ex_arg(m, b, 0));
  return ex2(m, OP_SUB, a, b);
}

Id fold_mul(Module *m, Id a, Id b) {
  if (is_const(m, a, 1)) return b;
  if (is_const(m, b, 1)) return a;
  if (is_real(m, a) && is_real(m, b)) return ex_real(m, ex(m, a)->real * ex(m, b)->real);
  if (is_int(m, a) && is_int(m, b) && fits32(ex(m, a)->integer * ex(m, b)->integer))
    return ex_int(m, ex(m, a)->integer * ex(m, b)->integer);
  if (is_const(m, a, -1)) return fold_neg(m, b);
  if (is_const(m, b, -1)) return fold_neg(m, a);
  if (is_int(m, a) && is_const(m, a, 0)) return a;
  if (is_int(m, b) && is_const(m, b, 0)) return b;
  if (ex_is(m, a, OP_NEG) && ex_is(m, b, OP_NEG))
    return fold_mul(m, ex_arg(m, a, 0), ex_arg(m, b, 0));
  if (ex_is(m, a, OP_NEG)) return fold_neg(m, fold_mul(m, ex_arg(m, a, 0), b));
  if (ex_is(m, b, OP_NEG)) return fold_neg(m, fold_mul(m, a, ex_arg(m, b, 0)));
  return ex2(m, OP_MUL, a, b);
}

Id fold_div(Module *m, Id a, Id b) {
  if (is_const(m, b, 1)) return a;
  if (is_const(m, b, -1)) return fold_neg(m, a);
  if (is_real(m, a) && is_real(m, b)) return ex_real(m, ex(m, a)->real / ex(m, b)->real);
  if (ex_is(m, a, OP_NEG)) return fold_neg(m, fold_div(m, ex_arg(m, a, 0), b));
  return ex2(m, OP_DIV, a, b);
}

Id fold_and(Module *m, Id a, Id b) {
  if (a == NONE || a == b) return b;
  if (b == NONE) return a;
  if (ex_is(m, a, OP_BOOL)) return ex(m, a)->integer ? b : a;
  if (ex_is(m, b, OP_BOOL) && ex(m, b)->integer) return a;
  return ex2(m, OP_AND, a, b);
}

Id fold_where(Module *m, Id c, Id a, Id b) {
  if (c == NONE || a == b) return a;
  if (ex_is(m, c, OP_BOOL)) return ex(m, c)->integer ? a : b;
  if (ex_is(m, c, OP_NOT)) return fold_where(m, ex_arg(m, c, 0), b, a);
  return ex3(m, OP_WHERE, c, a, b);
}
