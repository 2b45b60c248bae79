// How ranks that a launcher started on one machine come to share memory.
//
// Rank 0 makes the memory and a pipe for each rank, and hands them out over a Unix socket in the
// abstract namespace: no port, no file, nothing left behind. Its name is a hash of the user and of
// what the launcher calls the job. Both sides look at the other's user id: the name can be guessed.
#define _GNU_SOURCE
#include "runtime/hash.h"
#include "runtime/shm.h"
#include "runtime/signals.h"
#include "runtime/trace.h"
#include "runtime/world_start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const uint64_t GREETING = 0x3130544545435444; // "DTCEET01"

typedef struct {
  uint64_t greeting;
  int32_t rank, size; // size 0: this rank does not come
} Hello;

static socklen_t address_of(struct sockaddr_un *a, const DtLaunch *l) {
  memset(a, 0, sizeof *a);
  a->sun_family = AF_UNIX;
  int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "dtc-%u-%016llx", (unsigned)getuid(),
                   (unsigned long long)dt_hash(l->job, strlen(l->job)));
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static double seconds(void) { return (double)dt_nanoseconds() * 1e-9; }

static bool same_user(int fd) {
  struct ucred c;
  socklen_t n = sizeof c;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.uid == getuid();
}

// A signal that asks for a stop ends a rank that has not met the others yet, and those that have
// come to it: there is nothing to save.
static bool stopped(DtError *e) {
  int number = dt_stop_signal(), none = 0;
  if (!number) return false;
  if (dt_shm.head)
    atomic_compare_exchange_strong(&dt_shm.head->verdict, &none, DT_STOPPED << 16 | number);
  dt_fail(e, 128 + number, "stopped by %s before all ranks were there", dt_signal_name(number));
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

static int absent(const bool *came, int size, double waited, DtError *e) {
  char list[200] = "";
  size_t n = 0;
  for (int r = 1; r < size && n < sizeof list - 8; r++)
    if (!came[r]) n += (size_t)snprintf(list + n, sizeof list - n, " %d", r);
  return dt_fail(e, DT_EXIT_PEER, "after %.4g s these ranks of %d had not come to rank 0:%s",
                 waited, size, list);
}

// 0 when somebody is at the door; -1 past the deadline, or when a signal asks for a stop; or a rank
// that came and is lost: it alone holds the other end of its pipe.
static int next(int listener, int (*pipes)[2], const bool *came, int size, double deadline) {
  struct pollfd p[DT_LOCAL_RANKS];
  p[0] = (struct pollfd){.fd = listener, .events = POLLIN};
  for (int r = 1; r < size; r++) p[r] = (struct pollfd){.fd = came[r] ? pipes[r][0] : -1};
  for (double left; (left = deadline - seconds()) > 0 && !dt_stop_signal();) {
    int n = poll(p, (nfds_t)size, (int)dt_least((int64_t)(left * 1e3) + 1, DT_LOOK_MS));
    if (n < 0 && errno != EINTR) return -1;
    if (n <= 0) continue;
    for (int r = 1; r < size; r++)
      if (p[r].revents) return r;
    return 0;
  }
  return -1;
}

static int welcome(int listener, int memory, int (*pipes)[2], int size, double wait, DtError *e) {
  bool came[DT_LOCAL_RANKS] = {true};
  double deadline = seconds() + wait;
  for (int left = size - 1; left > 0;) {
    int who = next(listener, pipes, came, size, deadline);
    if (stopped(e)) return e->status;
    if (who < 0) return absent(came, size, wait, e);
    if (who > 0)
      return dt_fail(e, DT_EXIT_PEER,
                     "rank %d of %d was lost while rank 0 waited for the others to come", who,
                     size);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    Hello h;
    if (fd < 0) continue;
    if (!same_user(fd) || !readable(fd, seconds() + 10) ||
        recv(fd, &h, sizeof h, MSG_DONTWAIT) != (ssize_t)sizeof h || h.greeting != GREETING) {
      close(fd);
      continue;
    }
    if (h.size == 0 && h.rank > 0 && h.rank < size) {
      close(fd);
      return dt_fail(e, DT_EXIT_PEER, "rank %d of %d ended before it came; it says why itself",
                     h.rank, size);
    }
    if (h.size != size || h.rank < 1 || h.rank >= size || came[h.rank]) {
      close(fd);
      return dt_fail(e, DT_EXIT_MISFIT, "a process came to rank 0 of %d as rank %d of %d%s", size,
                     h.rank, h.size, h.size == size ? ", which is there already" : "");
    }
    int give[DT_LOCAL_RANKS + 2] = {memory, pipes[h.rank][1]};
    for (int r = 0; r < size; r++) give[2 + r] = pipes[r][0];
    Hello answer = {GREETING, h.rank, size};
    bool sent = hand_out(fd, &answer, give, size + 2);
    close(fd);
    if (!sent)
      return dt_fail(e, DT_EXIT_PEER, "cannot hand the shared memory to rank %d: %s", h.rank,
                     strerror(errno));
    close(pipes[h.rank][1]);
    came[h.rank] = true;
    left--;
  }
  return 0;
}

static int receive_all(const DtLaunch *l, double wait, DtError *e) {
  static int pipes[DT_LOCAL_RANKS][2];
  struct sockaddr_un a;
  socklen_t n = address_of(&a, l);
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (listener < 0) return dt_fail(e, DT_EXIT_OS, "cannot make a socket: %s", strerror(errno));
  if (bind(listener, (struct sockaddr *)&a, n) != 0 || listen(listener, DT_LOCAL_RANKS) != 0) {
    int error = errno;
    close(listener);
    return dt_fail(e, error == EADDRINUSE ? DT_EXIT_MISFIT : DT_EXIT_OS,
                   "rank 0 cannot listen for the others%s: %s",
                   error == EADDRINUSE ? ", another job with the same name (under torchrun: the "
                                         "same MASTER_PORT) is starting"
                                       : "",
                   strerror(error));
  }
  int memory = dt_shm_make(l->size, e);
  if (memory < 0 || dt_shm_map(memory, l->size, e)) return e->status;
  for (int r = 0; r < l->size; r++)
    if (pipe2(pipes[r], O_CLOEXEC) != 0)
      return dt_fail(e, DT_EXIT_OS, "cannot make a pipe for rank %d: %s", r, strerror(errno));
  for (int r = 0; r < l->size; r++) dt_shm.line[r] = r ? pipes[r][0] : -1;
  welcome(listener, memory, pipes, l->size, wait, e);
  close(pipes[0][0]); // [1] is this rank's to hold
  close(memory);
  close(listener);
  return e->status;
}

// ---- The other ranks

static int find_rank_0(const DtLaunch *l, double wait, DtError *e) {
  struct sockaddr_un a;
  socklen_t n = address_of(&a, l);
  for (double deadline = seconds() + wait;;) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, n) == 0) return fd;
    if (fd >= 0) close(fd);
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
    return dt_fail(e, DT_EXIT_PEER, "rank 0 did not let rank %d in", l->rank);
  memcpy(fd, CMSG_DATA(c), sizeof(int) * (size_t)(l->size + 2));
  return 0;
}

