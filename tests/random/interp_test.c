// The interpreter on small functions whose results are known: each case is IR text whose last
// function, `f`, takes no arguments and returns what is compared with the numbers beside it.
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "ir/interp/interp.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "runtime/base/philox.h"

static int failures;
static void fail(const char *name, const char *what) {
  printf("%s: %s\n", name, what);
  failures++;
}

static Module *parse(Arena *a, const char *name, const char *text) {
  Buf why = {0};
  Module *m = ir_parse(a, sources_new(a), str_intern(name), text, strlen(text));
  if (!m) return fail(name, "does not parse"), NULL;
  if (ir_verify(m, &why)) return m;
  fail(name, why.text);
  buf_free(&why);
  return NULL;
}

typedef struct Case {
  const char *name, *text;
  int n;
  double want[16];
  const char *error; // instead: part of the message
} Case;

static const Case cases[] = {
    {"reductions",
     "func f() -> (y: real[5], k: int[2]) {\n"
     "  x[i<6]: real = where(i == 2, 7.0, where(i == 4, 7.0, real(i) - 1.0))\n"
     "  s: real = sum(i<6: x[i])\n"
     "  m: real = mean(i<6: x[i])\n"
     "  hi: real = max(i<6: x[i])\n"
     "  lo: real = min(i<6: x[i])\n"
     "  z: real = sum(a<2, b<3: x[(a b)] * real(a))\n"
     "  y[i<5] = where(i == 0, s, where(i == 1, m, where(i == 2, hi, where(i == 3, lo, z))))\n"
     "  k1: int = argmax(i<6: x[i])\n"
     "  k2: int = argmax(a<3, b<2: x[(b a)])\n"
     "  k[i<2] = where(i == 0, k1, k2)\n"
     "}\n",
     7,
     {19, 19 / 6.0, 7, -1, 13, 2, 3}, // k2: x[4] at (1, 1) comes before x[2] at (2, 0)
     NULL},
    {"groups and guards",
     "func f() -> (y: real[12], z: real[4]) {\n"
     "  x[i<6]: real = real(i)\n"
     "  y[(h<3 i<2 j<2)] = x[(h j)] * 100.0 + real(i)\n"
     "  z[i<4] = where(i >= 1 and i - 1 < 2, x[2 * i - 2], -1.0)\n"
     "}\n",
     16,
     {0, 100, 1, 101, 200, 300, 201, 301, 400, 500, 401, 501, -1, 0, 2, -1},
     NULL},
    {"gather and scatter",
     "func f() -> (y: real[4], z: real[3]) {\n"
     "  t[i<4]: int = i * i % 3\n"
     "  x[i<3]: real = real(i) + 0.5\n"
     "  y[i<4] = x[t[i]]\n"
     "  z[t[i<4]] += real(i + 1)\n"
     "}\n",
     7,
     {0.5, 1.5, 1.5, 0.5, 5, 5, 0},
     NULL},
    {"floor division, wrapping, conversions",
     "func f() -> (y: int[8]) {\n"
     "  m: int = -7\n"
     "  big: int = 2147483647\n"
     "  y[i<8] = where(i == 0, m[] // 2, where(i == 1, m[] % 3, where(i == 2, big[] + 1, where(i "
     "== 3, int(-2.7),"
     " where(i == 4, big[] * big[], where(i == 5, int(floor(-2.5)), where(i == 6, m[] // -2, m[] % "
     "-3)))))))\n"
     "}\n",
     8,
     {-4, 2, -2147483648.0, -2, 1, -3, 3, -1},
     NULL},
    {"repeat, carried, sliced, reversed",
     "func f() -> (last: real[2], all: real[3, 2], g: real[3]) {\n"
     "  x0[i<2]: real = real(i)\n"
     "  w[l<3]: real = real(l + 1)\n"
     "  carry last, all[l] = repeat reverse l<3: body(carry x0, w[l], l, g[l])\n"
     "}\n"
     "func body(x: real[2], w: real, l: int, inout g: real) -> (y: real[2], z: real[2]) {\n"
     "  y[i<2] = x[i] * 10.0 + w\n"
     "  z[i<2] = y[i] * 1.0\n"
     "  g += sum(i<2: x[i])\n"
     "  g += real(l)\n"
     "}\n",
     11,
     {321, 1321, 321, 1321, 32, 132, 3, 13, 164, 17, 3}, // slices are by iteration number
     NULL},
    {"scalar functions",
     "func f() -> (y: real[10]) {\n"
     "  x: real = 0.5\n"
     "  y[i<10] = where(i == 0, exp(x), where(i == 1, log(x), where(i == 2, sqrt(x), where(i == 3, "
     "sin(x),"
     " where(i == 4, cos(x), where(i == 5, tanh(x), where(i == 6, erf(x), where(i == 7, pow(x, "
     "3.0),"
     " where(i == 8, fma(x, x, 1.0), abs(-x))))))))))\n"
     "}\n",
     10,
     {1.6487212707001282, -0.6931471805599453, 0.7071067811865476, 0.479425538604203,
      0.8775825618903728, 0.46211715726000973, 0.5204998778130465, 0.125, 1.25, 0.5},
     NULL},
    {"many points",
     "func f() -> (s: real, n: real) {\n"
     "  x[a<7, b<41, c<3]: real = real((a b c))\n"
     "  s = sum(a<7, b<41, c<3: x[a, b, c])\n"
     "  r[b<41]: real = sum(a<7, c<3: x[a, b, c])\n"
     "  n = max(b<41: r[b])\n"
     "}\n",
     2,
     {370230, 10290},
     NULL},
    {"a subscript out of range",
     "func f() -> (y: real[4]) {\n"
     "  x[i<3]: real = 1.0\n"
     "  y[i<4] = where(i < 2, 0.0, x[i])\n"
     "}\n",
     0,
     {0},
     "at i = 3: subscript 0 of `x` is 3, its extent 3"},
    {"division by zero gives zero",
     "func f() -> (y: int[3]) {\n"
     "  y[i<3] = where(i > 1 or 7 // i > 100, 5, 6 // (i - 0))\n"
     "}\n",
     3,
     {0, 6, 5},
     NULL},
    {"not reached",
     "func f() -> (y: int[3]) {\n"
     "  y[i<3] = where(i == 0 or 7 // i > 5, 5, 6 // i)\n"
     "}\n",
     3,
     {5, 5, 3},
     NULL},
    {"an empty chain of max over NaN",
     "func f() -> (y: real[2], k: int) {\n"
     "  x[i<4]: real = where(i == 2, nan, real(i))\n"
     "  hi: real = max(i<4: x[i])\n"
     "  y[i<2] = where(i == 0, where(hi != hi, 1.0, 0.0), where(max(hi, 1.0) != max(1.0, hi), 1.0, "
     "0.0))\n"
     "  k = argmax(i<4: x[i])\n"
     "}\n",
     3,
     {1, 1, 2},
     NULL},
};

