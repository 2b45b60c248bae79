// Every schedule for up to 8 stages and 20 microbatches: it runs without waiting for ever, its
// length is the known one, and it keeps within its memory. Tables with a planted fault are refused
// by name.
#include "runtime/pipeline/pipeline.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[800];

static void say(const DtPipeShape *s, const char *what) {
  fprintf(stderr, "%s, %d stages of %d, %d microbatches: %s\n", dt_pipe_name[s->kind], s->stages,
          s->chunks, s->micro, what);
}

// Time until all is done under unit costs, F 1, B and W 1 each; 0: no closed form.
static int64_t known_length(const DtPipeShape *s) {
  int64_t P = s->stages, M = s->micro, V = s->chunks;
  if (s->kind == DT_PIPE_FORWARD) return V == 1 || M % P == 0 ? V * M + P - 1 : 0;
  if (s->kind == DT_PIPE_ZB) return M >= P ? 3 * M + P - 1 : 2 * P - 1 + 2 * M;
  return V == 1 || M % P == 0 ? 3 * (V * M + P - 1) : 0;
}

static int32_t most_held(const DtPipeShape *s, int stage) {
  int32_t P = s->stages, M = s->micro, V = s->chunks, cap = V * M;
  if (s->kind == DT_PIPE_FORWARD) return 1;
  if (s->kind == DT_PIPE_1F1B) cap = P - stage + (stage < P - 1);
  if (s->kind == DT_PIPE_ZB) cap = P;
  if (s->kind == DT_PIPE_INTERLEAVED) cap = 2 * (P - stage - 1) + (V - 1) * P + 1;
  return cap < V * M ? cap : V * M;
}

// Slots of a stage's chunks, of the spans that are in use.
static void check_slots(const DtPipeShape *s, const DtPipe *p, int stage) {
  int32_t P = s->stages, M = s->micro, slots[DT_SPANS] = {0};
  for (int k = 0; k < DT_SPANS; k++)
    for (int c = stage; c < dt_pipe_chunks(s); c += P) slots[k] += p->slots[k][c];
  if (s->kind == DT_PIPE_FORWARD) CHECK(!slots[DT_F_TO_B] && !slots[DT_F_TO_W] && !slots[DT_B_TO_W]);
  else if (s->kind != DT_PIPE_ZB) {
    CHECK(slots[DT_F_TO_B] >= p->held[stage] && !slots[DT_F_TO_W] && !slots[DT_B_TO_W]);
    if (s->chunks == 1) CHECK(slots[DT_F_TO_B] == p->held[stage]);
  } else { // ZB-H1: P - s microbatches between F and B, s and the one at hand between B and W
    CHECK(slots[DT_F_TO_B] <= (P - stage < M ? P - stage : M));
    CHECK(slots[DT_F_TO_W] == p->held[stage] && slots[DT_F_TO_W] <= P);
    CHECK(slots[DT_B_TO_W] <= (stage + 1 < M ? stage + 1 : M));
  }
}

static void check_shape(const DtPipeShape *s) {
  DtPipe *p = dt_pipe_make(s);
  CHECK(p);
  if (!p) return;
  bool good = dt_pipe_check(p, 0, 1, text, sizeof text);
  if (!good) say(s, text);
  CHECK(good);
  int64_t want = known_length(s);
  if (want && p->length != want) say(s, "not of the known length");
  CHECK(!want || p->length == want);
  for (int i = 0; i < s->stages; i++) {
    CHECK(p->held[i] <= most_held(s, i));
    check_slots(s, p, i);
  }
  dt_pipe_free(p);
}

static void check_all(void) {
  for (int k = 0; k < DT_PIPE_KINDS; k++)
    for (int P = 1; P <= 8; P++)
      for (int V = 1; V <= 4; V++)
        for (int M = 1; M <= 20; M++) {
          bool many = k == DT_PIPE_INTERLEAVED || k == DT_PIPE_FORWARD;
          if (V > 1 && (!many || P == 1)) continue;
          check_shape(&(DtPipeShape){.kind = (DtPipeKind)k, .stages = P, .chunks = V, .micro = M});
        }
}

static void check_bubble(void) {
  for (int P = 1; P <= 8; P++)
    for (int M = 1; M <= 20; M++) {
      DtPipe *p =
          dt_pipe_make(&(DtPipeShape){.kind = DT_PIPE_1F1B, .stages = P, .chunks = 1, .micro = M});
      CHECK(p);
      if (!p) return;
      DtPipeBubble b = dt_pipe_bubble(p);
      CHECK(b.idle * (M + P - 1) == b.all * (P - 1));
      dt_pipe_free(p);
    }
}

