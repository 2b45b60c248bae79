// Preloaded into a training program: makes the FAIL_AT-th allocation fail (malloc, calloc, realloc, aligned_alloc, mmap of
// memory), in the process whose number FAIL_RANK is of those forked (without it: in all). COUNT=FILE: how many there were.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static int calls, at = -1, forked, is_rank = 1;
static const char *count;

static void begin(void) {
  const char *text = getenv("FAIL_AT");
  at = text ? atoi(text) : 0;
  count = getenv("COUNT");
}

static int fails(void) {
  if (at < 0) begin();
  int n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  if (!is_rank || n != at) return 0;
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t to, size_t n) { return fails() ? NULL : __libc_memalign(to, n); }

void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t from) {
  static void *(*real)(void *, size_t, int, int, int, off_t);
  if (!real) real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
  return fd < 0 && fails() ? MAP_FAILED : real(p, n, prot, flags, fd, from);
}

// The parent of local ranks starts them in order.
pid_t fork(void) {
  static pid_t (*real)(void);
  if (!real) real = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
  const char *rank = getenv("FAIL_RANK");
  int me = forked++;
  pid_t pid = real();
  if (pid == 0) is_rank = !rank || atoi(rank) == me;
  return pid;
}

__attribute__((destructor)) static void end(void) {
  if (at < 0 || !count) return;
  char line[32];
  FILE *f = fopen(count, "w");
  if (!f) abort();
  snprintf(line, sizeof line, "%d\n", calls);
  fputs(line, f);
  fclose(f);
}
