// Operations over shared memory. Arrays are cut into rounds of at most a slot, and a member stages
// the next round before it needs the others' last one, so that copying, adding and waiting overlap.
#include "runtime/comm/shm.h"

#include <stdio.h>
#include <string.h>

enum {
  SMALL = 16 << 10, // an all-reduce up to here is one round: each rank adds everything
  LANE = 16         // pieces of a slot begin at multiples of it, in elements
};

// Which readers a slot of this rank waits for before it is filled again.
typedef struct {
  const DtGroup *g; // all others of it; NULL: none
  int to;           // only this rank; -1: all of the group
  uint64_t rounds;
} Use;

static uint64_t rounds_done[DT_GROUPS], ops_done[DT_GROUPS];
static uint64_t sent[DT_LOCAL_RANKS], got[DT_LOCAL_RANKS], // rounds with each rank
    sends[DT_LOCAL_RANKS], receives[DT_LOCAL_RANKS];
static Use use[DT_SLOTS];
static unsigned next_slot;

// The operation under way.
static struct {
  const DtOp *op;
  const DtGroup *g;
  DtShmArrive *mine;
  size_t size;         // of an element
  uint64_t base, hash; // rounds of the group before it; what it is
  int64_t rounds;
  unsigned first_slot;
  unsigned slot[DT_LOCAL_RANKS]; // of each member's first round
  const void *source[DT_LOCAL_RANKS];
} now;

static _Noreturn void mismatch(int rank) {
  const DtDoing *d = &dt_shm.rank[rank].doing;
  dt_comm_end(
      DT_EXIT_BUG,
      "ranks exchange different operations: rank %d is at %s of %.*s (%lld bytes), %.*s", rank,
      d->kind >= 0 && d->kind < DT_OP_KINDS ? dt_op_name[d->kind] : "nothing", (int)sizeof d->what,
      d->what, (long long)d->bytes, (int)sizeof d->source, d->source);
}

static char *slot_at(int rank, unsigned slot) {
  return dt_shm.stage + ((size_t)rank * DT_SLOTS + slot % DT_SLOTS) * DT_SLOT_BYTES;
}

// The slot of this rank's round i, free to be filled.
static char *free_slot(int64_t i, int to) {
  unsigned slot = (now.first_slot + (unsigned)i) % DT_SLOTS;
  Use *u = &use[slot];
  if (u->g && u->to >= 0)
    dt_shm_await_receiver(&dt_shm_pair(dt_shm.me, u->to)->got, u->rounds, u->to);
  for (int m = 0; u->g && u->to < 0 && m < u->g->n; m++)
    if (m != u->g->me)
      dt_shm_await(&dt_shm_arrive(u->g->rank[m], u->g->id)->taken, u->rounds, u->g->rank[m]);
  *u = (Use){now.g, to, now.base + (uint64_t)i + 1};
  next_slot++;
  return slot_at(dt_shm.me, slot);
}

static void staged(int64_t i) {
  if (i == 0)
    atomic_store_explicit(&now.mine->recent[ops_done[now.g->id] % DT_RECENT],
                          now.hash << 8 | now.first_slot, memory_order_relaxed);
  dt_shm_beat();
  dt_counter_set(&now.mine->staged, now.base + (uint64_t)i + 1);
}

static void taken(int64_t i) { dt_counter_set(&now.mine->taken, now.base + (uint64_t)i + 1); }

// What member m has staged in round i.
static const char *arrived(int m, int64_t i) {
  int rank = now.g->rank[m];
  DtShmArrive *a = dt_shm_arrive(rank, now.g->id);
  dt_shm_await(&a->staged, now.base + (uint64_t)i + 1, rank);
  if (i == 0) {
    uint64_t recent = atomic_load_explicit(&a->recent[ops_done[now.g->id] % DT_RECENT],
                                           memory_order_relaxed);
    if (recent >> 8 != now.hash) mismatch(rank);
    now.slot[m] = recent & 255;
  }
  return slot_at(rank, now.slot[m] + (unsigned)i);
}

static void begin(const DtOp *op) {
  now.op = op;
  now.g = op->g;
  now.mine = dt_shm_arrive(dt_shm.me, op->g->id);
  now.size = dt_type_size(op->type);
  now.base = rounds_done[op->g->id];
  now.hash = dt_op_hash(op) >> 8;
  now.first_slot = next_slot % DT_SLOTS;
  dt_shm_publish(op);
}

static void end(int64_t rounds) {
  int id = now.g->id;
  rounds_done[id] += (uint64_t)rounds;
  ops_done[id]++;
  dt_counter_set(&now.mine->reduced, rounds_done[id]);
  // A rank that staged or took nothing is done, too. But it publishes nothing new of an operation, since
  // others may still read its record of the one before.
  if (dt_counter_get(&now.mine->staged) != rounds_done[id])
    dt_counter_set(&now.mine->staged, rounds_done[id]);
  if (dt_counter_get(&now.mine->taken) != rounds_done[id]) taken(rounds - 1);
}

