// One operation on its way from the thread that posts it to the thread that carries it out, and
// what that thread needs of a transport. Used by runtime/comm/ and by the links of
// devices (runtime/device/links.h) only.
#ifndef DTC_RUNTIME_COMM_OP_H
#define DTC_RUNTIME_COMM_OP_H

#include "runtime/comm.h"
#include "runtime/base/counter.h"
#include "runtime/base/real.h"
#include "runtime/device.h"

#include <stdatomic.h>
#include <stddef.h>

typedef enum DtOpKind {
  DT_OP_ALL_REDUCE,
  DT_OP_REDUCE_SCATTER,
  DT_OP_ALL_GATHER,
  DT_OP_ALL_TO_ALL,
  DT_OP_SHIFT,
  DT_OP_BROADCAST,
  DT_OP_SEND,
  DT_OP_RECV,
  DT_OP_BARRIER,
  DT_OP_KINDS
} DtOpKind;
extern const char *const dt_op_name[DT_OP_KINDS]; // "all_reduce", ...

typedef struct DtOp {
  DtOpKind kind;
  DtType type;
  DtReduce reduce;
  int peer;         // number within the group: root, receiver, sender
  const DtGroup *g; // of two members or more
  const void *in;
  void *out;
  int64_t count; // elements, as comm.h says for each operation; none only in a barrier
  int64_t step;  // of the run, when it was posted
  int64_t micro; // of the step, or -1
  DtNote note;
  int64_t posted; // nanoseconds, for the profile; or 0
  bool control;   // of the host's memory, not the device's
  DtMark after;   // of the device: what is behind it may not be read or written before
  // Devices exchange the arrays (runtime/device/links.h): ranks meet here without them, and see that they mean the same
  // operation. A send waits for its receive, and hands over DT_TOKEN bytes; any other one may go on before all have come.
  bool apart;
  void *token;     // of a send or a receive
  uint64_t number; // of the group's operations whose members meet so, from 0
  bool unlinks;    // none: devices exchange no more
  DtMark done;     // of the device, once it is enqueued there: behind the operation
} DtOp;
enum { DT_LINK_ID = 128, DT_TOKEN = DT_LINK_ID + 4 };

// A receive under way: while others are, and while operations are carried out.
typedef struct DtReceive {
  DtOp op;
  int64_t since, begun; // nanoseconds: when it was taken up; when data came or somebody waited
  bool whole;           // all data is there
  // The transport's own, zero at first: what is there, in its units; where it comes from.
  int64_t there;
  int place;
  // Where devices exchange the arrays: how far it is (runtime/comm/links.c), and what came with it.
  int stage;
  char token[DT_TOKEN];
} DtReceive;

// How ranks are connected. Called by the communication thread, but for close, bytes and used. Any but
// run, look, receive, expect, patience, bytes and used may be NULL.
typedef struct DtTransport {
  const char *opens;           // the call in which open waits for the others, "MPI_Init"; NULL: it does not wait
  int (*open)(DtError *e);     // before all else
  DtCounter *(*bell)(void);    // rung when something has come for a receive; NULL: ask for that
  void (*run)(const DtOp *op); // returns when the operation is complete here; ends the thread where
                               // dt_comm_leaving() before that. Waits with dt_receive_all() now and
                               // then. Any operation but a receive.
  bool (*receive)(DtReceive *r); // takes what is there, without waiting: whether that is all. Those
                                 // from one rank are called in their order, one after another.
  void (*expect)(const DtOp *op); // when nothing runs: the steps wait for it; NULL: no more
  // Devices are at this operation, and `seconds` have passed since it began there (`begun`) or its members met:
  // tells the others, and ends the process where a member is lost, or late. NULL: none is under way.
  void (*watch)(const DtOp *op, bool begun, double seconds);
  // They have waited so long for it: ends the process where the sender is lost.
  void (*patience)(const DtReceive *r, double seconds);
  void (*look)(void);          // every DT_LOOK_MS or more often, when nothing runs: are peers well?
  void (*finish)(void);        // last, with no operation under way
  void (*close)(void);         // after the thread has ended
  int64_t (*bytes)(void); // of memory that this rank has for it: its part of what ranks share
  int64_t (*used)(void);  // of them, as far as they were written (runtime/base/canary.h)
} DtTransport;

enum { DT_LOOK_MS = 200 }; // how often peers are looked at, and the length of any sleep at most

static inline int64_t dt_least(int64_t a, int64_t b) { return a < b ? a : b; }

// runtime/comm/reduce.c: out[i] = source[0][i] op source[1][i] op ..., in this order. out may be
// one of the sources.
void dt_reduce(DtType type, DtReduce op, void *out, const void *const *source, int n,
               int64_t count);

