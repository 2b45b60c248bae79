// Communication is posted where the table has it and waited for where it is needed: a message is
// received before it is read, and sent before its buffer is filled again. The table's
// order is one that cannot lock even if every operation blocked, and all ranks of a stage post the
// same ones, with the exchanges between its ranks among them.
#include "runtime/pipeline/walk.h"

#include "runtime/base/pack.h"
#include "runtime/layers.h"
#include "runtime/train/run.h"
#include "runtime/base/trace.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 2, ALIGNMENT = 64 }; // runtime/pipeline/pipeline.c makes no more buffers than that for a message
enum { EVAL_GROUP = 64 }; // microbatches that validation runs between two looks at signals

// ---- tables and memory

static int64_t aligned(int64_t bytes) { return dt_aligned(bytes, ALIGNMENT); }

static int64_t place(int64_t *at, int64_t each, int n) {
  int64_t here = *at;
  *at += aligned(each) * n;
  return here;
}

// `forward`: the kind of walk, DT_FORWARD of a step, DT_EVAL or DT_SAMPLE.
static int sender(int forward, int message) {
  return message == DT_PIPE_GRAD ? DT_BACKWARD : forward;
}

static int64_t sent(const DtProgram *p, int forward, int message, int chunk) {
  return p->chunk[chunk].sent_bytes[sender(forward, message)];
}

static int64_t received(const DtProgram *p, int forward, int message, int chunk) {
  int from = dt_pipe_source(chunk, message);
  return from < 0 || from >= p->nchunk ? 0 : sent(p, forward, message, from);
}

// A stage's slots, in use from the work that fills them to the last that reads them.
typedef struct Slots {
  const DtRoute *r;
  DtBlock *block;
  uint32_t n, nused, *used; // used: those in use
  bool *meet;               // whether slot i and j are ever in use together, n * n; or NULL: not needed yet
  int64_t now, most;        // bytes in use; at most
} Slots;

static void use_slot(Slots *x, uint32_t slot, int64_t when) {
  x->now += aligned(x->block[slot].bytes);
  if (x->now > x->most) x->most = x->now;
  if (!x->meet) return;
  for (uint32_t i = 0; i < x->nused; i++)
    x->meet[(size_t)slot * x->n + x->used[i]] = x->meet[(size_t)x->used[i] * x->n + slot] = true;
  if (!x->block[slot].life) x->block[slot].first = when;
  x->block[slot].life -= when;
  x->used[x->nused++] = slot;
}

static void leave_slot(Slots *x, uint32_t slot, int64_t when) {
  x->now -= aligned(x->block[slot].bytes);
  if (!x->meet) return;
  uint32_t i = 0;
  while (x->used[i] != slot) i++;
  x->used[i] = x->used[--x->nused];
  x->block[slot].life += when + 1;
}

// Follows the stage's work.
static void follow_slots(Slots *x, int stage) {
  const DtPipe *pipe = x->r->pipe;
  x->now = x->most = 0;
  for (int64_t i = 0; i < pipe->stage[stage].n; i++) {
    const DtPipeOp *op = &pipe->stage[stage].op[i];
    for (int leaves = 0; leaves < 2; leaves++)
      for (int k = 0; op->work <= DT_PIPE_W && k < DT_SPANS; k++) {
        DtPipeWork first, last;
        if (!dt_pipe_span(&pipe->shape, (DtSpan)k, &first, &last) || op->work != (leaves ? last : first)) continue;
        uint32_t slot = (uint32_t)(x->r->slot[k][op->chunk] + op->slot[k]);
        if (leaves) leave_slot(x, slot, i);
        else use_slot(x, slot, i);
      }
  }
}

static bool slots_meet(const void *ctx, uint32_t i, uint32_t j) {
  const Slots *x = ctx;
  return x->meet[(size_t)i * x->n + j];
}

