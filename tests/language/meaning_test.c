// What the language means: each file of tests/language/meaning writes the same thing in two ways,
// and its loss is the distance between them. It is run on random data and parameters; it has to be
// zero.
#include <dirent.h>
#include <math.h>
#include <stdlib.h>

#include "frontend/frontend.h"
#include "ir/interp/interp.h"
#include "ir/verify.h"

static uint64_t state;

static double uniform(void) { // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static Tensor *random_tensor(const Value *v) {
  Tensor *t = tensor_like(v);
  for (int64_t i = 0; i < tensor_count(t); i++)
    if (t->real) t->real[i] = 4 * uniform() - 2;
    else t->integer[i] = (int32_t)(3 * uniform());
  return t;
}

static bool run(Module *m, double *loss, Buf *error) {
  const Fn *f = entry_fn(m, ENTRY_EVAL_LOSS);
  Tensor *arg[256], *result[64];
  for (uint32_t i = 0; i < f->arg.n; i++) arg[i] = random_tensor(&f->value.at[f->arg.at[i]]);
  InterpOptions o = {.seed = 1, .step = 1};
  bool ok = interp_run(m, m->entry[ENTRY_EVAL_LOSS], arg, result, &o, error);
  if (ok) *loss = result[0]->real[0];
  for (uint32_t i = 0; ok && i < f->result.n; i++) tensor_free(result[i]);
  for (uint32_t i = 0; i < f->arg.n; i++) tensor_free(arg[i]);
  return ok;
}

static bool check(const char *path) {
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  FrontendOptions o = {.path = str_intern(path), .stdlib = SOURCE_DIR "/stdlib"};
  Module *m = frontend_compile(a, s, &o);
  Buf why = {0};
  double loss = 0;
  bool ok = m && ir_verify(m, &why);
  for (int i = 0; ok && i < 3; i++) ok = run(m, &loss, &why) && fabs(loss) < 1e-20;
  if (!ok) printf("FAIL %s: loss %g %s\n", path, loss, why.text ? why.text : "");
  buf_free(&why);
  arena_free(a);
  return ok;
}

int main(void) {
  static const char dir[] = SOURCE_DIR "/tests/language/meaning";
  DIR *d = opendir(dir);
  int n = 0, failed = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    char path[4096];
    if (!strstr(e->d_name, ".dt")) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    state = 1;
    n++;
    failed += !check(path);
  }
  if (d) closedir(d);
  printf("%d programs, %d failed\n", n, failed);
  return n == 0 || failed;
}
