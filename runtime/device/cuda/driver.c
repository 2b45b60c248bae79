#include "runtime/device/cuda/driver.h"

#include <dlfcn.h>

const DtDriver *dt_driver_open(DtError *e) {
  static DtDriver driver;
  static const struct {
    const char *name;
    size_t at;
  } function[] = {
#define X(name, arguments) {#name, offsetof(DtDriver, name)},
      DT_DRIVER(X)
#undef X
  };
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    dt_fail(e, DT_EXIT_OS, "this program runs on an NVIDIA GPU, and its driver is not there: %s", dlerror());
    return NULL;
  }
  for (size_t i = 0; i < sizeof function / sizeof *function; i++) {
    void **to = (void **)(void *)((char *)&driver + function[i].at);
    *to = dlsym(lib, function[i].name);
    if (*to) continue;
    dt_fail(e, DT_EXIT_OS, "NVIDIA's driver is too old: libcuda.so.1 has no %s; CUDA %d.%d or newer is needed",
            function[i].name, DT_DRIVER_VERSION / 1000, DT_DRIVER_VERSION % 1000 / 10);
    return NULL;
  }
  return &driver;
}
