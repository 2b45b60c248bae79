// Each barrier of the kernels that are printed for tests/cuda/programs is needed: without it some order of threads gives
// another result than the interpreter.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/codegen/support/harness.h"
#include "tests/emulated/emulated.h"

// harness_run without what it says.
static bool run_quietly(Module *m, Id f) {
  fflush(stdout);
  int out = dup(1), null = open("/dev/null", O_WRONLY);
  dup2(null, 1);
  bool ok = harness_run(m, f, false);
  fflush(stdout);
  dup2(out, 1);
  close(out);
  close(null);
  return ok;
}

static int check_function(Module *m, Id f, int *caught) {
  int missed = 0;
  emulated_left_out = -1;
  if (!harness_run(m, f, false)) return printf("%s differs as it is\n", m->fn.at[f].name), 1;
  for (int i = 0, n = emulated_barriers; i < n; i++) {
    emulated_left_out = i;
    if (!run_quietly(m, f)) ++*caught;
    else missed++, printf("%s: nothing differs without barrier %d\n", m->fn.at[f].name, i);
  }
  return missed;
}

int main(void) {
  static const char *const file[] = {"rows-in-blocks-and-warps", "classifier-in-place", "product-of-any-strides"};
  int missed = 0, caught = 0;
  if (system("command -v c++ >/dev/null")) return printf("no C++ compiler\n"), 77;
  harness_cuda = true;
  harness_limits = "join_points=32"; // few rows share a kernel, as many would
  for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
    Arena *a = arena_new();
    Module *m = harness_parse(a, str_printf(SOURCE_DIR "/tests/cuda/programs/%s.ir", file[i]));
    for (Id f = 0; m && f < m->fn.n; f++) missed += check_function(m, f, &caught);
    arena_free(a);
  }
  printf("%d barriers are needed, %d are not\n", caught, missed);
  return missed || caught < 6;
}
