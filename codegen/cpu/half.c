// 16-bit reals. They lie in memory as 16 bits and are computed with as float: converted on load,
// rounded to nearest even where a statement makes them.
//
// bf16 is the upper half of a float, so integer arithmetic converts it on every processor. The
// instruction vcvtneps2bf16 is not used: it takes subnormal numbers for zeros. f16 goes through F16C
// from AVX2 on, and through arithmetic before it; both give the same bits, NaN's payload aside.
#include "codegen/cpu/cpu.h"

// A type or a constant, in all lanes where `like` has lanes.
static LLVMTypeRef type_as(Cpu *c, LLVMTypeRef scalar, LLVMValueRef like) {
  bool vec = LLVMGetTypeKind(LLVMTypeOf(like)) == LLVMVectorTypeKind;
  return vec ? cpu_vec(c, scalar) : scalar;
}

static LLVMValueRef bits(Cpu *c, uint32_t v, LLVMValueRef like) {
  Val k = {LLVMConstInt(c->i32, v, false), false};
  bool vec = LLVMGetTypeKind(LLVMTypeOf(like)) == LLVMVectorTypeKind;
  return vec ? cpu_splat(c, k) : k.v;
}

static LLVMValueRef to_bits(Cpu *c, LLVMValueRef f) {
  return LLVMBuildBitCast(c->b, f, type_as(c, c->i32, f), "");
}

static LLVMValueRef to_float(Cpu *c, LLVMValueRef u) {
  return LLVMBuildBitCast(c->b, u, type_as(c, c->f32, u), "");
}

// The float's bits, rounded at the 16th; a NaN stays one.
static LLVMValueRef round_bf16(Cpu *c, LLVMValueRef f) {
  LLVMValueRef u = to_bits(c, f);
  LLVMValueRef odd = LLVMBuildAnd(c->b, LLVMBuildLShr(c->b, u, bits(c, 16, f), ""),
                                  bits(c, 1, f), "");
  LLVMValueRef r = LLVMBuildAdd(c->b, LLVMBuildAdd(c->b, u, bits(c, 0x7fff, f), ""), odd, "");
  LLVMValueRef quiet = LLVMBuildOr(c->b, u, bits(c, 0x400000, f), "");
  LLVMValueRef nan = LLVMBuildFCmp(c->b, LLVMRealUNO, f, f, "");
  r = LLVMBuildSelect(c->b, nan, quiet, r, "");
  return LLVMBuildAnd(c->b, r, bits(c, 0xffff0000, f), "bf16");
}

// 16 bits of an f16, in i32. Where the number is subnormal an addition shifts and rounds it.
static LLVMValueRef f16_bits(Cpu *c, LLVMValueRef f) {
  const uint32_t inf = 0x7f800000, overflow = 0x47800000, normal = 0x38800000, magic = 0x3f000000;
  LLVMBuilderRef b = c->b;
  LLVMValueRef u = to_bits(c, f), sign = LLVMBuildAnd(b, u, bits(c, 0x80000000, f), "");
  u = LLVMBuildXor(b, u, sign, "");
  LLVMValueRef odd = LLVMBuildAnd(b, LLVMBuildLShr(b, u, bits(c, 13, f), ""), bits(c, 1, f), "");
  LLVMValueRef r = LLVMBuildAdd(b, u, bits(c, 0xc8000fffu, f), ""); // exponent less 112, and rounding
  r = LLVMBuildLShr(b, LLVMBuildAdd(b, r, odd, ""), bits(c, 13, f), "");
  LLVMValueRef shifted = LLVMBuildFAdd(b, to_float(c, u), to_float(c, bits(c, magic, f)), "");
  LLVMValueRef small = LLVMBuildSub(b, to_bits(c, shifted), bits(c, magic, f), "");
  LLVMValueRef is_small = LLVMBuildICmp(b, LLVMIntULT, u, bits(c, normal, f), "");
  LLVMValueRef is_large = LLVMBuildICmp(b, LLVMIntUGE, u, bits(c, overflow, f), "");
  LLVMValueRef nan = LLVMBuildICmp(b, LLVMIntUGT, u, bits(c, inf, f), "");
  LLVMValueRef large = LLVMBuildSelect(b, nan, bits(c, 0x7e00, f), bits(c, 0x7c00, f), "");
  r = LLVMBuildSelect(b, is_small, small, r, "");
  r = LLVMBuildSelect(b, is_large, large, r, "");
  return LLVMBuildOr(b, r, LLVMBuildLShr(b, sign, bits(c, 16, f), ""), "f16");
}