// Slots lie one after the other where all are in use at one time, and else may share memory with those that they never meet.
// Returns their bytes; -1: no memory.
static int64_t place_slots(Slots *x, int stage) {
  int64_t all = 0;
  for (uint32_t i = 0; i < x->n; i++) x->block[i].offset = place(&all, x->block[i].bytes, 1);
  follow_slots(x, stage);
  if (x->most == all) return all;
  x->meet = calloc((size_t)x->n * x->n, sizeof *x->meet);
  x->used = malloc(x->n * sizeof *x->used);
  if (x->meet && x->used) follow_slots(x, stage);
  int64_t bytes = x->meet && x->used ? dt_pack(x->block, x->n, ALIGNMENT, x->most, slots_meet, x) : -1;
  free(x->meet);
  free(x->used);
  return bytes;
}

// Numbers the stage's slots, pool by pool: r->slot. Returns how many there are, and sets their bytes where `block` is there.
static uint32_t number_slots(DtRoute *r, const DtProgram *p, int stage, DtBlock *block) {
  const DtPipe *pipe = r->pipe;
  uint32_t n = 0;
  for (int c = stage; c < p->nchunk; c += p->pp)
    for (int k = 0; k < DT_SPANS; k++) {
      int pool = pipe->shape.pool[k][c];
      r->slot[k][c] = pool < c ? r->slot[k][pool] : (int64_t)n;
      for (int i = 0; pool == c && i < pipe->slots[k][c]; i++, n++)
        if (block) block[n] = (DtBlock){.bytes = p->chunk[c].slot_bytes[k]};
    }
  return n;
}

static int place_all(DtRoute *r, const DtProgram *p, int stage, int forward, DtError *e) {
  const DtPipe *pipe = r->pipe;
  Slots x = {.r = r, .n = number_slots(r, p, stage, NULL)};
  x.block = malloc((x.n + 1) * sizeof *x.block);
  r->slot_at = malloc((x.n + 1) * sizeof *r->slot_at);
  if (x.block) number_slots(r, p, stage, x.block);
  r->bytes = x.block && r->slot_at ? place_slots(&x, stage) : -1;
  for (uint32_t i = 0; r->bytes >= 0 && i < x.n; i++) r->slot_at[i] = x.block[i].offset;
  free(x.block);
  if (r->bytes < 0) return dt_fail(e, DT_EXIT_OS, "no memory for the pipeline's schedule");
  int64_t slots = r->bytes;
  for (int c = stage; c < p->nchunk; c += p->pp)
    for (int k = 0; k < DT_PIPE_MESSAGES; k++) {
      r->in[k][c] = place(&r->bytes, received(p, forward, k, c), pipe->in[k][c]);
      r->out[k][c] = place(&r->bytes, sent(p, forward, k, c), pipe->out[k][c]);
    }
  r->least = r->bytes - slots + x.most;
  return 0;
}

// For each kind of message, the chunks' messages and the places where they are computed.
static const char **name_messages(const DtProgram *p, int forward) {
  size_t C = (size_t)p->nchunk;
  const char **names = calloc(2 * DT_PIPE_MESSAGES * C, sizeof *names);
  for (size_t i = 0; names && i < DT_PIPE_MESSAGES * C; i++) {
    int k = (int)(i / C), c = (int)(i % C);
    int part = sender(forward, k);
    names[C * (size_t)(2 * k) + i % C] = p->chunk[c].message[part];
    names[C * (size_t)(2 * k + 1) + i % C] = p->chunk[c].source[part];
  }
  return names;
}