// Costs as they come: no schedule depends on all being equal.
static void check_uneven(void) {
  uint64_t random = 12345;
  for (int round = 0; round < 300; round++) {
    int64_t cost[3][32];
    for (int i = 0; i < 96; i++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      cost[i / 32][i % 32] = 1 + (int64_t)(random >> 33) % (round % 3 ? 20 : 1000);
    }
    DtPipeShape s = {.kind = (DtPipeKind)(round % DT_PIPE_KINDS),
                     .stages = 1 + round % 8,
                     .chunks = 1,
                     .micro = 1 + round % 23,
                     .cost = {cost[0], cost[1], cost[2]}};
    if (s.stages > 1 && (s.kind == DT_PIPE_INTERLEAVED || s.kind == DT_PIPE_FORWARD))
      s.chunks = 1 + round / 8 % 4;
    DtPipe *p = dt_pipe_make(&s);
    CHECK(p);
    if (!p) return;
    bool good = dt_pipe_check(p, 0, 1, text, sizeof text);
    if (!good) say(&s, text);
    CHECK(good);
    for (int i = 0; i < s.stages; i++) CHECK(p->held[i] <= most_held(&s, i));
    dt_pipe_free(p);
  }
}

// Chunks of one stage whose slots are of one size share them: a stage then has as many as it holds microbatches.
static void check_pools(void) {
  int32_t pool[64];
  for (int P = 2; P <= 8; P++)
    for (int V = 2; V <= 8; V++)
      for (int M = 1; M <= 20; M++)
        for (int alone = 0; alone < 2; alone++) { // the first and last chunk's are of other sizes
          for (int c = 0; c < P * V; c++) pool[c] = c % P;
          if (alone) pool[P * V - 1] = P * V - 1;
          for (int c = P; alone && c < P * V; c += P) pool[c] = P;
          DtPipe *p = dt_pipe_make(&(DtPipeShape){
              .kind = DT_PIPE_INTERLEAVED, .stages = P, .chunks = V, .micro = M, .pool = {pool, pool, pool}});
          CHECK(p);
          if (!p) return;
          bool good = dt_pipe_check(p, 0, 1, text, sizeof text);
          if (!good) say(&p->shape, text);
          CHECK(good);
          for (int s = 0; s < P; s++) {
            int32_t slots = 0;
            for (int c = s; c < P * V; c += P) slots += p->slots[DT_F_TO_B][c];
            CHECK(slots >= p->held[s]);
            if (pool[s + P * (V - 1)] == s) CHECK(slots == p->held[s]);
          }
          dt_pipe_free(p);
        }
}

static int64_t stage_bytes(const DtPipe *p, int stage, const int64_t (*bytes)[DT_SPANS]) {
  int64_t n = 0;
  for (int k = 0; k < DT_SPANS; k++)
    for (int c = stage; c < dt_pipe_chunks(&p->shape); c += p->shape.stages) n += p->slots[k][c] * bytes[c][k];
  return n;
}

// A schedule made for what its chunks keep: chunks with slots of one size share them, and no stage of zb needs more
// than 1f1b's largest.
static void check_fit(void) {
  uint64_t random = 54321;
  static int32_t room[1000];
  for (int round = 0; round < 2000; round++) {
    int64_t bytes[64][DT_SPANS], most[2] = {0};
    DtPipeShape s = {.kind = round % 2 ? DT_PIPE_ZB : DT_PIPE_INTERLEAVED,
                     .stages = 1 + round / 2 % 8,
                     .chunks = 1,
                     .micro = 1 + round % 37};
    if (s.kind == DT_PIPE_INTERLEAVED && s.stages > 1) s.chunks = 1 + round / 16 % 4;
    for (int i = 0; i < 64 * DT_SPANS; i++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      bytes[i / DT_SPANS][i % DT_SPANS] = (int64_t)(random >> 33) % (round % 5 ? 40 : 3);
    }
    dt_pipe_fit(&s, (const int64_t(*)[DT_SPANS])bytes, room);
    DtPipe *p = dt_pipe_make(&s);
    CHECK(p);
    if (!p) return;
    bool good = dt_pipe_check(p, 0, 1, text, sizeof text);
    if (!good) say(&s, text);
    CHECK(good);
    for (int i = 0; i < s.stages; i++) {
      int64_t n = stage_bytes(p, i, (const int64_t(*)[DT_SPANS])bytes);
      if (n > most[0]) most[0] = n;
      n = bytes[i][DT_F_TO_B] + bytes[i][DT_F_TO_W];
      n *= most_held(&(DtPipeShape){.kind = DT_PIPE_1F1B, .stages = s.stages, .chunks = 1, .micro = s.micro}, i);
      if (n > most[1]) most[1] = n;
    }
    // A stage that puts nothing off has one slot from B to W all the same.
    int64_t least = 0;
    for (int i = 0; i < s.stages; i++)
      if (bytes[i][DT_B_TO_W] > least) least = bytes[i][DT_B_TO_W];
    if (s.kind == DT_PIPE_ZB) CHECK(most[0] <= most[1] + least);
    dt_pipe_free(p);
  }
}

