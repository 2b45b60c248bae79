// An optimizer step over a batch in microbatches, and validation. A batch is summed over its
// microbatches in order and then over ranks in order, in double precision, so that the result does
// not depend on anything but the data and the layout.
#define _GNU_SOURCE
#include "runtime/base/parallel.h"
#include "runtime/control.h"
#include "runtime/train/run.h"
#include "runtime/pipeline/schedule.h"
#include "runtime/base/signals.h"
#include "runtime/base/trace.h"

#include <math.h>
#include <signal.h>
#include <string.h>

// A batch: `count` samples of a set from position `from` on.
typedef struct {
  const DtDataset *set;
  int64_t from, count;
  int64_t step; // that it is of, or that comes next: the key of its random numbers
  bool shuffle;
  bool stoppable; // a signal ends it early
  bool gradients;
} Batch;

enum { REHEARSED = 4 };

// Ranks look for signals together about as often, in seconds: a look is an exchange.
static const double LOOK_SECONDS = 1;

// The numbers that ranks sum at the end of a step: results, then flags, then an element for each instance and
// owner of a piece of it. Where only some ranks have a number the others add zeros, which
// change no bit.
enum {
  SHARED_TERM = 1 + DT_MAX_METRICS,
  SHARED_INT,
  SHARED_HUP,
  SHARED_TROUBLE,
  SHARED_WRITTEN, // a rank's job for a checkpoint behind the steps has ended
  SHARED_UNWRITTEN, // and has failed
  SHARED_PACE, // the first rank's seconds for a microbatch
  SHARED_UNCOUNTED, // totals of the next batch are not known
  SHARED_TOTAL,
  SHARED_NORM = SHARED_TOTAL + DT_MAX_TOTALS
};

double dt_seconds(void) { return 1e-9 * (double)dt_nanoseconds(); }

// The microbatches of this rank: [first, first + each) of those of the whole batch, in order; what
// lies past its end is padding.
typedef struct {
  int64_t first, each;
} Share;

static Share share_of(const DtRun *r, const Batch *b) {
  int64_t all = (b->count + r->micro - 1) / r->micro, n = dt_world.degree[DT_AXIS_DP];
  Share s = {.each = (all + n - 1) / n};
  // Microbatches between the first and the last are alike, one by one or in pairs.
  if (dt_rehearsing && s.each > REHEARSED) s.each = REHEARSED + s.each % 2;
  s.first = s.each * dt_world.coord[DT_AXIS_DP];
  return s;
}

// Fills the buffers with samples [first, first + micro) of the batch. Rows past its end repeat a
// sample of it: `batch` gives them weight 0, and any values that are in range will do.
static int load_rows(DtRun *r, const Batch *b, int64_t first, void *const *buffer, DtError *e) {
  for (int64_t row = 0; row < r->micro; row++) {
    int64_t i = first + row < b->count ? first + row : first < b->count ? first : 0;
    int64_t sample = dt_dataset_sample(b->set, b->from + i, r->seed, b->shuffle);
    if (dt_dataset_row(b->set, sample, row, buffer, e)) return e->status;
  }
  return 0;
}

static int load(DtRun *r, const Batch *b, int64_t first, void *const *buffer, DtError *e) {
  void *rows[DT_MAX_DATA];
  const DtData *data = r->p->data;
  if (dt_rehearsing) return 0;
  dt_trace_begin("load");
  for (int k = 0; k < r->p->ndata; k++) rows[k] = dt_device_map(buffer[k], dt_data_bytes(&data[k]), DT_WRITE);
  int failed = load_rows(r, b, first, rows, e);
  for (int k = 0; k < r->p->ndata; k++) dt_device_unmap(buffer[k], rows[k], dt_data_bytes(&data[k]), DT_WRITE);
  if (!failed) dt_trace_end("load");
  return failed;
}

int dt_stop_wanted(void) {
  if (dt_rehearsing) return 0;
  int parent = dt_comm_stop_request();
  return dt_stop_signal() ? dt_stop_signal() : parent;
}

