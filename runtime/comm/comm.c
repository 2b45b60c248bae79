// Operations from posting to completion: a fixed ring between the thread that posts and the thread
// that carries out.
#define _GNU_SOURCE
#include "runtime/comm.h"

#include "runtime/comm/comm_op.h"
#include "runtime/base/counter.h"
#include "runtime/base/parallel.h"
#include "runtime/layers.h"
#include "runtime/train/rehearse.h"
#include "runtime/base/trace.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RING = 1024, STEPS_KEPT = 15, LOOKS = 300 };

static struct {
  const DtTransport *transport; // NULL: this is the only rank
  pthread_t thread;
  DtOp op[RING]; // operation i, from 1, is at i % RING
  DtCounter opened, posted, done;
  DtCounter own_bell, *bell; // rung when there is something to do
  _Atomic(const DtOp *) current;
  atomic_bool leaving;
  int delay_ms;
  double timeout; // 0: by the length of steps
  _Atomic int64_t step;
  _Atomic int64_t silent_ms, late_ms;
  atomic_bool files;
  int64_t began; // nanoseconds: when the step began
  int64_t micro, layer; // of what is posted; -1: none
  int64_t took[STEPS_KEPT];
  int steps;
  int64_t waited; // nanoseconds
} comm = {.micro = -1, .layer = -1};

const DtOp *dt_comm_current(void) { return atomic_load(&comm.current); }
void dt_comm_at(const DtOp *op) { atomic_store(&comm.current, op); }
const DtTransport *dt_comm_transport(void) { return comm.transport; }
bool dt_comm_leaving(void) { return atomic_load(&comm.leaving); }
int64_t dt_comm_at_step(void) { return atomic_load(&comm.step); }
double dt_comm_limit(void) { return (double)atomic_load(&comm.silent_ms) * 1e-3; }
double dt_comm_late_limit(void) { return (double)atomic_load(&comm.late_ms) * 1e-3; }

void dt_comm_files(bool on) { atomic_store(&comm.files, on); }
bool dt_comm_at_files(void) { return atomic_load(&comm.files); }

// ---- How long a peer may be silent

static int64_t median_step(void) {
  int64_t v[STEPS_KEPT];
  int n = 0;
  for (int i = 0; i < comm.steps && i < STEPS_KEPT; i++) {
    int at = n++;
    for (; at > 0 && v[at - 1] > comm.took[i]; at--) v[at] = v[at - 1];
    v[at] = comm.took[i];
  }
  return n ? v[n / 2] : 0;
}

// Nobody is late before it would be silent: one that was stopped while others waited for it has been
// away for longer than its beat has stood still.
static void set_limit(void) {
  enum { FIRST = 6, LATE = 6, LATE_FIRST = 12, STEPS = 10 };
  double limit = comm.timeout > 0 ? comm.timeout : 100;
  double steps = STEPS * (double)median_step() * 1e-9;
  if (comm.timeout <= 0 && steps > limit) limit = steps;
  atomic_store(&comm.late_ms, (int64_t)((comm.steps ? LATE : LATE_FIRST) * limit * 1e3));
  atomic_store(&comm.silent_ms, (int64_t)((comm.steps ? 1 : FIRST) * limit * 1e3));
}

void dt_comm_step(int64_t step) {
  if (dt_rehearsing) return;
  int64_t now = dt_nanoseconds();
  if (atomic_load(&comm.step) > 0) comm.took[comm.steps++ % STEPS_KEPT] = now - comm.began;
  comm.began = now;
  atomic_store(&comm.step, step);
  set_limit();
}

// ---- The communication thread

static void delay(void) {
  int64_t ms = 1000000, look = DT_LOOK_MS * ms, looked = dt_nanoseconds();
  int64_t end = looked + comm.delay_ms * ms;
  for (int64_t t; (t = dt_nanoseconds()) < end && !dt_comm_leaving();) {
    uint64_t rung = dt_counter_get(comm.bell);
    dt_receive_all();
    dt_counter_nap(comm.bell, rung, dt_least(end - t, look));
    if (t - looked < look) continue;
    looked = t;
    comm.transport->look();
  }
}

void dt_op_trace(const DtOp *op, int64_t begin, bool receive) {
  dt_trace_comm(&(DtTransfer){.op = dt_op_name[op->kind],
                              .what = op->note.what,
                              .source = op->note.source,
                              .axes = op->g->axes,
                              .bytes = op->count * (int64_t)dt_type_size(op->type),
                              .layer = op->note.layer,
                              .step = op->step,
                              .micro = op->micro,
                              .posted = op->posted,
                              .begin = begin,
                              .receive = receive});
}

static void carry_out(DtOp *op) {
  int64_t begin = dt_tracing ? dt_nanoseconds() : 0;
  bool linked = dt_linked(op);
  dt_receive_leave();
  dt_comm_at(op);
  if (comm.delay_ms) delay();
  if (op->control) dt_link_check();
  else if (!linked) dt_device_wait(op->after);
  if (op->unlinks) dt_link_close();
  else if (linked) dt_link_run(op);
  else comm.transport->run(op);
  dt_comm_at(NULL);
  if (begin && !linked && !op->unlinks) dt_op_trace(op, begin, false);
}

