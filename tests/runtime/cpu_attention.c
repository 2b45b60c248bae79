// Attention against its definition in double, forward and backward: packed and separate operands,
// grouped queries, causal offsets, windows, caps, biases, sinks, awkward extents, every instruction
// set; the same bits on 1, 2 and 3 threads. A window leaves out the blocks that it hides.
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/real.h"
#include "runtime/device/cpu/attention.h"
#include "runtime/device/cpu/level.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/base/parallel.h"

static int failures;
static uint64_t state = 88172645463325252u;

static double random_unit(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (double)(state >> 11) * 0x1p-52 - 1;
}

enum { Q, K, V, O, DO, DQ, DK, DV, LSE, SLOPES, SINKS, DSLOPES, DSINKS, OPERANDS };
typedef struct {
  double *at[OPERANDS];
  int64_t count[OPERANDS];
} Operands;

static const DtAttentionStride *stride(const DtAttention *x, int i) {
  const DtAttentionStride *s[] = {&x->q, &x->k, &x->v, &x->o, &x->dout, &x->dq, &x->dk, &x->dv};
  return s[i];
}

static bool of_keys(int i) {
  return i == K || i == V || i == DK || i == DV;
}

// Under the sanitizers, which make arithmetic slow, lower levels have one type, and threads one number.
#ifdef __SANITIZE_ADDRESS__
enum { TYPES = 1, THREADS = 3 };
#else
enum { TYPES = 2, THREADS = 2 };
#endif

static bool is_given(int i) {
  return i == Q || i == K || i == V || i == DO || i == SLOPES || i == SINKS;
}

static int64_t extent(const DtAttention *x, int i) {
  if (i > LSE) return x->kv_heads * x->group;
  if (i == LSE) return x->batch * x->kv_heads * x->group * x->tq;
  const DtAttentionStride *s = stride(x, i);
  int64_t r = of_keys(i) ? 0 : (x->group - 1) * s->r, t = (of_keys(i) ? x->tk : x->tq) - 1;
  return (x->batch - 1) * s->b + (x->kv_heads - 1) * s->g + r + t * s->t + (x->dim - 1) * s->e + 1;
}

static double *at(const Operands *p, const DtAttention *x, int i, int64_t b, int64_t g, int64_t r,
                  int64_t t) {
  const DtAttentionStride *s = stride(x, i);
  return p->at[i] + b * s->b + g * s->g + (of_keys(i) ? 0 : r * s->r) + t * s->t;
}

static double dot(const double *a, int64_t ae, const double *b, int64_t be, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i * ae] * b[i * be];
  return sum;
}

static bool sees(const DtAttention *x, int64_t i, int64_t j) {
  return (!x->causal || j <= i + x->ahead) && (!x->window || i - j < x->window);
}

// The score of a product, and its derivative by it.
static double score(const DtAttention *x, double slope, double product, int64_t apart, double *by) {
  double z = x->scale * product, d = (double)apart;
  *by = x->scale;
  if (x->cap != 0) {
    double u = tanh(z / x->cap);
    z = x->cap * u;
    *by *= 1 - u * u;
  }
  return z + x->bias * slope * (x->apart ? fabs(d) : d);
}