static int open_route(DtRoute *r, const DtProgram *p, int stage, int64_t micro, int forward,
                      DtError *e) {
  bool eval = forward != DT_FORWARD;
  size_t C = (size_t)p->nchunk;
  static const int part[DT_PIPE_COMPUTED] = {DT_FORWARD, DT_BACKWARD, DT_WEIGHTS};
  if (micro < 1) return 0;
  int64_t *table = calloc(C * (DT_SPANS + 2 * DT_PIPE_MESSAGES + DT_PIPE_COMPUTED), sizeof *table);
  DtPipeShape s = {.kind = eval ? DT_PIPE_FORWARD : (DtPipeKind)p->schedule, .stages = p->pp,
                   .chunks = p->nchunk / p->pp, .micro = (int32_t)micro};
  int64_t (*kept)[DT_SPANS] = malloc(C * sizeof *kept);
  int32_t *room = malloc(DT_PIPE_ROOM(&s) * sizeof *room);
  DtTicket *ticket = calloc(C * 2 * DT_PIPE_MESSAGES * BUFFERS, sizeof *ticket);
  const char **names = name_messages(p, forward);
  if (!table || !ticket || !names || !kept || !room) {
    free(table);
    free(room);
    free(kept);
    free(ticket);
    free(names);
    return dt_fail(e, DT_EXIT_OS, "no memory for the pipeline's schedule");
  }
  for (int k = 0; k < DT_SPANS; k++) r->slot[k] = table + C * (size_t)k;
  r->names = names;
  for (int k = 0; k < DT_PIPE_MESSAGES; k++) {
    r->in[k] = table + C * (size_t)(DT_SPANS + k);
    r->out[k] = table + C * (size_t)(DT_SPANS + DT_PIPE_MESSAGES + k);
    r->arrived[k] = ticket + C * BUFFERS * (size_t)k;
    r->gone[k] = ticket + C * BUFFERS * (size_t)(DT_PIPE_MESSAGES + k);
  }
  for (int w = 0; w < DT_PIPE_COMPUTED; w++) {
    int64_t *cost = table + C * (size_t)(DT_SPANS + 2 * DT_PIPE_MESSAGES + w);
    for (int c = 0; c < p->nchunk; c++) {
      int64_t n = p->chunk[c].cost[w ? part[w] : forward];
      cost[c] = n > 0 ? n : 1;
    }
    s.cost[w] = cost;
  }
  for (int c = 0; c < p->nchunk; c++) memcpy(kept[c], p->chunk[c].slot_bytes, sizeof *kept);
  dt_pipe_fit(&s, (const int64_t(*)[DT_SPANS])kept, room);
  r->pipe = dt_pipe_make(&s);
  free(room);
  free(kept);
  if (!r->pipe)
    return dt_fail(e, DT_EXIT_OS, "no memory for the schedule of %lld microbatches",
                   (long long)micro);
  for (int k = 0; k < DT_PIPE_MESSAGES; k++) {
    r->pipe->what[k] = names + C * (size_t)(2 * k);
    r->pipe->source[k] = names + C * (size_t)(2 * k + 1);
  }
  char why[1000];
  int stride = dt_world.size / p->pp > 0 ? dt_world.size / p->pp : 1;
  if (!dt_pipe_check(r->pipe, dt_world.rank % stride, stride, why, sizeof why))
    return dt_fail(e, DT_EXIT_BUG, "the pipeline's schedule does not run: %s", why);
  return place_all(r, p, stage, forward, e);
}

int dt_walk_open(DtWalk *w, const DtProgram *p, int stage, int64_t train, int64_t eval, bool sample,
                 DtError *e) {
  *w = (DtWalk){.group = eval < EVAL_GROUP ? eval : EVAL_GROUP};
  w->groups = w->group ? eval / w->group : 0;
  w->rest = w->group ? eval % w->group : 0;
  e->status = 0;
  if (open_route(&w->route[DT_WALK_TRAIN], p, stage, train, DT_FORWARD, e) ||
      open_route(&w->route[DT_WALK_EVAL], p, stage, w->group, DT_EVAL, e) ||
      open_route(&w->route[DT_WALK_REST], p, stage, w->rest, DT_EVAL, e))
    return e->status;
  return open_route(&w->route[DT_WALK_SAMPLE], p, stage, sample, DT_SAMPLE, e);
}

void dt_walk_close(DtWalk *w) {
  for (int i = 0; i < DT_WALKS; i++) {
    dt_pipe_free(w->route[i].pipe);
    free(w->route[i].slot[0]);
    free(w->route[i].slot_at);
    free(w->route[i].names);
    free(w->route[i].arrived[0]);
    w->route[i] = (DtRoute){.pipe = NULL};
  }
}

int64_t dt_walk_bytes(const DtWalk *w) {
  int64_t most = 0;
  for (int i = 0; i < DT_WALKS; i++)
    if (w->route[i].bytes > most) most = w->route[i].bytes;
  return most;
}

int64_t dt_walk_least(const DtWalk *w) {
  int64_t most = 0;
  for (int i = 0; i < DT_WALKS; i++)
    if (w->route[i].least > most) most = w->route[i].least;
  return most;
}

