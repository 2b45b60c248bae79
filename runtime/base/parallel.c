// The pool of threads. One region of parallel work is open at a time.
//
// A region is announced by making `ticket` odd and closed by making it even again. A worker joins
// by adding itself to `active` and then looking whether the ticket is still the one it saw; the
// caller closes the ticket and then waits for `active` to be 0. Both sides store before they load,
// with sequential consistency, so either the worker sees the region closed and reads nothing of it,
// or the caller sees the worker and waits for it. So a worker that is slow to wake costs nothing:
// the others finish the region without it.
#define _GNU_SOURCE
#include "runtime/base/parallel.h"

#include "runtime/base/processor.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE = 64, MAX_THREADS = 1024, DEFAULT_LOOKS = 4000, HUGE_PAGE = 2 << 20 };

// The chunks that one thread is to begin with, and how many of them are taken. A line each: no
// false sharing.
typedef struct {
  _Alignas(LINE) _Atomic int64_t next;
  int64_t end;
} Share;

typedef struct {
  int threads;
  atomic_int looks;
  pthread_t *thread; // [1, threads)
  Share *share;      // [threads]
  DtKernel *kernel;  // the open region
  void *const *arg;
  int64_t n, chunk;
  atomic_bool quit;
  _Alignas(LINE) atomic_uint ticket; // odd: a region is open
  atomic_int sleepers;               // workers asleep on ticket, or about to be
  _Alignas(LINE) atomic_uint active; // workers inside the open region
  atomic_int waiting;                // the caller sleeps on active, or is about to
} Pool;

static Pool pool = {.threads = 1, .looks = DEFAULT_LOOKS};
static _Thread_local struct {
  int number;
  bool inside; // in a kernel: a nested region runs on this thread alone
} self;

static void futex_wait(atomic_uint *word, unsigned value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

int dt_threads(void) {
  return pool.threads;
}
int dt_thread(void) {
  return self.number;
}
void dt_parallel_spin(int looks) {
  atomic_store(&pool.looks, looks < 0 ? 0 : looks);
}

// Takes and runs chunks until none is left: this thread's own first, then the other threads'.
static void work(void) {
  bool outer = self.inside;
  self.inside = true;
  for (int i = 0; i < pool.threads; i++) {
    Share *s = &pool.share[(self.number + i) % pool.threads];
    for (;;) {
      // The load keeps a counter that has run out from being written again and again.
      if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) break;
      int64_t c = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
      if (c >= s->end) break;
      int64_t begin = c * pool.chunk, left = pool.n - begin;
      pool.kernel(pool.arg, begin, left < pool.chunk ? pool.n : begin + pool.chunk);
    }
  }
  self.inside = outer;
}

static void join_region(unsigned ticket) {
  atomic_fetch_add(&pool.active, 1);
  if (atomic_load(&pool.ticket) == ticket) work();
  if (atomic_fetch_sub(&pool.active, 1) == 1 && atomic_load(&pool.waiting))
    futex_wake(&pool.active, 1);
}

// Waits until the ticket is other than `seen`; returns it.
static unsigned next_ticket(unsigned seen) {
  unsigned now;
  for (int i = 0, looks = atomic_load(&pool.looks); i < looks; i++) {
    if ((now = atomic_load(&pool.ticket)) != seen) return now;
    dt_pause();
  }
  atomic_fetch_add(&pool.sleepers, 1);
  while ((now = atomic_load(&pool.ticket)) == seen) futex_wait(&pool.ticket, seen);
  atomic_fetch_sub(&pool.sleepers, 1);
  return now;
}

static void *worker(void *number) {
  self.number = (int)(intptr_t)number;
  unsigned seen = 0;
  while (!atomic_load(&pool.quit)) {
    seen = next_ticket(seen);
    if (seen & 1) join_region(seen);
  }
  return NULL;
}

static void advance_ticket(void) {
  atomic_fetch_add(&pool.ticket, 1);
  if (atomic_load(&pool.sleepers)) futex_wake(&pool.ticket, pool.threads);
}

static int processors(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (int)n;
}

