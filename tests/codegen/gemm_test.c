// match_gemm: which statements become matrix products, of which shape; and that the product, run by its
// definition, gives what the statement gives.
#include <stdlib.h>

#include "codegen/target.h"
#include "codegen/lower/kernel.h"
#include "ir/interp/interp.h"
#include "ir/text/text.h"

typedef struct Case {
  const char *fact, *text; // a function f whose last statement is tried
  int64_t m, n, k; // 0: refused
  uint32_t nbatch;
} Case;

#define F(args, result, body) "func f(" args ") -> (c: f32" result ") {\n" body "\n}\n"

static const Case cases[] = {
    {"a plain product", F("a: f32[64, 32], b: f32[32, 48]", "[64, 48]",
     "c[i<64, j<48] = sum(k<32: a[i, k] * b[k, j])"), 64, 48, 32, 0},
    {"transposed operands are strides", F("a: f32[32, 64], b: f32[48, 32]", "[64, 48]",
     "c[i<64, j<48] = sum(k<32: a[k, i] * b[j, k])"), 64, 48, 32, 0},
    {"a transposed result swaps the operands", F("a: f32[64, 32], b: f32[32, 48]", "[48, 64]",
     "c[j<48, i<64] = sum(k<32: a[i, k] * b[k, j])"), 48, 64, 32, 0},
    {"rows of two indices merge", F("a: f32[4, 16, 32], b: f32[32, 48]", "[4, 16, 48]",
     "c[b1<4, t<16, j<48] = sum(k<32: a[b1, t, k] * b[k, j])"), 64, 48, 32, 0},
    {"packed columns merge", F("a: f32[4, 16, 32], b: f32[32, 3, 4, 8]", "[4, 16, 3, 4, 8]",
     "c[b1<4, t<16, x<3, h<4, e<8] = sum(k<32: a[b1, t, k] * b[k, x, h, e])"), 64, 96, 32, 0},
    {"a weight's gradient sums over two indices at once", F("a: f32[4, 16, 32], b: f32[4, 16, 48]", "[32, 48]",
     "c[i<32, j<48] = sum(b1<4, t<16: a[b1, t, i] * b[b1, t, j])"), 32, 48, 64, 0},
    {"an index in all three is a batch", F("a: f32[4, 16, 2, 32], b: f32[4, 24, 2, 32]", "[4, 2, 16, 24]",
     "c[b1<4, h<2, i<16, j<24] = sum(e<32: a[b1, i, h, e] * b[b1, j, h, e])"), 16, 24, 32, 2},
    {"rows that do not merge become loops", F("a: f32[4, 2, 16, 32], b: f32[32, 48]", "[4, 16, 2, 48]",
     "c[b1<4, t<16, h<2, j<48] = sum(k<32: a[b1, h, t, k] * b[k, j])"), 16, 48, 32, 2},
    {"sums that do not merge become a loop", F("a: f32[16, 8, 32], b: f32[32, 8, 48]", "[16, 48]",
     "c[i<16, j<48] = sum(x<8, k<32: a[i, x, k] * b[k, x, j])"), 16, 48, 32, 1},
    {"groups are row-major", F("a: f32[4, 16, 64], b: f32[64, 48]", "[64, 48]",
     "c[(b1<4 t<16), j<48] = sum(h<4, e<16: a[b1, t, (h e)] * b[(h e), j])"), 64, 48, 64, 0},
    {"a convolution over patches is strides", F("a: f32[64, 32], b: f32[128, 16]", "[4, 8, 128]",
     "c[x<4, y<8, o<128] = sum(p<16, q<4: a[(x p), (y q)] * b[o, p])"), 0, 0, 0, 0},
    {"patches with a weight for each pixel", F("a: f32[64, 32], b: f32[128, 16, 4]", "[4, 8, 128]",
     "c[x<4, y<8, o<128] = sum(p<16, q<4: a[(x p), (y q)] * b[o, p, q])"), 8, 128, 16, 2},
    {"an affine subscript is strides too", F("a: f32[70], b: f32[7, 64]", "[64, 64]",
     "c[i<64, j<64] = sum(k<7: a[i + k] * b[k, j])"), 64, 64, 7, 0},
    {"a constant subscript is an offset", F("a: f32[3, 64, 32], b: f32[32, 48]", "[64, 48]",
     "c[i<64, j<48] = sum(k<32: a[1, i, k] * b[k, j])"), 64, 48, 32, 0},
    {"one operand twice", F("a: f32[64, 32]", "[64, 64]",
     "c[i<64, j<64] = sum(k<32: a[i, k] * a[j, k])"), 64, 64, 32, 0},
    {"extents of 1 are no indices", F("a: f32[64, 1, 32], b: f32[32, 48]", "[1, 64, 48]",
     "c[x<1, i<64, j<48] = sum(k<32: a[i, x, k] * b[k, j])"), 64, 48, 32, 0},
    {"a row dot is not", F("a: f32[64, 128], b: f32[64, 128]", "[64]",
     "c[i<64] = sum(k<128: a[i, k] * b[i, k])"), 0, 0, 0, 0},
    {"a matrix times a vector is not", F("a: f32[64, 128], b: f32[128]", "[64]",
     "c[i<64] = sum(k<128: a[i, k] * b[k])"), 0, 0, 0, 0},
    {"a tiny product is not", F("a: f32[4, 4], b: f32[4, 4]", "[4, 4]",
     "c[i<4, j<4] = sum(k<4: a[i, k] * b[k, j])"), 0, 0, 0, 0},
    {"a gather is not", F("a: f32[64, 32], b: f32[32, 48], t: int[64]", "[64, 48]",
     "c[i<64, j<48] = sum(k<32: a[t[i], k] * b[k, j])"), 0, 0, 0, 0},
    {"a maximum is not", F("a: f32[64, 32], b: f32[32, 48]", "[64, 48]",
     "c[i<64, j<48] = max(k<32: a[i, k] * b[k, j])"), 0, 0, 0, 0},
    {"an index that one factor lacks is not", F("a: f32[64, 32], b: f32[48, 32]", "[64, 48]",
     "c[i<64, j<48] = sum(k<32, z<3: a[i, k] * b[j, k])"), 0, 0, 0, 0},
};

