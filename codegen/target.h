// Where a target plugs in: all that differs between kinds of processors. Groups, layouts and the memory plan are the
// same code for all of them; passes/ and codegen/lower/ read the module's limits, call the functions here, and name no
// target. A target is a folder of codegen/ and a row in codegen/target.c.
#ifndef DTC_TARGET_H
#define DTC_TARGET_H

#include "codegen/lower/nest.h"

struct Fuse; // codegen/lower/fuse.h
struct Group;
struct Host; // codegen/host/host.h
struct HostFn;
struct LinkOptions; // codegen/link.h
struct DtProgram; // runtime/program.h
struct DtDeviceLimits; // runtime/device.h

// A group on its way to a kernel. Its nests stand in `loops`: who is in which, in which order, and neighbouring loops
// that count row-major are one. The target decides how points and loops are shared out.
typedef struct Schedule {
  const struct Fuse *u;
  const struct Group *g;
  Loops *loops; // ngrid is not set yet
  uint8_t grid[MAX_INDEX]; // variables of the grid, outermost first
  uint32_t ngrid;
} Schedule;

// The order in which a sum adds up, a function of sizes alone: never of the number of threads, nor of the kernel that
// the statement is in.
//
// Neighbouring bound indices that the statement uses row-major, as one range, are one. The terms along the lanes' index,
// where that is a bound one, are cut into blocks of `lanes`. Term i of block b goes to lane i of accumulator
// b % accumulators, in the order of blocks; lanes that a last, shorter block lacks add nothing. Other bound indices run
// outside of it, row-major. In the end accumulators are added up in pairs, (0, 1), (2, 3), the sums of these in pairs
// again, until one is left; then lanes by halves, the upper half to the lower. Where no bound index runs along lanes,
// there is one accumulator of one lane.
//
// A chain of additions is kept short. A loop outside of the lanes of more than `chain` rounds adds up each `chain` rounds
// (the last ones fewer) by themselves, in as many accumulators, which are then added to those outside, each to its own.
// So do the rounds of all accumulators along the lanes, where there are more than 2 * chain of them.
typedef struct ReductionOrder {
  int64_t lanes, accumulators, chain;
} ReductionOrder;

// How kernels are printed.
typedef struct KernelOptions {
  Str arch; // a processor, as --arch says it
  int optimise; // 0 to 3
  bool emulate; // a GPU's kernels: to run on the CPU
} KernelOptions;

typedef struct Target {
  const char *name; // as --target says it
  Limits limits; // of the modules that are compiled for it, where nothing lowers them
  int64_t alignment; // bytes: all storage in a frame begins at a multiple of it (a power of two)

  // ---- what it computes

  // Whether values may lie in memory in this type. A model whose precision needs another is refused.
  bool (*stores)(Dtype t);
  // Whether its library computes this product of f, in the types of its operands and with its bias; loops do otherwise.
  bool (*takes_product)(const Module *m, const Fn *f, const GemmPlan *g);
  // Whether it has a running sum over elements of this type.
  bool (*takes_scan)(const Module *m, Dtype t);
  // Whether a hand-written implementation computes this call of an intrinsic, whose operands (Operand of ir/intrinsic.h)
  // are these values of f, or NONE; its body is compiled otherwise. Gradients that it makes it may store: they have
  // nothing in them that it would add to.
  bool (*takes_intrinsic)(const Module *m, const Fn *f, const Stmt *call, const Id *value);
  // Bytes of scratch memory that any of the program's products or intrinsics asks for at once (of a thread, where threads
  // have their own): DtProgram.scratch_bytes.
  int64_t (*scratch)(const Plan *p);

  // ---- the schedule of a group

  // The index of a statement whose points lie side by side in a vector or in neighbouring threads, or NO_VAR: a function
  // of the statement alone, so that a reduction's order does not depend on its kernel. Groups are formed so that all
  // their statements keep theirs.
  uint8_t (*lane_index)(const struct Fuse *u, const Stmt *s);
  // Chooses what is left: Nest.vec of pointwise nests, and which variable of the grid is cut into tiles (the last of
  // `grid`, and its tile). Where there are tiles, values between nests have no rows. Nests of reductions have their vec
  // from lane_index.
  void (*schedule)(Schedule *s);
  // How many points of a finished kernel make one task: what one thread or one block of threads computes. Sets chunk.
  void (*tasks)(const Module *m, Kernel *k);
  // The order of a nest's reductions, if `along` terms lie along its lanes' index and that is a bound one; else of 1.
  // NULL: the order is another one (of teams of threads, say), which no test repeats.
  ReductionOrder (*order)(const Module *m, Str arch, int64_t along);

  // ---- printing

  const char *usual_arch; // --arch, where none is given
  bool (*knows_arch)(Str arch);
  const char *const *forms; // as which --emit can show its kernels; ends with NULL
  // Why some kernel of the program cannot be launched, or NULL. NULL: the target launches all.
  Str (*refuses)(const Plan *p);
  // All kernels of loops: as one of `forms`, or (NULL) as `build` takes them.
  void (*kernels)(const Plan *p, const KernelOptions *o, Str form, Buf *out);
  const char *include; // the header of the runtime whose functions `launch` calls
  // Prints, above the function that launches it, the declaration of a kernel (no call, no collective) or the shape that
  // its launch needs.
  void (*declare)(struct Host *h, Id fn, const Kernel *k);
  // The launch of such a kernel, in the emitted function.
  void (*launch)(struct HostFn *x, uint32_t kernel);
  // Fills the fields of DtProgram that say what the program needs of a processor.
  void (*program)(struct DtProgram *to, const Plan *p, Str arch);
  // As its runtime says it (runtime/device.h): the limits of a device, by which regions are planned, and the bytes that
  // kernels need besides them (dt_device_work_bytes, with one thread of the host).
  int64_t (*device)(struct DtDeviceLimits *limits, const struct DtProgram *p);
  const char *one_place, *places; // for reports, where one rank runs and where several do: "a GPU", "GPUs"

  // ---- the program

  // Makes o->output of train.c, which lies in the folder `dir`, and of what `kernels` printed. With o->save_temps it
  // leaves there all that a person needs to make the program again, with a Makefile. False after a message.
  bool (*build)(const struct LinkOptions *o, Str dir, const Buf *kernels);
} Target;

const Target *target_named(const char *name); // NULL: there is none
const Target *target_with_form(const char *form); // the first with such a form of its kernels, or NULL
void target_names(Buf *out); // "cpu or cuda": all names, with commas
// The module is compiled for the target, within its limits.
void target_use(Module *m, const Target *t);

#endif
