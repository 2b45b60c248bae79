// From statements to kernels: what fuse decides, plan places and the printers print.
#ifndef DTC_KERNEL_H
#define DTC_KERNEL_H

#include "ir/ir.h"
#include "runtime/program.h"

// Where an element of a value lies: buffer + offset + sum of subscript * stride, in elements. A view
// (a statement that only renames elements, such as q[b, t, h, e] = qkv[b, t, 0, h, e]) has the
// buffer of the value that it views, and no storage.
typedef struct Layout {
  Id buffer; // the value that owns the storage; itself where it is no view
  int64_t offset;
  int64_t stride[MAX_RANK];
  bool internal; // lives inside one kernel (registers, or a row on its stack): no storage in the frame
} Layout;

// Storage that is no view, row-major.
Layout layout_own(const Fn *f, Id v);

typedef enum KernelKind {
  K_LOOPS, // fused comprehensions, printed as loops
  K_GEMM, // one matrix product, handed to the library
  K_SCAN, // a running sum, handed to the runtime
  K_INTRINSIC, // a call of an intrinsic with a hand-written implementation
  K_CALL, // a call or repeat of a function with its own kernels
  K_COLL, // posts a collective
  K_WAIT // waits for one: its result may be read, its operand be overwritten
} KernelKind;

// A function that a product's kernel applies to the sum (codegen/lower/epilogue.c).
typedef enum GemmAct { ACT_NONE, ACT_GELU /* by tanh */, ACT_POINTWISE /* any other of the sum alone */, NACT } GemmAct;
enum { EPILOGUE_STMTS = 5 }; // the product, a bias, a residual, a copy of the sum and a function of it

// C = beta * C + A * B in strides, outer batch loops included; or C = act(A * B + bias + plus)
typedef struct GemmPlan {
  Id a, b, c; // values (views resolved to buffers by Layout)
  int64_t a_offset, b_offset, c_offset; // elements from the buffer's start
  int64_t m, n, k, a_row, a_col, b_row, b_col, c_row;
  uint32_t nbatch;
  struct { int64_t count, a, b, c; } batch[4];
  bool accumulate; // C += (beta 1)
  // Of a product of sizes m, n and k alone, whose C is tight. NONE: there is none
  Id bias; // one for each column
  Id plus; // one for each element of C, in its order
  Id kept; // where the sum is stored before `act`
  int64_t bias_offset, plus_offset;
  bool plus_first; // added before the bias
  GemmAct act;
} GemmPlan;

// y (= | +=) running sums of x
typedef struct ScanDim {
  int64_t count, x, y;
} ScanDim;
typedef struct ScanPlan {
  Id from, to; // buffers of x and y
  int64_t from_offset, to_offset;
  ScanDim along, column, loop[7];
  uint32_t nloop;
  bool reverse, exclusive, add;
} ScanPlan;

// A buffer that a K_LOOPS kernel writes and one that it reads, of equal size, which may share storage if
// nothing reads `in` after this kernel: at each grid point, every read of in's elements there comes
// before (or is in the same lane as) the write of out's, and no grid point touches another's.
typedef struct InPlace {
  Id out, in;
} InPlace;

typedef struct Kernel {
  KernelKind kind;
  Str name; // unique in the module, made of what it computes: "blocks_ln1_fwd"
  VEC(Id) stmt; // positions in Fn.stmt, in order
  // K_LOOPS: buffers it touches in memory, in order of first appearance: the kernel's arguments
  VEC(Id) arg;
  VEC(bool) written; // for each arg
  bool random; // uses (seed, step): one more argument, a pointer to uint64_t[2], comes last
  int64_t grid, chunk; // independent points, and how many make one task (Target.tasks; a function of sizes only)
  double bytes, flops;
  GemmPlan gemm; // K_GEMM
  ScanPlan scan; // K_SCAN
  // K_LOOPS: how the statements run. A kernel without statements fills the buffer `fill` with zeros
  // (an accumulator whose first += does not write every element once); else fill is NONE.
  struct Loops *loops; // nest.h
  Id fill;
  VEC(InPlace) inplace;
  uint32_t wait; // K_COLL: position of its K_WAIT among the function's kernels; both have its statement
} Kernel;

// Whether emitted code has something by the kernel's name.
static inline bool kernel_is_named(const Kernel *k) {
  return k->kind == K_LOOPS || k->kind == K_GEMM || k->kind == K_SCAN || k->kind == K_INTRINSIC;
}

enum { ADDRESS_BITS = 48 }; // of all that a process can address

typedef struct FnPlan {
  Id fn;
  Layout *layout; // for each value
  VEC(Kernel) kernel; // in execution order
  // plan: bytes from the frame's start for each value that owns a local buffer, else -1
  int64_t *address;
  int64_t *callee_frame; // for each kernel of kind K_CALL: where the callee's frame starts; K_INTRINSIC: what it drops
  int64_t frame_bytes;
  int64_t frame_bound; // the largest sum of bytes that are alive at one time: no places need less
} FnPlan;