static int load_micro(DtRun *r, const void *batch, int64_t micro, DtError *e) {
  const Batch *b = batch;
  return load(r, b, (share_of(r, b).first + micro) * r->micro, r->buffer, e);
}

static int look_for_signals(DtRun *r, DtError *e) {
  r->stop = dt_agree(dt_stop_wanted());
  return r->stop ? dt_fail(e, DT_EXIT_STOPPED, "stopped by a signal") : 0;
}

// All ranks take the same number of microbatches from one look to the next, as all have the same pace.
static void set_pace(DtRun *r, double seconds) {
  double n = seconds > 0 ? LOOK_SECONDS / seconds : 1;
  r->look.every = n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int64_t)n;
}

static void begin_looks(DtRun *r) {
  if (r->look.every < 1) r->look.every = 1; // the first step: nothing is known of its length
  r->look.began = r->look.since = dt_seconds();
  r->look.last = 0;
  r->look.next = r->look.every;
}

// Of the signals that any rank has, the one with the largest number, TERM, INT or HUP; and the slowest rank's pace.
static int look_together(DtRun *r, int64_t done, DtError *e) {
  double now = dt_seconds(), v[2] = {dt_stop_wanted(), (now - r->look.since) / (double)(done - r->look.last)};
  DtNote note = {"flags within a step", -1, r->p->source};
  dt_control_reduce(dt_group(DT_ALL_AXES), DT_TYPE_F64, DT_MAX, v, 2, note);
  int64_t most = 2 * (done - r->look.last); // the first ones may be much faster than the others: they need not wait
  set_pace(r, v[1]);
  if (r->look.every > most) r->look.every = most;
  r->look.since = now;
  r->look.last = done;
  r->look.next = done + r->look.every;
  r->stop = (int)v[0];
  if (!r->stop) return 0;
  dt_zero_settle(&r->zero); // what is on its way to and from other ranks
  return dt_fail(e, DT_EXIT_STOPPED, "stopped by a signal");
}

// After `done` of a rank's `all` microbatches of a step. The others can be left undone: weights and moments are those of
// the step before.
static int within_step(DtRun *r, int64_t done, int64_t all, DtError *e) {
  if (dt_rehearsing || done == all) return 0;
  if (r->tick) r->tick(r->tick_of, done, all);
  if (dt_world.size == 1) return look_for_signals(r, e);
  return done >= r->look.next ? look_together(r, done, e) : 0;
}

// The same through a pipeline: all microbatches of a step at once, those of validation in groups.
static int through_stages(DtRun *r, const Batch *b, const void *total, int n, double *sum,
                          DtError *e) {
  const DtWalk *w = &r->walk;
  Share s = share_of(r, b);
  DtWalkJob job = {.load = load_micro, .batch = b, .total = total, .first = s.first * r->micro,
                   .count = b->count, .forward = b->gradients ? DT_FORWARD : DT_EVAL, .nresult = n, .sum = sum};
  for (int i = 0; i < n; i++) sum[i] = 0;
  if (b->gradients) return dt_walk(r, DT_WALK_TRAIN, 0, &job, e);
  // Groups are alike: one is rehearsed.
  for (int64_t k = 0; k < w->groups && !(dt_rehearsing && k); k++)
    if (dt_walk(r, DT_WALK_EVAL, k * w->group, &job, e) || look_for_signals(r, e)) return e->status;
  return w->rest ? dt_walk(r, DT_WALK_REST, w->groups * w->group, &job, e) : 0;
}

_Static_assert((int)DT_AXES <= (int)DT_MAX_COORDS, "a rank's numbers along all axes");

DtScalars dt_scalars(const DtRun *r, uint64_t step, int64_t batch, const void *total) {
  DtScalars s = {.key = {r->seed, step}, .batch = (int32_t)batch};
  for (int a = 0; a < DT_AXES; a++) s.coord[a] = dt_world.coord[a];
  dt_set(r->p, &s.loss_scale, 0, 1);
  if (total) memcpy(&s.total, total, (size_t)r->p->ntotal * dt_type_size(r->p->type));
  return s;
}

