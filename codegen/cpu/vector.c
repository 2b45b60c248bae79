// Passes over the vector variable: whole blocks of unrolled copies, what is left of whole vectors,
// and a masked tail that runs the same operations.
#include "codegen/cpu/cpu.h"

// Values computed for the lanes of one place must not be used at another.
static void forget_lanes(Cpu *c) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->memo.n; i++)
    if (c->memo.at[i].copy < 0) c->memo.at[n++] = c->memo.at[i];
  c->memo.n = n;
}

static void set_copies(Cpu *c, LLVMValueRef lo, int from, int ncopy) {
  forget_lanes(c);
  c->var[c->vec] = (VarState){lo, c->depth};
  for (int u = 0; u < ncopy; u++) {
    LLVMValueRef step = cpu_i64(c, (int64_t)(from + u) * c->width);
    c->vbase[u] = LLVMBuildAdd(c->b, lo, step, c->l->var.at[c->vec].name);
    c->vmask[u] = NULL;
  }
}

static LLVMValueRef tail_mask(Cpu *c, LLVMValueRef left) {
  LLVMValueRef all = cpu_splat(c, (Val){LLVMBuildTrunc(c->b, left, c->i32, ""), false});
  return LLVMBuildICmp(c->b, LLVMIntSLT, cpu_iota(c, c->i32), all, "tail");
}

// Rounds of all copies: [lo, end), which is not empty.
static void whole_rounds(Cpu *c, LLVMValueRef lo, LLVMValueRef end, int unroll, VecBody *body,
                         void *ctx) {
  cpu_loop_open(c, lo, end, (int64_t)unroll * c->width, false, c->l->var.at[c->vec].name);
  set_copies(c, c->level[c->depth - 1].phi, 0, unroll);
  body(c, unroll, ctx);
  cpu_loop_close(c);
}

// As many rounds in chains, and what is left over in a shorter one.
static void chained_rounds(Cpu *c, LLVMValueRef lo, int64_t rounds, int unroll, VecBody *body,
                           VecChain *chain, void *ctx) {
  int64_t each = c->m->limits.chain, length = each * unroll * c->width, chains = rounds / each,
          left = rounds % each;
  LLVMValueRef end = LLVMBuildAdd(c->b, lo, cpu_i64(c, chains * length), "");
  cpu_loop_open(c, lo, end, length, false, "chain");
  LLVMValueRef at = c->level[c->depth - 1].phi;
  chain(c, true, ctx);
  whole_rounds(c, at, LLVMBuildAdd(c->b, at, cpu_i64(c, length), ""), unroll, body, ctx);
  chain(c, false, ctx);
  cpu_loop_close(c);
  if (!left) return;
  chain(c, true, ctx);
  whole_rounds(c, end, LLVMBuildAdd(c->b, end, cpu_i64(c, left * unroll * c->width), ""), unroll,
               body, ctx);
  chain(c, false, ctx);
}

// [lo, lo + n): everything about it is known but where it starts.
static void static_lanes(Cpu *c, LLVMValueRef lo, int64_t n, int unroll, VecBody *body,
                         VecChain *chain, void *ctx) {
  int64_t block = (int64_t)unroll * c->width, main = n / block, left = n - main * block;
  LLVMValueRef end = LLVMBuildAdd(c->b, lo, cpu_i64(c, main * block), "");
  if (chain && main > 2 * c->m->limits.chain) chained_rounds(c, lo, main, unroll, body, chain, ctx);
  else if (main) whole_rounds(c, lo, end, unroll, body, ctx);
  int whole = (int)(left / c->width), tail = (int)(left % c->width);
  if (!whole && !tail) return;
  set_copies(c, end, 0, whole + (tail > 0));
  if (tail) c->vmask[whole] = tail_mask(c, cpu_i64(c, tail));
  body(c, whole + (tail > 0), ctx);
}

// [lo, hi), where the last tile of the grid has fewer than the others.
static void dynamic_lanes(Cpu *c, LLVMValueRef lo, LLVMValueRef hi, int unroll, VecBody *body,
                          void *ctx) {
  const char *name = c->l->var.at[c->vec].name;
  for (int u = unroll;; u = 1) {
    LLVMValueRef block = cpu_i64(c, (int64_t)u * c->width);
    LLVMValueRef n = LLVMBuildSDiv(c->b, LLVMBuildSub(c->b, hi, lo, ""), block, "");
    LLVMValueRef end = LLVMBuildAdd(c->b, lo, LLVMBuildMul(c->b, n, block, ""), "");
    cpu_loop_open(c, lo, end, (int64_t)u * c->width, true, name);
    set_copies(c, c->level[c->depth - 1].phi, 0, u);
    body(c, u, ctx);
    cpu_loop_close(c);
    lo = end;
    if (u == 1) break;
  }
  // At most one round.
  cpu_loop_open(c, lo, hi, c->width, true, name);
  LLVMValueRef at = c->level[c->depth - 1].phi;
  set_copies(c, at, 0, 1);
  c->vmask[0] = tail_mask(c, LLVMBuildSub(c->b, hi, at, ""));
  body(c, 1, ctx);
  cpu_loop_close(c);
}

void cpu_lanes_between(Cpu *c, LLVMValueRef lo, LLVMValueRef hi, VecBody *body, void *ctx) {
  dynamic_lanes(c, lo, hi, 1, body, ctx);
  forget_lanes(c);
}

void cpu_lanes(Cpu *c, int unroll, VecBody *body, VecChain *chain, void *ctx) {
  int64_t extent = c->l->var.at[c->vec].extent, tile = c->l->tile;
  bool tiled = tile && c->vec == c->l->ngrid - 1;
  LLVMValueRef lo = tiled ? c->var[c->vec].at : cpu_i64(c, 0);
  VarState saved = c->var[c->vec];
  if (!tiled) static_lanes(c, lo, extent, unroll, body, chain, ctx);
  else if (extent % tile == 0) static_lanes(c, lo, tile, unroll, body, chain, ctx);
  else {
    LLVMValueRef end = LLVMBuildAdd(c->b, lo, cpu_i64(c, tile), "");
    LLVMValueRef over = LLVMBuildICmp(c->b, LLVMIntSGT, end, cpu_i64(c, extent), "");
    LLVMValueRef hi = LLVMBuildSelect(c->b, over, cpu_i64(c, extent), end, "");
    dynamic_lanes(c, lo, hi, unroll, body, ctx);
  }
  forget_lanes(c);
  c->var[c->vec] = saved;
}
