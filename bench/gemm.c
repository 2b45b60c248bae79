// Times the matrix products of one GPT-2 124M training step, each alone, by our own kernel and by oneDNN, in turn:
// gemm [tokens [threads [rounds [level]]]]. With DT_TILES set, oneDNN also on tiles of other sizes, to find the best.
//
// Rates are by the least time, the median time, and the median processor time of all threads (times
// the number of threads), which other programs on the machine disturb least but which misses what
// threads wait for each other.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/gemm_shapes.h"
#include "runtime/device/cpu/dnnl.h"
#include "runtime/device/cpu/level.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/base/parallel.h"

enum { MOST_ROUNDS = 101, MOST_WAYS = 32 };

// One way to compute a product: as the user says, or by oneDNN on tiles of m x n.
typedef struct {
  DtGemmUse use;
  int64_t m, n;
} Way;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double processor_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / dt_threads();
}

static float *operand(int64_t count) {
  size_t bytes = ((size_t)count * sizeof(float) + 4095) / 4096 * 4096;
  float *p = aligned_alloc(4096, bytes);
  if (!p) abort();
  dt_touch(p, bytes);
  for (int64_t i = 0; i < count; i++) p[i] = (float)(i % 17) * 0.01f;
  return p;
}

static int by_value(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

static int ways(Way way[MOST_WAYS]) {
  static const int64_t m[] = {192, 256, 384, 768}, n[] = {384, 768, 1536};
  int count = 0;
  way[count++] = (Way){DT_GEMM_OWN, 0, 0};
  way[count++] = (Way){DT_GEMM_DNNL, 0, 0};
  for (int i = 0; i < 12 && getenv("DT_TILES"); i++)
    way[count++] = (Way){DT_GEMM_DNNL, m[i / 3], n[i % 3]};
  return count;
}

static void compute(const Way *w, const DtGemm *g, const float *a, const float *b, float *c,
                    float beta) {
  dt_gemm_use(w->use);
  DtGemmLibrary library = {dt_dnnl_tile(NULL), w->m, w->n};
  if (w->m) dt_gemm_run(g, a, b, c, beta, NULL, false, &library);
  else dt_gemm_f32(g, a, b, c, beta);
}

// Seconds of each way, in turn round by round: the least, the median, the processor's median.
static void time_shape(const GemmShape *s, const Way *way, int nway, int rounds,
                       double result[MOST_WAYS][3]) {
  static double seconds[MOST_WAYS][MOST_ROUNDS], processor[MOST_WAYS][MOST_ROUNDS];
  DtGemm g = gemm_of_shape(s);
  float *a = operand(s->m * s->k), *b = operand(s->k * s->n), *c = operand(s->m * s->n);
  for (int r = -1; r < rounds; r++) // the first is not counted
    for (int w = 0; w < nway; w++) {
      double t = now(), used = processor_now();
      compute(&way[w], &g, a, b, c, s->op == 'W');
      if (r < 0) continue;
      seconds[w][r] = now() - t;
      processor[w][r] = processor_now() - used;
    }
  for (int w = 0; w < nway; w++) {
    qsort(seconds[w], (size_t)rounds, sizeof(double), by_value);
    qsort(processor[w], (size_t)rounds, sizeof(double), by_value);
    result[w][0] = seconds[w][0];
    result[w][1] = seconds[w][rounds / 2];
    result[w][2] = processor[w][rounds / 2];
  }
  free(a), free(b), free(c);
}

int main(int argc, char **argv) {
  int64_t tokens = argc > 1 ? atoll(argv[1]) : 256;
  dt_parallel_init(argc > 2 ? atoi(argv[2]) : 0);
  if (dt_scratch_plan((size_t)dt_gemm_scratch(1024, 1024, 1024, false))) return 71;
  int rounds = argc > 3 ? atoi(argv[3]) : 11, level = dt_cpu_level(argc > 4 ? atoi(argv[4]) : 0);
  if (rounds < 1 || rounds > MOST_ROUNDS) rounds = MOST_ROUNDS;
  GemmShape shape[GEMM_SHAPES];
  Way way[MOST_WAYS];
  int nway = ways(way);
  gemm_shapes(tokens, shape);
  dt_parallel_spin(0); // a thread that waits uses no processor time
  printf("%lld tokens, %d threads, level %d, %d rounds\n%-32s own%20s oneDNN%17s "
         "own/oneDNN\n",
         (long long)tokens, dt_threads(), level, rounds, "GFLOP/s", "", "");
  double total[2][3] = {{0}}, flops = 0;
  for (int i = 0; i < GEMM_SHAPES; i++) {
    const GemmShape *s = &shape[i];
    double work = 2.0 * (double)s->m * (double)s->n * (double)s->k * 1e-9;
    double r[MOST_WAYS][3];
    time_shape(s, way, nway, rounds, r);
    printf("%-7s %c %6lld x %5lld x %6lld", s->name, s->op, (long long)s->m, (long long)s->n,
           (long long)s->k);
    for (int w = 0; w < 2; w++) {
      printf("  %6.1f %6.1f %6.1f", work / r[w][0], work / r[w][1], work / r[w][2]);
      for (int k = 0; k < 3; k++) total[w][k] += r[w][k] * s->times;
    }
    for (int k = 0; k < 3; k++) printf(" %.3f", r[0][k] / r[1][k]);
    putchar('\n');
    for (int w = 2; w < nway; w++)
      printf("    tile %4lld x %4lld  %6.1f %6.1f %6.1f  %.3f %.3f %.3f\n", (long long)way[w].m,
             (long long)way[w].n, work / r[w][0], work / r[w][1], work / r[w][2],
             r[0][0] / r[w][0], r[0][1] / r[w][1], r[0][2] / r[w][2]);
    flops += work * s->times;
    fflush(stdout);
  }
  printf("%-32s", "one step");
  for (int w = 0; w < 2; w++)
    for (int k = 0; k < 3; k++) printf("%s%6.1f", k ? " " : "  ", flops / total[w][k]);
  for (int k = 0; k < 3; k++) printf(" %.3f", total[0][k] / total[1][k]);
  putchar('\n');
  dt_parallel_done();
}