static void compare(const Case *c, Tensor **result, uint32_t nresult) {
  int at = 0;
  for (uint32_t r = 0; r < nresult; r++)
    for (int64_t i = 0; i < tensor_count(result[r]); i++, at++) {
      double got = result[r]->real ? result[r]->real[i] : result[r]->integer[i];
      if (at < c->n && fabs(got - c->want[at]) <= 1e-14 * fabs(c->want[at])) continue;
      printf("%s: number %d is %.17g, want %.17g\n", c->name, at, got,
             at < c->n ? c->want[at] : NAN);
      failures++;
    }
  if (at != c->n) fail(c->name, "another number of results");
}

static void run_case(const Case *c) {
  Arena *a = arena_new();
  Module *m = parse(a, c->name, c->text);
  Tensor *result[8] = {0};
  Buf error = {0};
  if (m) {
    Id fn = fn_find(m, str_intern("f"));
    bool ok = interp_run(m, fn, NULL, result, &(InterpOptions){.step = 1}, &error);
    if (ok && c->error) fail(c->name, "no error");
    else if (!ok && (!c->error || !strstr(error.text, c->error))) fail(c->name, error.text);
    else if (ok) compare(c, result, m->fn.at[fn].result.n);
    for (uint32_t i = 0; ok && i < m->fn.at[fn].result.n; i++) tensor_free(result[i]);
  }
  buf_free(&error);
  arena_free(a);
}

