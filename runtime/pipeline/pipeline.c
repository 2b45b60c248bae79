// The list scheduler. Time advances from the end of one piece of work to the next. At each such
// time finished work is noted, then messages go as far as there are buffers for them, then idle
// stages take the next work. A table's order of work and sends is the order in which things
// happened here. A receive is moved to where its buffer is free, which is no later than its send:
// so whatever is sent finds its receive posted by what came before it in that one order, and
// nothing can lock.
#include "runtime/pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

const char *const dt_pipe_name[DT_PIPE_KINDS] = {"gpipe", "1f1b", "interleaved", "zb", "forward"};

// Messages at either end of a boundary between chunks: two, so that one is computed with while the
// other is under way.
enum { BUFFERS = 2 };

// A place in a stage's fixed order of work.
typedef struct {
  int32_t local, micro; // chunk local * P + stage
} Piece;

typedef struct {
  int64_t f, b, w; // how many of each have begun, in the orders of Sim
  int64_t until; // busy to that time
  bool busy;
  int32_t before; // begun forward, not through B
  int32_t live; // begun forward, slot not free
  int64_t room; // of the table
} Stage;

// What happened at a boundary: messages of one kind that a chunk makes.
typedef struct {
  int32_t begun, made, sent, used; // by the chunk; by it; gone; consumed by the next one
  int32_t posted, read; // in the receiver's table as written so far: received into; consumed
} Boundary;

typedef struct {
  DtPipe *p;
  int P, V, C;
  int32_t M;
  int64_t now;
  Stage *stage;
  Piece *forward, *backward; // the order of each stage's F, and of its B and W
  Boundary *boundary[DT_PIPE_MESSAGES]; // by chunk
  int32_t *issued; // by chunk: microbatches that have begun
  // Slots, by chunk and microbatch: the slot; which of the pool's is free beside it, as an index here, or -1. By
  // pool: the first that is free.
  int32_t *slot[DT_SPANS], *next[DT_SPANS], *free[DT_SPANS];
  bool failed; // no memory
} Sim;

// Microbatches in groups of P, a group through all chunks of the stage before the next one.
static void orders(Sim *x) {
  int64_t n = 0;
  int32_t group = x->V > 1 ? x->P : x->M;
  for (int32_t first = 0; first < x->M; first += group) {
    int32_t end = x->M - first < group ? x->M : first + group;
    for (int v = 0; v < x->V; v++)
      for (int32_t m = first; m < end; m++, n++) {
        x->forward[n] = (Piece){v, m};
        x->backward[n] = (Piece){x->V - 1 - v, m};
      }
  }
}

static DtPipeOp *append(Sim *x, int s, DtPipeOp op) {
  DtPipeStage *t = &x->p->stage[s];
  if (t->n == x->stage[s].room) {
    int64_t room = x->stage[s].room ? 2 * x->stage[s].room : 64;
    DtPipeOp *more = realloc(t->op, (size_t)room * sizeof *more);
    if (!more) {
      x->failed = true;
      return NULL;
    }
    t->op = more;
    x->stage[s].room = room;
  }
  t->op[t->n] = op;
  return &t->op[t->n++];
}

static int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

static int64_t cost(const Sim *x, DtPipeWork w, int chunk) { return x->p->shape.cost[w][chunk]; }

static bool sends(const Sim *x, int chunk, int message) {
  return x->P > 1 && (message == DT_PIPE_ACT ? chunk < x->C - 1 : chunk > 0);
}
// The chunk whose message this one consumes, or -1.
static int source_chunk(const Sim *x, int chunk, int message) {
  int c = dt_pipe_source(chunk, message);
  return c < 0 || c >= x->C || x->P == 1 ? -1 : c;
}

static bool message_ready(const Sim *x, int chunk, int message, int32_t micro) {
  int from = source_chunk(x, chunk, message);
  if (from >= 0 && x->boundary[message][from].sent <= micro) return false;
  const Boundary *b = &x->boundary[message][chunk];
  return !sends(x, chunk, message) || b->begun - b->sent < BUFFERS;
}

