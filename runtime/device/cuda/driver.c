#include "runtime/device/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

const char *dt_import(void *library, const DtImport *function, size_t n, void *to) {
  for (size_t i = 0; i < n; i++) {
    void *found = dlsym(library, function[i].name);
    if (!found) return function[i].name;
    memcpy((char *)to + function[i].at, &found, sizeof found);
  }
  return NULL;
}

const bool dt_driver_on_host = false;

const DtDriver *dt_driver_open(DtError *e) {
  static DtDriver driver;
  static const DtImport function[] = {
#define X(name, arguments) {#name, offsetof(DtDriver, name)},
      DT_DRIVER(X)
#undef X
  };
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    dt_fail(e, DT_EXIT_OS, "this program runs on an NVIDIA GPU, and its driver is not there: %s", dlerror());
    return NULL;
  }
  const char *missing = dt_import(lib, function, sizeof function / sizeof *function, &driver);
  if (!missing) return &driver;
  dt_fail(e, DT_EXIT_OS, "NVIDIA's driver is too old: libcuda.so.1 has no %s; CUDA %d.%d or newer is needed", missing,
          DT_DRIVER_VERSION / 1000, DT_DRIVER_VERSION % 1000 / 10);
  return NULL;
}