// ---- a walk

typedef struct Walk {
  DtRun *r;
  DtRoute *route;
  const DtWalkJob *job;
  DtCall call;
  DtScalars scalars;
  int64_t from; // the route's first microbatch among the rank's
  int64_t loaded; // the microbatch in r->buffer, or -1
  int forward; // DT_FORWARD, DT_EVAL or DT_SAMPLE
} Walk;

static char *in_pool(const Walk *w, const int64_t *base, int chunk, int64_t each, int i) {
  return w->r->walk.memory + base[chunk] + aligned(each) * i;
}

static void wait_for(DtTicket *t) {
  if (*t) dt_wait(*t);
  *t = 0;
}

static DtTicket *ticket(DtTicket *const *of, int message, int chunk, int buffer) {
  return &of[message][chunk * BUFFERS + buffer];
}

static void exchange(Walk *w, const DtPipeOp *op) {
  const DtProgram *p = w->r->p;
  const DtGroup *g = dt_group(1u << DT_AXIS_PP);
  int message = op->message, to = dt_pipe_reader(op->chunk, message);
  int64_t bytes = sent(p, w->forward, message, op->chunk), n = bytes / 4;
  const DtPipeChunk *c = &p->chunk[op->chunk];
  int part = sender(w->forward, message);
  DtNote note = {c->message[part], -1, c->source[part]};
  if (!bytes) return;
  dt_comm_micro(w->from + op->micro);
  if (op->work == DT_PIPE_SEND)
    *ticket(w->route->gone, message, op->chunk, op->out) =
        dt_send(g, op->peer, DT_TYPE_I32,
                in_pool(w, w->route->out[message], op->chunk, bytes, op->out), n, note);
  else
    *ticket(w->route->arrived, message, to, op->in) = dt_recv(
        g, op->peer, DT_TYPE_I32, in_pool(w, w->route->in[message], to, bytes, op->in), n, note);
}

static int part_of(const Walk *w, const DtPipeOp *op) {
  static const int part[DT_PIPE_COMPUTED] = {DT_FORWARD, DT_BACKWARD, DT_WEIGHTS};
  return op->work == DT_PIPE_F ? w->forward : part[op->work];
}

// Whether this function makes the chunk's gradients.
static bool makes_gradients(const DtPipeChunk *c, int part) {
  return part == (c->run[DT_WEIGHTS] ? DT_WEIGHTS : DT_BACKWARD);
}

static void prepare_call(Walk *w, const DtPipeOp *op) {
  const DtProgram *p = w->r->p;
  int message = op->work == DT_PIPE_F ? DT_PIPE_ACT : DT_PIPE_GRAD;
  w->scalars.first = (int32_t)(w->job->first + (w->from + op->micro) * w->r->micro);
  for (int k = 0; k < DT_SPANS; k++)
    w->call.slot[k] =
        op->slot[k] < 0 ? NULL : w->r->walk.memory + w->route->slot_at[w->route->slot[k][op->chunk] + op->slot[k]];
  w->call.in = w->call.send = NULL;
  w->call.chunk = op->chunk;
  w->call.part = part_of(w, op);
  if (op->in >= 0) {
    wait_for(ticket(w->route->arrived, message, op->chunk, op->in));
    w->call.in = in_pool(w, w->route->in[message], op->chunk,
                         received(p, w->forward, message, op->chunk), op->in);
  }
  if (op->out >= 0) {
    wait_for(ticket(w->route->gone, message, op->chunk, op->out));
    w->call.send = in_pool(w, w->route->out[message], op->chunk,
                           sent(p, w->forward, message, op->chunk), op->out);
  }
}