void dt_results_clear(const DtRun *r, int call) {
  dt_device_zero(dt_results(r, call), DT_MOST_RESULTS * sizeof(double));
}

void dt_results_get(const DtRun *r, int call, double *v, int n) {
  double out[DT_MOST_RESULTS] = {0}; // of either real type
  dt_device_get(out, dt_results(r, call), (size_t)n * dt_type_size(r->p->type));
  for (int i = 0; i < n; i++) v[i] = dt_get(r->p, out, i);
}

// A microbatch on its way through the program.
typedef struct Micro {
  DtCall call;
  DtScalars scalars;
} Micro;

// The calls of those that are under way at once: they write to no common memory but gradients.
static void prepare_calls(DtRun *r, const Batch *b, const void *total, Micro m[]) {
  for (int i = 0; i < dt_in_flight(r->p); i++) {
    m[i].scalars = dt_scalars(r, (uint64_t)b->step, b->count, total);
    if (b->gradients) dt_set(r->p, &m[i].scalars.loss_scale, 0, r->scaling.scale);
    m[i].call = (DtCall){.scalars = &r->scalars[i], .frame = i ? r->other_frame : r->frame,
                         .out = dt_results(r, i)};
    for (int k = 0; k < r->p->ndata; k++)
      m[i].call.data[k] = i ? r->other_buffer[k] : r->buffer[k];
  }
}

// Runs the entry on n microbatches at once, of which the first is number k of the rank's `each`.
static int run_micro(DtRun *r, DtEntry *entry, const char *name, const Batch *b, Micro m[], int n,
                     int64_t k, DtError *e) {
  Share s = share_of(r, b);
  for (int i = 0; i < n; i++) {
    int64_t first = (s.first + k + i) * r->micro;
    if (load(r, b, first, i ? r->other_buffer : r->buffer, e)) return e->status;
    m[i].scalars.first = (int32_t)first;
    dt_device_put(&r->scalars[i], &m[i].scalars, sizeof m[i].scalars);
    dt_results_clear(r, i);
  }
  dt_comm_micro(k);
  dt_trace_begin(name);
  for (int i = 0; i < n; i++) {
    int64_t number = k + i;
    if (b->gradients) dt_zero_begin_step(&r->zero, &m[i].call, number == 0, number == s.each - 1);
    else if (entry != r->p->count) dt_zero_begin(&r->zero, &m[i].call);
  }
  if (n > 1) dt_flight_run(entry, name, &m[0].call, &m[1].call, k);
  else entry(&m[0].call);
  if (b->gradients) dt_zero_end_step(&r->zero);
  dt_comm_micro(-1);
  dt_trace_end(name);
  return 0;
}

// Runs `entry` over this rank's microbatches of the batch and adds up its first n results.
static int over_batch(DtRun *r, DtEntry *entry, const char *name, const Batch *b, const void *total,
                      int n, double *sum, DtError *e) {
  const DtProgram *p = r->p;
  Micro m[DT_MOST_IN_FLIGHT];
  Share s = share_of(r, b);
  if (p->nchunk && (!entry || entry != p->count)) return through_stages(r, b, total, n, sum, e);
  prepare_calls(r, b, total, m);
  for (int i = 0; i < n; i++) sum[i] = 0;
  for (int64_t k = 0, now; k < s.each; k += now) {
    int64_t left = s.each - k;
    now = left < dt_in_flight(p) ? left : dt_in_flight(p);
    if (run_micro(r, entry, name, b, m, (int)now, k, e)) return e->status;
    for (int j = 0; j < now; j++) {
      double result[DT_MOST_RESULTS];
      dt_results_get(r, j, result, n);
      for (int i = 0; i < n; i++) sum[i] += result[i];
    }
    if (b->stoppable && look_for_signals(r, e)) return e->status;
    if (b->gradients && within_step(r, k + now, s.each, e)) return e->status;
  }
  return 0;
}