// Of 16 bits in i32. Multiplied by 2^112 the exponent is right, a subnormal number's too.
static LLVMValueRef f16_float(Cpu *c, LLVMValueRef u) {
  LLVMBuilderRef b = c->b;
  LLVMValueRef sign = LLVMBuildShl(b, LLVMBuildAnd(b, u, bits(c, 0x8000, u), ""), bits(c, 16, u), "");
  LLVMValueRef abs = LLVMBuildShl(b, LLVMBuildAnd(b, u, bits(c, 0x7fff, u), ""), bits(c, 13, u), "");
  LLVMValueRef scale = to_float(c, bits(c, 0x77800000, u)); // 2^112
  LLVMValueRef finite = to_bits(c, LLVMBuildFMul(b, to_float(c, abs), scale, ""));
  LLVMValueRef other = LLVMBuildOr(b, abs, bits(c, 0x7f800000, u), ""); // infinity or NaN
  LLVMValueRef is_other = LLVMBuildICmp(b, LLVMIntUGE, abs, bits(c, 0x0f800000, u), "");
  LLVMValueRef r = LLVMBuildSelect(b, is_other, other, finite, "");
  return to_float(c, LLVMBuildOr(b, r, sign, ""));
}

static bool has_f16c(const Cpu *c) { return c->isa != 'b'; }

static LLVMValueRef to_single(Cpu *c, LLVMValueRef v) {
  return c->real == c->f32 ? v : LLVMBuildFPTrunc(c->b, v, type_as(c, c->f32, v), "");
}

static LLVMValueRef from_single(Cpu *c, LLVMValueRef v) {
  return c->real == c->f32 ? v : LLVMBuildFPExt(c->b, v, type_as(c, c->f64, v), "");
}

LLVMValueRef cpu_half_load(Cpu *c, Dtype t, LLVMValueRef v) {
  LLVMTypeRef half = type_as(c, LLVMHalfTypeInContext(c->ll), v), single = type_as(c, c->f32, v);
  if (t == DT_F16 && has_f16c(c))
    return from_single(c, LLVMBuildFPExt(c->b, LLVMBuildBitCast(c->b, v, half, ""), single, ""));
  LLVMValueRef u = LLVMBuildZExt(c->b, v, type_as(c, c->i32, v), "");
  if (t == DT_F16) return from_single(c, f16_float(c, u));
  return from_single(c, to_float(c, LLVMBuildShl(c->b, u, bits(c, 16, u), "")));
}

LLVMValueRef cpu_half_round(Cpu *c, Dtype t, LLVMValueRef v) {
  v = to_single(c, v);
  if (t == DT_BF16) return from_single(c, to_float(c, round_bf16(c, v)));
  return cpu_half_load(c, t, cpu_half_store(c, t, from_single(c, v)));
}

LLVMValueRef cpu_half_store(Cpu *c, Dtype t, LLVMValueRef v) {
  LLVMTypeRef half = type_as(c, LLVMHalfTypeInContext(c->ll), v), i16 = type_as(c, c->i16, v);
  v = to_single(c, v);
  if (t == DT_F16 && has_f16c(c))
    return LLVMBuildBitCast(c->b, LLVMBuildFPTrunc(c->b, v, half, ""), i16, "");
  LLVMValueRef u = t == DT_F16 ? f16_bits(c, v)
                               : LLVMBuildLShr(c->b, to_bits(c, v), bits(c, 16, v), "");
  return LLVMBuildTrunc(c->b, u, i16, "");
}