// The product as runtime/device/cpu/gemm.h defines it.
static void run_plan(const GemmPlan *g, const double *a, const double *b, double *c, uint32_t loop, bool *first) {
  if (loop < g->nbatch && loop < 4) {
    bool fresh = *first;
    for (int64_t i = 0; i < g->batch[loop].count; i++) {
      bool now = fresh && (i == 0 || g->batch[loop].c != 0);
      run_plan(g, a + i * g->batch[loop].a, b + i * g->batch[loop].b, c + i * g->batch[loop].c, loop + 1, &now);
    }
    return;
  }
  for (int64_t i = 0; i < g->m; i++) {
    for (int64_t j = 0; j < g->n; j++) {
      double sum = *first ? 0 : c[i * g->c_row + j];
      for (int64_t p = 0; p < g->k; p++) sum += a[i * g->a_row + p * g->a_col] * b[p * g->b_row + j * g->b_col];
      c[i * g->c_row + j] = sum;
    }
  }
}

static Layout *row_major(Arena *a, const Fn *f) {
  Layout *l = NEWN(a, Layout, f->value.n);
  for (Id v = 0; v < f->value.n; v++) {
    l[v].buffer = v;
    int64_t n = 1;
    for (uint32_t d = f->value.at[v].rank; d-- > 0; n *= f->value.at[v].extent[d]) l[v].stride[d] = n;
  }
  return l;
}

// Small integers: every order of summing gives the same sum.
static bool same_result(const Module *m, const GemmPlan *g) {
  const Fn *f = &m->fn.at[0];
  Tensor *arg[8] = {0}, *result[1];
  for (uint32_t i = 0; i < f->arg.n; i++) {
    arg[i] = tensor_like(&f->value.at[f->arg.at[i]]);
    for (int64_t j = 0; arg[i]->real && j < tensor_count(arg[i]); j++) arg[i]->real[j] = (double)((j * 7 + i * 3) % 11 - 5);
  }
  Buf why = {0};
  if (!interp_run(m, 0, arg, result, &(InterpOptions){0}, &why)) BUG("%s", why.text);
  Tensor *c = tensor_like(&f->value.at[f->result.at[0]]);
  bool first = true, same = true;
  run_plan(g, arg[g->a]->real + g->a_offset, arg[g->b]->real + g->b_offset, c->real + g->c_offset, 0, &first);
  for (int64_t j = 0; j < tensor_count(c); j++) same &= c->real[j] == result[0]->real[j];
  for (uint32_t i = 0; i < f->arg.n; i++) tensor_free(arg[i]);
  tensor_free(result[0]);
  tensor_free(c);
  return same;
}

static bool check(const Case *c) {
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  s->out = stdout;
  char *text = arena_printf(a, "module t\ncompute f32\n%s", c->text);
  Module *m = ir_parse(a, s, str_intern("case"), text, strlen(text));
  if (!m) return printf("%s: does not parse\n", c->fact), false;
  target_use(m, target_named("cpu"));
  const Fn *f = &m->fn.at[0];
  GemmPlan g = {0};
  bool matched = match_gemm(m, f, row_major(a, f), &f->stmt.at[f->stmt.n - 1], &g), ok = matched == (c->m != 0);
  if (!ok) printf("%s: %s\n", c->fact, matched ? "taken" : "refused");
  if (matched && ok) {
    ok = g.m == c->m && g.n == c->n && g.k == c->k && g.nbatch == c->nbatch;
    if (!ok)
      printf("%s: %lld x %lld x %lld with %u loops\n", c->fact, (long long)g.m, (long long)g.n, (long long)g.k, g.nbatch);
    if (!same_result(m, &g)) ok = printf("%s: another result\n", c->fact) < 0;
  }
  arena_free(a);
  return ok;
}

int main(void) {
  int bad = 0, n = sizeof cases / sizeof *cases;
  for (int i = 0; i < n; i++) bad += !check(&cases[i]);
  printf("%d of %d statements classified as expected\n", n - bad, n);
  return bad != 0;
}
