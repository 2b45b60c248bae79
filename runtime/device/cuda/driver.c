#include "runtime/device/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

int dt_import(const DtLibrary *l, void *to, DtError *e) {
  const char *file = l->file[0];
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library && l->file[1]) library = dlopen(file = l->file[1], RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return dt_fail(e, DT_EXIT_OS, "%s: %s; put its folder into LD_LIBRARY_PATH if it is installed elsewhere", l->absent, dlerror());
  for (size_t k = 0; k < l->functions; k++) {
    void *found = dlsym(library, l->function[k]);
    if (!found)
      return dt_fail(e, DT_EXIT_OS, "%s is too old: %s has no %s; %s %d.%d or newer is needed", l->name, file,
                     l->function[k], l->release, l->major, l->minor);
    memcpy((char *)to + k * sizeof found, &found, sizeof found);
  }
  return 0;
}

const bool dt_driver_on_host = false;

const DtDriver *dt_driver_open(DtError *e) {
  static DtDriver driver;
#define X(name, arguments) #name,
  static const char *const function[] = {DT_DRIVER(X)};
#undef X
  static const DtLibrary library = {"NVIDIA's driver",
                                    "this program runs on an NVIDIA GPU, and its driver is not there",
                                    {"libcuda.so.1"},
                                    "CUDA",
                                    DT_DRIVER_VERSION / 1000,
                                    DT_DRIVER_VERSION % 1000 / 10,
                                    function,
                                    sizeof function / sizeof *function};
  return dt_import(&library, &driver, e) ? NULL : &driver;
}
