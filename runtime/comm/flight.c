#define _GNU_SOURCE
#include "runtime/comm/flight.h"

#include "runtime/comm.h"
#include "runtime/layers.h"
#include "runtime/base/trace.h"

#include <sys/mman.h>
#include <ucontext.h>

// The sanitizers must know of every change of stacks.
#if defined(__has_feature)
#define HAS(x) __has_feature(x)
#else
#define HAS(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define ADDRESS 1
#else
#define ADDRESS 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define THREAD 1
#else
#define THREAD 0
#endif

enum { STACK = 8 << 20, GUARD = 64 << 10 }; // as a main thread's; pages are taken as they are used

// One of the two calls: where it goes on, and what the runtime is to know of it then.
typedef struct Side {
  ucontext_t at;
  DtPlace place;
  bool done;
  void *fiber; // of the thread sanitizer
  void *fake;  // of the address sanitizer: what it keeps with a stack
  const void *bottom;
  size_t size;
} Side;

static struct {
  char *stack;
  bool running;
  int now; // whose turn it is
  Side side[DT_MOST_IN_FLIGHT];
  DtEntry *entry;
  const DtCall *call; // the second's
  const char *name;
} flight;

int dt_flight_open(DtError *e) {
  void *p = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED || mprotect(p, GUARD, PROT_NONE))
    return dt_fail_errno(e, DT_EXIT_OS, "no memory for", "the second microbatch's stack");
  flight.stack = p;
  flight.side[1].bottom = flight.stack + GUARD;
  flight.side[1].size = STACK;
#if THREAD
  flight.side[0].fiber = __tsan_get_current_fiber();
  flight.side[1].fiber = __tsan_create_fiber(0);
#endif
  return 0;
}

void dt_flight_close(void) {
  if (!flight.stack) return;
#if THREAD
  __tsan_destroy_fiber(flight.side[1].fiber);
#endif
  munmap(flight.stack, GUARD + STACK);
  flight.stack = NULL;
}

static void leave(Side *from, const Side *to) {
  from->place = dt_comm_place();
#if ADDRESS
  __sanitizer_start_switch_fiber(from->done && from == &flight.side[1] ? NULL : &from->fake,
                                 to->bottom, to->size);
#endif
  (void)to;
}

// By the function that changes stacks itself: the thread sanitizer follows calls, a fiber's each.
static inline __attribute__((always_inline)) void switch_fiber(const Side *to) {
#if THREAD
  __tsan_switch_to_fiber(to->fiber, 0);
#endif
  (void)to;
}

// The first thing that a side does when its turn has come.
static void arrive(int number) {
  Side *here = &flight.side[number];
#if ADDRESS
  Side *other = &flight.side[1 - number];
  const void *bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(here->fake, &bottom, &size);
  if (number == 1) other->bottom = bottom, other->size = size;
#endif
  flight.now = number;
  dt_comm_go(here->place);
  dt_trace_row(number);
}

static void change_turns(void) {
  int me = flight.now;
  Side *from = &flight.side[me], *to = &flight.side[1 - me];
  leave(from, to);
  switch_fiber(to);
  swapcontext(&from->at, &to->at);
  arrive(me);
}

static void second(void) {
  arrive(1);
  dt_trace_begin(flight.name);
  flight.entry(flight.call);
  dt_trace_end(flight.name);
  flight.side[1].done = true;
  leave(&flight.side[1], &flight.side[0]);
  switch_fiber(&flight.side[0]);
  setcontext(&flight.side[0].at);
}

// A separate function: getcontext may return twice, and values in registers are lost then.
static void prepare(ucontext_t *at) {
  getcontext(at);
  at->uc_stack.ss_sp = flight.stack + GUARD;
  at->uc_stack.ss_size = STACK;
  at->uc_link = NULL;
  makecontext(at, second, 0);
}

void dt_flight_run(DtEntry *entry, const char *name, const DtCall *first,
                   const DtCall *after, int64_t micro) {
  Side *other = &flight.side[1];
  flight.entry = entry;
  flight.call = after;
  flight.name = name;
  flight.side[0].done = other->done = false;
  other->place = (DtPlace){micro + 1, -1};
  other->fake = NULL;
  prepare(&other->at);
  dt_comm_go((DtPlace){micro, -1});
  flight.now = 0;
  flight.running = true;
  entry(first);
  flight.side[0].done = true;
  if (!other->done) change_turns(); // from here on it has no reason to come back before its end
  flight.running = false;
}

void dt_wait_aside(DtTicket t) {
  if (flight.running && !flight.side[1 - flight.now].done) change_turns();
  dt_wait(t);
}
