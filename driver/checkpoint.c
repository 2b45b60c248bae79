#include "driver/checkpoint.h"

#include "codegen/lower/text.h"
#include "codegen/target.h"
#include "driver/passes.h"
#include "passes/passes.h"

Checkpoint checkpoint_new(const Module *m, ZeroOptions zero, int in_flight, int dp) {
  Buf text = {0};
  level_print(m, true, &text);
  Checkpoint c = {m, arena_copy(m->arena, text.text, text.n + 1), text.n, zero, in_flight, dp};
  buf_free(&text);
  return c;
}

static Module *copy(const Checkpoint *c, Arena *a) {
  Sources *src = sources_new(a);
  src->out = stderr;
  char *text = arena_copy(a, c->text, c->n + 1);
  Module *m = level_parse(a, src, str_intern("before recompute"), text, c->n);
  if (!m) BUG("the module does not parse back");
  target_use(m, c->m->target);
  m->limits = c->m->limits;
  return m;
}

Report checkpoint_report(const Checkpoint *c, Recompute recompute, int64_t keep) {
  Arena *a = arena_new();
  Module *m = copy(c, a);
  m->recompute = recompute;
  m->keep = keep;
  if (!pipeline_run(m, &(PipelineOptions){.after = "localise"})) BUG("a pass refuses a copy of a module that it took");
  Plan *p = m->lowered;
  p->zero = c->zero;
  p->in_flight = c->in_flight;
  Report r = report_make(p, c->dp);
  r.traffic = (Traffic){0}; // of the arena
  arena_free(a);
  return r;
}

static int64_t total(const Checkpoint *c, int64_t keep) {
  return checkpoint_report(c, RECOMPUTE_AUTO, keep).total_bytes;
}

enum { HALVINGS = 10, TRIES = 16 };

// Some budget that fits although the least does not: a layer that saves more may need less while it runs. -1: none.
static int64_t search(const Checkpoint *c, int64_t memory, int64_t from, int64_t to, int64_t *least) {
  for (int i = 1; i < TRIES; i++) {
    int64_t keep = from + (to - from) / TRIES * i, bytes = total(c, keep);
    if (bytes < *least) *least = bytes;
    if (bytes <= memory) return keep;
  }
  return -1;
}

// The bytes for layers to save, or -1. By halving, always at the same budgets: a larger memory never gets a smaller one.
static int64_t budget(const Checkpoint *c, int64_t memory, int64_t *least) {
  Arena *a = arena_new();
  int64_t in, over;
  recompute_range(copy(c, a), &in, &over);
  arena_free(a);
  *least = total(c, over);
  if (*least <= memory) return over;
  int64_t bytes = total(c, in);
  if (bytes < *least) *least = bytes;
  if (bytes > memory) return search(c, memory, in, over, least);
  for (int i = 0; i < HALVINGS; i++) {
    int64_t mid = in + (over - in) / 2;
    if (total(c, mid) <= memory) in = mid;
    else over = mid;
  }
  return in;
}

bool checkpoint_choose(const Checkpoint *c, int64_t memory, Recompute *recompute, int64_t *keep, int64_t *least) {
  static const Recompute inner[] = {RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
  *recompute = RECOMPUTE_AUTO;
  *keep = budget(c, memory, least);
  for (size_t i = 0; *keep < 0 && i < sizeof inner / sizeof *inner; i++) {
    int64_t bytes = checkpoint_report(c, inner[i], 0).total_bytes;
    if (bytes < *least) *least = bytes;
    if (bytes <= memory) *recompute = inner[i], *keep = 0;
  }
  return *keep >= 0;
}
