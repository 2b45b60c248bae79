// Every file of cases/ is a module whose entry `step` must give what the interpreter gives, as it
// stands and simplified and normalised, on every vector length; its first line says how many
// kernels of loops it takes then. Simplified and normalised it must mean the same as it stands. A
// line `# edges` asks for arguments at which conversions to 16 bits may go wrong.
#include "tests/kernels/support/run.h"

#include "passes/passes.h"
#include "tests/oracle/oracle.h"

#include <dirent.h>
#include <stdlib.h>

static char *file_text(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  char *text = calloc(1, 1 << 20);
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  text[n] = 0;
  fclose(f);
  return text;
}

static bool supported(const char *arch) {
  __builtin_cpu_init();
  if (!strcmp(arch, "x86-64-v4"))
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  return strcmp(arch, "x86-64-v3") ||
         (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}

// The lowered module and the one that was written, in the interpreter.
static bool means_the_same(const char *name, const char *text, const Module *lowered) {
  const Module *m = kernels_parse(name, text);
  const ArgOptions args = {.seed = 5, .small = true};
  Activation want = activation_new(m, m->entry[ENTRY_STEP], &args),
             got = activation_new(lowered, lowered->entry[ENTRY_STEP], &args);
  Buf error = {0};
  bool ok =
      activation_run(&want, &(InterpOptions){.seed = 7, .scale = true, .unit = 0x1p-53}, &error) &&
      activation_run(&got, &(InterpOptions){.seed = 7}, &error) &&
      activation_same(&want, &got, 8, 0x1p-53, &error);
  if (!ok) fprintf(stderr, "%s: lowered it means something else: %s\n", name, error.text);
  activation_free(&want);
  activation_free(&got);
  return ok;
}

static int check(const char *name, const char *text) {
  static const char *const arch[] = {"native", "x86-64", "x86-64-v3", "x86-64-v4"};
  int want = -1, bad = 0;
  sscanf(text, "# kernels %d", &want);
  for (unsigned a = 0; a < 4; a++)
    for (int lowered = 0; lowered < 2 && supported(arch[a]); lowered++) {
      CheckOptions o = {.arch = arch[a], .seed = a + 4u * (unsigned)lowered,
                        .edges = strstr(text, "# edges") != NULL};
      Module *m = kernels_parse(name, text);
      if (!m) return 1;
      if (!lowered && strstr(text, " over "))
        continue; // normalise decides when storage may be taken over
      if (lowered && !(pass_simplify(m) && pass_normalise(m))) return 1;
      if (lowered && !a) bad += !means_the_same(name, text, m);
      int n = kernels_check_module(name, m, &o);
      if (n < 0) bad++, fprintf(stderr, "  on %s%s\n", arch[a], lowered ? ", lowered" : "");
      if (lowered && n >= 0 && n != want)
        bad++, fprintf(stderr, "%s: %d kernels, should be %d\n", name, n, want);
    }
  return bad;
}

int main(int argc, char **argv) {
  const char *dir = SOURCE_DIR "/tests/kernels/cases";
  int bad = 0, n = 0;
  DIR *d = opendir(dir);
  if (!d) return 1;
  for (struct dirent *e; (e = readdir(d));) {
    if (!strstr(e->d_name, ".ir") || (argc > 1 && !strstr(e->d_name, argv[1]))) continue;
    char *text = file_text(str_printf("%s/%s", dir, e->d_name));
    bad += check(e->d_name, text);
    n++;
    free(text);
  }
  closedir(d);
  fprintf(stderr, "%d modules, %d failures\n", n, bad);
  return bad != 0 || !n;
}
