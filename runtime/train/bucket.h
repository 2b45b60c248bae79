// Small units outside stacks are exchanged several at a time, as one array: of each owner the
// pieces of all of them, one after the other. Who owns an element, and in which order it is summed,
// is as it is alone, so that buckets change no bit.
#ifndef DTC_RUNTIME_BUCKET_H
#define DTC_RUNTIME_BUCKET_H

#include "runtime/train/zero.h"

// The units from `unit` on, before `end`, that go with it: those of its bucket, or itself alone.
int64_t dt_bucket_end(const DtUnits *u, int64_t unit, int64_t end);
// The first unit of the bucket that `unit` is in.
int64_t dt_bucket_begin(const DtUnits *u, int64_t unit);

// Units [from, to) are those of a bucket, or some of them in a row. Arriving elements lie in z->packed
// until they are taken: one exchange of a bucket at a time.
//
// Sends this rank's pieces of the parameters to all owners.
DtTicket dt_bucket_gather(const DtZero *z, int64_t from, int64_t to);
// They have arrived: puts them into their places, at their units' offsets of `whole`.
void dt_bucket_spread(const DtZero *z, int64_t from, int64_t to, char *whole);
// Sends gradients, at their units' offsets of z->grad, to the owners' sum.
DtTicket dt_bucket_reduce(const DtZero *z, int64_t from, int64_t to);
// They have arrived: adds this rank's pieces of the sum to those it has, or stores them.
void dt_bucket_add(const DtZero *z, int64_t from, int64_t to, bool store);

#endif
