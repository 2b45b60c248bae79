// The function that a product's kernel applies to its sums: "kernel.NAME"(arg, begin, end) takes elements [begin, end) of
// the sums at arg[0], of the type of computation, to arg[1], of C's type. Both may be one place. The runtime calls it for
// rows of a tile while they are in the cache (runtime/device/cpu/gemm.h).
#include "codegen/cpu/cpu.h"

typedef struct Places {
  LLVMValueRef sum, to;
} Places;

typedef struct Values {
  Cpu *c;
  Val v;
} Values;

static void note_value(const Module *m, Id read, void *ctx) {
  Values *x = ctx;
  x->c->now[ex(m, read)->integer] = x->v;
}

static void apply(Cpu *c, int ncopy, void *ctx) {
  const Places *p = ctx;
  Dtype to = c->f->value.at[c->s->lhs].type;
  for (c->copy = 0; c->copy < ncopy; c->copy++) {
    Values x = {c, cpu_load_at(c, p->sum, c->m->compute)};
    ex_reads(c->m, c->s->body, note_value, &x);
    Val v = cpu_expr(c, c->s->body, (Guard){0});
    cpu_store_at(c, p->to, to, cpu_round(c, v, to));
    x.v = (Val){NULL, false};
    ex_reads(c->m, c->s->body, note_value, &x);
    cpu_memo_drop(c, c->depth);
  }
  c->copy = 0;
}

void cpu_epilogue(Cpu *c, const FnPlan *fp, const Kernel *k) {
  Loops loops = {.ngrid = 1};
  NestStmt ns = {.stmt = k->stmt.at[k->stmt.n - 1]};
  PUSH(c->m->arena, loops.var, (LoopVar){.name = str_intern("element")});
  cpu_kernel_open(c, fp, k);
  c->l = &loops;
  c->vec = 0;
  c->s = &c->f->stmt.at[ns.stmt];
  c->ns = &ns;
  Places p;
  for (int i = 0; i < 2; i++) {
    LLVMValueRef n = cpu_i64(c, i), at = LLVMBuildGEP2(c->b, c->ptr, LLVMGetParam(c->fn, 0), &n, 1, "");
    *(i ? &p.to : &p.sum) = LLVMBuildLoad2(c->b, c->ptr, at, i ? "to" : "sum");
  }
  cpu_lanes_between(c, LLVMGetParam(c->fn, 1), LLVMGetParam(c->fn, 2), apply, &p);
  LLVMBuildRetVoid(c->b);
}
