// Where ranks that a launcher started on one machine find rank 0: a Unix socket in a folder that their user
// alone may enter. A name that others can compute, as in the abstract namespace or right below /tmp, can
// be taken first by any user, and then ranks would not meet for no visible reason.
#define _GNU_SOURCE
#include "runtime/files/file.h"
#include "runtime/comm/world_start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct Place {
  char folder[PATH_MAX];
  dev_t device;
  ino_t number;
  struct sockaddr_un address;
} Place;

// The same for all ranks of a job and for no other job here. Containers may share folders, but each has
// its network, where launchers' names for jobs (a port) are unique.
static uint64_t key_of(const DtLaunch *l) {
  char network[64] = "";
  DtHash h;
  if (readlink("/proc/self/ns/net", network, sizeof network - 1) < 0) network[0] = 0;
  dt_hash_begin(&h);
  dt_hash_add(&h, l->job, strlen(l->job) + 1);
  dt_hash_add(&h, network, strlen(network));
  return dt_hash_end(&h);
}

// The folder that a session has for this; else one below a folder for temporary files. False where there
// is no such folder that is private, or a socket's address cannot hold its name.
static bool find_place(Place *p, int i, const DtLaunch *l) {
  const char *session = getenv("XDG_RUNTIME_DIR"), *temporary = getenv("TMPDIR");
  const char *base = i == 0 ? session : i == 1 ? temporary : "/tmp";
  struct stat s;
  if (!base || base[0] != '/' || strlen(base) >= sizeof p->folder - 32) return false;
  if (i == 0) strcpy(p->folder, base);
  else snprintf(p->folder, sizeof p->folder, "%s/dtc-%u", base, (unsigned)geteuid());
  if (i > 0 && mkdir(p->folder, 0700) != 0 && errno != EEXIST) return false;
  if (lstat(p->folder, &s) != 0 || !S_ISDIR(s.st_mode) || s.st_uid != geteuid() || s.st_mode & 077)
    return false;
  p->device = s.st_dev;
  p->number = s.st_ino;
  p->address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int n = snprintf(p->address.sun_path, sizeof p->address.sun_path, "%s/dtc-%016llx", p->folder,
                   (unsigned long long)key_of(l));
  return n < (int)sizeof p->address.sun_path;
}

static int find_places(Place place[DT_DOORS], const DtLaunch *l) {
  int n = 0;
  for (int i = 0; i < DT_DOORS; i++) {
    bool new = find_place(&place[n], i, l);
    for (int k = 0; k < n; k++)
      new = new && (place[k].device != place[n].device || place[k].number != place[n].number);
    n += new;
  }
  return n;
}

static int new_socket(int flags) {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
}

static bool try(int fd, const Place *p) {
  return connect(fd, (const struct sockaddr *)&p->address, sizeof p->address) == 0;
}

// Takes a name at which no process listens: a rank 0 that was killed leaves it behind.
static int listen_at(const Place *p) {
  int fd = new_socket(SOCK_NONBLOCK), probe = new_socket(0);
  bool taken = probe >= 0 && try(probe, p);
  if (probe >= 0) close(probe);
  if (!taken) unlink(p->address.sun_path);
  if (fd >= 0 && !taken &&
      bind(fd, (const struct sockaddr *)&p->address, sizeof p->address) == 0 &&
      listen(fd, SOMAXCONN) == 0)
    return fd;
  int error = taken ? EADDRINUSE : errno;
  if (fd >= 0) close(fd);
  errno = error;
  return -1;
}

int dt_door_open(DtDoor *d, const DtLaunch *l, DtError *e) {
  Place place[DT_DOORS];
  int n = find_places(place, l), error = 0;
  *d = (DtDoor){.n = 0};
  for (int i = 0; i < n && error != EADDRINUSE; i++) {
    int fd = listen_at(&place[i]);
    if (fd < 0) {
      error = errno;
      continue;
    }
    memcpy(d->path[d->n], place[i].address.sun_path, sizeof d->path[0]);
    d->fd[d->n++] = fd;
  }
  if (d->n > 0 && error != EADDRINUSE) return 0;
  dt_door_close(d);
  if (error == EADDRINUSE)
    return dt_fail(e, DT_EXIT_MISFIT,
                   "rank 0 cannot listen for the others: another job with the same name (under "
                   "torchrun: the same MASTER_PORT) is starting");
  if (error) return dt_fail(e, DT_EXIT_OS, "rank 0 cannot listen for the others: %s", strerror(error));
  return dt_fail(e, DT_EXIT_OS,
                 "rank 0 has no folder to meet the other ranks in: /tmp/dtc-%u is not a folder that "
                 "user %u alone may enter; set XDG_RUNTIME_DIR to one",
                 (unsigned)geteuid(), (unsigned)geteuid());
}

void dt_door_close(DtDoor *d) {
  for (int i = 0; i < d->n; i++) {
    unlink(d->path[i]);
    close(d->fd[i]);
  }
  d->n = 0;
}

bool dt_same_user(int fd) {
  struct ucred c;
  socklen_t n = sizeof c;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.uid == geteuid();
}

int dt_door_knock(const DtLaunch *l) {
  Place place[DT_DOORS];
  int n = find_places(place, l);
  for (int i = 0; i < n; i++) {
    int fd = new_socket(0);
    if (fd >= 0 && try(fd, &place[i]) && dt_same_user(fd)) return fd;
    if (fd >= 0) close(fd);
  }
  return -1;
}