static void *work(void *error) {
  uint64_t done = 0;
  if (comm.transport->open) comm.transport->open(error);
  bool failed = ((DtError *)error)->status != 0;
  dt_counter_set(&comm.opened, 1); // *error is the starting thread's again
  if (failed) return NULL;
  while (!dt_comm_leaving()) {
    uint64_t rung = dt_counter_get(comm.bell);
    bool receives = dt_receive_all();
    if (dt_counter_get(&comm.posted) == done) {
      dt_receive_rest(rung, receives);
      continue;
    }
    carry_out(&comm.op[(done + 1) % RING]);
    if (dt_comm_leaving()) break;
    dt_counter_set(&comm.done, ++done);
  }
  if (comm.transport->finish) comm.transport->finish();
  return NULL;
}

static int read_delay(DtError *e) {
  const char *text = getenv("DT_COMM_DELAY_MS");
  char *end = NULL;
  long ms = text && *text ? strtol(text, &end, 10) : 0;
  if (ms < 0 || ms > 1000000 || (end && *end))
    return dt_fail(e, DT_EXIT_USAGE, "DT_COMM_DELAY_MS=%s is not a number of milliseconds", text);
  comm.delay_ms = (int)ms;
  return 0;
}

// At most for the limit of a first step, in time that this process ran, not by the clock. A library
// that connects ranks may wait without end for one that does not come, and cannot be left: the
// process ends, and its launcher ends the others.
static void wait_to_open(void) {
  int64_t before = dt_nanoseconds(), waited = 0, most = 2 * DT_LOOK_MS * (int64_t)1000000;
  while (!dt_counter_get(&comm.opened)) {
    if (comm.transport->opens && (double)waited * 1e-9 > dt_comm_limit()) {
      fprintf(stderr,
              "train: rank %d: error: %s did not return in %.4g s (another rank was stopped or did "
              "not start)\n",
              dt_world.rank, comm.transport->opens, dt_comm_limit());
      dt_comm_rest();
      _exit(DT_EXIT_PEER);
    }
    dt_counter_sleep(&comm.opened, 0, DT_LOOK_MS);
    int64_t t = dt_nanoseconds();
    waited += dt_least(t - before, most);
    before = t;
  }
}

int dt_comm_run(const DtTransport *t, double timeout, DtError *e) {
  if (read_delay(e)) return e->status;
  comm.timeout = timeout;
  comm.transport = t;
  comm.bell = t->bell ? t->bell() : &comm.own_bell;
  dt_receive_open(t, comm.bell, comm.delay_ms);
  set_limit();
  // Signals are for the thread that runs the steps.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&comm.thread, NULL, work, e);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) {
    wait_to_open();
    if (!e->status) return 0;
    pthread_join(comm.thread, NULL);
    comm.transport = NULL;
    return e->status;
  }
  comm.transport = NULL;
  return dt_fail(e, DT_EXIT_OS, "cannot start the communication thread: %s", strerror(failed));
}

int64_t dt_exchange_bytes(void) { return comm.transport ? comm.transport->bytes() : 0; }
int64_t dt_exchange_used(void) { return comm.transport ? comm.transport->used() : 0; }

void dt_comm_stop(void) {
  if (!comm.transport) return;
  atomic_store(&comm.leaving, true);
  dt_counter_ring(comm.bell);
  pthread_join(comm.thread, NULL);
  if (comm.transport->close) comm.transport->close();
  comm.transport = NULL;
}

// ---- Posting

void dt_comm_waited(int64_t since) { comm.waited += dt_nanoseconds() - since; }

// Where devices exchange arrays, the host waits until operations are enqueued, and kernels for them.
double dt_comm_exposed(void) {
  double seconds = dt_comm_links() ? dt_link_stalled() : (double)comm.waited * 1e-9;
  comm.waited = 0;
  return seconds;
}

static void wait_for(DtTicket t) {
  for (int i = 0; i < LOOKS; i++) {
    if (dt_counter_get(&comm.done) >= t) return;
    dt_pause();
  }
  int64_t since = dt_nanoseconds();
  if (dt_tracing) dt_trace_record(dt_trace_wait, true);
  for (uint64_t done; (done = dt_counter_get(&comm.done)) < t;)
    dt_counter_sleep(&comm.done, done, DT_LOOK_MS);
  if (!comm.op[t % RING].control) dt_comm_waited(since);
  if (dt_tracing) dt_trace_record(dt_trace_wait, false);
}

void dt_wait(DtTicket t) {
  if (dt_rehearsing) {
    dt_rehearse_wait(t);
    return;
  }
  if (dt_is_receive(t)) {
    dt_receive_wait(t);
    return;
  }
  if (t && !comm.op[t % RING].control) dt_link_wait();
  wait_for(t);
  // Where another has its place, it was waited for then.
  if (t && dt_counter_get(&comm.posted) < t + RING) dt_link_follow(comm.op[t % RING].done);
}

