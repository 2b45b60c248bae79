// Runs a pipeline's table on all stages in lock step, with sends that wait until their receives
// are posted, and work that waits for its input. It knows the inputs of the work and nothing of
// how the table was made.
#include "runtime/pipeline/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE = -1 }; // a slot or buffer that holds nothing
static int32_t awaited(int32_t micro) { return -2 - micro; } // what a buffer is to receive

typedef struct {
  const DtPipe *p;
  int P, C, first, stride;
  int64_t *at; // by stage: its next operation
  int64_t *matched[2]; // by stage: its first receive from the next stage, the one before, to be met
  // Chunk and microbatch that each slot holds; by pool: its first slot.
  int64_t *slot[DT_SPANS];
  int32_t *slot_base[DT_SPANS];
  int32_t *in[DT_PIPE_MESSAGES], *in_base[DT_PIPE_MESSAGES];
  int32_t *out[DT_PIPE_MESSAGES], *out_base[DT_PIPE_MESSAGES];
  int32_t *done[DT_PIPE_COMPUTED]; // by chunk: microbatches that are through
  char *message;
  size_t size;
} Check;

static const char *const work_name[] = {"forward", "backward", "weight gradients", "send",
                                        "receive"};
static const char *const message_name[] = {"activation", "gradient"};

static int rank_of(const Check *x, int stage) { return x->first + x->stride * stage; }

// "activation of chunk 0 (activations x, gpt2.dt:17)"
static void describe_message(const Check *x, const DtPipeOp *op, char *text, size_t size) {
  const char *const *what = x->p->what[op->message], *const *source = x->p->source[op->message];
  bool known = what && op->chunk >= 0 && op->chunk < x->C && what[op->chunk];
  const char *line = known && source ? source[op->chunk] : NULL;
  int n = snprintf(text, size, "%s of chunk %d", message_name[op->message], op->chunk);
  if (known && n > 0 && (size_t)n < size)
    snprintf(text + n, size - (size_t)n, " (%s%s%s)", what[op->chunk], line ? ", " : "",
             line ? line : "");
}

static void describe(const Check *x, int stage, const DtPipeOp *op, char *text, size_t size) {
  if (op->work < DT_PIPE_COMPUTED)
    snprintf(text, size, "rank %d (stage %d), %s of chunk %d, microbatch %d", rank_of(x, stage),
             stage, work_name[op->work], op->chunk, op->micro);
  else {
    char what[200];
    describe_message(x, op, what, sizeof what);
    snprintf(text, size, "rank %d (stage %d), %s of the %s, microbatch %d %s rank %d (stage %d)",
             rank_of(x, stage), stage, work_name[op->work], what, op->micro,
             op->work == DT_PIPE_SEND ? "to" : "from", rank_of(x, op->peer), op->peer);
  }
}

static bool fail(Check *x, int stage, const DtPipeOp *op, const char *what) {
  char text[400];
  describe(x, stage, op, text, sizeof text);
  snprintf(x->message, x->size, "%s: %s", text, what);
  return false;
}

static bool fail_two(Check *x, int s, const DtPipeOp *a, int t, const DtPipeOp *b,
                     const char *what) {
  char one[400], two[400];
  describe(x, s, a, one, sizeof one);
  if (b) describe(x, t, b, two, sizeof two);
  else snprintf(two, sizeof two, "rank %d (stage %d), which has finished", rank_of(x, t), t);
  snprintf(x->message, x->size, "%s: %s; and %s", what, one, two);
  return false;
}

static const DtPipeOp *head(const Check *x, int s) {
  const DtPipeStage *t = &x->p->stage[s];
  return x->at[s] < t->n ? &t->op[x->at[s]] : NULL;
}

static int32_t *pool(int32_t *of, const int32_t *base, int chunk, int32_t i) {
  return i >= 0 && base[chunk] + i < base[chunk + 1] ? &of[base[chunk] + i] : NULL;
}

// Stages exchange messages with the next one and the one before; of two both are the same.
static int side(const Check *x, int stage, int peer) { return peer == (stage + 1) % x->P ? 0 : 1; }

// The stage's first receive from `peer` that has met no send, and whether it is posted; NULL: none.
static const DtPipeOp *waiting_receive(Check *x, int stage, int peer, bool *posted) {
  const DtPipeStage *t = &x->p->stage[stage];
  int64_t *i = &x->matched[side(x, stage, peer)][stage];
  while (*i < t->n && (t->op[*i].work != DT_PIPE_RECV || t->op[*i].peer != peer)) ++*i;
  *posted = *i < x->at[stage];
  return *i < t->n ? &t->op[*i] : NULL;
}

