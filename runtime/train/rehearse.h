// A rehearsal: the run's own code goes through its steps and a validation with nothing computed,
// loaded or sent, and the operations that it would exchange with other ranks are listed. The order is that of
// the code that runs later, so the list holds for the run. Ranks then compare their lists.
//
// The emitted functions take part: their launches are skipped, their operations are listed.
#ifndef DTC_RUNTIME_REHEARSE_H
#define DTC_RUNTIME_REHEARSE_H

#include "runtime/comm/comm_op.h"
#include "runtime/train/run.h"
#include "runtime/comm/sequence.h"

// By runtime/comm/comm.c while dt_rehearsing: an operation that would be posted, and a wait for a
// receive. Tickets are numbers of receives, or 0.
DtTicket dt_rehearse_post(const DtOp *op);
void dt_rehearse_wait(DtTicket receive);

// Rehearses two steps (the second knows its totals), a validation and a text. Regions may have been
// written to: it comes before they are filled. 71 where there is no memory for the list.
int dt_rehearse(DtRun *r, bool training, DtError *e);

// By all ranks: each group's members post the same operations in the same order, by the hashes of these;
// and of each pipeline its ranks, one of each stage, get to the end of it if every send waits for
// its receive. 76 where members differ, 70 where ranks do not get to the end: with two ranks, their
// operations and lines. The list is gone then.
int dt_rehearse_compare(DtError *e);

// Parts of that, of the rank in dt_world. Between them an operation that is posted is kept, not
// carried out.
void dt_rehearse_begin(void);
bool dt_rehearse_end(void); // false where there was no memory
// What was kept of messages between stages and of operations of all of them, as turns: malloc's,
// and where each is in the list. NULL where there is no memory.
DtTurn *dt_rehearse_turns(int64_t *n, int64_t **place);
// "send of wte.weight (512 bytes to rank 2 over pp: ranks 0 2), model.dt:3"
void dt_rehearse_text(char *to, size_t n, int64_t place);
void dt_rehearse_free(void);

#endif