void dt_parallel_init(int threads) {
  dt_parallel_done();
  if (threads <= 0) threads = processors();
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  if (threads == 1) return;
  pool.thread = calloc((size_t)threads, sizeof *pool.thread);
  pool.share = aligned_alloc(LINE, (size_t)threads * sizeof *pool.share);
  if (!pool.thread || !pool.share) {
    dt_parallel_done();
    return;
  }
  atomic_store(&pool.ticket, 0);
  // Workers read pool.threads only once a region is open, and so after the last write here.
  for (int i = 1; i < threads; i++, pool.threads++)
    if (pthread_create(&pool.thread[i], NULL, worker, (void *)(intptr_t)i) != 0) break;
}

void dt_parallel_open(int threads, int ranks) {
  int here = processors();
  if (ranks < 1) ranks = 1;
  if (!threads) threads = here / ranks > 1 ? here / ranks : 1;
  if (threads * ranks > here) dt_parallel_spin(0);
  dt_parallel_init(threads);
}

void dt_parallel_done(void) {
  atomic_store(&pool.quit, true);
  if (pool.threads > 1) {
    atomic_fetch_add(&pool.ticket, 2); // still even: wakes everyone, opens nothing
    futex_wake(&pool.ticket, pool.threads);
  }
  for (int i = 1; i < pool.threads; i++) pthread_join(pool.thread[i], NULL);
  free(pool.thread);
  free(pool.share);
  pool.thread = NULL;
  pool.share = NULL;
  pool.threads = 1;
  atomic_store(&pool.quit, false);
  dt_scratch_free();
}

static void run_alone(DtKernel *k, void *const *arg, int64_t n, int64_t chunk) {
  for (int64_t begin = 0; begin < n; begin += chunk)
    k(arg, begin, n - begin < chunk ? n : begin + chunk);
}

// Waits for the workers to leave the region: a short while awake, since most are nearly done.
static void await_workers(void) {
  for (int i = 0, looks = atomic_load(&pool.looks); i < looks; i++) {
    if (atomic_load(&pool.active) == 0) return;
    dt_pause();
  }
  atomic_store(&pool.waiting, 1);
  for (unsigned a; (a = atomic_load(&pool.active)) != 0;) futex_wait(&pool.active, a);
  atomic_store(&pool.waiting, 0);
}

bool dt_rehearsing;

void dt_parallel(DtKernel *k, void *const *arg, int64_t n, int64_t chunk) {
  if (n <= 0 || dt_rehearsing) return;
  if (chunk < 1) chunk = 1;
  if (chunk >= n || pool.threads == 1 || self.inside) {
    run_alone(k, arg, n, chunk);
    return;
  }
  int64_t chunks = (n - 1) / chunk + 1;
  for (int i = 0; i < pool.threads; i++) {
    // chunks * threads cannot overflow: chunks of one element would need 2^53 of them.
    atomic_store_explicit(&pool.share[i].next, chunks * i / pool.threads, memory_order_relaxed);
    pool.share[i].end = chunks * (i + 1) / pool.threads;
  }
  pool.kernel = k;
  pool.arg = arg;
  pool.n = n;
  pool.chunk = chunk;
  advance_ticket(); // odd: open
  work();
  atomic_fetch_add(&pool.ticket, 1); // even: closed; no thread need wake for that
  await_workers();
}

static void touch_pages(void *const *arg, int64_t begin, int64_t end) {
  enum { PAGE = 4096 };
  // An atomic addition of 0 makes the page ours without changing it, even while another thread
  // writes it. The last byte may lie in a page that no step meets.
  volatile unsigned char *p = arg[0];
  for (int64_t i = begin; i < end; i += PAGE) __atomic_fetch_add(p + i, 0, __ATOMIC_RELAXED);
  if (end > begin) __atomic_fetch_add(p + end - 1, 0, __ATOMIC_RELAXED);
}

void dt_touch(void *p, size_t bytes) {
  uintptr_t begin = ((uintptr_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  uintptr_t end = ((uintptr_t)p + bytes) / HUGE_PAGE * HUGE_PAGE;
  if (end > begin) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
  void *arg[] = {p};
  dt_parallel(touch_pages, arg, (int64_t)bytes, HUGE_PAGE);
}
