// The thread pool: every element once, whatever the chunk and the number of threads; regions in
// quick succession and after sleep; nested regions; scratch memory; first touch.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/parallel.h"

static atomic_int failures;

static void expect(int ok, const char *what) {
  if (ok) return;
  printf("not so: %s\n", what);
  atomic_fetch_add(&failures, 1);
}

static void count_each(void *const *arg, int64_t begin, int64_t end) {
  int64_t n = *(int64_t *)arg[1], chunk = *(int64_t *)arg[2];
  expect(begin % chunk == 0 && end == (begin + chunk < n ? begin + chunk : n),
         "a chunk is cut by size alone");
  for (int64_t i = begin; i < end; i++) ((int *)arg[0])[i]++;
}

static void check_cover(int64_t n, int64_t chunk) {
  int *seen = calloc((size_t)n + 1, sizeof *seen);
  void *arg[] = {seen, &n, &chunk};
  int64_t cut = chunk > n ? (n > 0 ? n : 1) : chunk;
  arg[2] = &cut;
  dt_parallel(count_each, arg, n, chunk);
  int good = seen[n] == 0;
  for (int64_t i = 0; i < n; i++) good &= seen[i] == 1;
  expect(good, "every element is computed once");
  free(seen);
}

static void add_one(void *const *arg, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) ((int *)arg[0])[i]++;
}

// Each region reads what the one before wrote: a lost or late chunk shows.
static void check_succession(int regions) {
  int value[7] = {0};
  void *arg[] = {value};
  for (int i = 0; i < regions; i++) dt_parallel(add_one, arg, 7, 1);
  for (int i = 0; i < 7; i++) expect(value[i] == regions, "regions follow one another");
}

static void nested(void *const *arg, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    void *inner[] = {(int *)arg[0] + i * 100};
    dt_parallel(add_one, inner, 100, 9);
  }
}

static void use_scratch(void *const *arg, int64_t begin, int64_t end) {
  size_t bytes = 1000 * (size_t)(begin + 1);
  unsigned char *p = dt_scratch(bytes);
  expect((uintptr_t)p % 64 == 0, "scratch is aligned");
  memset(p, (int)begin, bytes);
  for (size_t i = 0; i < bytes; i++)
    if (p[i] != (unsigned char)begin) expect(0, "scratch belongs to its thread");
  ((int *)arg[0])[begin] = (int)end;
}

static void check_touch(void) {
  size_t bytes = (9 << 20) + 123;
  unsigned char *p = malloc(bytes);
  memset(p, 42, bytes);
  dt_touch(p, bytes);
  int same = 1;
  for (size_t i = 0; i < bytes; i++) same &= p[i] == 42;
  expect(same, "dt_touch keeps contents");
  dt_touch(p, 0);
  free(p);
}

static void take_scratch(void *const *arg, int64_t begin, int64_t end) {
  (void)end;
  ((void **)arg[0])[begin] = dt_scratch(100);
}

// Scratch is there before it is asked for, and what was asked for is known.
static void check_scratch(int threads) {
  void *at[64], *arg[] = {at};
  expect(dt_scratch_plan(40000) == 0, "scratch is planned");
  for (int t = 0; t < threads; t++)
    expect(dt_scratch_of(t) && !dt_scratch_asked(t), "each thread has some and asked for none");
  expect(!dt_scratch_of(threads), "there is none for a thread that is not");
  dt_parallel(take_scratch, arg, 64, 1);
  for (int i = 0, known = 0; i < 64; i++, known = 0) {
    for (int t = 0; t < threads; t++) known |= at[i] == dt_scratch_of(t);
    expect(known, "what is given is what was planned");
  }
  expect(dt_scratch(40000) == dt_scratch_of(0) && dt_scratch_asked(0) == 40000,
         "all of it may be asked for");
}

// More is a bug, told by the process that ends.
static void check_too_much(void) {
  pid_t child = fork();
  if (!child) {
    dt_parallel_init(1);
    if (dt_scratch_plan(1000) == 0) dt_scratch(1001);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 70, "more than was planned ends with 70");
}

static void check_pool(int threads, int looks) {
  static const int64_t sizes[] = {0, 1, 2, 63, 64, 1000};
  static const int64_t chunks[] = {1, 2, 7, 64, 5000};
  dt_parallel_spin(looks);
  dt_parallel_init(threads);
  expect(dt_threads() == threads, "the pool has the threads asked for");
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < 5; j++) check_cover(sizes[i], chunks[j]);
  check_succession(looks ? 20000 : 2000);
  usleep(20000); // long enough to fall asleep
  check_succession(10);
  int *grid = calloc(2000, sizeof *grid), done[40] = {0};
  void *arg[] = {grid}, *scratch[] = {done};
  dt_parallel(nested, arg, 20, 1);
  for (int i = 0; i < 2000; i++) expect(grid[i] == 1, "a region within a kernel runs whole");
  check_scratch(threads);
  dt_parallel(use_scratch, scratch, 40, 1);
  for (int i = 0; i < 40; i++) expect(done[i] == i + 1, "kernels with scratch ran");
  check_touch();
  free(grid);
}

int main(void) {
  check_too_much();
  check_pool(1, 1000);
  for (int threads = 2; threads <= 5; threads++) {
    check_pool(threads, 1000);
    check_pool(threads, 0);
  }
  for (int i = 0; i < 50; i++) dt_parallel_init(1 + i % 4); // started and stopped without work
  dt_parallel_done();
  check_cover(100, 3);
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