// Most microbatches begun and not through their B, and most slots in use.
static int32_t cap_before(const Sim *x, int s) {
  switch (x->p->shape.kind) {
  case DT_PIPE_1F1B: return x->P - s + (s < x->P - 1);
  case DT_PIPE_ZB: return x->P - s;
  case DT_PIPE_INTERLEAVED: return 2 * (x->P - s - 1) + (x->V - 1) * x->P + 1;
  default: return INT32_MAX;
  }
}
static int32_t cap_slots(const Sim *x, int s) {
  return cap_before(x, s) + (x->p->shape.kind == DT_PIPE_ZB ? x->p->shape.put_off[s] : 0);
}

static bool can_forward(const Sim *x, int s, int *chunk, int32_t *micro) {
  const Stage *t = &x->stage[s];
  if (t->f == (int64_t)x->V * x->M) return false;
  Piece next = x->forward[t->f];
  *chunk = next.local * x->P + s;
  *micro = next.micro;
  return t->before < cap_before(x, s) && t->live < cap_slots(x, s) &&
         message_ready(x, *chunk, DT_PIPE_ACT, *micro);
}

static bool can_backward(const Sim *x, int s, int *chunk, int32_t *micro) {
  const Stage *t = &x->stage[s];
  DtPipeKind kind = x->p->shape.kind;
  if (kind == DT_PIPE_FORWARD || t->b == (int64_t)x->V * x->M) return false;
  if (kind == DT_PIPE_GPIPE && t->f < (int64_t)x->V * x->M) return false;
  Piece next = x->backward[t->b];
  *chunk = next.local * x->P + s;
  *micro = next.micro;
  return x->issued[*chunk] > *micro && message_ready(x, *chunk, DT_PIPE_GRAD, *micro);
}

static bool can_weights(const Sim *x, int s, int *chunk, int32_t *micro) {
  const Stage *t = &x->stage[s];
  if (!dt_pipe_splits(&x->p->shape) || t->w == t->b) return false;
  Piece next = x->backward[t->w];
  *chunk = next.local * x->P + s;
  *micro = next.micro;
  return true;
}

// A span begins with one kind of work and ends with another. One whose ends are none is not there.
bool dt_pipe_span(const DtPipeShape *s, DtSpan span, DtPipeWork *first, DtPipeWork *last) {
  static const DtPipeWork ends[DT_SPANS][2] = {
      [DT_F_TO_B] = {DT_PIPE_F, DT_PIPE_B}, [DT_F_TO_W] = {DT_PIPE_F, DT_PIPE_W}, [DT_B_TO_W] = {DT_PIPE_B, DT_PIPE_W}};
  *first = ends[span][0];
  *last = ends[span][1];
  return s->kind != DT_PIPE_FORWARD && (span == DT_F_TO_B || dt_pipe_splits(s));
}

// The free slot of the lowest number, or a new one. So the last slots of a pool are free for long, and may share memory
// with those of other pools.
static int32_t first_free(Sim *x, int span, int pool) {
  int32_t *best = NULL;
  for (int32_t *at = &x->free[span][pool]; *at >= 0; at = &x->next[span][*at])
    if (!best || x->slot[span][*at] < x->slot[span][*best]) best = at;
  if (!best) return x->p->slots[span][pool]++;
  int32_t i = *best;
  *best = x->next[span][i];
  return x->slot[span][i];
}

// The slots that the work fills, reads and frees: those whose span it is in.
static void take_slots(Sim *x, DtPipeOp *op) {
  int64_t i = (int64_t)op->chunk * x->M + op->micro;
  for (int k = 0; k < DT_SPANS; k++) {
    DtPipeWork first, last;
    op->slot[k] = -1;
    if (!dt_pipe_span(&x->p->shape, (DtSpan)k, &first, &last) || op->work < first || op->work > last) continue;
    int pool = x->p->shape.pool[k][op->chunk];
    if (op->work == first) x->slot[k][i] = first_free(x, k, pool);
    op->slot[k] = x->slot[k][i];
  }
}

