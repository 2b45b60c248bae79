// Waiting for ranks on this machine, and finding the rank at fault when a wait lasts long.
//
// A rank is lost when its process ends: its line hangs up, unless it left first. It is silent when
// its beat stands still, as that of a stopped process does. It is late when it beats but does not
// come. Whoever finds out first writes the verdict for all, so that all name the same rank: one
// that waits for a rank that waits for the stopped one follows the chain of waiting ranks.
//
// Time is counted in sleeps of this process, none longer than a few hundred milliseconds, not by
// the clock: when all ranks are stopped and continued together none of them has been silent.
#define _GNU_SOURCE
#include "runtime/comm/shm.h"
#include "runtime/base/signals.h"
#include "runtime/base/trace.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  LEAST_LOOKS = 16,
  MOST_LOOKS = 2000,
  DOOMED_MS = 2000,
  STILL_MS = 3 * DT_LOOK_MS, // a beat that stands still for so long is not one that runs well
  RECEIVING_MS = 1 // between two looks at receives, in an operation that waits
};

// Looks at a counter before sleeping: more while that succeeds. Where ranks share processors the
// one that is waited for may need this one's.
static int looks = LEAST_LOOKS, most_looks;
static int64_t doomed; // nanoseconds: when a verdict met this rank outside operations, or 0

static _Noreturn void tell(int verdict);

void dt_shm_publish(const DtOp *op) {
  DtDoing *d = &dt_shm.rank[dt_shm.me].doing;
  dt_shm_beat();
  if (op && doomed) tell(atomic_load(&dt_shm.head->verdict));
  dt_doing_operation(d, op);
}

