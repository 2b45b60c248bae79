// Operations by which ranks exchange facts about the run: agreement, handshake, loss and norm, the profile. The arrays are in the
// host's memory, and each function returns when the result is there. Arrays of kernels are exchanged by
// runtime/comm.h. All members call the operations of both in the same order.
#ifndef DTC_RUNTIME_CONTROL_H
#define DTC_RUNTIME_CONTROL_H

#include "runtime/comm.h"

// v becomes the reduction of all members' v.
void dt_control_reduce(const DtGroup *g, DtType type, DtReduce op, void *v, int64_t count, DtNote note);
// `all` has the arrays of all members, `count` elements each.
void dt_control_gather(const DtGroup *g, DtType type, const void *mine, void *all, int64_t count, DtNote note);
// Everybody has member `root`'s array.
void dt_control_broadcast(const DtGroup *g, DtType type, int root, void *data, int64_t count, DtNote note);
void dt_control_send(const DtGroup *g, int to, DtType type, const void *data, int64_t count, DtNote note);
void dt_control_receive(const DtGroup *g, int from, DtType type, void *data, int64_t count, DtNote note);
void dt_barrier(const DtGroup *g);

// The least of `status` that is not 0 over all ranks, or 0: for agreeing that something failed
// anywhere (a file that cannot be written, a stop signal) before anybody goes on.
int dt_agree(int status);

#endif
