#include "ir/ir.h"

#include "ir/map.h"

#include <stdlib.h>

const char *const dtype_name[NDTYPE] = {"real", "f64", "f32", "bf16", "f16", "int", "bool"};
const char *const red_name[NRED] = {"", "sum", "mean", "max", "min", "argmax"};
const char *const axis_word[NAMED_AXES] = {"tp", "cp"};
const char *const coll_name[NCOLL] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                      "shift"};
const char *const intrinsic_name[NINTR] = {"", "attention"};
const char *const init_name[NINIT] = {"zeros", "ones", "normal", "uniform", "const"};
const char *const chunk_part_name[NCHUNK_PART] = {"forward", "backward", "weights", "eval",
                                                "sample"};
const char *const recompute_name[NRECOMPUTE] = {"none", "full", "selective", "auto"};
const char *const entry_name[NENTRY] = {"loss", "eval_loss", "sample", "count",
                                        "step", "eval",      "update"};
const OpInfo op_info[NOP] = {
#define X(name, text, arity, rule, work, slopes, roundoffs)                                        \
  {#name, text, arity, RULE_##rule, WORK_##work, slopes, roundoffs},
    OPS(X)
#undef X
};

int dtype_size(Dtype t) {
  static const int size[NDTYPE] = {8, 8, 4, 2, 2, 4, 1};
  return size[t];
}

AxisId named_axis(Str name) {
  int a = 0;
  while (a < NAMED_AXES && strcmp(axis_word[a], name)) a++;
  return (AxisId)a;
}

static Str factor_name(AxisId id, AxisPart part) {
  return str_printf("%s.%d", axis_word[id], part == AXIS_OUTER);
}

Axis axis_new(Str name, int64_t size) {
  Axis x = {.name = name, .id = named_axis(name), .size = size};
  for (int a = 0; a < NAMED_AXES; a++)
    for (int part = AXIS_INNER; part <= AXIS_OUTER; part++)
      if (factor_name((AxisId)a, (AxisPart)part) == name) x.id = (AxisId)a, x.part = (AxisPart)part;
  return x;
}

Axis axis_factor(const Axis *whole, AxisPart part, int64_t size) {
  Axis x = *whole;
  CHECK(x.id < NAMED_AXES && !is_factor(whole) && part != AXIS_WHOLE);
  x.part = part;
  x.size = size;
  x.name = factor_name(x.id, part);
  return x;
}

int64_t value_count(const Value *v) {
  int64_t n = 1;
  for (uint32_t d = 0; d < v->rank; d++) n *= v->extent[d];
  return n;
}

// Hash-consing: an open-addressing table of expression ids.
struct ExprTable {
  Id *slot; // NONE: empty
  uint32_t n, cap;
};

Module *module_new(Arena *a, Sources *s) {
  Module *m = NEW(a, Module);
  m->arena = a;
  m->src = s;
  m->name = str_intern("");
  m->compute = m->store = DT_REAL;
  m->stores = ~0u;
  m->limits = default_limits;
  m->usual_limits = &default_limits;
  for (int e = 0; e < NENTRY; e++) m->entry[e] = NONE;
  m->table = NEW(a, struct ExprTable);
  return m;
}

static uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdu;
}

static uint64_t expr_hash(const Expr *e, const Id *arg) {
  uint64_t h = mix((uint64_t)e->op << 8 | e->type, (uint64_t)e->integer);
  for (uint32_t i = 0; i < e->narg; i++) h = mix(h, arg[i]);
  return h ^ h >> 29;
}

static bool expr_same(const Module *m, const Expr *a, const Expr *b, const Id *barg) {
  return a->op == b->op && a->type == b->type && a->narg == b->narg && a->integer == b->integer &&
         (!a->narg || !memcmp(m->arg.at + a->arg, barg, a->narg * sizeof(Id)));
}

static void table_grow(Module *m) {
  struct ExprTable *t = m->table;
  t->cap = t->cap ? t->cap * 2 : 1024;
  t->slot = NEWN(m->arena, Id, t->cap);
  memset(t->slot, 0xff, t->cap * sizeof(Id));
  for (Id i = 0; i < m->expr.n; i++) {
    const Expr *e = ex(m, i);
    uint64_t h = expr_hash(e, e->narg ? m->arg.at + e->arg : NULL) & (t->cap - 1);
    while (t->slot[h] != NONE) h = (h + 1) & (t->cap - 1);
    t->slot[h] = i;
  }
}