static int64_t find(const DtPipe *p, int stage, DtPipeWork work, int nth) {
  for (int64_t i = 0; i < p->stage[stage].n; i++)
    if (p->stage[stage].op[i].work == work && nth-- == 0) return i;
  return -1;
}

static void swap(DtPipe *p, int stage, int64_t a, int64_t b) {
  DtPipeOp *op = p->stage[stage].op, t = op[a];
  op[a] = op[b];
  op[b] = t;
}

static void drop(DtPipe *p, int stage, int64_t at) {
  DtPipeStage *t = &p->stage[stage];
  memmove(t->op + at, t->op + at + 1, (size_t)(--t->n - at) * sizeof *t->op);
}

static DtPipe *sample(DtPipeKind kind) {
  return dt_pipe_make(&(DtPipeShape){.kind = kind, .stages = 3, .chunks = 1, .micro = 5});
}

// The table with the fault is refused, and the message has the parts. It is no longer the table
// that other ranks have.
static void refused(DtPipe *p, const char *a, const char *b) {
  DtPipe *good = dt_pipe_make(&p->shape);
  CHECK(good && dt_pipe_hash(good) != dt_pipe_hash(p));
  dt_pipe_free(good);
  text[0] = 0;
  CHECK(!dt_pipe_check(p, 2, 4, text, sizeof text));
  CHECK_SAYS(text, a);
  CHECK_SAYS(text, b);
  dt_pipe_free(p);
}

