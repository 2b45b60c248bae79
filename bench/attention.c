// Times attention as one GPT-2 124M layer has it:
//
//   attention [batch [length [threads [level [window]]]]]
//
// GFLOP/s counts the pairs that are visible only: 4 * dim forward and 10 * dim backward for each
// pair.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/device/cpu/attention.h"
#include "runtime/device/cpu/level.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/base/parallel.h"

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
  for (int64_t i = 0; i < count; i++) p[i] = (float)(i % 17) * 0.1f - 0.8f;
  return p;
}

int main(int argc, char **argv) {
  int64_t b = argc > 1 ? atoll(argv[1]) : 4, t = argc > 2 ? atoll(argv[2]) : 256, h = 12, e = 64;
  dt_parallel_init(argc > 3 ? atoi(argv[3]) : 0);
  if (dt_scratch_plan((size_t)dt_attention_scratch(e, true, false))) return 71;
  int level = dt_cpu_level(argc > 4 ? atoi(argv[4]) : 0);
  DtAttention x = {.batch = b, .kv_heads = h, .group = 1, .tq = t, .tk = t, .dim = e, .causal = 1};
  int64_t window = argc > 5 ? atoll(argv[5]) : 0, unseen = window && window < t ? t - window : 0;
  x.window = window;
  x.scale = 1 / sqrt((double)e);
  x.q = x.k = x.v = x.dq = x.dk = x.dv =
      (DtAttentionStride){.b = t * 3 * h * e, .g = e, .t = 3 * h * e, .e = 1};
  x.o = x.dout = (DtAttentionStride){.b = t * h * e, .g = e, .t = h * e, .e = 1};
  float *qkv = operand(b * t * 3 * h * e), *grad = operand(b * t * 3 * h * e),
        *o = operand(b * t * h * e);
  float *dout = operand(b * t * h * e), *lse = operand(b * t * h);
  double forward = 1e9, backward = 1e9, pairs = (double)(t * (t + 1) - unseen * (unseen + 1)) / 2;
  pairs *= (double)(b * h);
  for (int i = 0; i < 9; i++) {
    double start = now();
    dt_attention_fwd_f32(&x, qkv, qkv + h * e, qkv + 2 * h * e, o, lse);
    double middle = now();
    dt_attention_bwd_f32(&x, qkv, qkv + h * e, qkv + 2 * h * e, o, lse, dout, grad, grad + h * e,
                         grad + 2 * h * e);
    double end = now();
    if (middle - start < forward) forward = middle - start;
    if (end - middle < backward) backward = end - middle;
  }
  printf("B=%lld T=%lld, %d threads, level %d: forward %.2f ms (%.1f GFLOP/s), backward %.2f ms "
         "(%.1f)\n",
         (long long)b, (long long)t, dt_threads(), level, forward * 1e3,
         pairs * 4 * (double)e / forward * 1e-9, backward * 1e3,
         pairs * 10 * (double)e / backward * 1e-9);
  free(qkv), free(grad), free(o), free(dout), free(lse);
  dt_parallel_done();
}
