// A nest of reductions that share all loops. cpu_order says in which order each adds.
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/target.h"

// Accumulators at once: independent chains of additions, which hide that one takes four cycles.
enum { MOST_ACC = 4 };

int cpu_width(const Module *m, Str arch) { return cpu_vector_bits(arch) / (m->compute == DT_F32 ? 32 : 64); }

ReductionOrder cpu_order(const Module *m, Str arch, int64_t along) {
  int64_t lanes = along > 1 ? cpu_width(m, arch) : 1, blocks = (along + lanes - 1) / lanes;
  return (ReductionOrder){lanes, blocks < MOST_ACC ? blocks : MOST_ACC, m->limits.chain};
}

typedef struct Reduce {
  const NestStmt *ns;
  Scalar type; // of the body
  LLVMValueRef acc[MAX_COPY], pos[MAX_COPY]; // allocas; pos: argmax's
  bool vec; // they hold lanes
} Reduce;

typedef struct Chain {
  LLVMValueRef acc[MAX_ZIPPED][MAX_COPY], pos[MAX_ZIPPED][MAX_COPY];
} Chain;

typedef struct Reductions {
  const Nest *n;
  Reduce r[MAX_ZIPPED];
  uint32_t count;
  int nacc; // accumulators in use
  bool sums; // some add up reals: chains matter
  Chain outer; // while a chain along lanes is open: the accumulators that it goes to
} Reductions;

// Makes the statement the one that expressions are read in.
static Reduce *choose(Cpu *c, Reductions *x, uint32_t i) {
  c->ns = x->r[i].ns;
  c->s = &c->f->stmt.at[c->ns->stmt];
  return &x->r[i];
}

static void make_accumulators(Cpu *c, Reduce *r, int count) {
  LLVMTypeRef t = cpu_type(c, r->type), pt = c->i32;
  if (r->vec) t = cpu_vec(c, t), pt = cpu_vec(c, pt);
  for (int u = 0; u < count; u++) {
    if (!r->acc[u]) {
      r->acc[u] = cpu_alloca(c, t, 1, "acc");
      if (c->s->red == RED_ARGMAX) r->pos[u] = cpu_alloca(c, pt, 1, "arg");
    }
    Val id = {cpu_identity(c, c->s->red, r->type), false};
    LLVMBuildStore(c->b, r->vec ? cpu_splat(c, id) : id.v, r->acc[u]);
    if (r->pos[u]) LLVMBuildStore(c->b, LLVMConstNull(pt), r->pos[u]);
  }
}

static void accumulators(Cpu *c, Reductions *x, int count) {
  x->nacc = count;
  for (uint32_t i = 0; i < x->count; i++) make_accumulators(c, choose(c, x, i), count);
}

// The number of the current point, row-major over the bound indices.
static Val position(Cpu *c) {
  Val v = {cpu_i64(c, 0), false};
  for (uint32_t i = c->s->nfree; i < c->s->nindex; i++) {
    uint8_t var = c->ns->var[i];
    if (var == NO_VAR) continue; // its inner neighbour counts over both
    LLVMValueRef at = var == c->vec ? c->vbase[c->copy] : c->var[var].at;
    LLVMValueRef scaled = LLVMBuildMul(c->b, v.v, cpu_i64(c, c->l->var.at[var].extent), "");
    v.v = LLVMBuildAdd(c->b, scaled, at, "");
  }
  v.v = LLVMBuildTrunc(c->b, v.v, c->i32, "position");
  for (uint32_t i = c->s->nfree; i < c->s->nindex; i++) {
    if (c->vec == NO_VAR || c->ns->var[i] != c->vec) continue;
    // The vector variable is the innermost of the loops, but may not be the last index.
    int64_t stride = 1;
    for (uint32_t j = i + 1; j < c->s->nindex; j++) stride *= c->s->index[j].extent;
    LLVMValueRef step =
        cpu_splat(c, (Val){LLVMConstInt(c->i32, (unsigned long long)stride, false), false});
    LLVMValueRef lane = LLVMBuildMul(c->b, cpu_iota(c, c->i32), step, "");
    v = (Val){LLVMBuildAdd(c->b, cpu_splat(c, v), lane, ""), true};
  }
  return v;
}

