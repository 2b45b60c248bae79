// Every function of tests/cuda/programs/*.ir and tests/codegen/programs/*.ir, printed as CUDA and run on the CPU in all
// orders of threads, gives what the interpreter gives.
#include <dirent.h>
#include <stdlib.h>

#include "tests/codegen/support/harness.h"

static bool run_file(const char *path) {
  Arena *a = arena_new();
  Module *m = harness_parse(a, path);
  bool ok = m;
  for (Id f = 0; m && f < m->fn.n; f++) {
    bool good = harness_run(m, f, false);
    if (!good) printf("%s: %s differs\n", path, m->fn.at[f].name);
    ok = ok && good;
  }
  arena_free(a);
  return ok;
}

static bool run_folder(const char *dir, int *n) {
  DIR *d = opendir(dir);
  bool ok = d;
  if (!d) printf("%s: no such folder\n", dir);
  for (struct dirent *e; d && (e = readdir(d));) {
    size_t k = strlen(e->d_name);
    if (k < 3 || strcmp(e->d_name + k - 3, ".ir")) continue;
    bool good = run_file(str_printf("%s/%s", dir, e->d_name));
    ok = ok && good;
    ++*n;
  }
  if (d) closedir(d);
  return ok;
}

int main(int argc, char **argv) {
  int n = 0;
  if (system("command -v c++ >/dev/null")) return printf("no C++ compiler\n"), 77;
  harness_cuda = true;
  if (argc > 1) return !run_file(argv[1]);
  bool ok = run_folder(SOURCE_DIR "/tests/cuda/programs", &n);
  ok = run_folder(SOURCE_DIR "/tests/codegen/programs", &n) && ok;
  printf("%d programs%s run as the interpreter does\n", n, ok ? "" : ", not all of which");
  return !ok || !n;
}