static void check_faults(void) {
  DtPipe *p = sample(DT_PIPE_GPIPE); // two sends swapped: which two ranks, and what each does
  p->stage[0].op[find(p, 0, DT_PIPE_SEND, 1)].micro = 2;
  p->stage[0].op[find(p, 0, DT_PIPE_SEND, 2)].micro = 1;
  refused(p, "rank 2 (stage 0), send of the activation of chunk 0, microbatch 2 to rank 6",
          "rank 6 (stage 1), receive of the activation of chunk 0, microbatch 1 from rank 2");
  p = sample(DT_PIPE_FORWARD); // the last send left out
  drop(p, 0, find(p, 0, DT_PIPE_SEND, 4));
  refused(
      p,
      "without a matching send or receive: rank 6 (stage 1), receive of the activation of chunk 0, microbatch 4",
      "rank 2 (stage 0), which has finished");
  p = sample(DT_PIPE_GPIPE); // a send left out: the next one meets the wrong receive
  drop(p, 0, find(p, 0, DT_PIPE_SEND, 1));
  refused(p, "rank 2 (stage 0), send of the activation of chunk 0, microbatch 2 to rank 6",
          "rank 6 (stage 1), receive of the activation of chunk 0, microbatch 1 from rank 2");
  p = sample(DT_PIPE_GPIPE); // sends too late: a later microbatch finds its buffer full
  for (int nth = 2; nth >= 1; nth--)
    for (int64_t i = find(p, 0, DT_PIPE_SEND, nth), end = find(p, 0, DT_PIPE_F, 3); i < end; i++)
      swap(p, 0, i, i + 1);
  refused(p, "rank 2 (stage 0), forward of chunk 0, microbatch 3", "waiting to be sent");
  p = sample(DT_PIPE_1F1B); // the same where both wait for it
  drop(p, 0, find(p, 0, DT_PIPE_SEND, 4));
  refused(p, "in a circle: rank 2 (stage 0), receive of the gradient of chunk 1, microbatch 2",
          "rank 6 (stage 1), receive of the activation of chunk 0, microbatch 4");
  p = sample(DT_PIPE_1F1B); // a receive left out
  drop(p, 1, find(p, 1, DT_PIPE_RECV, 0));
  refused(p, "rank 10 (stage 2), send of the gradient of chunk 2, microbatch 0 to rank 6",
          "rank 6 (stage 1), receive of the gradient of chunk 2, microbatch 1 from rank 10");
  p = sample(DT_PIPE_FORWARD); // the last one left out
  drop(p, 1, find(p, 1, DT_PIPE_RECV, 4));
  refused(p, "rank 6 (stage 1), forward of chunk 1, microbatch 4", "has not been received");
  p = sample(DT_PIPE_FORWARD); // one too many
  drop(p, 0, find(p, 0, DT_PIPE_SEND, 4));
  drop(p, 1, find(p, 1, DT_PIPE_F, 4));
  drop(p, 1, find(p, 1, DT_PIPE_SEND, 4));
  drop(p, 2, find(p, 2, DT_PIPE_RECV, 4));
  drop(p, 2, find(p, 2, DT_PIPE_F, 4));
  refused(p, "without a matching send or receive: rank 6 (stage 1), receive of the activation of chunk 0",
          "rank 2 (stage 0), which has finished");
  p = sample(DT_PIPE_GPIPE); // one before its buffer is free
  for (int64_t i = find(p, 1, DT_PIPE_RECV, 4), end = find(p, 1, DT_PIPE_F, 0); i > end; i--)
    swap(p, 1, i, i - 1);
  refused(p, "rank 6 (stage 1), receive of the activation of chunk 0, microbatch 2",
          "its buffer is in use");
  p = sample(DT_PIPE_1F1B); // a send before what it sends is there
  swap(p, 1, find(p, 1, DT_PIPE_SEND, 0), find(p, 1, DT_PIPE_F, 0));
  refused(p, "rank 6 (stage 1), send of the activation of chunk 1, microbatch 0",
          "has not been computed");
  p = sample(DT_PIPE_ZB); // weight gradients out of order
  swap(p, 1, find(p, 1, DT_PIPE_W, 0), find(p, 1, DT_PIPE_W, 1));
  refused(p, "rank 6 (stage 1), weight gradients of chunk 1, microbatch 1",
          "order of microbatches");
  p = sample(DT_PIPE_1F1B); // one slot too few
  p->stage[0].op[find(p, 0, DT_PIPE_F, 1)].slot[DT_F_TO_B] = 0;
  refused(p, "forward of chunk 0, microbatch 1", "its slot is in use");
  p = dt_pipe_make(&(DtPipeShape){.kind = DT_PIPE_GPIPE, .stages = 2, .chunks = 1, .micro = 1});
  drop(p, 0, find(p, 0, DT_PIPE_RECV, 0)); // backward with nothing to come
  refused(p, "rank 2 (stage 0), backward of chunk 0, microbatch 0", "has not been received");
  p = sample(DT_PIPE_GPIPE);
  drop(p, 2, find(p, 2, DT_PIPE_F, 4));
  refused(p, "rank 10 (stage 2)", "chunk 2");
}

static const char *const acts[] = {"activations x", "activations y", NULL};
static const char *const lines[] = {"gpt2.dt:17", NULL, NULL};

// Ranks wait in a ring: the first reads a gradient before it sends what that is computed from.
static void check_ring(void) {
  DtPipe *p = sample(DT_PIPE_1F1B);
  p->what[DT_PIPE_ACT] = acts;
  p->source[DT_PIPE_ACT] = lines;
  int64_t first = find(p, 0, DT_PIPE_SEND, 0);
  for (int64_t i = find(p, 0, DT_PIPE_B, 0); i > first; i--) swap(p, 0, i, i - 1);
  refused(p, "in a circle: rank 2 (stage 0), receive of the gradient of chunk 1, microbatch 0",
          "receive of the activation of chunk 0 (activations x, gpt2.dt:17), microbatch");
  p = sample(DT_PIPE_1F1B);
  p->what[DT_PIPE_ACT] = acts;
  p->source[DT_PIPE_ACT] = lines;
  p->stage[0].op[find(p, 0, DT_PIPE_SEND, 1)].micro = 2;
  refused(p, "send of the activation of chunk 0 (activations x, gpt2.dt:17), microbatch 2 to",
          "receive of the activation of chunk 0 (activations x, gpt2.dt:17), microbatch 1 from");
}

// ---- messages that take time

enum { MOST_MESSAGES = 2 * 16 * 32 };