// The better of two candidates: the greater (a NaN is greatest), the earlier among equals.
static void better(Cpu *c, Scalar type, LLVMValueRef *best, LLVMValueRef *pos, LLVMValueRef x,
                   LLVMValueRef xpos, bool by_position) {
  LLVMValueRef take, equal;
  if (type == SC_INT) {
    take = LLVMBuildICmp(c->b, LLVMIntSGT, x, *best, "");
    equal = LLVMBuildICmp(c->b, LLVMIntEQ, x, *best, "");
  } else {
    LLVMValueRef nan = LLVMBuildFCmp(c->b, LLVMRealUNO, x, x, ""),
                 had = LLVMBuildFCmp(c->b, LLVMRealUNO, *best, *best, "");
    LLVMValueRef greater = LLVMBuildFCmp(c->b, LLVMRealOGT, x, *best, "");
    LLVMValueRef first = LLVMBuildAnd(c->b, nan, LLVMBuildNot(c->b, had, ""), "");
    take = LLVMBuildOr(c->b, greater, first, "");
    equal = LLVMBuildOr(c->b, LLVMBuildFCmp(c->b, LLVMRealOEQ, x, *best, ""),
                        LLVMBuildAnd(c->b, nan, had, ""), "");
  }
  if (by_position) {
    LLVMValueRef before = LLVMBuildICmp(c->b, LLVMIntSLT, xpos, *pos, "");
    take = LLVMBuildOr(c->b, take, LLVMBuildAnd(c->b, equal, before, ""), "better");
  }
  *best = LLVMBuildSelect(c->b, take, x, *best, "best");
  *pos = LLVMBuildSelect(c->b, take, xpos, *pos, "arg");
}

// Whether an accumulator may meet a later position before an earlier one: the vector variable is the innermost of the
// loops, and need not be the last index.
static bool in_other_order(const Stmt *s) {
  uint32_t n = 0;
  for (uint32_t i = s->nfree; i < s->nindex; i++) n += s->index[i].extent > 1;
  return n > 1;
}

// Adds the current point to accumulator u.
static void add_point(Cpu *c, Reduce *r, int u) {
  Val x = cpu_expr(c, c->s->body, (Guard){0});
  LLVMTypeRef t = cpu_type(c, r->type), pt = c->i32;
  LLVMValueRef mask = r->vec ? c->vmask[c->copy] : NULL;
  if (r->vec) t = cpu_vec(c, t), pt = cpu_vec(c, pt), x.v = cpu_splat(c, x);
  if (mask) {
    LLVMValueRef id = cpu_splat(c, (Val){cpu_identity(c, c->s->red, r->type), false});
    x.v = LLVMBuildSelect(c->b, mask, x.v, id, "");
  }
  LLVMValueRef acc = LLVMBuildLoad2(c->b, t, r->acc[u], "acc");
  if (c->s->red == RED_ARGMAX) {
    LLVMValueRef pos = LLVMBuildLoad2(c->b, pt, r->pos[u], "arg");
    Val at = position(c);
    better(c, r->type, &acc, &pos, x.v, r->vec ? cpu_splat(c, at) : at.v, in_other_order(c->s));
    LLVMBuildStore(c->b, pos, r->pos[u]);
  } else {
    acc = cpu_reduce(c, c->s->red, r->type, acc, x.v);
  }
  LLVMBuildStore(c->b, acc, r->acc[u]);
}

static void step(Cpu *c, Reductions *x, int u) {
  for (uint32_t i = 0; i < x->count; i++) add_point(c, choose(c, x, i), u);
}

static void combine(Cpu *c, Reduce *r, LLVMValueRef *acc, LLVMValueRef *pos, LLVMValueRef x,
                    LLVMValueRef xpos) {
  if (c->s->red == RED_ARGMAX) better(c, r->type, acc, pos, x, xpos, true);
  else *acc = cpu_reduce(c, c->s->red, r->type, *acc, x);
}

// Lanes by halves: the upper half onto the lower one, until one is left.
static void fold_lanes(Cpu *c, Reduce *r, LLVMValueRef *acc, LLVMValueRef *pos) {
  for (int half = c->width / 2; half >= 1; half /= 2) {
    LLVMValueRef lo[64], hi[64];
    for (int i = 0; i < half; i++) {
      lo[i] = LLVMConstInt(c->i32, (unsigned)i, false);
      hi[i] = LLVMConstInt(c->i32, (unsigned)(half + i), false);
    }
    LLVMValueRef lm = LLVMConstVector(lo, (unsigned)half), hm = LLVMConstVector(hi, (unsigned)half);
    LLVMValueRef none = LLVMGetPoison(LLVMTypeOf(*acc)),
                 x = LLVMBuildShuffleVector(c->b, *acc, none, hm, "");
    *acc = LLVMBuildShuffleVector(c->b, *acc, none, lm, "");
    LLVMValueRef xpos = NULL;
    if (*pos) {
      none = LLVMGetPoison(LLVMTypeOf(*pos));
      xpos = LLVMBuildShuffleVector(c->b, *pos, none, hm, "");
      *pos = LLVMBuildShuffleVector(c->b, *pos, none, lm, "");
    }
    combine(c, r, acc, pos, x, xpos);
  }
  *acc = LLVMBuildExtractElement(c->b, *acc, cpu_i64(c, 0), "total");
  if (*pos) *pos = LLVMBuildExtractElement(c->b, *pos, cpu_i64(c, 0), "arg");
}

