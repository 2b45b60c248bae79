// Expressions. Each is emitted once, outside of all loops that it does not depend on: LLVM would
// move arithmetic out by itself, but no loads, since any store might change what they read.
#include "codegen/cpu/cpu.h"

LLVMBasicBlockRef cpu_at(Cpu *c, int level) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(c->b);
  if (level < c->depth) LLVMPositionBuilderBefore(c->b, c->level[level].before);
  return here;
}

void cpu_back(Cpu *c, LLVMBasicBlockRef block) { LLVMPositionBuilderAtEnd(c->b, block); }

void cpu_memo_drop(Cpu *c, int level) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->memo.n; i++)
    if (c->memo.at[i].level < level) c->memo.at[n++] = c->memo.at[i];
  c->memo.n = n;
}

static int max_int(int a, int b) { return a > b ? a : b; }

int cpu_level(Cpu *c, Id id) {
  const Expr *e = ex(c->m, id);
  if (e->op == OP_INDEX) { // one that is merged into another depends on nothing by itself
    uint8_t v = c->ns->var[e->integer];
    return v == NO_VAR ? 0 : c->var[v].level;
  }
  int level = 0;
  if (e->op == OP_READ) {
    if (c->now[e->integer].v) return c->depth;
    if (c->made[c->fp->layout[e->integer].buffer]) level = c->grid_level;
  }
  for (uint32_t i = 0; i < e->narg; i++) level = max_int(level, cpu_level(c, ex_arg(c->m, id, i)));
  return level;
}

bool cpu_on_vec(Cpu *c, Id id) {
  const Expr *e = ex(c->m, id);
  if (e->op == OP_INDEX) return c->vec != NO_VAR && c->ns->var[e->integer] == c->vec;
  if (e->op == OP_READ && c->now[e->integer].v) return true;
  for (uint32_t i = 0; i < e->narg; i++)
    if (cpu_on_vec(c, ex_arg(c->m, id, i))) return true;
  return false;
}

bool cpu_unsafe(Cpu *c, Id id) {
  const Expr *e = ex(c->m, id);
  const Value *v = e->op == OP_READ ? &c->f->value.at[e->integer] : NULL;
  for (uint32_t i = 0; i < e->narg; i++) {
    Id arg = ex_arg(c->m, id, i);
    if (v && !c->now[e->integer].v && !affine_inside(c->m, c->s, arg, v->extent[i])) return true;
    if (cpu_unsafe(c, arg)) return true;
  }
  return false;
}

int cpu_need(Cpu *c, Id e, Guard g) {
  int level = cpu_level(c, e);
  return g.c.v && cpu_unsafe(c, e) ? max_int(level, g.level) : level;
}

LLVMValueRef cpu_mask(Cpu *c, Guard g) {
  LLVMValueRef tail = c->vec == NO_VAR ? NULL : c->vmask[c->copy];
  if (!g.c.v) return tail;
  LLVMValueRef lanes = cpu_splat(c, g.c);
  return tail ? LLVMBuildAnd(c->b, lanes, tail, "mask") : lanes;
}

static Memo *find(Cpu *c, Memo key) {
  for (uint32_t i = c->memo.n; i-- > 0;) {
    Memo *k = &c->memo.at[i];
    if (k->expr == key.expr && k->sub == key.sub && k->ns == key.ns && k->guard == key.guard &&
        k->copy == key.copy)
      return k;
  }
  return NULL;
}

static Memo key_of(Cpu *c, Id e, bool sub, Guard g) {
  return (Memo){.expr = e, .ns = c->ns, .sub = sub, .guard = cpu_unsafe(c, e) ? g.c.v : NULL,
                .copy = cpu_on_vec(c, e) ? c->copy : -1};
}

// g and (cond or its opposite).
static Guard guard_and(Cpu *c, Guard g, Val cond, int level, bool negate) {
  Guard r = {cond, max_int(level, g.c.v ? g.level : 0)};
  LLVMBasicBlockRef here = cpu_at(c, r.level);
  if (negate) r.c.v = LLVMBuildNot(c->b, cond.v, "else");
  if (g.c.v) {
    r.c.vec = cond.vec || g.c.vec;
    LLVMValueRef a = r.c.vec ? cpu_splat(c, g.c) : g.c.v;
    LLVMValueRef b = r.c.vec ? cpu_splat(c, (Val){r.c.v, cond.vec}) : r.c.v;
    r.c.v = LLVMBuildAnd(c->b, a, b, "guard");
  }
  cpu_back(c, here);
  return r;
}

// Operands that are evaluated only where the first says so: they get it as a guard if they need
// one.
static void lazy_operands(Cpu *c, Id id, Guard g, Val *arg) {
  const Expr *e = ex(c->m, id);
  Id cond = ex_arg(c->m, id, 0);
  int level = cpu_need(c, cond, g);
  arg[0] = cpu_expr(c, cond, g);
  for (uint32_t i = 1; i < e->narg; i++) {
    Id a = ex_arg(c->m, id, i);
    bool negate = e->op == OP_OR || (e->op == OP_WHERE && i == 2);
    arg[i] = cpu_expr(c, a, cpu_unsafe(c, a) ? guard_and(c, g, arg[0], level, negate) : g);
  }
}

