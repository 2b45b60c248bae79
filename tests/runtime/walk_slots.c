// Slots of a pipeline's stage that are in use together never overlap, in any schedule, with chunks that keep any number of
// bytes; and those of pools that are not in use together share memory where that needs less.
#include "runtime/pipeline/walk.h"

#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHUNKS = 16, MOST_USED = 4096, CASES = 300 };

static uint64_t state = 88172645463325252u;
static int below(int n) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (int)((state >> 33) % (unsigned)n);
}

typedef struct Used {
  int64_t from, to;
  uint32_t slot; // its number
} Used;

static int64_t sum_of_pools(const DtProgram *p, const DtPipe *pipe, int stage) {
  int64_t sum = 0;
  for (int c = stage; c < p->nchunk; c += p->pp)
    for (int k = 0; k < DT_SPANS; k++)
      if (pipe->shape.pool[k][c] == c) sum += (p->chunk[c].slot_bytes[k] + 63) / 64 * 64 * pipe->slots[k][c];
  return sum;
}

static void check_use(const Used *used, int n, Used slot, int64_t bytes) {
  CHECK(0 <= slot.from && slot.to <= bytes);
  for (int i = 0; i < n; i++) CHECK(slot.to <= used[i].from || used[i].to <= slot.from);
}

// Follows a stage's work, and returns the bytes that are in use at most.
static int64_t follow(const DtProgram *p, const DtRoute *r, int stage) {
  static Used used[MOST_USED];
  int n = 0;
  int64_t now = 0, most = 0;
  for (int64_t i = 0; i < r->pipe->stage[stage].n; i++) {
    const DtPipeOp *op = &r->pipe->stage[stage].op[i];
    for (int k = 0; op->work <= DT_PIPE_W && k < 2 * DT_SPANS; k++) {
      DtPipeWork first, last;
      int span = k % DT_SPANS;
      if (!dt_pipe_span(&r->pipe->shape, (DtSpan)span, &first, &last)) continue;
      if (op->work != (k < DT_SPANS ? first : last)) continue;
      int64_t number = r->slot[span][op->chunk] + op->slot[span], bytes = p->chunk[op->chunk].slot_bytes[span];
      Used slot = {r->slot_at[number], r->slot_at[number] + bytes, (uint32_t)number};
      if (k < DT_SPANS) {
        check_use(used, n, slot, r->bytes);
        CHECK(n < MOST_USED);
        used[n++] = slot;
        now += (bytes + 63) / 64 * 64;
      }
      if (k >= DT_SPANS) {
        int at = 0;
        while (used[at].slot != slot.slot) at++;
        used[at] = used[--n];
        now -= (bytes + 63) / 64 * 64;
      }
      if (now > most) most = now;
    }
  }
  CHECK(!n && !now);
  return most;
}

// Returns whether pools share memory.
static bool check_stage(const DtProgram *p, int stage, int micro) {
  DtWalk w;
  DtError e = {0};
  CHECK(!dt_walk_open(&w, p, stage, micro, 0, false, &e));
  const DtRoute *r = &w.route[DT_WALK_TRAIN];
  int64_t most = follow(p, r, stage), all = sum_of_pools(p, r->pipe, stage), messages = r->least - most;
  CHECK(dt_walk_bytes(&w) == r->bytes && dt_walk_least(&w) == r->least);
  CHECK(messages >= 0 && most <= r->bytes - messages && r->bytes - messages <= all);
  bool shares = r->bytes - messages < all;
  dt_walk_close(&w);
  return shares;
}

int main(void) {
  static const int kinds[] = {DT_PIPE_GPIPE, DT_PIPE_1F1B, DT_PIPE_INTERLEAVED, DT_PIPE_ZB};
  int shared = 0, stages = 0;
  for (int i = 0; i < CASES; i++) {
    DtPipeChunk chunk[MOST_CHUNKS] = {0};
    int kind = kinds[i % 4], P = 2 + below(3), V = kind == DT_PIPE_INTERLEAVED ? 2 + below(3) : 1, micro = 1 + below(20);
    for (int c = 0; c < P * V; c++) {
      for (int k = 0; k < DT_SPANS; k++) chunk[c].slot_bytes[k] = below(4) * 1000;
      for (int k = 0; k < DT_CHUNK_PARTS; k++) {
        chunk[c].cost[k] = 1 + below(9);
        chunk[c].sent_bytes[k] = 64 * below(3);
      }
    }
    DtProgram p = {.pp = P, .nchunk = P * V, .chunk = chunk, .schedule = (DtPipeKind)kind};
    for (int s = 0; s < P; s++, stages++) shared += check_stage(&p, s, micro);
  }
  printf("pools share memory in %d of %d stages\n", shared, stages);
  CHECK(shared > 10);
  return check_done();
}
