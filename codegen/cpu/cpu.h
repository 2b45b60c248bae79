// Private to codegen/cpu: the state of printing kernels through LLVM's C API.
//
// Every kernel of loops is `void NAME(void *const *arg, int64_t begin, int64_t end)` (runtime/base/parallel.h), where
// arg[i] points to the start of the buffer Kernel.arg[i] (its first element), and [begin, end) is a part of [0, grid).
#ifndef DTC_CPU_H
#define DTC_CPU_H

#include "codegen/lower/affine.h"
#include "codegen/lower/nest.h"

#include <llvm-c/Core.h>

// A value of an expression: one scalar, or one for each lane of the nest's vector variable. Bools
// are i1, ints i32, reals Module.compute.
typedef struct Val {
  LLVMValueRef v;
  bool vec;
} Val;

enum { MAX_LEVEL = 40, MAX_COPY = 8 };

// An open loop (or a branch: phi NULL). Values that do not change inside it are emitted before `before`,
// the branch into it.
typedef struct Level {
  LLVMValueRef before, phi, hi;
  int64_t step;
  LLVMBasicBlockRef body, exit;
} Level;

// What an expression evaluated to, kept while `level` loops around it stay open. Those of `copy` -1
// do not differ between unrolled copies.
typedef struct Memo {
  Id expr;
  const NestStmt *ns; // expressions name indices by their position in a statement
  bool sub; // as a subscript (64 bits)
  LLVMValueRef guard;
  int level, copy;
  Val val;
} Memo;

typedef struct VarState {
  LLVMValueRef at; // i64: its value; of the vector variable: that of lane 0 (see Cpu.vbase)
  int level; // loops that must be open for it
} VarState;

typedef struct Cpu {
  const Plan *plan;
  Module *m;
  LLVMContextRef ll;
  LLVMModuleRef mod;
  LLVMBuilderRef b;
  LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr, real;
  Str arch;
  int width; // lanes: vector bits / bits of a compute real
  char isa; // libmvec's: b (SSE), d (AVX2), e (AVX-512)

  // of the kernel
  const Fn *f;
  const FnPlan *fp;
  const Kernel *k;
  const Loops *l;
  LLVMValueRef fn, key; // key: pointer to (seed, step)
  LLVMBasicBlockRef entry; // for allocas
  LLVMValueRef *base; // for each value that owns storage: its first element's address
  VarState var[MAX_VAR];
  int depth;
  Level level[MAX_LEVEL];
  bool *made; // values that this kernel writes: reads of them stay inside the grid's loop
  int grid_level;

  // of the nest
  const Stmt *s;
  const NestStmt *ns;
  uint8_t vec; // the vector variable, or NO_VAR
  int copy; // which unrolled copy is being emitted
  LLVMValueRef vbase[MAX_COPY]; // the vector variable in lane 0 of each copy
  LLVMValueRef vmask[MAX_COPY]; // lanes that exist, or NULL: all
  VEC(Memo) memo;
  Val *now; // for each value: what a statement of this nest made, at this point (v NULL: nothing)
} Cpu;

// Guards: i1, scalar or vector; v NULL means true.
typedef struct Guard {
  Val c;
  int level;
} Guard;

// types.c: types, constants, conversions between scalars and lanes
LLVMTypeRef cpu_type(Cpu *c, Scalar s);
LLVMTypeRef cpu_storage(Cpu *c, Dtype t);
LLVMTypeRef cpu_vec(Cpu *c, LLVMTypeRef scalar);
LLVMValueRef cpu_i64(Cpu *c, int64_t v);
LLVMValueRef cpu_splat(Cpu *c, Val v); // as lanes
LLVMValueRef cpu_iota(Cpu *c, LLVMTypeRef scalar); // 0, 1, 2, ...
LLVMValueRef cpu_intrinsic(Cpu *c, const char *name, LLVMTypeRef *over, unsigned nover,
                           LLVMValueRef *arg, unsigned narg);