// One of the ranks that hold the same results, or parts of one result, gives them to the sum; of a
// pipeline's the last, which computes the loss.
static bool gives_results(void) {
  return dt_tp_coord() == 0 && dt_world.coord[DT_AXIS_CP] == 0 &&
         dt_world.coord[DT_AXIS_PP] == dt_world.degree[DT_AXIS_PP] - 1;
}

// v[0, n) = their sums over all ranks, in rank order.
static void sum_over_ranks(const DtRun *r, double *v, int64_t n, const char *what) {
  if (dt_world.size == 1) return;
  DtNote note = {what, -1, r->p->source};
  dt_control_reduce(dt_group(DT_ALL_AXES), DT_TYPE_F64, DT_SUM, v, n, note);
}

static int over_world(DtRun *r, DtEntry *entry, const char *name, const Batch *b, const void *total,
                      int n, double *sum, DtError *e) {
  if (over_batch(r, entry, name, b, total, n, sum, e)) return e->status;
  for (int i = 0; i < n && !gives_results(); i++) sum[i] = 0;
  sum_over_ranks(r, sum, n, name);
  return 0;
}

static void as_real(const DtProgram *p, void *out, const double *v, int n) {
  for (int i = 0; i < n; i++) dt_set(p, out, i, v[i]);
}

// The sign of a NaN says nothing, and is not to be printed: 0 / 0 has one on some processors.
static double unsigned_nan(double v) { return isnan(v) ? fabs(v) : v; }

static void take(const DtProgram *p, DtResult *result, const double *sum) {
  result->loss = unsigned_nan(sum[0]);
  for (int i = 0; i < p->nmetric; i++) result->metric[i] = unsigned_nan(sum[1 + i]);
}

int64_t dt_shared_count(const DtUnits *u, const DtProgram *p, const DtCut *cut) {
  return SHARED_NORM + u->model * (p->tp > 1 ? p->tp : 1) * cut->owners;
}

// Adds this rank's squares to the shared numbers; of ranks that hold the same pieces one does.
static void share_norm(DtRun *r) {
  const DtZero *z = &r->zero;
  int64_t each = dt_tp_degree() * (int64_t)z->cut.owners, tp = dt_tp_coord();
  double *part = r->shared + SHARED_NORM + tp * z->cut.owners + z->shard->me;
  if (z->across->me != 0) return;
  dt_norm_parts(r, part, each);
}

// The totals of a batch: counted now, or at the end of the step before.
static int totals(DtRun *r, const Batch *b, void *total, DtError *e) {
  double sum[DT_MOST_RESULTS];
  if (!r->p->count) return 0;
  bool known = r->counted && r->next_from == b->from;
  if (!known && over_world(r, r->p->count, "count", b, NULL, r->p->ntotal, sum, e))
    return e->status;
  as_real(r->p, total, known ? r->next_total : sum, r->p->ntotal);
  r->counted = false;
  return 0;
}

// Counts the next batch, so that its totals are exchanged with this step's. A batch that cannot be read
// is reported in its step.
static void count_next(DtRun *r, const Batch *b) {
  DtError ignored = {0};
  Batch next = *b;
  double sum[DT_MOST_RESULTS];
  next.from += b->count;
  next.step++;
  next.gradients = false;
  r->next_from = next.from;
  if (!r->p->count || dt_world.size == 1) return;
  int failed = over_batch(r, r->p->count, "count", &next, NULL, r->p->ntotal, sum, &ignored);
  r->shared[SHARED_UNCOUNTED] = failed != 0;
  for (int i = 0; !failed && gives_results() && i < r->p->ntotal; i++)
    r->shared[SHARED_TOTAL + i] = sum[i];
}

