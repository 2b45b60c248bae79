// Every function of tests/codegen/programs/*.ir, printed as CUDA and run on the CPU in all orders of threads, gives what
// the interpreter gives.
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

int main(int argc, char **argv) {
  if (system("command -v c++ >/dev/null")) return printf("no C++ compiler\n"), 77;
  harness_cuda = true;
  if (argc > 1) return !run_file(argv[1]);
  const char *dir = SOURCE_DIR "/tests/codegen/programs";
  DIR *d = opendir(dir);
  int bad = 0, n = 0;
  if (!d) return printf("%s: no such folder\n", dir), 1;
  for (struct dirent *e; (e = readdir(d));) {
    size_t k = strlen(e->d_name);
    if (k < 3 || strcmp(e->d_name + k - 3, ".ir")) continue;
    bad += !run_file(str_printf("%s/%s", dir, e->d_name));
    n++;
  }
  closedir(d);
  printf("%d of %d programs run as the interpreter does\n", n - bad, n);
  return bad || !n;
}
