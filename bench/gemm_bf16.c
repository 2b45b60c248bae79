// Times the matrix products of bf16 of one GPT-2 124M training step, each alone and by each way in turn:
//
//   gemm_bf16 [tokens [threads [rounds [clock]]]]
//
// The ways: the same product in float; bf16 converted to float; AVX512_BF16; AMX; and,
// with MKL=FILE (libmkl_rt.so) in the environment, MKL's cblas_gemm_bf16bf16f32, whose result is float. dtc's
// results are bf16 but for gradients of weights, which are added up in float. Rates are by the median processor
// time of all threads (times the number of threads), which other programs on the machine disturb least but which
// misses what threads wait for each other; with `clock`, by the median time.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/gemm_shapes.h"
#include "runtime/base/parallel.h"
#include "runtime/base/real.h"
#include "runtime/device/cpu/scratch.h"

enum { MOST_ROUNDS = 101, WAYS = 5 };
enum { IN_FLOAT, WIDENED, AVX512, AMX, MKL };
static const char *const names[WAYS] = {"fp32", "widened", "avx512", "amx", "mkl"};

typedef void MklGemm(int layout, int at, int bt, int m, int n, int k, float alpha, const uint16_t *a, int lda,
                     const uint16_t *b, int ldb, float beta, float *c, int ldc);
static MklGemm *mkl;

static bool by_clock;

static double now(void) {
  struct timespec t;
  clock_gettime(by_clock ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
  return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / (by_clock ? 1 : dt_threads());
}

static int by_value(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

static void open_mkl(void) {
  const char *file = getenv("MKL");
  void *library = file ? dlopen(file, RTLD_NOW | RTLD_GLOBAL) : NULL;
  if (!library) {
    if (file) fprintf(stderr, "%s\n", dlerror());
    return;
  }
  void *gemm = dlsym(library, "cblas_gemm_bf16bf16f32"), *threads = dlsym(library, "MKL_Set_Num_Threads");
  void (*set)(int);
  memcpy(&mkl, &gemm, sizeof mkl);
  memcpy(&set, &threads, sizeof set);
  if (set) set(dt_threads());
}

typedef struct Operands {
  float *a, *b, *c; // in float
  uint16_t *a16, *b16;
  void *c16;
} Operands;

static void *array(int64_t n) {
  size_t bytes = ((size_t)n * 4 + 4095) / 4096 * 4096;
  float *p = aligned_alloc(4096, bytes);
  if (!p) abort();
  dt_touch(p, bytes);
  for (int64_t i = 0; i < n; i++) p[i] = (float)(i * 7 % 17 - 8) * 0.0625f;
  return p;
}

static uint16_t *narrowed(const float *x, int64_t n) {
  uint16_t *p = array((n + 1) / 2);
  dt_narrow(DT_TYPE_BF16, p, x, n);
  return p;
}

static void compute(int way, const GemmShape *s, const Operands *x) {
  enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
  DtGemm g = gemm_of_shape(s);
  float beta = s->op == 'W';
  g.operand = DT_TYPE_BF16, g.result = s->op == 'W' ? DT_TYPE_F32 : DT_TYPE_BF16;
  if (way == IN_FLOAT) dt_gemm_f32(&g, x->a, x->b, x->c, beta);
  if (way == MKL)
    mkl(ROW_MAJOR, s->op == 'W' ? TRANSPOSED : PLAIN, s->op == 'T' ? TRANSPOSED : PLAIN, (int)s->m, (int)s->n,
        (int)s->k, 1, x->a16, (int)(s->op == 'W' ? s->m : s->k), x->b16, (int)(s->op == 'T' ? s->k : s->n), beta,
        x->c, (int)s->n);
  if (way == IN_FLOAT || way == MKL) return;
  dt_gemm_bf16_use(way == WIDENED ? DT_GEMM_FLOAT : way == AVX512 ? DT_GEMM_AVX512 : DT_GEMM_AMX);
  dt_gemm_half(&g, x->a16, x->b16, x->c16, beta);
}

// Median seconds of each way; 0: it is not there.
static void time_shape(const GemmShape *s, int rounds, const bool there[WAYS], double median[WAYS]) {
  static double seconds[WAYS][MOST_ROUNDS];
  Operands x = {array(s->m * s->k), array(s->k * s->n), array(s->m * s->n), NULL, NULL, array(s->m * s->n)};
  x.a16 = narrowed(x.a, s->m * s->k), x.b16 = narrowed(x.b, s->k * s->n);
  for (int r = -1; r < rounds; r++) // the first is not counted
    for (int w = 0; w < WAYS; w++) {
      if (!there[w]) continue;
      double t = now();
      compute(w, s, &x);
      if (r >= 0) seconds[w][r] = now() - t;
    }
  for (int w = 0; w < WAYS; w++) {
    qsort(seconds[w], (size_t)rounds, sizeof(double), by_value);
    median[w] = there[w] ? seconds[w][rounds / 2] : 0;
  }
  free(x.a), free(x.b), free(x.c), free(x.a16), free(x.b16), free(x.c16);
}

static void print_rates(double work, const double seconds[WAYS]) {
  for (int w = 0; w < WAYS; w++)
    if (seconds[w] > 0) printf(" %9.1f", work / seconds[w]);
    else printf(" %9s", "-");
  for (int w = AVX512; w < WAYS; w++)
    if (seconds[w] > 0) printf(" %6.2f %5.2f", seconds[IN_FLOAT] / seconds[w], seconds[WIDENED] / seconds[w]);
  putchar('\n');
}

int main(int argc, char **argv) {
  int64_t tokens = argc > 1 ? atoll(argv[1]) : 1024;
  int rounds = argc > 3 ? atoi(argv[3]) : 11;
  by_clock = argc > 4 && !strcmp(argv[4], "clock");
  dt_parallel_init(argc > 2 ? atoi(argv[2]) : 0);
  if (dt_scratch_plan((size_t)dt_gemm_bf16_scratch(4096, 4096, 4096) + (4 << 20))) return 71;
  if (rounds < 1 || rounds > MOST_ROUNDS) rounds = MOST_ROUNDS;
  dt_parallel_spin(0);
  open_mkl();
  bool there[WAYS] = {true, true, dt_gemm_bf16_use(DT_GEMM_AVX512) == DT_GEMM_AVX512,
                      dt_gemm_bf16_use(DT_GEMM_AMX) == DT_GEMM_AMX, mkl != NULL};
  GemmShape shape[GEMM_SHAPES];
  gemm_shapes(tokens, shape);
  printf("%lld tokens, %d threads, %d rounds%s; GFLOP/s, and of the last ones how many times as fast as fp32 and as "
         "widened\n%-31s",
         (long long)tokens, dt_threads(), rounds, by_clock ? " by the clock" : "", "");
  for (int w = 0; w < WAYS; w++) printf(" %9s", names[w]);
  putchar('\n');
  double total[WAYS] = {0}, flops = 0;
  for (int i = 0; i < GEMM_SHAPES; i++) {
    const GemmShape *s = &shape[i];
    double work = 2.0 * (double)s->m * (double)s->n * (double)s->k * 1e-9, median[WAYS];
    time_shape(s, rounds, there, median);
    printf("%-7s %c %6lld x%6lld x%6lld", s->name, s->op, (long long)s->m, (long long)s->n, (long long)s->k);
    print_rates(work, median);
    for (int w = 0; w < WAYS; w++) total[w] += median[w] * s->times;
    flops += work * s->times;
    fflush(stdout);
  }
  printf("%-31s", "one step");
  print_rates(flops, total);
  dt_parallel_done();
}
