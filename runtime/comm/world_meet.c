// How ranks that a launcher started on one machine come to share memory.
//
// Rank 0 makes the memory and a pipe for each rank, and hands them out over a Unix socket
// (runtime/comm/world_door.c): no port is opened. It serves all connections at once, so that a silent one delays
// no other; one that is no rank of a dtc program is closed.
#define _GNU_SOURCE
#include "runtime/comm/shm.h"
#include "runtime/base/signals.h"
#include "runtime/base/trace.h"
#include "runtime/comm/world_start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t GREETING = 0x3130544545435444; // "DTCEET01"

typedef struct {
  uint64_t greeting;
  int32_t rank, size; // size 0: this rank does not come
} Hello;

static double seconds(void) { return (double)dt_nanoseconds() * 1e-9; }

// A signal that asks for a stop ends a rank that has not met the others yet, and those that have
// come to it: there is nothing to save.
static bool stopped(DtError *e) {
  int number = dt_stop_signal(), none = 0;
  if (!number) return false;
  if (dt_shm.head)
    atomic_compare_exchange_strong(&dt_shm.head->verdict, &none, DT_STOPPED << 16 | number);
  dt_fail(e, 128 + number, "stopped by %s before all ranks had started", dt_signal_name(number));
  return true;
}

static bool readable(int fd, double deadline) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  for (;;) {
    double left = deadline - seconds();
    if (left <= 0) return false;
    int n = poll(&p, 1, left > 1 ? 1000 : (int)(left * 1e3) + 1);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

// ---- Rank 0

enum { GUESTS = 64, DECLINE_SECONDS = 3 };

static struct {
  int size, left;
  bool came[DT_LOCAL_RANKS];
  int memory, pipes[DT_LOCAL_RANKS][2];
  DtDoor door;
  int guest[GUESTS], nguest; // connections that have not sent their rank
} host;

// Sends the memory, the pipe's end to hold, and the ends to watch.
static bool hand_out(int to, const Hello *hello, const int *fd, int n) {
  union {
    char bytes[CMSG_SPACE(sizeof(int) * (DT_LOCAL_RANKS + 2))];
    struct cmsghdr align;
  } control;
  memset(&control, 0, sizeof control);
  struct iovec part = {(void *)hello, sizeof *hello};
  struct msghdr m = {.msg_iov = &part,
                     .msg_iovlen = 1,
                     .msg_control = control.bytes,
                     .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n)};
  struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
  memcpy(CMSG_DATA(c), fd, sizeof(int) * (size_t)n);
  return sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)sizeof *hello;
}

static int absent(double waited, DtError *e) {
  char list[200] = "";
  size_t n = 0;
  for (int r = 1; r < host.size && n < sizeof list - 8; r++)
    if (!host.came[r]) n += (size_t)snprintf(list + n, sizeof list - n, " %d", r);
  return dt_fail(e, DT_EXIT_PEER, "after %.4g s these ranks of %d had not come to rank 0:%s",
                 waited, host.size, list);
}

static void dismiss(int i) {
  close(host.guest[i]);
  memmove(&host.guest[i], &host.guest[i + 1], (size_t)(--host.nguest - i) * sizeof *host.guest);
}

static void receive(int listener) {
  for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
    if (!dt_same_user(fd)) {
      close(fd);
      continue;
    }
    if (host.nguest == GUESTS) dismiss(0); // the oldest
    host.guest[host.nguest++] = fd;
  }
}

static int let_in(int fd, int rank, DtError *e) {
  int give[DT_LOCAL_RANKS + 2] = {host.memory, host.pipes[rank][1]};
  for (int r = 0; r < host.size; r++) give[2 + r] = host.pipes[r][0];
  Hello answer = {GREETING, rank, host.size};
  if (!hand_out(fd, &answer, give, host.size + 2))
    return dt_fail(e, DT_EXIT_PEER, "cannot pass the shared memory to rank %d: %s", rank,
                   strerror(errno));
  close(host.pipes[rank][1]);
  host.came[rank] = true;
  host.left--;
  return 0;
}

