// Operations on arrays of the device that devices carry out (runtime/device/links.h). The host's transport stays the one by
// which ranks meet: it checks that members post the same operation, and finds ranks that are lost or late. It carries the
// id of a link with the first operation of a group, and with the first message from one rank to another.
//
// The host waits for the operation to be enqueued, not for the device. Those that are enqueued are watched until they end.
#include "runtime/device/links.h"

#include "runtime/base/trace.h"
#include "runtime/control.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  MOST = 4096,       // under way
  SPINS = 200,       // looks before the thread sleeps between them
  NAP = 50000,       // nanoseconds
  GRACE_MS = 1000,   // in which a peer may be found lost after the devices' links failed
  ABORT_SECONDS = 10
};

typedef struct Under {
  DtOp op;
  int64_t since, waited; // nanoseconds: when it began there, for the profile; for how long it has been looked at since
  bool begun;
} Under;

static struct {
  _Atomic(const DtLinks *) by; // NULL: the host's transport carries out all
  const DtTransport *host;
  DtLink *group[DT_GROUPS];
  const DtGroup *of[DT_GROUPS]; // that has the link
  uint64_t met[DT_GROUPS]; // operations of the group
  DtLink **to, **from;     // by rank
  Under *under;
  int n, receiving; // receives of which the token has come
  DtOp shown;       // that this rank is at, where it does nothing else
  bool shows;
  int64_t looked; // nanoseconds
  int spins;
} links;

bool dt_linked(const DtOp *op) { return links.by && !op->control; }
DtMark dt_link_point(void) { return links.by->point(); }
const char *dt_comm_links(void) { return links.by ? links.by->name() : NULL; }

void dt_link_wait(void) {
  if (links.by) links.by->wait();
}

void dt_link_follow(DtMark mark) {
  if (mark) links.by->follow(mark);
}

int dt_comm_link(bool exact, DtError *e) {
  const DtLinks *by = dt_device_links();
  if (!by || !dt_comm_transport()) return 0;
  size_t n = (size_t)dt_world.size;
  links.host = dt_comm_transport();
  links.to = calloc(n, sizeof *links.to);
  links.from = calloc(n, sizeof *links.from);
  links.under = calloc(MOST, sizeof *links.under);
  if (!links.to || !links.from || !links.under) dt_fail(e, DT_EXIT_OS, "no memory to link %zu ranks", n);
  else by->open(exact, e);
  if (!dt_agree(e->status)) links.by = by;
  return e->status;
}

// ---- those under way

bool dt_link_busy(void) { return links.n > 0 || links.receiving > 0; }

static void add(const DtOp *op) {
  links.under[links.n++] = (Under){.op = *op};
}

static void show(const DtOp *op) {
  bool other = op && (!links.shows || op->done != links.shown.done);
  if (links.shows && dt_comm_current() == &links.shown && (!op || other)) dt_comm_at(NULL);
  links.shows = op != NULL;
  if (op) links.shown = *op;
  if (op && !dt_comm_current()) dt_comm_at(&links.shown);
}

bool dt_link_progress(void) {
  int left = 0;
  for (int i = 0; i < links.n; i++) {
    Under *u = &links.under[i];
    DtLinkState s = links.by->state(u->op.done);
    if (!u->begun && s != DT_LINK_WAITS && dt_tracing) u->since = dt_nanoseconds();
    u->begun |= s != DT_LINK_WAITS;
    if (s != DT_LINK_ENDED) {
      if (left++ != i) links.under[left - 1] = *u;
    } else if (u->since) {
      dt_op_trace(&u->op, u->since, u->op.kind == DT_OP_RECV);
    }
  }
  links.n = left;
  if (!left && links.shows) {
    show(NULL);
    links.host->watch(NULL, false, 0);
  }
  return left > 0;
}

void dt_link_check(void) {
  const char *why = links.by ? links.by->failed() : NULL;
  if (!why) return;
  if (links.n && !dt_comm_current()) show(&links.under[0].op);
  // A peer that was lost is named as ever.
  for (int ms = 0; ms < GRACE_MS; ms += DT_LOOK_MS) {
    links.host->look();
    nanosleep(&(struct timespec){0, DT_LOOK_MS * 1000000L}, NULL);
  }
  links.host->look();
  dt_comm_end(DT_EXIT_PEER, "%s reports an error: %s", links.by->name(), why);
}

void dt_link_look(int64_t nanoseconds) {
  if (!links.by) return;
  dt_link_check();
  if (!links.n) return;
  for (int i = 0; i < links.n; i++) links.under[i].waited += nanoseconds;
  const Under *u = &links.under[0];
  for (int i = 0; i < links.n && !u->begun; i++)
    if (links.under[i].begun) u = &links.under[i];
  show(&u->op);
  links.host->watch(&u->op, u->begun, (double)u->waited * 1e-9);
}