static Val index_value(Cpu *c, const Expr *e, bool sub) {
  uint8_t v = c->ns->var[e->integer];
  CHECK(v != NO_VAR);
  bool vec = v == c->vec;
  LLVMValueRef at = vec ? c->vbase[c->copy] : c->var[v].at;
  LLVMTypeRef t = sub ? c->i64 : c->i32;
  if (!sub) at = LLVMBuildTrunc(c->b, at, t, c->l->var.at[v].name);
  if (!vec) return (Val){at, false};
  return (Val){LLVMBuildAdd(c->b, cpu_splat(c, (Val){at, false}), cpu_iota(c, t), ""), true};
}

// A constant; reals are rounded to the type that the statement computes in.
static Val constant(Cpu *c, const Expr *e) {
  if (e->op == OP_REAL) return (Val){LLVMConstReal(c->real, e->real), false};
  return (Val){LLVMConstInt(e->op == OP_INT ? c->i32 : c->i1, (unsigned long long)e->integer, true),
               false};
}

static Val group_value(Cpu *c, Id id, Guard g) {
  Val v = cpu_subscript(c, id, g);
  LLVMTypeRef t = v.vec ? cpu_vec(c, c->i32) : c->i32;
  LLVMBasicBlockRef here = cpu_at(c, cpu_need(c, id, g));
  v.v = LLVMBuildTrunc(c->b, v.v, t, "");
  cpu_back(c, here);
  return v;
}

static Val evaluate(Cpu *c, Id id, Guard g, int level) {
  const Expr *e = ex(c->m, id);
  Val arg[3], v;
  if (e->op == OP_READ) return cpu_read(c, id, g);
  if (e->op == OP_GROUP) return group_value(c, id, g);
  if (e->op == OP_WHERE || e->op == OP_AND || e->op == OP_OR) lazy_operands(c, id, g, arg);
  else
    for (uint32_t i = 0; i < e->narg; i++) {
      bool element = e->op == OP_RANDOM && i == 2;
      arg[i] =
          element ? cpu_subscript(c, ex_arg(c->m, id, i), g) : cpu_expr(c, ex_arg(c->m, id, i), g);
    }
  LLVMBasicBlockRef here = cpu_at(c, level);
  if (e->op == OP_INDEX) v = index_value(c, e, false);
  else if (e->op == OP_REAL || e->op == OP_INT || e->op == OP_BOOL) v = constant(c, e);
  else v = cpu_op(c, id, arg, c->vec == NO_VAR ? NULL : c->vmask[c->copy]);
  cpu_back(c, here);
  return v;
}

Val cpu_expr(Cpu *c, Id e, Guard g) {
  Memo key = key_of(c, e, false, g), *old = find(c, key);
  if (old) return old->val;
  key.level = cpu_need(c, e, g);
  key.val = evaluate(c, e, g, key.level);
  PUSH(c->m->arena, c->memo, key);
  return key.val;
}

static Val wide_op(Cpu *c, Op op, Val a, Val b) {
  bool vec = a.vec || b.vec;
  LLVMValueRef x = vec ? cpu_splat(c, a) : a.v, y = vec ? cpu_splat(c, b) : b.v;
  switch (op) {
  case OP_ADD: return (Val){LLVMBuildAdd(c->b, x, y, ""), vec};
  case OP_SUB: return (Val){LLVMBuildSub(c->b, x, y, ""), vec};
  case OP_MUL: return (Val){LLVMBuildMul(c->b, x, y, ""), vec};
  default: return (Val){cpu_floor_div(c, x, y, op == OP_MOD), vec};
  }
}

static Val wide_group(Cpu *c, Id id, const Val *arg, uint32_t n) {
  Val v = arg[0];
  for (uint32_t i = 1; i < n; i++) {
    int64_t extent = c->s->index[ex(c->m, ex_arg(c->m, id, i))->integer].extent;
    v = wide_op(c, OP_ADD, wide_op(c, OP_MUL, v, (Val){cpu_i64(c, extent), false}), arg[i]);
  }
  return v;
}

// Integer arithmetic in subscripts is done in 64 bits; anything else is extended from its own 32.
static Val wide(Cpu *c, Id id, Guard g, int level) {
  const Expr *e = ex(c->m, id);
  bool group = e->op == OP_GROUP;
  bool arith =
      e->op == OP_ADD || e->op == OP_SUB || e->op == OP_MUL || e->op == OP_IDIV || e->op == OP_MOD;
  Val arg[MAX_INDEX], v;
  if (group || arith || e->op == OP_NEG)
    for (uint32_t i = 0; i < e->narg; i++) arg[i] = cpu_subscript(c, ex_arg(c->m, id, i), g);
  else if (e->op != OP_INDEX && e->op != OP_INT) arg[0] = cpu_expr(c, id, g);
  LLVMBasicBlockRef here = cpu_at(c, level);
  if (group) v = wide_group(c, id, arg, e->narg);
  else if (arith) v = wide_op(c, e->op, arg[0], arg[1]);
  else if (e->op == OP_NEG) v = wide_op(c, OP_SUB, (Val){cpu_i64(c, 0), false}, arg[0]);
  else if (e->op == OP_INDEX) v = index_value(c, e, true);
  else if (e->op == OP_INT) v = (Val){cpu_i64(c, e->integer), false};
  else
    v = (Val){LLVMBuildSExt(c->b, arg[0].v, arg[0].vec ? cpu_vec(c, c->i64) : c->i64, ""),
              arg[0].vec};
  cpu_back(c, here);
  return v;
}

Val cpu_subscript(Cpu *c, Id e, Guard g) {
  Memo key = key_of(c, e, true, g), *old = find(c, key);
  if (old) return old->val;
  key.level = cpu_need(c, e, g);
  key.val = wide(c, e, g, key.level);
  PUSH(c->m->arena, c->memo, key);
  return key.val;
}
