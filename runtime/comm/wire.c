// Ranks on several machines: data goes by an MPI that is loaded at start, sums are taken here.
//
// Messages go straight from and to the arrays; what is to be added is received into a fixed staging
// area first. A message's tag is a hash of its operation, so that members at different operations
// never take one another's data: they wait, and the wait ends as any other.
#define _GNU_SOURCE
#include "runtime/comm/wire.h"

#include "runtime/base/canary.h"
#include "runtime/comm/comm_op.h"
#include "runtime/base/signals.h"
#include "runtime/base/trace.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  SMALL = 16 << 10,     // an all-reduce up to here is one exchange: each rank adds everything
  BLOCK = 4 << 20,      // bytes of an array that a longer one handles at a time
  MESSAGE = 64 << 20,   // most of one message
  LANE = 16,            // elements that pieces of a block are a multiple of
  SPINS = 200,          // looks at the requests before the thread begins to sleep between them
  SHORT_SLEEP = 50000,  // nanoseconds; Open MPI makes progress only when it is looked at
  LONG_SLEEP = 1000000, // after LONG_LOOKS of the short ones
  LONG_LOOKS = 2000,
  NOTICE_MS = 1500, // after a signal, a longer wait is reported
  DOOMED_SECONDS = 2,
  WATCHED = 64, // members of an operation of devices that are named
  LINGER_MS = 1500 // others find out at about the same time: they look as often
};

#ifndef DT_PLUGIN_FOLDERS // where dtc is built or installed
#define DT_PLUGIN_FOLDERS "/usr/local/lib/dtc"
#endif

// Requests that are waited for together.
typedef struct {
  int n;
  int *request, *peer; // [2 * size]
} Batch;
enum { CONTRIBUTE, RESULT, BATCHES = 4 }; // two of each: blocks i and i + 1

static struct {
  const DtMpi *mpi;
  int size;
  char *stage[2]; // contributions of all members to a block
  const void **source;
  int *free_request, nfree;
  Batch batch[BATCHES];
} wire;

static const DtOp *op;
static size_t size; // of an element
static int tag;

static int tag_of(const DtOp *o) { return (int)(dt_op_hash(o) % 16000) * 2; }

// ---- Requests

static void give_up(const char *what) { dt_comm_end(DT_EXIT_PEER, "%s: %s", wire.mpi->name, what); }

static void begin(Batch *b, int member, bool out, const void *data, size_t bytes, int phase) {
  int r = wire.free_request[--wire.nfree], rank = op->g->rank[member];
  b->request[b->n] = r;
  b->peer[b->n++] = rank;
  int failed = out ? wire.mpi->send(r, rank, data, bytes, tag + phase)
                   : wire.mpi->receive(r, rank, (void *)data, bytes, tag + phase);
  if (failed) give_up(wire.mpi->error());
}
static void send_to(Batch *b, int member, const void *data, size_t bytes, int phase) {
  if (bytes) begin(b, member, true, data, bytes, phase);
}
static void receive_from(Batch *b, int member, void *data, size_t bytes, int phase) {
  if (bytes) begin(b, member, false, data, bytes, phase);
}

// Drops what is complete; returns whether anything was.
static bool progress(Batch *b) {
  int left = 0, before = b->n;
  for (int i = 0; i < before; i++) {
    int r = b->request[i], done = wire.mpi->test(r);
    if (done < 0) give_up(wire.mpi->error());
    if (done) {
      wire.free_request[wire.nfree++] = r;
      continue;
    }
    b->request[left] = r;
    b->peer[left++] = b->peer[i];
  }
  b->n = left;
  return left < before;
}

static void name_peers(char *text, size_t n, const Batch *b) {
  size_t at = 0;
  text[0] = 0;
  for (int i = 0; i < b->n && at + 16 < n; i++) {
    bool again = false;
    for (int k = 0; k < i; k++) again |= b->peer[k] == b->peer[i];
    if (!again) at += (size_t)snprintf(text + at, n - at, " %d", b->peer[i]);
  }
}

