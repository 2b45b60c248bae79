// Philox in lanes: runtime/base/philox.h's dt_uniform, operation by operation, on integers.
#include "codegen/cpu/cpu.h"

typedef struct Philox {
  Cpu *c;
  LLVMTypeRef t32, t64;
  LLVMValueRef w[4], k[2];
} Philox;

static LLVMValueRef word32(Philox *p, uint32_t v, bool wide) {
  LLVMTypeRef st = wide ? p->c->i64 : p->c->i32;
  LLVMValueRef k = LLVMConstInt(st, v, false);
  return LLVMGetTypeKind(p->t32) == LLVMVectorTypeKind ? cpu_splat(p->c, (Val){k, false}) : k;
}

// The 64-bit product with a constant, as its halves.
static void mul_wide(Philox *p, LLVMValueRef x, uint32_t by, LLVMValueRef *hi, LLVMValueRef *lo) {
  LLVMBuilderRef b = p->c->b;
  LLVMValueRef wide = LLVMBuildMul(b, LLVMBuildZExt(b, x, p->t64, ""), word32(p, by, true), "");
  *lo = LLVMBuildTrunc(b, wide, p->t32, "");
  *hi = LLVMBuildTrunc(b, LLVMBuildLShr(b, wide, word32(p, 32, true), ""), p->t32, "");
}

static void one_round(Philox *p) {
  LLVMBuilderRef b = p->c->b;
  LLVMValueRef phi, plo, qhi, qlo;
  mul_wide(p, p->w[0], 0xd2511f53, &phi, &plo);
  mul_wide(p, p->w[2], 0xcd9e8d57, &qhi, &qlo);
  p->w[0] = LLVMBuildXor(b, LLVMBuildXor(b, qhi, p->w[1], ""), p->k[0], "");
  p->w[2] = LLVMBuildXor(b, LLVMBuildXor(b, phi, p->w[3], ""), p->k[1], "");
  p->w[1] = qlo;
  p->w[3] = plo;
  p->k[0] = LLVMBuildAdd(b, p->k[0], word32(p, 0x9e3779b9, false), "");
  p->k[1] = LLVMBuildAdd(b, p->k[1], word32(p, 0xbb67ae85, false), "");
}

static LLVMValueRef xor_shift(Cpu *c, LLVMValueRef z, int by) {
  return LLVMBuildXor(c->b, z, LLVMBuildLShr(c->b, z, cpu_i64(c, by), ""), "");
}

// dt_key(seed, step), by words.
static void make_key(Philox *p, bool vec) {
  Cpu *c = p->c;
  LLVMValueRef at = cpu_i64(c, 1), step = LLVMBuildGEP2(c->b, c->i64, c->key, &at, 1, "");
  LLVMValueRef z = LLVMBuildMul(c->b, LLVMBuildLoad2(c->b, c->i64, step, "step"),
                                cpu_i64(c, (int64_t)UINT64_C(0x9e3779b97f4a7c15)), "");
  z = LLVMBuildAdd(c->b, LLVMBuildLoad2(c->b, c->i64, c->key, "seed"), z, "");
  z = LLVMBuildMul(c->b, xor_shift(c, z, 30), cpu_i64(c, (int64_t)UINT64_C(0xbf58476d1ce4e5b9)),
                   "");
  z = LLVMBuildMul(c->b, xor_shift(c, z, 27), cpu_i64(c, (int64_t)UINT64_C(0x94d049bb133111eb)),
                   "");
  z = xor_shift(c, z, 31);
  for (int i = 0; i < 2; i++) {
    LLVMValueRef half = i ? LLVMBuildLShr(c->b, z, cpu_i64(c, 32), "") : z;
    p->k[i] = LLVMBuildTrunc(c->b, half, c->i32, "key");
    if (vec) p->k[i] = cpu_splat(c, (Val){p->k[i], false});
  }
}

// arg: site, iteration (32 bits), element (64 bits).
Val cpu_random(Cpu *c, const Val *arg) {
  bool vec = arg[0].vec || arg[1].vec || arg[2].vec;
  Philox p = {
      .c = c, .t32 = vec ? cpu_vec(c, c->i32) : c->i32, .t64 = vec ? cpu_vec(c, c->i64) : c->i64};
  LLVMValueRef site = vec ? cpu_splat(c, arg[0]) : arg[0].v,
               iter = vec ? cpu_splat(c, arg[1]) : arg[1].v;
  LLVMValueRef element = vec ? cpu_splat(c, arg[2]) : arg[2].v;
  make_key(&p, vec);
  p.w[0] = LLVMBuildTrunc(c->b, element, p.t32, "");
  p.w[1] = LLVMBuildTrunc(c->b, LLVMBuildLShr(c->b, element, word32(&p, 32, true), ""), p.t32, "");
  p.w[2] = site;
  p.w[3] = iter;
  for (int round = 0; round < 10; round++) one_round(&p);
  // 24 bits are exact in either type of real.
  LLVMValueRef top = LLVMBuildLShr(c->b, p.w[0], word32(&p, 8, false), "");
  Val scale = {LLVMConstReal(c->real, 0x1p-24), false};
  LLVMValueRef u = LLVMBuildSIToFP(c->b, top, vec ? cpu_vec(c, c->real) : c->real, "");
  return (Val){LLVMBuildFMul(c->b, u, vec ? cpu_splat(c, scale) : scale.v, "random"), vec};
}
