// Preloaded into a training program: the first open of a file with SLOW_OPEN in its name takes SLOW_OPEN_SECONDS, and the first
// synchronisation of one with SLOW_SYNC takes SLOW_SYNC_SECONDS.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void take(const char *seconds, int *done) {
  if ((*done)++) return;
  for (long i = 0, n = 100 * atol(getenv(seconds)); i < n; i++) nanosleep(&(struct timespec){0, 10000000}, NULL);
}

int open(const char *path, int flags, ...) {
  static int done;
  va_list args;
  va_start(args, flags);
  int mode = flags & O_CREAT ? va_arg(args, int) : 0;
  va_end(args);
  if (getenv("SLOW_OPEN") && strstr(path, getenv("SLOW_OPEN"))) take("SLOW_OPEN_SECONDS", &done);
  return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}

int fsync(int fd) {
  static int done;
  char link[64], name[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, name, sizeof name - 1);
  name[n < 0 ? 0 : n] = 0;
  if (getenv("SLOW_SYNC") && strstr(name, getenv("SLOW_SYNC"))) take("SLOW_SYNC_SECONDS", &done);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
