// Receives. They are apart from other operations: posted ahead of when they are needed, they wait
// for senders that come when they come, and nothing that was posted later waits for them. Those
// from one rank are in order, as its sends are.
//
// The communication thread goes on with them between operations, in the waits of operations, and
// when there is nothing else to do. Then it sleeps until a bell is rung: by the steps when they
// post something, and by ranks that send, where the transport can.
#include "runtime/comm/comm_op.h"
#include "runtime/base/trace.h"

#include <stddef.h>

enum {
  MOST = 1 << 12, // under way: a pipeline's schedule has two for each boundary of a chunk at most
  LOOKS = 300,
  SHORT_NAP = 50000, // nanoseconds, where the transport must be asked and the steps wait;
  LONG_NAP = 1000000, // where they do not, or after LONG_LOOKS of the short ones
  LONG_LOOKS = 2000
};
static const DtTicket RECEIVE = (DtTicket)1 << 63; // marks tickets of receives

static struct {
  const DtTransport *transport;
  DtCounter *bell;
  int64_t delay; // nanoseconds
  DtReceive of[MOST];              // receive i, from 1, is at i % MOST
  _Atomic uint64_t complete[MOST]; // the last that was complete there
  DtCounter posted, done;          // how many
  _Atomic uint64_t needed;         // the steps sleep for it, or 0
  // The communication thread's own: those under way, in order.
  uint64_t taken, open[MOST];
  int nopen;
  uint64_t expected; // the transport knows of it; or 0
  int64_t looked, waited, looks;
} rx;

void dt_receive_open(const DtTransport *t, DtCounter *bell, int delay_ms) {
  rx.transport = t;
  rx.bell = bell;
  rx.delay = delay_ms * (int64_t)1000000;
}

static DtReceive *receive_at(uint64_t i) { return &rx.of[i % MOST]; }
static bool is_complete(uint64_t i) { return atomic_load(&rx.complete[i % MOST]) >= i; }

// ---- by the steps

bool dt_is_receive(DtTicket t) { return t & RECEIVE; }

static void wait_for(uint64_t i) {
  for (int k = 0; k < LOOKS; k++) {
    if (is_complete(i)) return;
    dt_pause();
  }
  int64_t since = dt_nanoseconds();
  if (dt_tracing) dt_trace_record(dt_trace_wait, true);
  atomic_store(&rx.needed, i);
  for (uint64_t seen; seen = dt_counter_get(&rx.done), !is_complete(i);)
    dt_counter_sleep(&rx.done, seen, DT_LOOK_MS);
  atomic_store(&rx.needed, 0);
  if (!receive_at(i)->op.control) dt_comm_waited(since);
  if (dt_tracing) dt_trace_record(dt_trace_wait, false);
}

void dt_receive_wait(DtTicket t) {
  uint64_t i = t & ~RECEIVE;
  if (!receive_at(i)->op.control) dt_link_wait();
  wait_for(i);
  // Where another has its place, it was waited for then.
  if (dt_counter_get(&rx.posted) < i + MOST) dt_link_follow(receive_at(i)->op.done);
}

void dt_wait_receives(DtTicket first, DtTicket last) {
  for (DtTicket t = first; t && t <= last; t++) dt_wait(t);
}

DtTicket dt_receive_post(const DtOp *op) {
  uint64_t i = dt_counter_get(&rx.posted) + 1;
  if (i > MOST) dt_receive_wait((i - MOST) | RECEIVE);
  *receive_at(i) = (DtReceive){.op = *op};
  dt_counter_set(&rx.posted, i);
  dt_counter_ring(rx.bell);
  return i | RECEIVE;
}

// ---- by the communication thread

static int sender(const DtReceive *r) { return r->op.g->rank[r->op.peer]; }

// Whether none of the first n that are left is from the same rank and short of data.
static bool is_next(const DtReceive *r, int n) {
  for (int i = 0; i < n; i++) {
    const DtReceive *before = receive_at(rx.open[i]);
    if (!before->whole && sender(before) == sender(r)) return false;
  }
  return true;
}

