#include "runtime/device/cuda/nccl.h"

#include <dlfcn.h>

const DtNccl *dt_nccl_open(DtError *e) {
  static DtNccl nccl;
  static const DtImport function[] = {
#define X(result, name, arguments) {#name, offsetof(DtNccl, name)},
      DT_NCCL(X)
#undef X
  };
  void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    dt_fail(e, DT_EXIT_OS,
            "several ranks on GPUs exchange data by NCCL, and libnccl.so.2 cannot be loaded: %s; put its folder into "
            "LD_LIBRARY_PATH",
            dlerror());
    return NULL;
  }
  const char *missing = dt_import(lib, function, sizeof function / sizeof *function, &nccl);
  if (!missing) return &nccl;
  dt_fail(e, DT_EXIT_OS, "NCCL is too old: libnccl.so.2 has no %s; %d.%d or newer is needed", missing, DT_NCCL_VERSION / 10000,
          DT_NCCL_VERSION % 10000 / 100);
  return NULL;
}
