// Worlds of several ranks for the tests of communication.
#ifndef WORLDS_H
#define WORLDS_H

#include "runtime/comm.h"

#include <sys/types.h>

// Runs body(argument) in each of `ranks` processes on a mesh, after dt_comm_start and before
// dt_comm_stop; a rank's status is body's. Returns the status of the world as waitpid gives it:
// that of the parent. What ranks write on stderr goes to the file `said`, or to ours where it is
// NULL.
typedef int Body(void *argument);
int in_world(int ranks, int tp, int cp, int pp, double timeout, Body *body, void *argument,
             const char *said);
// The same under a launcher's environment instead of a parent: `variables(rank)` sets it. Returns
// the highest exit status, or -1 where a process was killed.
int in_launched(int ranks, void (*variables)(int rank, int ranks), Body *body, void *argument,
                const char *said);

// For worlds that are made otherwise, after dt_comm_start and before dt_comm_stop: where devices exchange arrays
// themselves, they do so; with sums in the order of members where EXACT is in the environment.
int open_device(int ranks, DtError *e);
void close_device(void);

// A value that depends on all of these and little else; in [-2, 2), not on a coarse grid.
double value_of(unsigned seed, int rank, int64_t i);

void sleep_ms(int ms);

// Stops a process by SIGSTOP, and returns when each of its threads has stopped: the kernel stops the others only
// when the thread that takes the signal is run next.
void stop_process(pid_t pid);

#endif
