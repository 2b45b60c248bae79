// One kernel: its function, its buffers and the loop over the grid.
#include "codegen/cpu/cpu.h"

typedef struct Uses {
  Cpu *c;
  uint32_t nest;
  uint32_t *nest_of; // for each value: 1 + the nest that writes it
  bool *crosses; // a later nest reads it
} Uses;

static void note_read(const Module *m, Id read, void *ctx) {
  Uses *u = ctx;
  Id b = u->c->fp->layout[ex(m, read)->integer].buffer;
  if (u->nest_of[b] && u->nest_of[b] != u->nest + 1) u->crosses[b] = true;
}

// Values internal to the kernel that more than one nest touches need a row on the stack.
static void find_rows(Cpu *c, bool *crosses) {
  Uses u = {.c = c, .nest_of = NEWN(c->m->arena, uint32_t, c->f->value.n), .crosses = crosses};
  for (u.nest = 0; u.nest < c->l->nest.n; u.nest++) {
    const Nest *n = &c->l->nest.at[u.nest];
    for (uint32_t i = 0; i < n->stmt.n; i++) {
      const Stmt *s = &c->f->stmt.at[n->stmt.at[i].stmt];
      Id b = c->fp->layout[s->lhs].buffer;
      // Only a pointwise nest keeps what it makes in registers.
      if (u.nest_of[b] || s->red != RED_NONE)
        crosses[b] |= u.nest_of[b] != u.nest + 1 || s->red != RED_NONE;
      u.nest_of[b] = u.nest + 1;
      comp_reads(c->m, c->f, s, note_read, &u);
    }
  }
}

static int64_t row_elements(const Value *v, const Layout *l) {
  int64_t n = 1;
  for (uint32_t d = 0; d < v->rank; d++) n += (v->extent[d] - 1) * l->stride[d];
  return n;
}

static void bind_buffers(Cpu *c) {
  LLVMValueRef args = LLVMGetParam(c->fn, 0);
  uint32_t n = c->k->arg.n;
  for (uint32_t i = 0; i <= n; i++) {
    if (i == n && !c->k->random) break;
    LLVMValueRef at = cpu_i64(c, i), p = LLVMBuildGEP2(c->b, c->ptr, args, &at, 1, "");
    Str name = i == n ? "key" : c->f->value.at[c->k->arg.at[i]].name;
    LLVMValueRef base = LLVMBuildLoad2(c->b, c->ptr, p, name);
    if (i == n) c->key = base;
    else c->base[c->k->arg.at[i]] = base;
  }
  if (c->k->fill != NONE) return;
  bool *crosses = NEWN(c->m->arena, bool, c->f->value.n);
  find_rows(c, crosses);
  for (Id v = 0; v < c->f->value.n; v++) {
    if (!crosses[v] || !c->fp->layout[v].internal) continue;
    const Value *value = &c->f->value.at[v];
    c->base[v] = cpu_alloca(c, cpu_storage(c, value->type), row_elements(value, &c->fp->layout[v]),
                            value->name);
  }
}

// From the number of a grid point to the variables of the grid.
static void decode_point(Cpu *c, LLVMValueRef point) {
  for (uint32_t i = c->l->ngrid; i-- > 0;) {
    const LoopVar *v = &c->l->var.at[i];
    bool tiled = c->l->tile && i == c->l->ngrid - 1;
    int64_t count = tiled ? (v->extent + c->l->tile - 1) / c->l->tile : v->extent;
    LLVMValueRef n = cpu_i64(c, count), at = point;
    if (i > 0) {
      at = LLVMBuildURem(c->b, point, n, v->name);
      point = LLVMBuildUDiv(c->b, point, n, "");
    }
    if (tiled) at = LLVMBuildNSWMul(c->b, at, cpu_i64(c, c->l->tile), v->name);
    c->var[i] = (VarState){at, c->depth};
  }
}

static void run_grid(Cpu *c) {
  cpu_loop_open(c, LLVMGetParam(c->fn, 1), LLVMGetParam(c->fn, 2), 1, true, "point");
  c->grid_level = c->depth;
  decode_point(c, c->level[0].phi);
  for (uint32_t i = 0; i < c->l->nest.n; i++) {
    cpu_nest(c, &c->l->nest.at[i]);
    c->memo.n = 0;
  }
  cpu_loop_close(c);
}

static void fill_zero(Cpu *c) {
  LLVMValueRef begin = LLVMGetParam(c->fn, 1), end = LLVMGetParam(c->fn, 2);
  const Value *v = &c->f->value.at[c->k->fill];
  LLVMValueRef at =
      LLVMBuildGEP2(c->b, cpu_storage(c, v->type), c->base[c->k->fill], &begin, 1, "");
  LLVMValueRef n = LLVMBuildSub(c->b, end, begin, "");
  n = LLVMBuildMul(c->b, n, cpu_i64(c, dtype_size(v->type)), "bytes");
  LLVMBuildMemSet(c->b, at, LLVMConstNull(c->i8), n, (unsigned)dtype_size(v->type));
}

static void declare(Cpu *c) {
  LLVMTypeRef in[] = {c->ptr, c->i64, c->i64};
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(c->ll), in, 3, false);
  c->fn = LLVMAddFunction(c->mod, str_printf("kernel.%s", c->k->name), type);
  static const char *const name[] = {"arg", "begin", "end"};
  for (unsigned i = 0; i < 3; i++)
    LLVMSetValueName2(LLVMGetParam(c->fn, i), name[i], strlen(name[i]));
  unsigned kind = LLVMGetEnumAttributeKindForName("nounwind", 8);
  LLVMAddAttributeAtIndex(c->fn, LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(c->ll, kind, 0));
}

void cpu_kernel_open(Cpu *c, const FnPlan *fp, const Kernel *k) {
  c->fp = fp;
  c->f = &c->m->fn.at[fp->fn];
  c->k = k;
  c->l = k->loops;
  c->depth = 0;
  c->vec = NO_VAR;
  c->memo.n = 0;
  c->base = NEWN(c->m->arena, LLVMValueRef, c->f->value.n);
  c->now = NEWN(c->m->arena, Val, c->f->value.n);
  c->made = NEWN(c->m->arena, bool, c->f->value.n);
  for (uint32_t i = 0; i < k->stmt.n; i++)
    c->made[fp->layout[c->f->stmt.at[k->stmt.at[i]].lhs].buffer] = true;
  declare(c);
  c->entry = LLVMAppendBasicBlockInContext(c->ll, c->fn, "entry");
  LLVMPositionBuilderAtEnd(c->b, c->entry);
}

void cpu_kernel(Cpu *c, const FnPlan *fp, const Kernel *k) {
  cpu_kernel_open(c, fp, k);
  bind_buffers(c);
  if (k->fill != NONE) fill_zero(c);
  else run_grid(c);
  LLVMBuildRetVoid(c->b);
}