// Reads a connection's rank, or closes it.
static int hear(int i, DtError *e) {
  Hello h;
  int fd = host.guest[i], size = host.size;
  bool known = recv(fd, &h, sizeof h, MSG_DONTWAIT) == (ssize_t)sizeof h && h.greeting == GREETING;
  bool possible = known && h.rank > 0 && h.rank < size;
  if (known && possible && h.size == 0)
    dt_fail(e, DT_EXIT_PEER, "rank %d of %d ended before it joined; its message gives the reason",
            h.rank, size);
  else if (known && (!possible || h.size != size || host.came[h.rank]))
    dt_fail(e, DT_EXIT_MISFIT, "a process joined rank 0 of %d as rank %d of %d%s", size, h.rank,
            h.size, h.size == size ? ", which has joined already" : "");
  else if (known) let_in(fd, h.rank, e);
  dismiss(i);
  return e->status;
}

// A rank that came and is lost: it alone holds the other end of its pipe.
static int look_at_pipes(const struct pollfd *p, DtError *e) {
  for (int r = 1; r < host.size; r++)
    if (p[r].revents)
      return dt_fail(e, DT_EXIT_PEER,
                     "rank %d of %d was lost while rank 0 waited for the others to start", r,
                     host.size);
  return 0;
}

static int look_around(int patience_ms, DtError *e) {
  struct pollfd p[DT_LOCAL_RANKS + DT_DOORS + GUESTS];
  int n = host.size, guests = host.nguest, first_guest = n + host.door.n;
  p[0].fd = -1;
  for (int r = 1; r < n; r++) p[r].fd = host.came[r] ? host.pipes[r][0] : -1;
  for (int i = 0; i < host.door.n; i++) p[n + i].fd = host.door.fd[i];
  for (int i = 0; i < guests; i++) p[first_guest + i].fd = host.guest[i];
  for (int i = 0; i < first_guest + guests; i++) p[i].events = POLLIN, p[i].revents = 0;
  if (poll(p, (nfds_t)(first_guest + guests), patience_ms) < 0)
    return errno == EINTR ? 0 : dt_fail(e, DT_EXIT_OS, "poll: %s", strerror(errno));
  if (look_at_pipes(p, e)) return e->status;
  for (int i = guests - 1; i >= 0; i--) // from the last: those that leave move those behind
    if (p[first_guest + i].revents && hear(i, e)) return e->status;
  for (int i = 0; i < host.door.n; i++)
    if (p[n + i].revents) receive(host.door.fd[i]);
  return 0;
}

static int welcome(double wait, DtError *e) {
  double deadline = seconds() + wait;
  for (host.left = host.size - 1; host.left > 0;) {
    double left = deadline - seconds();
    if (stopped(e)) return e->status;
    if (left <= 0) return absent(wait, e);
    if (look_around((int)dt_least((int64_t)(left * 1e3) + 1, DT_LOOK_MS), e)) return e->status;
  }
  return 0;
}

static int make_memory(DtError *e) {
  host.memory = dt_shm_make(host.size, e);
  if (host.memory < 0 || dt_shm_map(host.memory, host.size, e)) return e->status;
  for (int r = 0; r < host.size; r++)
    if (pipe2(host.pipes[r], O_CLOEXEC) != 0)
      return dt_fail(e, DT_EXIT_OS, "cannot make a pipe for rank %d: %s", r, strerror(errno));
  for (int r = 0; r < host.size; r++) dt_shm.line[r] = r ? host.pipes[r][0] : -1;
  return 0;
}

// Ends the others' wait for a rank 0 that does not come.
static void turn_away(const DtLaunch *l, double wait) {
  DtDoor door;
  DtError ignored = {0};
  double deadline = seconds() + wait;
  if (dt_door_open(&door, l, &ignored)) return;
  for (int left = l->size - 1; left > 0 && seconds() < deadline;) {
    struct pollfd p[DT_DOORS];
    for (int i = 0; i < door.n; i++) p[i] = (struct pollfd){.fd = door.fd[i], .events = POLLIN};
    poll(p, (nfds_t)door.n, DT_LOOK_MS);
    for (int i = 0, fd; i < door.n; i++)
      for (; (fd = accept4(door.fd[i], NULL, NULL, SOCK_CLOEXEC)) >= 0; close(fd)) left--;
  }
  dt_door_close(&door);
}