// Reals are compared by their bits: 0.0 and -0.0 differ, NaN equals itself.
static Id expr_intern(Module *m, Expr e, const Id *arg) {
  struct ExprTable *t = m->table;
  if (t->n * 2 >= t->cap) table_grow(m);
  uint64_t h = expr_hash(&e, arg) & (t->cap - 1);
  for (; t->slot[h] != NONE; h = (h + 1) & (t->cap - 1))
    if (expr_same(m, ex(m, t->slot[h]), &e, arg)) return t->slot[h];
  Id copy[64]; // arg may point into m->arg, which PUSH moves
  CHECK(e.narg <= 64);
  if (e.narg) memcpy(copy, arg, e.narg * sizeof(Id));
  e.arg = m->arg.n;
  for (uint32_t i = 0; i < e.narg; i++) PUSH(m->arena, m->arg, copy[i]);
  PUSH(m->arena, m->expr, e);
  t->n++;
  return t->slot[h] = m->expr.n - 1;
}

Id ex_real(Module *m, double v) {
  return expr_intern(m, (Expr){.op = OP_REAL, .type = SC_REAL, .real = v}, NULL);
}

static Id leaf(Module *m, Op op, Scalar type, int64_t v) {
  return expr_intern(m, (Expr){.op = (uint8_t)op, .type = (uint8_t)type, .integer = v}, NULL);
}

Id ex_int(Module *m, int64_t v) { return leaf(m, OP_INT, SC_INT, v); }
Id ex_bool(Module *m, bool v) { return leaf(m, OP_BOOL, SC_BOOL, v); }
Id ex_index(Module *m, uint32_t position) {
  CHECK(position < MAX_INDEX);
  return leaf(m, OP_INDEX, SC_INT, position);
}

static void check_ints(Module *m, const Id *arg, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) CHECK(ex(m, arg[i])->type == SC_INT);
}

Id ex_read(Module *m, const Fn *f, Id value, const Id *sub) {
  CHECK(value < f->value.n);
  const Value *v = &f->value.at[value];
  check_ints(m, sub, v->rank);
  Expr e = {.op = OP_READ, .type = (uint8_t)scalar_of(v->type), .narg = v->rank, .integer = value};
  return expr_intern(m, e, sub);
}

Id ex_group(Module *m, const Id *arg, uint32_t n) {
  CHECK(n >= 1 && n <= MAX_INDEX);
  check_ints(m, arg, n);
  for (uint32_t i = 1; i < n; i++) CHECK(ex_is(m, arg[i], OP_INDEX));
  return expr_intern(m, (Expr){.op = OP_GROUP, .type = SC_INT, .narg = (uint16_t)n}, arg);
}

static Scalar op_type(Module *m, Op op, const Id *arg, uint32_t n) {
  Scalar t0 = n ? ex(m, arg[0])->type : SC_INT, t1 = n > 1 ? ex(m, arg[1])->type : t0;
  switch (op_info[op].rule) {
  case RULE_NUM:
  case RULE_CMP:
    if (t0 == SC_BOOL || t0 != t1) BUG("%s of types %d and %d", op_info[op].name, t0, t1);
    return op_info[op].rule == RULE_CMP ? SC_BOOL : t0;
  case RULE_REAL:
    for (uint32_t i = 0; i < n; i++)
      if (ex(m, arg[i])->type != SC_REAL) BUG("%s of what is not real", op_info[op].name);
    return SC_REAL;
  case RULE_INT:
    check_ints(m, arg, n);
    return SC_INT;
  case RULE_BOOL:
    for (uint32_t i = 0; i < n; i++) CHECK(ex(m, arg[i])->type == SC_BOOL);
    return SC_BOOL;
  case RULE_SEL:
    CHECK(t0 == SC_BOOL && t1 == (Scalar)ex(m, arg[2])->type);
    return t1;
  case RULE_CONV:
    CHECK(op == OP_TO_REAL ? t0 != SC_REAL : t0 != SC_INT);
    return op == OP_TO_REAL ? SC_REAL : SC_INT;
  case RULE_LEAF:
    CHECK(op == OP_RANDOM);
    check_ints(m, arg, n);
    return SC_REAL;
  }
  BUG("operator %d", op);
}

