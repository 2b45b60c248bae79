// Private to codegen/cuda: the state of printing kernels as CUDA C++.
#ifndef DTC_CUDA_H
#define DTC_CUDA_H

#include "codegen/cuda/emit.h"
#include "codegen/host/host.h"
#include "codegen/lower/affine.h"
#include "codegen/lower/nest.h"

// Who computes a point of the kernel's grid. Its threads share the point's loops; a thread has the same positions
// of a row in all nests, so that what a nest makes for a later one can stay in registers.
typedef enum Team {
  TEAM_THREAD, // one thread
  TEAM_WARP, // the lanes of a warp; several warps are a block
  TEAM_BLOCK, // a block
  TEAM_COLUMN, // threads of equal threadIdx.x: 32 neighbouring points are a block
  TEAM_SCATTER // a block, for all points of one place in the loops (scatter.c)
} Team;

// A function of the kernel's sizes alone: the tree of a reduction follows from it.
typedef struct Schedule {
  Team team;
  int threads; // of a team, a power of two
  int teams; // of a block
  int64_t points; // of the grid; tiles, which are the processor's, do not count
  int64_t blocks;
  int width; // of a team that is a thread: neighbouring points that it takes at once
} Schedule;

// How a team runs a nest.
typedef enum Run {
  RUN_ALL, // each thread runs all of it: it has no loops, or the team is one thread
  RUN_FIRST, // the first thread alone runs all of it
  RUN_SPREAD, // free points go round the threads
  RUN_FOLD // bound points go round the threads, whose results are folded; free loops are run in turn
} Run;

// Where a value that the kernel computes is found by later nests.
typedef enum Keep {
  KEEP_NOT, // in memory
  KEEP_SCALAR, // in a register of each thread
  KEEP_OWN // each thread has the elements of its positions in registers
} Keep;

enum { WARP = 32, TILE = 16 /* side of a product's block */, MOST_THREADS = 1024, MOST_OWN = 32 };

// An element's number as a linear form of the kernel's variables; `rest` are parts that are none.
typedef struct Form {
  int64_t base, coef[MAX_VAR];
  Affine rest;
} Form;

typedef struct Shared {
  Id expr;
  Str name;
} Shared;

// Elements of a buffer that the kernel only reads, at the positions of the threads: read by one nest, they stay in
// registers for the others.
typedef struct Cached {
  Id value;
  Form form; // in nest
  uint32_t nest; // that reads them
  bool again; // a later nest needs them
  Str name; // of the array
} Cached;

// Neighbouring elements that a thread loads, or stores, at once, in a nest of s.width points.
enum { MOST_WHEN = 3 };
typedef struct Packed {
  Id value, read; // NONE: what `ns` writes
  const NestStmt *ns;
  const Stmt *st;
  Form form; // in ns
  bool written, loaded; // what is written is loaded where it is added to
  Id cond[MOST_WHEN]; // loaded if all of these are as `is` says
  bool is[MOST_WHEN];
  uint32_t nwhen;
  Str name;
} Packed;

typedef struct Cuda {
  const Plan *plan;
  const Module *m;
  Arena *a;
  Buf *out;
  const char *real; // type of arithmetic: "float", "double"
  Names file;

  // of the kernel
  const Fn *f;
  const FnPlan *fp;
  const Kernel *k;
  const Loops *l;
  Schedule s;
  Run *run; // for each nest
  Keep *keep; // for each value
  bool *row; // for each value: it is inside, and lies in shared memory (a thread's own, if it is the team)
  const NestStmt **writer; // for each value: the only statement of the kernel that writes it, or NULL
  uint32_t *writer_nest;
  VEC(Cached) cached;
  bool *rebased; // for each value that owns storage: its pointer was moved to the grid point
  Names names, inner; // of the kernel; of the nest's loops
  Str var[MAX_VAR], *pointer, *kept; // kept: the register's, or the array's, name
  Str first; // condition that holds in the team's first thread; NULL: in every thread
  Str place; // number of the thread in its team
  int indent, base; // base: of what stands outside of all nests

  // of the statement
  uint32_t nest;
  const NestStmt *ns;
  const Stmt *st;
  Str *now; // for each value: what a statement of this nest made, at this point
  VEC(Packed) packed; // of the nest
  uint8_t moving; // the variable of its neighbouring points
  int width; // how many of them are moved at once
  Str part; // number of the point among them, inside of their loop; NULL outside
  Str own; // number of the thread's position, in a nest that has arrays in registers; NULL in others
  VEC(Shared) shared; // subexpressions that have names
} Cuda;