static int compute(Walk *w, const DtPipeOp *op, DtError *e) {
  static const char *const name[] = {"forward", "backward", "weights", "eval", "sample"};
  DtRun *r = w->r;
  const DtProgram *p = r->p;
  const DtPipeChunk *c = &p->chunk[op->chunk];
  bool training = w->forward == DT_FORWARD;
  int part = part_of(w, op);
  if (w->job->load && c->reads_data[part] && w->loaded != op->micro) {
    if (w->job->load(r, w->job->batch, w->from + op->micro, e)) return e->status;
    w->loaded = op->micro;
  }
  prepare_call(w, op);
  bool last = op->work == DT_PIPE_F && op->chunk == p->nchunk - 1;
  dt_device_put(r->scalars, &w->scalars, sizeof w->scalars);
  dt_results_clear(r, 0);
  w->call.out = w->job->out ? w->job->out : dt_results(r, 0);
  dt_trace_begin(name[part]);
  dt_comm_micro(w->from + op->micro);
  if (!training || !makes_gradients(c, part)) dt_zero_begin(&r->zero, &w->call);
  else
    dt_zero_begin_step(&r->zero, &w->call, op->micro == 0,
                       op->micro == w->route->pipe->shape.micro - 1);
  c->run[part](&w->call);
  if (training && makes_gradients(c, part) && r->zero.cut.each) {
    DtRange units = dt_zero_units_of(&r->zero, c->param, c->nparam);
    dt_zero_end_units(&r->zero, units.lo, units.hi);
  }
  dt_trace_end(name[part]);
  if (!last || !w->job->nresult) return 0;
  double result[DT_MOST_RESULTS];
  dt_results_get(r, 0, result, w->job->nresult);
  for (int i = 0; i < w->job->nresult; i++) w->job->sum[i] += result[i];
  return 0;
}

static void settle(Walk *w) {
  int n = w->r->p->nchunk * BUFFERS;
  for (int k = 0; k < DT_PIPE_MESSAGES; k++)
    for (int i = 0; i < n; i++) {
      wait_for(&w->route->gone[k][i]);
      wait_for(&w->route->arrived[k][i]);
    }
}

// ---- gradients that several stages hold

static char *part_at(const DtRun *r, const DtHolder *h, int64_t *n) {
  DtPart part = dt_part(&r->zero, DT_GRAD, h->unit);
  *n = part.hi - part.lo;
  return part.at;
}

static DtNote tie_note(const DtTie *t) { return (DtNote){t->name, -1, t->source}; }

// What the first tie's first holder is sent, it may take while it still computes: after the step's
// last message of the same sender, since these come in order.
static void tie_ahead(DtRun *r) {
  const DtStages *s = &r->zero.stages;
  const DtTie *t = s->tie;
  int64_t n;
  int me = dt_world.coord[DT_AXIS_PP], i = 1;
  if (!s->ntie || t->holder[0].stage != me) return;
  while (i < t->n && t->holder[i].stage == me) i++;
  part_at(r, &t->holder[0], &n);
  dt_comm_micro(-1);
  if (n && i < t->n)
    r->walk.tie_ahead = dt_recv(dt_group(1u << DT_AXIS_PP), t->holder[i].stage, r->p->type,
                                r->walk.tied, n, tie_note(t));
}

// ---- all of it

int dt_walk(DtRun *r, int route, int64_t from, const DtWalkJob *job, DtError *e) {
  Walk w = {.r = r,
            .route = &r->walk.route[route],
            .job = job,
            .from = from,
            .loaded = -1,
            .forward = job->forward};
  const DtPipeStage *s = &w.route->pipe->stage[dt_world.coord[DT_AXIS_PP]];
  w.scalars = dt_scalars(r, (uint64_t)r->step + 1, job->count, job->total);
  if (job->forward == DT_FORWARD) dt_set(r->p, &w.scalars.loss_scale, 0, r->scaling.scale);
  w.call = (DtCall){.scalars = r->scalars, .frame = r->frame};
  for (int k = 0; k < r->p->ndata; k++) w.call.data[k] = r->buffer[k];
  if (job->data) w.call.data[0] = job->data;
  int64_t received = s->n; // its last receive
  while (received > 0 && s->op[received - 1].work != DT_PIPE_RECV) received--;
  for (int64_t i = 0; i < s->n; i++) {
    const DtPipeOp *op = &s->op[i];
    if (i == received && job->forward == DT_FORWARD) tie_ahead(r);
    if (op->work >= DT_PIPE_COMPUTED) exchange(&w, op);
    else if (compute(&w, op, e)) return e->status;
  }
  settle(&w);
  dt_comm_micro(-1);
  if (job->forward == DT_FORWARD && !r->zero.cut.each) {
    r->zero.last = true;
    dt_zero_end_step(&r->zero);
  }
  return 0;
}