// One query: o, lse, and its part of every gradient, by the definition and the rule for softmax's
// derivative.
static void naive_query(const DtAttention *x, const Operands *w, int64_t b, int64_t g, int64_t r,
                        int64_t i, double *p) {
  const double *q = at(w, x, Q, b, g, r, i), *dout = at(w, x, DO, b, g, r, i);
  double *o = at(w, x, O, b, g, r, i), *dq = at(w, x, DQ, b, g, r, i), top = -INFINITY, sum = 0,
         mean = 0, *by = p + x->tk;
  int64_t h = g * x->group + r, query = i + x->offset + (i < x->q_turn ? 0 : x->q_jump);
  double sink = !x->has_sink ? -INFINITY : x->sinks ? w->at[SINKS][h] : x->sink;
  for (int64_t j = 0; j < x->tk; j++) {
    int64_t key = j + (j < x->k_turn ? 0 : x->k_jump);
    p[j] = score(x, x->slopes ? w->at[SLOPES][h] : 1,
                 dot(q, x->q.e, at(w, x, K, b, g, 0, j), x->k.e, x->dim), key - query, &by[j]);
    if (!sees(x, query, key)) p[j] = -INFINITY;
    if (p[j] > top) top = p[j];
  }
  if (sink > top) top = sink;
  for (int64_t j = 0; j < x->tk; j++) sum += p[j] = top == -INFINITY ? 0 : exp(p[j] - top);
  if (x->has_sink) sum += exp(sink - top);
  w->at[LSE][((b * x->kv_heads + g) * x->group + r) * x->tq + i] = log(sum) + top;
  for (int64_t j = 0; j < x->tk; j++) {
    if (sum != 0) p[j] /= sum;
    for (int64_t e = 0; e < x->dim; e++)
      o[e * x->o.e] += p[j] * at(w, x, V, b, g, 0, j)[e * x->v.e];
  }
  mean = dot(o, x->o.e, dout, x->dout.e, x->dim);
  if (x->has_sink) w->at[DSINKS][h] -= exp(sink - top) / sum * mean;
  for (int64_t j = 0; j < x->tk; j++) {
    const double *k = at(w, x, K, b, g, 0, j);
    double *dk = at(w, x, DK, b, g, 0, j), *dv = at(w, x, DV, b, g, 0, j);
    double ds =
        by[j] * p[j] * (dot(dout, x->dout.e, at(w, x, V, b, g, 0, j), x->v.e, x->dim) - mean);
    for (int64_t e = 0; e < x->dim; e++) {
      dv[e * x->dv.e] += p[j] * dout[e * x->dout.e];
      dk[e * x->dk.e] += ds * q[e * x->q.e];
      dq[e * x->dq.e] += ds * k[e * x->k.e];
    }
  }
}

static void naive(const DtAttention *x, const Operands *w) {
  double *p = malloc(2 * (size_t)x->tk * sizeof *p);
  for (int64_t b = 0; b < x->batch; b++)
    for (int64_t g = 0; g < x->kv_heads; g++)
      for (int64_t r = 0; r < x->group; r++)
        for (int64_t i = 0; i < x->tq; i++) naive_query(x, w, b, g, r, i, p);
  free(p);
}

static void run(const DtAttention *shape, const Operands *w, void *to[OPERANDS], bool f64) {
  DtAttention here = *shape, *x = &here;
  for (int i = 0; i < OPERANDS; i++) {
    to[i] = malloc((size_t)w->count[i] * sizeof(double));
    for (int64_t n = 0; n < w->count[i]; n++) {
      double v = is_given(i) ? w->at[i][n] : 77; // results are written, not added to
      if (f64) ((double *)to[i])[n] = v;
      else ((float *)to[i])[n] = (float)v;
    }
  }
  if (x->slopes) x->slopes = to[SLOPES], x->dslopes = to[DSLOPES];
  if (x->sinks) x->sinks = to[SINKS], x->dsinks = to[DSINKS];
  if (f64) {
    dt_attention_fwd_f64(x, to[Q], to[K], to[V], to[O], to[LSE]);
    dt_attention_bwd_f64(x, to[Q], to[K], to[V], to[O], to[LSE], to[DO], to[DQ], to[DK], to[DV]);
  } else {
    dt_attention_fwd_f32(x, to[Q], to[K], to[V], to[O], to[LSE]);
    dt_attention_bwd_f32(x, to[Q], to[K], to[V], to[O], to[LSE], to[DO], to[DQ], to[DK], to[DV]);
  }
}

