// Preloaded into a training program: makes the FAIL_AT-th call that creates, writes, synchronises or renames a file fail with
// ENOSPC (and with FAIL_ON all after it; with FAIL_KILLS the process is killed instead, before the call; with FAIL_PATH=TEXT only calls on files with it in their names count), and with IO_TRACE=FILE writes down all of them in order.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int calls;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

// The name of what a call is on.
static const char *name_of(int fd, const char *path, char target[4096]) {
  char link[64];
  if (path) return path;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, target, 4095);
  target[n < 0 ? 0 : n] = 0;
  return target;
}

static void trace(const char *call, const char *name) {
  static int out = -2;
  static ssize_t (*put)(int, const void *, size_t);
  char line[9000];
  const char *file = getenv("IO_TRACE");
  if (!file) return;
  if (!put) put = (ssize_t(*)(int, const void *, size_t))real("write");
  if (out == -2) {
    int (*make)(const char *, int, ...) = (int (*)(const char *, int, ...))real("open");
    out = make(file, O_WRONLY | O_CREAT | O_APPEND, 0666);
  }
  snprintf(line, sizeof line, "%s %s\n", call, name);
  if (put(out, line, strlen(line)) < 0) abort();
}

static int fails(const char *call, int fd, const char *path) {
  const char *at = getenv("FAIL_AT"), *only = getenv("FAIL_PATH");
  char target[4096];
  const char *name = name_of(fd, path, target);
  trace(call, name);
  if (!at || (only && !strstr(name, only))) return 0;
  calls++;
  if (calls != atoi(at) && !(getenv("FAIL_ON") && calls > atoi(at))) return 0;
  if (getenv("FAIL_KILLS")) kill(getpid(), SIGKILL);
  errno = ENOSPC;
  return 1;
}

int open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  int mode = flags & O_CREAT ? va_arg(args, int) : 0;
  va_end(args);
  if ((flags & O_CREAT) && fails("create", -1, path)) return -1;
  return ((int (*)(const char *, int, ...))real("open"))(path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t n) {
  if (fd > 2 && fails("write", fd, NULL)) {
    // A full disk takes a part before it refuses.
    if (n > 1 && !(getenv("FAIL_ON") && calls > atoi(getenv("FAIL_AT"))))
      return ((ssize_t(*)(int, const void *, size_t))real("write"))(fd, bytes, n / 2) < 0 ? -1 : (errno = ENOSPC, -1);
    return -1;
  }
  return ((ssize_t(*)(int, const void *, size_t))real("write"))(fd, bytes, n);
}

int fsync(int fd) {
  if (fails("sync", fd, NULL)) return -1;
  return ((int (*)(int))real("fsync"))(fd);
}

int mkdir(const char *path, mode_t mode) {
  if (fails("mkdir", -1, path)) return -1;
  return ((int (*)(const char *, mode_t))real("mkdir"))(path, mode);
}

int rename(const char *from, const char *to) {
  if (fails("rename", -1, from)) return -1;
  return ((int (*)(const char *, const char *))real("rename"))(from, to);
}