static int receive_all(const DtLaunch *l, double wait, DtError *e) {
  host.size = l->size;
  if (make_memory(e)) {
    turn_away(l, DECLINE_SECONDS); // or they would wait for minutes
    return e->status;
  }
  if (dt_door_open(&host.door, l, e)) return e->status;
  welcome(wait, e);
  dt_door_close(&host.door);
  while (host.nguest) dismiss(host.nguest - 1);
  close(host.pipes[0][0]); // [1] is this rank's to hold
  close(host.memory);
  return e->status;
}

// ---- The other ranks

static int find_rank_0(const DtLaunch *l, double wait, DtError *e) {
  for (double deadline = seconds() + wait;;) {
    int fd = dt_door_knock(l);
    if (fd >= 0) return fd;
    if (stopped(e)) return -1;
    if (seconds() > deadline) break;
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
  }
  dt_fail(e, DT_EXIT_PEER,
          "rank %d of %d, started by %s, found no rank 0 on this machine in %.4g s", l->rank,
          l->size, l->launcher, wait);
  return -1;
}

static int take(int from, const DtLaunch *l, int *fd, DtError *e) {
  union {
    char bytes[CMSG_SPACE(sizeof(int) * (DT_LOCAL_RANKS + 2))];
    struct cmsghdr align;
  } control;
  Hello h = {0};
  struct iovec part = {&h, sizeof h};
  struct msghdr m = {.msg_iov = &part,
                     .msg_iovlen = 1,
                     .msg_control = control.bytes,
                     .msg_controllen = sizeof control.bytes};
  ssize_t got = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
  struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;
  if (got != (ssize_t)sizeof h || h.greeting != GREETING || !c || c->cmsg_type != SCM_RIGHTS ||
      c->cmsg_len != CMSG_LEN(sizeof(int) * (size_t)(l->size + 2)))
    return dt_fail(e, DT_EXIT_PEER, "rank 0 refused rank %d", l->rank);
  memcpy(fd, CMSG_DATA(c), sizeof(int) * (size_t)(l->size + 2));
  return 0;
}

static int come(const DtLaunch *l, double wait, DtError *e) {
  int to = find_rank_0(l, wait, e), fd[DT_LOCAL_RANKS + 2];
  if (to < 0) return e->status;
  Hello h = {GREETING, l->rank, l->size};
  if (send(to, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h ||
      !readable(to, seconds() + wait)) // it answers at once, or ends
    dt_fail(e, DT_EXIT_PEER, "rank 0 does not answer rank %d", l->rank);
  else if (!take(to, l, fd, e) && !dt_shm_map(fd[0], l->size, e)) {
    for (int r = 0; r < l->size; r++) dt_shm.line[r] = fd[2 + r];
    close(fd[0]);
    close(dt_shm.line[l->rank]);
    dt_shm.line[l->rank] = -1;
  }
  if (e->status) stopped(e);
  close(to);
  return e->status;
}

int dt_world_meet(const DtLaunch *l, double wait, DtError *e) {
  if (l->size > DT_LOCAL_RANKS)
    return dt_fail(e, DT_EXIT_MISFIT, "%d ranks: at most %d share one machine", l->size,
                   DT_LOCAL_RANKS);
  if (l->rank == 0 ? receive_all(l, wait, e) : come(l, wait, e)) return e->status;
  dt_shm_join(l->rank);
  return 0;
}

// ---- A rank that will not come

void dt_world_decline(const DtLaunch *l, double wait) {
  DtError ignored = {0};
  Hello h = {GREETING, l->rank, 0};
  if (l->rank == 0) {
    turn_away(l, wait);
    return;
  }
  int to = find_rank_0(l, wait, &ignored);
  if (to < 0) return;
  send(to, &h, sizeof h, MSG_NOSIGNAL); // fails where rank 0 has gone
  close(to);
}
