// Ranks in lock step: what they exchange, and what is said where their programs do not fit
// together.
#include <math.h>
#include <stdlib.h>

#include "ir/interp/interp.h"
#include "ir/text/text.h"
#include "ir/verify.h"

enum { RANKS = 4 };

static const char head[] =
    "module m\naxis tp 2\naxis cp 2\nspmd\n"
    "func f(x: real[2, 3], $rank.tp: int rank tp, $rank.cp: int rank cp) -> (y: real[2, 3]) {\n";

typedef struct Run {
  Arena *a;
  bool ok;
  double y[RANKS][6];
  Buf error;
} Run;

// Rank r runs body[r]; its x is 10 r + 0 .. 5.
static Run run(const char *const *body) {
  Run x = {.a = arena_new()};
  const Module *m[RANKS];
  Tensor *arg[RANKS][3] = {{0}}, *result[RANKS][1] = {{0}}, **args[RANKS], **results[RANKS];
  for (int r = 0; r < RANKS; r++) {
    char *text = arena_printf(x.a, "%s%s}\n", head, body[r]);
    Sources *s = sources_new(x.a);
    m[r] = ir_parse(x.a, s, str_intern("ranks.ir"), text, strlen(text));
    Buf why = {0};
    if (!m[r] || !ir_verify(m[r], &why)) BUG("%s", m[r] ? why.text : "does not parse");
    arg[r][0] = tensor_new(DT_REAL, (int64_t[]){2, 3}, 2);
    for (int i = 0; i < 6; i++) arg[r][0]->real[i] = 10 * r + i;
    args[r] = arg[r];
    results[r] = result[r];
  }
  x.ok = interp_ranks(m, 0, (Tensor *const *const *)args, results, &(InterpOptions){0}, &x.error);
  for (int r = 0; r < RANKS; r++) {
    for (int i = 0; x.ok && i < 6; i++) x.y[r][i] = result[r][0]->real[i];
    tensor_free(result[r][0]);
    tensor_free(arg[r][0]);
  }
  return x;
}

static int gives(const char *name, const char *body, double (*want)(int rank, int i)) {
  Run x = run((const char *[]){body, body, body, body});
  int bad = !x.ok;
  if (bad) printf("FAIL %s: %s\n", name, x.error.text);
  for (int r = 0; x.ok && r < RANKS; r++)
    for (int i = 0; i < 6; i++) {
      if (x.y[r][i] == want(r, i)) continue;
      printf("FAIL %s: element %d is %g on rank %d, not %g\n", name, i, x.y[r][i], r, want(r, i));
      bad = 1;
    }
  buf_free(&x.error);
  arena_free(x.a);
  return bad;
}

// Ranks are numbered tp fastest: 0 and 1, 2 and 3 share cp; 0 and 2, 1 and 3 share tp.
static double sum_tp(int r, int i) { return 10 * (r | 1) + 10 * (r & 2) + 2 * i; }
static double max_cp(int r, int i) { return 10 * (r | 2) + i; }
static double gathered(int r, int i) { return 10 * ((r & 2) + i / 3) + i % 3; }
static double swapped(int r, int i) { return 10 * ((r & 1) + 2 * (i / 3)) + i % 3 + 3 * (r >> 1); }
static double shifted(int r, int i) { return 10 * (r ^ 2) + i; }
static double place(int r, int i) { return (r & 1) + 100 * (r >> 1) + 0 * i; }

// The ranks of the set run `other`.
static int fails(const char *name, const char *most, const char *other, unsigned set,
                 const char *want) {
  const char *body[RANKS];
  for (int r = 0; r < RANKS; r++) body[r] = set >> r & 1 ? other : most;
  Run x = run(body);
  bool pass = !x.ok && strstr(x.error.text, want);
  if (!pass)
    printf("FAIL %s:\n  want %s\n  got  %s\n", name, want, x.ok ? "no error" : x.error.text);
  buf_free(&x.error);
  arena_free(x.a);
  return !pass;
}

int main(void) {
  int bad = gives("all_reduce", "  y = all_reduce sum tp x\n", sum_tp);
  bad += gives("all_reduce max", "  y = all_reduce max cp x\n", max_cp);
  bad += gives("all_gather", "  r[i<3]: real = x[0, i]\n  y = all_gather tp r\n", gathered);
  bad += gives("all_to_all", "  y = all_to_all cp x\n", swapped);
  bad += gives("shift", "  y = shift cp x\n", shifted);
  bad += gives("rank", "  y[i<2, j<3] = real($rank.tp + 100 * $rank.cp)\n", place);
  bad += gives("reduce_scatter then all_gather is all_reduce",
               "  s: real[3] = reduce_scatter sum tp x\n  y = all_gather tp s\n", sum_tp);
  static const char two[] = "  t: real[2, 3] = all_reduce sum tp x\n  y = all_reduce sum cp t\n";
  bad += fails("a collective is missing on one rank", two,
               "  t: real[2, 3] = all_reduce sum tp x\n  y[i<2, j<3] = t[i, j]\n", 1 << 3,
               "rank 3 has ended");
  bad += fails(
      "one rank sums where others take the maximum", two,
      "  t: real[2, 3] = all_reduce max tp x\n  y = all_reduce sum cp t\n", 1 << 1,
      "different collectives meet: rank 0 waits in `t = all_reduce sum tp x` of `f`, and rank 1 "
      "waits in `t = all_reduce max tp x` of `f`");
  bad += fails("collectives are swapped so that four ranks wait in a ring", two,
               "  t: real[2, 3] = all_reduce sum cp x\n  y = all_reduce sum tp t\n",
               1 << 1 | 1 << 2, "no rank can continue");
  bad += fails("a rank's array is of another size", "  y = all_reduce sum tp x\n",
               "  s: real[3]\n  s[i<3] = x[0, i]\n  t: real[3] = all_reduce sum tp s\n  y[i<2, "
               "j<3] = t[j]\n",
               1 << 0, "different collectives meet");
  bad += fails("a rank reads out of range", two,
               "  t[i<2, j<3]: real = x[i + 1, j]\n  y[i<2, j<3] = t[i, j]\n", 1 << 2, "rank 2: ");
  printf("%d checks fail\n", bad);
  return bad != 0;
}
