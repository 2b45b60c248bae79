// What one GPT-2 124M training step cannot do without on this machine: floor BATCH LENGTH THREADS.
//
// Prints one JSON object: the processor's limit (multiply-adds in registers), the bandwidth of a
// copy, the time of the step's matrix products alone (of its linear maps and logits; of its
// attention, on tiles in the caches), and of moving AdamW's 28 bytes a parameter (read weight,
// gradient and two moments, write all but the gradient) at that bandwidth. The floor is the sum of
// these three. Besides, the time of attention as dtc computes it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/gemm_shapes.h"
#include "runtime/device/cpu/attention.c" // its tiles

#undef DT_F64
#define DT_F64 0
#undef DT_LEVEL
#if defined(__x86_64__)
#define DT_LEVEL 4
#include "runtime/device/cpu/vector.h"
#include "bench/attention_products.h"
#include "bench/peak_kernel.h"
#undef DT_LEVEL
#define DT_LEVEL 3
#include "runtime/device/cpu/vector.h"
#include "bench/attention_products.h"
#include "bench/peak_kernel.h"
#undef DT_LEVEL
#endif
#define DT_LEVEL 1
#include "runtime/device/cpu/vector.h"
#include "bench/attention_products.h"
#include "bench/peak_kernel.h"

enum { LAYERS = 12, HEADS = 12, DIM = 64, REPEAT = 5 };
static const double parameters = 124439808;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *operand(int64_t count) {
  size_t bytes = ((size_t)count * sizeof(float) + 4095) / 4096 * 4096;
  float *p = aligned_alloc(4096, bytes);
  if (!p) abort();
  dt_touch(p, bytes);
  for (int64_t i = 0; i < count; i++) p[i] = (float)(i % 17) * 0.01f;
  return p;
}

// GFLOP/s of all threads together.
static double peak(int level) {
  DtKernel *kernel = level == 1 ? peak_f32_v1 : NULL;
  int64_t lanes = 4;
#if defined(__x86_64__)
  if (level == 3) kernel = peak_f32_v3, lanes = 8;
  if (level == 4) kernel = peak_f32_v4, lanes = 16;
#endif
  float sink[4096] = {0};
  int64_t rounds = 1000000; // short: a busy moment should miss some of the repeats
  void *arg[] = {&rounds, sink};
  double best = 0;
  for (int i = 0; i < 40 * REPEAT; i++) {
    double t = now();
    dt_parallel(kernel, arg, dt_threads(), 1);
    double rate = 2.0 * PEAK_CHAINS * (double)lanes * (double)rounds * dt_threads() / (now() - t);
    if (rate > best) best = rate;
  }
  return best * 1e-9;
}

static void copy_kernel(void *const *arg, int64_t begin, int64_t end) {
  memcpy((float *)arg[1] + begin, (float *)arg[0] + begin, (size_t)(end - begin) * sizeof(float));
}

// GB/s, bytes read and bytes written both counted.
static double copy_bandwidth(void) {
  int64_t count = 64 << 20;
  float *from = operand(count), *to = operand(count), *arg[] = {from, to};
  double best = 1e9;
  for (int i = 0; i < REPEAT; i++) {
    double t = now();
    dt_parallel(copy_kernel, (void *const *)arg, count, 1 << 16);
    if ((t = now() - t) < best) best = t;
  }
  free(from), free(to);
  return 2 * sizeof(float) * (double)count / best * 1e-9;
}

static double products(int64_t tokens, double *flops) {
  GemmShape shape[GEMM_SHAPES];
  gemm_shapes(tokens, shape);
  double total = 0;
  for (int i = 0; i < GEMM_SHAPES; i++) {
    const GemmShape *s = &shape[i];
    DtGemm g = gemm_of_shape(s);
    float *a = operand(s->m * s->k), *b = operand(s->k * s->n), *c = operand(s->m * s->n);
    double best = 1e9;
    for (int r = 0; r < REPEAT; r++) {
      double t = now();
      dt_gemm_f32(&g, a, b, c, s->op == 'W');
      if ((t = now() - t) < best) best = t;
    }
    total += best * s->times;
    *flops += 2.0 * (double)s->m * (double)s->n * (double)s->k * s->times;
    free(a), free(b), free(c);
  }
  return total;
}

static double attention(int64_t b, int64_t t, double *flops) {
  int64_t h = HEADS, e = DIM;
  DtAttention x = {.batch = b, .kv_heads = h, .group = 1, .tq = t, .tk = t, .dim = e, .causal = 1};
  x.scale = 1 / sqrt((double)e);
  x.q = x.k = x.v = x.dq = x.dk = x.dv =
      (DtAttentionStride){.b = t * 3 * h * e, .g = e, .t = 3 * h * e, .e = 1};
  x.o = x.dout = (DtAttentionStride){.b = t * h * e, .g = e, .t = h * e, .e = 1};
  float *qkv = operand(b * t * 3 * h * e), *grad = operand(b * t * 3 * h * e),
        *o = operand(b * t * h * e);
  float *dout = operand(b * t * h * e), *lse = operand(b * t * h);
  double best = 1e9;
  for (int i = 0; i < REPEAT; i++) {
    double start = now();
    dt_attention_fwd_f32(&x, qkv, qkv + h * e, qkv + 2 * h * e, o, lse);
    dt_attention_bwd_f32(&x, qkv, qkv + h * e, qkv + 2 * h * e, o, lse, dout, grad, grad + h * e,
                         grad + 2 * h * e);
    if ((start = now() - start) < best) best = start;
  }
  free(qkv), free(grad), free(o), free(dout), free(lse);
  *flops += 14.0 * (double)(b * h) * (double)t * (double)(t + 1) / 2 * (double)e * LAYERS;
  return best * LAYERS;
}

static double attention_products(int level, int64_t b, int64_t t) {
  DtAttention x = {.tq = t, .tk = t, .dim = DIM, .causal = 1};
  DtKernel *kernel = attention_products_f32_v1;
#if defined(__x86_64__)
  if (level == 3) kernel = attention_products_f32_v3;
  if (level == 4) kernel = attention_products_f32_v4;
#endif
  void *arg[] = {&x};
  double best = 1e9;
  for (int i = 0; i < REPEAT; i++) {
    double start = now();
    dt_parallel(kernel, arg, b * HEADS, b * HEADS / (4 * dt_threads()));
    if ((start = now() - start) < best) best = start;
  }
  return best * LAYERS;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: floor BATCH LENGTH THREADS\n");
    return 64;
  }
  int64_t batch = atoll(argv[1]), length = atoll(argv[2]);
  dt_parallel_init(atoi(argv[3]));
  if (dt_scratch_plan(4 << 20)) return 71;
  double flops = 0, limit = peak(dt_cpu_level(0)), bandwidth = copy_bandwidth();
  double gemm = products(batch * length, &flops), flash = attention(batch, length, &flops);
  double inner = attention_products(dt_cpu_level_now(), batch, length);
  double update = 28 * parameters / (bandwidth * 1e9);
  printf("{\"threads\": %d, \"level\": %d, \"peak_gflops\": %.1f, \"copy_gbs\": %.2f, "
         "\"flops\": %.6g, \"products_seconds\": %.4f, \"attention_products_seconds\": %.4f, "
         "\"attention_seconds\": %.4f, \"update_seconds\": %.4f, \"floor_seconds\": %.4f}\n",
         dt_threads(), dt_cpu_level_now(), limit, bandwidth, flops, gemm, inner, flash, update,
         gemm + inner + update);
  dt_parallel_done();
}