// The stage whose message the work reads, with its kind; -1: it reads none.
static int read_from(const Check *x, const DtPipeOp *op, int *message) {
  *message = op->work == DT_PIPE_B ? DT_PIPE_GRAD : DT_PIPE_ACT;
  int from = dt_pipe_source(op->chunk, *message);
  bool reads = op->work == DT_PIPE_F || op->work == DT_PIPE_B;
  return !reads || from < 0 || from >= x->C || x->P == 1 ? -1 : from % x->P;
}

// Whether the work's message is still to come.
static bool waits(const Check *x, const DtPipeOp *op) {
  int message;
  if (op->chunk < 0 || op->chunk >= x->C || read_from(x, op, &message) < 0) return false;
  int32_t *in = pool(x->in[message], x->in_base[message], op->chunk, op->in);
  return in && *in == awaited(op->micro);
}

// The buffer that the work reads and the one that it fills; NULL where it has none.
static bool boundary_buffers(Check *x, int s, const DtPipeOp *op, int message, bool gets,
                             bool gives) {
  int32_t *in = pool(x->in[message], x->in_base[message], op->chunk, op->in);
  int32_t *out = pool(x->out[message], x->out_base[message], op->chunk, op->out);
  if (gets && (!in || *in != op->micro))
    return fail(x, s, op, "its input has not been received");
  if (gives && (!out || *out != IDLE))
    return fail(x, s, op, "the buffer that it fills is waiting to be sent");
  if (gets) *in = IDLE;
  if (gives) *out = op->micro;
  return true;
}

// Of each span that the work is in: it fills an idle slot, or reads what it or earlier work filled.
static bool use_slots(Check *x, int s, const DtPipeOp *op) {
  int64_t key = (int64_t)op->chunk << 32 | op->micro;
  for (int k = 0; k < DT_SPANS; k++) {
    DtPipeWork first, last;
    if (!dt_pipe_span(&x->p->shape, (DtSpan)k, &first, &last) || op->work < first || op->work > last) continue;
    int pool = x->p->shape.pool[k][op->chunk];
    if (op->slot[k] < 0 || op->slot[k] >= x->p->slots[k][pool]) return fail(x, s, op, "no such slot");
    int64_t *slot = &x->slot[k][x->slot_base[k][pool] + op->slot[k]];
    if (op->work == first && *slot != IDLE) return fail(x, s, op, "its slot is in use");
    if (op->work != first && *slot != key) return fail(x, s, op, "its slot holds something else");
    *slot = op->work == last ? IDLE : key;
  }
  return true;
}

static bool compute(Check *x, int s, const DtPipeOp *op) {
  int c = op->chunk, m = op->micro;
  if (c < 0 || c >= x->C || c % x->P != s)
    return fail(x, s, op, "the chunk belongs to another stage");
  if (m != x->done[op->work][c]) return fail(x, s, op, "out of the order of microbatches");
  if (!use_slots(x, s, op)) return false;
  if (op->work == DT_PIPE_W && x->done[DT_PIPE_B][c] <= m)
    return fail(x, s, op, "before its backward");
  bool first = c == 0, last = c == x->C - 1, alone = x->P == 1;
  if (op->work == DT_PIPE_F &&
      !boundary_buffers(x, s, op, DT_PIPE_ACT, !first && !alone, !last && !alone))
    return false;
  if (op->work == DT_PIPE_B &&
      !boundary_buffers(x, s, op, DT_PIPE_GRAD, !last && !alone, !first && !alone))
    return false;
  x->done[op->work][c]++;
  return true;
}

static bool valid_message(const Check *x, int from, int to_stage, const DtPipeOp *op, int *to) {
  *to = dt_pipe_reader(op->chunk, op->message);
  return op->chunk >= 0 && op->chunk < x->C && *to >= 0 && *to < x->C &&
         op->chunk % x->P == from && *to % x->P == to_stage;
}

static bool post(Check *x, int s, const DtPipeOp *op) {
  int to;
  if (!valid_message(x, op->peer, s, op, &to)) return fail(x, s, op, "no stage sends it");
  int32_t *in = pool(x->in[op->message], x->in_base[op->message], to, op->in);
  if (!in || *in != IDLE) return fail(x, s, op, "its buffer is in use");
  *in = awaited(op->micro);
  return true;
}

