// Operations that ranks exchange arrays by.
//
// The world is `size` ranks on the mesh (tp, cp, dp, pp), numbered tp fastest:
//   rank = tp + TP * (cp + CP * (dp + DP * pp))
// tp may be two factors: a rank's number along it is that along the inner one, plus the inner one's
// size times that along the outer one. Where it is not, the outer one has size 1.
// A group is the ranks that differ in some of the axes only, in the order of their ranks. All
// members call the same operations of a group in the same order. Sums are taken over the members in
// their order, element by element, so that every member gets the same bits, however an array is
// cut.
//
// The arrays are in the device's memory (runtime/device.h). An operation reads and writes them behind all that the
// device was called to do before the post, and before what it is called to do after the wait: dt_wait means that later
// launches may read the result and write the operands. In between the arrays belong to the operation. Numbers that the host
// reads are exchanged by runtime/control.h.
//
// Operations are posted to one thread, which carries them out in the order of posting, and are
// waited for by their tickets. Where a
// peer is lost or silent, the process prints who, which operation and where in the source, and ends
// with status 69: no function returns an error for that.
#ifndef DTC_RUNTIME_COMM_H
#define DTC_RUNTIME_COMM_H

#include "runtime/base/error.h"
#include "runtime/program.h"

enum { DT_AXIS_TP, DT_AXIS_TP_OUTER, DT_AXIS_CP, DT_AXIS_DP, DT_AXIS_PP, DT_AXES };
enum { DT_TP_AXES = 1 << DT_AXIS_TP | 1 << DT_AXIS_TP_OUTER, DT_ALL_AXES = (1 << DT_AXES) - 1 };
extern const char *const dt_axis_name[DT_AXES]; // "tp" "tp" "cp" "dp" "pp"

// Where this process is: every field is known before the first operation.
typedef struct DtWorld {
  int rank, size;
  int degree[DT_AXES], coord[DT_AXES];
  int local_rank, local_size; // among the ranks on this machine
} DtWorld;
extern DtWorld dt_world;
// The degree of tp, and this rank's number along it: of both factors.
static inline int dt_tp_degree(void) {
  return dt_world.degree[DT_AXIS_TP] * dt_world.degree[DT_AXIS_TP_OUTER];
}
static inline int dt_tp_coord(void) {
  return dt_world.coord[DT_AXIS_TP] +
         dt_world.degree[DT_AXIS_TP] * dt_world.coord[DT_AXIS_TP_OUTER];
}

// The degrees of the mesh that a launch of `size` ranks has.
void dt_mesh_degrees(const DtProgram *p, int size, int to[DT_AXES]);

// Members of a group by number; the process itself is number `me`.
typedef struct DtGroup {
  int n, me;
  const int *rank;  // of each member, ascending
  const char *axes; // "tp", "cp,dp", ...: for messages and the profile
  int id;
} DtGroup;

// The group of ranks that agree with this one in all axes but those in `mask` (1 << DT_AXIS_TP |
// ...). Groups are made at start and live as long as the process.
const DtGroup *dt_group(unsigned mask);
// Members of a group cut into consecutive parts of `part` members (part divides n), and the group
// of members with the same number within their parts: ZeRO groups and what replicates them.
const DtGroup *dt_group_within(const DtGroup *g, int part);
const DtGroup *dt_group_across(const DtGroup *g, int part);

// The purpose of an operation, for messages and the profile. Strings live as long as the program.
// All members of an operation, sender and receiver too, give the same `what` and `layer` for the same
// microbatch: this is checked, and ends the process with 70.
typedef struct DtNote {
  const char *what;   // "blocks.*.mlp.fc.weight"
  int64_t layer;      // which of a stack; -1: the one that the rank is in, if any
  const char *source; // "gpt2.dt:14"; NULL: none
} DtNote;

typedef enum DtReduce { DT_SUM, DT_MAX, DT_MIN } DtReduce;
typedef uint64_t DtTicket;

// `count` elements of `type` in each array unless said otherwise. In place (out == in, or out at
// the member's own piece of in) is fine where sizes allow it. A group of one copies. BF16 and F16 are
// reduced in float, in the order of members, and rounded once.
//
// out = the reduction of all members' in.
DtTicket dt_all_reduce(const DtGroup *g, DtType type, DtReduce op, const void *in, void *out,
                       int64_t count, DtNote note);
// Pieces: member k's is elements [k * c, min(count, (k + 1) * c)), c = ceil(count / n).
// `in` has count elements, out this member's piece.
DtTicket dt_reduce_scatter(const DtGroup *g, DtType type, DtReduce op, const void *in, void *out,
                           int64_t count, DtNote note);
