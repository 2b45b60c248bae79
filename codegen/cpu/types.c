// Types, constants, and values as scalars or lanes.
#include "codegen/cpu/cpu.h"

#include <string.h>

LLVMTypeRef cpu_type(Cpu *c, Scalar s) {
  return s == SC_REAL ? c->real : s == SC_INT ? c->i32 : c->i1;
}

LLVMTypeRef cpu_storage(Cpu *c, Dtype t) {
  switch (t) {
  case DT_F32: return c->f32;
  case DT_BF16:
  case DT_F16: return c->i16;
  case DT_I32: return c->i32;
  case DT_BOOL: return c->i8;
  default: return c->f64;
  }
}

LLVMTypeRef cpu_vec(Cpu *c, LLVMTypeRef scalar) {
  return LLVMVectorType(scalar, (unsigned)c->width);
}

LLVMValueRef cpu_i64(Cpu *c, int64_t v) {
  return LLVMConstInt(c->i64, (unsigned long long)v, true);
}

LLVMValueRef cpu_splat(Cpu *c, Val v) {
  if (v.vec) return v.v;
  LLVMTypeRef vt = cpu_vec(c, LLVMTypeOf(v.v));
  if (LLVMIsConstant(v.v)) {
    LLVMValueRef lane[64];
    for (int i = 0; i < c->width; i++) lane[i] = v.v;
    return LLVMConstVector(lane, (unsigned)c->width);
  }
  LLVMValueRef one = LLVMBuildInsertElement(c->b, LLVMGetPoison(vt), v.v, cpu_i64(c, 0), "");
  return LLVMBuildShuffleVector(c->b, one, LLVMGetPoison(vt), LLVMConstNull(cpu_vec(c, c->i32)),
                                "");
}

LLVMValueRef cpu_iota(Cpu *c, LLVMTypeRef scalar) {
  LLVMValueRef lane[64];
  for (int i = 0; i < c->width; i++) lane[i] = LLVMConstInt(scalar, (unsigned)i, false);
  return LLVMConstVector(lane, (unsigned)c->width);
}

LLVMValueRef cpu_intrinsic(Cpu *c, const char *name, LLVMTypeRef *over, unsigned nover,
                           LLVMValueRef *arg, unsigned narg) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  if (!id) BUG("LLVM has no intrinsic %s", name);
  LLVMValueRef fn = LLVMGetIntrinsicDeclaration(c->mod, id, over, nover);
  LLVMTypeRef ft = LLVMIntrinsicGetType(c->ll, id, over, nover);
  return LLVMBuildCall2(c->b, ft, fn, arg, narg, "");
}

// Allocas stand in the entry block, so that they are made once and become registers where they can.
LLVMValueRef cpu_alloca(Cpu *c, LLVMTypeRef t, int64_t count, const char *name) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(c->b);
  LLVMValueRef last = LLVMGetBasicBlockTerminator(c->entry);
  if (last) LLVMPositionBuilderBefore(c->b, last);
  else LLVMPositionBuilderAtEnd(c->b, c->entry);
  LLVMValueRef a = LLVMBuildAlloca(c->b, count == 1 ? t : LLVMArrayType2(t, (uint64_t)count), name);
  LLVMSetAlignment(a, count == 1 && LLVMGetTypeKind(t) != LLVMVectorTypeKind ? 8 : 64);
  LLVMPositionBuilderAtEnd(c->b, here);
  return a;
}

Val cpu_round(Cpu *c, Val v, Dtype t) {
  return is_half(t) ? (Val){cpu_half_round(c, t, v.v), v.vec} : v;
}