// Error of a result relative to its size, over all of its elements; a gradient may be 0, where
// terms of about 1 cancel.
static double error(const double *expect, const void *got, int64_t count, bool f64) {
  double off = 0, size = 1e-3 * (double)count;
  for (int64_t i = 0; i < count; i++) {
    double v = f64 ? ((const double *)got)[i] : ((const float *)got)[i];
    if (v == 77 || (isinf(v) && v == expect[i]))
      continue; // a gap between rows; a query that sees nothing
    off += (v - expect[i]) * (v - expect[i]);
    size += expect[i] * expect[i];
  }
  return sqrt(off / size);
}

static void check_level(const DtAttention *x, const Operands *w, const char *name, bool f64,
                        int level) {
  static const char *const names[OPERANDS] = {"q",   "k",      "v",     "o",       "dout",  "dq", "dk",
                                              "dv",  "lse",    "slopes", "sinks", "dslopes", "dsinks"};
  void *first[OPERANDS], *again[OPERANDS];
  size_t scratch = (size_t)dt_attention_scratch(x->dim, true, f64);
  dt_parallel_init(1);
  if (dt_scratch_plan(scratch)) abort();
  run(x, w, first, f64);
  for (int i = O; i < OPERANDS; i++) {
    double e = error(w->at[i], first[i], w->count[i], f64);
    if (i == DO || e <= (f64 ? 1e-14 : 2e-6) * fmax(1, x->scale)) continue;
    printf("%s %s level %d: %s is off by %g\n", name, f64 ? "f64" : "f32", level, names[i], e);
    failures++;
  }
  for (int threads = THREADS; threads <= 3; threads++) {
    dt_parallel_init(threads);
    if (dt_scratch_plan(scratch)) abort();
    run(x, w, again, f64);
    for (int i = 0; i < OPERANDS; i++) {
      if (memcmp(first[i], again[i],
                 (size_t)w->count[i] * (f64 ? sizeof(double) : sizeof(float)))) {
        printf("%s level %d: %s on %d threads has other bits than on 1\n", name, level, names[i],
               threads);
        failures++;
      }
      free(again[i]);
    }
  }
  for (int i = 0; i < OPERANDS; i++) free(first[i]);
}

static bool is_operand(int i) { return i == Q || i == K || i == V || i == O || i == DO; }

// On 16-bit operands: the bits of the same numbers in float, o rounded once, or not at all where it is float.
static void check_half(const DtAttention *shape, const Operands *w, const char *name, DtType type) {
  DtAttention x = *shape;
  void *half[OPERANDS];
  float *wide[OPERANDS];
  x.operand = type;
  dt_parallel_init(2);
  if (dt_scratch_plan((size_t)dt_attention_scratch(x.dim, true, false))) abort();
  for (int i = 0; i < OPERANDS; i++) {
    half[i] = calloc((size_t)w->count[i], 4), wide[i] = calloc((size_t)w->count[i], 4);
    if (is_operand(i))
      for (int64_t n = 0; n < w->count[i]; n++) dt_put_real(type, half[i], n, w->at[i][n]);
    if (is_operand(i)) dt_widen(type, wide[i], half[i], w->count[i]);
  }
  for (int64_t n = 0; n < w->count[SLOPES]; n++) wide[SLOPES][n] = (float)w->at[SLOPES][n];
  for (int64_t n = 0; n < w->count[SINKS]; n++) wide[SINKS][n] = (float)w->at[SINKS][n];
  if (x.slopes) x.slopes = wide[SLOPES];
  if (x.sinks) x.sinks = wide[SINKS];
  dt_attention_fwd_half(&x, half[Q], half[K], half[V], half[O], half[LSE]);
  dt_attention_fwd_f32(&x, wide[Q], wide[K], wide[V], wide[O], wide[LSE]);
  float *unrounded = calloc((size_t)w->count[O], sizeof *unrounded);
  x.float_o = 1;
  dt_attention_fwd_half(&x, half[Q], half[K], half[V], unrounded, half[LSE]);
  x.float_o = 0;
  if (memcmp(unrounded, wide[O], (size_t)w->count[O] * sizeof *unrounded)) {
    printf("%s, type %d: o in float has other bits than on operands in float\n", name, type);
    failures++;
  }
  free(unrounded);
  for (int64_t n = 0; n < w->count[O]; n++) dt_put_real(type, &wide[O][n], 0, wide[O][n]);
  for (int64_t n = 0; n < w->count[O]; n++) {
    uint16_t got = ((const uint16_t *)half[O])[n], want = (uint16_t)dt_float_bits(wide[O][n]);
    if (got != want) {
      printf("%s, type %d: o is not float's, rounded\n", name, type);
      failures++;
      break;
    }
  }
  dt_widen(type, wide[O], half[O], w->count[O]);
  dt_attention_bwd_half(&x, half[Q], half[K], half[V], half[O], half[LSE], half[DO], half[DQ], half[DK],
                        half[DV]);
  dt_attention_bwd_f32(&x, wide[Q], wide[K], wide[V], wide[O], wide[LSE], wide[DO], wide[DQ], wide[DK],
                       wide[DV]);
  for (int i = 0; i < OPERANDS; i++) {
    if (i != SLOPES && i != SINKS && !is_operand(i) && memcmp(half[i], wide[i], (size_t)w->count[i] * 4)) {
      printf("%s, type %d: result %d has other bits than in float\n", name, type, i);
      failures++;
    }
    free(half[i]), free(wide[i]);
  }
}

