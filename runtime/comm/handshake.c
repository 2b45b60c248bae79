// Comparison of settings, data and state that all ranks must have in common before the first step, and agreement
// on failures: one of any rank is one of all.
#include "runtime/files/json.h"
#include "runtime/control.h"
#include "runtime/device.h"
#include "runtime/train/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct Text {
  char text[8192];
  size_t n;
} Text;

__attribute__((format(printf, 2, 3))) static void line(Text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->text + t->n, sizeof t->text - t->n, format, args);
  va_end(args);
  if (n > 0 && t->n + (size_t)n < sizeof t->text) t->n += (size_t)n;
}

// Files that differ are named, or the end of the name is given; names may be other ones on each machine.
static void data_lines(Text *t, const char *what, const DtDataset *d) {
  enum { SHOWN = 120 };
  const DtProgram *p = d->program;
  bool arrays = d->kind == DT_DATA_ARRAYS;
  for (int k = 0; d->count && k < (arrays ? p->ndata : 1); k++) {
    const char *path = d->path[k];
    size_t n = strlen(path);
    char name[2 * SHOWN];
    dt_json_escape(name, sizeof name, n > SHOWN ? path + n - SHOWN : path);
    line(t, "%s%s%s: %lld samples, hash %016llx\tof %s%s\n", what, arrays ? " " : "",
         arrays ? p->data[k].name : "", (long long)d->count,
         (unsigned long long)dt_dataset_hash(d, k), n > SHOWN ? "..." : "", name);
  }
}

static const char *given(bool it_is) { return it_is ? "given" : "not given"; }

int dt_handshake_options(const DtRun *r, DtError *e) {
  const DtProgram *p = r->p;
  const DtOptions *o = &r->o;
  const int *n = dt_world.degree;
  char rate[32];
  Text t = {.n = 0};
  line(&t, "model: %s\nbuild: %s\n", p->model, p->build);
  line(&t, "layout: tp %d, cp %d, dp %d, pp %d, zero %d in groups of %d\n", dt_tp_degree(),
       n[DT_AXIS_CP], n[DT_AXIS_DP], n[DT_AXIS_PP], p->zero, p->zero_group);
  dt_json_real(rate, o->lr);
  line(&t, "--steps: %lld\n--schedule-steps: %lld\n--batch: %lld\n--lr: %s\n--seed: %lld\n",
       (long long)o->steps, (long long)o->schedule_steps, (long long)o->batch, rate,
       (long long)o->seed);
  line(&t, "--no-shuffle: %s\n--eval-only: %s\n--val: %s\n", given(o->no_shuffle),
       given(o->eval_only), given(o->val));
  line(&t, "--eval-every: %lld\n--eval-samples: %lld\n", (long long)o->eval_every,
       (long long)o->eval_samples);
  line(&t, "--resume: %s\n--init: %s\n--save: %s\n--save-every: %lld\n--save-sync: %s\n", given(o->resume),
       given(o->init), given(o->save), (long long)o->save_every, given(o->save_sync));
  const char *prompt = o->prompt ? o->prompt : "";
  line(&t, "--export: %s\n--sample: %lld\n--prompt: hash %016llx\n", given(o->export_to),
       (long long)o->sample, (unsigned long long)dt_hash(prompt, strlen(prompt)));
  line(&t, "--export-gradient: %s\n", given(o->export_gradient));
  const char *products = dt_device_products(p);
  if (products) line(&t, "products (DT_GEMM, DT_GEMM_BF16): %s\n", products);
  if (dt_comm_links()) line(&t, "--reduce: %s\nlibrary that exchanges arrays: %s\n", o->reduce ? o->reduce : dt_device_limits()->reduces, dt_comm_links());
  line(&t, "--profile: %s\n--dry-run: %s\n", given(o->profile), given(o->dry_run));
  line(&t, "--offload-dir: %s\nDT_OFFLOAD_SLICE: %lld\n", given(o->offload_dir), (long long)dt_slice_bytes);
  return dt_comm_handshake(t.text, e);
}

int dt_handshake_state(const DtRun *r, DtError *e) {
  Text t = {.n = 0};
  if (dt_world.size == 1) return 0;
  line(&t, "step to begin with: %lld\nsamples used: %lld\nseed: %llu\n", (long long)r->step,
       (long long)r->samples, (unsigned long long)r->seed);
  if (r->p->loss_scaling)
    line(&t, "loss scale: %.0f, clean steps %lld, skipped steps %lld, at scale 1 %lld\n",
         r->scaling.scale, (long long)r->scaling.clean, (long long)r->scaling.skipped,
         (long long)r->scaling.in_row);
  for (int i = 0; i < DT_WALKS; i++)
    if (r->walk.route[i].pipe)
      line(&t, "the pipeline's schedule: hash %016llx\n",
           (unsigned long long)dt_pipe_hash(r->walk.route[i].pipe));
  data_lines(&t, "training data", &r->train);
  data_lines(&t, "validation data", &r->val);
  return dt_comm_handshake(t.text, e);
}

int dt_agree_on(DtError *e) {
  int mine = e->status, status = dt_agree(mine), me = 1 + dt_world.rank;
  if (!status) return 0;
  // Of all ranks that failed, the first one that has the reason reports it: where this was agreed on before,
  // all have the status, and one has the text.
  int who = dt_agree(mine == status && e->text[0] ? me : 0);
  if (who != me) e->text[0] = 0;
  e->teller = dt_world.size > 1 ? who : 0;
  return e->status = status;
}
