// Shared memory: made, mapped, left.
#define _GNU_SOURCE
#include "runtime/comm/shm.h"

#include "runtime/base/canary.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

DtShm dt_shm;

enum { PAGE = 4096, STAGE = DT_SLOTS * DT_SLOT_BYTES };
static const uint64_t MAGIC = 0x31304d4853435444; // "DTCSHM01"

static size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

// Where the parts lie, in bytes from the start.
typedef struct Places {
  size_t rank, arrive, pair, stage, end;
} Places;

static Places places(int size) {
  size_t n = (size_t)size;
  Places p = {.rank = pages(sizeof(DtShmHead))};
  p.arrive = p.rank + pages(n * sizeof(DtShmRank));
  p.pair = p.arrive + pages(n * DT_GROUPS * sizeof(DtShmArrive));
  p.stage = p.pair + pages(n * n * sizeof(DtShmPair));
  p.end = p.stage + n * STAGE;
  return p;
}

static int64_t share(size_t bytes, int size) { return ((int64_t)bytes + size - 1) / size; }

int64_t dt_exchange_plan(int ranks) {
  if (ranks < 2) return 0;
  if (ranks > DT_LOCAL_RANKS) ranks = DT_LOCAL_RANKS;
  return share(places(ranks).end, ranks);
}

int dt_shm_make(int size, DtError *e) {
  size_t bytes = places(size).end;
  int fd = memfd_create("dtc-ranks", MFD_CLOEXEC);
  if (fd < 0) {
    dt_fail_errno(e, DT_EXIT_OS, "cannot make", "memory to share between ranks");
    return -1;
  }
  // Allocated here: a page that cannot be had later would end a rank by SIGBUS.
  int failed = posix_fallocate(fd, 0, (off_t)bytes);
  if (failed) {
    errno = failed;
    dt_fail(e, DT_EXIT_OS, "cannot allocate %zu bytes to share between %d ranks: %s", bytes, size,
            strerror(failed));
    close(fd);
    return -1;
  }
  return fd;
}

int dt_shm_map(int fd, int size, DtError *e) {
  Places at = places(size);
  char *base = mmap(NULL, at.end, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) return dt_fail_errno(e, DT_EXIT_OS, "cannot map", "the ranks' memory");
  dt_shm.head = (DtShmHead *)(void *)base;
  dt_shm.rank = (DtShmRank *)(void *)(base + at.rank);
  dt_shm.arrive = (DtShmArrive *)(void *)(base + at.arrive);
  dt_shm.pair = (DtShmPair *)(void *)(base + at.pair);
  dt_shm.stage = base + at.stage;
  dt_shm.size = size;
  dt_shm.bytes = at.end;
  if (!dt_shm.head->magic) {
    dt_shm.head->size = size;
    // For messages about a rank that is lost before it has joined.
    for (int r = 0; r < size; r++)
      dt_shm.rank[r].doing = (DtDoing){.kind = -1, .micro = -1, .activity = "starting"};
    dt_shm.head->magic = MAGIC;
  }
  if (dt_shm.head->magic != MAGIC || dt_shm.head->size != size)
    return dt_fail(e, DT_EXIT_DISAGREE, "the ranks' shared memory is of another build");
  return 0;
}

void dt_shm_join(int me) {
  dt_shm.me = me;
  dt_group_registry = dt_shm.head->registry;
  dt_shm_publish(NULL);
  if (dt_watching()) memset(dt_shm.stage + me * STAGE, DT_CANARY, STAGE);
  atomic_store(&dt_shm.rank[me].state, DT_RANK_RUNNING);
}

void dt_shm_free(void) {
  atomic_store(&dt_shm.rank[dt_shm.me].state, DT_RANK_LEFT);
  // Groups stay as they are, and peers see what was staged: only this view ends.
  static _Atomic uint64_t rest[DT_GROUPS];
  for (int i = 0; i < DT_GROUPS; i++) atomic_store(&rest[i], atomic_load(&dt_group_registry[i]));
  dt_group_registry = rest;
  for (int r = 0; r < dt_shm.size; r++)
    if (dt_shm.line[r] >= 0) close(dt_shm.line[r]);
  munmap(dt_shm.head, dt_shm.bytes);
  memset(&dt_shm, 0, sizeof dt_shm);
}

static DtCounter *bell(void) { return &dt_shm.rank[dt_shm.me].bell; }
static int64_t bytes(void) { return share(dt_shm.bytes, dt_shm.size); }

// Counters count as used, as they are from the start.
static int64_t used(void) {
  return bytes() - STAGE + dt_written(dt_shm.stage + dt_shm.me * STAGE, STAGE);
}

const DtTransport dt_shm_transport = {.bell = bell, .run = dt_shm_run, .receive = dt_shm_receive,
                                      .expect = dt_shm_expect, .patience = dt_shm_patience,
                                      .watch = dt_shm_watch,
                                      .look = dt_shm_look, .close = dt_shm_free,
                                      .bytes = bytes, .used = used};
