#include "driver/schedule.h"

#include <stdlib.h>

// Estimated costs, and slots as they fit memory.
static void set_costs(const Plan *p, DtPipeShape *s) {
  const Module *m = p->m;
  static const ChunkPart part[DT_PIPE_COMPUTED] = {CHUNK_FORWARD, CHUNK_BACKWARD, CHUNK_WEIGHTS};
  for (int w = 0; w < DT_PIPE_COMPUTED; w++) {
    int64_t *cost = NEWN(m->arena, int64_t, m->chunk.n);
    for (uint32_t k = 0; k < m->chunk.n; k++) {
      Id fn = m->chunk.at[k].fn[part[w]];
      cost[k] = fn == NONE ? 1 : chunk_cost(p, fn);
    }
    s->cost[w] = cost;
  }
  int64_t (*kept)[DT_SPANS] = malloc(m->chunk.n * sizeof *kept);
  ALLOCATED(kept);
  for (uint32_t k = 0; k < m->chunk.n; k++)
    for (int span = 0; span < DT_SPANS; span++) kept[k][span] = chunk_slot_bytes(m, k, (DtSpan)span);
  dt_pipe_fit(s, (const int64_t(*)[DT_SPANS])kept, NEWN(m->arena, int32_t, DT_PIPE_ROOM(s)));
  free(kept);
}

DtPipe *schedule_make(const Plan *p, int32_t micro, bool unit) {
  const Module *m = p->m;
  DtPipeShape s = {.stages = (int)m->stages, .micro = micro};
  if (!dt_pipe_parse(m->schedule, &s.kind, &s.chunks)) BUG("no schedule is called %s", m->schedule);
  if (!unit) set_costs(p, &s);
  DtPipe *pipe = dt_pipe_make(&s);
  CHECK(pipe);
  return pipe;
}

// One rank stands for each stage: that at place 0 of all other axes.
static bool runs(const Plan *p, int32_t micro) {
  static const ChunkPart sender[DT_PIPE_MESSAGES] = {CHUNK_FORWARD, CHUNK_BACKWARD};
  const Module *m = p->m;
  int stride = 1;
  char why[1000];
  for (uint32_t a = 0; a < m->axis.n; a++) stride *= (int)m->axis.at[a].size;
  DtPipe *pipe = schedule_make(p, micro, false);
  for (int k = 0; k < DT_PIPE_MESSAGES; k++) {
    Str *what = NEWN(m->arena, Str, m->chunk.n), *source = NEWN(m->arena, Str, m->chunk.n);
    for (uint32_t c = 0; c < m->chunk.n; c++)
      what[c] = chunk_message(m, c, sender[k], &source[c]);
    pipe->what[k] = what;
    pipe->source[k] = source;
  }
  bool ok = dt_pipe_check(pipe, 0, stride, why, sizeof why);
  if (!ok)
    fprintf(stderr, "dtc: the pipeline's schedule does not run with %d microbatches: %s\n", micro,
            why);
  dt_pipe_free(pipe);
  return ok;
}

bool schedule_check(const Plan *p, int32_t micro) {
  int32_t stages = (int32_t)p->m->stages;
  const int32_t number[] = {1, stages - 1, stages, stages + 1, 2 * stages + 1, micro};
  bool ok = true;
  for (size_t i = 0; ok && i < sizeof number / sizeof *number; i++) ok = runs(p, number[i]);
  return ok;
}

static void print_one(const Plan *p, int32_t micro, bool unit, Buf *out) {
  DtPipe *pipe = schedule_make(p, micro, unit);
  char *text = dt_pipe_draw(pipe, 200);
  CHECK(text);
  buf_printf(out, "%s\n%s", unit ? "unit costs" : "estimated costs", text);
  free(text);
  dt_pipe_free(pipe);
}

void schedule_print(const Plan *p, int32_t micro, Buf *out) {
  print_one(p, micro, true, out);
  buf_printf(out, "\n");
  print_one(p, micro, false, out);
}