// The accumulators pairwise: ((0, 1), (2, 3)).
static Val fold(Cpu *c, Reduce *r, int count) {
  LLVMTypeRef t = cpu_type(c, r->type), pt = c->i32;
  if (r->vec) t = cpu_vec(c, t), pt = cpu_vec(c, pt);
  LLVMValueRef acc[MAX_COPY], pos[MAX_COPY] = {0};
  for (int u = 0; u < count; u++) {
    acc[u] = LLVMBuildLoad2(c->b, t, r->acc[u], "");
    if (r->pos[u]) pos[u] = LLVMBuildLoad2(c->b, pt, r->pos[u], "");
  }
  for (int n = count; n > 1; n = (n + 1) / 2)
    for (int u = 0; u < n / 2 + n % 2; u++) {
      if (2 * u + 1 < n) combine(c, r, &acc[2 * u], &pos[2 * u], acc[2 * u + 1], pos[2 * u + 1]);
      acc[u] = acc[2 * u];
      pos[u] = pos[2 * u];
    }
  if (r->vec) fold_lanes(c, r, &acc[0], &pos[0]);
  return (Val){c->s->red == RED_ARGMAX ? pos[0] : acc[0], false};
}

static int64_t points(const Stmt *s) {
  int64_t n = 1;
  for (uint32_t i = s->nfree; i < s->nindex; i++) n *= s->index[i].extent;
  return n;
}

// The mean's division, the addition to what is there, and the store.
static void finish(Cpu *c, Val v) {
  Dtype type = c->f->value.at[c->s->lhs].type;
  if (c->s->red == RED_MEAN) {
    Val n = {LLVMConstReal(c->real, (double)points(c->s)), false};
    v.v = LLVMBuildFDiv(c->b, v.v, v.vec ? cpu_splat(c, n) : n.v, "mean");
  }
  if (c->s->acc && !c->ns->init) {
    Val old = cpu_read_lhs(c);
    v.v = cpu_reduce(c, RED_SUM, scalar_of(type), v.vec ? cpu_splat(c, old) : old.v, v.v);
  }
  cpu_store(c, cpu_round(c, v, type));
}

static int open_loops(Cpu *c, const Nest *n, uint32_t from, uint32_t to) {
  int opened = 0;
  for (uint32_t i = from; i < to; i++) {
    const LoopVar *v = &c->l->var.at[n->loop[i]];
    if (n->loop[i] == n->vec) continue;
    cpu_loop_open(c, cpu_i64(c, 0), cpu_i64(c, v->extent), 1, false, v->name);
    c->var[n->loop[i]] = (VarState){c->level[c->depth - 1].phi, c->depth};
    opened++;
  }
  return opened;
}

static void close_loops(Cpu *c, int n) {
  while (n-- > 0) cpu_loop_close(c);
}

// Puts fresh accumulators in place; returns those that were.
static Chain begin_chain(Cpu *c, Reductions *x) {
  Chain outer;
  for (uint32_t i = 0; i < x->count; i++) {
    memcpy(outer.acc[i], x->r[i].acc, sizeof outer.acc[i]);
    memcpy(outer.pos[i], x->r[i].pos, sizeof outer.pos[i]);
    memset(x->r[i].acc, 0, sizeof x->r[i].acc);
    memset(x->r[i].pos, 0, sizeof x->r[i].pos);
  }
  accumulators(c, x, x->nacc);
  return outer;
}

