// Scalar operators as LLVM instructions, and libmvec's functions by name.
//
// libmvec and the scalar libm differ in the last bit for half of all inputs, so a scalar operand is
// put in all lanes of the vector function too: a statement has the same bits wherever it lands.
// glibc 2.36 has exp, log, sin, cos, tanh, erf and pow for all three vector lengths, within 4 ulp
// by its manual.
#include "codegen/cpu/cpu.h"

static LLVMValueRef vector_function(Cpu *c, const char *name, unsigned narg) {
  bool f32 = c->real == c->f32;
  Str full = str_printf("_ZGV%cN%d%s_%s%s", c->isa, c->width, narg == 2 ? "vv" : "v", name,
                        f32 ? "f" : "");
  LLVMValueRef fn = LLVMGetNamedFunction(c->mod, full);
  if (fn) return fn;
  LLVMTypeRef vt = cpu_vec(c, c->real), in[2] = {vt, vt};
  fn = LLVMAddFunction(c->mod, full, LLVMFunctionType(vt, in, narg, false));
  static const char *const attr[] = {"nounwind", "willreturn", "nosync", "nofree"};
  for (unsigned i = 0; i < sizeof attr / sizeof *attr; i++) {
    unsigned kind = LLVMGetEnumAttributeKindForName(attr[i], strlen(attr[i]));
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(c->ll, kind, 0));
  }
  unsigned memory = LLVMGetEnumAttributeKindForName("memory", 6); // 0: touches none
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(c->ll, memory, 0));
  return fn;
}

// Lanes that are not active get 1: nothing that takes a function's slow path.
static Val call_vector(Cpu *c, const char *name, const Val *arg, unsigned narg,
                       LLVMValueRef active) {
  LLVMValueRef fn = vector_function(c, name, narg), in[2];
  bool vec = false;
  for (unsigned i = 0; i < narg; i++) vec |= arg[i].vec;
  LLVMValueRef one = cpu_splat(c, (Val){LLVMConstReal(c->real, 1), false});
  for (unsigned i = 0; i < narg; i++) {
    in[i] = cpu_splat(c, arg[i]);
    if (active && vec) in[i] = LLVMBuildSelect(c->b, active, in[i], one, "");
  }
  LLVMValueRef r = LLVMBuildCall2(c->b, LLVMGlobalGetValueType(fn), fn, in, narg, name);
  if (!vec) r = LLVMBuildExtractElement(c->b, r, cpu_i64(c, 0), name);
  return (Val){r, vec};
}

static LLVMValueRef simple(Cpu *c, const char *name, LLVMValueRef *arg, unsigned n) {
  LLVMTypeRef over = LLVMTypeOf(arg[0]);
  return cpu_intrinsic(c, name, &over, 1, arg, n);
}

// x where it is greater (less) or NaN, else acc: keeps the first of equals, and a NaN once met.
static LLVMValueRef pick(Cpu *c, bool max, Scalar type, LLVMValueRef acc, LLVMValueRef x) {
  if (type == SC_INT)
    return simple(c, max ? "llvm.smax" : "llvm.smin", (LLVMValueRef[]){acc, x}, 2);
  LLVMValueRef better = LLVMBuildFCmp(c->b, max ? LLVMRealOGT : LLVMRealOLT, x, acc, "");
  LLVMValueRef nan = LLVMBuildFCmp(c->b, LLVMRealUNO, x, x, "");
  return LLVMBuildSelect(c->b, LLVMBuildOr(c->b, better, nan, ""), x, acc, max ? "max" : "min");
}

static LLVMValueRef floor_div_by(Cpu *c, LLVMValueRef a, LLVMValueRef d, bool mod) {
  LLVMTypeRef t = LLVMTypeOf(a);
  LLVMValueRef zero = LLVMConstNull(t);
  LLVMValueRef q = LLVMBuildSDiv(c->b, a, d, ""), r = LLVMBuildSRem(c->b, a, d, "");
  LLVMValueRef left = LLVMBuildICmp(c->b, LLVMIntNE, r, zero, "");
  LLVMValueRef sign = LLVMBuildICmp(c->b, LLVMIntSLT, LLVMBuildXor(c->b, r, d, ""), zero, "");
  LLVMValueRef off = LLVMBuildAnd(c->b, left, sign, "");
  if (mod) return LLVMBuildAdd(c->b, r, LLVMBuildSelect(c->b, off, d, zero, ""), "mod");
  return LLVMBuildAdd(c->b, q, LLVMBuildSExt(c->b, off, t, ""), "div");
}

