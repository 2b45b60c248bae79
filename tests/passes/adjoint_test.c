// For every program of tests/passes/adjoint: the gradients of the step function that differentiate
// makes are those of tangents and of central finite differences of the loss before any pass, all
// run by the interpreter; the loss is unchanged.
#include <math.h>
#include <stdlib.h>

#include "support/load.h"
#include "tests/oracle/oracle.h"

enum { MAX_ARGS = 32, PROBES = 24, PATH = 8192 };

static bool loss_at(const Module *m, Tensor **arg, double *loss, uint64_t *ways) {
  Tensor *result[16];
  const Fn *f = &m->fn.at[m->entry[ENTRY_LOSS]];
  if (!run_fn(m, m->entry[ENTRY_LOSS], arg, result, ways)) return false;
  *loss = result[0]->real[0];
  for (uint32_t r = 0; r < f->result.n; r++) tensor_free(result[r]);
  return true;
}

// The largest error over some elements of one argument, relative to the gradient's largest element.
static bool probe(const Module *m, Tensor **arg, uint32_t at, const Tensor *grad, Rng *rng,
                  double *worst) {
  double scale = 1e-3, h = 1e-5;
  for (int64_t i = 0; i < tensor_count(grad); i++) scale = fmax(scale, fabs(grad->real[i]));
  for (int k = 0; k < PROBES && k < tensor_count(grad); k++) {
    int64_t i =
        tensor_count(grad) <= PROBES ? k : (int64_t)(rng_uniform(rng) * (double)tensor_count(grad));
    double keep = arg[at]->real[i], up, down;
    uint64_t ways[2] = {0, 0};
    arg[at]->real[i] = keep + h;
    if (!loss_at(m, arg, &up, &ways[0])) return false;
    arg[at]->real[i] = keep - h;
    if (!loss_at(m, arg, &down, &ways[1])) return false;
    arg[at]->real[i] = keep;
    if (ways[0] != ways[1]) continue; // a kink lies between
    double error = fabs((up - down) / (2 * h) - grad->real[i]) / scale;
    if (!(error <= *worst)) *worst = error;
  }
  return true;
}

// The gradients, which come after the loss's arguments in those of the step.
static bool tangents(const Module *m, Tensor **arg, const char *path) {
  const Fn *f = &m->fn.at[m->entry[ENTRY_LOSS]];
  Tensor *gradient[2 * MAX_ARGS] = {0};
  for (uint32_t p = 0; p < m->param.n; p++) gradient[m->ndata + p] = arg[f->arg.n + p];
  InterpOptions io = {.seed = 7, .step = 3};
  Buf error = {0};
  FiniteResult r = tangent_compare(m, m->entry[ENTRY_LOSS], arg, gradient, &io, 1, NULL, &error);
  if (r != FINITE_SAME) printf("%s: %s\n", path, error.text);
  buf_free(&error);
  return r == FINITE_SAME;
}

static bool compare(const Module *m, const Module *step, const char *path) {
  Rng rng = {.state = 12345};
  Tensor *arg[2 * MAX_ARGS], *result[16];
  const Fn *f = &m->fn.at[m->entry[ENTRY_LOSS]], *g = &step->fn.at[step->entry[ENTRY_STEP]];
  for (uint32_t i = 0; i < f->arg.n; i++) arg[i] = random_arg(m, f, i, &rng);
  for (uint32_t i = f->arg.n; i < g->arg.n; i++) arg[i] = tensor_like(&g->value.at[g->arg.at[i]]);
  double loss, worst = 0;
  InterpOptions bounds = {.seed = 7, .step = 3, .scale = true, .unit = 0x1p-53};
  if (!loss_at(m, arg, &loss, NULL) ||
      !interp_run(step, step->entry[ENTRY_STEP], arg, result, &bounds, NULL))
    return false;
  bool same = loss == result[0]->real[0];
  if (!same) printf("%s: the loss became %.17g, it was %.17g\n", path, result[0]->real[0], loss);
  for (uint32_t r = 0; r < g->result.n; r++) tensor_free(result[r]);
  if (!tangents(m, arg, path)) return false;
  for (uint32_t p = 0; p < m->param.n; p++)
    if (!probe(m, arg, m->ndata + p, arg[f->arg.n + p], &rng, &worst)) return false;
  for (uint32_t i = 0; i < g->arg.n; i++) tensor_free(arg[i]);
  bool ok = same && worst < 1e-6;
  printf("%-4s %-60s error %.1e\n", ok ? "ok" : "FAIL", path, worst);
  return ok;
}

static bool check(const char *path) {
  Arena *a = arena_new();
  char *text = load_text(path, 0);
  Module *m = text ? load_module(a, path, text) : NULL,
         *step = m ? load_module(a, path, text) : NULL;
  bool ok = step && run_pass(step, "inline", path) &&
            run_pass(step, "differentiate", path) && compare(m, step, path);
  free(text);
  arena_free(a);
  return ok;
}

int main(int argc, char **argv) {
  static char name[256][256];
  const char *dir = argc > 1 ? argv[1] : SOURCE_DIR "/tests/passes/adjoint";
  int n = list_files(dir, ".ir", name, 256), bad = 0;
  for (int i = 0; i < n; i++) {
    char path[PATH];
    snprintf(path, sizeof path, "%.4000s/%.255s", dir, name[i]);
    if (!check(path)) bad++;
  }
  printf("%d of %d programs failed\n", bad, n);
  return bad || !n;
}