static int come(const DtLaunch *l, double wait, DtError *e) {
  int to = find_rank_0(l, wait, e), fd[DT_LOCAL_RANKS + 2];
  if (to < 0) return e->status;
  Hello h = {GREETING, l->rank, l->size};
  if (!same_user(to)) dt_fail(e, DT_EXIT_OS, "another user listens where rank 0 should");
  else if (send(to, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h ||
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

static void turn_away(const DtLaunch *l, double wait) {
  struct sockaddr_un a;
  socklen_t n = address_of(&a, l);
  double deadline = seconds() + wait;
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (listener < 0) return;
  if (bind(listener, (struct sockaddr *)&a, n) == 0 && listen(listener, DT_LOCAL_RANKS) == 0)
    for (int left = l->size - 1; left > 0 && readable(listener, deadline); left--) {
      int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
      if (fd >= 0) close(fd);
    }
  close(listener);
}

void dt_world_decline(const DtLaunch *l, double wait) {
  DtError ignored = {0};
  Hello h = {GREETING, l->rank, 0};
  if (l->rank == 0) {
    turn_away(l, wait);
    return;
  }
  int to = find_rank_0(l, wait, &ignored);
  if (to < 0) return;
  if (same_user(to)) send(to, &h, sizeof h, MSG_NOSIGNAL); // fails where rank 0 has gone
  close(to);
}