static _Noreturn void end_silent(int rank) {
  char seen[400];
  dt_beat_text(seen, sizeof seen, rank);
  dt_comm_end(DT_EXIT_PEER,
              "rank %d has been silent for more than %.4g s, as if it were stopped or lost: %s",
              rank, dt_comm_limit(), seen);
}

// After a signal the launcher may end this process soon, perhaps because a rank was lost.
static void notice(const char *peers) {
  char what[800], silent[80] = "";
  int rank = dt_beat_silent(NOTICE_MS * 1e-3);
  dt_op_text(what, sizeof what, op);
  if (rank >= 0)
    snprintf(silent, sizeof silent, "; rank %d has been silent for %.1f s", rank,
             dt_beat_still(rank));
  dt_note("rank %d: got %s, and waits for rank%s%s in %s%s", dt_world.rank,
          dt_signal_name(dt_stop_signal()), strchr(peers + 1, ' ') ? "s" : "", peers, what, silent);
}

// Called now and then in a wait that has lasted `waited` seconds.
static void be_patient(const Batch *b, double waited, bool *noticed) {
  char peers[200], seen[400];
  if (dt_comm_leaving()) pthread_exit(NULL);
  int silent = dt_beat_silent(dt_comm_limit()), first = b->peer[0];
  if (silent >= 0) end_silent(silent);
  name_peers(peers, sizeof peers, b);
  for (int i = 0; i < b->n; i++)
    if (dt_beat_left(b->peer[i]))
      dt_comm_end(DT_EXIT_PEER, "rank %d has left while others still need it", b->peer[i]);
  dt_beat_text(seen, sizeof seen, first);
  // One that is silent may be stopped: that shows later, and is another matter.
  double blamed = dt_blamed(waited, dt_beat_files());
  if (blamed > dt_comm_late_limit() && dt_beat_silent(dt_beat_rare()) < 0)
    dt_comm_end(DT_EXIT_PEER, "nothing came for %.4g s from or to rank%s%s; rank %d runs: %s", waited,
                strchr(peers + 1, ' ') ? "s" : "", peers, first, seen);
  if (!*noticed && waited * 1e3 > NOTICE_MS && dt_stop_signal()) {
    notice(peers);
    *noticed = true;
  }
}

static void wait_for(Batch *b) {
  int64_t before = dt_nanoseconds();
  double waited = 0; // seconds; being stopped does not count
  bool noticed = false;
  for (int look = 0; b->n > 0; look++) {
    dt_receive_all();
    bool moved = progress(b);
    int64_t t = dt_nanoseconds();
    waited += (double)dt_least(t - before, 2 * DT_LOOK_MS * (int64_t)1000000) * 1e-9;
    before = t;
    if (moved) {
      waited = 0;
      look = 0;
    }
    if (dt_beat_due(t)) {
      dt_beat_look();
      if (b->n > 0) be_patient(b, waited, &noticed);
    }
    if (b->n == 0 || look < SPINS) continue;
    struct timespec nap = {0, look < LONG_LOOKS ? SHORT_SLEEP : LONG_SLEEP};
    nanosleep(&nap, NULL);
  }
}

// ---- Operations

static const char *in_at(int64_t element) { return (const char *)op->in + (size_t)element * size; }
static char *out_at(int64_t element) { return (char *)op->out + (size_t)element * size; }
static size_t bytes(int64_t elements) { return elements > 0 ? (size_t)elements * size : 0; }

static void all_reduce_small(void) {
  const DtGroup *g = op->g;
  Batch *b = &wire.batch[0];
  for (int m = 0; m < g->n; m++) {
    wire.source[m] = op->in;
    if (m == g->me) continue;
    wire.source[m] = wire.stage[0] + (size_t)m * SMALL;
    receive_from(b, m, (void *)wire.source[m], bytes(op->count), CONTRIBUTE);
    send_to(b, m, op->in, bytes(op->count), CONTRIBUTE);
  }
  wait_for(b);
  dt_reduce(op->type, op->reduce, op->out, wire.source, g->n, op->count);
}

