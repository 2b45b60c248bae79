// fake_half: loss = mean over samples of the sum over all parameters of (p - x)^2 / 2, where p is the parameter as it is
// stored. Adjoints are rounded to f16 where parameters are of it.
#include "fake.h"

#include "runtime/base/real.h"
#include "runtime/comm.h"
#include "runtime/layers.h"

#include <math.h>

DtType fake_half_type;
int64_t fake_overflow_from, fake_overflow_to;
int fake_overflow_rank;

enum { D = 6, LAYERS = 4, OUTSIDE = 3 };
enum { EMBED = 70, GAIN = 5, BIAS = 33, W = 20, V = 17 }; // elements
enum { EMBED_AT = 0, GAIN_AT = 80, BIAS_AT = 96, STACK_AT = 144, V_AT = 32, STRIDE = 64 };

static const struct {
  int at, count;
} outside[OUTSIDE] = {{EMBED_AT, EMBED}, {GAIN_AT, GAIN}, {BIAS_AT, BIAS}},
  inside[2] = {{0, W}, {V_AT, V}};

static float stored(const void *param, int i) {
  return fake_half_type == DT_TYPE_BF16  ? dt_from_bf16(((const uint16_t *)param)[i])
         : fake_half_type == DT_TYPE_F16 ? dt_from_f16(((const uint16_t *)param)[i])
                                         : ((const float *)param)[i];
}

static float target(const DtCall *c, int i) { return ((const float *)c->data[0])[i % D]; }

static float loss_of(const DtCall *c, const void *param, int at, int count) {
  float sum = 0;
  for (int i = at; i < at + count; i++) {
    float d = stored(param, i) - target(c, i);
    sum += d * d / 2;
  }
  return sum;
}

static void add_gradient(const DtCall *c, const void *param, float *grad, int at, int count) {
  for (int i = at; i < at + count; i++) {
    float g = (stored(param, i) - target(c, i)) / (float)c->scalars->batch * c->scalars->loss_scale.f32[0];
    if (fake_half_type == DT_TYPE_F16) g = dt_from_f16(dt_to_f16(g));
    if (c->scalars->first >= c->scalars->batch) g = 0;
    grad[i] = c->fresh ? g : grad[i] + g;
  }
}

static bool overflows(const DtCall *c) {
  return fake_overflow_from <= (int64_t)c->scalars->key[1] && (int64_t)c->scalars->key[1] <= fake_overflow_to &&
         dt_world.rank == fake_overflow_rank;
}

static void half_step(const DtCall *c) {
  float loss = 0, *grad = c->grad;
  for (int k = 0; k < OUTSIDE; k++) loss += loss_of(c, c->param, outside[k].at, outside[k].count);
  for (int64_t l = 0; l < LAYERS; l++) {
    const void *w = dt_layer_params(c, 0, l, l + 1);
    for (int k = 0; k < 2; k++) loss += loss_of(c, w, inside[k].at, inside[k].count);
  }
  for (int64_t l = LAYERS - 1; l >= 0; l--) {
    const void *w = dt_layer_params(c, 0, l, l - 1);
    float *g = dt_layer_grads(c, 0, l);
    for (int k = 0; k < 2; k++) add_gradient(c, w, g, inside[k].at, inside[k].count);
    if (l == 2 && overflows(c)) g[V_AT + 3] = INFINITY;
    dt_layer_reduce(c, 0, l);
  }
  dt_outside_grads(c);
  for (int k = 0; k < OUTSIDE; k++)
    add_gradient(c, c->param, grad, outside[k].at, outside[k].count);
  *(float *)c->out = c->scalars->first < c->scalars->batch ? loss / (float)c->scalars->batch : 0;
}

static void half_update(const DtCall *c) {
  const float *v = c->scalars->update.f32;
  float *w = c->param, *g = c->grad, *m = c->moment[0], *u = c->moment[1];
  for (int64_t i = 0; i < c->count; i++) {
    float x = g[i] * v[4];
    m[i] = 0.9f * m[i] + 0.1f * x;
    u[i] = 0.99f * u[i] + 0.01f * x * x;
    w[i] -= v[0] * (m[i] / v[1] / (sqrtf(u[i]) / v[2] + 1e-8f));
  }
  if (c->rounded) dt_narrow(fake_half_type, c->rounded, w, c->count);
}

#define NORMAL .init = DT_NORMAL, .init_b = 1
static const DtStack half_stack[] = {
    {.name = "layer", .count = LAYERS, .offset = STACK_AT, .stride = STRIDE}};
static const DtParam half_param[] = {
    {.name = "embed", .rank = 1, .extent = {EMBED}, .count = EMBED, .offset = EMBED_AT, NORMAL},
    {.name = "gain", .rank = 1, .extent = {GAIN}, .count = GAIN, .offset = GAIN_AT, .init = DT_ONES},
    {.name = "bias", .rank = 1, .extent = {BIAS}, .count = BIAS, .offset = BIAS_AT,
     .init = DT_UNIFORM, .init_a = -1, .init_b = 1},
    {.name = "layer.*.w", .rank = 2, .nstack = 1, .extent = {LAYERS, W}, .count = LAYERS * W,
     .offset = STACK_AT, .stack = 1, NORMAL},
    {.name = "layer.*.v", .rank = 2, .nstack = 1, .extent = {LAYERS, V}, .count = LAYERS * V,
     .offset = STACK_AT + V_AT, .stack = 1, NORMAL},
};
static const DtData half_data[] = {
    {.name = "x", .type = DT_TYPE_F32, .rank = 2, .extent = {1, D}, .path = "x.npy"}};

const DtProgram fake_half = {
    .model = "FakeHalf",
    .build = "0f1e2d3c4b5a6978",
    .type = DT_TYPE_F32,
    .ndata = 1,
    .nparam = 5,
    .nmoment = 2,
    .data = half_data,
    .param = half_param,
    .train = {.data = DT_DATA_ARRAYS,
              .batch = 8,
              .microbatch = 1,
              .steps = 8,
              .seed = 5,
              .optimizer = DT_ADAMW,
              .lr = 0.01,
              .beta1 = 0.9,
              .beta2 = 0.99,
              .eps = 1e-8,
              .schedule = DT_CONSTANT,
              .clip = 4,
              .precision = "fp32"},
    .param_count = STACK_AT + LAYERS * STRIDE,
    .frame_bytes = 64,
    .stores_grad = true,
    .step = half_step,
    .update = half_update,
    .nstack = 1,
    .stack = half_stack,
    .listing = "",
};