// Time of a step whose messages each take `late`: a send begins when the ones before have gone, and
// comes so much later, but no sooner than that after its receive was posted.
typedef struct {
  const DtPipe *p;
  int64_t late;
  // By stage: its operation, when that begins, when the sends before it are through.
  int64_t at[16], now[16], line[16];
  int64_t posted[MOST_MESSAGES], comes[MOST_MESSAGES], gone[MOST_MESSAGES]; // -1: unknown
} Late;

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t message_number(const Late *x, int kind, int chunk, int32_t micro) {
  return ((int64_t)kind * dt_pipe_chunks(&x->p->shape) + chunk) * x->p->shape.micro + micro;
}

static bool late_send(Late *x, int s, const DtPipeOp *op) {
  int64_t m = message_number(x, op->message, op->chunk, op->micro);
  if (x->posted[m] < 0) return false;
  x->line[s] = most(most(x->now[s], x->line[s]) + x->late, x->posted[m]);
  x->gone[m] = x->line[s];
  x->comes[m] = most(x->line[s], x->posted[m] + x->late);
  return true;
}

static bool late_compute(Late *x, int s, const DtPipeOp *op) {
  int kind = op->work == DT_PIPE_B ? DT_PIPE_GRAD : DT_PIPE_ACT;
  int from = kind == DT_PIPE_ACT ? op->chunk - 1 : op->chunk + 1;
  if (op->in >= 0) {
    int64_t comes = x->comes[message_number(x, kind, from, op->micro)];
    if (comes < 0) return false;
    x->now[s] = most(x->now[s], comes);
  }
  int32_t before = op->micro - (op->out >= 0 ? x->p->out[kind][op->chunk] : 0);
  if (op->out >= 0 && before >= 0)
    x->now[s] = most(x->now[s], x->gone[message_number(x, kind, op->chunk, before)]);
  x->now[s] += x->p->shape.cost[op->work][op->chunk];
  return true;
}

static int64_t length_with(const DtPipe *p, int64_t late) {
  static Late x;
  memset(&x, 0, sizeof x);
  x.p = p;
  x.late = late;
  for (int i = 0; i < MOST_MESSAGES; i++) x.posted[i] = x.comes[i] = x.gone[i] = -1;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < p->shape.stages; s++)
      for (; x.at[s] < p->stage[s].n; x.at[s]++, moved = true) {
        const DtPipeOp *op = &p->stage[s].op[x.at[s]];
        if (op->work == DT_PIPE_RECV)
          x.posted[message_number(&x, op->message, op->chunk, op->micro)] = x.now[s];
        else if (op->work == DT_PIPE_SEND ? !late_send(&x, s, op) : !late_compute(&x, s, op)) break;
      }
  }
  int64_t length = 0;
  for (int s = 0; s < p->shape.stages; s++) length = most(length, x.now[s]);
  return length;
}

static int64_t messages(const DtPipe *p, int stage) {
  int64_t n = 0;
  for (int64_t i = 0; i < p->stage[stage].n; i++)
    n += p->stage[stage].op[i].work >= DT_PIPE_COMPUTED;
  return n;
}

// A step grows by less than so many hundredths of the time that the first stage's messages take.
// What fills and drains a pipeline cannot be beside anything: it weighs less the more microbatches.
static void check_late(DtPipeKind kind, int stages, int32_t micro, int64_t late, int64_t percent) {
  int chunks = kind == DT_PIPE_INTERLEAVED ? 2 : 1;
  int64_t cost[3][16];
  for (int c = 0; c < 16; c++) {
    cost[0][c] = cost[2][c] = 600 / chunks;
    cost[1][c] = (kind == DT_PIPE_ZB ? 600 : 1200) / chunks;
  }
  DtPipeShape s = {.kind = kind, .stages = stages, .chunks = chunks, .micro = micro,
                   .cost = {cost[0], cost[1], cost[2]}};
  DtPipe *p = dt_pipe_make(&s);
  CHECK(p);
  if (!p) return;
  CHECK(length_with(p, 0) == p->length);
  int64_t more = length_with(p, late) - p->length, sum = messages(p, 0) * late;
  if (100 * more >= percent * sum) {
    snprintf(text, sizeof text, "%lld longer, of %lld that messages take", (long long)more,
             (long long)sum);
    say(&s, text);
  }
  CHECK(100 * more < percent * sum);
  dt_pipe_free(p);
}