// runtime/comm/world.c: the mesh and the groups of a world in which this process is `rank`.
enum { DT_GROUPS = 64 };                                     // most groups that a world may have
int dt_world_fits(const DtProgram *p, int size, DtError *e); // 78 where it does not
void dt_world_set(const DtProgram *p, int rank, int size, int local_rank, int local_size);
// Which group has which number, by a key that all members compute alike: an array that a transport
// may replace by one that all ranks share, before the first group is cut.
extern _Atomic uint64_t *dt_group_registry;

// runtime/comm/comm.c
// Posts an operation, or does it where the group has one member or there is nothing to move; the ticket then is 0.
DtTicket dt_op_begin(const DtOp *op);
int dt_comm_run(const DtTransport *t, double timeout, DtError *e); // starts the thread
const DtTransport *dt_comm_transport(void); // NULL: this is the only rank
double dt_comm_limit(void);        // seconds that a peer may be silent, now
double dt_comm_late_limit(void);   // and that one may be away that is alive, but at files
bool dt_comm_at_files(void);       // as dt_comm_files says
bool dt_comm_leaving(void);        // dt_comm_stop was called: give up
const DtOp *dt_comm_current(void); // what the communication thread is at, or NULL
int64_t dt_comm_at_step(void);     // that the run is at, 0 before the first

void dt_comm_at(const DtOp *op);   // that it is at this; NULL: at nothing
void dt_comm_waited(int64_t since);       // the steps have waited for an operation since then (nanoseconds)
// Puts what has just been completed, begun at `begin` (nanoseconds), into the profile.
void dt_op_trace(const DtOp *op, int64_t begin, bool receive);

// runtime/comm/links.c. Operations that devices carry out.
bool dt_linked(const DtOp *op);          // whether this is one
DtMark dt_link_point(void);              // behind which it comes
void dt_link_run(DtOp *op);              // enqueues it, once its members have met; any but a receive
bool dt_link_receive(DtReceive *r);      // whether it is enqueued
void dt_link_wait(void);                 // the steps wait until one is enqueued
void dt_link_follow(DtMark mark);        // later calls of the device come after it
bool dt_link_progress(void);             // looks at those under way: whether there are any
bool dt_link_busy(void);                 // whether there are, or receives that are being enqueued
void dt_link_look(int64_t nanoseconds);  // that so much time has passed
void dt_link_check(void);                // ends the process where devices cannot exchange any more
double dt_link_stalled(void);            // seconds since the last call in which the device waited for them
void dt_link_close(void);
void dt_link_abort(void); // by any thread, in no more than ten seconds

// runtime/comm/receive.c. Receives: under way together, in the order of each sender's.
void dt_receive_open(const DtTransport *t, DtCounter *bell, int delay_ms);
DtTicket dt_receive_post(const DtOp *op);
bool dt_is_receive(DtTicket t);
void dt_receive_wait(DtTicket t);
// By the communication thread: goes on with all that are under way, as far as that needs no
// waiting. Whether any are left.
bool dt_receive_all(void);
// With nothing else to do, sleeps until the bell is no longer at `rung`, or some time has passed.
void dt_receive_rest(uint64_t rung, bool left);
void dt_receive_leave(void); // something else is to be done

// runtime/comm/fault.c: reports this rank's operation, and why it cannot go on; ends the process.
_Noreturn void dt_comm_end(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// "all_reduce of wte.weight (1024 bytes over dp: ranks 0 2), step 3, gpt2.dt:14"
void dt_op_text(char *text, size_t n, const DtOp *op);
// Milliseconds between that message and the end: on several machines the launcher ends all ranks
// when the first has gone, and others that find the fault at about the same time must report it, too.
extern int dt_comm_linger_ms;
void dt_comm_rest(void); // for that long
// Members at different operations differ in this. Send and receive are one.
uint64_t dt_op_hash(const DtOp *op);

// The operation that a rank is at, as text, since other processes do not have its strings. Written without
// a lock, and used in messages only.
typedef struct DtDoing {
  int kind; // DtOpKind, or -1: nothing
  int64_t layer, bytes, step, micro;
  int files; // whether the steps are at files: of use where kind is -1
  char what[72], source[48], axes[24];
  char activity[48]; // of the thread that runs the steps
} DtDoing;
void dt_doing_operation(DtDoing *d, const DtOp *op); // NULL: none
void dt_doing_activity(DtDoing *d);                  // what this process is at, besides
// "it was last seen in all_reduce of wte.weight (1024 bytes over dp), step 3, gpt2.dt:14"
void dt_doing_text(char *text, size_t n, const DtDoing *d);
// Of the `waited` seconds of a wait those for which a peer may be blamed: those since it was last
// seen `at_files`, if it was. Called at every look, of one wait after the other.
double dt_blamed(double waited, bool at_files);

#endif
