// Tangents of known cases, ties and kinks among them: y at x, and dy where dx = 1 (ir/interp/interp.h).
// tests/random and tests/gradient hold gradients of whole programs against both tangents and central
// differences.
#include <math.h>
#include <stdlib.h>

#include "ir/interp/interp.h"
#include "ir/text/text.h"

typedef struct Known {
  const char *body; // of x, one element
  double x, y, dy;
} Known;

static const Known known[] = {
    {"3.0 * x[0] - x[0] / 4.0", 2, 5.5, 2.75},
    {"abs(x[0])", -2, 2, -1},
    {"abs(x[0])", 0, 0, 0},
    {"max(x[0], 0.0)", 0, 0, 0},
    {"max(0.0, x[0])", 0, 0, 0},
    {"max(x[0], 2.0 * x[0])", 0, 0, 1},
    {"max(2.0 * x[0], x[0])", 0, 0, 2},
    {"min(x[0], 0.0)", 0, 0, 0},
    {"min(3.0 * x[0], x[0])", 0, 0, 3},
    {"where(x[0] > 0.0, x[0], 5.0 * x[0])", 0, 0, 5},
    {"where(x[0] > 0.0, log(x[0]), 7.0)", 0, 7, 0},
    {"where(x[0] > 0.0, sqrt(x[0]), 3.0 * x[0])", 0, 0, 3},
    {"stop_gradient(x[0]) * x[0]", 3, 9, 3},
    {"floor(x[0]) + x[0]", 2.5, 4.5, 1},
    {"real(int(x[0])) * x[0]", 2.5, 5, 2},
    {"pow(x[0], 0.0)", 0, 1, 0},
    {"pow(x[0], 1.0)", 0, 0, 1},
    {"pow(x[0], 2.0)", -3, 9, -6},
    {"pow(x[0], 3.0)", -2, -8, 12},
    {"pow(2.0, x[0])", 3, 8, 5.545177444479562},
    {"pow(0.0, x[0])", 3, 0, 0},
    {"fma(x[0], x[0], x[0])", 3, 12, 7},
    {"1.0 / (1.0 + exp(-x[0]))", -1000, 0, 0},
    {"1.0 / (1.0 + exp(-x[0]))", 0, 0.5, 0.25},
    {"sqrt(x[0] * 0.0)", 1, 0, 0},
    {"erf(x[0])", 0, 0, 1.1283791670955126},
    {"tanh(x[0])", 0, 0, 1},
    {"sin(x[0]) + cos(x[0])", 0, 1, 1},
    {"max(i<3: x[0] * real(1 - i % 2))", 2, 2, 1},
    {"max(i<3: x[0] * real(i))", 0, 0, 0},
    {"min(i<3: x[0] * real(i + 4))", 0, 0, 4},
    {"mean(i<4: x[0] * x[0] * real(i))", 2, 6, 6},
    {"sum(i<4: where(i < 2, x[0], 1.0))", 5, 12, 2},
    {"sum(i<100000: (x[0] - 1.0) * 0.7)", 1, 0, 70000}, // long sums of tangents are exact
};

static const char call[] = "module m\n"
                           "func half(a: real[1], inout t: real[1]) -> (b: real[1]) {\n"
                           "  b[i<1] = 0.5 * a[i] * a[i]\n"
                           "  t[i<1] += a[i]\n"
                           "}\n"
                           "func f(x: real[1]) -> (y: real) {\n"
                           "  z: real[1]\n"
                           "  t: real[1]\n"
                           "  carry z = repeat l<3: half(carry x, t)\n"
                           "  y = z[0] + t[0]\n"
                           "}\n";

static bool near(double a, double b) { return fabs(a - b) <= 1e-15 * fabs(b); }

// `text` is a module with a function f of x[1].
static bool check(const char *name, const char *text, const Known *k) {
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *m = ir_parse(a, s, str_intern("known.ir"), text, strlen(text));
  Id fn = m ? fn_find(m, str_intern("f")) : NONE;
  if (fn == NONE) return printf("FAIL %s: does not parse\n", name), false;
  Tensor *x = tensor_new(DT_REAL, &(int64_t){1}, 1), *y = NULL;
  x->tangent = calloc(1, sizeof *x->tangent);
  x->real[0] = k->x;
  x->tangent[0] = 1;
  Buf error = {0};
  bool ok = interp_run(m, fn, &x, &y, &(InterpOptions){.tangent = true}, &error);
  if (!ok) printf("%s\n", error.text);
  ok = ok && near(y->real[0], k->y) && near(y->tangent[0], k->dy);
  if (!ok && y)
    printf("FAIL %s at %g: %.17g, %.17g, should be %.17g, %.17g\n", name, k->x, y->real[0],
           y->tangent[0], k->y, k->dy);
  tensor_free(x);
  tensor_free(y);
  arena_free(a);
  return ok;
}

int main(void) {
  int bad = 0, n = sizeof known / sizeof *known;
  for (int i = 0; i < n; i++) {
    char text[1000];
    snprintf(text, sizeof text, "module m\nfunc f(x: real[1]) -> (y: real) {\n  y = %s\n}\n",
             known[i].body);
    bad += !check(known[i].body, text, &known[i]);
  }
  // x = 2: 2, then 2, 2: halves of squares; t adds up 2, 2, 2. dz = 2 * 2 * 2, dt = 1 + 2 + 4.
  bad += !check("a repeat", call, &(Known){"", 2, 8, 15});
  printf("%d of %d known cases are right\n", n + 1 - bad, n + 1);
  return bad != 0;
}
