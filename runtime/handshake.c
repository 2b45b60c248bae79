// What all ranks must have in common before the first step, and how a failure of any of them becomes
// everybody's.
#include "runtime/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct Text {
  char text[2048];
  size_t n;
} Text;

__attribute__((format(printf, 2, 3))) static void line(Text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->text + t->n, sizeof t->text - t->n, format, args);
  va_end(args);
  if (n > 0 && t->n + (size_t)n < sizeof t->text) t->n += (size_t)n;
}

static void data_line(Text *t, const char *what, const DtDataset *d) {
  if (d->count)
    line(t, "%s: %lld samples, hash %016llx\n", what, (long long)d->count,
         (unsigned long long)dt_dataset_hash(d));
}

// What moves the loss, and what decides how often ranks talk to one another.
int dt_handshake(const DtRun *r, DtError *e) {
  const DtProgram *p = r->p;
  const DtOptions *o = &r->o;
  Text t = {.n = 0};
  line(&t, "model: %s\nbuild: %s\n", p->model, p->build);
  line(&t, "layout: tp %d, cp %d, dp %d, pp %d, zero %d in groups of %d\n",
       dt_world.degree[DT_AXIS_TP], dt_world.degree[DT_AXIS_CP], dt_world.degree[DT_AXIS_DP],
       dt_world.degree[DT_AXIS_PP], p->zero, r->zero.cut.owners);
  line(&t, "step to begin with: %lld\nsamples used: %lld\nseed: %llu\n", (long long)r->step,
       (long long)r->samples, (unsigned long long)r->seed);
  line(&t, "--steps: %lld\n--schedule-steps: %lld\n--batch: %lld\n--lr: %.17g\n",
       (long long)o->steps, (long long)o->schedule_steps, (long long)o->batch, o->lr);
  line(&t, "--no-shuffle: %s\n", o->no_shuffle ? "given" : "not given");
  line(&t, "--eval-every: %lld\n--eval-samples: %lld\n--eval-only: %s\n", (long long)o->eval_every,
       (long long)o->eval_samples, o->eval_only ? "given" : "not given");
  line(&t, "--save: %s\n--save-every: %lld\n", o->save ? "given" : "not given",
       (long long)o->save_every);
  line(&t, "--export: %s\n--sample: %lld\n--dry-run: %s\n", o->export_to ? "given" : "not given",
       (long long)o->sample, o->dry_run ? "given" : "not given");
  data_line(&t, "training data", &r->train);
  data_line(&t, "validation data", &r->val);
  return dt_comm_handshake(t.text, e);
}

int dt_agree_on(DtError *e) {
  int mine = e->status, status = dt_agree(mine);
  if (!status) return 0;
  // Of all that failed, the first rank tells why.
  int who = dt_agree(mine == status ? 1 + dt_world.rank : 0);
  if (who != 1 + dt_world.rank) e->text[0] = 0;
  return e->status = status;
}