// schedule.c
void cuda_schedule(Cuda *c); // fills s, run, keep, row, writer
int64_t cuda_extents(const Cuda *c, const uint8_t *loop, uint32_t n); // their product
// The loops of a nest that go round the team's threads.
const uint8_t *cuda_spread(const Cuda *c, uint32_t nest, uint32_t *n);
// Neighbouring positions that a thread has of a nest's row, 1 to 8: a function of the loops' extents.
int cuda_each(const Cuda *c, uint32_t nest);
int64_t cuda_positions(const Cuda *c, uint32_t nest); // of a thread, at most
bool cuda_is_kept(const Cuda *c, uint32_t nest, const NestStmt *ns, Id read); // the read is of a register
// The registers that hold what is read; NULL: none do.
const Cached *cuda_find_cached(const Cuda *c, uint32_t nest, const NestStmt *ns, Id read);
bool cuda_is_inside(const Cuda *c, const Stmt *s, Id read); // at every point of the statement
int64_t cuda_row_elements(const Cuda *c, Id value);
Form cuda_form_read(const Cuda *c, const NestStmt *ns, Id read);
Form cuda_form_lhs(const Cuda *c, const NestStmt *ns);
// Both are the same element, read and written by the same thread.
bool cuda_same_place(const Cuda *c, uint32_t nest_a, const Form *a, uint32_t nest_b, const Form *b);
// Whether two buffers may have one place: they are one, or the one was laid over the other.
bool cuda_overlaps(const Cuda *c, Id a, Id b);
// Why the team must wait before this nest, "x is complete", or NULL. `since`: the first nest after the last wait,
// whose reads are over as well where `read`.
Str cuda_must_wait(const Cuda *c, uint32_t nest, uint32_t since, bool read);

// vector.c
// Neighbouring points that a thread of the kernel takes at once, as its team is a thread; 1: points are taken one by one.
int cuda_width(Cuda *c);
int64_t cuda_alignment(const Cuda *c, Id buffer); // bytes, at most 16, that its place is a multiple of
int cuda_fill_width(const Cuda *c, Id value); // elements that a thread may set at once
// The vector that has what is read (NONE: what the statement writes) at this point, or NULL.
Packed *cuda_find_packed(const Cuda *c, Id read);
struct Decls;
const Packed *cuda_packed_like(const Cuda *c, Id value, const Form *f); // the vector that has these elements, or NULL
// Prints loads and the loop over `width` neighbouring points along the variable, or its end and the stores. Returns the
// variable's name outside. pack: nothing else runs inside, so that vectors are loaded before.
Str cuda_open_packed(Cuda *c, const Nest *n, struct Decls *d, uint8_t moving, int width, bool pack);
void cuda_close_packed(Cuda *c, struct Decls *d, Str outer);

// scatter.c
// Whether the kernel is a sum into rows that other values name; fills s if it is.
bool cuda_is_scatter(Cuda *c);
void cuda_scatter(Cuda *c); // its body

// expr.c
const char *cuda_type(const Cuda *c, Dtype t); // of storage
const char *cuda_scalar(const Cuda *c, Scalar s);
Str cuda_expr(Cuda *c, Id e, int precedence); // of the context, 0: any
Str cuda_times(Str v, int64_t by); // "v * 3"; v of precedence *
Str cuda_element(Cuda *c, Id value, const Form *f); // "x[i]"
Str cuda_local_offset(Cuda *c, const Form *f); // what loops add to an element's number
Str cuda_load(Cuda *c, Id value, Str element);
Str cuda_round(Cuda *c, Str v, Dtype t); // to storage's type and back; v any expression
Str cuda_stored(Cuda *c, Str v, Dtype t); // converted to be stored
Str cuda_real(const Cuda *c, double v);
Str cuda_sum_of(Cuda *c, Scalar type, Str a, Str b);
void cuda_name_shared(Cuda *c); // declares what the statement's body needs twice
bool cuda_is_narrow(const Cuda *c, Dtype t);

// nest.c
void cuda_nest(Cuda *c, uint32_t nest);
void cuda_line(Cuda *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cuda_open(Cuda *c, const char *fmt, ...) __attribute__((format(printf, 2, 3))); // and indents
void cuda_close(Cuda *c);
Str cuda_name(Cuda *c, Str wanted); // of this kernel, not taken
Str cuda_var_name(const Cuda *c, uint8_t var); // that its variable should have
// Constants that are declared above the text that uses them, and only where it does.
typedef struct Decls {
  Str type, name[MAX_INDEX + 1], value[MAX_INDEX + 1];
  uint32_t n;
  Buf *outer; // where they are printed
  Buf body; // the text
} Decls;
void cuda_begin_decls(Cuda *c, Decls *d, Str type);
void cuda_decl(Cuda *c, Decls *d, Str name, Str value);
void cuda_end_decls(Cuda *c, Decls *d, int indent);

// kernel.c: a fused kernel, and what every kernel has
void cuda_loops(Cuda *c);
// The buffers that a kernel takes, in order; after them comes the key of random numbers, or a product's beta.
enum { MOST_BUFFERS = 512 };
uint32_t cuda_buffers(const Cuda *c, Id *buffer, bool *written);
void cuda_signature(Cuda *c, int threads, const Str *name); // name: of each buffer's argument; NULL: the values'
// Blocks of x by y threads.
typedef struct CudaLaunch {
  int64_t blocks;
  int x, y;
} CudaLaunch;
CudaLaunch cuda_launch_of(const Cuda *c);
void cuda_put_launch(Cuda *c); // ": <<<96, dim3(32, 8)>>>", the end of a comment

// product.c, scan.c, attention.c
void cuda_product(Cuda *c);
void cuda_scan(Cuda *c);
void cuda_attention(Cuda *c);

#endif
