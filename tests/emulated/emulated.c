#include "tests/emulated/emulated.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/cuda/emit.h"

static bool write_text(Str path, const Buf *b) {
  FILE *f = fopen(path, "wb");
  return f && fwrite(b->text ? b->text : "", 1, b->n, f) == b->n && !fclose(f);
}

static bool command(Buf *error, Str text) {
  if (!system(text)) return true;
  buf_printf(error, "failed: %s", text);
  return false;
}

static const char *const kernel_flags =
    "-x c++ -std=c++17 -O0 -fPIC -ffp-contract=off -fno-exceptions -fno-rtti";

// Where the test runs under the address sanitizer, so do kernels.
static const char *sanitizer_flags(void) {
#ifdef __SANITIZE_ADDRESS__
  bool on = true;
#else
  bool on = getenv("DT_SANITIZE") != NULL;
#endif
  return on ? "-fsanitize=address -fsanitize-sections=dt_shared" : "";
}

static bool build(Str dir, bool warnings, Buf *error) {
  const char *sanitizer = sanitizer_flags();
  const char *warn = warnings ? "-Wall -Wextra -Werror -Wno-unknown-pragmas" : "-w";
  return command(error, str_printf("c++ %s %s %s -I %s -c %s/kernels.cu -o %s/kernels.o", kernel_flags, sanitizer, warn, SOURCE_DIR, dir, dir)) &&
         command(error, str_printf("cc -std=c17 -O0 -fPIC -w -I %s -include %s/runtime/device/cuda/emulate_launch.h "
                                   "-c %s/host.c -o %s/host.o", SOURCE_DIR, SOURCE_DIR, dir, dir)) &&
         command(error, str_printf("c++ -shared %s %s/kernels.o %s/host.o -o %s/lib.so", sanitizer, dir, dir, dir));
}

int emulated_left_out = -1, emulated_barriers;

static void leave_out(Buf *kernels) {
  emulated_barriers = 0;
  for (char *p = kernels->text; p && (p = strstr(p, "__sync")); p++)
    if (emulated_barriers++ == emulated_left_out) memset(p, ' ', strcspn(p, ";"));
}

// "i < 5000" becomes "i <= 5000": for a test that it is noticed.
static void read_one_more(Buf *kernels) {
  for (char *p = kernels->text; p && (p = strstr(p, "; i < ")); p++) memcpy(p, ";i <= ", 6);
}

void *emulated_load(const Plan *p, bool warnings, Buf *error) {
  Buf kernels = {0}, host = {0};
  char dir[] = "/tmp/dtc-cuda-XXXXXX";
  if (!mkdtemp(dir)) return buf_printf(error, "no folder in /tmp"), NULL;
  bool ok = cuda_kernels(p, &kernels, error);
  leave_out(&kernels);
  if (getenv("DT_OFF_BY_ONE")) read_one_more(&kernels);
  cuda_stubs(p, &kernels);
  host_c_test(p, &host);
  ok = ok && write_text(str_printf("%s/kernels.cu", dir), &kernels) && write_text(str_printf("%s/host.c", dir), &host) &&
       build(dir, warnings, error);
  void *lib = ok ? dlopen(str_printf("%s/lib.so", dir), RTLD_NOW | RTLD_LOCAL) : NULL;
  if (ok && !lib) buf_printf(error, "%s", dlerror());
  if (!getenv("DT_KEEP")) command(error, str_printf("rm -rf %s", dir)); // else it stays, to be looked at
  buf_free(&kernels);
  buf_free(&host);
  return lib;
}

void emulated_order(void *lib, int order) {
  union {
    void *p;
    void (*f)(int);
  } symbol = {dlsym(lib, "dt_emulate_order")};
  if (symbol.f) symbol.f(order);
}
