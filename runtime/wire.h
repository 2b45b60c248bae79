// Ranks on several machines. Used by runtime/world_start.c.
#ifndef DTC_RUNTIME_WIRE_H
#define DTC_RUNTIME_WIRE_H

#include "runtime/comm_op.h"

// Loads the MPI plug-in that goes with the launcher ("Open MPI", "MPICH", "Slurm").
int dt_wire_find(const char *launcher, DtError *e);
extern const DtTransport dt_wire_transport;

#endif
