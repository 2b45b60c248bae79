// Sums add up in the order that the target states (ReductionOrder of codegen/target.h), to the last bit: for every kind
// of processor that this machine can run, along lanes and across them, of few terms and of many. And they add up alike in
// every kernel.
#include <stdlib.h>

#include "codegen/target.h"
#include "ir/text/text.h"
#include "support/harness.h"

enum { MOST_LANES = 64, MOST_ACC = 16 };

// sum(i<outer, j<n: x[i, j] * w[j]), which no loop can merge; `lanes`: n runs along lanes.
typedef struct Case {
  int64_t outer, n;
  bool lanes;
} Case;

static const Case cases[] = {
    {1, 2, true},     {1, 5, true},    {1, 16, true},   {1, 17, true},    {1, 63, true},    {1, 64, true},
    {1, 100, true},   {1, 700, true},  {1, 4095, true}, {1, 4096, true},  {1, 4160, true},  {1, 5000, true},
    {1, 9001, true},  {3, 40, true},   {70, 40, true},  {33, 2100, true}, {1, 3, false},    {1, 32, false},
    {1, 33, false},   {1, 64, false},  {1, 100, false},
};
enum { NCASE = sizeof cases / sizeof *cases };

// ---- as it is stated

// In the type of the program: every operation is rounded to it.
typedef struct Sum {
  const Case *c;
  ReductionOrder o;
  bool f64;
  const double *x, *w;
} Sum;

typedef double Acc[MOST_ACC][MOST_LANES];

static double rounded(const Sum *s, double v) { return s->f64 ? v : (double)(float)v; }

static void start(Acc a) {
  for (int i = 0; i < MOST_ACC; i++)
    for (int l = 0; l < MOST_LANES; l++) a[i][l] = -0.0;
}

static void add_all(const Sum *s, Acc to, Acc from) {
  for (int i = 0; i < s->o.accumulators; i++)
    for (int l = 0; l < s->o.lanes; l++) to[i][l] = rounded(s, to[i][l] + from[i][l]);
}

// Terms [from, to) of a row, of which block 0 goes to accumulator 0.
static void add_terms(const Sum *s, Acc a, int64_t row, int64_t from, int64_t to) {
  for (int64_t t = from; t < to; t++) {
    int64_t block = (t - from) / s->o.lanes;
    double *acc = &a[block % s->o.accumulators][(t - from) % s->o.lanes];
    *acc = rounded(s, *acc + rounded(s, s->x[row * s->c->n + t] * s->w[t]));
  }
}

static void add_row(const Sum *s, Acc a, int64_t row) {
  int64_t round = s->o.lanes * s->o.accumulators, rounds = s->c->n / round;
  bool chains = s->c->lanes && rounds > 2 * s->o.chain;
  for (int64_t r = 0, n; r < rounds; r += n) {
    Acc chain;
    start(chain);
    n = chains ? s->o.chain : rounds;
    if (n > rounds - r) n = rounds - r;
    add_terms(s, chains ? chain : a, row, r * round, (r + n) * round);
    if (chains) add_all(s, a, chain);
  }
  add_terms(s, a, row, rounds * round, s->c->n);
}

// Rounds of a loop outside of the lanes: rows of terms along lanes, or else single terms.
static void add_round(const Sum *s, Acc a, int64_t i) {
  if (s->c->lanes) add_row(s, a, i);
  else add_terms(s, a, 0, i, i + 1);
}

static double stated(const Sum *s) {
  Acc a, chain;
  int64_t rounds = s->c->lanes ? s->c->outer : s->c->n;
  bool chains = rounds > s->o.chain;
  start(a);
  for (int64_t i = 0; i < rounds; i++) {
    if (i % s->o.chain == 0) start(chain);
    add_round(s, chains ? chain : a, i);
    if (chains && (i + 1 == rounds || (i + 1) % s->o.chain == 0)) add_all(s, a, chain);
  }
  for (int64_t n = s->o.accumulators; n > 1; n = (n + 1) / 2)
    for (int64_t i = 0; i < (n + 1) / 2; i++)
      for (int l = 0; l < s->o.lanes; l++)
        a[i][l] = 2 * i + 1 < n ? rounded(s, a[2 * i][l] + a[2 * i + 1][l]) : a[2 * i][l];
  for (int64_t half = s->o.lanes / 2; half; half /= 2)
    for (int l = 0; l < half; l++) a[0][l] = rounded(s, a[0][l] + a[0][l + half]);
  return a[0][0];
}

