// Preloaded into a training program: damages the file of --offload. FLIP_AT=N flips a byte of what the N-th write has written, in the
// file; READ_AT=N, WRITE_AT=N make the N-th read, write fail with EIO; RESERVE=1 makes the reservation of space
// fail with ENOSPC. STATE=dtc-offload-1-: those of rank 1 alone.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int reads, writes;

static int is_state(int fd) {
  char link[64], target[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, target, sizeof target - 1);
  target[n < 0 ? 0 : n] = 0;
  return strstr(target, getenv("STATE") ? getenv("STATE") : "dtc-offload-") != NULL;
}

static int is(const char *name, int call) { return getenv(name) && atoi(getenv(name)) == call; }

static void flip(int fd, const char *byte, off_t at) {
  ssize_t (*put)(int, const void *, size_t, off_t) = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  char link[64], other = (char)(*byte ^ 4);
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  int again = open(link, O_WRONLY); // without direct I/O
  if (again < 0 || put(again, &other, 1, at) != 1 || fsync(again)) abort();
  close(again);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
  ssize_t (*put)(int, const void *, size_t, off_t) = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  int call = is_state(fd) ? ++writes : 0;
  if (call && is("WRITE_AT", call)) return errno = EIO, -1;
  ssize_t done = put(fd, bytes, n, at);
  if (call && is("FLIP_AT", call)) flip(fd, (const char *)bytes + n / 3, at + (off_t)(n / 3));
  return done;
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at) {
  ssize_t (*get)(int, void *, size_t, off_t) = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  if (is_state(fd) && is("READ_AT", ++reads)) return errno = EIO, -1;
  return get(fd, bytes, n, at);
}

int posix_fallocate(int fd, off_t at, off_t n) {
  int (*reserve)(int, off_t, off_t) = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
  return getenv("RESERVE") ? ENOSPC : reserve(fd, at, n);
}
