// A number that only grows, and those who sleep until it has: the one thing that processes (in
// shared memory) and threads use to wait for one another.
//
// The writer stores the value and then looks whether anybody sleeps; the sleeper announces itself
// and then looks at the value again; both with sequential consistency, so no wake-up is lost. A
// process that is killed while it sleeps leaves `sleepers` too high, which costs the others a
// system call and nothing else.
#ifndef DTC_RUNTIME_COUNTER_H
#define DTC_RUNTIME_COUNTER_H

#include "runtime/base/processor.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct DtCounter {
  _Atomic uint64_t value; // its low half, which comes first, is the word to sleep on
  atomic_uint sleepers;
} DtCounter;
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the low half of a counter comes first");

static inline uint64_t dt_counter_get(DtCounter *c) {
  return atomic_load_explicit(&c->value, memory_order_acquire);
}

static inline void dt_counter_wake(DtCounter *c) {
  syscall(SYS_futex, &c->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static inline void dt_counter_set(DtCounter *c, uint64_t value) {
  atomic_store(&c->value, value);
  if (atomic_load(&c->sleepers)) dt_counter_wake(c);
}

// One more, by any of several writers.
static inline void dt_counter_ring(DtCounter *c) {
  atomic_fetch_add(&c->value, 1);
  if (atomic_load(&c->sleepers)) dt_counter_wake(c);
}

// Sleeps until the counter is other than `seen`, or that number of nanoseconds has passed, or for no
// reason.
static inline void dt_counter_nap(DtCounter *c, uint64_t seen, int64_t nanoseconds) {
  struct timespec t = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  atomic_fetch_add(&c->sleepers, 1);
  if (atomic_load(&c->value) == seen)
    syscall(SYS_futex, &c->value, FUTEX_WAIT, (uint32_t)seen, &t, NULL, 0);
  atomic_fetch_sub(&c->sleepers, 1);
}

static inline void dt_counter_sleep(DtCounter *c, uint64_t seen, int ms) {
  dt_counter_nap(c, seen, ms * (int64_t)1000000);
}

#endif
