#include "tests/emulated/emulated.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/link.h"
#include "codegen/target.h"

// Where the test runs under the address sanitizer, so do kernels.
static const char *sanitizer_flags(void) {
#ifdef __SANITIZE_ADDRESS__
  bool on = true;
#else
  bool on = getenv("DT_SANITIZE") != NULL;
#endif
  return on ? "-fsanitize=address -fsanitize-sections=dt_shared" : "";
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

static void call(void *lib, const char *name) {
  union {
    void *p;
    void (*f)(void);
  } symbol = {dlsym(lib, name)};
  CHECK(symbol.f);
  symbol.f();
}

static void open_device(void *lib, int64_t scratch) {
  union {
    void *p;
    void (*f)(int64_t);
  } symbol = {dlsym(lib, "dt_emulate_open")};
  CHECK(symbol.f);
  symbol.f(scratch);
}

void *emulated_load(const Plan *p, bool warnings, Buf *error) {
  Buf kernels = {0}, host = {0};
  KernelOptions ko = {.arch = str_intern(p->m->target->usual_arch), .emulate = true};
  char path[] = "/tmp/dtc-cuda-XXXXXX", keep[] = "/tmp/dtc-cuda-sources-XXXXXX";
  int fd = mkstemp(path);
  if (fd >= 0) close(fd);
  p->m->target->kernels(p, &ko, NULL, &kernels);
  leave_out(&kernels);
  if (getenv("DT_OFF_BY_ONE")) read_one_more(&kernels);
  host_c_test(p, &host);
  setenv("DT_EMULATE_FLAGS", str_printf("%s %s", sanitizer_flags(), warnings ? "-Werror" : "-w"), 1);
  LinkOptions lo = {.output = str_intern(path), .arch = ko.arch, .plan = p, .shared = true, .quick = true, .emulate = true};
  if (getenv("DT_KEEP")) lo.save_temps = mkdtemp(keep) ? str_intern(keep) : NULL; // else sources go
  bool ok = link_program(&lo, &host, &kernels);
  if (!ok && !error->n) buf_printf(error, "the CUDA program is not built: see above");
  void *lib = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (ok && !lib) buf_printf(error, "%s", dlerror());
  if (lib) open_device(lib, p->m->target->scratch(p));
  unlink(path);
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

void emulated_wait(void *lib) { call(lib, "dt_device_sync"); }
