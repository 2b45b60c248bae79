// Private to codegen/host*.c: the state of printing the emitted C file.
#ifndef DTC_HOST_H
#define DTC_HOST_H

#include "codegen/host/program.h"
#include "codegen/lower/plan.h"

// C identifiers taken so far in a scope.
typedef struct Names {
  Arena *arena;
  const struct Names *outer; // names of the enclosing scope are taken too
  VEC(Str) taken;
} Names;

typedef struct Host {
  const Plan *p;
  const Module *m;
  Arena *a;
  Buf *out;
  bool test; // every function takes parameters; no tables
  Names file; // identifiers at file scope
  Str *fn; // C name of each reached function
  bool *random; // for each function: it, or one that it calls, needs the key of random numbers
  bool *exchanges; // for each function: it, or one that it calls, has collectives
  // For each function and argument: an accumulator that its first kernel to touch it, a product,
  // writes whole. So it need not be zeros before: the function takes `beta`, 0 to store there and 1
  // to add.
  bool **stores;
  VEC(Id) order; // reached functions, callees first
  ParamLayout *params; // NULL in tests; of a pipeline: the stage's whose function is printed
  ParamLayout **stage; // of each stage
  DtProgram program; // its tables; of tests: none
} Host;

// A function being printed.
typedef struct HostFn {
  Host *h;
  Id id;
  const Fn *f;
  const FnPlan *fp;
  Entry entry; // what the program calls it as, or NENTRY. Of a chunk: STEP where it makes gradients, else EVAL
  const Chunk *chunk; // of a pipeline, or NULL
  uint32_t number; // the chunk's
  ChunkPart part;
  Names names;
  Id *storage; // for each value that owns a buffer: the value whose pointer it goes by (an alias's
               // argument)
  Str *name; // C name of each storage's pointer, or NULL
  bool *used; // the body names it
  // Of an entry: for each value, 1 + the number of the parameter that it is and that lies layer by
  // layer (grads: whose gradient it is), or 0. Only layers of it have a pointer.
  uint32_t *params, *grads;
  Str *ticket; // for each kernel of kind K_WAIT: the variable that holds its collective's ticket
  bool frame_used, key_used, beta_used;
  Buf body;
} HostFn;

// text.c: identifiers, literals, comments
void names_init(Names *n, Arena *a, const Names *outer);
Str names_new(Names *n, Str wanted); // a C identifier like `wanted` that is not taken, now taken
void names_take(Names *n,
                Str name); // a kernel's name, as it is; a BUG where it is no free identifier
void put_comment(Buf *b, const char *text,
                 size_t n); // the rest of a // comment: no control characters
void put_string(Buf *b, const char *text); // a string literal
// The same, each line of the text, or more than fits on a line, as a literal on a line with that indent.
void put_text(Buf *b, int indent, const char *text);
void put_real(Buf *b, double v); // a double literal
// `a, b, c`, broken after commas where a line would pass 100 columns, and before a piece that begins with LINE_BREAK.
enum { LINE_BREAK = '\v' };
void put_pieces(Buf *b, int indent, const Str *piece, uint32_t n);
// `head(arg, arg)tail`, broken after commas where a line would pass 100 columns.
void put_call(Buf *b, int indent, const char *head, const Str *arg, uint32_t n, const char *tail);
void put_bytes(Buf *b, double bytes); // "3.1 MB"
void put_source(const Module *m, Id loc, bool outermost, Buf *b); // "gpt2.dt:12"
// Lines of `text`, broken at spaces before column 100; `first` is before the first of them, `rest`
// before the others. Without the last line's end.
void put_wrapped(Buf *b, const char *first, const char *rest, const char *text);
const char *c_type(Dtype t);
const char *precision_name(const Module *m); // "fp32", "fp64", "bf16", "fp16"
extern const char *const host_type[NDTYPE]; // DtType of runtime/program.h; NULL where it has none

// decl.c: what stands above a function: its kernels and the shapes of its products
void host_kernels(Host *h, Id fn);
// The comment above a kernel: its source, bytes and operations, then its statements.
void put_kernel(const Module *m, const Fn *f, const Kernel *k, Buf *b);

