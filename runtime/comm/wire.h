// Ranks on several machines. Used by runtime/comm/world_start.c.
#ifndef DTC_RUNTIME_WIRE_H
#define DTC_RUNTIME_WIRE_H

#include "runtime/comm/comm_op.h"
#include "runtime/comm/mpi/plugin.h"

#include <stdbool.h>

// Loads the MPI plug-in that goes with the launcher ("Open MPI", "MPICH", "Slurm").
int dt_wire_find(const char *launcher, DtError *e);
extern const DtTransport dt_wire_transport;

// runtime/comm/wire_beat.c: which ranks still run, by short messages between all of them. By the
// communication thread. Requests [first_request, first_request + 2 * size) of the plug-in are its
// own.
int dt_beat_open(const DtMpi *mpi, int first_request, DtError *e);
void dt_beat_doing(const DtOp *op); // tells the others which operation this rank is at
bool dt_beat_due(int64_t now);      // whether the last look is DT_LOOK_MS ago
void dt_beat_look(void);            // sends that this rank runs, and receives the same of others
// The rank that has been silent longest, if it was silent for more than `seconds`; or -1.
int dt_beat_silent(double seconds);
double dt_beat_rare(void); // seconds for which one that runs well is not silent
double dt_beat_still(int rank); // seconds since a rank's last message
bool dt_beat_files(void);       // whether any rank is at files, and waits for no other
bool dt_beat_left(int rank);    // whether it has left, and nothing of it is on its way
void dt_beat_text(char *text, size_t n, int rank); // what it was last seen doing
// Tells all others that this rank leaves, and waits until they have done so too; -1: one is silent.
int dt_beat_close(void);

#endif