// Elements [at, at + length) of the array; member k reduces piece k of them.
typedef struct {
  int64_t at, length, piece;
} Block;

static int64_t lane_up(int64_t n) { return (n + LANE - 1) / LANE * LANE; }
static int64_t block_most(void) {
  return (int64_t)(BLOCK / size) / op->g->n / LANE * LANE * op->g->n;
}
static Block block_of(int64_t i) {
  int64_t most = block_most();
  Block b = {.at = i * most};
  b.length = dt_least(most, op->count - b.at);
  b.piece = lane_up((b.length + op->g->n - 1) / op->g->n);
  return b;
}
static int64_t first_of(const Block *b, int k) { return dt_least(b->length, k * b->piece); }
static int64_t length_of(const Block *b, int k) { return first_of(b, k + 1) - first_of(b, k); }

static void contribute(int64_t i) {
  Block b = block_of(i);
  Batch *to = &wire.batch[i % 2];
  int me = op->g->me;
  for (int m = 0; m < op->g->n; m++) {
    if (m == me) continue;
    receive_from(to, m, wire.stage[i % 2] + bytes(m * b.piece), bytes(length_of(&b, me)),
                 CONTRIBUTE);
    send_to(to, m, in_at(b.at + first_of(&b, m)), bytes(length_of(&b, m)), CONTRIBUTE);
  }
}

static void hand_round(int64_t i) {
  Block b = block_of(i);
  Batch *to = &wire.batch[2 + i % 2];
  int me = op->g->me;
  char *own = out_at(b.at + first_of(&b, me));
  for (int m = 0; m < op->g->n; m++)
    wire.source[m] = m == me ? in_at(b.at + first_of(&b, me))
                             : wire.stage[i % 2] + bytes(m * b.piece);
  dt_reduce(op->type, op->reduce, own, wire.source, op->g->n, length_of(&b, me));
  for (int m = 0; m < op->g->n; m++) {
    if (m == me) continue;
    receive_from(to, m, out_at(b.at + first_of(&b, m)), bytes(length_of(&b, m)), RESULT);
    send_to(to, m, own, bytes(length_of(&b, me)), RESULT);
  }
}

static void all_reduce(void) {
  if (bytes(op->count) <= SMALL) {
    all_reduce_small();
    return;
  }
  int64_t n = (op->count + block_most() - 1) / block_most();
  contribute(0);
  for (int64_t i = 0; i < n; i++) {
    wait_for(&wire.batch[i % 2]);
    if (i >= 1) wait_for(&wire.batch[2 + (i - 1) % 2]);
    if (i + 1 < n) contribute(i + 1);
    hand_round(i);
  }
  wait_for(&wire.batch[2 + (n - 1) % 2]);
}

static int64_t piece(void) { return (op->count + op->g->n - 1) / op->g->n; }
static int64_t there(int k) {
  int64_t left = op->count - k * piece();
  return left < 0 ? 0 : dt_least(piece(), left);
}
// Of a part of `n` elements, those from `at` on, `most` at most.
static int64_t rest(int64_t n, int64_t at, int64_t most) {
  return n > at ? dt_least(n - at, most) : 0;
}

static void reduce_scatter(void) {
  int me = op->g->me, n = op->g->n;
  int64_t most = block_most() / n;
  Batch *b = &wire.batch[0];
  for (int64_t at = 0; at < piece(); at += most) {
    int64_t mine = rest(there(me), at, most);
    for (int m = 0; m < n; m++) {
      wire.source[m] = m == me ? in_at(me * piece() + at) : wire.stage[0] + bytes(m * most);
      if (m == me) continue;
      receive_from(b, m, (void *)wire.source[m], bytes(mine), CONTRIBUTE);
      send_to(b, m, in_at(m * piece() + at), bytes(rest(there(m), at, most)), CONTRIBUTE);
    }
    wait_for(b);
    dt_reduce(op->type, op->reduce, out_at(at), wire.source, n, mine);
  }
}

