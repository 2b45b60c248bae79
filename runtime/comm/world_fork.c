// `--ranks N`: the parent starts the ranks, looks after them, and ends as they do.
//
// Ranks are in the parent's process group. A signal from a terminal reaches all of them by itself;
// one that is sent to the parent alone is put where ranks see it (dt_comm_stop_request), not sent
// on, so that no rank gets it twice. They die with the parent.
#define _GNU_SOURCE
#include "runtime/comm/shm.h"
#include "runtime/base/signals.h"
#include "runtime/base/trace.h"
#include "runtime/comm/world_start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  AGAIN_SECONDS = 2,  // a second signal sooner than this is the same request
  LOST_SECONDS = 10,  // to end in, once a rank was lost; then they are killed
  FAILED_SECONDS = 60 // once a rank has ended with an error, which the others may have as well
};

static struct {
  int size, left;
  pid_t pid[DT_LOCAL_RANKS];
  int status[DT_LOCAL_RANKS]; // as waitpid gives it
  double ran;                 // seconds, but those for which this process was stopped
  double deadline;            // by `ran`, when those that are left are killed; 0: never
  double stopped_at;
  double timeout, silent[DT_LOCAL_RANKS]; // seconds
  unsigned beat[DT_LOCAL_RANKS];
} parent;

static double seconds(void) { return (double)dt_nanoseconds() * 1e-9; }

static void kill_all(int number) {
  for (int r = 0; r < parent.size; r++)
    if (parent.pid[r]) kill(parent.pid[r], number);
}

static bool lost(int status) { return WIFSIGNALED(status) || WEXITSTATUS(status) == DT_EXIT_PEER; }

static void collect(void) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (int r = 0; r < parent.size; r++) {
      if (parent.pid[r] != pid) continue;
      parent.pid[r] = 0;
      parent.status[r] = status;
      parent.left--;
      atomic_store(&dt_shm.rank[r].ended, status + 1);
      double end = parent.ran + (lost(status) ? LOST_SECONDS : FAILED_SECONDS);
      if (status && (!parent.deadline || end < parent.deadline)) parent.deadline = end;
    }
  }
}

// The status of the whole. A rank's error is more specific than the errors of others that lost it; and a run in
// which a rank was killed is neither done nor stopped.
static int verdict(void) {
  int own = 0, agreed = WIFEXITED(parent.status[0]) ? WEXITSTATUS(parent.status[0]) : 0;
  bool any_lost = false, all = true;
  for (int r = 0; r < parent.size; r++) {
    int s = parent.status[r];
    any_lost |= lost(s);
    all &= WIFEXITED(s) && WEXITSTATUS(s) == agreed;
    if (lost(s) || WEXITSTATUS(s) == DT_EXIT_STOPPED || !WEXITSTATUS(s)) continue;
    if (!own || WEXITSTATUS(s) < own) own = WEXITSTATUS(s);
  }
  if (all) return agreed;
  return own ? own : any_lost ? DT_EXIT_PEER : DT_EXIT_STOPPED;
}

static void tell_killed(void) {
  for (int r = 0; r < parent.size; r++)
    if (WIFSIGNALED(parent.status[r]))
      dt_note("rank %d was ended by signal %d, %s", r, WTERMSIG(parent.status[r]),
              strsignal(WTERMSIG(parent.status[r])));
}