static const char *in_at(int64_t element) {
  return (const char *)now.op->in + (size_t)element * now.size;
}
static char *out_at(int64_t element) { return (char *)now.op->out + (size_t)element * now.size; }
static size_t bytes(int64_t elements) { return elements > 0 ? (size_t)elements * now.size : 0; }
static int64_t slot_elements(int parts) {
  return (int64_t)(DT_SLOT_BYTES / now.size) / parts / LANE * LANE;
}

// ---- All-reduce

static void all_reduce_small(void) {
  const DtOp *op = now.op;
  memcpy(free_slot(0, -1), op->in, bytes(op->count));
  staged(0);
  for (int m = 0; m < now.g->n; m++) now.source[m] = m == now.g->me ? op->in : arrived(m, 0);
  dt_reduce(op->type, op->reduce, op->out, now.source, now.g->n, op->count);
  taken(0);
  end(1);
}

// Elements [at, at + length) of the array are a round; piece k of it is [begin[k], begin[k + 1]).
typedef struct {
  int64_t at, length, piece;
} Block;

static Block block_of(int64_t i, int64_t most) {
  Block b = {.at = i * most};
  b.length = dt_least(most, now.op->count - b.at);
  b.piece = ((b.length + now.g->n - 1) / now.g->n + LANE - 1) / LANE * LANE;
  return b;
}
static int64_t piece_begin(const Block *b, int k) { return dt_least(b->length, k * b->piece); }
static int64_t piece_length(const Block *b, int k) {
  return piece_begin(b, k + 1) - piece_begin(b, k);
}

static void stage_block(const Block *b, int64_t i) {
  char *to = free_slot(i, -1);
  int64_t mine = piece_begin(b, now.g->me), after = mine + piece_length(b, now.g->me);
  memcpy(to, in_at(b->at), bytes(mine));
  memcpy(to + bytes(after), in_at(b->at + after), bytes(b->length - after));
  staged(i);
}

// Reduces this member's piece into its own slot, where nothing was staged, and into its array.
static void reduce_block(const Block *b, int64_t i) {
  int64_t at = piece_begin(b, now.g->me), n = piece_length(b, now.g->me);
  for (int m = 0; m < now.g->n; m++)
    now.source[m] = m == now.g->me ? in_at(b->at + at) : arrived(m, i) + bytes(at);
  char *to = slot_at(dt_shm.me, now.first_slot + (unsigned)i) + bytes(at);
  dt_reduce(now.op->type, now.op->reduce, to, now.source, now.g->n, n);
  dt_counter_set(&now.mine->reduced, now.base + (uint64_t)i + 1);
  memcpy(out_at(b->at + at), to, bytes(n));
}

static void gather_block(const Block *b, int64_t i) {
  for (int m = 0; m < now.g->n; m++) {
    if (m == now.g->me) continue;
    int rank = now.g->rank[m];
    dt_shm_await(&dt_shm_arrive(rank, now.g->id)->reduced, now.base + (uint64_t)i + 1, rank);
    int64_t at = piece_begin(b, m);
    memcpy(out_at(b->at + at), slot_at(rank, now.slot[m] + (unsigned)i) + bytes(at),
           bytes(piece_length(b, m)));
  }
  taken(i);
}

static void all_reduce(void) {
  if (bytes(now.op->count) <= SMALL) {
    all_reduce_small();
    return;
  }
  int64_t most = slot_elements(now.g->n) * now.g->n;
  int64_t n = (now.op->count + most - 1) / most;
  for (int64_t i = 0; i < n + 2; i++) {
    Block b[3] = {block_of(i, most), block_of(i - 1, most), block_of(i - 2, most)};
    if (i < n) stage_block(&b[0], i);
    if (i >= 1 && i <= n) reduce_block(&b[1], i - 1);
    if (i >= 2) gather_block(&b[2], i - 2);
  }
  end(n);
}

// ---- Operations of one phase: each stages round i, then takes round i - 1

static void phases(int64_t n, void (*stage)(int64_t i), void (*take)(int64_t i)) {
  for (int64_t i = 0; i <= n; i++) {
    if (i < n) stage(i);
    if (i >= 1) take(i - 1);
  }
  end(n);
}

// Elements of round i in a part of `part` elements, of which `there` are really there.
typedef struct {
  int64_t at, n;
} Span;
static Span span(int64_t i, int64_t most, int64_t there) {
  int64_t at = i * most, n = dt_least(most, there - at);
  return (Span){at, n > 0 ? n : 0};
}
static int64_t piece(void) { return (now.op->count + now.g->n - 1) / now.g->n; }
static int64_t piece_there(int k) {
  int64_t c = piece(), left = now.op->count - k * c;
  return left < 0 ? 0 : dt_least(c, left);
}