static void free_slots(Sim *x, const DtPipeOp *op) {
  int64_t i = (int64_t)op->chunk * x->M + op->micro;
  for (int k = 0; k < DT_SPANS; k++) {
    DtPipeWork first, last;
    if (!dt_pipe_span(&x->p->shape, (DtSpan)k, &first, &last) || op->work != last) continue;
    int pool = x->p->shape.pool[k][op->chunk];
    x->next[k][i] = x->free[k][pool];
    x->free[k][pool] = (int32_t)i;
  }
}

static void begin(Sim *x, int s, DtPipeWork w, int chunk, int32_t micro) {
  Stage *t = &x->stage[s];
  DtPipeOp op = {.work = w, .chunk = chunk, .micro = micro, .in = -1, .out = -1, .peer = -1,
                 .start = x->now, .end = x->now + cost(x, w, chunk)};
  take_slots(x, &op);
  if (w == DT_PIPE_F) {
    t->f++, t->before++, t->live++;
    x->issued[chunk]++;
    x->p->held[s] = most(x->p->held[s], t->live);
  }
  if (w == DT_PIPE_B) t->b++;
  if (w == DT_PIPE_W) t->w++;
  int message = w == DT_PIPE_F ? DT_PIPE_ACT : DT_PIPE_GRAD;
  if (w != DT_PIPE_W && sends(x, chunk, message)) {
    Boundary *b = &x->boundary[message][chunk];
    b->begun++;
    x->p->out[message][chunk] = x->M < BUFFERS ? x->M : BUFFERS;
    op.out = 0;
  }
  if (w != DT_PIPE_W && source_chunk(x, chunk, message) >= 0) op.in = 0;
  t->busy = true;
  t->until = op.end;
  x->p->stage[s].busy += op.end - op.start;
  append(x, s, op);
}

static void finish(Sim *x, int s) {
  Stage *t = &x->stage[s];
  const DtPipe *p = x->p;
  const DtPipeOp *op = NULL;
  for (int64_t i = p->stage[s].n; !op; i--) // the last work; messages may have come since
    if (p->stage[s].op[i - 1].work < DT_PIPE_COMPUTED) op = &p->stage[s].op[i - 1];
  int c = op->chunk;
  t->busy = false;
  if (op->work != DT_PIPE_W) {
    int message = op->work == DT_PIPE_F ? DT_PIPE_ACT : DT_PIPE_GRAD;
    int from = source_chunk(x, c, message);
    if (from >= 0) x->boundary[message][from].used++;
    if (sends(x, c, message)) x->boundary[message][c].made++;
  }
  bool frees = op->work == (dt_pipe_splits(&p->shape) ? DT_PIPE_W : DT_PIPE_B);
  if (p->shape.kind == DT_PIPE_FORWARD || op->work == DT_PIPE_B) t->before--;
  if (p->shape.kind == DT_PIPE_FORWARD || frees) t->live--;
  free_slots(x, op);
}

// A message goes as soon as it is made and the receiver has a buffer for it.
static void transfer(Sim *x, int chunk, int message) {
  Boundary *b = &x->boundary[message][chunk];
  int to = dt_pipe_reader(chunk, message), from_stage = chunk % x->P;
  while (b->sent < b->made && b->sent - b->used < BUFFERS) {
    DtPipeOp op = {.work = DT_PIPE_SEND,
                   .message = (uint8_t)message,
                   .chunk = chunk,
                   .micro = b->sent++,
                   .slot = {-1, -1, -1},
                   .in = -1,
                   .out = 0,
                   .peer = to % x->P,
                   .start = x->now,
                   .end = x->now};
    append(x, from_stage, op);
    op.work = DT_PIPE_RECV;
    op.in = 0;
    op.out = -1;
    op.peer = from_stage;
    append(x, to % x->P, op);
  }
}