Id ex_op(Module *m, Op op, const Id *arg, uint32_t n) {
  CHECK(op < NOP && op_info[op].arity == (int)n && n > 0);
  Expr e = {.op = (uint8_t)op, .type = (uint8_t)op_type(m, op, arg, n), .narg = (uint16_t)n};
  return expr_intern(m, e, arg);
}

Id ex1(Module *m, Op op, Id a) { return ex_op(m, op, &a, 1); }
Id ex2(Module *m, Op op, Id a, Id b) { return ex_op(m, op, (Id[]){a, b}, 2); }
Id ex3(Module *m, Op op, Id a, Id b, Id c) { return ex_op(m, op, (Id[]){a, b, c}, 3); }

Id ex_like(Module *m, Id id, int64_t integer, const Id *arg) {
  Expr e = *ex(m, id);
  if (e.op == OP_GROUP) return ex_group(m, arg, e.narg);
  if (op_info[e.op].rule != RULE_LEAF || e.op == OP_RANDOM) return ex_op(m, e.op, arg, e.narg);
  if (e.op == OP_INDEX || e.op == OP_READ) e.integer = integer;
  return expr_intern(m, e, arg);
}

// A memo from expression id to its replacement keeps shared subtrees shared and the walk linear.
typedef struct Memo {
  IdMap to;
  ExprMap map;
  void *ctx;
} Memo;

static Id map_rec(Module *m, Id id, Memo *memo) {
  Id known = id_map_find(&memo->to, id);
  if (known != NONE) return known;
  Expr e = *ex(m, id);
  Id arg[64], r = id;
  bool changed = false;
  CHECK(e.narg <= 64);
  for (uint32_t i = 0; i < e.narg; i++) {
    Id old = m->arg.at[e.arg + i];
    arg[i] = map_rec(m, old, memo);
    changed |= arg[i] != old;
  }
  if (changed) r = ex_like(m, id, e.integer, arg);
  if (memo->map && (e.op == OP_INDEX || e.op == OP_READ)) r = memo->map(m, r, memo->ctx);
  id_map_set(&memo->to, id, r);
  return r;
}

Id ex_map(Module *m, Id e, ExprMap map, void *ctx) {
  Memo memo = {.map = map, .ctx = ctx};
  id_map_init(&memo.to);
  Id r = map_rec(m, e, &memo);
  id_map_free(&memo.to);
  return r;
}

typedef struct Rename {
  const Id *index, *value;
} Rename;

static Id rename_leaf(Module *m, Id id, void *ctx) {
  const Rename *r = ctx;
  Expr e = *ex(m, id);
  if (e.op == OP_INDEX) return r->index && r->index[e.integer] != NONE ? r->index[e.integer] : id;
  if (!r->value) return id;
  Id arg[MAX_RANK];
  for (uint32_t i = 0; i < e.narg; i++) arg[i] = m->arg.at[e.arg + i];
  return ex_like(m, id, r->value[e.integer], arg);
}

Id ex_rename(Module *m, Id e, const Id *index, const Id *value) {
  return ex_map(m, e, rename_leaf, &(Rename){index, value});
}

uint32_t ex_indices(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  if (e->op == OP_INDEX) return 1u << e->integer;
  uint32_t set = 0;
  for (uint32_t i = 0; i < e->narg; i++) set |= ex_indices(m, ex_arg(m, id, i));
  return set;
}

typedef struct Visit {
  IdMap seen;
  void (*visit)(const Module *m, Id read, void *ctx);
  void *ctx;
} Visit;

static void reads_rec(const Module *m, Id id, Visit *v) {
  if (id_map_find(&v->seen, id) != NONE) return;
  id_map_set(&v->seen, id, 1);
  const Expr *e = ex(m, id);
  for (uint32_t i = 0; i < e->narg; i++) reads_rec(m, ex_arg(m, id, i), v);
  if (e->op == OP_READ) v->visit(m, id, v->ctx);
}

void ex_reads(const Module *m, Id e, void (*visit)(const Module *, Id, void *), void *ctx) {
  Visit v = {.visit = visit, .ctx = ctx};
  id_map_init(&v.seen);
  reads_rec(m, e, &v);
  id_map_free(&v.seen);
}