// Adds each accumulator to the one outside.
static void end_chain(Cpu *c, Reductions *x, const Chain *outer) {
  for (uint32_t i = 0; i < x->count; i++) {
    Reduce *r = choose(c, x, i);
    LLVMTypeRef t = cpu_type(c, r->type), pt = c->i32;
    if (r->vec) t = cpu_vec(c, t), pt = cpu_vec(c, pt);
    for (int u = 0; u < x->nacc; u++) {
      LLVMValueRef acc = LLVMBuildLoad2(c->b, t, outer->acc[i][u], ""), pos = NULL, xpos = NULL;
      LLVMValueRef in = LLVMBuildLoad2(c->b, t, r->acc[u], "");
      if (r->pos[u]) {
        pos = LLVMBuildLoad2(c->b, pt, outer->pos[i][u], "");
        xpos = LLVMBuildLoad2(c->b, pt, r->pos[u], "");
      }
      combine(c, r, &acc, &pos, in, xpos);
      LLVMBuildStore(c->b, acc, outer->acc[i][u]);
      if (pos) LLVMBuildStore(c->b, pos, outer->pos[i][u]);
    }
    memcpy(r->acc, outer->acc[i], sizeof r->acc);
    memcpy(r->pos, outer->pos[i], sizeof r->pos);
  }
}

// ---- sums that nothing is added to

// Whether it holds in any lane of any copy.
static LLVMValueRef holds(Cpu *c, Id cond, int ncopy) {
  LLVMValueRef any = NULL;
  bool lanes = c->vec != NO_VAR && cpu_on_vec(c, cond);
  for (c->copy = 0; c->copy < (lanes ? ncopy : 1); c->copy++) {
    Val v = cpu_expr(c, cond, (Guard){0});
    LLVMValueRef x = v.v;
    if (v.vec) {
      LLVMTypeRef t = LLVMTypeOf(x);
      if (c->vmask[c->copy]) x = LLVMBuildAnd(c->b, x, c->vmask[c->copy], "");
      x = cpu_intrinsic(c, "llvm.vector.reduce.or", &t, 1, &x, 1);
    }
    any = any ? LLVMBuildOr(c->b, any, x, "any") : x;
  }
  c->copy = 0;
  return any;
}

// A sum that is left out is 0; its accumulators would start from -0.
static void zero_unless(Cpu *c, Reduce *r, int ncopy, LLVMValueRef any) {
  LLVMTypeRef t = cpu_type(c, r->type);
  if (r->vec) t = cpu_vec(c, t);
  Val id = {cpu_identity(c, c->s->red, r->type), false};
  for (int u = 0; u < ncopy; u++) {
    LLVMValueRef start = r->vec ? cpu_splat(c, id) : id.v;
    LLVMBuildStore(c->b, LLVMBuildSelect(c->b, any, start, LLVMConstNull(t), ""), r->acc[u]);
  }
}

// Opens a branch around the bound loops where every statement of the nest has such a condition.
static bool open_branch(Cpu *c, Reductions *x) {
  LLVMValueRef any = NULL;
  for (uint32_t i = 0; i < x->count; i++) {
    choose(c, x, i);
    if (nest_condition(c->m, c->s) == NONE) return false;
  }
  for (uint32_t i = 0; i < x->count; i++) {
    choose(c, x, i);
    LLVMValueRef one = holds(c, nest_condition(c->m, c->s), x->nacc);
    any = any ? LLVMBuildOr(c->b, any, one, "any") : one;
  }
  for (uint32_t i = 0; i < x->count; i++) zero_unless(c, choose(c, x, i), x->nacc, any);
  cpu_branch_open(c, any, "adds");
  return true;
}

static void lane_chain(Cpu *c, bool begin, void *ctx) {
  Reductions *x = ctx;
  if (begin) x->outer = begin_chain(c, x);
  else end_chain(c, x, &x->outer);
}

static void bound_lanes(Cpu *c, int ncopy, void *ctx) {
  for (c->copy = 0; c->copy < ncopy; c->copy++) step(c, ctx, c->copy);
  c->copy = 0;
}

typedef void Innermost(Cpu *c, Reductions *x);
static void bound_loops(Cpu *c, Reductions *x, uint32_t at, Innermost *body);

static void one_loop(Cpu *c, Reductions *x, uint32_t at, LLVMValueRef lo, LLVMValueRef hi,
                     Innermost *body) {
  uint8_t var = x->n->loop[at];
  cpu_loop_open(c, lo, hi, 1, false, c->l->var.at[var].name);
  c->var[var] = (VarState){c->level[c->depth - 1].phi, c->depth};
  bound_loops(c, x, at + 1, body);
  cpu_loop_close(c);
}