// ---- as it is compiled

// Along lanes there is one result; across them each lane has one.
static int results(const Case *c) { return c->lanes ? 1 : 8; }

static Module *program(Arena *a, bool f64) {
  Buf b = {0};
  const char *t = f64 ? "f64" : "f32";
  Sources *s = sources_new(a);
  s->out = stdout;
  buf_printf(&b, "module t\ncompute %s\nfunc f(", t);
  for (int i = 0; i < NCASE; i++) {
    const Case *c = &cases[i];
    buf_printf(&b, c->lanes ? "%sx%d: %s[%lld, %lld], w%d: %s[%lld]" : "%sx%d: %s[%lld, %lld, 8], w%d: %s[%lld]",
               i ? ", " : "", i, t, (long long)c->outer, (long long)c->n, i, t, (long long)c->n);
  }
  buf_printf(&b, ") -> (");
  for (int i = 0; i < NCASE; i++) buf_printf(&b, "%sy%d: %s[%d]", i ? ", " : "", i, t, results(&cases[i]));
  buf_printf(&b, ") {\n");
  for (int i = 0; i < NCASE; i++) {
    const Case *c = &cases[i];
    buf_printf(&b, "  y%d[r<%d] = sum(i<%lld, j<%lld: x%d[i, j%s] * w%d[j])\n", i, results(c), (long long)c->outer,
               (long long)c->n, i, c->lanes ? "" : ", r", i);
  }
  buf_printf(&b, "}\n");
  Module *m = ir_parse(a, s, str_intern("sums"), b.text, b.n);
  if (!m) exit(1);
  target_use(m, target_named("cpu"));
  m->entry[ENTRY_STEP] = 0;
  return m;
}

// How many terms of statement `stmt` lie along lanes: 1 where no bound index does.
static int64_t along(const FnPlan *fp, Id stmt) {
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    const Loops *l = fp->kernel.at[i].loops;
    for (uint32_t j = 0; l && j < l->nest.n; j++)
      for (uint32_t k = 0; k < l->nest.at[j].stmt.n; k++) {
        const NestStmt *ns = &l->nest.at[j].stmt.at[k];
        if (ns->stmt != stmt) continue;
        uint32_t index = nest_index_of(ns, l->nest.at[j].vec);
        return index == NONE || index == 0 ? 1 : l->var.at[l->nest.at[j].vec].extent;
      }
  }
  return -1;
}

static double draw(uint64_t *state, bool f64) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  double v = (double)(int64_t)*state * 0x1p-62;
  return f64 ? v : (double)(float)v;
}

static double *numbers(int64_t n, bool f64, uint64_t *state, void **storage) {
  double *v = malloc((size_t)n * sizeof *v);
  *storage = aligned_alloc(64, (size_t)(n + 16) * 8 / 64 * 64 + 64);
  for (int64_t i = 0; i < n; i++) {
    v[i] = draw(state, f64);
    if (f64) ((double *)*storage)[i] = v[i];
    else ((float *)*storage)[i] = (float)v[i];
  }
  return v;
}