bool ex_has_read(const Module *m, Id id, Id value) {
  const Expr *e = ex(m, id);
  if (e->op == OP_READ && e->integer == value) return true;
  for (uint32_t i = 0; i < e->narg; i++)
    if (ex_has_read(m, ex_arg(m, id, i), value)) return true;
  return false;
}

void comp_reads(const Module *m, const Fn *f, const Stmt *s,
                void (*visit)(const Module *m, Id read, void *ctx), void *ctx) {
  ex_reads(m, s->body, visit, ctx);
  for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++) ex_reads(m, s->sub[d], visit, ctx);
}

typedef struct Values {
  void (*visit)(Id value, void *ctx);
  void *ctx;
} Values;

static void value_of_read(const Module *m, Id read, void *ctx) {
  Values *v = ctx;
  v->visit((Id)ex(m, read)->integer, v->ctx);
}

void stmt_reads(const Module *m, const Fn *f, const Stmt *s, void (*visit)(Id, void *), void *ctx) {
  Values v = {visit, ctx};
  if (s->kind == ST_COMP) comp_reads(m, f, s, value_of_read, &v);
  else if (!s->call) visit(s->from, ctx);
  for (uint32_t i = 0; s->call && i < s->call->narg; i++)
    if (s->call->arg[i].value != NONE) visit(s->call->arg[i].value, ctx);
}

void stmt_writes(const Module *m, const Stmt *s, void (*visit)(Id, void *), void *ctx) {
  const Call *c = s->call;
  if (!c) visit(s->lhs, ctx);
  for (uint32_t i = 0; c && i < c->narg; i++) {
    const Fn *g = &m->fn.at[c->fn];
    bool added = c->arg[i].value != NONE && g->value.at[g->arg.at[i]].role == ROLE_INOUT;
    if (added) visit(c->arg[i].value, ctx);
  }
  for (uint32_t i = 0; c && i < c->nresult; i++)
    if (c->result[i].value != NONE) visit(c->result[i].value, ctx);
}

typedef struct HasRead {
  Id value;
  bool found;
} HasRead;

static void compare(Id value, void *ctx) {
  HasRead *r = ctx;
  r->found |= value == r->value;
}

bool stmt_has_read(const Module *m, const Fn *f, const Stmt *s, Id value) {
  HasRead r = {value, false};
  stmt_reads(m, f, s, compare, &r);
  return r.found;
}

// Names of a function's values or of a module's functions. They are looked up for each new one, and
// a body has tens of thousands. What writes names or arrays without telling this is found out: an entry
// that is not true any more by looking, an array that grew or shrank by its address and length.
struct NameSet {
  const void *base; // the array that was read, and how much of it
  Id n;
  StrMap at; // position
  StrMap next; // of names that were taken: the least K not known to be taken
};

typedef struct Names {
  const void *in;
  Str (*at)(const void *in, Id i);
  Id n;
  const void *base;
} Names;

static Str fn_name(const void *in, Id i) { return ((const Module *)in)->fn.at[i].name; }
static Str value_name(const void *in, Id i) { return ((const Fn *)in)->value.at[i].name; }

static struct NameSet *name_set(Arena *a, struct NameSet *s, const Names *names) {
  if (!s) s = NEW(a, struct NameSet);
  if (s->base == names->base && s->n == names->n) return s;
  *s = (struct NameSet){.base = names->base, .n = names->n};
  for (Id i = 0; i < names->n; i++) map_set(a, &s->at, names->at(names->in, i), i);
  return s;
}

static bool is_taken(Arena *a, struct NameSet *s, const Names *names, Str name) {
  Id at = map_find(&s->at, name);
  if (at == NONE) return false;
  if (at < names->n && names->at(names->in, at) == name) return true;
  for (Id i = 0; i < names->n; i++) // it had that name; another may have it now
    if (names->at(names->in, i) == name) {
      map_set(a, &s->at, name, i);
      return true;
    }
  return false;
}

// The name, or name.K with the least K from 2 on that none has.
static Str unique_name(Arena *a, struct NameSet *s, Str name, const Names *names) {
  if (!is_taken(a, s, names, name)) return name;
  uint32_t k = map_find(&s->next, name);
  if (k == NONE) k = 2;
  Str unique;
  while (is_taken(a, s, names, unique = str_printf("%s.%u", name, k))) k++;
  map_set(a, &s->next, name, k + 1);
  return unique;
}

