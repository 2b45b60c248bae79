// An optimizer step over a batch in microbatches, and validation. A batch is summed over its
// microbatches in order, in double precision, so that the result does not depend on anything but
// the data.
#define _GNU_SOURCE
#include "runtime/run.h"
#include "runtime/schedule.h"
#include "runtime/signals.h"
#include "runtime/trace.h"

#include <math.h>
#include <string.h>

// A batch: `count` samples of a set from position `from` on.
typedef struct {
  const DtDataset *set;
  int64_t from, count;
  bool shuffle;
  bool stoppable; // a signal ends it early
} Batch;

enum { MOST_RESULTS = 1 + DT_MAX_METRICS + DT_MAX_TOTALS };

double dt_seconds(void) { return 1e-9 * (double)dt_nanoseconds(); }

// Fills the buffers with samples [first, first + micro) of the batch. Rows past its end repeat a
// sample of it: `batch` gives them weight 0, and any values that are in range will do.
static int load(DtRun *r, const Batch *b, int64_t first, DtError *e) {
  dt_trace_begin("load");
  for (int64_t row = 0; row < r->micro; row++) {
    int64_t i = first + row < b->count ? first + row : first;
    int64_t sample = dt_dataset_sample(b->set, b->from + i, r->seed, b->shuffle);
    if (dt_dataset_row(b->set, sample, row, r->buffer, e)) return e->status;
  }
  dt_trace_end("load");
  return 0;
}

// Runs `entry` over the batch's microbatches and adds up its first n results.
static int over_batch(DtRun *r, DtEntry *entry, const char *name, const Batch *b, const void *total,
                      int n, double *sum, DtError *e) {
  const DtProgram *p = r->p;
  double out[MOST_RESULTS]; // of either real type
  DtCall call = {.batch = (int32_t)b->count,
                 .total = total,
                 .param = r->param,
                 .grad = r->grad,
                 .frame = r->frame,
                 .out = out,
                 .seed = r->seed,
                 .step = (uint64_t)r->step + 1};
  for (int k = 0; k < p->ndata; k++) call.data[k] = r->buffer[k];
  for (int i = 0; i < n; i++) sum[i] = 0;
  for (int64_t first = 0; first < b->count; first += r->micro) {
    if (load(r, b, first, e)) return e->status;
    call.first = (int32_t)first;
    call.fresh = first == 0;
    memset(out, 0, sizeof out);
    dt_trace_begin(name);
    entry(&call);
    dt_trace_end(name);
    for (int i = 0; i < n; i++) sum[i] += dt_get(p, out, i);
    if (b->stoppable && dt_stop_signal()) return dt_fail(e, DT_EXIT_STOPPED, "stopped by a signal");
  }
  return 0;
}

static void as_real(const DtProgram *p, void *out, const double *v, int n) {
  for (int i = 0; i < n; i++) dt_set(p, out, i, v[i]);
}

static void take(const DtProgram *p, DtResult *result, const double *sum) {
  result->loss = sum[0];
  for (int i = 0; i < p->nmetric; i++) result->metric[i] = sum[1 + i];
}

static double grad_norm(DtRun *r) {
  double out[1] = {0};
  DtCall call = {.param = r->param,
                 .grad = r->grad,
                 .frame = r->frame,
                 .out = out,
                 .seed = r->seed,
                 .step = (uint64_t)r->step + 1};
  dt_trace_begin("norm");
  r->p->norm(&call);
  dt_trace_end("norm");
  return sqrt(dt_get(r->p, out, 0));
}

static void update(DtRun *r, double rate, double norm) {
  const DtTrain *t = &r->p->train;
  // The small number is PyTorch's (clip_grad_norm_), so that clipped runs compare.
  double scale = t->clip > 0 && norm > t->clip ? t->clip / (norm + 1e-6) : 1;
  double v[4] = {rate, dt_bias_correction(t->beta1, r->step + 1),
                 dt_bias_correction(t->beta2, r->step + 1), scale};
  double scalar[4];
  as_real(r->p, scalar, v, 4);
  DtCall call = {.param = r->param,
                 .grad = r->grad,
                 .frame = r->frame,
                 .scalar = scalar,
                 .seed = r->seed,
                 .step = (uint64_t)r->step + 1};
  for (int i = 0; i < r->p->nmoment; i++) call.moment[i] = r->moment[i];
  dt_trace_begin("update");
  r->p->update(&call);
  dt_trace_end("update");
}

int dt_step(DtRun *r, DtResult *result, DtError *e) {
  const DtProgram *p = r->p;
  const DtTrain *t = &p->train;
  double began = dt_seconds(), sum[MOST_RESULTS], total[DT_MAX_TOTALS];
  Batch b = {&r->train, r->samples, r->o.batch, !r->o.no_shuffle, false};
  if (p->count) {
    if (over_batch(r, p->count, "count", &b, NULL, p->ntotal, sum, e)) return e->status;
    as_real(p, total, sum, p->ntotal);
  }
  if (!p->stores_grad) dt_fill_zero(r->grad, (size_t)p->param_count * dt_type_size(p->type));
  if (over_batch(r, p->step, "step", &b, total, 1 + p->nmetric, sum, e)) return e->status;
  take(p, result, sum);
  result->norm = grad_norm(r);
  result->rate = dt_rate(t->schedule, r->o.lr, t->warmup, r->o.schedule_steps, t->final, r->step);
  result->samples = r->o.batch;
  bool finite = isfinite(result->loss) && isfinite(result->norm);
  if (finite) {
    update(r, result->rate, result->norm);
    r->step++;
    r->samples += r->o.batch;
  }
  result->seconds = dt_seconds() - began;
  if (finite) return 0;
  return dt_fail(e, DT_EXIT_NOT_FINITE, "step %lld: %s is %g; nothing was stepped",
                 (long long)r->step + 1, isfinite(result->loss) ? "the gradient norm" : "the loss",
                 isfinite(result->loss) ? result->norm : result->loss);
}

int dt_evaluate(DtRun *r, DtResult *result, DtError *e) {
  const DtProgram *p = r->p;
  double began = dt_seconds(), sum[MOST_RESULTS], total[DT_MAX_TOTALS];
  int64_t count = r->val.count;
  if (r->o.eval_samples > 0 && r->o.eval_samples < count) count = r->o.eval_samples;
  // Samples are numbered in int32 within a batch, and here the whole set is one.
  if (count > INT32_MAX - r->micro) count = INT32_MAX - r->micro;
  Batch b = {&r->val, 0, count, false, true};
  if (p->count && !r->val_totalled) {
    if (over_batch(r, p->count, "count", &b, NULL, p->ntotal, r->val_total, e)) return e->status;
    r->val_totalled = true;
  }
  as_real(p, total, r->val_total, p->ntotal);
  if (over_batch(r, p->eval, "eval", &b, total, 1 + p->nmetric, sum, e)) return e->status;
  take(p, result, sum);
  result->samples = count;
  result->seconds = dt_seconds() - began;
  return 0;
}
