// Visit v has buffer v % buffers. The reader fills it when the visit that had it before is written, and the slice's
// own visit before; the writer empties it when the visit is over. Each counts in visits, so that a number says all.
//
// Direct I/O, where the file system has it: what the kernel would keep of the file is memory that offloading is to save.
#define _GNU_SOURCE
#include "runtime/files/slices.h"

#include "runtime/base/hash.h"
#include "runtime/base/trace.h"
#include "runtime/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 4096, BUFFERS = 4, LOOK_MS = 100, READER = 0, WRITER = 1 };

int64_t dt_slice_bytes = 1 << 20;

DtSlicePlan dt_slice_plan(int arrays, int64_t bytes) {
  if (!arrays || !bytes) return (DtSlicePlan){0};
  int64_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
  DtSlicePlan p = {.arrays = arrays, .slice = whole < dt_slice_bytes ? whole : dt_slice_bytes};
  p.n = (bytes + p.slice - 1) / p.slice;
  p.buffers = p.n < BUFFERS ? (int)p.n : BUFFERS;
  p.memory = (p.buffers * arrays + 1) * p.slice;
  p.file = p.n * arrays * p.slice;
  return p;
}

// ---- the file

static int damaged(const DtSlices *s, int64_t slice, DtError *e) {
  int64_t bytes = s->plan.arrays * s->plan.slice;
  return dt_fail(e, DT_EXIT_CONTENT,
                 "%s: slice %lld of %lld (bytes %lld to %lld of the file) is not what was written there: the optimizer's state "
                 "is lost; start again from a checkpoint, with --offload-dir on another disk",
                 s->path, (long long)slice + 1, (long long)s->plan.n, (long long)(slice * bytes),
                 (long long)((slice + 1) * bytes));
}

