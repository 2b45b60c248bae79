// The memory that ranks on one machine share: where each rank is, and a staging area of each.
//
// An operation of a group goes in rounds. In a round a member puts a part of its array into a slot
// of its staging area (`staged`), may put a reduced part beside it (`reduced`), and has read all
// that it needs of the others (`taken`). Each is a counter of rounds of (rank, group), written by
// that rank alone; all three are equal between two operations. A slot is filled again when all who
// read it have taken it. Used by runtime/shm*.c and world*.c only.
#ifndef DTC_RUNTIME_SHM_H
#define DTC_RUNTIME_SHM_H

#include "runtime/comm/comm_op.h"
#include "runtime/base/counter.h"

enum {
  DT_SLOTS = 4,              // rounds that a rank may be ahead of the slowest reader
  DT_SLOT_BYTES = 256 << 10, // four of them stay in a core's second cache
  DT_RECENT = 8,             // operations of a group that may be under way at once, and more
  DT_LOCAL_RANKS = 240       // a message carries at most 253 descriptors
};

typedef enum DtRankState { DT_RANK_STARTING, DT_RANK_RUNNING, DT_RANK_LEFT } DtRankState;
typedef enum DtVerdictKind { DT_LOST = 1, DT_SILENT, DT_LATE, DT_GONE, DT_CYCLE, DT_STOPPED } DtVerdictKind;

typedef struct DtShmRank {
  _Alignas(128) atomic_uint beat; // changes several times a second while the process runs
  atomic_int state;               // DtRankState
  atomic_int waits_for;           // 1 + the rank that it sleeps for, or 0
  atomic_int ended;               // 1 + what waitpid() said of it, by the parent; or 0
  DtCounter bell; // rung by ranks that send to this one, and by itself
  DtDoing doing;
} DtShmRank;

typedef struct DtShmArrive {
  _Alignas(64) DtCounter staged, reduced, taken;
  _Atomic uint64_t recent[DT_RECENT]; // operation i of the group: its hash << 8 | its first slot
  // Of operations that devices carry out: how many were posted, and have begun on the device; operation i's hash.
  _Alignas(64) DtCounter met;
  _Atomic uint64_t begun, hash[DT_RECENT];
} DtShmArrive;

typedef struct DtShmPair {
  _Alignas(64) DtCounter sent; // rounds, by the sender
  _Atomic uint64_t recent[DT_SLOTS];
  _Alignas(64) DtCounter got; // by the receiver
} DtShmPair;

typedef struct DtShmHead {
  uint64_t magic; // last thing written when the memory is made
  int size, has_parent;
  atomic_int stop;    // the signal that the parent got, or a rank that waits for others to come
  atomic_int verdict; // 0, or kind << 16 | 1 + rank (DT_STOPPED: the signal): why all ranks end
  _Atomic uint64_t registry[DT_GROUPS];
} DtShmHead;

// This process's view.
typedef struct DtShm {
  DtShmHead *head;
  DtShmRank *rank;     // [size]
  DtShmArrive *arrive; // [size][DT_GROUPS]
  DtShmPair *pair;     // [from][to]
  char *stage;         // [size][DT_SLOTS][DT_SLOT_BYTES]
  size_t bytes;
  int size, me;
  // The read end of a pipe from each rank, whose write end that rank alone holds: it hangs up when
  // the process ends, however it ends.
  int line[DT_LOCAL_RANKS];
} DtShm;
extern DtShm dt_shm;

// Makes the memory for `size` ranks, zeroed and allocated: a descriptor, or -1 with 71.
int dt_shm_make(int size, DtError *e);
// Maps it.
int dt_shm_map(int fd, int size, DtError *e);
// This process is rank `me`: from here on it beats.
void dt_shm_join(int me);
void dt_shm_free(void);

static inline DtShmArrive *dt_shm_arrive(int rank, int group) {
  return &dt_shm.arrive[rank * DT_GROUPS + group];
}
static inline DtShmPair *dt_shm_pair(int from, int to) {
  return &dt_shm.pair[from * dt_shm.size + to];
}

// runtime/comm/shm_watch.c, by the communication thread. Sleeps until `rank` has brought its counter to
// `least`; ends the process where that rank, or one that it waits for in turn, is lost.
void dt_shm_await(DtCounter *c, uint64_t least, int rank);
void dt_shm_await_receiver(DtCounter *c, uint64_t least, int rank); // until it has taken so much
void dt_shm_look(void);
void dt_shm_expect(const DtOp *op);
void dt_shm_patience(const DtReceive *r, double seconds);
void dt_shm_watch(const DtOp *op, bool begun, double seconds);
void dt_shm_publish(const DtOp *op); // NULL: at nothing
static inline void dt_shm_beat(void) {
  atomic_uint *b = &dt_shm.rank[dt_shm.me].beat;
  atomic_store_explicit(b, atomic_load_explicit(b, memory_order_relaxed) + 1, memory_order_relaxed);
}

extern const DtTransport dt_shm_transport;

// runtime/comm/shm_ops.c
void dt_shm_run(const DtOp *op);
bool dt_shm_receive(DtReceive *r);
void dt_shm_compare(const DtGroup *g); // what its members have posted for their devices
bool dt_shm_come(int from); // whether a part of a message waits to be taken

#endif