// product.c: matrix products
void host_declare_product(Host *h, const Fn *f, const Kernel *k); // its DtGemm
// Its launch, plain(name, a, b, c, beta), biased(name, a, b, bias, c), or dt_matmul_then with `function`, which computes
// the function of the sums, or NULL: the library does.
void host_launch_product(HostFn *x, uint32_t kernel, const char *plain, const char *biased, Str function);

// store.c: accumulators that need not start as zeros
void host_find_stores(Host *h); // fills stores
bool host_takes_beta(const Host *h, Id fn);
bool host_kernel_stores(const Host *h, Id fn,
                        uint32_t kernel); // this product is the first to write such an argument

// fn.c: a function
Str host_buffer(HostFn *x, Id buffer); // the pointer to a buffer, by its name
Str host_plus(Str pointer, int64_t offset);
Str host_frame(HostFn *x, int64_t bytes); // that many bytes into the function's frame
Str host_pointer(HostFn *x, Id value); // to the value's first element
Str host_start(HostFn *x, Id value); // of a view too
void host_fn(Host *h, Id fn);
bool call_passes_result(const Plan *p, const Call *c,
                        uint32_t result); // the callee has a parameter for it

// coll.c: collectives
Str host_axis(const Module *m, uint32_t axis); // "DT_AXIS_TP"
Str host_trailing_arg(const Host *h, const Value *v); // where a rank's number or the loss's scale is; NULL: v is neither
void host_post(HostFn *x, uint32_t kernel, Str to, Str from);
void host_wait(HostFn *x, uint32_t kernel);

// entry.c: where an entry's arguments and results lie in a DtCall
Entry host_entry_of(const Host *h, Id fn);
void host_check_entry(const Host *h, Entry e); // its arguments are those that host_entry_arg gives
Str host_entry_arg(const Host *h, Entry e,
                   uint32_t arg); // a C expression; its type is the argument's pointer
Str host_entry_result(const Host *h, Entry e, uint32_t result);
Str host_scalar(const Host *h, const char *array, uint32_t i); // the address of a real among the call's scalars
int update_moments(const Fn *update); // arrays that the optimizer keeps for each parameter

// chunk.c: where a chunk's function finds what it receives, sends and keeps
bool host_chunk_of(const Host *h, Id fn, uint32_t *chunk, ChunkPart *part);
void host_chunk_begin(HostFn *x); // fills chunk, number, part and entry
Str host_chunk_arg(const HostFn *x, uint32_t arg);
Str host_chunk_result(const HostFn *x, uint32_t result);
uint32_t host_chunk_piece(const HostFn *x, uint32_t arg, bool *grad); // of the stage's layout, or NONE
bool chunk_reads_data(const Plan *p, uint32_t chunk, ChunkPart part);
void host_check_messages(const Host *h); // each chunk sends what the next one receives
void host_pipeline_names(Host *h); // takes the names of its tables

// layer.c: where the step finds its gradients, and a repeat the parameters and gradients of its layer
// The first kernel that touches a gradient outside layers; the number of kernels where none does;
// NONE in what makes no gradients.
uint32_t host_first_gradient(const HostFn *x);
void host_gradients_begin(HostFn *x);
void host_find_layered(HostFn *x); // fills params and grads
typedef struct LayerPtrs {
  Str *param, *grad; // for each stack: the pointer's name in the loop, or NULL
} LayerPtrs;
LayerPtrs host_layer_begin(HostFn *x, Names *loop, uint32_t stmt, Str iter);
void host_layer_end(HostFn *x, const LayerPtrs *l, Str iter);
// The model's number of a repeat's layer 0, which is not 0 in a pipeline's later chunks.
int64_t host_first_layer(const HostFn *x, const Call *c);
// The slice of a layered value; NULL where it is none.
Str host_layer_slice(const HostFn *x, const LayerPtrs *l, Id value);

// tables.c: the program's tables
void host_listing(Host *h); // of buffers
void host_tables(Host *h, Str arch, Str build_hash);

#endif
