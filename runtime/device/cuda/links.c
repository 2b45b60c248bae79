// How GPUs exchange arrays: NCCL, on streams of high priority. Operations of groups have one stream, in their order; what one
// rank sends to another has a communicator and a stream for each direction, so that it holds up nothing else. Communicators
// do not block: what they have not taken up yet is asked for again.
#define _GNU_SOURCE
#include "runtime/device/links.h"

#include "runtime/device/cuda/gpu.h"
#include "runtime/device/cuda/nccl.h"
#include "runtime/device/cuda/sizes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 8192, MARKS = 4096, LINKS = 1024, SCRATCH = DT_EXCHANGE, LANE = 64 };
_Static_assert(sizeof(ncclUniqueId) == DT_LINK_ID, "an id");

struct DtLink {
  ncclComm_t comm;
  CUstream stream;
  bool joined;
  DtMark receiving; // of the receive that is being enqueued
};

typedef struct Mark {
  CUevent begun, ended;
  uint64_t number; // of the operation; 0: free
} Mark;

static struct {
  const DtNccl *nccl;
  bool exact;
  char name[40];
  CUstream stream;
  char *scratch; // SCRATCH bytes of the device
  struct DtLink link[LINKS];
  int n;
  // Points and marks are taken by one thread and given back by another.
  pthread_mutex_t lock;
  CUevent point[POINTS];
  int free_point[POINTS], npoints, free_points; // npoints: that were made
  Mark mark[MARKS];
  int free_mark[MARKS], nmarks, free_marks;
  uint64_t number;
  // In the stream of kernels, where the thread that posts waits, and behind what it waits for.
  CUevent *stall;
  int nstalls, stall_events; // since the last call of `stalled`; that were made
} links = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- failures

static _Noreturn void give_up(const char *doing, ncclResult_t r) {
  dt_comm_end(DT_EXIT_PEER, "%s: %s: %s (%d): %s", links.name, doing, links.nccl->ncclGetErrorString(r), (int)r,
              links.nccl->ncclGetLastError(NULL));
}

static void check(ncclResult_t r, const char *doing) {
  if (r != ncclSuccess && r != ncclInProgress) give_up(doing, r);
}

static void check_cuda(CUresult r, const char *doing) { dt_gpu_check(r, doing, NULL); }

// Whether the communicator has taken up all that was called.
static bool ready(const DtLink *l, const char *doing) {
  ncclResult_t state = ncclSuccess;
  check(links.nccl->ncclCommGetAsyncError(l->comm, &state), doing);
  check(state, doing);
  return state == ncclSuccess;
}

static const char *failed(void) {
  for (int i = 0; i < links.n; i++) {
    ncclResult_t state = ncclSuccess;
    if (!links.link[i].comm) continue;
    links.nccl->ncclCommGetAsyncError(links.link[i].comm, &state);
    if (state != ncclSuccess && state != ncclInProgress) return links.nccl->ncclGetLastError(links.link[i].comm);
  }
  return NULL;
}

// ---- start and end

static CUstream make_stream(void) {
  CUstream s;
  int least = 0, greatest = 0;
  check_cuda(dt_gpu.driver->cuCtxGetStreamPriorityRange(&least, &greatest), "cannot ask for priorities of streams");
  check_cuda(dt_gpu.driver->cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, greatest), "cannot make a stream");
  return s;
}