// F first: a stage keeps as many activations as it may, and the cap alone makes it turn to B. (B
// first would starve later stages of an interleaved schedule, and of zb.) Of zb, stage s leaves at
// most s microbatches between B and W, as the hand-written schedule does: W then fills the idle
// time at the end of later stages, and no slot is held that F waits for. put_off may say fewer.
static void take_work(Sim *x, int s) {
  int chunk;
  int32_t micro;
  bool late = x->stage[s].b - x->stage[s].w > x->p->shape.put_off[s];
  if (late && can_weights(x, s, &chunk, &micro)) begin(x, s, DT_PIPE_W, chunk, micro);
  else if (can_forward(x, s, &chunk, &micro)) begin(x, s, DT_PIPE_F, chunk, micro);
  else if (can_backward(x, s, &chunk, &micro)) begin(x, s, DT_PIPE_B, chunk, micro);
  else if (can_weights(x, s, &chunk, &micro)) begin(x, s, DT_PIPE_W, chunk, micro);
}

static void simulate(Sim *x) {
  for (bool more = true; more && !x->failed;) {
    for (int s = 0; s < x->P; s++)
      if (x->stage[s].busy && x->stage[s].until == x->now) finish(x, s);
    for (int c = 0; c < x->C; c++)
      for (int k = 0; k < DT_PIPE_MESSAGES; k++)
        if (sends(x, c, k)) transfer(x, c, k);
    int64_t next = INT64_MAX;
    for (int s = 0; s < x->P; s++) {
      if (!x->stage[s].busy) take_work(x, s);
      if (x->stage[s].busy && x->stage[s].until < next) next = x->stage[s].until;
    }
    more = next != INT64_MAX;
    if (more) x->now = next;
  }
  x->p->length = x->now;
}

// The next receive from a stage, at or after `at`.
static int64_t next_from(const DtPipeOp *op, int64_t n, int64_t at, int peer) {
  while (at < n && (op[at].work != DT_PIPE_RECV || op[at].peer != peer)) at++;
  return at;
}

// Posts receives from a stage, in their order, as far as there are buffers. Returns the next one.
static int64_t post_receives(Sim *x, int s, const DtPipeOp *old, int64_t n, int64_t at, int peer) {
  DtPipe *p = x->p;
  for (; (at = next_from(old, n, at, peer)) < n; at++) {
    const DtPipeOp *op = &old[at];
    Boundary *b = &x->boundary[op->message][op->chunk];
    int to = dt_pipe_reader(op->chunk, op->message);
    if (b->posted - b->read >= BUFFERS) break;
    b->posted++;
    p->in[op->message][to] = most(p->in[op->message][to], b->posted - b->read);
    p->stage[s].op[p->stage[s].n++] = *op;
  }
  return at;
}

// Receives are posted as soon as their buffers are free: messages then arrive beside the work
// before the one that needs it.
static void receive_ahead(Sim *x, int s) {
  DtPipeStage *t = &x->p->stage[s];
  int64_t n = t->n, at[2] = {0, 0};
  int peer[2] = {(s + 1) % x->P, (s + x->P - 1) % x->P}, peers = peer[0] == peer[1] ? 1 : 2;
  DtPipeOp *old = malloc(((size_t)n + 1) * sizeof *old);
  if (!old) {
    x->failed = true;
    return;
  }
  memcpy(old, t->op, (size_t)n * sizeof *old);
  t->n = 0;
  for (int64_t i = 0; i <= n; i++) {
    for (int k = 0; k < peers; k++) at[k] = post_receives(x, s, old, n, at[k], peer[k]);
    if (i == n || old[i].work == DT_PIPE_RECV) continue;
    t->op[t->n++] = old[i];
    if (old[i].work >= DT_PIPE_COMPUTED || old[i].in < 0) continue;
    int message = old[i].work == DT_PIPE_B ? DT_PIPE_GRAD : DT_PIPE_ACT;
    x->boundary[message][source_chunk(x, old[i].chunk, message)].read++;
  }
  free(old);
}