// `bytes` from `at` of the file on: all of them.
static int get(const DtSlices *s, char *to, int64_t bytes, int64_t at, DtError *e) {
  while (bytes > 0) {
    ssize_t n = pread(s->fd, to, (size_t)bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return dt_fail_errno(e, DT_EXIT_IO, "cannot read", s->path);
    if (n == 0) return dt_fail(e, DT_EXIT_IO, "%s: the file has become shorter", s->path);
    to += n, at += n, bytes -= n;
  }
  return 0;
}

static int put(const DtSlices *s, const char *from, int64_t bytes, int64_t at, DtError *e) {
  while (bytes > 0) {
    ssize_t n = pwrite(s->fd, from, (size_t)bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return dt_fail_errno(e, DT_EXIT_IO, "cannot write", s->path);
    from += n, at += n, bytes -= n;
  }
  return 0;
}

// Parts [part, part + n), where a part is slice * arrays + array.
static int read_parts(const DtSlices *s, int64_t part, int n, char *to, DtError *e) {
  int64_t size = s->plan.slice;
  if (get(s, to, n * size, part * size, e)) return e->status;
  for (int i = 0; i < n; i++)
    if (dt_hash(to + i * size, (size_t)size) != s->sum[part + i]) return damaged(s, part / s->plan.arrays, e);
  return 0;
}

static int write_parts(const DtSlices *s, int64_t part, int n, const char *from, DtError *e) {
  int64_t size = s->plan.slice;
  for (int i = 0; i < n; i++) s->sum[part + i] = dt_hash(from + i * size, (size_t)size);
  return put(s, from, n * size, part * size, e);
}

// A name that no other rank or run has, which goes as soon as the file is open.
static int make_file(DtSlices *s, const char *folder, int rank, DtError *e) {
  char name[64];
  snprintf(name, sizeof name, "dtc-offload-%d-XXXXXX", rank);
  if (dt_path(s->path, folder, name, e)) return e->status;
  s->fd = mkostemp(s->path, O_CLOEXEC);
  if (s->fd < 0)
    return dt_fail_errno(e, errno == ENOSPC ? DT_EXIT_IO : DT_EXIT_CREATE, "cannot create a file for --offload in", folder);
  if (unlink(s->path) != 0) return dt_fail_errno(e, DT_EXIT_CREATE, "cannot remove the name", s->path);
  return 0;
}

static int reserve(DtSlices *s, DtError *e) {
  char what[96];
  int why = posix_fallocate(s->fd, 0, s->plan.file);
  if (!why) return 0;
  errno = why;
  snprintf(what, sizeof what, "cannot reserve %lld bytes for --offload in", (long long)s->plan.file);
  return dt_fail_errno(e, why == ENOSPC || why == EDQUOT || why == EIO ? DT_EXIT_IO : DT_EXIT_CREATE, what, s->path);
}

// A file system may take the flag and then no request, or other ones alone.
static void go_direct(DtSlices *s) {
  int flags = fcntl(s->fd, F_GETFL);
  if (fcntl(s->fd, F_SETFL, flags | O_DIRECT) == 0 && pread(s->fd, s->memory, ALIGN, 0) != ALIGN)
    fcntl(s->fd, F_SETFL, flags);
}

int dt_slices_open(DtSlices *s, DtSlicePlan plan, const char *folder, int rank, char *memory, DtError *e) {
  int64_t parts = plan.n * plan.arrays;
  *s = (DtSlices){.plan = plan, .fd = -1, .memory = memory, .window = -1};
  s->sum = malloc((size_t)parts * sizeof *s->sum);
  if (!s->sum) return dt_fail(e, DT_EXIT_OS, "no memory for the checksums of offloaded state");
  if (make_file(s, folder, rank, e) || reserve(s, e)) return e->status;
  go_direct(s);
  memset(memory, 0, (size_t)plan.slice);
  uint64_t zeros = dt_hash(memory, (size_t)plan.slice);
  for (int64_t i = 0; i < parts; i++) s->sum[i] = zeros;
  return 0;
}

void dt_slices_close(DtSlices *s) {
  s->stop = 1; // a thread that has just looked for it sleeps for LOOK_MS at most
  DtCounter *const at[] = {&s->read, &s->done, &s->written};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) dt_counter_wake(at[i]);
  while (s->threads > 0) pthread_join(s->thread[--s->threads], NULL);
  if (s->sum && s->fd >= 0) close(s->fd);
  free(s->sum);
  free(s->order);
  s->sum = NULL;
  s->order = NULL;
}

// ---- the two threads

static bool wait_for(DtSlices *s, DtCounter *c, int64_t least) {
  for (;;) {
    if (s->stop || s->failed) return false;
    uint64_t now = dt_counter_get(c);
    if ((int64_t)now >= least) return true;
    dt_counter_sleep(c, now, LOOK_MS);
  }
}

static char *buffer_of(const DtSlices *s, int64_t visit) {
  return s->memory + visit % s->plan.buffers * s->plan.arrays * s->plan.slice;
}

static int64_t slice_of(const DtSlices *s, int64_t visit) { return s->order[visit % s->norder]; }

// The first failure counts; the steps' thread waits for what is read, or comes to know with its next visit.
static void *give_up(DtSlices *s, int me) {
  int none = 0;
  atomic_compare_exchange_strong(&s->failed, &none, 1 + me);
  dt_counter_wake(&s->read);
  dt_counter_wake(&s->done);
  dt_counter_wake(&s->written);
  return NULL;
}

static void *read_ahead(void *of) {
  DtSlices *s = of;
  for (int64_t v = 0;; v++) {
    int64_t free_at = v - s->plan.buffers + 1, before = v - s->back[v % s->norder] + 1;
    if (!wait_for(s, &s->written, free_at > before ? free_at : before)) return NULL;
    if (read_parts(s, slice_of(s, v) * s->plan.arrays, s->plan.arrays, buffer_of(s, v), &s->error[READER]))
      return give_up(s, READER);
    dt_counter_set(&s->read, (uint64_t)v + 1);
  }
}

static void *write_behind(void *of) {
  DtSlices *s = of;
  for (int64_t v = 0; wait_for(s, &s->done, v + 1); v++) {
    if (write_parts(s, slice_of(s, v) * s->plan.arrays, s->plan.arrays, buffer_of(s, v), &s->error[WRITER]))
      return give_up(s, WRITER);
    dt_counter_set(&s->written, (uint64_t)v + 1);
  }
  return NULL;
}

static int failure(const DtSlices *s, DtError *e) {
  int who = s->failed;
  if (who) *e = s->error[who - 1];
  return who ? e->status : 0;
}

// ---- the window

static int write_window(DtSlices *s, DtError *e) {
  char *at = s->memory + s->plan.memory - s->plan.slice;
  bool changed = s->changed;
  s->changed = false;
  return changed ? write_parts(s, s->window, 1, at, e) : 0;
}

char *dt_slices_see(DtSlices *s, int array, int64_t at, int64_t *n, DtError *e) {
  int64_t size = s->plan.slice, slice = at / size, part = slice * s->plan.arrays + array;
  char *window = s->memory + s->plan.memory - size;
  if (s->threads && !wait_for(s, &s->written, s->begun) && failure(s, e)) return NULL;
  // Visits may have changed what is in it.
  if (part != s->window || s->seen != s->begun) {
    if (write_window(s, e)) return NULL;
    s->window = -1;
    if (read_parts(s, part, 1, window, e)) return NULL;
    s->window = part;
    s->seen = s->begun;
  }
  if (*n > size - at % size) *n = size - at % size;
  return window + at % size;
}

char *dt_slices_change(DtSlices *s, int array, int64_t at, int64_t *n, DtError *e) {
  if (s->threads) {
    dt_fail(e, DT_EXIT_BUG, "a bug: offloaded state is changed beside its updates");
    return NULL;
  }
  char *window = dt_slices_see(s, array, at, n, e);
  s->changed |= window != NULL;
  return window;
}

// ---- visits

// How long ago each was visited before, of a round that repeats; `last` has a number for each slice.
static void look_back(DtSlices *s, int64_t *last) {
  for (int64_t i = 0; i < 2 * s->norder; i++) {
    int64_t slice = slice_of(s, i);
    if (i >= s->norder) s->back[i - s->norder] = i - last[slice];
    last[slice] = i;
  }
}

static int start_thread(DtSlices *s, void *(*run)(void *), DtError *e) {
  sigset_t all, before; // signals are for the thread that runs the steps
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int why = pthread_create(&s->thread[s->threads], NULL, run, s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (why) return dt_fail(e, DT_EXIT_OS, "cannot start a thread for offloaded state: %s", strerror(why));
  s->threads++;
  return 0;
}

int dt_slices_start(DtSlices *s, const int64_t *order, int64_t n, DtError *e) {
  s->order = calloc(2 * (size_t)n + (size_t)s->plan.n, sizeof *s->order);
  if (!s->order) return dt_fail(e, DT_EXIT_OS, "no memory for the order of offloaded state");
  if (write_window(s, e)) return e->status;
  s->back = s->order + n;
  s->norder = n;
  if (!n) return 0;
  memcpy(s->order, order, (size_t)n * sizeof *order);
  look_back(s, s->back + n);
  return start_thread(s, read_ahead, e) ? e->status : start_thread(s, write_behind, e);
}

void dt_slices_leave(DtSlices *s) { dt_counter_set(&s->done, (uint64_t)s->begun); }

char *dt_slices_visit(DtSlices *s, int64_t slice, DtError *e) {
  int64_t done = (int64_t)dt_counter_get(&s->done);
  if (s->begun > done && slice_of(s, s->begun - 1) == slice) return buffer_of(s, s->begun - 1);
  dt_slices_leave(s);
  if (slice_of(s, s->begun) != slice) {
    dt_fail(e, DT_EXIT_BUG, "a bug: slice %lld of offloaded state is visited out of order", (long long)slice);
    return NULL;
  }
  dt_trace_begin("wait for offloaded state");
  int64_t began = dt_nanoseconds();
  bool there = wait_for(s, &s->read, s->begun + 1);
  s->waited += dt_nanoseconds() - began;
  dt_trace_end("wait for offloaded state");
  if (!there) return failure(s, e), NULL;
  return buffer_of(s, s->begun++);
}