LLVMValueRef cpu_alloca(Cpu *c, LLVMTypeRef t, int64_t count, const char *name);
Val cpu_round(Cpu *c, Val v, Dtype t); // to a storage type and back

// half.c: 16-bit reals, scalars or lanes; `t` is DT_BF16 or DT_F16, `v` of type Cpu.real or i16
LLVMValueRef cpu_half_load(Cpu *c, Dtype t, LLVMValueRef v); // from 16 bits
LLVMValueRef cpu_half_round(Cpu *c, Dtype t, LLVMValueRef v); // to the nearest that t holds
LLVMValueRef cpu_half_store(Cpu *c, Dtype t, LLVMValueRef v); // the 16 bits of a rounded v

// math.c: operators
Val cpu_op(Cpu *c, Id e, const Val *arg, LLVMValueRef active);
Val cpu_random(Cpu *c, const Val *arg);
LLVMValueRef cpu_floor_div(Cpu *c, LLVMValueRef a, LLVMValueRef d, bool mod);
LLVMValueRef cpu_reduce(Cpu *c, Red r, Scalar type, LLVMValueRef acc, LLVMValueRef x);
LLVMValueRef cpu_identity(Cpu *c, Red r, Scalar type);

// expr.c: expressions, at the innermost loop they depend on
Val cpu_expr(Cpu *c, Id e, Guard g);
Val cpu_subscript(Cpu *c, Id e, Guard g); // 64 bits
int cpu_level(Cpu *c, Id e);
void cpu_memo_drop(Cpu *c, int level); // forgets what lies at this level and deeper
LLVMValueRef cpu_mask(Cpu *c, Guard g); // tail and guard together as lanes, or NULL: all

int cpu_need(Cpu *c, Id e, Guard g); // the level that e under g can be emitted at
LLVMBasicBlockRef cpu_at(Cpu *c, int level); // emits there until cpu_back
void cpu_back(Cpu *c, LLVMBasicBlockRef block);
bool cpu_on_vec(Cpu *c, Id e); // differs between lanes, or between unrolled copies
bool cpu_unsafe(Cpu *c, Id e); // may read out of range where its guard is false

// access.c: reads and stores
Val cpu_read(Cpu *c, Id read, Guard g);
Val cpu_read_lhs(Cpu *c);
void cpu_store(Cpu *c, Val v);
// Neighbouring elements from that of the vector variable on, of the copy at hand.
Val cpu_load_at(Cpu *c, LLVMValueRef base, Dtype t);
void cpu_store_at(Cpu *c, LLVMValueRef base, Dtype t, Val v);

// nest.c: loops
void cpu_loop_open(Cpu *c, LLVMValueRef lo, LLVMValueRef hi, int64_t step, bool maybe_empty,
                   const char *name);
void cpu_loop_close(Cpu *c);
void cpu_branch_open(Cpu *c, LLVMValueRef cond, const char *name);
void cpu_branch_close(Cpu *c);
void cpu_nest(Cpu *c, const Nest *n);

// vector.c: passes over the vector variable. `body` emits `ncopy` copies; vbase and vmask say
// which.
typedef void VecBody(Cpu *c, int ncopy, void *ctx);
// Where the variable runs for long, `chain` (NULL: no need) is called before and after every
// Limits.chain rounds.
typedef void VecChain(Cpu *c, bool begin, void *ctx);
void cpu_lanes(Cpu *c, int unroll, VecBody *body, VecChain *chain, void *ctx);
void cpu_lanes_between(Cpu *c, LLVMValueRef lo, LLVMValueRef hi, VecBody *body, void *ctx); // no copies

// reduce.c: a nest with a reduction
int cpu_width(const Module *m, Str arch); // lanes of a compute real
void cpu_reduce_nest(Cpu *c, const Nest *n);

// kernel.c
void cpu_kernel(Cpu *c, const FnPlan *fp, const Kernel *k);
void cpu_kernel_open(Cpu *c, const FnPlan *fp, const Kernel *k); // its function, empty

// epilogue.c: a product's function of its sums
void cpu_epilogue(Cpu *c, const FnPlan *fp, const Kernel *k);

#endif