static void check_overlap(void) {
  for (int64_t late = 10; late <= 200; late += 10) {
    check_late(DT_PIPE_GPIPE, 2, 4, late, 26);
    check_late(DT_PIPE_GPIPE, 2, 8, late, 13);
    check_late(DT_PIPE_1F1B, 2, 4, late, 26);
    check_late(DT_PIPE_1F1B, 2, 8, late, 13);
    check_late(DT_PIPE_INTERLEAVED, 2, 4, late, 26);
    check_late(DT_PIPE_INTERLEAVED, 2, 8, late, 13);
    check_late(DT_PIPE_ZB, 2, 8, late, 26);
    check_late(DT_PIPE_GPIPE, 4, 16, late, 20);
    check_late(DT_PIPE_1F1B, 4, 16, late > 100 ? 100 : late, 33);
    check_late(DT_PIPE_INTERLEAVED, 4, 16, late, 20);
    check_late(DT_PIPE_ZB, 4, 16, late, 39);
  }
}

// Each receive is posted before the work ahead of the one that reads it, but for the first that a
// stage computes with.
static void check_ahead(DtPipeKind kind) {
  int chunks = kind == DT_PIPE_INTERLEAVED ? 2 : 1;
  DtPipe *p = dt_pipe_make(
      &(DtPipeShape){.kind = kind, .stages = 3, .chunks = chunks, .micro = 7});
  CHECK(p);
  for (int s = 0; p && s < 3; s++)
    for (int64_t i = 0, before = -1; i < p->stage[s].n; i++) {
      const DtPipeOp *op = &p->stage[s].op[i];
      if (op->work >= DT_PIPE_COMPUTED) continue;
      int kind_read = op->work == DT_PIPE_B ? DT_PIPE_GRAD : DT_PIPE_ACT, ahead = 0;
      int from = kind_read == DT_PIPE_ACT ? op->chunk - 1 : op->chunk + 1;
      for (int64_t k = 0; k < before && op->in >= 0; k++) {
        const DtPipeOp *r = &p->stage[s].op[k];
        ahead += r->work == DT_PIPE_RECV && r->message == kind_read && r->chunk == from &&
                 r->micro == op->micro;
      }
      CHECK(op->in < 0 || before < 0 || ahead == 1);
      before = i;
    }
  dt_pipe_free(p);
}

static void check_parse(void) {
  DtPipeKind kind;
  int chunks;
  CHECK(dt_pipe_parse("1f1b", &kind, &chunks) && kind == DT_PIPE_1F1B && chunks == 1);
  CHECK(dt_pipe_parse("interleaved", &kind, &chunks) && kind == DT_PIPE_INTERLEAVED && chunks == 2);
  CHECK(dt_pipe_parse("interleaved:3", &kind, &chunks) && kind == DT_PIPE_INTERLEAVED &&
        chunks == 3);
  CHECK(!dt_pipe_parse("interleaved:", &kind, &chunks) &&
        !dt_pipe_parse("interleaved:0", &kind, &chunks));
  CHECK(!dt_pipe_parse("forward", &kind, &chunks) && !dt_pipe_parse("1f1b:2", &kind, &chunks));
}

static void check_drawing(void) {
  DtPipe *p =
      dt_pipe_make(&(DtPipeShape){.kind = DT_PIPE_1F1B, .stages = 2, .chunks = 1, .micro = 3});
  char *drawn = p ? dt_pipe_draw(p, 200) : NULL;
  CHECK(drawn);
  if (drawn) {
    CHECK_SAYS(drawn, "1f1b: 2 stages, 3 microbatches: bubble 1/4 = 25.00%\n");
    CHECK_SAYS(drawn, "stage 0   |F0 F1 F2 ...B0--- ...B1--- ...B2--- | bubble 25.00%, holds 3\n");
    CHECK_SAYS(drawn, "stage 1   |...F0 B0--- F1 B1--- F2 B2--- ......| bubble 25.00%, holds 1\n");
  }
  free(drawn);
  dt_pipe_free(p);
  CHECK(!dt_pipe_make(&(DtPipeShape){.kind = DT_PIPE_1F1B, .stages = 2, .chunks = 2, .micro = 3}));
  CHECK(!dt_pipe_make(&(DtPipeShape){.kind = DT_PIPE_GPIPE, .stages = 2, .chunks = 1, .micro = 0}));
}

int main(void) {
  check_all();
  check_bubble();
  check_uneven();
  check_pools();
  check_fit();
  check_faults();
  check_ring();
  check_overlap();
  for (int k = 0; k < DT_PIPE_KINDS; k++) check_ahead((DtPipeKind)k);
  check_parse();
  check_drawing();
  return check_done();
}