static void check(const DtAttention *x, const char *name) {
  static const int levels[] = {1, 3, 4};
  Operands w;
  for (int i = 0; i < OPERANDS; i++) {
    w.count[i] = extent(x, i);
    w.at[i] = calloc((size_t)w.count[i], sizeof(double));
    if (is_given(i))
      for (int64_t n = 0; n < w.count[i]; n++) w.at[i][n] = (float)random_unit();
  }
  naive(x, &w);
  for (int l = 0; l < 3; l++)
    for (int f64 = 0; f64 < 2 && dt_cpu_level(levels[l]) == levels[l]; f64++)
      if (TYPES == 2 || l == 2 || f64 == l) check_level(x, &w, name, f64, levels[l]);
  for (int l = 0; l < 3; l++)
    for (int t = 0; t < TYPES && dt_cpu_level(levels[l]) == levels[l]; t++)
      check_half(x, &w, name, (l + t) % 2 ? DT_TYPE_F16 : DT_TYPE_BF16);
  for (int i = 0; i < OPERANDS; i++) free(w.at[i]);
}

// q, k, v in one buffer [b, t, 3, h, e] as the projection leaves them; o in [b, t, h, e].
static DtAttention by_head(DtAttention x) {
  static const char set; // any pointer: run() has the arrays
  x.slopes = x.sinks = &set;
  x.slope = x.sink_at = x.dslope = x.dsink = (DtAttentionStride){.g = x.group, .r = 1};
  x.bias = -0.05, x.has_sink = 1;
  return x;
}

static DtAttention packed(int64_t b, int64_t h, int64_t t, int64_t e) {
  DtAttention x = {.batch = b, .kv_heads = h, .group = 1, .tq = t, .tk = t, .dim = e, .causal = 1};
  x.scale = 1 / sqrt((double)e);
  x.q = x.k = x.v = x.dq = x.dk = x.dv =
      (DtAttentionStride){.b = t * 3 * h * e, .g = e, .t = 3 * h * e, .e = 1};
  x.o = x.dout = (DtAttentionStride){.b = t * h * e, .g = e, .t = h * e, .e = 1};
  return x;
}

// Every operand [b, g, r, t, e] on its own.
static DtAttention separate(int64_t b, int64_t g, int64_t r, int64_t tq, int64_t tk, int64_t e) {
  DtAttention x = {.batch = b, .kv_heads = g, .group = r, .tq = tq, .tk = tk, .dim = e};
  x.scale = 1 / sqrt((double)e);
  x.q = x.o = x.dout = x.dq = (DtAttentionStride){g * r * tq * e, r * tq * e, tq * e, e, 1};
  x.k = x.v = x.dk = x.dv = (DtAttentionStride){g * tk * e, tk * e, 0, e, 1};
  return x;
}