// The end of a step's passes: gradients are reduced, and all ranks know the loss, the norm, and
// what was asked of any of them.
static void finish_passes(DtRun *r, const Batch *b, const double *sum, DtResult *result) {
  int n = 1 + r->p->nmetric, stop = dt_stop_wanted();
  memset(r->shared, 0, (size_t)r->nshared * sizeof *r->shared);
  count_next(r, b);
  dt_zero_finish(&r->zero);
  dt_walk_tie(r);
  dt_trace_begin("norm");
  share_norm(r);
  for (int i = 0; i < n && gives_results(); i++) r->shared[i] = sum[i];
  r->shared[SHARED_TERM] = stop == SIGTERM;
  r->shared[SHARED_INT] = stop == SIGINT;
  r->shared[SHARED_HUP] = stop == SIGHUP;
  r->shared[SHARED_TROUBLE] = r->trouble;
  DtBehindState behind = r->behind ? dt_behind_state(r->behind) : DT_BEHIND_IDLE;
  r->shared[SHARED_WRITTEN] = behind == DT_BEHIND_DONE || behind == DT_BEHIND_FAILED;
  r->shared[SHARED_UNWRITTEN] = behind == DT_BEHIND_FAILED;
  if (dt_world.rank == 0) r->shared[SHARED_PACE] = (dt_seconds() - r->look.began) / (double)share_of(r, b).each;
  sum_over_ranks(r, r->shared, r->nshared, "loss, norm and flags");
  r->stop = r->shared[SHARED_TERM] > 0  ? SIGTERM
            : r->shared[SHARED_INT] > 0 ? SIGINT
            : r->shared[SHARED_HUP] > 0 ? SIGHUP
                                        : 0;
  r->failed = (int)r->shared[SHARED_TROUBLE];
  r->written = (int)r->shared[SHARED_WRITTEN];
  r->unwritten = (int)r->shared[SHARED_UNWRITTEN];
  if (!dt_rehearsing) set_pace(r, r->shared[SHARED_PACE]);
  r->counted = dt_world.size > 1 && r->shared[SHARED_UNCOUNTED] == 0;
  memcpy(r->next_total, r->shared + SHARED_TOTAL, sizeof r->next_total);
  result->norm = 0;
  for (int64_t i = SHARED_NORM; i < r->nshared; i++) result->norm += r->shared[i];
  // The scale is a power of two: this is the norm of gradients divided by it, to the bit.
  result->norm = unsigned_nan(sqrt(result->norm)) / result->loss_scale;
  take(r->p, result, r->shared);
  dt_trace_end("norm");
  dt_walk_tie_back(r);
}

static int update(DtRun *r, const DtResult *result, DtError *e) {
  const DtTrain *t = &r->p->train;
  double norm = result->norm;
  // The small number is PyTorch's (clip_grad_norm_), so that clipped runs compare.
  double scale = t->clip > 0 && norm > t->clip ? t->clip / (norm + 1e-6) : 1;
  dt_trace_begin("update");
  dt_update(r, result->rate, scale / result->loss_scale, e);
  dt_trace_end("update");
  return e->status;
}

static void advance(DtRun *r) {
  r->step++;
  r->samples += r->o.batch;
}

static int not_finite(const DtRun *r, const DtResult *result, const void *total, DtError *e) {
  bool loss = !isfinite(result->loss), nothing = false;
  for (int i = 0; i < r->p->ntotal; i++) nothing |= dt_get(r->p, total, i) == 0;
  return dt_fail(e, DT_EXIT_NOT_FINITE, "step %lld: %s is %g%s; the parameters were not updated",
                 (long long)r->step + 1, loss ? "the loss" : "the gradient norm",
                 loss ? result->loss : result->norm,
                 loss && nothing ? " (its divisor, such as the number of valid targets, is 0 in "
                                   "this batch)"
                                 : "");
}