// Bound loops from the at-th on, the lanes' aside; long ones in chains.
static void bound_loops(Cpu *c, Reductions *x, uint32_t at, Innermost *body) {
  if (at < x->n->nloop && x->n->loop[at] == x->n->vec) at++;
  if (at >= x->n->nloop) {
    body(c, x);
    return;
  }
  int64_t n = c->l->var.at[x->n->loop[at]].extent, each = c->m->limits.chain,
          chains = n / each, left = n % each;
  if (!x->sums || n <= each) {
    one_loop(c, x, at, cpu_i64(c, 0), cpu_i64(c, n), body);
    return;
  }
  LLVMValueRef end = cpu_i64(c, chains * each);
  cpu_loop_open(c, cpu_i64(c, 0), end, each, false, "chain");
  LLVMValueRef lo = c->level[c->depth - 1].phi,
               hi = LLVMBuildAdd(c->b, lo, cpu_i64(c, each), "");
  Chain outer = begin_chain(c, x);
  one_loop(c, x, at, lo, hi, body);
  end_chain(c, x, &outer);
  cpu_loop_close(c);
  if (!left) return;
  outer = begin_chain(c, x);
  one_loop(c, x, at, end, cpu_i64(c, n), body);
  end_chain(c, x, &outer);
}

static void all_lanes(Cpu *c, Reductions *x) {
  cpu_lanes(c, x->nacc, bound_lanes, x->sums ? lane_chain : NULL, x);
}

static void reduce_over_lanes(Cpu *c, Reductions *x) {
  int count = (int)cpu_order(c->m, c->arch, c->l->var.at[x->n->vec].extent).accumulators;
  accumulators(c, x, count);
  bool branch = open_branch(c, x);
  bound_loops(c, x, x->n->nfree, all_lanes);
  if (branch) cpu_branch_close(c);
  uint8_t vec = c->vec;
  for (uint32_t i = 0; i < x->count; i++) {
    Val total = fold(c, choose(c, x, i), count);
    c->vec = NO_VAR; // the lanes are gone: what is left is scalar
    finish(c, total);
    c->vec = vec;
  }
}

static void finish_lanes(Cpu *c, const Reduce *r, int ncopy) {
  for (c->copy = 0; c->copy < ncopy; c->copy++) {
    LLVMTypeRef t = cpu_vec(c, r->pos[c->copy] ? c->i32 : cpu_type(c, r->type));
    LLVMValueRef from = r->pos[c->copy] ? r->pos[c->copy] : r->acc[c->copy];
    finish(c, (Val){LLVMBuildLoad2(c->b, t, from, ""), true});
  }
  c->copy = 0;
}

static void all_copies(Cpu *c, Reductions *x) {
  for (c->copy = 0; c->copy < x->nacc; c->copy++) step(c, x, c->copy);
  c->copy = 0;
}

static void free_lanes(Cpu *c, int ncopy, void *ctx) {
  Reductions *x = ctx;
  accumulators(c, x, ncopy);
  bool branch = open_branch(c, x);
  bound_loops(c, x, x->n->nfree, all_copies);
  if (branch) cpu_branch_close(c);
  for (uint32_t i = 0; i < x->count; i++) finish_lanes(c, choose(c, x, i), ncopy);
}

static bool vec_is_free(const Nest *n) {
  for (uint32_t i = n->nfree; i < n->nloop; i++)
    if (n->loop[i] == n->vec) return false;
  return true;
}

void cpu_reduce_nest(Cpu *c, const Nest *n) {
  Reductions x = {.n = n, .count = n->stmt.n};
  CHECK(x.count <= MAX_ZIPPED);
  for (uint32_t i = 0; i < x.count; i++) {
    x.r[i].ns = &n->stmt.at[i];
    x.r[i].vec = n->vec != NO_VAR;
    Red red = c->f->stmt.at[n->stmt.at[i].stmt].red;
    x.sums |= red == RED_SUM || red == RED_MEAN;
    x.r[i].type = ex(c->m, c->f->stmt.at[n->stmt.at[i].stmt].body)->type;
  }
  int opened = open_loops(c, n, 0, n->nfree);
  if (n->vec == NO_VAR) {
    accumulators(c, &x, 1);
    bool branch = open_branch(c, &x);
    bound_loops(c, &x, n->nfree, all_copies);
    if (branch) cpu_branch_close(c);
    for (uint32_t i = 0; i < x.count; i++) {
      Reduce *r = choose(c, &x, i);
      finish(c, fold(c, r, 1));
    }
  } else if (vec_is_free(n)) {
    cpu_lanes(c, x.count > 2 ? MOST_ACC / 2 : MOST_ACC, free_lanes, NULL, &x);
  } else {
    reduce_over_lanes(c, &x);
  }
  close_loops(c, opened);
}
