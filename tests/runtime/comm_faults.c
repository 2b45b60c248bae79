// A rank that is killed, stopped, leaves or exchanges something else: all others end with 69 (or
// 70) within seconds, and each says who, what it waited in and where that is written.
#define _GNU_SOURCE
#include "support/check.h"
#include "support/worlds.h"
#include "runtime/control.h"
#include "runtime/device.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Seconds, in short sleeps of a thread: while this machine has stopped all processes none pass.
static _Atomic long ticks;
static void *tick(void *unused) {
  for (;; ticks++) sleep_ms(10);
  return unused;
}
static double now(void) { return (double)ticks * 0.01; }

// What a rank is to do at step 3.
typedef struct {
  int rank;
  int signal;   // that it sends itself; 0: none
  int status;   // or with which it leaves; -1: it does not
  bool outside; // the others compute for seconds before they wait for it
  bool large;
} Fault;

static int steps(void *argument) {
  const Fault *f = argument;
  enum { N = 300000 };
  static float x[N];
  DtNote note = {"blocks.*.mlp.fc.weight", 1, "gpt2.dt:14"}, status = {"losses", -1, "gpt2.dt:9"};
  for (int step = 1; step <= 6; step++) {
    dt_comm_step(step);
    if (step == 3 && dt_world.rank == f->rank) {
      if (f->signal && f->signal != SIGKILL && f->signal != SIGSTOP) signal(f->signal, SIG_DFL);
      if (f->signal) raise(f->signal);
      if (f->status >= 0) return f->status;
    }
    if (f->outside && step == 3) sleep_ms(5000);
    // Ranks wait for the faulty one directly in the first, and through one another in the second.
    dt_wait(dt_all_reduce(dt_group(1 << DT_AXIS_TP), DT_TYPE_F32, DT_SUM, x, x, f->large ? N : 64,
                          note));
    dt_wait(dt_all_reduce(dt_group(1 << DT_AXIS_DP), DT_TYPE_F32, DT_SUM, x, x, f->large ? N : 64,
                          note));
    dt_wait(dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_SUM, x, x, 1, status));
    dt_device_sync();
  }
  return 0;
}

static int count(const char *text, const char *part) {
  int n = 0;
  for (; (text = strstr(text, part)); text++) n++;
  return n;
}

// Runs it, and expects a status; returns what was said. `least`, `most`: seconds that it takes.
static char *expect(Fault f, int ranks, double timeout, int status, double most) {
  size_t n;
  double t = now();
  int s = in_world(ranks, 2, 1, 1, timeout, steps, &f, "said");
  t = now() - t;
  char *said = read_whole("said", &n);
  said[n] = 0;
  if (!WIFEXITED(s) || WEXITSTATUS(s) != status)
    fprintf(stderr, "status %x, expected %d: %s\n", s, status, said);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == status);
  if (t > most) fprintf(stderr, "%.1f s: %s\n", t, said);
  CHECK(t <= most);
  return said;
}

static void check_killed(int rank, bool outside, bool large) {
  char *said = expect((Fault){rank, SIGKILL, -1, outside, large}, 4, 60, DT_EXIT_PEER, 5),
       part[100];
  snprintf(part, sizeof part, "error: rank %d was lost (killed by signal 9, Killed)", rank);
  CHECK(count(said, part) == 3);
  for (int r = 0; r < 4; r++) {
    snprintf(part, sizeof part, "train: rank %d: error:", r);
    CHECK(count(said, part) == (r != rank));
  }
  CHECK(count(said, "this rank waited for nothing, and was at starting in step 3\n") ==
        3 * outside);
  if (!outside) {
    CHECK_SAYS(
        said,
        large ? "this rank waited in all_reduce of blocks.*.mlp.fc.weight, layer 1 (1200000 bytes "
                "over tp: ranks"
              : "this rank waited in all_reduce of blocks.*.mlp.fc.weight, layer 1 (256 bytes "
                "over tp: ranks");
    CHECK_SAYS(said, "), step 3, gpt2.dt:14\n");
  }
  free(said);
}

static void check_stopped(void) {
  // Its parent kills it when the others have given up.
  char *said = expect((Fault){2, SIGSTOP, -1, false, false}, 4, 1, DT_EXIT_PEER, 6);
  CHECK(count(said, "error: rank 2 has been silent for more than 1 s, as if it were stopped: it "
                    "was last seen at") == 3);
  CHECK(count(said, "this rank waited in all_reduce of ") == 3);
  free(said);
}