// `in` is this member's piece, out has count elements.
DtTicket dt_all_gather(const DtGroup *g, DtType type, const void *in, void *out, int64_t count,
                       DtNote note);
// Both have n equal parts, `count` elements in all: part k of out comes from member k.
DtTicket dt_all_to_all(const DtGroup *g, DtType type, const void *in, void *out, int64_t count,
                       DtNote note);
// Member k's array goes to member k + 1, the last one's to the first. in and out lie apart.
DtTicket dt_shift(const DtGroup *g, DtType type, const void *in, void *out, int64_t count,
                  DtNote note);
// Everybody has member `root`'s array.
DtTicket dt_broadcast(const DtGroup *g, DtType type, int root, void *data, int64_t count,
                      DtNote note);
// Between two members; sends and receives of a pair match in their order. A send may wait until its
// receive is posted. Operations that are posted after a receive do not wait for it, nor does a receive
// wait for those before it, but for receives from the same rank; all else is carried out in order.
DtTicket dt_send(const DtGroup *g, int to, DtType type, const void *data, int64_t count,
                 DtNote note);
DtTicket dt_recv(const DtGroup *g, int from, DtType type, void *data, int64_t count, DtNote note);
void dt_wait(DtTicket t);
// As dt_wait, in emitted code: the other one of two microbatches in flight (runtime/comm/flight.h) first
// runs until it waits too, or ends.
void dt_wait_aside(DtTicket t);
// For all receives from the first to the last ticket; 0 where there are none.
void dt_wait_receives(DtTicket first, DtTicket last);
// Finds out who this process is and connects. Call it before there are threads. `timeout`: seconds
// that a peer may be silent; 0: 100, or ten steps where that is more. `ranks` > 0 starts that many
// local processes, of which the caller goes on in one (each child returns from here as a rank; the
// parent never returns: it waits, and exits with the status that the ranks agree on); 0: the
// environment says (torchrun's, Slurm's, mpirun's variables), or this is the only rank. 78 where
// the world does not fit the mesh.
int dt_comm_start(const DtProgram *p, int ranks, double timeout, DtError *e);
// Instead of dt_comm_start, where this process cannot go on: ranks of the same launcher on this
// machine do not wait for it.
void dt_comm_decline(void);
// Whether all ranks run the same build with the same layout, options and data: 76 names the first
// that differs and in what. `text` is a line for each thing compared, "what: value"; what follows a
// tab in a line is reported, and not compared.
int dt_comm_handshake(const char *text, DtError *e);
// Where devices exchange arrays themselves (runtime/device/links.h), they do so from here on: after dt_device_open, on all
// ranks, before the first operation of the device's arrays. `exact`: sums in the order of members. 71.
int dt_comm_link(bool exact, DtError *e);
// Before dt_device_close, on all ranks.
void dt_comm_unlink(void);
const char *dt_comm_links(void); // their name, "NCCL 2.28.9"; NULL: they do not
// Step `step` begins: messages name it, and the time that steps take says how long a peer may be
// silent where --timeout does not. The first step may take longer than the others.
void dt_comm_step(int64_t step);
// Seconds since the last call in which kernels of this rank waited for operations on the device's arrays: once the device has
// run all.
double dt_comm_exposed(void);
// The steps are at files from here on, or no longer: that takes as long as disks take, and peers that
// wait do so for as long as this rank shows that it lives.
void dt_comm_files(bool on);
// Operations posted from here on are reported as of this microbatch of the step, by the rank's own number;
// -1: of none.
void dt_comm_micro(int64_t micro);
// The microbatch and layer that operations posted from here on are reported as of. Where two
// microbatches take turns, each takes up its own.
typedef struct DtPlace {
  int64_t micro, layer; // -1: none
} DtPlace;
DtPlace dt_comm_place(void);
void dt_comm_go(DtPlace place);
// The signal that the parent of `--ranks` got and that asks for a stop, or SIGTERM where the
// launcher is gone, or 0. Ranks see it at different steps: dt_agree on it.
int dt_comm_stop_request(void);
// Bytes that this rank's part in exchanging data takes, from dt_comm_start on; 0: it is alone. And those
// of a launch of `ranks` ranks, on one machine where it may have that number.
int64_t dt_exchange_bytes(void);
int64_t dt_exchange_used(void); // as far as they were written, where that is watched
int64_t dt_exchange_plan(int ranks);
// Leaves the world: operations that were posted have been waited for, or are given up. Peers that
// still wait for this rank end with status 69.
void dt_comm_stop(void);

#endif