static void name_added(Arena *a, struct NameSet *s, Str name, const void *base, Id n) {
  map_set(a, &s->at, name, n - 1);
  s->base = base;
  s->n = n;
}

Id fn_new(Module *m, Str name, Id loc) {
  Names names = {m, fn_name, m->fn.n, m->fn.at};
  m->names = name_set(m->arena, m->names, &names);
  Fn f = {.name = unique_name(m->arena, m->names, name, &names), .loc = loc};
  PUSH(m->arena, m->fn, f);
  name_added(m->arena, m->names, f.name, m->fn.at, m->fn.n);
  return m->fn.n - 1;
}

Id fn_value(Module *m, Fn *f, Str name, Dtype t, const int64_t *extent, uint32_t rank, Role role, Id loc) {
  CHECK(rank <= MAX_RANK);
  Names names = {f, value_name, f->value.n, f->value.at};
  f->names = name_set(m->arena, f->names, &names);
  Str unique = unique_name(m->arena, f->names, name, &names);
  Value v = {.name = unique, .type = t, .rank = (uint8_t)rank, .role = role, .loc = loc};
  int64_t n = dtype_size(t);
  for (uint32_t d = 0; d < rank; d++) {
    v.extent[d] = extent[d];
    CHECK(extent[d] >= 1);
    if (!mul_ok(n, extent[d], &n))
      too_large("`%s` of %s has more bytes than 64 bits count: make the batch, a stack or a size smaller",
            name, f->name);
  }
  PUSH(m->arena, f->value, v);
  name_added(m->arena, f->names, unique, f->value.at, f->value.n);
  Id id = f->value.n - 1;
  if (role != ROLE_LOCAL) PUSH(m->arena, f->arg, id);
  return id;
}

Stmt *fn_stmt(Module *m, Fn *f, StmtKind kind, Id loc) {
  PUSH(m->arena, f->stmt, (Stmt){.kind = kind, .lhs = NONE, .body = NONE, .loc = loc});
  return &f->stmt.at[f->stmt.n - 1];
}

void fn_comp(Module *m, Fn *f, Id lhs, const Id *sub, bool acc, Red red, const Index *index,
             uint32_t nfree, uint32_t nindex, Id body, Id loc) {
  CHECK(nindex <= MAX_INDEX && nfree <= nindex && lhs < f->value.n);
  Stmt s = {.kind = ST_COMP, .red = red, .acc = acc, .nfree = (uint8_t)nfree, .nindex = (uint8_t)nindex};
  s.index = arena_copy(m->arena, index, nindex * sizeof *index);
  s.lhs = lhs;
  s.sub = arena_copy(m->arena, sub, f->value.at[lhs].rank * sizeof(Id));
  s.body = body;
  s.loc = loc;
  PUSH(m->arena, f->stmt, s);
}

uint32_t axis_other(const Module *m, uint32_t axis) {
  const Axis *x = &m->axis.at[axis];
  for (uint32_t a = 0; a < m->axis.n && is_factor(x); a++)
    if (a != axis && is_factor(&m->axis.at[a]) && m->axis.at[a].id == x->id) return a;
  return NONE;
}

Str axis_whole_name(const Module *m, uint32_t axis) {
  const Axis *x = &m->axis.at[axis];
  return is_factor(x) ? str_intern(axis_word[x->id]) : x->name;
}

int64_t coll_size(const Module *m, const Stmt *s) {
  return m->axis.at[s->axis].size * (s->both ? m->axis.at[axis_other(m, s->axis)].size : 1);
}

Str coll_axis_name(const Module *m, const Stmt *s) {
  return s->both ? axis_whole_name(m, s->axis) : m->axis.at[s->axis].name;
}

Fn *entry_fn(Module *m, Entry e) { return m->entry[e] == NONE ? NULL : &m->fn.at[m->entry[e]]; }

Id fn_find(const Module *m, Str name) {
  for (Id i = 0; i < m->fn.n; i++)
    if (m->fn.at[i].name == name) return i;
  return NONE;
}

void fn_rename(Module *m, Fn *f, Id value, Str name) {
  f->value.at[value].name = name;
  if (f->names) map_set(m->arena, &f->names->at, name, value);
}