// Rank 1 stops rank 2 while that one sleeps for rank 1, and then comes: all seem to wait for
// another.
static int stopped_asleep(void *unused) {
  (void)unused;
  int32_t mine = getpid(), all[3], x = 0;
  DtNote note = {"pids", -1, NULL};
  dt_wait(dt_all_gather(dt_group(15), DT_TYPE_I32, &mine, all, 3, note));
  dt_device_sync();
  dt_comm_step(1);
  dt_comm_step(2);
  if (dt_world.rank == 1) {
    sleep_ms(300);
    stop_process(all[2]);
  }
  // The first is complete for the others: rank 2 had brought its part.
  for (int i = 0; i < 2; i++)
    dt_wait(dt_all_reduce(dt_group(15), DT_TYPE_I32, DT_SUM, &x, &x, 1, note));
  return 0;
}

static void check_stopped_asleep(void) {
  size_t n;
  int s = in_world(3, 1, 1, 1, 1, stopped_asleep, NULL, "said");
  char *said = read_whole("said", &n);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == DT_EXIT_PEER);
  if (count(said, "error: rank 2 has been silent for more than 1 s") != 2) fprintf(stderr, "%s", said);
  CHECK(count(said, "error: rank 2 has been silent for more than 1 s") == 2);
  free(said);
}

// In the first step, after the others have waited for some time: rank 1 is stopped before it comes.
static int stopped_late(void *unused) {
  (void)unused;
  dt_comm_step(1);
  if (dt_world.rank == 1) {
    sleep_ms(1500);
    raise(SIGSTOP);
  }
  dt_barrier(dt_group(15));
  return 0;
}

// Rank 0 waits for rank 2, that one for rank 1, which stops it and then waits for it too: no ring.
static int stopped_in_chain(void *unused) {
  (void)unused;
  const DtGroup *g = dt_group(15);
  int32_t mine = getpid(), all[3], x;
  dt_wait(dt_all_gather(g, DT_TYPE_I32, &mine, all, 3, (DtNote){"pids", -1, NULL}));
  dt_device_sync();
  dt_comm_step(1);
  if (dt_world.rank == 1) {
    sleep_ms(1500);
    stop_process(all[2]);
  }
  int from = dt_world.rank == 2 ? 1 : 2;
  dt_wait(dt_recv(g, from, DT_TYPE_I32, &x, 1, (DtNote){"x", -1, NULL}));
  return 0;
}

// Who was stopped is named, not who is late or waits, though others have waited for longer than the
// rank has been silent.
static void check_stopped_in_first_step(Body *body, int rank) {
  size_t n;
  char part[80];
  int s = in_world(3, 1, 1, 1, 0.5, body, NULL, "said");
  char *said = read_whole("said", &n);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == DT_EXIT_PEER);
  snprintf(part, sizeof part, "error: rank %d has been silent for more than 3 s", rank);
  int named = count(said, part);
  if (named != 2) fprintf(stderr, "%s", said);
  CHECK(named == 2);
  free(said);
}

// Rank 1 runs, and does not come.
static int never_comes(void *unused) {
  (void)unused;
  float x = 1, y;
  dt_comm_step(1);
  dt_comm_step(2);
  if (dt_world.rank == 1) sleep_ms(20000);
  dt_wait(dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_SUM, &x, &y, 1, (DtNote){"sum", -1, "m.dt:4"}));
  dt_device_sync();
  return 0;
}

static void check_late(void) {
  size_t n;
  int s = in_world(3, 1, 1, 1, 0.5, never_comes, NULL, "said");
  char *said = read_whole("said", &n);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == DT_EXIT_PEER);
  int named = count(said, "error: rank 1 runs, but has not reached the operation for very long");
  if (named != 2) fprintf(stderr, "%s", said);
  CHECK(named == 2);
  CHECK(count(said, "this rank waited in all_reduce of sum (4 bytes over") == 2);
  free(said);
}

static void check_leaves(void) {
  char *said = expect((Fault){1, 0, 74, false, false}, 4, 60, 74, 5);
  CHECK(count(said,
              "rank 1 has left (its process ended with status 74) while others still need it") ==
        3);
  free(said);
  said = expect((Fault){1, SIGSEGV, -1, false, false}, 2, 60, DT_EXIT_PEER, 5);
  CHECK_SAYS(said, "rank 1 was lost (killed by signal 11, Segmentation fault)");
  free(said);
}

static int disagree(void *unused) {
  (void)unused;
  float x[8] = {0};
  DtNote one = {"a", 0, "m.dt:1"}, two = {"b", 0, "m.dt:2"};
  bool odd = dt_world.rank == 2;
  dt_wait(dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_SUM, x, x, odd ? 7 : 8, odd ? two : one));
  return 0;
}

static void check_mismatch(void) {
  size_t n;
  int s = in_world(3, 1, 1, 1, 60, disagree, NULL, "said");
  char *said = read_whole("said", &n);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == DT_EXIT_BUG);
  CHECK_SAYS(said, "ranks exchange different operations: ");
  free(said);
}

// Each waits for what the next would send after it has received.
static int ring(void *unused) {
  (void)unused;
  float x[8] = {0};
  const DtGroup *g = dt_group(15);
  DtNote note = {"ring", 0, "m.dt:3"};
  dt_wait(dt_recv(g, (g->me + 1) % g->n, DT_TYPE_F32, x, 8, note));
  dt_wait(dt_send(g, (g->me + g->n - 1) % g->n, DT_TYPE_F32, x, 8, note));
  return 0;
}

