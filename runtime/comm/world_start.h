// Finding the number of this rank, and connecting. Used by runtime/world*.c only.
#ifndef DTC_RUNTIME_WORLD_START_H
#define DTC_RUNTIME_WORLD_START_H

#include "runtime/base/error.h"

#include <stdbool.h>

// The launch, by the environment. launcher: "torchrun", ..., or NULL where the environment has none.
typedef struct DtLaunch {
  const char *launcher;
  int rank, size, local_rank, local_size;
  int parent; // the process of a launcher that lives as long as the job, if its end is to stop it
  char job[160]; // the same for all ranks of the job on this machine, and for no others
} DtLaunch;

// runtime/comm/world_env.c. 78 where variables contradict one another.
int dt_launch_read(DtLaunch *l, DtError *e);

// runtime/comm/world_fork.c: starts `size` processes that share memory, and returns in each of them with
// its rank. The parent stays in there to its end, or fails before there are any. `timeout`: seconds
// that a rank may be silent once others have ended.
int dt_world_fork(int size, double timeout, int *rank, DtError *e);

// runtime/comm/world_door.c: where ranks of one machine find rank 0, which opens it: sockets that only their
// user can reach. 71 where there is no folder for them, 78 where another job of that name uses it.
enum { DT_DOORS = 3 };
typedef struct DtDoor {
  int n, fd[DT_DOORS]; // that listen, without blocking
  char path[DT_DOORS][108];
} DtDoor;
int dt_door_open(DtDoor *d, const DtLaunch *l, DtError *e);
void dt_door_close(DtDoor *d); // leaves nothing behind
int dt_door_knock(const DtLaunch *l); // a connection to rank 0, or -1
bool dt_same_user(int fd);            // whether a process of this user is at the other end

// runtime/comm/world_meet.c: connects processes that a launcher started on this machine. `seconds`: how
// long to wait for the others.
int dt_world_meet(const DtLaunch *l, double seconds, DtError *e);
// Tells the others that this rank does not come, in no more than `seconds`.
void dt_world_decline(const DtLaunch *l, double seconds);

#endif