static void all_gather(void) {
  int me = op->g->me;
  int64_t most = (int64_t)(MESSAGE / size);
  Batch *b = &wire.batch[0];
  char *own = out_at(me * piece());
  // First into its place, and sent from there: in may be where another's piece goes.
  if (there(me) && own != op->in) memmove(own, op->in, bytes(there(me)));
  for (int64_t at = 0; at < piece(); at += most) {
    for (int m = 0; m < op->g->n; m++) {
      if (m == me) continue;
      receive_from(b, m, out_at(m * piece() + at), bytes(rest(there(m), at, most)), CONTRIBUTE);
      send_to(b, m, own + bytes(at), bytes(rest(there(me), at, most)), CONTRIBUTE);
    }
    wait_for(b);
  }
}

static void all_to_all(void) {
  int me = op->g->me, n = op->g->n;
  int64_t part = op->count / n, most = block_most() / n;
  Batch *b = &wire.batch[0];
  for (int64_t at = 0; at < part; at += most) {
    int64_t now = rest(part, at, most);
    for (int m = 0; m < n; m++) {
      if (m == me) continue;
      receive_from(b, m, wire.stage[0] + bytes(m * most), bytes(now), CONTRIBUTE);
      send_to(b, m, in_at(m * part + at), bytes(now), CONTRIBUTE);
    }
    wait_for(b);
    for (int m = 0; m < n; m++)
      if (m != me) memcpy(out_at(m * part + at), wire.stage[0] + bytes(m * most), bytes(now));
  }
  if (op->in != op->out) memcpy(out_at(me * part), in_at(me * part), bytes(part));
}

static void shift(void) {
  int me = op->g->me, n = op->g->n;
  int64_t most = (int64_t)(MESSAGE / size);
  Batch *b = &wire.batch[0];
  for (int64_t at = 0; at < op->count; at += most) {
    size_t now = bytes(rest(op->count, at, most));
    receive_from(b, (me + n - 1) % n, out_at(at), now, CONTRIBUTE);
    send_to(b, (me + 1) % n, in_at(at), now, CONTRIBUTE);
    wait_for(b);
  }
}

// Parts of at most MESSAGE, one after the other. `place`: 1 + the request of the one under way.
static bool receive(DtReceive *r) {
  const DtOp *o = &r->op;
  int64_t each = (int64_t)dt_type_size(o->type), most = MESSAGE / each;
  while (r->there < o->count) {
    int64_t n = o->apart ? o->count : dt_least(most, o->count - r->there);
    if (!r->place) {
      int request = wire.free_request[--wire.nfree], number = tag_of(o) + CONTRIBUTE;
      r->place = 1 + request;
      if (wire.mpi->receive(request, o->g->rank[o->peer], o->apart ? o->token : (char *)o->out + r->there * each,
                            o->apart ? DT_TOKEN : (size_t)(n * each), number))
        give_up(wire.mpi->error());
    }
    int done = wire.mpi->test(r->place - 1);
    if (done < 0) give_up(wire.mpi->error());
    if (!done) return false;
    wire.free_request[wire.nfree++] = r->place - 1;
    r->place = 0;
    r->there += n;
  }
  return true;
}

static bool noticed; // of the receive that is waited for

static void expect(const DtOp *o) {
  noticed = false;
  dt_beat_doing(o);
}

static void patience(const DtReceive *r, double seconds) {
  int from = r->op.g->rank[r->op.peer];
  Batch b = {.n = 1, .peer = &from};
  op = &r->op;
  be_patient(&b, seconds, &noticed);
}

static void send_token(void) {
  send_to(&wire.batch[0], op->peer, op->token, DT_TOKEN, CONTRIBUTE);
  wait_for(&wire.batch[0]);
}

// Devices are at it.
static void watch(const DtOp *o, bool begun, double seconds) {
  int peer[WATCHED], n = 0;
  dt_beat_doing(o);
  if (!o) return;
  bool pair = o->kind == DT_OP_SEND || o->kind == DT_OP_RECV;
  for (int m = 0; m < o->g->n && n < WATCHED; m++)
    if (m != o->g->me && (!pair || m == o->peer)) peer[n++] = o->g->rank[m];
  op = o;
  be_patient(&(Batch){.n = n, .peer = peer}, begun ? seconds : 0, &noticed);
}

