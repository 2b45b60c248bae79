// Scratch memory of threads: a mapping for each, all made at once before the first kernel.
#define _GNU_SOURCE
#include "runtime/base/parallel.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096, HUGE_PAGE = 2 << 20, BUG = 70 };

typedef struct Scratch {
  _Alignas(LINE) char *at;
  size_t asked; // the most so far; written by its thread alone
} Scratch;

static struct {
  Scratch *of; // [threads]
  int threads;
  size_t bytes;
} all;
static _Thread_local Scratch *mine;

size_t dt_scratch_mapped(size_t bytes) {
  return bytes ? (bytes + DT_SCRATCH_SLACK + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : 0;
}

void dt_scratch_free(void) {
  for (int t = 0; t < all.threads; t++)
    if (all.of[t].at) munmap(all.of[t].at, dt_scratch_mapped(all.bytes));
  free(all.of);
  memset(&all, 0, sizeof all);
  mine = NULL;
}

// Each thread takes its scratch and is the first to touch it. A thread continues when all have
// come, so that none takes two of the chunks, which are as many as threads.
static void take(void *const *arg, int64_t begin, int64_t end) {
  atomic_int *come = arg[0];
  (void)begin, (void)end;
  mine = &all.of[dt_thread()];
  for (size_t i = 0; all.bytes && i < all.bytes + DT_SCRATCH_SLACK; i += PAGE)
    *(volatile char *)(mine->at + i) = 0;
  atomic_fetch_add(come, 1);
  while (atomic_load(come) < all.threads) sched_yield();
}

static bool map(Scratch *s) {
  size_t mapped = dt_scratch_mapped(all.bytes);
  void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  madvise(p, mapped, MADV_HUGEPAGE);
  s->at = p;
  return true;
}

int dt_scratch_plan(size_t bytes) {
  dt_scratch_free();
  size_t n = (size_t)dt_threads();
  all.of = aligned_alloc(LINE, n * sizeof *all.of);
  if (!all.of) return -1;
  memset(all.of, 0, n * sizeof *all.of);
  all.threads = (int)n;
  all.bytes = bytes;
  for (size_t t = 0; bytes && t < n; t++)
    if (!map(&all.of[t])) {
      dt_scratch_free();
      return -1;
    }
  atomic_int come = 0;
  void *arg[] = {&come};
  dt_parallel(take, arg, (int64_t)n, 1);
  return 0;
}

static _Noreturn void too_much(size_t bytes) {
  fprintf(stderr, "a bug: a kernel asks for %zu bytes of scratch, and %zu were planned\n", bytes,
          mine ? all.bytes : 0);
  fflush(stderr);
  _exit(BUG); // other threads are at work
}

void *dt_scratch(size_t bytes) {
  if (!mine || bytes > all.bytes) too_much(bytes);
  if (bytes > mine->asked) mine->asked = bytes;
  return mine->at;
}

void *dt_scratch_of(int thread) { return thread < all.threads ? all.of[thread].at : NULL; }
size_t dt_scratch_asked(int thread) { return thread < all.threads ? all.of[thread].asked : 0; }
