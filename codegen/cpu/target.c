#include "codegen/cpu/target.h"
#include "codegen/lower/lane.h"
#include "runtime/device.h"

static bool stores(Dtype t) { return t != DT_REAL; }

static int64_t device(DtDeviceLimits *limits, const DtProgram *p) {
  *limits = *dt_device_limits();
  return dt_device_work_bytes(p, 1);
}

static const char *const forms[] = {"llvm", "asm", NULL};

const Target cpu_target = {
    .name = "cpu",
    .limits =
        {
#define X(name, value, least, most, meaning) .name = (value),
            COMPILER_LIMITS(X)
#undef X
            .loop_flops = 4,
            .slow_flops = 10,
            .byte_flops = 10,
            .sent_flops = 100,
            .byte_points = 256,
            .byte_traffic = 1024,
            .cut_points = 1 << 16,
            .cut_results = 16,
            .cut_block = 128,
            .cut_block_most = 8192,
            .cut_partials = 1 << 17,
            .rows_points = 1 << 18,
            .rows_results = 2048,
            .rows_block = 32,
            .join_points = 32,
            .product_side = 4,
            .product_sum = 4,
            .product_work = 4096,
            .product_loops = 4,
            // Never: gelu and the residual after it take 0.6% of a step of GPT-2 124M in fp32 (B=4, T=256) and 1.4% in bf16,
            // of which their arithmetic stays.
            .plus_first = 0,
            .plus_points = MOST_LIMIT,
            .act_points = MOST_LIMIT,
            .scan_extent = 64,
            .kernel_statements = 40,
            .nest_statements = 48,
            .nest_reductions = 4,
            .join_work = 4096,
            .join_elements = 64,
            .join_bytes = 1 << 20,
            .row_bytes = 64 << 10,
            .lanes = 16, // of AVX-512 and float, so that kernels are the same for all processors
            .lane_tile = 1024,
            .reduce_tile = 128,
            .task_ns = 30000,
            .share_ns = 80000,
            .fill_elements = 1 << 16,
            .chain = 32,
            .team_points = 16,
            .shared_bytes = 48 << 10,
        },
    .alignment = 64, // a cache line, and the longest vector
    .stores = stores,
    .takes_product = product_types_fit,
    .takes_scan = scan_type_fits,
    .takes_intrinsic = cpu_takes_attention,
    .scratch = cpu_scratch,
    .lane_index = lane_best,
    .schedule = cpu_schedule,
    .tasks = cpu_tasks,
    .order = cpu_order,
    .usual_arch = "native",
    .knows_arch = cpu_known,
    .forms = forms,
    .kernels = cpu_kernels,
    .include = "runtime/device/cpu/launch.h",
    .declare = cpu_declare,
    .launch = cpu_launch,
    .program = cpu_program,
    .device = device,
    .one_place = "the CPU",
    .places = "the CPU",
    .build = cpu_build,
};