static void from_one(bool sends, const int *to, int n, int from) {
  Batch *b = &wire.batch[0];
  int64_t most = (int64_t)(MESSAGE / size);
  for (int64_t at = 0; at < op->count; at += most) {
    size_t now = bytes(rest(op->count, at, most));
    for (int i = 0; sends && i < n; i++) send_to(b, to[i], in_at(at), now, CONTRIBUTE);
    if (!sends) receive_from(b, from, out_at(at), now, CONTRIBUTE);
    wait_for(b);
  }
}

// Down a binomial tree: whoever has the array sends it on to the member 2^k further.
static void broadcast(void) {
  int n = op->g->n, root = op->peer, me = (op->g->me - root + n) % n;
  int to[32], sends = 0, step = 1;
  while (step <= me) step *= 2; // the first round in which this member has it
  int from = (me - step / 2 + root) % n;
  for (; me + step < n; step *= 2) to[sends++] = (me + step + root) % n;
  if (me > 0) from_one(false, NULL, 0, from);
  from_one(true, to, sends, 0);
}

// Dissemination: after round k a member has heard of 2^k others.
static void barrier(void) {
  int n = op->g->n, me = op->g->me;
  char out[4] = {0}, in[4];
  for (int step = 1; step < n; step *= 2) {
    receive_from(&wire.batch[0], (me - step + n) % n, in, sizeof in, CONTRIBUTE);
    send_to(&wire.batch[0], (me + step) % n, out, sizeof out, CONTRIBUTE);
    wait_for(&wire.batch[0]);
  }
}

static void run(const DtOp *o) {
  op = o;
  size = dt_type_size(o->type);
  tag = tag_of(o);
  dt_beat_doing(o);
  if (dt_beat_due(dt_nanoseconds())) dt_beat_look();
  switch (o->apart && o->kind != DT_OP_SEND ? DT_OP_BARRIER : o->kind) {
  case DT_OP_ALL_REDUCE: all_reduce(); break;
  case DT_OP_REDUCE_SCATTER: reduce_scatter(); break;
  case DT_OP_ALL_GATHER: all_gather(); break;
  case DT_OP_ALL_TO_ALL: all_to_all(); break;
  case DT_OP_SHIFT: shift(); break;
  case DT_OP_BROADCAST: broadcast(); break;
  case DT_OP_SEND: o->apart ? send_token() : from_one(true, &o->peer, 1, 0); break;
  default: barrier(); break;
  }
  dt_beat_doing(NULL);
}

// When nothing runs. A rank that is not needed just now may still be lost: this one goes on until
// it waits for an operation, which it then reports; but not for long.
static void look(void) {
  dt_beat_look();
  int silent = dt_beat_silent(dt_comm_limit() + DOOMED_SECONDS);
  if (silent >= 0) end_silent(silent);
}

// ---- Start and end

static bool load(const char *path, DtError *e) {
  // Global: what Open MPI loads in turn looks for its symbols.
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    dt_fail(e, DT_EXIT_OS, "cannot load the MPI plug-in: %s", dlerror());
    return false;
  }
  DtMpiPlugin *plugin = (DtMpiPlugin *)(uintptr_t)dlsym(library, DT_MPI_SYMBOL);
  wire.mpi = plugin ? plugin() : NULL;
  if (wire.mpi && wire.mpi->interface == DT_MPI_INTERFACE) return true;
  dt_fail(e, DT_EXIT_DISAGREE, "%s is not an MPI plug-in of this build", path);
  return false;
}