static void scatter_stage(int64_t i) {
  int64_t most = slot_elements(now.g->n);
  char *to = free_slot(i, -1);
  for (int m = 0; m < now.g->n; m++) {
    Span s = span(i, most, piece_there(m));
    if (m != now.g->me && s.n) memcpy(to + bytes(m * most), in_at(m * piece() + s.at), bytes(s.n));
  }
  staged(i);
}

static void scatter_take(int64_t i) {
  int64_t most = slot_elements(now.g->n);
  Span s = span(i, most, piece_there(now.g->me));
  for (int m = 0; m < now.g->n; m++)
    now.source[m] = m == now.g->me ? in_at(now.g->me * piece() + s.at)
                                   : arrived(m, i) + bytes(now.g->me * most);
  dt_reduce(now.op->type, now.op->reduce, out_at(s.at), now.source, now.g->n, s.n);
  taken(i);
}

static void gather_stage(int64_t i) {
  Span s = span(i, slot_elements(1), piece_there(now.g->me));
  char *to = free_slot(i, -1), *own = out_at(now.g->me * piece() + s.at);
  if (s.n) memcpy(to, in_at(s.at), bytes(s.n));
  if (s.n && own != in_at(s.at)) memcpy(own, to, bytes(s.n));
  staged(i);
}

static void gather_take(int64_t i) {
  for (int m = 0; m < now.g->n; m++) {
    if (m == now.g->me) continue;
    Span s = span(i, slot_elements(1), piece_there(m));
    const char *from = arrived(m, i);
    if (s.n) memcpy(out_at(m * piece() + s.at), from, bytes(s.n));
  }
  taken(i);
}

static void exchange_stage(int64_t i) {
  int64_t most = slot_elements(now.g->n), part = now.op->count / now.g->n;
  Span s = span(i, most, part);
  char *to = free_slot(i, -1), *own = out_at(now.g->me * part + s.at);
  for (int m = 0; m < now.g->n; m++)
    if (m != now.g->me) memcpy(to + bytes(m * most), in_at(m * part + s.at), bytes(s.n));
  if (own != in_at(now.g->me * part + s.at))
    memcpy(own, in_at(now.g->me * part + s.at), bytes(s.n));
  staged(i);
}

static void exchange_take(int64_t i) {
  int64_t most = slot_elements(now.g->n), part = now.op->count / now.g->n;
  Span s = span(i, most, part);
  for (int m = 0; m < now.g->n; m++)
    if (m != now.g->me)
      memcpy(out_at(m * part + s.at), arrived(m, i) + bytes(now.g->me * most), bytes(s.n));
  taken(i);
}

static void shift_stage(int64_t i) {
  Span s = span(i, slot_elements(1), now.op->count);
  memcpy(free_slot(i, -1), in_at(s.at), bytes(s.n));
  staged(i);
}

static void shift_take(int64_t i) {
  Span s = span(i, slot_elements(1), now.op->count);
  memcpy(out_at(s.at), arrived((now.g->me + now.g->n - 1) % now.g->n, i), bytes(s.n));
  taken(i);
}

static int64_t rounds_of(int64_t elements, int64_t most) { return (elements + most - 1) / most; }

// ---- From one to others

static void broadcast(void) {
  const DtOp *op = now.op;
  int64_t most = slot_elements(1), n = rounds_of(op->count, most);
  for (int64_t i = 0; i < n; i++) {
    Span s = span(i, most, op->count);
    if (op->peer == now.g->me) {
      memcpy(free_slot(i, -1), in_at(s.at), bytes(s.n));
      staged(i);
    } else {
      memcpy(out_at(s.at), arrived(op->peer, i), bytes(s.n));
      taken(i);
      dt_shm_beat();
    }
  }
  end(n);
}

static void barrier(void) {
  staged(0);
  for (int m = 0; m < now.g->n; m++)
    if (m != now.g->me) arrived(m, 0);
  end(1);
}

static void send(void) {
  int to = now.g->rank[now.op->peer];
  DtShmPair *p = dt_shm_pair(dt_shm.me, to);
  bool apart = now.op->apart;
  int64_t most = slot_elements(1), n = apart ? 1 : rounds_of(now.op->count, most);
  now.base = sent[to];
  for (int64_t i = 0; i < n; i++) {
    Span s = span(i, most, now.op->count);
    memcpy(free_slot(i, to), apart ? now.op->token : in_at(s.at), apart ? DT_TOKEN : bytes(s.n));
    if (i == 0)
      atomic_store_explicit(&p->recent[sends[to] % DT_SLOTS], now.hash << 8 | now.first_slot,
                            memory_order_relaxed);
    dt_shm_beat();
    dt_counter_set(&p->sent, now.base + (uint64_t)i + 1);
    dt_counter_ring(&dt_shm.rank[to].bell);
  }
  sent[to] += (uint64_t)n;
  sends[to]++;
}