// Work on one chunk and messages of one kind go in the order of microbatches: so what is in use of
// a boundary's buffers at one time is an interval, and microbatch m takes number m modulo how many there are.
static void number(DtPipe *p) {
  for (int s = 0; s < p->shape.stages; s++)
    for (int64_t i = 0; i < p->stage[s].n; i++) {
      DtPipeOp *op = &p->stage[s].op[i];
      bool computes = op->work < DT_PIPE_COMPUTED;
      int message = computes ? op->work == DT_PIPE_B : op->message;
      int to = computes ? op->chunk : dt_pipe_reader(op->chunk, message);
      if (op->in >= 0) op->in = op->micro % p->in[message][to];
      if (op->out >= 0) op->out = op->micro % p->out[message][op->chunk];
    }
}

static bool shape_ok(const DtPipeShape *s) {
  if (s->stages < 1 || s->chunks < 1 || s->micro < 1 || s->stages > 1 << 16 || s->chunks > 1 << 16)
    return false;
  bool many = s->kind == DT_PIPE_INTERLEAVED || s->kind == DT_PIPE_FORWARD;
  return s->chunks == 1 || (many && s->stages > 1);
}

static DtPipe *pipe_new(const DtPipeShape *shape) {
  size_t P = (size_t)shape->stages, C = P * (size_t)shape->chunks;
  DtPipe *p = calloc(1, sizeof *p);
  char *m = p ? calloc(1, P * sizeof(DtPipeStage) + DT_PIPE_COMPUTED * C * sizeof(int64_t) +
                              ((2 * DT_SPANS + 2 * DT_PIPE_MESSAGES) * C + 2 * P) * sizeof(int32_t))
              : NULL;
  if (!m) {
    free(p);
    return NULL;
  }
  p->memory = m;
  p->shape = *shape;
  p->stage = (DtPipeStage *)m;
  int64_t *costs = (int64_t *)(p->stage + P);
  int32_t *at = (int32_t *)(costs + DT_PIPE_COMPUTED * C);
  for (int w = 0; w < DT_PIPE_COMPUTED; w++) {
    int64_t unit = w == DT_PIPE_B && !dt_pipe_splits(shape) ? 2 : 1;
    for (size_t c = 0; c < C; c++)
      costs[(size_t)w * C + c] = shape->cost[w] ? shape->cost[w][c] : unit;
    p->shape.cost[w] = costs + (size_t)w * C;
  }
  for (int k = 0; k < DT_SPANS; k++, at += 2 * C) {
    p->slots[k] = at;
    for (size_t c = 0; c < C; c++) at[C + c] = shape->pool[k] ? shape->pool[k][c] : (int32_t)c;
    p->shape.pool[k] = at + C;
  }
  for (int k = 0; k < DT_PIPE_MESSAGES; k++, at += 2 * C) {
    p->in[k] = at;
    p->out[k] = at + C;
  }
  p->held = at;
  for (size_t s = 0; s < P; s++) at[P + s] = shape->put_off ? shape->put_off[s] : (int32_t)s;
  p->shape.put_off = at + P;
  return p;
}

static void slots_new(Sim *x) {
  size_t pieces = (size_t)x->C * (size_t)x->M;
  for (int k = 0; k < DT_SPANS && !x->failed; k++) {
    DtPipeWork first, last;
    if (!dt_pipe_span(&x->p->shape, (DtSpan)k, &first, &last)) continue;
    x->slot[k] = malloc((2 * pieces + (size_t)x->C) * sizeof *x->slot[k]);
    if (!x->slot[k]) {
      x->failed = true;
      return;
    }
    x->next[k] = x->slot[k] + pieces;
    x->free[k] = x->next[k] + pieces;
    for (int c = 0; c < x->C; c++) x->free[k][c] = -1;
  }
}

