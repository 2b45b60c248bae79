#include "fake.h"

#include "runtime/base/parallel.h"
#include "runtime/layers.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t fake_nan_at;
int fake_delay;
int fake_micro = 3;
int fake_overrun;

static void *itself(const void *device) { return (void *)device; }
void *(*fake_at)(const void *device) = itself;
static const DtScalars *scalars(const DtCall *c) { return fake_at(c->scalars); }

// A signal does not cut it short.
static void dawdle(void) {
  if (fake_delay <= 0 || dt_rehearsing) return;
  struct timespec left = {fake_delay / 1000000, fake_delay % 1000000 * 1000L};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

// fake_arrays: p = sum over d of x[d] * s[0][d] * s[1][d] * w[d] + c; loss = mean of (p - y)^2 / 2.
enum { D = 6, MICRO = 3, W = 0, C = 16, S = 32, SIZE = 48 };

static float predict(const DtCall *c, int b) {
  const float *x = (const float *)fake_at(c->data[0]) + b * D, *w = fake_at(c->param);
  float p = w[C];
  for (int d = 0; d < D; d++) p += x[d] * w[S + d] * w[S + D + d] * w[W + d];
  return p;
}

static void arrays_pass(const DtCall *c, int backward) {
  float *out = fake_at(c->out), *g = fake_at(c->grad);
  const float *w = fake_at(c->param);
  const int32_t *y = fake_at(c->data[1]);
  out[0] = out[1] = 0;
  for (int b = 0; b < fake_micro && scalars(c)->first + b < scalars(c)->batch; b++) {
    const float *x = (const float *)fake_at(c->data[0]) + b * D;
    float r = predict(c, b) - (float)y[b], n = (float)scalars(c)->batch;
    out[0] += r * r / 2 / n;
    out[1] += fabsf(r) / n;
    if (!backward) continue;
    g[C] += r / n;
    for (int d = 0; d < D; d++) {
      g[W + d] += r / n * x[d] * w[S + d] * w[S + D + d];
      g[S + d] += r / n * x[d] * w[S + D + d] * w[W + d];
      g[S + D + d] += r / n * x[d] * w[S + d] * w[W + d];
    }
  }
  if (fake_nan_at && (int64_t)scalars(c)->key[1] == fake_nan_at && backward) out[0] = NAN;
}

static void arrays_step(const DtCall *c) {
  dawdle();
  if (fake_overrun) ((char *)fake_at(c->frame))[64] = 1;
  arrays_pass(c, 1);
}

static void arrays_eval(const DtCall *c) { arrays_pass(c, 0); }

static void arrays_update(const DtCall *c) {
  const float *v = scalars(c)->update.f32;
  float *w = fake_at(c->param), *g = fake_at(c->grad), *m = fake_at(c->moment[0]), *u = fake_at(c->moment[1]);
  for (int64_t i = 0; i < c->count; i++) {
    float x = g[i] * v[4];
    m[i] = 0.9f * m[i] + 0.1f * x;
    u[i] = 0.99f * u[i] + 0.01f * x * x;
    w[i] -= v[0] * (m[i] / v[1] / (sqrtf(u[i]) / v[2] + 1e-8f));
  }
}

static const DtParam arrays_param[] = {
    {.name = "head.weight",
     .rank = 1,
     .extent = {D},
     .count = D,
     .offset = W,
     .init = DT_NORMAL,
     .init_b = 0.5},
    {.name = "head.bias", .rank = 1, .extent = {1}, .count = 1, .offset = C, .init = DT_ZEROS},
    {.name = "blocks.*.scale",
     .rank = 2,
     .nstack = 1,
     .extent = {2, D},
     .count = 2 * D,
     .offset = S,
     .init = DT_UNIFORM,
     .init_a = 0.5,
     .init_b = 1.5},
};
static const DtData arrays_data[] = {
    {.name = "x", .type = DT_TYPE_F32, .rank = 2, .extent = {MICRO, D}, .path = "x.npy"},
    {.name = "y",
     .type = DT_TYPE_I32,
     .rank = 1,
     .extent = {MICRO},
     .checked = true,
     .lo = 0,
     .hi = 10,
     .path = "y.npy"},
};
static const char *const arrays_metric[] = {"error"};
static const DtKernelInfo arrays_kernel[] = {{"linear_fwd", "fake.dt:3", 1000, 2000}};

const DtProgram fake_arrays = {
    .model = "FakeArrays",
    .build = "0123456789abcdef",
    .type = DT_TYPE_F32,
    .ndata = 2,
    .nparam = 3,
    .nmetric = 1,
    .nmoment = 2,
    .nkernel = 1,
    .data = arrays_data,
    .param = arrays_param,
    .metric = arrays_metric,
    .kernel = arrays_kernel,
    .train = {.data = DT_DATA_ARRAYS,
              .batch = 8,
              .microbatch = MICRO,
              .steps = 20,
              .seed = 1,
              .optimizer = DT_ADAMW,
              .lr = 0.05,
              .beta1 = 0.9,
              .beta2 = 0.99,
              .eps = 1e-8,
              .schedule = DT_COSINE,
              .warmup = 4,
              .final = 0.1,
              .clip = 1,
              .precision = "fp32"},
    .param_count = SIZE,
    .frame_bytes = 64,
    .step = arrays_step,
    .eval = arrays_eval,
    .update = arrays_update,
    .listing = "x [3, 6] f32\ny [3] i32\n",
};

// fake_tokens: cross-entropy of table[token] with the target, over targets that are not 0.
enum { V = 16, T = 8, ROWS = 4 };

static void tokens_count(const DtCall *c) {
  const int32_t *target = fake_at(c->data[1]);
  double n = 0;
  for (int b = 0; b < ROWS && scalars(c)->first + b < scalars(c)->batch; b++)
    for (int t = 0; t < T; t++) n += target[b * T + t] != 0;
  *(double *)fake_at(c->out) = n;
}

static void tokens_pass(const DtCall *c, double *g) {
  const int32_t *token = fake_at(c->data[0]), *target = fake_at(c->data[1]);
  double total = scalars(c)->total.f64[0], loss = 0;
  for (int b = 0; b < ROWS && scalars(c)->first + b < scalars(c)->batch; b++)
    for (int t = 0; t < T; t++) {
      const double *row = (const double *)fake_at(c->param) + token[b * T + t] * V;
      int want = target[b * T + t];
      double sum = 0;
      if (want == 0) continue;
      for (int v = 0; v < V; v++) sum += exp(row[v]);
      loss += (log(sum) - row[want]) / total;
      for (int v = 0; g && v < V; v++)
        g[token[b * T + t] * V + v] += (exp(row[v]) / sum - (v == want)) / total;
    }
  *(double *)fake_at(c->out) = loss;
}

static void tokens_step(const DtCall *c) {
  dawdle();
  tokens_pass(c, fake_at(c->grad));
}

static void tokens_eval(const DtCall *c) { tokens_pass(c, 0); }

static void tokens_update(const DtCall *c) {
  const double *v = scalars(c)->update.f64;
  double *w = fake_at(c->param), *g = fake_at(c->grad), *m = fake_at(c->moment[0]);
  for (int64_t i = 0; i < c->count; i++) {
    m[i] = 0.9 * m[i] + g[i] * v[4];
    w[i] -= v[0] * m[i];
  }
}

static void tokens_sample(const DtCall *c) {
  const int32_t *token = fake_at(c->data[0]);
  for (int t = 0; t < T; t++)
    for (int v = 0; v < V; v++)
      ((double *)fake_at(c->out))[t * V + v] = ((const double *)fake_at(c->param))[token[t] * V + v];
}

static const DtParam tokens_param[] = {{.name = "table",
                                        .rank = 2,
                                        .extent = {V, V},
                                        .count = V * V,
                                        .init = DT_NORMAL,
                                        .init_b = 0.02}};
static const DtData tokens_data[] = {
    {.name = "tokens",
     .type = DT_TYPE_I32,
     .rank = 2,
     .extent = {ROWS, T},
     .checked = true,
     .lo = 0,
     .hi = V},
    {.name = "targets",
     .type = DT_TYPE_I32,
     .rank = 2,
     .extent = {ROWS, T},
     .checked = true,
     .lo = 0,
     .hi = V},
};

const DtProgram fake_tokens = {
    .model = "FakeTokens",
    .build = "fedcba9876543210",
    .type = DT_TYPE_F64,
    .param_type = DT_TYPE_F64,
    .reduce_type = DT_TYPE_F64,
    .ndata = 2,
    .nparam = 1,
    .ntotal = 1,
    .nmoment = 1,
    .data = tokens_data,
    .param = tokens_param,
    .train = {.data = DT_DATA_TOKENS,
              .data_path = "train.bin",
              .length = T,
              .batch = 4,
              .microbatch = ROWS,
              .steps = 20,
              .seed = 2,
              .optimizer = DT_SGD,
              .lr = 0.5,
              .momentum = 0.9,
              .schedule = DT_CONSTANT,
              .precision = "fp64"},
    .param_count = V * V,
    .frame_bytes = 64,
    .count = tokens_count,
    .step = tokens_step,
    .eval = tokens_eval,
    .update = tokens_update,
    .sample = tokens_sample,
    .sample_length = T,
    .sample_vocab = V,
};

// fake_layers: loss = mean over samples of sum over layers and elements of (w - x)^2 / 2.
enum { LAYERS = 16, EACH = 96 };

static void layers_step(const DtCall *c) {
  double loss = 0, *grad;
  const double *x = fake_at(c->data[0]);
  for (int64_t l = 0; l < LAYERS; l++) {
    const double *w = fake_at(dt_layer_params(c, 0, l, l + 1));
    for (int i = 0; i < EACH && scalars(c)->first < scalars(c)->batch; i++)
      loss += (w[i] - x[i % D]) * (w[i] - x[i % D]) / 2;
    dawdle();
  }
  dt_outside_grads(c);
  for (int64_t l = LAYERS - 1; l >= 0; l--) {
    const double *w = fake_at(dt_layer_params(c, 0, l, l - 1));
    grad = fake_at(dt_layer_grads(c, 0, l));
    if (c->fresh) memset(grad, 0, EACH * sizeof *grad);
    for (int i = 0; i < EACH && scalars(c)->first < scalars(c)->batch; i++) grad[i] += (w[i] - x[i % D]) / scalars(c)->batch;
    dawdle();
    dt_layer_reduce(c, 0, l);
  }
  *(double *)fake_at(c->out) = loss / scalars(c)->batch;
}

static const DtStack layers_stack[] = {{.name = "layer", .count = LAYERS, .stride = EACH}};
static const DtParam layers_param[] = {{.name = "layer.*.w",
                                        .rank = 2,
                                        .nstack = 1,
                                        .extent = {LAYERS, EACH},
                                        .count = LAYERS * EACH,
                                        .init = DT_NORMAL,
                                        .init_b = 1,
                                        .stack = 1}};
static const DtData layers_data[] = {
    {.name = "x", .type = DT_TYPE_F64, .rank = 2, .extent = {1, D}, .path = "x.npy"}};

const DtProgram fake_layers = {
    .model = "FakeLayers",
    .build = "00112233445566ff",
    .type = DT_TYPE_F64,
    .param_type = DT_TYPE_F64,
    .reduce_type = DT_TYPE_F64,
    .ndata = 1,
    .nparam = 1,
    .nmoment = 1,
    .data = layers_data,
    .param = layers_param,
    .train = {.data = DT_DATA_ARRAYS,
              .batch = 2,
              .microbatch = 1,
              .steps = 6,
              .seed = 3,
              .optimizer = DT_SGD,
              .lr = 0.1,
              .momentum = 0.9,
              .schedule = DT_CONSTANT,
              .precision = "fp64"},
    .param_count = LAYERS * EACH,
    .frame_bytes = 64,
    .stores_grad = true,
    .step = layers_step,
    .update = tokens_update,
    .nstack = 1,
    .stack = layers_stack,
    .listing = "",
};
