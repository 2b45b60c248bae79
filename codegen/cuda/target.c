#include "codegen/cuda/target.h"

#include "codegen/cuda/emit.h"
#include "codegen/lower/fuse.h"
#include "codegen/lower/lane.h"
#include "runtime/device.h"
#include "runtime/device/cuda/sizes.h"

static bool stores(Dtype t) { return t != DT_REAL; }

// A kernel computes products of strides that cuBLASLt does not take, with a bias at most. The library's product and the
// rest apart are better than both by a kernel.
static bool takes_product(const Module *m, const Fn *f, const GemmPlan *g) {
  GemmPlan alone = *g;
  alone.bias = alone.plus = alone.kept = NONE;
  alone.act = ACT_NONE;
  if (!product_types_fit(m, f, g)) return false;
  if (cuda_library_takes(f, &alone)) return cuda_library_takes(f, g);
  return g->plus == NONE && g->act == ACT_NONE;
}

bool cuda_uses_library(const Plan *p) {
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; i < p->fn[f].kernel.n; i++)
      if (cuda_by_library(&p->m->fn.at[f], &p->fn[f].kernel.at[i])) return true;
  return false;
}

enum { WORKSPACE = 32 << 20 }; // of cuBLASLt
static int64_t scratch_of(const Plan *p, const Fn *f, const Kernel *k) {
  if (k->kind == K_INTRINSIC) return cuda_attention_scratch(p->m, f, &f->stmt.at[k->stmt.at[0]]);
  return cuda_by_library(f, k) ? WORKSPACE : 0;
}

// Kernels run one after the other: they have one place in turn.
static int64_t scratch(const Plan *p) {
  int64_t most = 0;
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; i < p->fn[f].kernel.n; i++) {
      int64_t bytes = scratch_of(p, &p->m->fn.at[f], &p->fn[f].kernel.at[i]);
      if (bytes > most) most = bytes;
    }
  return most;
}

// Threads are shared out when a kernel is printed (codegen/cuda/schedule.c): nothing is cut into tiles or tasks here, and
// the lane index served to form groups alone.
static void schedule(Schedule *s) {
  for (uint32_t i = 0; i < s->loops->nest.n; i++) s->loops->nest.at[i].vec = NO_VAR;
}
static void tasks(const Module *m, Kernel *k) { (void)m, k->chunk = k->grid; }

static int64_t device(DtDeviceLimits *limits, const DtProgram *p) {
  *limits = (DtDeviceLimits){.map_bytes = DT_WINDOW, .squares_block = DT_SQUARES_BLOCK, .exchange = DT_EXCHANGE};
  return p->scratch_bytes + DT_NUMBERS_BYTES;
}

static void kernels(const Plan *p, const KernelOptions *o, Str form, Buf *out) {
  cuda_kernels(p, o->emulate && !form, out);
}

static const char *const forms[] = {"cuda", NULL};

const Target cuda_target = {
    .name = "cuda",
    .limits =
        {
#define X(name, value, least, most, meaning) .name = (value),
            COMPILER_LIMITS(X)
#undef X
            .loop_flops = 16,
            .slow_flops = 40,
            .byte_flops = 250,
            .sent_flops = 2000,
            .byte_points = 256,
            .byte_traffic = 1024,
            .cut_points = 1 << 16,
            .cut_results = 16,
            .cut_block = 128,
            .cut_block_most = 8192,
            .cut_partials = 1 << 17,
            .rows_points = 1 << 18,
            .rows_results = 1 << 16,
            .rows_block = 128,
            .join_points = 512,
            .product_side = 4,
            .product_sum = 4,
            .product_work = 4096,
            .product_loops = 4,
            .plus_first = 1,
            .plus_points = 0,
            .act_points = 0,
            .scan_extent = 64,
            .kernel_statements = 40,
            .nest_statements = 48,
            .nest_reductions = 4,
            .join_work = 4096,
            .join_elements = 64,
            .join_bytes = 1 << 20,
            .row_bytes = 64 << 10,
            .lanes = 16,
            .lane_tile = 1024,
            .reduce_tile = 128,
            .task_ns = 30000,
            .share_ns = 80000,
            .fill_elements = 1 << 16,
            .chain = 32,
            .team_points = 16,
            .shared_bytes = 48 << 10,
        },
    .alignment = 256, // as of what the driver allocates
    .stores = stores,
    .takes_product = takes_product,
    .takes_scan = scan_type_fits,
    .takes_intrinsic = cuda_takes_attention,
    .scratch = scratch,
    .lane_index = lane_best,
    .schedule = schedule,
    .tasks = tasks,
    .usual_arch = "sm_80,sm_90a,sm_100,sm_120",
    .knows_arch = cuda_known,
    .forms = forms,
    .refuses = cuda_refuses,
    .kernels = kernels,
    .include = "runtime/device/cuda/launch.h",
    .declare = cuda_declare,
    .launch = cuda_launch,
    .program = cuda_program,
    .device = device,
    .one_place = "a GPU",
    .places = "GPUs",
    .build = cuda_build,
};
