// GPUs that kernels can be compiled for, as nvcc names them.
#include "codegen/cuda/target.h"
#include "runtime/program.h"

static const char *const known[] = {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103",
                                    "sm_103a", "sm_120", "sm_120a", "sm_121", "sm_121a"};

bool cuda_known(Str archs) {
  for (const char *p = archs;; p++) {
    size_t n = strcspn(p, ",");
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= strlen(known[i]) == n && !strncmp(known[i], p, n);
    if (!found) return false;
    p += n;
    if (!*p) return true;
  }
}

void cuda_program(DtProgram *p, const Plan *plan, Str archs) {
  p->device_features = archs;
  p->device_products = cuda_uses_library(plan);
}

void cuda_gencode(Str archs, Buf *out) {
  for (const char *p = archs; p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
    int n = (int)strcspn(p, ",") - 3; // behind "sm_"
    buf_printf(out, " -gencode arch=compute_%.*s,code=sm_%.*s", n, p + 3, n, p + 3);
  }
}