void dt_comm_micro(int64_t micro) { comm.micro = micro; }
DtPlace dt_comm_place(void) { return (DtPlace){comm.micro, comm.layer}; }

void dt_comm_go(DtPlace place) {
  comm.micro = place.micro;
  comm.layer = place.layer;
}

int64_t dt_layer_enter(int64_t layer, int64_t count) {
  int64_t outside = comm.layer;
  comm.layer = (outside < 0 ? 0 : outside * count) + layer;
  return outside;
}

void dt_layer_leave(int64_t outside) { comm.layer = outside; }

static DtTicket post(const DtOp *op) {
  if (!comm.transport && !dt_rehearsing) {
    fprintf(stderr, "train: error: %s before ranks are connected\n", dt_op_name[op->kind]);
    exit(DT_EXIT_BUG);
  }
  DtOp posted = *op;
  posted.step = dt_comm_at_step();
  posted.micro = comm.micro;
  if (!op->control && !dt_rehearsing) posted.after = dt_linked(op) ? dt_link_point() : dt_device_record();
  posted.posted = dt_tracing ? dt_nanoseconds() : 0;
  if (posted.note.layer < 0) posted.note.layer = comm.layer;
  if (dt_rehearsing) return dt_rehearse_post(&posted);
  if (op->kind == DT_OP_RECV) return dt_receive_post(&posted);
  DtTicket t = dt_counter_get(&comm.posted) + 1;
  if (t > RING) dt_wait(t - RING);
  comm.op[t % RING] = posted;
  dt_counter_set(&comm.posted, t);
  dt_counter_ring(comm.bell);
  return t;
}

// A group of one, or nothing to move: done at once.
static bool alone(const DtOp *op) {
  if (op->kind == DT_OP_BARRIER || (op->count > 0 && op->g->n > 1)) return false;
  bool moves = op->count > 0 && op->in && op->out && op->in != op->out && !dt_rehearsing;
  size_t bytes = (size_t)op->count * dt_type_size(op->type);
  if (moves && op->control) memmove(op->out, op->in, bytes);
  else if (moves) dt_device_copy(op->out, op->in, bytes);
  return true;
}

void dt_comm_unlink(void) {
  if (dt_comm_links()) dt_wait(post(&(DtOp){.kind = DT_OP_BARRIER, .g = dt_group(DT_ALL_AXES), .control = true, .unlinks = true}));
}

DtTicket dt_op_begin(const DtOp *op) { return alone(op) ? 0 : post(op); }

static DtTicket begin(DtOpKind kind, const DtGroup *g, DtType type, DtReduce reduce, int peer,
                      const void *in, void *out, int64_t count, DtNote note) {
  return dt_op_begin(&(DtOp){.kind = kind, .type = type, .reduce = reduce, .peer = peer, .g = g, .in = in, .out = out,
                             .count = count, .micro = -1, .note = note});
}

DtTicket dt_all_reduce(const DtGroup *g, DtType type, DtReduce op, const void *in, void *out,
                       int64_t count, DtNote note) {
  return begin(DT_OP_ALL_REDUCE, g, type, op, 0, in, out, count, note);
}

DtTicket dt_reduce_scatter(const DtGroup *g, DtType type, DtReduce op, const void *in, void *out,
                           int64_t count, DtNote note) {
  return begin(DT_OP_REDUCE_SCATTER, g, type, op, 0, in, out, count, note);
}

DtTicket dt_all_gather(const DtGroup *g, DtType type, const void *in, void *out, int64_t count,
                       DtNote note) {
  return begin(DT_OP_ALL_GATHER, g, type, DT_SUM, 0, in, out, count, note);
}

DtTicket dt_all_to_all(const DtGroup *g, DtType type, const void *in, void *out, int64_t count,
                       DtNote note) {
  return begin(DT_OP_ALL_TO_ALL, g, type, DT_SUM, 0, in, out, count, note);
}

DtTicket dt_shift(const DtGroup *g, DtType type, const void *in, void *out, int64_t count,
                  DtNote note) {
  return begin(DT_OP_SHIFT, g, type, DT_SUM, 0, in, out, count, note);
}

DtTicket dt_broadcast(const DtGroup *g, DtType type, int root, void *data, int64_t count,
                      DtNote note) {
  return begin(DT_OP_BROADCAST, g, type, DT_SUM, root, data, data, count, note);
}

DtTicket dt_send(const DtGroup *g, int to, DtType type, const void *data, int64_t count,
                 DtNote note) {
  return begin(DT_OP_SEND, g, type, DT_SUM, to, data, NULL, count, note);
}

DtTicket dt_recv(const DtGroup *g, int from, DtType type, void *data, int64_t count, DtNote note) {
  return begin(DT_OP_RECV, g, type, DT_SUM, from, NULL, data, count, note);
}