// Something is waited for that other ranks take part in.
static void idle(void) {
  if (dt_comm_leaving()) pthread_exit(NULL);
  int64_t t = dt_nanoseconds(), most = 2 * DT_LOOK_MS * (int64_t)1000000, passed = t - links.looked;
  dt_receive_all();
  if (++links.spins > SPINS) nanosleep(&(struct timespec){0, NAP}, NULL);
  if (passed < DT_LOOK_MS * (int64_t)1000000) return;
  links.looked = t;
  links.host->look();
  dt_link_look(dt_least(passed, most));
  const DtOp *op = dt_comm_current();
  if (op && op->control) return;
  static const DtOp *waits;
  static int64_t waited;
  waited = op == waits ? waited + dt_least(passed, most) : 0;
  waits = op;
  if (op) links.host->watch(op, true, (double)waited * 1e-9);
}

static void begin_waiting(void) {
  links.spins = 0;
  links.looked = dt_nanoseconds();
}

double dt_link_stalled(void) { return links.by ? links.by->stalled() : 0; }

// ---- enqueueing

static DtLink *join(DtLink **at, const void *id, int n, int me, bool pair) {
  if (!*at) *at = links.by->join(id, n, me, pair);
  return *at;
}

static DtLink *joined(DtLink *l) {
  while (!links.by->joined(l)) idle();
  return l;
}

// Groups over other axes may have the same members; all of these find the same link then.
static DtLink *same_members(const DtGroup *g) {
  for (int i = 0; i < DT_GROUPS; i++)
    if (links.of[i] && links.of[i]->n == g->n && memcmp(links.of[i]->rank, g->rank, (size_t)g->n * sizeof *g->rank) == 0)
      return links.group[i];
  return NULL;
}

static DtLink *link_of(const DtGroup *g) {
  int32_t id[DT_LINK_ID / 4];
  if (!links.group[g->id]) links.group[g->id] = same_members(g);
  if (links.group[g->id]) return links.group[g->id];
  links.of[g->id] = g;
  if (g->me == 0) links.by->make_id(id);
  links.host->run(&(DtOp){.kind = DT_OP_BROADCAST, .type = DT_TYPE_I32, .g = g, .in = id, .out = id, .count = DT_LINK_ID / 4,
                          .micro = -1, .note = {"the link of a group", -1, NULL}, .control = true});
  return joined(join(&links.group[g->id], id, g->n, g->me, false));
}

// Begins with whether there is an id.
static DtLink *link_to(DtOp *op) {
  char token[DT_TOKEN] = {0};
  int to = op->g->rank[op->peer];
  bool first = !links.to[to];
  if (first) links.by->make_id(token + 4);
  token[0] = first;
  op->token = token;
  links.host->run(op);
  return joined(join(&links.to[to], token + 4, 2, 0, true));
}

void dt_link_run(DtOp *op) {
  bool sends = op->kind == DT_OP_SEND;
  op->apart = true;
  begin_waiting();
  while (links.n + links.receiving >= MOST) idle();
  if (!sends) op->number = links.met[op->g->id]++;
  if (!sends) links.host->run(op);
  DtLink *l = sends ? link_to(op) : link_of(op->g);
  begin_waiting();
  op->done = links.by->run(l, op, idle);
  add(op);
  links.host->watch(NULL, false, 0);
}

enum { TOKEN, JOINING, ENQUEUED };

bool dt_link_receive(DtReceive *r) {
  int from = r->op.g->rank[r->op.peer];
  r->op.apart = true;
  r->op.token = r->token;
  if (r->stage == TOKEN) {
    if (links.n + links.receiving + 1 >= MOST || !links.host->receive(r)) return false;
    if (r->token[0]) join(&links.from[from], r->token + 4, 2, 1, true);
    links.receiving++;
    r->stage = JOINING;
  }
  if (r->stage == JOINING) {
    if (!links.by->joined(links.from[from])) return false;
    links.by->receive(links.from[from], &r->op);
    r->stage = ENQUEUED;
  }
  r->op.done = links.by->received(links.from[from]);
  if (!r->op.done) return false;
  links.receiving--;
  add(&r->op);
  return true;
}

// ---- the end

static void *abort_all(void *done) {
  links.by->abort();
  dt_counter_set(done, 1);
  return NULL;
}

// The library may wait for what does not come.
void dt_link_abort(void) {
  static DtCounter done;
  pthread_t thread;
  if (!links.by || pthread_create(&thread, NULL, abort_all, &done)) return;
  dt_counter_sleep(&done, 0, ABORT_SECONDS * 1000);
}

void dt_link_close(void) {
  begin_waiting();
  while (dt_link_progress()) idle();
  links.by->close(idle);
  links.by = NULL;
}