static void check_forms(void) {
  DtAttention x = packed(1, 2, 300, 40);
  x.window = 1;
  check(&x, "each sees itself");
  x.window = 70;
  check(&x, "a window shorter than a block");
  x.cap = 0.3;
  check(&x, "capped");
  x = separate(1, 1, 2, 131, 420, 24);
  x.window = 190, x.offset = 289;
  check(&x, "a window to one side");
  x.causal = 1, x.ahead = 20;
  check(&x, "a window that looks ahead");
  x.bias = 0.05, x.apart = 1;
  check(&x, "biased by the distance");
  x = by_head(x);
  check(&x, "slopes and sinks");
  x.apart = 0, x.cap = 2;
  check(&x, "all at once");
  x = separate(2, 2, 2, 97, 129, 16);
  x.has_sink = 1, x.sink = 1.5;
  check(&x, "a constant sink");
  x.causal = 1, x.offset = -50;
  check(&x, "queries that see the sink alone");
  x = by_head(separate(2, 2, 2, 202, 404, 24));
  x.causal = 1, x.offset = 101, x.q_turn = 101, x.q_jump = 50, x.window = 60;
  check(&x, "jumps of queries and a window");
  x = by_head(separate(1, 2, 1, 202, 202, 24));
  x.causal = 1, x.offset = 101, x.q_turn = x.k_turn = 101, x.k_jump = 202, x.window = 150;
  check(&x, "jumps of keys and a window");
  x.offset = 350;
  check(&x, "jumps, and keys that no query sees");
}

// What is visited, without a clock: a window of 256 in 4,096 is less than a quarter of the causal.
static void check_blocks(void) {
  DtAttention x = packed(1, 1, 4096, 64);
  for (int backward = 0; backward < 2; backward++) {
    x.window = 0;
    int64_t causal = dt_attention_pairs(&x, backward);
    x.window = 256;
    int64_t windowed = dt_attention_pairs(&x, backward);
    if (causal > 0 && windowed * 4 < causal && windowed >= 4096 * 200) continue;
    printf("%s: %lld pairs of %lld with a window\n", backward ? "backward" : "forward",
           (long long)windowed, (long long)causal);
    failures++;
  }
}

int main(void) {
  DtAttention x = packed(2, 3, 64, 64);
  check(&x, "packed");
  x = packed(1, 2, 300, 40);
  check(&x, "several blocks");
  x = packed(2, 2, 1, 7);
  check(&x, "one position");
  x = separate(2, 2, 3, 131, 257, 33);
  check(&x, "grouped, all keys");
  x.causal = 1, x.offset = 257 - 131;
  check(&x, "grouped, causal, queries at the end");
  x.offset = -50;
  check(&x, "queries that see no key");
  x = separate(2, 2, 2, 202, 404, 24); // blocks 1 and 2 of 4, of 101 positions each
  x.causal = 1, x.offset = 101, x.q_turn = 101;
  check(&x, "two blocks of queries next to each other");
  x.offset = 0, x.q_jump = 202; // blocks 0 and 3
  check(&x, "the first and the last block of queries");
  x = separate(1, 2, 1, 202, 202, 24); // queries of blocks 1 and 2, keys of 0 and 3
  x.causal = 1, x.offset = 101, x.q_turn = x.k_turn = 101, x.k_jump = 202;
  check(&x, "keys of an earlier rank");
  x.offset = -101, x.k_jump = 0, x.q_jump = 202; // the other way
  check(&x, "keys of a later rank");
  x.offset = -500;
  check(&x, "jumps, and queries that see no key");
  x = separate(1, 1, 2, 97, 129, 128);
  x.scale = 4; // steep: some probabilities vanish
  check(&x, "steep");
  x = separate(2, 1, 1, 50, 60, 5);
  x.q.e = 50, x.q.t = 1, x.dk.e = 60, x.dk.t = 1; // [e, t]
  check(&x, "transposed operands");
  check_forms();
  check_blocks();
  dt_parallel_done();
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