static void go_on(DtReceive *r, uint64_t i) {
  const DtOp *outer = dt_comm_current();
  int64_t there = r->there;
  dt_comm_at(&r->op); // for messages where ranks disagree
  r->whole = dt_linked(&r->op) ? dt_link_receive(r) : rx.transport->receive(r);
  dt_comm_at(outer);
  bool begins = r->whole || r->there != there || atomic_load(&rx.needed) == i;
  if (dt_tracing && !r->begun && begins) r->begun = dt_nanoseconds();
}

static void finish(DtReceive *r, uint64_t i) {
  if (dt_tracing && !dt_linked(&r->op)) dt_op_trace(&r->op, r->begun, true);
  atomic_store(&rx.complete[i % MOST], i);
  dt_counter_set(&rx.done, dt_counter_get(&rx.done) + 1);
}

static void take_up(void) {
  for (uint64_t posted = dt_counter_get(&rx.posted); rx.taken < posted;) {
    rx.open[rx.nopen++] = ++rx.taken;
    const DtOp *op = &receive_at(rx.taken)->op;
    if (!op->control && !dt_linked(op)) dt_device_wait(op->after);
    if (rx.delay) receive_at(rx.taken)->since = dt_nanoseconds();
  }
}

bool dt_receive_all(void) {
  bool linked = dt_link_progress();
  if (rx.taken == dt_counter_get(&rx.posted) && rx.nopen == 0) return linked;
  take_up();
  int n = rx.nopen, left = 0;
  for (int k = 0; k < n; k++) {
    uint64_t i = rx.open[k];
    DtReceive *r = receive_at(i);
    if (!r->whole && is_next(r, left)) go_on(r, i);
    if (r->whole && (!rx.delay || dt_nanoseconds() >= r->since + rx.delay)) finish(r, i);
    else rx.open[left++] = i;
  }
  rx.nopen = left;
  return left > 0 || linked;
}

static void tell(uint64_t i) {
  const DtOp *op = i ? &receive_at(i)->op : NULL;
  rx.expected = i;
  rx.waited = rx.looks = 0;
  dt_comm_at(op);
  rx.transport->expect(op);
}

// Where a rank does nothing else, messages name the receive that its steps wait for.
static void expect(void) {
  uint64_t i = atomic_load(&rx.needed);
  if (i && (is_complete(i) || i > rx.taken)) i = 0;
  if (i != rx.expected) tell(i);
}

static int64_t nap_length(bool left) {
  int64_t most = DT_LOOK_MS * (int64_t)1000000;
  if (!left) return most;
  if (!rx.transport->bell || dt_link_busy()) most = rx.expected && rx.looks++ < LONG_LOOKS ? SHORT_NAP : LONG_NAP;
  for (int k = 0; rx.delay && k < rx.nopen; k++) {
    const DtReceive *r = receive_at(rx.open[k]);
    int64_t rest = r->since + rx.delay - dt_nanoseconds();
    if (r->whole && rest < most) most = rest > 0 ? rest : 0;
  }
  return most;
}

// Time that this process was stopped does not count.
static void look(void) {
  int64_t t = dt_nanoseconds(), passed = t - rx.looked, most = 2 * DT_LOOK_MS * (int64_t)1000000;
  if (passed < DT_LOOK_MS * (int64_t)1000000) return;
  rx.looked = t;
  rx.transport->look();
  dt_link_look(dt_least(passed, most));
  if (!rx.expected) return;
  rx.waited += dt_least(passed, most);
  rx.transport->patience(receive_at(rx.expected), (double)rx.waited * 1e-9);
}

void dt_receive_rest(uint64_t rung, bool left) {
  for (int k = 0; k < LOOKS; k++) {
    if (dt_counter_get(rx.bell) != rung) return;
    dt_pause();
  }
  expect();
  dt_counter_nap(rx.bell, rung, nap_length(left));
  look();
}

void dt_receive_leave(void) {
  if (rx.expected) tell(0);
}