// ---- sums of gradients that several stages hold

// The first holder adds the others' gradients, in their order.
static void lead(DtRun *r, const DtTie *t, const DtGroup *g, int me) {
  int64_t n;
  char *sum = part_at(r, &t->holder[0], &n);
  for (int i = 1; i < t->n; i++) {
    const DtHolder *h = &t->holder[i];
    char *from = h->stage == me ? part_at(r, h, &n) : r->walk.tied;
    if (h->stage != me && n) {
      DtTicket ahead = r->walk.tie_ahead;
      dt_wait(ahead ? ahead : dt_recv(g, h->stage, r->p->type, from, n, tie_note(t)));
      r->walk.tie_ahead = 0;
    }
    dt_device_add(r->p->type, sum, from, n);
  }
}

static void follow(DtRun *r, const DtTie *t, const DtGroup *g, int me) {
  int64_t n;
  for (int i = 1; i < t->n; i++) {
    if (t->holder[i].stage != me) continue;
    char *at = part_at(r, &t->holder[i], &n);
    if (n) dt_wait(dt_send(g, t->holder[0].stage, r->p->type, at, n, tie_note(t)));
  }
}

void dt_walk_tie(DtRun *r) {
  const DtStages *s = &r->zero.stages;
  int me = dt_world.coord[DT_AXIS_PP];
  if (!s->ntie) return;
  const DtGroup *g = dt_group(1u << DT_AXIS_PP);
  dt_trace_begin("tied gradients");
  for (int i = 0; i < s->ntie; i++) {
    if (s->tie[i].holder[0].stage == me) lead(r, &s->tie[i], g, me);
    else follow(r, &s->tie[i], g, me);
  }
  dt_trace_end("tied gradients");
}

static void hand_back(DtRun *r, const DtTie *t, const DtGroup *g, int me) {
  int64_t n, size = (int64_t)dt_type_size(r->p->type), same;
  char *sum = part_at(r, &t->holder[0], &n);
  for (int i = 1; i < t->n && n; i++) {
    const DtHolder *h = &t->holder[i];
    if (h->stage == me) dt_device_copy(part_at(r, h, &same), sum, (size_t)(n * size));
    else r->walk.tie_sent = dt_send(g, h->stage, r->p->type, sum, n, tie_note(t));
  }
}

static void take_back(DtRun *r, const DtTie *t, const DtGroup *g, int me) {
  int64_t n;
  for (int i = 1; i < t->n; i++) {
    if (t->holder[i].stage != me) continue;
    char *at = part_at(r, &t->holder[i], &n);
    if (!n) continue;
    r->walk.tie_last = dt_recv(g, t->holder[0].stage, r->p->type, at, n, tie_note(t));
    if (!r->walk.tie_first) r->walk.tie_first = r->walk.tie_last;
  }
}

void dt_walk_tie_back(DtRun *r) {
  const DtStages *s = &r->zero.stages;
  int me = dt_world.coord[DT_AXIS_PP];
  const DtGroup *g = s->ntie ? dt_group(1u << DT_AXIS_PP) : NULL;
  for (int i = 0; i < s->ntie; i++) {
    if (s->tie[i].holder[0].stage == me) hand_back(r, &s->tie[i], g, me);
    else take_back(r, &s->tie[i], g, me);
  }
}

bool dt_walk_awaits(const DtRun *r, int64_t unit) {
  const DtStages *s = &r->zero.stages;
  for (int i = 0; i < s->ntie; i++)
    for (int k = 1; k < s->tie[i].n; k++) {
      const DtHolder *h = &s->tie[i].holder[k];
      if (h->stage == dt_world.coord[DT_AXIS_PP] && h->unit == unit) return true;
    }
  return false;
}

void dt_walk_tie_wait(DtRun *r) {
  dt_wait_receives(r->walk.tie_first, r->walk.tie_last);
  if (r->walk.tie_sent) dt_wait(r->walk.tie_sent);
  r->walk.tie_first = r->walk.tie_last = r->walk.tie_sent = 0;
}