static bool check(Str arch, bool f64) {
  Arena *a = arena_new();
  Module *m = program(a, f64);
  Plan *p = plan_lower(m);
  TestFn *run = harness_build(p, 0, arch);
  double *x[NCASE], *w[NCASE];
  void *in[2 * NCASE], *out[NCASE];
  uint64_t state = 7;
  bool ok = run;
  for (int i = 0; i < NCASE; i++) {
    const Case *c = &cases[i];
    x[i] = numbers(c->outer * c->n * results(c), f64, &state, &in[2 * i]);
    w[i] = numbers(c->n, f64, &state, &in[2 * i + 1]);
    out[i] = calloc(8, 8);
  }
  char *frame = aligned_alloc(64, (size_t)p->fn[0].frame_bytes + 64);
  if (run) run(in, out, frame, (const uint64_t[2]){0, 0});
  for (int i = 0; ok && i < NCASE; i++) {
    const Case *c = &cases[i];
    int64_t n = along(&p->fn[0], (Id)i);
    if (n != (c->lanes ? c->n : 1)) ok = printf("case %d: %lld terms along lanes\n", i, (long long)n) < 0;
    for (int r = 0; ok && r < results(c); r++) {
      double column[4096];
      for (int64_t k = 0; !c->lanes && k < c->n; k++) column[k] = x[i][k * 8 + r];
      Sum s = {c, m->target->order(m, arch, n), f64, c->lanes ? x[i] : column, w[i]};
      double got = f64 ? ((double *)out[i])[r] : (double)((float *)out[i])[r], want = stated(&s);
      if (got != want)
        ok = printf("%s, %s: a sum of %lld x %lld terms is %.17g, in the stated order %.17g\n", arch,
                    f64 ? "fp64" : "fp32", (long long)c->outer, (long long)c->n, got, want) < 0;
    }
  }
  for (int i = 0; i < NCASE; i++) free(x[i]), free(w[i]), free(in[2 * i]), free(in[2 * i + 1]), free(out[i]);
  free(frame);
  arena_free(a);
  return ok;
}

// ---- in other kernels

// Alone, z's sum runs along all 160 terms of a row. The loops of u's sum cannot be one, and share a kernel with z's.
static const char neighbours[] =
    "module m\ncompute f32\n"
    "func alone(x: f32[6, 4, 40], w: f32[40]) -> (z: f32[6]) {\n"
    "  z[b<6] = sum(i<4, j<40: x[b, i, j])\n}\n"
    "func together(x: f32[6, 4, 40], w: f32[40]) -> (z: f32[6], u: f32[6]) {\n"
    "  z[b<6] = sum(i<4, j<40: x[b, i, j])\n"
    "  u[b<6] = sum(i<4, j<40: x[b, i, j] * w[j])\n}\n";

static bool sum_of(Id fn, void *const *in, float z[6]) {
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *m = ir_parse(a, s, str_intern("neighbours"), neighbours, sizeof neighbours - 1);
  if (!m) exit(1);
  target_use(m, target_named("cpu"));
  m->entry[ENTRY_STEP] = fn;
  Plan *p = plan_lower(m);
  TestFn *run = harness_build(p, fn, str_intern("native"));
  float u[6];
  char *frame = aligned_alloc(64, (size_t)p->fn[fn].frame_bytes + 64);
  if (run) run(in, (void *[]){z, u}, frame, (const uint64_t[2]){0, 0});
  bool one = p->fn[fn].kernel.n == 1;
  if (!one) printf("%s is %u kernels\n", m->fn.at[fn].name, p->fn[fn].kernel.n);
  free(frame);
  arena_free(a);
  return run && one;
}

static bool same_in_both(void) {
  uint64_t state = 3;
  void *in[2];
  float alone[6] = {0}, together[6] = {1};
  double *x = numbers(6 * 160, false, &state, &in[0]), *w = numbers(40, false, &state, &in[1]);
  bool ok = sum_of(0, in, alone) && sum_of(1, in, together);
  for (int b = 0; ok && b < 6; b++)
    if (alone[b] != together[b]) ok = printf("row %d is %.9g alone, %.9g beside u\n", b, (double)alone[b], (double)together[b]) < 0;
  free(x), free(w), free(in[0]), free(in[1]);
  return ok;
}

int main(void) {
  bool ok = true;
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  for (int f64 = 0; f64 < 2; f64++) {
    ok &= check(str_intern("x86-64"), f64);
    if (v3) ok &= check(str_intern("x86-64-v3"), f64);
    if (v4) ok &= check(str_intern("x86-64-v4"), f64);
  }
  ok &= same_in_both();
  return !ok;
}
