// Loops, and nests of pointwise statements.
#include "codegen/cpu/cpu.h"

void cpu_loop_open(Cpu *c, LLVMValueRef lo, LLVMValueRef hi, int64_t step, bool maybe_empty,
                   const char *name) {
  CHECK(c->depth < MAX_LEVEL);
  Level *l = &c->level[c->depth++];
  LLVMBasicBlockRef from = LLVMGetInsertBlock(c->b);
  l->body = LLVMAppendBasicBlockInContext(c->ll, c->fn, name);
  l->exit = LLVMAppendBasicBlockInContext(c->ll, c->fn, "done");
  l->hi = hi;
  l->step = step;
  if (maybe_empty) {
    LLVMValueRef any = LLVMBuildICmp(c->b, LLVMIntSLT, lo, hi, "");
    l->before = LLVMBuildCondBr(c->b, any, l->body, l->exit);
  } else {
    l->before = LLVMBuildBr(c->b, l->body);
  }
  LLVMPositionBuilderAtEnd(c->b, l->body);
  l->phi = LLVMBuildPhi(c->b, c->i64, name);
  LLVMAddIncoming(l->phi, &lo, &from, 1);
}

void cpu_branch_open(Cpu *c, LLVMValueRef cond, const char *name) {
  CHECK(c->depth < MAX_LEVEL);
  Level *l = &c->level[c->depth++];
  l->body = LLVMAppendBasicBlockInContext(c->ll, c->fn, name);
  l->exit = LLVMAppendBasicBlockInContext(c->ll, c->fn, "skipped");
  l->phi = NULL;
  l->before = LLVMBuildCondBr(c->b, cond, l->body, l->exit);
  LLVMPositionBuilderAtEnd(c->b, l->body);
}

void cpu_branch_close(Cpu *c) {
  Level *l = &c->level[--c->depth];
  LLVMBasicBlockRef last = LLVMGetInsertBlock(c->b);
  LLVMBuildBr(c->b, l->exit);
  LLVMMoveBasicBlockAfter(l->exit, last);
  LLVMPositionBuilderAtEnd(c->b, l->exit);
  cpu_memo_drop(c, c->depth + 1);
}

void cpu_loop_close(Cpu *c) {
  Level *l = &c->level[--c->depth];
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(c->b);
  LLVMValueRef next = LLVMBuildNSWAdd(c->b, l->phi, cpu_i64(c, l->step), "");
  LLVMAddIncoming(l->phi, &next, &latch, 1);
  LLVMValueRef more = LLVMBuildICmp(c->b, LLVMIntSLT, next, l->hi, "");
  LLVMBuildCondBr(c->b, more, l->body, l->exit);
  LLVMMoveBasicBlockAfter(l->exit, latch);
  LLVMPositionBuilderAtEnd(c->b, l->exit);
  cpu_memo_drop(c, c->depth + 1);
}

// One point (or one vector of points) of every statement. Stores come last: a later statement reads
// what an earlier one made from its register, rounded as if it had been stored.
static void pointwise(Cpu *c, const Nest *n) {
  Val value[MAX_INDEX * 4];
  CHECK(n->stmt.n <= sizeof value / sizeof *value);
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    c->ns = &n->stmt.at[i];
    c->s = &c->f->stmt.at[c->ns->stmt];
    Val v = cpu_expr(c, c->s->body, (Guard){0});
    if (c->s->acc && !c->ns->init) {
      Val old = c->now[c->s->lhs].v ? c->now[c->s->lhs] : cpu_read_lhs(c);
      bool vec = old.vec || v.vec;
      LLVMValueRef a = vec ? cpu_splat(c, old) : old.v, b = vec ? cpu_splat(c, v) : v.v;
      v = (Val){cpu_reduce(c, RED_SUM, ex(c->m, c->s->body)->type, a, b), vec};
    }
    value[i] = c->now[c->s->lhs] = cpu_round(c, v, c->f->value.at[c->s->lhs].type);
  }
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    c->ns = &n->stmt.at[i];
    c->s = &c->f->stmt.at[c->ns->stmt];
    bool last = true; // a later += to the same element has the sum
    for (uint32_t j = i + 1; j < n->stmt.n; j++)
      last &= c->f->stmt.at[n->stmt.at[j].stmt].lhs != c->s->lhs;
    if (last && c->base[c->fp->layout[c->s->lhs].buffer]) cpu_store(c, value[i]);
  }
  for (uint32_t i = 0; i < n->stmt.n; i++) c->now[c->f->stmt.at[n->stmt.at[i].stmt].lhs].v = NULL;
  // Values computed from `now` hold at this point alone.
  cpu_memo_drop(c, c->depth);
}

static void pointwise_lanes(Cpu *c, int ncopy, void *ctx) {
  for (c->copy = 0; c->copy < ncopy; c->copy++) pointwise(c, ctx);
  c->copy = 0;
}

void cpu_nest(Cpu *c, const Nest *n) {
  c->vec = n->vec;
  c->ns = &n->stmt.at[0];
  c->s = &c->f->stmt.at[c->ns->stmt];
  if (c->s->red != RED_NONE) {
    cpu_reduce_nest(c, n);
    return;
  }
  int opened = 0;
  for (uint32_t i = 0; i < n->nloop; i++) {
    const LoopVar *v = &c->l->var.at[n->loop[i]];
    if (n->loop[i] == n->vec) continue;
    cpu_loop_open(c, cpu_i64(c, 0), cpu_i64(c, v->extent), 1, false, v->name);
    c->var[n->loop[i]] = (VarState){c->level[c->depth - 1].phi, c->depth};
    opened++;
  }
  if (n->vec == NO_VAR) pointwise(c, n);
  else cpu_lanes(c, 1, pointwise_lanes, NULL, (void *)n);
  while (opened-- > 0) cpu_loop_close(c);
}
