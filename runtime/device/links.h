// How devices exchange arrays themselves, where the host's transports (runtime/comm/comm_op.h) do not reach their memory. A
// link connects the members of a group, or one rank with one to which it sends. Operations of links are enqueued, as kernels
// are, and run on the device beside those. An operation waits for kernels that were enqueued before it was posted; kernels that
// are enqueued after `follow` wait for it. The host waits for neither.
//
// All functions but those of the thread that posts are called by the communication thread (`open`: before there is one at work).
#ifndef DTC_RUNTIME_LINKS_H
#define DTC_RUNTIME_LINKS_H

#include "runtime/comm/comm_op.h"

typedef struct DtLink DtLink;
typedef enum DtLinkState { DT_LINK_WAITS, DT_LINK_BEGUN, DT_LINK_ENDED } DtLinkState;

typedef struct DtLinks {
  // Sums are taken in the order of members where `exact`; else in an order that depends on the layout alone. 71.
  int (*open)(bool exact, DtError *e);
  const char *(*name)(void); // "NCCL 2.28.9": the same on all ranks
  // A link of n members, of which this is number `me`: one makes the id (DT_LINK_ID bytes), and all join with it. `joined`:
  // whether all have.
  void (*make_id)(void *id);
  DtLink *(*join)(const void *id, int n, int me, bool pair); // pair: from member 0 to member 1
  bool (*joined)(DtLink *l);
  // By the thread that posts: a point behind all that is enqueued, for DtOp.after. One operation takes it.
  DtMark (*point)(void);
  // Enqueues an operation of a group, or a send, whose receiver is member 1. Calls idle() while it needs more time.
  DtMark (*run)(DtLink *l, const DtOp *op, void (*idle)(void));
  // Enqueues a receive from member 0; then `received` is 0 as long as it needs more time.
  void (*receive)(DtLink *l, const DtOp *op);
  DtMark (*received)(DtLink *l);
  // A mark is good until it was seen to have ended.
  DtLinkState (*state)(DtMark mark);
  // By the thread that posts: its kernels wait from here on (`wait`), until the mark has ended (`follow`).
  void (*wait)(void);
  void (*follow)(DtMark mark);
  const char *(*failed)(void); // why exchanged data is not valid any more, or NULL
  void (*abort)(void);         // by any thread: ends what is under way
  void (*close)(void (*idle)(void)); // with nothing under way, on all ranks
  // By the thread that posts, once all has run: seconds that its kernels waited between `wait` and `follow`, since the last
  // call.
  double (*stalled)(void);
} DtLinks;

// NULL: the host's transports reach the device's memory.
const DtLinks *dt_device_links(void);

#endif
