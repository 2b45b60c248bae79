// From a process that knows nothing to a rank among ranks.
#define _GNU_SOURCE
#include "runtime/comm/world_start.h"
#include "runtime/control.h"

#include "runtime/comm/shm.h"
#include "runtime/comm/wire.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool by_mpi(void) {
  const char *asked = getenv("DT_COMM");
  return asked && strcmp(asked, "mpi") == 0;
}

static int connect(DtLaunch *l, int ranks, double timeout, const DtTransport **by, DtError *e) {
  double silent = timeout > 0 ? timeout : 100;
  if (ranks > 0) {
    dt_world_fork(l->size, silent, &l->rank, e);
    l->local_rank = l->rank;
    return e->status;
  }
  const char *asked = getenv("DT_COMM");
  bool mpi = by_mpi();
  if (asked && *asked && !mpi)
    return dt_fail(e, DT_EXIT_USAGE, "DT_COMM=%s: it may be 'mpi', or not be set", asked);
  if (l->local_size == l->size && !mpi) return dt_world_meet(l, 3 * silent, e);
  if (strcmp(l->launcher, "torchrun") == 0)
    return dt_fail(e, DT_EXIT_MISFIT,
                   "RANK and WORLD_SIZE name %d ranks, not all on this machine: ranks on several "
                   "machines are started by mpirun or srun",
                   l->size);
  *by = &dt_wire_transport;
  return dt_wire_find(l->launcher, e);
}

// Open MPI's mpirun and torchrun, killed, leave their ranks behind: nothing would stop them.
static int launcher;

int dt_comm_stop_request(void) {
  if (launcher && getppid() != launcher) return SIGTERM;
  return dt_shm.head ? atomic_load(&dt_shm.head->stop) : 0;
}

int dt_comm_start(const DtProgram *p, int ranks, double timeout, DtError *e) {
  DtLaunch l = {.size = ranks, .local_size = ranks};
  if (ranks <= 0 && dt_launch_read(&l, e)) return e->status;
  if (dt_world_fits(p, l.size, e)) return e->status;
  launcher = l.parent;
  const DtTransport *by = &dt_shm_transport;
  if (l.size > 1 && connect(&l, ranks, timeout, &by, e)) return e->status;
  dt_world_set(p, l.rank, l.size, l.local_rank, l.local_size);
  if (l.size == 1) return 0;
  if (dt_comm_run(by, timeout, e)) return e->status;
  dt_barrier(dt_group(DT_ALL_AXES)); // all ranks are there
  return 0;
}

void dt_comm_decline(void) {
  enum { SECONDS = 3 };
  DtLaunch l;
  DtError ignored = {0};
  if (!dt_launch_read(&l, &ignored) && l.size > 1 && l.size <= DT_LOCAL_RANKS &&
      l.local_size == l.size && !by_mpi())
    dt_world_decline(&l, SECONDS);
}

// ---- The handshake

// Line `number` of a text, without its end.
static void line_of(char *to, size_t n, const char *text, int number) {
  for (; number > 0 && text; number--) {
    text = strchr(text, '\n');
    if (text) text++;
  }
  snprintf(to, n, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ? text : "");
  for (; *to; to++)
    if (*to == '\t') *to = ' ';
}

// The first line in which the texts differ, but for what follows a tab in it; or INT_MAX.
static int first_difference(const char *a, const char *b) {
  for (int line = 0;; line++) {
    size_t n = strcspn(a, "\t\n");
    if (n != strcspn(b, "\t\n") || memcmp(a, b, n) != 0) return line;
    a += strcspn(a, "\n");
    b += strcspn(b, "\n");
    if (!*a || !*b) return *a == *b ? INT_MAX : line + 1;
    a++, b++;
  }
}

static void broadcast(int root, void *data, int64_t words) {
  DtNote note = {"handshake", -1, NULL};
  dt_control_broadcast(dt_group(DT_ALL_AXES), DT_TYPE_I32, root, data, words, note);
}

// Rank 0's text, on every rank.
static char *text_of_rank_0(const char *text, DtError *e) {
  int32_t length = (int32_t)strlen(text), words;
  broadcast(0, &length, 1);
  words = length / 4 + 1;
  char *all = calloc((size_t)words, 4);
  // All have the memory, or none goes on: a broadcast is not entered by some.
  if (dt_agree(all ? 0 : DT_EXIT_OS)) {
    free(all);
    dt_fail(e, DT_EXIT_OS, "no memory for the handshake");
    return NULL;
  }
  if (dt_world.rank == 0) memcpy(all, text, (size_t)length);
  broadcast(0, all, words);
  all[length] = 0;
  return all;
}

int dt_comm_handshake(const char *text, DtError *e) {
  enum { LINE = 512 };
  const DtGroup *g = dt_group(DT_ALL_AXES);
  if (g->n == 1) return 0;
  char *theirs = text_of_rank_0(text, e);
  if (!theirs) return e->status;
  // The least rank that differs, or INT_MAX; and in which line it does.
  int32_t line = first_difference(text, theirs), first;
  first = line == INT_MAX ? INT_MAX : dt_world.rank;
  DtNote note = {"handshake", -1, NULL};
  dt_control_reduce(g, DT_TYPE_I32, DT_MIN, &first, 1, note);
  if (first == INT_MAX) {
    free(theirs);
    return 0;
  }
  char ours[LINE], other[LINE] = {0};
  if (dt_world.rank == first) line_of(other, sizeof other, text, line);
  broadcast(first, &line, 1);
  broadcast(first, other, LINE / 4);
  line_of(ours, sizeof ours, theirs, line);
  free(theirs);
  return dt_fail(e, DT_EXIT_DISAGREE, "ranks disagree: rank 0 has \"%s\", rank %d has \"%s\"", ours,
                 first, other);
}