// Whether no lane of a constant is 0 or -1. Lanes past an index's extent have values as well.
static bool divides(LLVMValueRef d) {
  if (LLVMIsAConstantInt(d)) return LLVMConstIntGetSExtValue(d) != 0 && LLVMConstIntGetSExtValue(d) != -1;
  if (!LLVMIsAConstantDataVector(d)) return false;
  for (unsigned i = 0; i < LLVMGetVectorSize(LLVMTypeOf(d)); i++)
    if (!divides(LLVMGetAggregateElement(d, i))) return false;
  return true;
}

// Division that rounds towards minus infinity. By zero it gives 0, and INT_MIN // -1 wraps: the
// instruction would trap, perhaps for an operand that `where` discards.
LLVMValueRef cpu_floor_div(Cpu *c, LLVMValueRef a, LLVMValueRef d, bool mod) {
  LLVMTypeRef t = LLVMTypeOf(a);
  bool vec = LLVMGetTypeKind(t) == LLVMVectorTypeKind;
  LLVMTypeRef st = vec ? LLVMGetElementType(t) : t;
  Val one = {LLVMConstInt(st, 1, false), false}, minus = {LLVMConstAllOnes(st), false};
  if (vec) one.v = cpu_splat(c, one), minus.v = cpu_splat(c, minus);
  if (divides(d)) return floor_div_by(c, a, d, mod);
  LLVMValueRef zero = LLVMConstNull(t);
  LLVMValueRef none = LLVMBuildICmp(c->b, LLVMIntEQ, d, zero, "");
  d = LLVMBuildSelect(c->b, none, one.v, d, "divisor");
  LLVMValueRef neg = LLVMBuildICmp(c->b, LLVMIntEQ, d, minus.v, "");
  LLVMValueRef r = floor_div_by(c, a, LLVMBuildSelect(c->b, neg, one.v, d, ""), mod);
  r = LLVMBuildSelect(c->b, neg, mod ? zero : LLVMBuildNeg(c->b, a, ""), r, "");
  return LLVMBuildSelect(c->b, none, zero, r, "");
}

static LLVMValueRef compare(Cpu *c, Op op, bool real, LLVMValueRef a, LLVMValueRef b) {
  static const LLVMRealPredicate fp[] = {LLVMRealOLT, LLVMRealOLE, LLVMRealOGT,
                                         LLVMRealOGE, LLVMRealOEQ, LLVMRealUNE};
  static const LLVMIntPredicate ip[] = {LLVMIntSLT, LLVMIntSLE, LLVMIntSGT,
                                        LLVMIntSGE, LLVMIntEQ,  LLVMIntNE};
  if (real) return LLVMBuildFCmp(c->b, fp[op - OP_LT], a, b, "");
  return LLVMBuildICmp(c->b, ip[op - OP_LT], a, b, "");
}

static LLVMValueRef to_int(Cpu *c, LLVMValueRef x, bool from_bool, bool vec) {
  LLVMTypeRef t = vec ? cpu_vec(c, c->i32) : c->i32;
  if (from_bool) return LLVMBuildZExt(c->b, x, t, "");
  LLVMTypeRef over[2] = {t, LLVMTypeOf(x)}; // saturates, NaN gives 0: defined on every target
  return cpu_intrinsic(c, "llvm.fptosi.sat", over, 2, &x, 1);
}