static bool exchange(Check *x, int s, const DtPipeOp *send, const DtPipeOp *recv) {
  int k = send->message, to;
  if (!valid_message(x, s, send->peer, send, &to)) return fail(x, s, send, "no stage receives it");
  int32_t *out = pool(x->out[k], x->out_base[k], send->chunk, send->out);
  if (!out || *out != send->micro) return fail(x, s, send, "it has not been computed");
  *out = IDLE;
  *pool(x->in[k], x->in_base[k], to, recv->in) = recv->micro;
  return true;
}

static bool same_message(const DtPipeOp *a, const DtPipeOp *b) {
  return a->message == b->message && a->chunk == b->chunk && a->micro == b->micro;
}

// Runs stage s as far as it goes. False where the table is wrong.
static bool advance(Check *x, int s, bool *moved) {
  for (const DtPipeOp *op; (op = head(x, s)); *moved = true) {
    bool computes = op->work < DT_PIPE_COMPUTED, posted;
    if (!computes && (op->peer < 0 || op->peer >= x->P || op->peer == s))
      return fail(x, s, op, "no such stage");
    if (computes && waits(x, op)) return true;
    if (computes && !compute(x, s, op)) return false;
    if (op->work == DT_PIPE_RECV && !post(x, s, op)) return false;
    if (op->work == DT_PIPE_SEND) {
      const DtPipeOp *recv = waiting_receive(x, op->peer, s, &posted);
      if (!recv || !posted) return true;
      if (!same_message(op, recv))
        return fail_two(x, s, op, op->peer, recv, "two ranks differ in their next operation");
      if (!exchange(x, s, op, recv)) return false;
      x->matched[side(x, op->peer, s)][op->peer]++;
    }
    x->at[s]++;
  }
  return true;
}

// What a stage that does not move waits in, a send or a receive; NULL: it has finished.
static const DtPipeOp *stuck_in(Check *x, int s) {
  const DtPipeOp *op = head(x, s);
  int message, from = op && op->work < DT_PIPE_COMPUTED ? read_from(x, op, &message) : -1;
  if (from < 0) return op;
  const DtPipeStage *t = &x->p->stage[s];
  for (int64_t i = x->at[s] - 1; i >= 0; i--) {
    const DtPipeOp *r = &t->op[i];
    if (r->work == DT_PIPE_RECV && r->message == message && r->micro == op->micro &&
        dt_pipe_reader(r->chunk, message) == op->chunk)
      return r;
  }
  return op;
}

// A receive that met nothing, of a stage that has finished.
static bool explain_left(Check *x) {
  for (int s = 0; s < x->P && x->P > 1; s++)
    for (int k = 0; k < 2; k++) {
      bool posted;
      int peer = k ? (s + x->P - 1) % x->P : (s + 1) % x->P;
      const DtPipeOp *op = waiting_receive(x, s, peer, &posted);
      if (op) return fail_two(x, s, op, peer, NULL, "a message without a matching send or receive");
    }
  return true;
}

// Nobody moves. Somebody waits for one that has finished, or they wait in a circle.
static bool explain(Check *x) {
  int s = 0;
  while (s < x->P && !head(x, s)) s++;
  if (s == x->P) return explain_left(x);
  for (int steps = 0; steps <= x->P; steps++) { // once around from anywhere ends on the circle
    const DtPipeOp *op = stuck_in(x, s);
    if (!head(x, op->peer))
      return fail_two(x, s, op, op->peer, NULL, "a message without a matching send or receive");
    s = op->peer;
  }
  const DtPipeOp *op = stuck_in(x, s);
  return fail_two(x, s, op, op->peer, stuck_in(x, op->peer),
                  "ranks wait for one another in a circle");
}

static bool everything_done(Check *x) {
  int kinds = x->p->shape.kind == DT_PIPE_FORWARD ? 1 : dt_pipe_splits(&x->p->shape) ? 3 : 2;
  for (int k = 0; k < kinds; k++)
    for (int c = 0; c < x->C; c++) {
      if (x->done[k][c] == x->p->shape.micro) continue;
      snprintf(x->message, x->size,
               "rank %d (stage %d): %s of chunk %d is done for %d of %d microbatches",
               rank_of(x, c % x->P), c % x->P, work_name[k], c, x->done[k][c], x->p->shape.micro);
      return false;
    }
  return true;
}