// Salmon et al.'s known answers (kat_vectors of Random123), and the step and element reaching the
// numbers.
static void random_numbers(void) {
  uint32_t c[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
  dt_philox(c, 0xa4093822, 0x299f31d0);
  if (c[0] != 0xd16cfe09 || c[1] != 0x94fdcceb || c[2] != 0x5001e420 || c[3] != 0x24126ea1)
    fail("philox", "another number than the known answer");
  Arena *a = arena_new();
  Module *m = parse(a, "random", "func f() -> (y: real[3]) {\n  y[i<3] = random(5, 2, i)\n}\n");
  Tensor *y = NULL;
  if (m && interp_run(m, 0, NULL, &y, &(InterpOptions){.seed = 9, .step = 4}, NULL)) {
    for (int i = 0; i < 3; i++)
      if (y->real[i] != dt_uniform(9, 4, 5, 2, (uint64_t)i)) fail("random", "another number");
    tensor_free(y);
  }
  arena_free(a);
}

enum { SUMS = 40, TERMS = 1000 };

// The bound that ir/interp/interp.h states for sum(x * x - 0.3333): a rounding of the constant, of the
// product and of the difference for each term, and what a sum of n of them allows.
static double stated_bound(const double *x) {
  double terms = 0, sum_abs = 0;
  for (int i = 0; i < TERMS; i++) {
    double t = x[i] * x[i] - 0.3333;
    terms += 0.3333 + x[i] * x[i] + fabs(t);
    sum_abs += fabs(t);
  }
  return terms + (1 + log2(TERMS) + TERMS / 8.0) * sum_abs;
}

// Single precision's errors of cancelling sums are within the bound, which is as stated; and what
// noise does to the sums is as large as those errors, and not far larger.
static void bounds(void) {
  Arena *a = arena_new();
  Module *m = parse(a, "bounds",
                    "func f(x: real[40, 1000]) -> (s: real[40], k: int, w: real, c: real, p: real[2], z: real) {\n"
                    "  s[j<40] = sum(i<1000: x[j, i] * x[j, i] - 0.3333)\n"
                    "  k = argmax(i<2: 0.1 + 0.1 * real(i) - 0.1 * real(i))\n"
                    "  w = where(x[0, 0] * 3.0 > x[0, 0] + x[0, 0] + x[0, 0], 5.0, 2.0)\n"
                    "  c = max(i<2: cos(real(k)))\n"
                    "  p[k] += 1.0\n"
                    "  z = floor(-0.000000000000000000001 * 0.000000000000000000001)\n"
                    "}\n");
  if (!m) return;
  Tensor *x = tensor_new(DT_REAL, (int64_t[]){SUMS, TERMS}, 2), *result[6], *noisy[6];
  for (int i = 0; i < SUMS * TERMS; i++) x->real[i] = (float)dt_uniform(1, 1, 1, 1, (uint64_t)i);
  if (!interp_run(m, 0, &x, result, &(InterpOptions){.scale = true}, NULL))
    return fail("bounds", "fails");
  uint64_t state = 1;
  if (!interp_run(m, 0, &x, noisy, &(InterpOptions){.scale = true, .noise = &state}, NULL))
    return fail("bounds", "fails with noise");
  double error = 0, noise = 0;
  for (int j = 0; j < SUMS; j++) {
    const double *row = x->real + j * TERMS;
    float s = 0;
    for (int i = 0; i < TERMS; i++) s += (float)row[i] * (float)row[i] - 0.3333f;
    double off = fabs(s - result[0]->real[j]), bound = result[0]->scale[j];
    if (fabs(bound - stated_bound(row)) > 1e-9 * bound) fail("bounds", "not the stated bound");
    if (off > bound * 0x1p-24) fail("bounds", "an error is beyond its bound");
    if (noisy[0]->scale[j] != 0) fail("bounds", "a noisy run carries bounds");
    error += off * off;
    noise += (noisy[0]->real[j] - result[0]->real[j]) * (noisy[0]->real[j] - result[0]->real[j]);
  }
  printf("sums of %d terms: errors %.2g, noise %.2g\n", TERMS, sqrt(error / SUMS),
         sqrt(noise / SUMS));
  if (noise < error || noise > 100 * error) fail("bounds", "noise is no sample of errors");
  if (!isinf(result[1]->scale[0])) fail("bounds", "a tie within the error is certain");
  if (!(result[2]->scale[0] * 0x1p-24 >= 3))
    fail("bounds", "an uncertain branch has a small bound");
  if (!isinf(result[3]->scale[0])) // k is 0, where cos has no slope, or 1
    fail("bounds", "the greatest of uncertain terms is certain");
  if (!isinf(result[4]->scale[0]) || !isinf(result[4]->scale[1]))
    fail("bounds", "what an uncertain place may be is certain");
  if (!(result[5]->scale[0] > 0)) fail("bounds", "what float has as 0 is certainly below it");
  for (int i = 0; i < 6; i++) tensor_free(result[i]), tensor_free(noisy[i]);
  tensor_free(x);
  arena_free(a);
}

static void speed(void) {
  Arena *a = arena_new();
  Module *m = parse(a, "speed",
                    "func f() -> (y: real[256, 64]) {\n"
                    "  x[b<256, i<256]: real = real(b - i)\n"
                    "  w[i<256, o<64]: real = real(i + o)\n"
                    "  y[b<256, o<64] = sum(i<256: x[b, i] * w[i, o])\n"
                    "}\n");
  Tensor *y;
  clock_t start = clock();
  if (m && interp_run(m, 0, NULL, &y, &(InterpOptions){0}, NULL)) tensor_free(y);
  double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
  printf("speed: %.0f million points of a matrix product a second\n",
         256 * 64 * 256 / seconds * 1e-6);
  arena_free(a);
}

int main(void) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i]);
  random_numbers();
  bounds();
  speed();
  printf("%d failures\n", failures);
  return failures != 0;
}
