// A stand-in for NCCL: communicators of processes on this machine, which share memory. Calls are operations of the stand-in
// of the driver's streams: a group of calls begins when its turn in the stream has come, and ends when all members have
// begun theirs. Sums go from the last member to the first. What NCCL leaves undefined (arrays that overlap, calls that
// differ between members, a call before the one before has been taken up) is an error.
//
// In the environment, for tests: DT_EMULATE_SEED draws delays; DT_EMULATE_NCCL_VERSION is the version; the process's group
// of calls number DT_EMULATE_NCCL_STUCK, from 1, never begins, and number DT_EMULATE_NCCL_ERROR fails.
#define _GNU_SOURCE
#include "runtime/device/cuda/emulate_stream.h"
#include "runtime/device/cuda/nccl.h"

#include "runtime/comm/comm_op.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMBERS = 64, CALLS = 4 * MEMBERS, POLLS = 4, MAGIC = 0x4c43434e };
#define OUTBOX ((size_t)1 << 28)

typedef enum Kind { ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_GATHER, BROADCAST, SEND, RECV } Kind;

typedef struct Call {
  Kind kind;
  const void *in;
  void *out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;
  size_t at; // of its data in the outbox
} Call;

// What a member shares of the group of calls that it is at.
typedef struct Row {
  _Atomic uint64_t joined, ready, done; // joined: 1 + its number; the others: of the group of calls, from 1
  int n;
  Call call[CALLS];
} Row;

typedef struct Shared {
  Row row[MEMBERS];
} Shared;

typedef struct Batch {
  ncclComm_t comm;
  cudaStream_t stream;
  uint64_t number;
  bool begun, stuck, fails;
  int n;
  Call call[CALLS];
} Batch;

struct ncclComm {
  Shared *shared;
  char *outbox; // [n][OUTBOX]
  int n, me, polls, fd;
  bool joined;
  uint64_t posted;
  Batch *pending; // called, and not yet in the stream
  atomic_bool aborted, failed;
};

static const size_t head = (sizeof(Shared) + 4095) / 4096 * 4096;
static _Thread_local Batch *group;
static _Thread_local int depth;
static char last_error[200];

static unsigned draw(unsigned below) {
  static _Atomic uint64_t state;
  if (!atomic_load(&state)) {
    const char *seed = getenv("DT_EMULATE_SEED");
    atomic_store(&state, (seed ? strtoull(seed, NULL, 10) : 1) * 2 + 1 + (uint64_t)getpid());
  }
  uint64_t s = atomic_fetch_add(&state, 0x9e3779b97f4a7c15u);
  s = (s ^ s >> 30) * 0xbf58476d1ce4e5b9u;
  return (unsigned)((s ^ s >> 27) >> 33) % below;
}

static bool is_planted(const char *name, uint64_t number) {
  const char *which = getenv(name);
  return which && strtoull(which, NULL, 10) == number;
}

static ncclResult_t refuse(const char *why) {
  snprintf(last_error, sizeof last_error, "%s", why);
  return ncclInvalidUsage;
}

static size_t size_of(ncclDataType_t type) {
  return type == ncclFloat64 ? 8 : type == ncclInt8 ? 1 : type == ncclFloat16 || type == ncclBfloat16 ? 2 : 4;
}

static DtType type_of(ncclDataType_t type) {
  return type == ncclFloat64    ? DT_TYPE_F64
         : type == ncclInt32    ? DT_TYPE_I32
         : type == ncclFloat16  ? DT_TYPE_F16
         : type == ncclBfloat16 ? DT_TYPE_BF16
                                : DT_TYPE_F32;
}

// ---- communicators

static ncclResult_t version(int *v) {
  const char *text = getenv("DT_EMULATE_NCCL_VERSION");
  return *v = text ? atoi(text) : 22809, ncclSuccess;
}

static const char *error_string(ncclResult_t r) { return r == ncclInvalidUsage ? "invalid usage" : "an error"; }
static const char *last_error_of(ncclComm_t c) { return (void)c, last_error; }

// Where the memory is that members share: a descriptor of the process that made the id.
typedef struct Place {
  int magic, pid, fd;
} Place;