// By chunk the first of its pool, with the end of the last; the pool's members, all idle.
static int32_t *make_pool(int C, const int32_t *count, int32_t **base) {
  int64_t n = 0;
  *base = malloc(((size_t)C + 1) * sizeof **base);
  if (!*base) return NULL;
  for (int c = 0; c < C; c++) {
    (*base)[c] = (int32_t)n;
    n += count[c];
  }
  (*base)[C] = (int32_t)n;
  int32_t *of = malloc((size_t)(n + 1) * sizeof *of);
  for (int64_t i = 0; of && i < n; i++) of[i] = IDLE;
  return of;
}

// The same of slots.
static int64_t *make_slots(int C, const int32_t *count, int32_t **base) {
  int64_t n = 0;
  *base = malloc(((size_t)C + 1) * sizeof **base);
  if (!*base) return NULL;
  for (int c = 0; c < C; n += count[c++]) (*base)[c] = (int32_t)n;
  int64_t *of = malloc((size_t)(n + 1) * sizeof *of);
  for (int64_t i = 0; of && i < n; i++) of[i] = IDLE;
  return of;
}

static bool prepare(Check *x) {
  x->at = calloc(3 * (size_t)x->P, sizeof *x->at);
  for (int k = 0; x->at && k < 2; k++) x->matched[k] = x->at + (k + 1) * (size_t)x->P;
  bool ok = x->at;
  for (int k = 0; k < DT_SPANS; k++) {
    x->slot[k] = make_slots(x->C, x->p->slots[k], &x->slot_base[k]);
    ok = ok && x->slot[k];
  }
  for (int k = 0; k < DT_PIPE_MESSAGES; k++) {
    x->in[k] = make_pool(x->C, x->p->in[k], &x->in_base[k]);
    x->out[k] = make_pool(x->C, x->p->out[k], &x->out_base[k]);
    ok = ok && x->in[k] && x->out[k];
  }
  for (int k = 0; k < DT_PIPE_COMPUTED; k++) {
    x->done[k] = calloc((size_t)x->C, sizeof **x->done);
    ok = ok && x->done[k];
  }
  if (!ok) snprintf(x->message, x->size, "no memory to check the pipeline's schedule");
  return ok;
}

static void release(Check *x) {
  free(x->at);
  for (int k = 0; k < DT_SPANS; k++) {
    free(x->slot[k]);
    free(x->slot_base[k]);
  }
  for (int k = 0; k < DT_PIPE_MESSAGES; k++) {
    free(x->in[k]);
    free(x->in_base[k]);
    free(x->out[k]);
    free(x->out_base[k]);
  }
  for (int k = 0; k < DT_PIPE_COMPUTED; k++) free(x->done[k]);
}

bool dt_pipe_check(const DtPipe *p, int first, int stride, char *message, size_t size) {
  Check x = {.p = p, .P = p->shape.stages, .C = dt_pipe_chunks(&p->shape), .first = first,
             .stride = stride, .message = message, .size = size};
  bool ok = prepare(&x);
  for (bool moved = true; ok && moved;) {
    moved = false;
    for (int s = 0; ok && s < x.P; s++) ok = advance(&x, s, &moved);
  }
  ok = ok && explain(&x) && everything_done(&x);
  release(&x);
  return ok;
}

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x9e3779b97f4a7c15u ^ h >> 29; }

uint64_t dt_pipe_hash(const DtPipe *p) {
  enum { FORMAT = 3 }; // of a table: slots of each span
  uint64_t h = mix(mix(FORMAT, (uint64_t)p->shape.kind), (uint64_t)p->shape.micro);
  for (int s = 0; s < p->shape.stages; s++) {
    h = mix(h, (uint64_t)p->stage[s].n);
    for (int64_t i = 0; i < p->stage[s].n; i++) {
      const DtPipeOp *op = &p->stage[s].op[i];
      const int32_t field[] = {op->work,    op->message, op->chunk, op->micro, op->slot[0],
                               op->slot[1], op->slot[2], op->in,    op->out,   op->peer};
      for (size_t k = 0; k < sizeof field / sizeof *field; k++)
        h = mix(h, (uint64_t)(uint32_t)field[k]);
    }
  }
  return h;
}