static void put_off_less(const DtPipeShape *s, const int64_t (*bytes)[DT_SPANS], int32_t *put_off) {
  int64_t most = 0, P = s->stages, M = s->micro;
  for (int64_t k = 0; k < P; k++) {
    int64_t held = P - k + (k < P - 1), whole = bytes[k][DT_F_TO_B] + bytes[k][DT_F_TO_W];
    if (most < (held < M ? held : M) * whole) most = (held < M ? held : M) * whole;
  }
  for (int64_t k = 0; k < P; k++) {
    int64_t before = P - k < M ? P - k : M, n = k < M ? k : M;
    const int64_t *b = bytes[k];
    while (n > 0 && before * b[DT_F_TO_B] + (before + n < M ? before + n : M) * b[DT_F_TO_W] +
                            (n < M ? n + 1 : M) * b[DT_B_TO_W] > most)
      n--;
    put_off[k] = (int32_t)n;
  }
}

void dt_pipe_fit(DtPipeShape *s, const int64_t (*bytes)[DT_SPANS], int32_t *room) {
  int C = dt_pipe_chunks(s);
  for (int k = 0; k < DT_SPANS; k++, room += C) {
    for (int c = 0; c < C; c++) {
      room[c] = c % s->stages;
      while (bytes[room[c]][k] != bytes[c][k]) room[c] += s->stages;
    }
    s->pool[k] = room;
  }
  if (s->kind == DT_PIPE_ZB) put_off_less(s, bytes, room);
  s->put_off = s->kind == DT_PIPE_ZB ? room : NULL;
}

DtPipe *dt_pipe_make(const DtPipeShape *shape) {
  if (!shape_ok(shape)) return NULL;
  DtPipe *p = pipe_new(shape);
  if (!p) return NULL;
  Sim x = {.p = p,
           .P = shape->stages,
           .V = shape->chunks,
           .C = dt_pipe_chunks(shape),
           .M = shape->micro};
  size_t pieces = (size_t)x.V * (size_t)x.M, C = (size_t)x.C;
  x.stage = calloc((size_t)x.P, sizeof *x.stage);
  x.forward = malloc(2 * pieces * sizeof *x.forward);
  Boundary *b = calloc(2 * C, sizeof *b);
  x.issued = calloc(C, sizeof *x.issued);
  x.failed = !x.stage || !x.forward || !b || !x.issued;
  slots_new(&x);
  if (!x.failed) {
    x.backward = x.forward + pieces;
    x.boundary[DT_PIPE_ACT] = b;
    x.boundary[DT_PIPE_GRAD] = b + C;
    orders(&x);
    simulate(&x);
  }
  for (int s = 0; s < x.P && x.P > 1 && !x.failed; s++) receive_ahead(&x, s);
  if (!x.failed) number(p);
  free(x.stage);
  free(x.forward);
  free(b);
  free(x.issued);
  for (int k = 0; k < DT_SPANS; k++) free(x.slot[k]);
  if (!x.failed) return p;
  dt_pipe_free(p);
  return NULL;
}

void dt_pipe_free(DtPipe *p) {
  if (!p) return;
  for (int s = 0; s < p->shape.stages; s++) free(p->stage[s].op);
  free(p->memory);
  free(p);
}

DtPipeBubble dt_pipe_bubble(const DtPipe *p) {
  int64_t busy = 0, all = p->length * p->shape.stages;
  for (int s = 0; s < p->shape.stages; s++) busy += p->stage[s].busy;
  int64_t a = all, b = all - busy;
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return (DtPipeBubble){(all - busy) / a, all / a};
}

bool dt_pipe_parse(const char *text, DtPipeKind *kind, int *chunks) {
  *chunks = 1;
  for (int k = 0; k < DT_PIPE_FORWARD; k++) {
    *kind = (DtPipeKind)k;
    if (!strcmp(text, dt_pipe_name[k])) {
      if (k == DT_PIPE_INTERLEAVED) *chunks = 2;
      return true;
    }
  }
  static const char many[] = "interleaved:";
  if (strncmp(text, many, sizeof many - 1)) return false;
  char *end;
  const char *digits = text + sizeof many - 1;
  long v = strtol(digits, &end, 10);
  if (*digits < '0' || *digits > '9' || *end || v < 1 || v > 1024) return false;
  *kind = DT_PIPE_INTERLEAVED;
  *chunks = (int)v;
  return true;
}
