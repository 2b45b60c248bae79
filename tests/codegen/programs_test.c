// Every function of programs/*.ir, compiled and run, gives what the interpreter gives: on small
// integers exactly. A file that begins with `# limits NAME=VALUE,..` is compiled with these.
#include <dirent.h>
#include <stdlib.h>

#include "support/harness.h"

// Sums and products of small integers are exact in any order.
static bool is_exact(const Module *m) {
  for (Id e = 0; e < m->expr.n; e++) {
    Op op = (Op)m->expr.at[e].op;
    if (op == OP_DIV || op == OP_POW ||
        (op_info[op].rule == RULE_REAL && op != OP_FLOOR && op != OP_FMA))
      return false;
  }
  return true;
}

static const char *limits_of(Arena *a, const char *path) {
  static const char word[] = "# limits ";
  char line[1000] = "";
  FILE *f = fopen(path, "r");
  if (f && !fgets(line, sizeof line, f)) *line = 0;
  if (f) fclose(f);
  line[strcspn(line, "\n")] = 0;
  return strncmp(line, word, strlen(word)) ? NULL : arena_printf(a, "%s", line + strlen(word));
}

static bool run_file(const char *path) {
  Arena *a = arena_new();
  Module *m = harness_parse(a, path);
  harness_limits = limits_of(a, path);
  bool ok = m;
  for (Id f = 0; m && f < m->fn.n; f++) {
    bool exact = !is_exact(m) || harness_run(m, f, true), close = harness_run(m, f, false);
    if (!exact || !close)
      printf("%s: %s differs on %s\n", path, m->fn.at[f].name, exact ? "reals" : "integers");
    ok = ok && exact && close;
  }
  arena_free(a);
  return ok;
}

int main(int argc, char **argv) {
  if (argc > 1) return !run_file(argv[1]);
  const char *dir = SOURCE_DIR "/tests/codegen/programs";
  DIR *d = opendir(dir);
  int bad = 0, n = 0;
  if (!d) return printf("%s: no such folder\n", dir), 1;
  for (struct dirent *e; (e = readdir(d));) {
    char path[4096];
    size_t k = strlen(e->d_name);
    if (k < 3 || strcmp(e->d_name + k - 3, ".ir")) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    bad += !run_file(path);
    n++;
  }
  closedir(d);
  printf("%d of %d programs run as the interpreter does\n", n - bad, n);
  return bad != 0;
}