static LLVMValueRef arithmetic(Cpu *c, Op op, bool real, LLVMValueRef *a) {
  LLVMBuilderRef b = c->b;
  switch (op) {
  case OP_NEG: return real ? LLVMBuildFNeg(b, a[0], "") : LLVMBuildNeg(b, a[0], "");
  case OP_ADD: return real ? LLVMBuildFAdd(b, a[0], a[1], "") : LLVMBuildAdd(b, a[0], a[1], "");
  case OP_SUB: return real ? LLVMBuildFSub(b, a[0], a[1], "") : LLVMBuildSub(b, a[0], a[1], "");
  case OP_MUL: return real ? LLVMBuildFMul(b, a[0], a[1], "") : LLVMBuildMul(b, a[0], a[1], "");
  case OP_DIV: return LLVMBuildFDiv(b, a[0], a[1], "");
  case OP_IDIV: return cpu_floor_div(c, a[0], a[1], false);
  case OP_MOD: return cpu_floor_div(c, a[0], a[1], true);
  case OP_MIN: return pick(c, false, real ? SC_REAL : SC_INT, a[0], a[1]);
  case OP_MAX: return pick(c, true, real ? SC_REAL : SC_INT, a[0], a[1]);
  case OP_FMA: return simple(c, "llvm.fma", a, 3);
  case OP_SQRT: return simple(c, "llvm.sqrt", a, 1);
  case OP_FLOOR: return simple(c, "llvm.floor", a, 1);
  case OP_ABS:
    if (real) return simple(c, "llvm.fabs", a, 1);
    LLVMTypeRef over = LLVMTypeOf(a[0]);
    return cpu_intrinsic(c, "llvm.abs", &over, 1, (LLVMValueRef[]){a[0], LLVMConstNull(c->i1)}, 2);
  case OP_AND: return LLVMBuildAnd(b, a[0], a[1], "");
  case OP_OR: return LLVMBuildOr(b, a[0], a[1], "");
  case OP_NOT: return LLVMBuildNot(b, a[0], "");
  default: BUG("operator %s has no instruction", op_info[op].name);
  }
}

static const char *libmvec_name(Op op) {
  switch (op) {
  case OP_EXP: return "exp";
  case OP_LOG: return "log";
  case OP_SIN: return "sin";
  case OP_COS: return "cos";
  case OP_TANH: return "tanh";
  case OP_ERF: return "erf";
  case OP_POW: return "pow";
  default: return NULL;
  }
}

Val cpu_op(Cpu *c, Id id, const Val *arg, LLVMValueRef active) {
  const Expr *e = ex(c->m, id);
  const char *name = libmvec_name(e->op);
  if (name) return call_vector(c, name, arg, e->narg, active);
  if (e->op == OP_RANDOM) return cpu_random(c, arg);
  bool vec = false, real = ex(c->m, ex_arg(c->m, id, 0))->type == SC_REAL;
  for (uint32_t i = 0; i < e->narg; i++) vec |= arg[i].vec;
  LLVMValueRef a[3];
  for (uint32_t i = 0; i < e->narg; i++) a[i] = vec ? cpu_splat(c, arg[i]) : arg[i].v;
  if (e->op >= OP_LT && e->op <= OP_NE) return (Val){compare(c, e->op, real, a[0], a[1]), vec};
  if (e->op == OP_WHERE)
    return (Val){LLVMBuildSelect(c->b, arg[0].vec ? a[0] : arg[0].v, a[1], a[2], ""), vec};
  bool from_bool = ex(c->m, ex_arg(c->m, id, 0))->type == SC_BOOL;
  if (e->op == OP_TO_INT) return (Val){to_int(c, a[0], from_bool, vec), vec};
  if (e->op == OP_TO_REAL) {
    LLVMTypeRef t = vec ? cpu_vec(c, c->real) : c->real;
    return (Val){
        from_bool ? LLVMBuildUIToFP(c->b, a[0], t, "") : LLVMBuildSIToFP(c->b, a[0], t, ""), vec};
  }
  return (Val){arithmetic(c, e->op, real, a), vec};
}

LLVMValueRef cpu_reduce(Cpu *c, Red r, Scalar type, LLVMValueRef acc, LLVMValueRef x) {
  if (r == RED_MAX || r == RED_MIN) return pick(c, r == RED_MAX, type, acc, x);
  return type == SC_REAL ? LLVMBuildFAdd(c->b, acc, x, "sum") : LLVMBuildAdd(c->b, acc, x, "sum");
}

// -0 is what sums start from: it is neutral to every real, -0 included. A sum over nothing cannot
// be.
LLVMValueRef cpu_identity(Cpu *c, Red r, Scalar type) {
  if (type == SC_INT) {
    int64_t v = r == RED_MAX || r == RED_ARGMAX ? INT32_MIN : r == RED_MIN ? INT32_MAX : 0;
    return LLVMConstInt(c->i32, (unsigned long long)v, true);
  }
  double v = r == RED_MAX || r == RED_ARGMAX ? -__builtin_inf()
             : r == RED_MIN                  ? __builtin_inf()
                                             : -0.0;
  return LLVMConstReal(c->real, v);
}