// Where a parameter lies in a region, in elements: codegen/host/param_layout.c
typedef struct ParamPlace {
  uint32_t stack; // ParamLayout.stack, or NONE
  int64_t offset; // from the region's start; in a stack, from the layer's
  int64_t count; // of this rank, all layers
} ParamPlace;
typedef struct StackPlace {
  Str name; // "blocks"
  int64_t count; // layers
  int64_t offset, stride; // layer l's parameters are [offset + l * stride, offset + (l + 1) * stride)
  Id by; // statement of the step: the repeat that makes their gradients
  int64_t first; // the model's number of layer 0
  uint32_t chunk; // of a pipeline
} StackPlace;
typedef struct ParamLayout {
  uint32_t n;
  Piece *piece; // what each is: all of each Module.param, or what a stage's chunks hold, chunk by chunk
  uint32_t *chunk; // of each, in a pipeline
  ParamPlace *param; // for each
  VEC(StackPlace) stack; // after all parameters that are in none
  int64_t count; // of a region
} ParamLayout;
ParamLayout *param_layout(const Module *m);
ParamLayout *param_layout_stage(const Module *m, uint32_t stage); // of a pipeline
// Where the step first uses Module.param[param]: a stack's, where it is run; 0 if that is unknown.
Id param_use(const Module *m, Id param);
// The accumulator of its gradient, or NULL.
const Value *param_gradient(const Module *m, const ParamLayout *l, uint32_t param);

// Bytes of the largest frame that a rank needs: of a pipeline's stage, or of a program without one. And the bytes that any
// plan of the same kernels needs: FnPlan.frame_bound.
typedef struct FrameBytes {
  int64_t bytes, bound;
} FrameBytes;
struct Plan;
FrameBytes largest_frame(const struct Plan *p, uint32_t stage);

// Of a pipeline's chunks (codegen/host/chunk.c): for how long a value that means KEPT `of` is kept, which `maker`
// computes; bytes kept with a microbatch for so long; bytes that a part sends; and the time that a function takes,
// roughly (at least 1).
DtSpan chunk_span(const Module *m, uint32_t chunk, ChunkPart maker, uint32_t of);
int64_t chunk_slot_bytes(const Module *m, uint32_t chunk, DtSpan span);
int64_t chunk_sent_bytes(const Module *m, uint32_t chunk, ChunkPart part);
int64_t chunk_cost(const struct Plan *p, Id fn);
// The time of one kernel that is no call, roughly: in operations of matrix products.
double kernel_cost(const struct Plan *p, const Kernel *k);
// The name of a chunk's message, "activations x", and where it is computed, or NULL; NULL: nothing.
Str chunk_message(const Module *m, uint32_t chunk, ChunkPart part, Str *source);

// What the options say of data parallelism; runtime/program.h has the same fields.
typedef struct ZeroOptions {
  int stage, group; // group 0: all ranks
  bool each, once; // --accumulate each, --gather once
  bool bf16; // --reduce-dtype bf16
  int offload; // --offload: DtProgram.offload
} ZeroOptions;

// What has been decided: kernels; where collectives are waited for; addresses.
typedef enum PlanLevel { LEVEL_FUSE, LEVEL_OVERLAP, LEVEL_PLAN, NLEVEL } PlanLevel;
extern const char *const level_name[NLEVEL]; // "fuse" "overlap" "plan": the last pass that was run

// The lowered level: Module.lowered.
typedef struct Plan {
  Module *m;
  PlanLevel level;
  FnPlan *fn; // for each Module.fn; kernel.n is 0 for functions that entries never reach
  bool *reached;
  ZeroOptions zero;
  int in_flight; // microbatches under way at once; 0: 1
} Plan;

// The passes of the lowered level, in order; each leaves its result in Module.lowered and changes nothing else of the
// module. False after a message.
bool pass_fuse(Module *m); // statements become kernels: views, matrix products, groups. Requires normalise
bool pass_overlap(Module *m); // waits for collectives, and what runs before them
bool pass_plan(Module *m); // address, callee_frame and frame_bytes
// All three.
Plan *plan_lower(Module *m);
// True if the statement is a matrix product that the target's library takes, and worth it; fills *g.
bool match_gemm(const Module *m, const Fn *f, const Layout *layout, const Stmt *s, GemmPlan *g);
// Whether statements are a product, whose plan alone *g is, and what its kernel computes from the sum; fills in the rest
// of *g. stored: the sum before the function, or its copy, is in memory; NONE: the copy, if there is one.
bool match_epilogue(const Module *m, const Fn *f, const Layout *l, const Id *stmt, uint32_t n, Id stored, GemmPlan *g);
// Whether the value is a sum that the product's kernel stores nowhere, or some of it; its layout is in C.
bool is_unstored_sum(const Module *m, const Fn *f, const Layout *l, const Kernel *k, Id value);
// For targets that ask no more of a product's types, Target.takes_product: all are the type that is computed in; or
// operands are of one 16-bit type, the result of that or float, and so are bias, residual and the kept sum, or of any
// 16-bit type.
bool product_types_fit(const Module *m, const Fn *f, const GemmPlan *g);
// And of a running sum's, Target.takes_scan: ints, or the type that is computed in.
bool scan_type_fits(const Module *m, Dtype t);
// True if the statement is a call of an intrinsic that the target has an implementation of; otherwise its body is
// compiled as any function's. Costs of one call, if cost is not NULL.
typedef struct Cost {
  double bytes, flops;
} Cost;
bool match_intrinsic(const Module *m, const Fn *f, const Stmt *s, Cost *cost);
// The plan as text, for --emit kernels.
void plan_print(const Plan *p, Buf *out);

// codegen/host/host.c: the emitted C file, defining `const DtProgram dt_program` (runtime/program.h).
void host_c(const Plan *p, Str arch, Str build_hash, Buf *out);
// For tests, a C file that defines for each reached function F (a Module.fn Id)
//     void dt_test_F(void *const *arg, void *const *result, char *frame, const uint64_t *key);
// arg[i], result[i]: the storage of Fn.arg[i], Fn.result[i], row-major in the value's type (a result that
// Fn.alias ties to an argument ignores result[i]); frame: FnPlan.frame_bytes, aligned to 64; key: (seed, step) of
// random numbers. Compile with -std=c17 -I<include of runtime>, link with the object and libdtc_rt.a.
void host_c_test(const Plan *p, Buf *out);

#endif