bool dt_shm_come(int from) {
  return dt_counter_get(&dt_shm_pair(from, dt_shm.me)->sent) > got[from];
}

// In the midst of any other operation: what belongs to that stays as it is.
bool dt_shm_receive(DtReceive *r) {
  const DtOp *op = &r->op;
  int from = op->g->rank[op->peer];
  DtShmPair *p = dt_shm_pair(from, dt_shm.me);
  int64_t size = (int64_t)dt_type_size(op->type), most = DT_SLOT_BYTES / size / LANE * LANE;
  while (r->there < op->count && dt_shm_come(from)) {
    if (r->there == 0) {
      uint64_t recent = atomic_load_explicit(&p->recent[receives[from] % DT_SLOTS],
                                             memory_order_relaxed);
      if (recent >> 8 != dt_op_hash(op) >> 8) mismatch(from);
      r->place = (int)(recent & 255);
    }
    int64_t n = op->apart ? op->count : dt_least(most, op->count - r->there);
    const char *slot = slot_at(from, (unsigned)r->place + (unsigned)(r->there / most));
    if (op->apart) memcpy(op->token, slot, DT_TOKEN);
    else memcpy((char *)op->out + r->there * size, slot, (size_t)(n * size));
    r->there += n;
    dt_shm_beat();
    dt_counter_set(&p->got, ++got[from]);
    dt_counter_ring(&dt_shm.rank[from].bell);
  }
  if (r->there < op->count) return false;
  receives[from]++;
  return true;
}

// ---- Operations that devices carry out: members compare what they post, and go on

static uint64_t compared[DT_GROUPS][DT_LOCAL_RANKS]; // operations of each member that are as this one's

// Where a member has replaced a hash since, it has compared it with this one's.
static void compare(const DtGroup *g, int member, uint64_t here) {
  DtShmArrive *mine = dt_shm_arrive(dt_shm.me, g->id), *a = dt_shm_arrive(g->rank[member], g->id);
  uint64_t *i = &compared[g->id][member];
  for (; *i < here && *i < dt_counter_get(&a->met); ++*i) {
    uint64_t theirs = atomic_load(&a->hash[*i % DT_RECENT]);
    bool replaced = dt_counter_get(&a->met) >= *i + DT_RECENT;
    if (!replaced && theirs != atomic_load(&mine->hash[*i % DT_RECENT])) mismatch(g->rank[member]);
  }
}

void dt_shm_compare(const DtGroup *g) {
  uint64_t here = dt_counter_get(&dt_shm_arrive(dt_shm.me, g->id)->met);
  for (int m = 0; m < g->n; m++)
    if (m != g->me) compare(g, m, here);
}

// A hash is replaced when all members have posted the operation that it is of, and this one has compared theirs.
static void meet(void) {
  uint64_t i = now.op->number;
  for (int m = 0; m < now.g->n && i >= DT_RECENT; m++)
    if (m != now.g->me) dt_shm_await(&dt_shm_arrive(now.g->rank[m], now.g->id)->met, i - DT_RECENT + 1, now.g->rank[m]);
  dt_shm_compare(now.g);
  atomic_store(&now.mine->hash[i % DT_RECENT], now.hash);
  dt_counter_set(&now.mine->met, i + 1);
  dt_shm_compare(now.g);
}

void dt_shm_run(const DtOp *op) {
  begin(op);
  if (op->apart && op->kind != DT_OP_SEND) {
    meet();
    return;
  }
  int n = op->g->n;
  switch (op->kind) {
  case DT_OP_ALL_REDUCE: all_reduce(); break;
  case DT_OP_REDUCE_SCATTER:
    phases(rounds_of(piece(), slot_elements(n)), scatter_stage, scatter_take);
    break;
  case DT_OP_ALL_GATHER:
    phases(rounds_of(piece(), slot_elements(1)), gather_stage, gather_take);
    break;
  case DT_OP_ALL_TO_ALL:
    phases(rounds_of(op->count / n, slot_elements(n)), exchange_stage, exchange_take);
    break;
  case DT_OP_SHIFT:
    phases(rounds_of(op->count, slot_elements(1)), shift_stage, shift_take);
    break;
  case DT_OP_BROADCAST: broadcast(); break;
  case DT_OP_SEND: send(); break;
  default: barrier(); break;
  }
  dt_shm_publish(NULL);
}
