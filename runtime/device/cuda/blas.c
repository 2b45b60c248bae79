#include "runtime/device/cuda/blas.h"

#include <dlfcn.h>
#include <stdio.h>

static void *open_library(void) {
  static const int version[] = {13, 12};
  for (size_t i = 0; i < sizeof version / sizeof *version; i++) {
    char name[32];
    snprintf(name, sizeof name, "libcublasLt.so.%d", version[i]);
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib) return lib;
  }
  return NULL;
}

const DtBlas *dt_blas_open(DtError *e) {
  static DtBlas blas;
  static const DtImport function[] = {
#define X(result, name, arguments) {#name, offsetof(DtBlas, name)},
      DT_BLAS(X)
#undef X
  };
  void *lib = open_library();
  if (!lib) {
    dt_fail(e, DT_EXIT_OS,
            "this program computes matrix products with cuBLASLt, and neither libcublasLt.so.13 nor libcublasLt.so.12 "
            "can be loaded: %s; put its folder into LD_LIBRARY_PATH",
            dlerror());
    return NULL;
  }
  const char *missing = dt_import(lib, function, sizeof function / sizeof *function, &blas);
  if (!missing) return &blas;
  dt_fail(e, DT_EXIT_OS, "libcublasLt.so has no %s: it is too old; that of CUDA 12.4 or newer is needed", missing);
  return NULL;
}
