#include "load.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

#include "codegen/target.h"
#include "ir/verify.h"
#include "passes/passes.h"

char *load_text(const char *path, int batch) {
  FILE *f = fopen(path, "rb");
  if (!f) return printf("%s: can't be read\n", path), NULL;
  Buf b = {0};
  for (int c; (c = getc(f)) != EOF;) {
    char ch = (char)c;
    if (c != '@' || !batch) {
      buf_write(&b, &ch, 1);
      continue;
    }
    int next = getc(f);
    if (next == 'B') buf_printf(&b, "%d", batch);
    else if (next >= '1' && next <= '9') buf_printf(&b, "%d", (next - '0') * batch);
    else buf_printf(&b, "@%c", next);
  }
  fclose(f);
  return b.text;
}

static bool verified(const Module *m, const char *path, const char *after) {
  Buf why = {0};
  bool ok = ir_verify(m, &why);
  if (!ok) printf("%s: after %s: %s\n", path, after, why.text);
  buf_free(&why);
  return ok;
}

void use_cpu(Module *m) { target_use(m, target_named("cpu")); }

Module *load_module(Arena *a, const char *path, const char *text) {
  Sources *s = sources_new(a);
  Module *m = ir_parse(a, s, str_intern(path), text, strlen(text));
  if (m) use_cpu(m);
  return m && verified(m, path, "parsing") ? m : NULL;
}

bool run_pass(Module *m, const char *pass, const char *path) {
  static const struct {
    const char *name;
    bool (*run)(Module *);
  } table[] = {{"inline", pass_inline},       {"batch", pass_batch},
               {"differentiate", pass_differentiate}, {"optimizer", pass_optimizer},
               {"precision", pass_precision}, {"shard", pass_shard}, {"localise", pass_localise},
               {"recompute", pass_recompute}, {"pipeline", pass_pipeline}, {"simplify", pass_simplify},
               {"normalise", pass_normalise}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].name, pass)) return table[i].run(m) && verified(m, path, pass);
  return printf("%s: no pass %s\n", path, pass), false;
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

int list_files(const char *dir, const char *tail, char name[][256], int max) {
  DIR *d = opendir(dir);
  int n = 0;
  if (!d) return printf("%s: no such folder\n", dir), 0;
  for (struct dirent *e; n < max && (e = readdir(d));) {
    size_t k = strlen(e->d_name), t = strlen(tail);
    if (k > t && k < 256 && !strcmp(e->d_name + k - t, tail)) strcpy(name[n++], e->d_name);
  }
  closedir(d);
  qsort(name, (size_t)n, 256, by_name);
  return n;
}

double rng_uniform(Rng *r) { // splitmix64
  uint64_t z = r->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

double rng_normal(Rng *r) {
  double u = 1 - rng_uniform(r), v = rng_uniform(r);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

Tensor *random_arg(const Module *m, const Fn *f, uint32_t at, Rng *r) {
  Tensor *t = tensor_like(&f->value.at[f->arg.at[at]]);
  int64_t lo = 0, hi = 2;
  for (uint32_t i = 0; i < m->range.n; i++)
    if (m->range.at[i].arg == at) lo = m->range.at[i].lo, hi = m->range.at[i].hi;
  for (int64_t i = 0; i < tensor_count(t); i++)
    if (scalar_of(t->type) == SC_REAL) t->real[i] = rng_normal(r);
    else t->integer[i] = (int32_t)(lo + (int64_t)(rng_uniform(r) * (double)(hi - lo)));
  return t;
}

bool run_fn(const Module *m, Id fn, Tensor *const *arg, Tensor **result, uint64_t *ways) {
  Buf error = {0};
  InterpOptions o = {.seed = 7, .step = 3, .ways = ways};
  bool ok = interp_run(m, fn, arg, result, &o, &error);
  if (!ok) printf("%s\n", error.text);
  buf_free(&error);
  return ok;
}