static ncclResult_t unique_id(ncclUniqueId *id) {
  Place at = {MAGIC, getpid(), memfd_create("dtc-emulated-nccl", MFD_CLOEXEC)};
  if (at.fd < 0 || ftruncate(at.fd, (off_t)(head + MEMBERS * OUTBOX))) return ncclSystemError;
  memset(id, 0, sizeof *id);
  memcpy(id, &at, sizeof at);
  return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *to, int n, ncclUniqueId id, int me, ncclConfig_t *config) {
  char path[64];
  Place at;
  memcpy(&at, &id, sizeof at);
  if (at.magic != MAGIC || n < 1 || n > MEMBERS || me < 0 || me >= n || config->blocking) return ncclInvalidArgument;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", at.pid, at.fd);
  int fd = at.pid == getpid() ? at.fd : open(path, O_RDWR | O_CLOEXEC);
  ncclComm_t c = calloc(1, sizeof *c);
  if (!c || fd < 0) return ncclSystemError;
  char *base = mmap(NULL, head + (size_t)n * OUTBOX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return ncclSystemError;
  *c = (struct ncclComm){.shared = (Shared *)(void *)base, .outbox = base + head, .n = n, .me = me, .polls = (int)draw(POLLS), .fd = fd};
  *to = c;
  if (atomic_exchange(&c->shared->row[me].joined, (uint64_t)n)) return refuse("two members have one number");
  return ncclInProgress;
}

// Whether all have come; -1: they do not agree on how many they are.
static int all_joined(ncclComm_t c) {
  int there = 0;
  for (int m = 0; m < MEMBERS; m++) {
    uint64_t joined = atomic_load(&c->shared->row[m].joined);
    if (joined && joined != (uint64_t)c->n) return -1;
    there += joined != 0;
  }
  return there == c->n;
}

static bool try(void *of);

static ncclResult_t async_error(ncclComm_t c, ncclResult_t *error) {
  int joined = c->joined ? 1 : all_joined(c);
  *error = ncclInProgress;
  if (atomic_load(&c->failed)) *error = ncclRemoteError;
  else if (joined < 0) *error = refuse("members do not agree on their number");
  else if (!joined || c->polls-- > 0) return ncclSuccess;
  else *error = ncclSuccess;
  if (*error == ncclSuccess && !c->joined) close(c->fd);
  c->joined |= *error == ncclSuccess;
  if (*error == ncclSuccess && c->pending) {
    dt_emulate_try(c->pending->stream, try, &c->pending, sizeof c->pending);
    c->pending = NULL;
  }
  return ncclSuccess;
}

static ncclResult_t comm_abort(ncclComm_t c) { return atomic_store(&c->aborted, true), ncclSuccess; }
static ncclResult_t finalize(ncclComm_t c) { return (void)c, ncclSuccess; }

static ncclResult_t destroy(ncclComm_t c) {
  munmap(c->shared, head + (size_t)c->n * OUTBOX);
  free(c);
  return ncclSuccess;
}

// ---- a group of calls in its stream

static bool is_pair(Kind k) { return k == SEND || k == RECV; }

static size_t bytes_in(const ncclComm_t c, const Call *x) {
  bool gives = x->kind != RECV && (x->kind != BROADCAST || x->peer == c->me);
  return gives ? x->count * size_of(x->type) * (x->kind == REDUCE_SCATTER ? (size_t)c->n : 1) : 0;
}

static size_t bytes_out(const ncclComm_t c, const Call *x) {
  bool gets = x->kind != SEND && (x->kind != REDUCE || x->peer == c->me);
  return gets ? x->count * size_of(x->type) * (x->kind == ALL_GATHER ? (size_t)c->n : 1) : 0;
}

static bool begin(Batch *b) {
  ncclComm_t c = b->comm;
  Row *mine = &c->shared->row[c->me];
  size_t at = 0;
  for (int m = 0; m < c->n; m++) // all have read what was there before
    if (atomic_load(&c->shared->row[m].done) + 1 < b->number) return false;
  if (b->stuck || draw(3) == 0) return false;
  for (int i = 0; i < b->n; i++) {
    Call *x = &b->call[i];
    x->at = at;
    if (bytes_in(c, x)) memcpy(c->outbox + (size_t)c->me * OUTBOX + at, x->in, bytes_in(c, x));
    at += (bytes_in(c, x) + 63) / 64 * 64;
    mine->call[i] = *x;
  }
  mine->n = b->n;
  atomic_store(&mine->ready, b->number);
  return true;
}

// The call of a member that goes with call i of this one: of as many collectives, or the send to this one for a receive.
static const Call *match(const Batch *b, int i, int member) {
  const Row *other = &b->comm->shared->row[member];
  const Call *x = &b->call[i];
  int before = 0;
  for (int k = 0; k < i; k++)
    before += is_pair(x->kind) ? b->call[k].kind == x->kind && b->call[k].peer == x->peer : !is_pair(b->call[k].kind);
  for (int k = 0; k < other->n; k++) {
    const Call *y = &other->call[k];
    bool goes = is_pair(x->kind) ? y->kind == SEND && y->peer == b->comm->me : !is_pair(y->kind);
    if (goes && before-- == 0)
      return y->count == x->count && y->type == x->type && (is_pair(x->kind) || (y->kind == x->kind && y->op == x->op && y->peer == x->peer)) ? y : NULL;
  }
  return NULL;
}

static const char *data_of(const Batch *b, int member, const Call *y) { return b->comm->outbox + (size_t)member * OUTBOX + y->at; }

static void reduce(const Batch *b, const Call *x, const Call *const *of, size_t first) {
  const void *source[MEMBERS];
  for (int m = 0; m < b->comm->n; m++) {
    int member = b->comm->n - 1 - m;
    source[m] = data_of(b, member, of[member]) + first * size_of(x->type);
  }
  dt_reduce(type_of(x->type), x->op == ncclMax ? DT_MAX : x->op == ncclMin ? DT_MIN : DT_SUM, x->out, source, b->comm->n, (int64_t)x->count);
}

static bool compute(Batch *b, int i) {
  const Call *x = &b->call[i], *of[MEMBERS];
  const ncclComm_t c = b->comm;
  size_t bytes = x->count * size_of(x->type);
  for (int m = 0; m < c->n; m++)
    if (!(of[m] = is_pair(x->kind) && m != x->peer ? x : x->kind == SEND ? x : match(b, i, m))) return false;
  switch (x->kind) {
  case ALL_REDUCE: reduce(b, x, of, 0); break;
  case REDUCE_SCATTER: reduce(b, x, of, (size_t)c->me * x->count); break;
  case REDUCE:
    if (x->peer == c->me) reduce(b, x, of, 0);
    break;
  case ALL_GATHER:
    for (int m = 0; m < c->n; m++) memcpy((char *)x->out + (size_t)m * bytes, data_of(b, m, of[m]), bytes);
    break;
  case BROADCAST:
  case RECV: memcpy(x->out, data_of(b, x->peer, of[x->peer]), bytes); break;
  default: break;
  }
  return true;
}

static bool end(Batch *b) {
  ncclComm_t c = b->comm;
  for (int m = 0; m < c->n; m++)
    if (atomic_load(&c->shared->row[m].ready) < b->number) return false;
  bool good = !b->fails;
  for (int i = 0; i < b->n && good; i++) good = compute(b, i);
  if (!good) {
    refuse(b->fails ? "a planted error" : "members make different calls");
    atomic_store(&c->failed, true);
    return false;
  }
  atomic_store(&c->shared->row[c->me].done, b->number);
  return true;
}

static bool try(void *of) {
  Batch *b = *(Batch **)of;
  bool aborted = atomic_load(&b->comm->aborted);
  if (!aborted && atomic_load(&b->comm->failed)) return false;
  if (!aborted && !b->begun) b->begun = begin(b);
  if (!aborted && (!b->begun || !end(b))) return false;
  free(b);
  return true;
}

// ---- calls

static bool overlap(const void *a, size_t n, const void *b, size_t m) {
  return n && m && (const char *)a < (const char *)b + m && (const char *)b < (const char *)a + n;
}

// Arrays that NCCL takes: none is written that another call reads, and a call's own are apart or at the place of its result.
static bool are_apart(const Batch *b) {
  ncclComm_t c = b->comm;
  for (int i = 0; i < b->n; i++)
    for (int k = 0; k < b->n; k++) {
      const Call *x = &b->call[i], *y = &b->call[k];
      size_t bytes = y->count * size_of(y->type);
      const char *place = y->kind == REDUCE_SCATTER ? (const char *)y->in + (size_t)c->me * bytes : (const char *)y->in;
      const char *to = y->kind == ALL_GATHER ? (const char *)y->out + (size_t)c->me * bytes : (const char *)y->out;
      if (overlap(x->in, bytes_in(c, x), y->out, bytes_out(c, y)) && (i != k || place != to)) return false;
      if (i != k && overlap(x->out, bytes_out(c, x), y->out, bytes_out(c, y))) return false;
    }
  return true;
}

static ncclResult_t group_start(void) { return depth++, ncclSuccess; }

static ncclResult_t group_end(void) {
  static _Atomic uint64_t groups;
  size_t bytes = 0;
  Batch *b = group;
  if (depth < 1) return refuse("a group ends that has not begun");
  if (--depth || !b) return ncclSuccess;
  group = NULL;
  ncclComm_t c = b->comm;
  if (!c->joined || c->pending) return refuse("a call before the communicator was ready");
  for (int i = 0; i < b->n; i++) bytes += (bytes_in(c, &b->call[i]) + 63) / 64 * 64;
  if (bytes > OUTBOX) return refuse("more than 256 MiB in one group of calls");
  if (!are_apart(b)) return refuse("arrays overlap");
  b->number = ++c->posted;
  uint64_t number = atomic_fetch_add(&groups, 1) + 1;
  b->stuck = is_planted("DT_EMULATE_NCCL_STUCK", number);
  b->fails = is_planted("DT_EMULATE_NCCL_ERROR", number);
  c->pending = b;
  c->polls = (int)draw(POLLS);
  return ncclInProgress;
}

static ncclResult_t call(ncclComm_t c, cudaStream_t stream, Call x) {
  if (x.peer < 0 || x.peer >= c->n || (x.op != ncclSum && x.type != ncclInt32)) return ncclInvalidArgument; // its maximum drops NaN
  group_start();
  if (!group && (group = calloc(1, sizeof *group))) group->comm = c, group->stream = stream;
  if (!group) return ncclSystemError;
  if (group->comm != c || group->stream != stream || group->n == CALLS) return refuse("a group of too many calls, or of two communicators");
  group->call[group->n++] = x;
  return group_end();
}

static ncclResult_t all_reduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return call(c, s, (Call){ALL_REDUCE, in, out, n, t, op, 0, 0});
}
static ncclResult_t reduce_scatter(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return call(c, s, (Call){REDUCE_SCATTER, in, out, n, t, op, 0, 0});
}
static ncclResult_t reduce_to(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s) {
  return call(c, s, (Call){REDUCE, in, out, n, t, op, root, 0});
}
static ncclResult_t all_gather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  return call(c, s, (Call){ALL_GATHER, in, out, n, t, ncclSum, 0, 0});
}
static ncclResult_t broadcast(const void *in, void *out, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
  return call(c, s, (Call){BROADCAST, in, out, n, t, ncclSum, root, 0});
}
static ncclResult_t send_to(const void *data, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return call(c, s, (Call){SEND, data, NULL, n, t, ncclSum, peer, 0});
}
static ncclResult_t receive_from(void *data, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return call(c, s, (Call){RECV, NULL, data, n, t, ncclSum, peer, 0});
}

const DtNccl *dt_nccl_open(DtError *e) {
  static const DtNccl nccl = {version, error_string, last_error_of, unique_id, init, async_error, comm_abort, finalize, destroy,
                              group_start, group_end, all_reduce, reduce_scatter, reduce_to, all_gather, broadcast, send_to, receive_from};
  (void)e;
  return &nccl;
}
