// Slices of arrays in a file, visited in drawn orders that come back to a slice soon and late: each visit finds what the one
// before has left, whichever thread is slow; what the window shows is that too; a file that is changed is found out.
#define _GNU_SOURCE
#include "runtime/files/slices.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLICE = 4096, ARRAYS = 3, MOST = 9, ROUNDS = 8, WORDS = SLICE / 8 };

static uint64_t drawn;
static int64_t draw(int64_t n) {
  drawn = drawn * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)(drawn >> 33) % n;
}

static void rest(void) {
  if (draw(40) == 0) usleep((unsigned)draw(300));
}

// What a slice holds after `times` visits.
static void expect(const uint64_t *at, int64_t slice, int64_t times) {
  bool good = true;
  for (int64_t i = 0; i < ARRAYS * WORDS; i++) good &= at[i] == (uint64_t)times * (uint64_t)(slice * 100000 + i + 1);
  CHECK(good);
}

static void visits(DtSlices *s, const int64_t *order, int64_t n, int64_t *times) {
  DtError e = {0};
  for (int64_t i = 0; i < n; i++) {
    uint64_t *at = (uint64_t *)(void *)dt_slices_visit(s, order[i], &e);
    if (!at) {
      CHECK(at != NULL);
      return;
    }
    CHECK(dt_slices_visit(s, order[i], &e) == (char *)at); // the same visit
    expect(at, order[i], times[order[i]]++);
    for (int64_t k = 0; k < ARRAYS * WORDS; k++) at[k] += (uint64_t)(order[i] * 100000 + k + 1);
    rest();
  }
  dt_slices_leave(s);
}

static void look(DtSlices *s, const int64_t *times) {
  DtError e = {0};
  int64_t slice = draw(s->plan.n), array = draw(ARRAYS), at = draw(WORDS), n = SLICE;
  const uint64_t *seen = (const uint64_t *)(void *)dt_slices_see(s, (int)array, slice * SLICE + 8 * at, &n, &e);
  CHECK(seen && n == SLICE - 8 * at);
  if (seen) CHECK(*seen == (uint64_t)times[slice] * (uint64_t)(slice * 100000 + array * WORDS + at + 1));
}

static void test_orders(int64_t n, int64_t length) {
  DtSlicePlan plan = dt_slice_plan(ARRAYS, n * SLICE - 8);
  CHECK(plan.n == n && plan.file == n * ARRAYS * SLICE);
  DtError e = {0};
  DtSlices s;
  char *memory = aligned_alloc(4096, (size_t)plan.memory);
  int64_t order[64], times[MOST] = {0};
  CHECK(dt_slices_open(&s, plan, ".", 3, memory, &e) == 0);
  for (int64_t i = 0; i < length; i++) {
    order[i] = i < n ? i : draw(n);
    if (n > 1 && i && order[i] == order[i - 1]) order[i] = (order[i] + 1) % n; // else it is the same visit
  }
  // One visit's worth by the window, at first.
  for (int a = 0; a < ARRAYS; a++)
    for (int64_t i = 0, many; i < n * WORDS; i += many / 8) {
      many = 8 * (n * WORDS - i);
      uint64_t *at = (uint64_t *)(void *)dt_slices_change(&s, a, 8 * i, &many, &e);
      for (int64_t k = 0; at && k < many / 8; k++) {
        CHECK(at[k] == 0);
        at[k] = (uint64_t)((i + k) / WORDS * 100000 + a * WORDS + (i + k) % WORDS + 1);
      }
      if (!at) break;
    }
  for (int64_t i = 0; i < n; i++) times[i] = 1;
  look(&s, times);
  CHECK(dt_slices_start(&s, order, n > 1 ? length : 1, &e) == 0);
  for (int round = 0; round < ROUNDS; round++) {
    visits(&s, order, n > 1 ? length : 1, times);
    for (int64_t i = draw(4); i > 0; i--) look(&s, times);
  }
  dt_slices_close(&s);
  CHECK(access(s.path, F_OK) != 0);
  free(memory);
}

// A byte of what was written changes; then the file ends early.
static void test_damage(bool cut) {
  DtSlicePlan plan = dt_slice_plan(ARRAYS, 6 * SLICE);
  DtError e = {0};
  DtSlices s;
  char *memory = aligned_alloc(4096, (size_t)plan.memory), name[64];
  const int64_t order[] = {0, 1, 2, 3, 4, 5};
  CHECK(dt_slices_open(&s, plan, ".", 0, memory, &e) == 0 && dt_slices_start(&s, order, 6, &e) == 0);
  for (int64_t i = 0; i < 6; i++) CHECK(dt_slices_visit(&s, i, &e) != NULL);
  dt_slices_leave(&s);
  int64_t n = SLICE;
  CHECK(dt_slices_see(&s, 0, 0, &n, &e) != NULL); // all is written then
  snprintf(name, sizeof name, "/proc/self/fd/%d", s.fd);
  FILE *f = fopen(name, "r+");
  CHECK(f != NULL);
  if (cut) CHECK(ftruncate(fileno(f), 5 * ARRAYS * SLICE) == 0);
  else CHECK(pwrite(fileno(f), "x", 1, 5 * ARRAYS * SLICE + 77) == 1);
  fclose(f);
  char *at = NULL;
  for (int64_t i = 0; i < 6 && !e.status; i++) at = dt_slices_visit(&s, i, &e);
  CHECK(!at && e.status == (cut ? DT_EXIT_IO : DT_EXIT_CONTENT));
  CHECK_SAYS(e.text, cut ? "has become shorter" : "slice 6 of 6");
  dt_slices_close(&s);
  free(memory);
}

int main(void) {
  check_folder();
  dt_slice_bytes = SLICE;
  for (int64_t n = 1; n <= MOST; n++)
    for (int64_t more = 0; more <= 20; more += 10) test_orders(n, n + more);
  test_damage(false);
  test_damage(true);
  DtSlices s;
  DtError e = {0};
  char memory[8];
  CHECK(dt_slices_open(&s, dt_slice_plan(1, 1), "none/such", 0, memory, &e) == DT_EXIT_CREATE);
  CHECK_SAYS(e.text, "cannot create a file for --offload in none/such");
  dt_slices_close(&s);
  return check_done();
}