static int open_links(bool exact, DtError *e) {
  int version = 0;
  CUdeviceptr p = 0;
  // The order of a sum is that of the layout where the network does not add up.
  setenv("NCCL_ALGO", "Ring,Tree", 0);
  if (!(links.nccl = dt_nccl_open(e))) return e->status;
  links.nccl->ncclGetVersion(&version);
  snprintf(links.name, sizeof links.name, "NCCL %d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
  if (version < DT_NCCL_VERSION)
    return dt_fail(e, DT_EXIT_OS, "libnccl.so.2 is %s, which is too old; %d.%d or newer is needed", links.name,
                   DT_NCCL_VERSION / 10000, DT_NCCL_VERSION % 10000 / 100);
  dt_gpu_enter();
  if (dt_gpu.driver->cuMemAlloc_v2(&p, SCRATCH))
    return dt_fail(e, DT_EXIT_OS, "the GPU has no memory to exchange arrays with other ranks (%d MiB)", SCRATCH >> 20);
  links.scratch = (char *)(uintptr_t)p;
  links.exact = exact;
  links.stream = make_stream();
  return 0;
}

static const char *name(void) { return links.name; }

static void make_id(void *id) { check(links.nccl->ncclGetUniqueId(id), "cannot make a communicator's id"); }

static DtLink *join(const void *id, int n, int me, bool pair) {
  ncclUniqueId of;
  ncclConfig_t config = {.size = sizeof config, .magic = (unsigned)DT_NCCL_MAGIC, .version = DT_NCCL_VERSION,
                         .cgaClusterSize = DT_NCCL_UNDEFINED, .minCTAs = DT_NCCL_UNDEFINED, .maxCTAs = DT_NCCL_UNDEFINED,
                         .splitShare = DT_NCCL_UNDEFINED};
  if (links.n == LINKS) dt_comm_end(DT_EXIT_BUG, "more than %d communicators", LINKS);
  DtLink *l = &links.link[links.n];
  memcpy(&of, id, sizeof of);
  dt_gpu_enter();
  l->stream = pair ? make_stream() : links.stream;
  check(links.nccl->ncclCommInitRankConfig(&l->comm, n, of, me, &config), "cannot make a communicator");
  links.n++;
  return l;
}

static bool joined(DtLink *l) {
  if (!l->joined) l->joined = ready(l, "cannot make a communicator");
  return l->joined;
}

static void abort_links(void) {
  for (int i = 0; i < links.n; i++)
    if (links.link[i].comm) links.nccl->ncclCommAbort(links.link[i].comm);
}

static void destroy_events(CUevent *event, int n) {
  for (int i = 0; i < n; i++) dt_gpu.driver->cuEventDestroy_v2(event[i]);
}

// Finalizing needs all members, which may come in another order: all are asked first.
static void close_links(void (*idle)(void)) {
  dt_gpu_enter();
  for (int i = 0; i < links.n; i++) check(links.nccl->ncclCommFinalize(links.link[i].comm), "cannot end a communicator");
  for (int i = 0; i < links.n; i++) {
    DtLink *l = &links.link[i];
    while (!ready(l, "cannot end a communicator")) idle();
    check(links.nccl->ncclCommDestroy(l->comm), "cannot end a communicator");
    if (l->stream != links.stream) dt_gpu.driver->cuStreamDestroy_v2(l->stream);
    l->comm = NULL;
  }
  destroy_events(links.point, links.npoints);
  destroy_events(links.stall, links.stall_events);
  for (int i = 0; i < links.nmarks; i++) destroy_events((CUevent[]){links.mark[i].begun, links.mark[i].ended}, 2);
  dt_gpu.driver->cuStreamDestroy_v2(links.stream);
  dt_gpu.driver->cuMemFree_v2(dt_gpu_address(links.scratch));
  free(links.stall);
  links.stall = NULL;
  links.n = links.npoints = links.free_points = links.nmarks = links.free_marks = links.nstalls = links.stall_events = 0;
}

// ---- points and marks

static CUevent make_event(unsigned flags) {
  CUevent event;
  check_cuda(dt_gpu.driver->cuEventCreate(&event, flags), "cannot make an event");
  return event;
}

static int take(int *of, int *n, int *made, int most) {
  if (*n) return of[--*n];
  if (*made == most) dt_comm_end(DT_EXIT_BUG, "more than %d operations of the device at once", most);
  return (*made)++;
}

static DtMark point(void) {
  dt_gpu_enter();
  pthread_mutex_lock(&links.lock);
  int made = links.npoints, i = take(links.free_point, &links.free_points, &links.npoints, POINTS);
  if (i == made) links.point[i] = make_event(CU_EVENT_DISABLE_TIMING);
  CUevent event = links.point[i];
  pthread_mutex_unlock(&links.lock);
  check_cuda(dt_gpu.driver->cuEventRecord(event, dt_gpu.stream), "cannot record an event");
  return 1 + (DtMark)i;
}

// The stream waits for the event as it is now, which is free for another point then.
static void wait_for_point(CUstream s, DtMark after) {
  int i = (int)after - 1;
  check_cuda(dt_gpu.driver->cuStreamWaitEvent(s, links.point[i], 0), "cannot wait for an event");
  pthread_mutex_lock(&links.lock);
  links.free_point[links.free_points++] = i;
  pthread_mutex_unlock(&links.lock);
}

// A mark is number * MARKS + where it is.
static Mark *mark_at(DtMark m) { return &links.mark[m % MARKS]; }

// Taken when the operation before it in the stream is there.
static DtMark begin_mark(CUstream s) {
  pthread_mutex_lock(&links.lock);
  int made = links.nmarks, i = take(links.free_mark, &links.free_marks, &links.nmarks, MARKS);
  if (i == made) links.mark[i] = (Mark){make_event(CU_EVENT_DISABLE_TIMING), make_event(CU_EVENT_DISABLE_TIMING), 0};
  pthread_mutex_unlock(&links.lock);
  check_cuda(dt_gpu.driver->cuEventRecord(links.mark[i].begun, s), "cannot record an event");
  return ++links.number * MARKS + (DtMark)i;
}

static DtMark end_mark(CUstream s, DtMark m) {
  check_cuda(dt_gpu.driver->cuEventRecord(mark_at(m)->ended, s), "cannot record an event");
  pthread_mutex_lock(&links.lock);
  mark_at(m)->number = m / MARKS;
  pthread_mutex_unlock(&links.lock);
  return m;
}

static bool is_there(CUevent event) {
  CUresult r = dt_gpu.driver->cuEventQuery(event);
  if (r != CUDA_ERROR_NOT_READY) check_cuda(r, "an operation of several ranks failed");
  return r == CUDA_SUCCESS;
}

static DtLinkState state(DtMark m) {
  Mark *at = mark_at(m);
  dt_gpu_enter();
  if (!is_there(at->begun)) return DT_LINK_WAITS;
  if (!is_there(at->ended)) return DT_LINK_BEGUN;
  pthread_mutex_lock(&links.lock);
  at->number = 0;
  links.free_mark[links.free_marks++] = (int)(m % MARKS);
  pthread_mutex_unlock(&links.lock);
  return DT_LINK_ENDED;
}

static void record_stall(int i) {
  if (i == links.stall_events) {
    CUevent *more = realloc(links.stall, (size_t)(i + 1) * 2 * sizeof *more);
    if (!more) dt_comm_end(DT_EXIT_OS, "no memory to time waits");
    links.stall = more;
    for (; links.stall_events <= 2 * i + 1; links.stall_events++) links.stall[links.stall_events] = make_event(0);
  }
  check_cuda(dt_gpu.driver->cuEventRecord(links.stall[i], dt_gpu.stream), "cannot record an event");
}

static void wait(void) {
  dt_gpu_enter();
  record_stall(2 * links.nstalls);
}

static void follow(DtMark m) {
  dt_gpu_enter();
  pthread_mutex_lock(&links.lock); // it does not end, nor begins another, in the meantime
  if (mark_at(m)->number == m / MARKS)
    check_cuda(dt_gpu.driver->cuStreamWaitEvent(dt_gpu.stream, mark_at(m)->ended, 0), "cannot wait for an event");
  pthread_mutex_unlock(&links.lock);
  record_stall(2 * links.nstalls++ + 1);
}

static double stalled(void) {
  double seconds = 0;
  for (int i = 0; i < links.nstalls; i++) {
    float ms = 0;
    check_cuda(dt_gpu.driver->cuEventElapsedTime(&ms, links.stall[2 * i], links.stall[2 * i + 1]), "cannot time a wait");
    seconds += ms * 1e-3;
  }
  links.nstalls = 0;
  return seconds;
}

// ---- operations

// The one under way.
static struct {
  const DtOp *op;
  DtLink *link;
  void (*idle)(void);
  size_t size; // of an element
  ncclDataType_t type;
} now;

static ncclDataType_t type_of(DtType type) {
  static const ncclDataType_t of[] = {[DT_TYPE_F32] = ncclFloat32, [DT_TYPE_F64] = ncclFloat64,   [DT_TYPE_I32] = ncclInt32,
                                      [DT_TYPE_BOOL] = ncclInt8,   [DT_TYPE_BF16] = ncclBfloat16, [DT_TYPE_F16] = ncclFloat16};
  return of[type];
}

static const char *in_at(int64_t element) { return (const char *)now.op->in + (size_t)element * now.size; }
static char *out_at(int64_t element) { return (char *)now.op->out + (size_t)element * now.size; }
static size_t bytes(int64_t n) { return n > 0 ? (size_t)n * now.size : 0; }

static void copy(void *to, const void *from, int64_t n) {
  if (to == from || n <= 0) return;
  check_cuda(dt_gpu.driver->cuMemcpyDtoDAsync_v2(dt_gpu_address(to), dt_gpu_address(from), bytes(n), now.link->stream), "cannot copy");
}

static void settle(void) {
  while (!ready(now.link, "an operation failed")) now.idle();
}

static void called(ncclResult_t r) {
  check(r, "an operation is refused");
  if (r == ncclInProgress) settle();
}

static void group_begin(void) { check(links.nccl->ncclGroupStart(), "an operation is refused"); }
static void group_end(void) { called(links.nccl->ncclGroupEnd()); }

static void send_to(int member, const void *p, int64_t n) {
  if (n > 0) check(links.nccl->ncclSend(p, (size_t)n, now.type, member, now.link->comm, now.link->stream), "a send is refused");
}
static void receive_from(int member, void *p, int64_t n) {
  if (n > 0) check(links.nccl->ncclRecv(p, (size_t)n, now.type, member, now.link->comm, now.link->stream), "a receive is refused");
}

static int64_t piece(void) { return (now.op->count + now.op->g->n - 1) / now.op->g->n; }
static int64_t there(int k) {
  int64_t left = now.op->count - k * piece();
  return left < 0 ? 0 : dt_least(piece(), left);
}
// Of n elements, those from `at` on, `most` at most.
static int64_t rest(int64_t n, int64_t at, int64_t most) { return n > at ? dt_least(n - at, most) : 0; }

// Elements of a part of which each member has one in the scratch memory.
static int64_t part_most(void) { return SCRATCH / (int64_t)now.size / now.op->g->n / LANE * LANE; }
static char *scratch_of(int member, int64_t most) { return links.scratch + bytes(member * most); }

// out = the reduction of n elements of all members, of which this one's are `own` and the others' in the scratch memory.
static void add_up(void *out, const void *own, int64_t most, int64_t n) {
  const DtGroup *g = now.op->g;
  const void *parts = links.scratch;
  int64_t me = g->me, members = g->n, op = now.op->reduce;
  void *arg[] = {&out, (void *)&own, (void *)&parts, &most, &me, &members, &n, &op};
  if (n > 0) dt_cuda_reduce(now.op->type, now.link->stream, n, arg);
}

// Piece k of the `length` elements from `at` on is of elements [k * each, (k + 1) * each) there.
static void reduce_pieces(int64_t at, int64_t each, int64_t length, int64_t most, void *out) {
  const DtGroup *g = now.op->g;
  int64_t mine = rest(length, g->me * each, each);
  group_begin();
  for (int m = 0; m < g->n; m++) {
    if (m == g->me) continue;
    send_to(m, in_at(at + m * each), rest(length, m * each, each));
    receive_from(m, scratch_of(m, most), mine);
  }
  group_end();
  add_up(out, in_at(at + g->me * each), most, mine);
}

static void all_reduce_in_order(void) {
  const DtGroup *g = now.op->g;
  int64_t most = part_most(), block = most * g->n;
  for (int64_t at = 0; at < now.op->count; at += block) {
    int64_t length = dt_least(block, now.op->count - at), each = (length + g->n - 1) / g->n;
    char *own = out_at(at + g->me * each);
    reduce_pieces(at, each, length, most, own);
    group_begin();
    for (int m = 0; m < g->n; m++) {
      if (m == g->me) continue;
      send_to(m, own, rest(length, g->me * each, each));
      receive_from(m, out_at(at + m * each), rest(length, m * each, each));
    }
    group_end();
  }
}

static void reduce_scatter_in_order(void) {
  const DtGroup *g = now.op->g;
  int64_t most = part_most();
  for (int64_t at = 0; at < piece(); at += most) {
    int64_t mine = rest(there(g->me), at, most);
    group_begin();
    for (int m = 0; m < g->n; m++) {
      if (m == g->me) continue;
      send_to(m, in_at(m * piece() + at), rest(there(m), at, most));
      receive_from(m, scratch_of(m, most), mine);
    }
    group_end();
    add_up(out_at(at), in_at(g->me * piece() + at), most, mine);
  }
}

// NCCL's maximum drops what is not a number.
static bool in_order(void) { return links.exact || (now.op->reduce != DT_SUM && now.op->type != DT_TYPE_I32); }

static ncclRedOp_t reduction(void) {
  return now.op->reduce == DT_SUM ? ncclSum : now.op->reduce == DT_MAX ? ncclMax : ncclMin;
}

static void all_reduce(void) {
  const DtOp *op = now.op;
  if (in_order()) all_reduce_in_order();
  else called(links.nccl->ncclAllReduce(op->in, op->out, (size_t)op->count, now.type, reduction(), now.link->comm, now.link->stream));
}

static bool overlap(const void *a, size_t n, const void *b, size_t m) {
  return n && m && (const char *)a < (const char *)b + m && (const char *)b < (const char *)a + n;
}

static void reduce_scatter(void) {
  const DtOp *op = now.op;
  const DtGroup *g = op->g;
  bool apart = !overlap(op->in, bytes(op->count), op->out, bytes(there(g->me)));
  bool at_place = op->out == (const void *)in_at(g->me * piece());
  if (in_order() || !(apart || at_place)) {
    reduce_scatter_in_order();
  } else if (op->count % g->n == 0) {
    called(links.nccl->ncclReduceScatter(op->in, op->out, (size_t)piece(), now.type, reduction(), now.link->comm, now.link->stream));
  } else { // NCCL's pieces are all of one size
    group_begin();
    for (int m = 0; m < g->n; m++)
      if (there(m))
        check(links.nccl->ncclReduce(in_at(m * piece()), m == g->me ? op->out : (void *)in_at(m * piece()), (size_t)there(m), now.type,
                                     reduction(), m, now.link->comm, now.link->stream),
              "a reduction is refused");
    group_end();
  }
}

static void all_gather(void) {
  const DtOp *op = now.op;
  const DtGroup *g = op->g;
  char *own = out_at(g->me * piece());
  const void *from = op->in;
  if (from != own && overlap(from, bytes(there(g->me)), op->out, bytes(op->count))) copy(own, from, there(g->me)), from = own;
  if (op->count % g->n == 0) {
    called(links.nccl->ncclAllGather(from, op->out, (size_t)piece(), now.type, now.link->comm, now.link->stream));
    return;
  }
  copy(own, from, there(g->me));
  group_begin();
  for (int m = 0; m < g->n; m++)
    if (there(m)) {
      char *p = out_at(m * piece());
      check(links.nccl->ncclBroadcast(p, p, (size_t)there(m), now.type, m, now.link->comm, now.link->stream), "a broadcast is refused");
    }
  group_end();
}

static void exchange(int64_t at, int64_t n, int64_t part, char *to, int64_t pitch) {
  const DtGroup *g = now.op->g;
  group_begin();
  for (int m = 0; m < g->n; m++) {
    if (m == g->me) continue;
    send_to(m, in_at(m * part + at), n);
    receive_from(m, to + bytes(m * pitch), n);
  }
  group_end();
}

static void all_to_all(void) {
  const DtOp *op = now.op;
  const DtGroup *g = op->g;
  int64_t part = op->count / g->n, most = part_most();
  bool apart = !overlap(op->in, bytes(op->count), op->out, bytes(op->count));
  if (apart) exchange(0, part, part, op->out, part);
  for (int64_t at = 0; at < part && !apart; at += most) {
    int64_t n = rest(part, at, most);
    exchange(at, n, part, links.scratch, most);
    for (int m = 0; m < g->n; m++)
      if (m != g->me) copy(out_at(m * part + at), scratch_of(m, most), n);
  }
  copy(out_at(g->me * part), in_at(g->me * part), part);
}

static void shift(void) {
  const DtGroup *g = now.op->g;
  group_begin();
  send_to((g->me + 1) % g->n, now.op->in, now.op->count);
  receive_from((g->me + g->n - 1) % g->n, now.op->out, now.op->count);
  group_end();
}

static void broadcast(void) {
  const DtOp *op = now.op;
  called(links.nccl->ncclBroadcast(op->in, op->out, (size_t)op->count, now.type, op->peer, now.link->comm, now.link->stream));
}

static void send_alone(void) {
  const DtOp *op = now.op;
  called(links.nccl->ncclSend(op->in, (size_t)op->count, now.type, 1, now.link->comm, now.link->stream));
}

static DtMark run(DtLink *l, const DtOp *op, void (*idle)(void)) {
  static void (*const of[DT_OP_KINDS])(void) = {
      [DT_OP_ALL_REDUCE] = all_reduce, [DT_OP_REDUCE_SCATTER] = reduce_scatter, [DT_OP_ALL_GATHER] = all_gather,
      [DT_OP_ALL_TO_ALL] = all_to_all, [DT_OP_SHIFT] = shift,                   [DT_OP_BROADCAST] = broadcast,
      [DT_OP_SEND] = send_alone};
  dt_gpu_enter();
  now.op = op;
  now.link = l;
  now.idle = idle;
  now.size = dt_type_size(op->type);
  now.type = type_of(op->type);
  wait_for_point(l->stream, op->after);
  DtMark m = begin_mark(l->stream);
  of[op->kind]();
  return end_mark(l->stream, m);
}

// ---- a receive: in the midst of other operations

static void receive(DtLink *l, const DtOp *op) {
  dt_gpu_enter();
  wait_for_point(l->stream, op->after);
  l->receiving = begin_mark(l->stream);
  check(links.nccl->ncclRecv(op->out, (size_t)op->count, type_of(op->type), 0, l->comm, l->stream), "a receive is refused");
}

static DtMark received(DtLink *l) {
  return ready(l, "a receive failed") ? end_mark(l->stream, l->receiving) : 0;
}

const DtLinks *dt_device_links(void) {
  static const DtLinks gpu = {.open = open_links, .name = name, .make_id = make_id, .join = join, .joined = joined, .point = point,
                              .run = run, .receive = receive, .received = received, .state = state, .wait = wait, .follow = follow, .stalled = stalled,
                              .failed = failed, .abort = abort_links, .close = close_links};
  return &gpu;
}