// The plug-in named, or that of this launcher: beside the program, or where dtc is.
int dt_wire_find(const char *launcher, DtError *e) {
  const char *named = getenv("DT_MPI_PLUGIN");
  if (named && *named) return load(named, e) ? 0 : e->status;
  bool open_mpi = strcmp(launcher, "Open MPI") == 0 ||
                  (strcmp(launcher, "MPICH") != 0 && getenv("PMIX_RANK"));
  char self[PATH_MAX] = "", path[PATH_MAX + 64];
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) self[0] = 0;
  char *slash = strrchr(self, '/');
  if (slash) *slash = 0;
  const char *const folder[] = {self, DT_PLUGIN_FOLDERS};
  for (size_t i = 0; i < sizeof folder / sizeof *folder; i++) {
    snprintf(path, sizeof path, "%s/dtc-%s.so", folder[i], open_mpi ? "openmpi" : "mpich");
    if (access(path, R_OK) == 0) return load(path, e) ? 0 : e->status;
  }
  return dt_fail(e, DT_EXIT_MISFIT,
                 "ranks on several machines communicate over MPI, but there is no dtc-%s.so beside "
                 "%s/; name it by DT_MPI_PLUGIN",
                 open_mpi ? "openmpi" : "mpich", self);
}

static size_t staged_bytes(void) {
  size_t n = (size_t)wire.size, staged = n * SMALL > BLOCK ? n * SMALL : BLOCK;
  // A lane more for each member: the last block's pieces are rounded up.
  return staged + n * LANE * sizeof(double);
}

static int64_t staging(void) { return 2 * (int64_t)staged_bytes(); }

static int64_t used(void) {
  int64_t n = (int64_t)staged_bytes();
  return dt_written(wire.stage[0], n) + dt_written(wire.stage[1], n);
}

static int allocate(DtError *e) {
  size_t n = (size_t)wire.size, staged = staged_bytes();
  for (int i = 0; i < 2; i++) wire.stage[i] = malloc(staged);
  wire.nfree = (int)((BATCHES * 2 + 1) * n); // and a receive from each
  wire.free_request = malloc((size_t)wire.nfree * sizeof *wire.free_request);
  wire.source = malloc(n * sizeof *wire.source);
  bool good = wire.stage[0] && wire.stage[1] && wire.free_request && wire.source;
  for (int i = 0; i < BATCHES; i++) {
    wire.batch[i].request = malloc(2 * n * sizeof(int));
    wire.batch[i].peer = malloc(2 * n * sizeof(int));
    good = good && wire.batch[i].request && wire.batch[i].peer;
  }
  if (!good) return dt_fail(e, DT_EXIT_OS, "no memory to exchange data with %d ranks", wire.size);
  for (int i = 0; i < 2; i++) memset(wire.stage[i], dt_watching() ? DT_CANARY : 0, staged);
  for (int i = 0; i < wire.nfree; i++) wire.free_request[i] = i;
  return 0;
}

static int start(DtError *e) {
  int rank, ranks;
  wire.size = dt_world.size;
  if (allocate(e)) return e->status;
  dt_comm_linger_ms = LINGER_MS;
  if (wire.mpi->start(&rank, &ranks, wire.nfree + 2 * wire.size))
    return dt_fail(e, DT_EXIT_OS, "%s: %s", wire.mpi->name, wire.mpi->error());
  if (rank == dt_world.rank && ranks == dt_world.size) return dt_beat_open(wire.mpi, wire.nfree, e);
  return dt_fail(
      e, DT_EXIT_MISFIT,
      "the launcher says rank %d of %d, %s says rank %d of %d: start the program by that "
      "MPI's own mpirun, or by srun --mpi=",
      dt_world.rank, dt_world.size, wire.mpi->name, rank, ranks);
}

static void finish(void) {
  int silent = dt_beat_close();
  if (silent) {
    dt_note("rank %d: a rank has been silent while all leave", dt_world.rank);
    return; // it would be waited for without end
  }
  if (wire.mpi->finish()) dt_note("rank %d: %s", dt_world.rank, wire.mpi->error());
}

const DtTransport dt_wire_transport = {.opens = "MPI_Init", .open = start, .run = run,
                                       .receive = receive, .expect = expect, .patience = patience, .watch = watch,
                                       .look = look, .finish = finish, .bytes = staging,
                                       .used = used};