Id value_find(const Fn *f, Str name) {
  for (Id i = 0; i < f->value.n; i++)
    if (f->value.at[i].name == name) return i;
  return NONE;
}

// ---- what values mean

const char *const meaning_name[NMEANING] = {"",     "data",     "first", "batch", "total",  "param", "grad",
                                            "rank", "loss_scale", "received", "sent",  "kept",  "scalar",
                                            "piece", "adjoint"};
const char *const update_scalar_name[NUPDATE_SCALAR] = {"lr", "correct1", "root2", "decay", "scale"};
const char *const update_piece_name[NUPDATE_PIECE] = {"param", "grad", "moment1", "moment2"};

MeaningOf meaning_of(Meaning k) {
  switch (k) {
  case MEANS_NONE:
  case MEANS_FIRST:
  case MEANS_BATCH:
  case MEANS_LOSS_SCALE: return OF_NOTHING;
  case MEANS_PARAM:
  case MEANS_GRAD: return OF_PARAM;
  case MEANS_RANK: return OF_AXIS;
  case MEANS_SCALAR:
  case MEANS_PIECE: return OF_WORD;
  case MEANS_ADJOINT: return OF_VALUE;
  case MEANS_DATA:
  case MEANS_TOTAL:
  case MEANS_RECEIVED:
  case MEANS_SENT:
  case MEANS_KEPT: return OF_NUMBER;
  case NMEANING: break;
  }
  BUG("meaning %d", k);
}

Id arg_find(const Fn *f, Meaning k, uint32_t of) {
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (value_means(&f->value.at[f->arg.at[i]], k, of)) return f->arg.at[i];
  return NONE;
}

Id fn_meant(Module *m, Fn *f, Str name, Meaning k, uint32_t of, const Value *like, Role role) {
  Id v = fn_value(m, f, name, like->type, like->extent, like->rank, role, like->loc);
  f->value.at[v].means = k;
  f->value.at[v].of = of;
  return v;
}

Id fn_rank_arg(Module *m, Fn *f, uint32_t axis, Role role) {
  const Value scalar = {.type = DT_I32, .loc = f->loc};
  return fn_meant(m, f, str_printf("$rank.%s", m->axis.at[axis].name), MEANS_RANK, axis, &scalar, role);
}

Str value_plain_name(const Value *v) {
  bool passed = v->means == MEANS_RECEIVED || v->means == MEANS_SENT || v->means == MEANS_KEPT;
  const char *dot = passed && *v->name == '$' ? strchr(v->name, '.') : NULL;
  return dot ? dot + 1 : *v->name == '$' ? v->name + 1 : v->name;
}

static void renumber_stmt(Module *m, Stmt *s, uint32_t rank, const Id *to) {
  if (s->call) {
    for (uint32_t i = 0; i < s->call->narg; i++)
      if (s->call->arg[i].mode != ACT_ITER) s->call->arg[i].value = to[s->call->arg[i].value];
    for (uint32_t i = 0; i < s->call->nresult; i++)
      if (s->call->result[i].mode != RES_DROP) s->call->result[i].value = to[s->call->result[i].value];
    return;
  }
  s->lhs = to[s->lhs];
  if (s->kind != ST_COMP) {
    s->from = to[s->from];
    return;
  }
  for (uint32_t d = 0; d < rank; d++) s->sub[d] = ex_rename(m, s->sub[d], NULL, to);
  s->body = ex_rename(m, s->body, NULL, to);
}

void fn_renumber(Module *m, Fn *f, const Id *to) {
  Value *value = NEWN(m->arena, Value, f->value.cap);
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    Stmt *s = &f->stmt.at[i];
    renumber_stmt(m, s, s->kind == ST_COMP ? f->value.at[s->lhs].rank : 0, to);
  }
  for (Id v = 0; v < f->value.n; v++) value[to[v]] = f->value.at[v];
  f->value.at = value;
  for (uint32_t i = 0; i < f->arg.n; i++) f->arg.at[i] = to[f->arg.at[i]];
  for (uint32_t i = 0; i < f->result.n; i++) f->result.at[i] = to[f->result.at[i]];
  for (uint32_t i = 0; i < f->alias.n; i++)
    if (f->alias.at[i] != NONE) f->alias.at[i] = to[f->alias.at[i]];
  f->names = NULL; // they are by number
}