// The gradients have overflowed, or hold NaN, at the least loss scale too.
static int scale_is_least(const DtRun *r, const DtResult *result, DtError *e) {
  return dt_fail(e, DT_EXIT_NOT_FINITE,
                 "step %lld: the gradient norm is %g with loss scale 1, as in the %d steps before, which were "
                 "skipped (the loss is %g)",
                 (long long)r->step + 1, result->norm, DT_SCALE_SKIPS - 1, result->loss);
}

int dt_step(DtRun *r, DtResult *result, DtError *e) {
  const DtProgram *p = r->p;
  const DtTrain *t = &p->train;
  double began = dt_seconds(), sum[DT_MOST_RESULTS], total[DT_MAX_TOTALS];
  Batch b = {&r->train, r->samples, r->o.batch, r->step + 1, !r->o.no_shuffle, false, false};
  result->loss_scale = r->grad_scale = r->scaling.scale;
  dt_comm_step(r->step + 1);
  dt_device_sync();
  dt_comm_exposed(); // of what was before
  if (totals(r, &b, total, e)) return e->status;
  b.gradients = true;
  begin_looks(r);
  if (over_batch(r, p->step, "step", &b, total, 1 + p->nmetric, sum, e)) return e->status;
  finish_passes(r, &b, sum, result);
  result->rate = dt_rate(t->schedule, r->o.lr, t->warmup, r->o.schedule_steps, t->final, r->step);
  result->samples = r->o.batch;
  bool finite = dt_rehearsing || (isfinite(result->loss) && isfinite(result->norm));
  // All ranks have the same norm, of all gradients: they skip the same steps.
  result->skipped = p->loss_scaling && !finite && !isfinite(result->norm) &&
                    dt_loss_scale_skip(&r->scaling);
  if (finite) {
    if (update(r, result, e)) return e->status;
    if (p->loss_scaling) dt_loss_scale_clean(&r->scaling);
  }
  if (finite || result->skipped) advance(r);
  dt_walk_tie_wait(r);
  dt_device_sync();
  result->seconds = dt_seconds() - began;
  result->exposed = dt_comm_exposed();
  result->away = dt_offload_exposed(&r->offload);
  if (finite || result->skipped) return 0;
  if (r->scaling.in_row >= DT_SCALE_SKIPS) return scale_is_least(r, result, e);
  return not_finite(r, result, total, e);
}

// Samples that a validation looks at. They are numbered in int32 within a batch, and here the whole
// set, with padding, is one.
static int64_t validated(const DtRun *r) {
  int64_t count = r->val.count, most = INT32_MAX - (dt_world.degree[DT_AXIS_DP] + 1) * r->micro;
  if (r->o.eval_samples > 0 && r->o.eval_samples < count) count = r->o.eval_samples;
  return count > most ? most : count;
}

int dt_step_prepare(DtRun *r, bool training, DtError *e) {
  Batch train = {.count = r->o.batch}, val = {.count = r->has_val ? validated(r) : 0};
  if (!r->p->nchunk) return 0;
  int64_t steps = training ? share_of(r, &train).each : 0;
  return dt_walk_open(&r->walk, r->p, dt_world.coord[DT_AXIS_PP], steps, share_of(r, &val).each,
                      r->o.sample > 0, e);
}

int dt_evaluate(DtRun *r, DtResult *result, DtError *e) {
  const DtProgram *p = r->p;
  double began = dt_seconds(), sum[DT_MOST_RESULTS], total[DT_MAX_TOTALS];
  int64_t count = validated(r);
  Batch b = {&r->val, 0, count, r->step + 1, false, true, false};
  if (p->count && !r->val_totalled) {
    if (over_world(r, p->count, "count", &b, NULL, p->ntotal, r->val_total, e)) return e->status;
    r->val_totalled = !p->random_totals;
  }
  as_real(p, total, r->val_total, p->ntotal);
  if (over_world(r, p->eval, "eval", &b, total, 1 + p->nmetric, sum, e)) return e->status;
  take(p, result, sum);
  result->samples = count;
  result->seconds = dt_seconds() - began;
  return 0;
}