static void on_stop(int number) {
  double t = seconds();
  int none = 0;
  if (atomic_compare_exchange_strong(&dt_shm.head->stop, &none, number)) {
    parent.stopped_at = t;
  } else if (t - parent.stopped_at >= AGAIN_SECONDS) {
    kill_all(SIGKILL);
    signal(number, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
  }
}

// Ranks find a silent rank while they wait for it; those that have ended do not.
// `passed`: seconds since this was called, or less: time that all were stopped does not count.
static void kill_silent(double passed) {
  for (int r = 0; r < parent.size; r++) {
    DtShmRank *s = &dt_shm.rank[r];
    unsigned beat = atomic_load(&s->beat);
    bool still = beat == parent.beat[r] && atomic_load(&s->state) == DT_RANK_RUNNING;
    parent.beat[r] = beat;
    parent.silent[r] = still && parent.pid[r] && parent.left < parent.size
                           ? parent.silent[r] + passed
                           : 0;
    if (parent.silent[r] <= parent.timeout) continue;
    dt_note("rank %d has been silent for more than %.4g s, and others have ended: it is killed", r,
            parent.timeout);
    kill(parent.pid[r], SIGKILL);
    parent.silent[r] = 0;
  }
}

static _Noreturn void look_after(const sigset_t *handled) {
  double before = seconds(), looked = before;
  while (parent.left > 0) {
    struct timespec slice = {0, 500000000};
    int number = sigtimedwait(handled, NULL, &slice);
    double t = seconds();
    parent.ran += t - looked < 1 ? t - looked : 1;
    looked = t;
    if (t - before >= 0.5) kill_silent(t - before < 1 ? t - before : 1);
    if (t - before >= 0.5) before = t;
    if (number == SIGTERM || number == SIGINT || number == SIGHUP) on_stop(number);
    if (number == SIGUSR2) kill_all(SIGUSR2); // only reports
    collect();
    // A stopped rank, which the others have given up and left, cannot end by itself.
    int verdict = atomic_load(&dt_shm.head->verdict);
    if (verdict >> 16 == DT_SILENT && parent.left == 1 && parent.pid[(verdict & 0xffff) - 1])
      parent.deadline = parent.ran;
    if (parent.deadline && parent.left && parent.ran >= parent.deadline) {
      parent.deadline = 0;
      kill_all(SIGKILL);
    }
  }
  tell_killed();
  _exit(verdict());
}

// In a new rank: of the pipes only what it needs, and death with the parent.
static void become(int rank, int (*pipes)[2], pid_t parent_pid, const sigset_t *before) {
  for (int r = 0; r < parent.size; r++) {
    dt_shm.line[r] = pipes[r][0];
    if (r != rank) close(pipes[r][1]);
  }
  close(dt_shm.line[rank]);
  dt_shm.line[rank] = -1;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent_pid) _exit(DT_EXIT_PEER);
  sigprocmask(SIG_SETMASK, before, NULL);
  dt_shm_join(rank);
}

static int make_pipes(int (*pipes)[2], int size, DtError *e) {
  for (int r = 0; r < size; r++)
    if (pipe2(pipes[r], O_CLOEXEC) != 0)
      return dt_fail(e, DT_EXIT_OS, "cannot make a pipe for rank %d: %s", r, strerror(errno));
  return 0;
}

int dt_world_fork(int size, double timeout, int *rank, DtError *e) {
  static int pipes[DT_LOCAL_RANKS][2];
  if (size > DT_LOCAL_RANKS)
    return dt_fail(e, DT_EXIT_MISFIT, "--ranks %d: at most %d ranks share one machine", size,
                   DT_LOCAL_RANKS);
  int fd = dt_shm_make(size, e);
  if (fd < 0 || dt_shm_map(fd, size, e) || make_pipes(pipes, size, e)) return e->status;
  close(fd);
  dt_shm.head->has_parent = 1;
  parent.size = parent.left = size;
  parent.timeout = timeout;
  sigset_t handled, before;
  sigemptyset(&handled);
  const int number[] = {SIGCHLD, SIGTERM, SIGINT, SIGUSR2};
  for (size_t i = 0; i < sizeof number / sizeof *number; i++) sigaddset(&handled, number[i]);
  if (!dt_hangup_ignored()) sigaddset(&handled, SIGHUP);
  sigprocmask(SIG_BLOCK, &handled, &before);
  fflush(NULL); // or each rank would write it again
  pid_t me = getpid();
  for (int r = 0; r < size; r++) {
    pid_t pid = fork();
    if (pid == 0) {
      become(r, pipes, me, &before);
      *rank = r;
      return 0;
    }
    if (pid < 0) {
      int error = errno;
      kill_all(SIGKILL);
      return dt_fail(e, DT_EXIT_OS, "cannot start rank %d: %s", r, strerror(error));
    }
    parent.pid[r] = pid;
  }
  for (int r = 0; r < size; r++) {
    close(pipes[r][0]);
    close(pipes[r][1]);
  }
  look_after(&handled);
}