static void check_ring(void) {
  size_t n;
  int s = in_world(3, 1, 1, 1, 0.3, ring, NULL, "said");
  char *said = read_whole("said", &n);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == DT_EXIT_PEER);
  if (count(said, "ranks wait for one another in a ring") != 3) fprintf(stderr, "%s", said);
  CHECK(count(said, "ranks wait for one another in a ring") == 3);
  free(said);
}

// Rank 1 is stopped when nobody needs it any more.
static int stopped_at_the_end(void *unused) {
  (void)unused;
  dt_comm_step(1);
  dt_comm_step(2);
  dt_barrier(dt_group(15));
  if (dt_world.rank == 1) raise(SIGSTOP);
  return 0;
}

static void check_stopped_at_the_end(void) {
  size_t n;
  int s = in_world(3, 1, 1, 1, 1, stopped_at_the_end, NULL, "said");
  char *said = read_whole("said", &n);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == DT_EXIT_PEER);
  CHECK_SAYS(said, "rank 1 has been silent for more than 1 s, and others have ended: it is killed");
  free(said);
}

// ---- Without faults

// Rank 1 stops itself for a while that is less than the timeout; then all go on.
static int pauses(void *unused) {
  (void)unused;
  float x = 1, y;
  DtNote note = {"sum", -1, NULL};
  for (int step = 1; step <= 3; step++) {
    dt_comm_step(step);
    if (step == 2 && dt_world.rank == 1) {
      pid_t me = getpid();
      if (fork() == 0) {
        sleep_ms(500);
        kill(me, SIGCONT);
        _exit(0);
      }
      raise(SIGSTOP);
    }
    dt_wait(dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_SUM, &x, &y, 1, note));
    dt_device_sync();
    if (y != 2) return 1;
  }
  return 0;
}

// A rank that computes for longer than the timeout is not silent.
static int computes(void *unused) {
  (void)unused;
  float x = 1, y;
  DtNote note = {"sum", -1, NULL};
  for (int step = 1; step <= 3; step++) {
    dt_comm_step(step);
    if (step == 2 && dt_world.rank == 0) sleep_ms(1500);
    dt_wait(dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_SUM, &x, &y, 1, note));
    dt_device_sync();
  }
  return 0;
}

// Ranks may end at different times once they need nothing of one another.
static int ends_early(void *unused) {
  (void)unused;
  dt_barrier(dt_group(15));
  if (dt_world.rank == 0) sleep_ms(1000);
  return 0;
}

// A stop asked of the parent, which the test that waits for the parent sends, reaches all ranks.
static int stops(void *unused) {
  (void)unused;
  if (dt_world.rank == 0) kill(getppid(), SIGTERM);
  for (int i = 0; i < 1000; i++) {
    int stop = dt_comm_stop_request();
    if (dt_agree(stop ? DT_EXIT_STOPPED : 0)) {
      // A second request within two seconds is the same.
      if (dt_world.rank == 1) kill(getppid(), SIGTERM);
      sleep_ms(100);
      return DT_EXIT_STOPPED;
    }
    sleep_ms(5);
  }
  return 1;
}

// Ranks die with their parent.
static int orphans(void *file) {
  dt_barrier(dt_group(15));
  if (dt_world.rank == 0) {
    sleep_ms(300);
    kill(getppid(), SIGKILL);
  }
  sleep_ms(2000);
  write_file(file, "x", 1);
  return 0;
}

int main(void) {
  pthread_t clock;
  check_folder();
  CHECK(pthread_create(&clock, NULL, tick, NULL) == 0);
  CHECK(in_world(2, 1, 1, 1, 30, pauses, NULL, NULL) == 0);
  CHECK(in_world(2, 1, 1, 1, 1, computes, NULL, NULL) == 0);
  CHECK(in_world(3, 1, 1, 1, 30, ends_early, NULL, NULL) == 0);
  int s = in_world(3, 1, 1, 1, 30, stops, NULL, NULL);
  CHECK(WIFEXITED(s) && WEXITSTATUS(s) == DT_EXIT_STOPPED);
  s = in_world(3, 1, 1, 1, 30, orphans, "alive", NULL);
  CHECK(WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL);
  for (int rank = 0; rank < 4; rank++) check_killed(rank, rank == 1, rank >= 2);
  check_leaves();
  check_late();
  check_mismatch();
  check_ring();
  check_stopped();
  check_stopped_asleep();
  check_stopped_in_first_step(stopped_late, 1);
  check_stopped_in_first_step(stopped_in_chain, 2);
  check_stopped_at_the_end();
  sleep_ms(500);
  CHECK(access("alive", F_OK) != 0);
  return check_done();
}