// How its process ended, where the parent knows: it does so at once if it is not busy.
static void how_ended(char *text, size_t n, int rank) {
  int ended = 0;
  for (int i = 0; i < 100 && dt_shm.head->has_parent; i++) {
    if ((ended = atomic_load(&dt_shm.rank[rank].ended))) break;
    nanosleep(&(struct timespec){0, 10000000}, NULL);
  }
  text[0] = 0;
  int status = ended - 1;
  if (ended && WIFSIGNALED(status))
    snprintf(text, n, " (killed by signal %d, %s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else if (ended && WIFEXITED(status))
    snprintf(text, n, " (its process ended with status %d)", WEXITSTATUS(status));
}

static _Noreturn void tell(int verdict) {
  int rank = (verdict & 0xffff) - 1;
  if (verdict >> 16 == DT_STOPPED)
    dt_comm_end(128 + rank + 1, "stopped by %s before all ranks had started",
                dt_signal_name(rank + 1));
  char seen[400], ended[100];
  dt_doing_text(seen, sizeof seen, &dt_shm.rank[rank].doing);
  if (rank == dt_shm.me && verdict >> 16 != DT_CYCLE)
    dt_comm_end(DT_EXIT_PEER,
                "the other ranks waited too long for this one, and have ended");
  switch (verdict >> 16) {
  case DT_LOST:
    how_ended(ended, sizeof ended, rank);
    dt_comm_end(DT_EXIT_PEER, "rank %d was lost%s: %s", rank, ended, seen);
  case DT_GONE:
    how_ended(ended, sizeof ended, rank);
    dt_comm_end(DT_EXIT_PEER, "rank %d has left%s while others still need it", rank, ended);
  case DT_SILENT:
    dt_comm_end(DT_EXIT_PEER,
                "rank %d has been silent for more than %.4g s, as if it were stopped: %s", rank,
                dt_comm_limit(), seen);
  case DT_LATE:
    dt_comm_end(DT_EXIT_PEER, "rank %d runs, but has not reached the operation for very long: %s",
                rank, seen);
  default:
    dt_comm_end(DT_EXIT_PEER, "ranks wait for one another in a ring, rank %d among them: %s", rank,
                seen);
  }
}

static void judge(DtVerdictKind kind, int rank) {
  int none = 0, mine = (int)kind << 16 | (rank + 1);
  atomic_compare_exchange_strong(&dt_shm.head->verdict, &none, mine);
}

_Noreturn static void end(DtVerdictKind kind, int rank) {
  judge(kind, rank);
  tell(atomic_load(&dt_shm.head->verdict));
}

// Whose process has ended without leaving first.
static void look_at_lines(void) {
  static struct pollfd p[DT_LOCAL_RANKS];
  for (int r = 0; r < dt_shm.size; r++) p[r] = (struct pollfd){.fd = dt_shm.line[r]};
  if (poll(p, (nfds_t)dt_shm.size, 0) <= 0) return;
  for (int r = 0; r < dt_shm.size; r++) {
    if (!(p[r].revents & (POLLHUP | POLLERR))) continue;
    // One that ended because of a verdict has written that before.
    if (atomic_load(&dt_shm.rank[r].state) != DT_RANK_LEFT) judge(DT_LOST, r);
    close(dt_shm.line[r]);
    dt_shm.line[r] = -1; // poll passes it over
  }
}

// How long each rank's beat has stood still, by this rank's looks.
static struct {
  int64_t at; // nanoseconds, of the last look
  unsigned beat[DT_LOCAL_RANKS];
  double still[DT_LOCAL_RANKS]; // seconds
} pulse;

static void feel_pulse(void) {
  int64_t t = dt_nanoseconds(), most = 2 * DT_LOOK_MS * (int64_t)1000000;
  double passed = pulse.at ? (double)dt_least(t - pulse.at, most) * 1e-9 : 0;
  pulse.at = t;
  for (int r = 0; r < dt_shm.size; r++) {
    unsigned beat = atomic_load(&dt_shm.rank[r].beat);
    pulse.still[r] = beat == pulse.beat[r] ? pulse.still[r] + passed : 0;
    pulse.beat[r] = beat;
  }
}

// A rank that has come to rank 0, which still waits for others, and is asked to stop: rank 0 ends
// the start for all.
static void pass_on_stop(void) {
  int none = 0, number = dt_stop_signal();
  if (number && atomic_load(&dt_shm.rank[0].state) == DT_RANK_STARTING)
    atomic_compare_exchange_strong(&dt_shm.head->stop, &none, number);
}

void dt_shm_look(void) {
  DtDoing *d = &dt_shm.rank[dt_shm.me].doing;
  dt_shm_beat();
  dt_doing_activity(d);
  look_at_lines();
  feel_pulse();
  pass_on_stop();
  int verdict = atomic_load(&dt_shm.head->verdict);
  if (!verdict) return;
  // Outside operations this rank goes on until it would enter the next one, which it then reports; but
  // not for long.
  int64_t t = dt_nanoseconds();
  if (!doomed) doomed = t;
  if (dt_comm_current() || t - doomed > DOOMED_MS * (int64_t)1000000) tell(verdict);
}

// Whether any rank may be stopped: one whose beat stands still, which shows when it has for long
// enough. Until then it looks like a rank that is late, and so do those that wait for it.
static bool any_still(void) {
  bool any = false;
  for (int r = 0; r < dt_shm.size; r++) {
    if (r == dt_shm.me || atomic_load(&dt_shm.rank[r].state) == DT_RANK_LEFT) continue;
    if (pulse.still[r] > dt_comm_limit()) end(DT_SILENT, r);
    any |= pulse.still[r] > STILL_MS * 1e-3;
  }
  return any;
}

// This rank waits for `rank`, and has for `waited` seconds. A stopped rank may itself have slept
// for another when it was stopped: every rank of the chain is looked at, not the last alone.
static void be_patient(int rank, double waited) {
  int at = rank, next = rank;
  for (int i = 0; i <= dt_shm.size && next >= 0 && next < dt_shm.size; i++) {
    at = next;
    if (at != dt_shm.me && pulse.still[at] > dt_comm_limit()) end(DT_SILENT, at);
    next = atomic_load(&dt_shm.rank[at].waits_for) - 1;
  }
  const DtDoing *d = &dt_shm.rank[at].doing;
  double blamed = dt_blamed(waited, next < 0 && d->kind < 0 && d->files);
  if (blamed > dt_comm_late_limit() && !any_still())
    end(next < 0 ? DT_LATE : DT_CYCLE, next < 0 ? at : rank);
}

static int looks_worth_it(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return LEAST_LOOKS;
  return CPU_COUNT(&set) < dt_shm.size ? LEAST_LOOKS : MOST_LOOKS;
}

static bool soon(DtCounter *c, uint64_t least) {
  if (!most_looks) looks = most_looks = looks_worth_it();
  for (int i = 0; i < looks; i++) {
    if (dt_counter_get(c) >= least) {
      looks = (int)dt_least(most_looks, looks * 2);
      return true;
    }
    dt_pause();
  }
  looks = looks / 2 < LEAST_LOOKS ? LEAST_LOOKS : looks / 2;
  return false;
}

// `rings`: whoever brings the counter on rings this rank's bell, too.
static void await(DtCounter *c, uint64_t least, int rank, bool rings) {
  if (dt_counter_get(c) >= least || soon(c, least)) return;
  DtCounter *bell = &dt_shm.rank[dt_shm.me].bell;
  DtShmRank *self = &dt_shm.rank[dt_shm.me];
  int64_t since = dt_nanoseconds(), slept = 0, waited = 0; // nanoseconds
  atomic_store(&self->waits_for, rank + 1);
  for (uint64_t seen; (seen = dt_counter_get(c)) < least;) {
    if (dt_comm_leaving()) pthread_exit(NULL);
    uint64_t rung = dt_counter_get(bell);
    bool receives = dt_receive_all();
    if (!receives) dt_counter_sleep(c, seen, DT_LOOK_MS);
    else if (!rings) dt_counter_sleep(c, seen, RECEIVING_MS);
    else if (dt_counter_get(c) < least) dt_counter_sleep(bell, rung, DT_LOOK_MS);
    int64_t t = dt_nanoseconds();
    slept += dt_least(t - since, 2 * DT_LOOK_MS * (int64_t)1000000);
    since = t;
    if (slept < DT_LOOK_MS * (int64_t)1000000) continue;
    waited += slept;
    slept = 0;
    dt_shm_look();
    // Data that a rank staged before it left stays; more does not come.
    if (atomic_load(&dt_shm.rank[rank].state) == DT_RANK_LEFT && dt_counter_get(c) < least)
      end(DT_GONE, rank);
    be_patient(rank, (double)waited * 1e-9);
  }
  atomic_store(&self->waits_for, 0);
}

void dt_shm_await(DtCounter *c, uint64_t least, int rank) { await(c, least, rank, false); }

void dt_shm_await_receiver(DtCounter *c, uint64_t least, int rank) { await(c, least, rank, true); }

void dt_shm_expect(const DtOp *op) {
  dt_shm_publish(op);
  atomic_store(&dt_shm.rank[dt_shm.me].waits_for, op ? op->g->rank[op->peer] + 1 : 0);
}

// Data that a rank staged before it left stays; more does not come.
void dt_shm_patience(const DtReceive *r, double seconds) {
  int from = r->op.g->rank[r->op.peer];
  bool left = atomic_load(&dt_shm.rank[from].state) == DT_RANK_LEFT;
  if (left && !dt_shm_come(from)) end(DT_GONE, from);
  be_patient(from, seconds);
}

static _Noreturn void end_on_device(void) {
  dt_comm_end(DT_EXIT_PEER, "all ranks have come to an operation that does not end on their devices");
}

// The member that has not come to it: that has not posted it, or whose device has not begun it; -1: all have.
static int absent(const DtOp *op) {
  for (int pass = 0; pass < 2; pass++)
    for (int m = 0; m < op->g->n; m++) {
      DtShmArrive *a = dt_shm_arrive(op->g->rank[m], op->g->id);
      if ((pass ? atomic_load(&a->begun) : dt_counter_get(&a->met)) <= op->number) return op->g->rank[m];
    }
  return -1;
}

static void watch_group(const DtOp *op, bool begun, double seconds) {
  DtShmArrive *mine = dt_shm_arrive(dt_shm.me, op->g->id);
  dt_shm_compare(op->g);
  if (begun && atomic_load(&mine->begun) <= op->number) atomic_store(&mine->begun, op->number + 1);
  for (int m = 0; m < op->g->n; m++) {
    int r = op->g->rank[m];
    if (r != dt_shm.me && pulse.still[r] > dt_comm_limit()) end(DT_SILENT, r);
    if (atomic_load(&dt_shm.rank[r].state) == DT_RANK_LEFT && absent(op) == r) end(DT_GONE, r);
  }
  int rank = absent(op);
  atomic_store(&dt_shm.rank[dt_shm.me].waits_for, rank < 0 || rank == dt_shm.me ? 0 : rank + 1);
  if (!begun || rank == dt_shm.me) return; // what comes before it may take long
  if (rank >= 0) be_patient(rank, seconds);
  else if (seconds > dt_comm_late_limit()) end_on_device();
}

void dt_shm_watch(const DtOp *op, bool begun, double seconds) {
  dt_shm_publish(op);
  if (!op) atomic_store(&dt_shm.rank[dt_shm.me].waits_for, 0);
  if (!op) return;
  bool pair = op->kind == DT_OP_SEND || op->kind == DT_OP_RECV;
  int peer = op->g->rank[op->peer];
  if (!pair) watch_group(op, begun, seconds);
  else if (pulse.still[peer] > dt_comm_limit()) end(DT_SILENT, peer);
  else if (begun && seconds > dt_comm_late_limit()) be_patient(peer, seconds);
}
