// Preloaded into a training program: makes the FAIL_AT-th call that looks at, opens, reads, maps or closes a file fail
// with the errno FAIL_WITH. IO_TRACE=FILE: all such calls, in order.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int calls;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static void trace(const char *call, const char *name) {
  char line[5000];
  const char *file = getenv("IO_TRACE");
  if (!file) return;
  int out = ((int (*)(const char *, int, ...))real("open"))(file, O_WRONLY | O_CREAT | O_APPEND, 0666);
  int n = snprintf(line, sizeof line, "%s %.4000s\n", call, name);
  if (write(out, line, (size_t)n) != n) abort();
  ((int (*)(int))real("close"))(out);
}

static int fails(const char *call, const char *name) {
  const char *at = getenv("FAIL_AT"), *with = getenv("FAIL_WITH");
  int kept = errno;
  trace(call, name);
  errno = kept;
  if (!at || ++calls != atoi(at)) return 0;
  errno = atoi(with);
  return 1;
}

int open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  int mode = flags & O_CREAT ? va_arg(args, int) : 0;
  va_end(args);
  if (fails("open", path)) return -1;
  return ((int (*)(const char *, int, ...))real("open"))(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode) {
  if (fails("fopen", path)) return NULL;
  return ((FILE * (*)(const char *, const char *)) real("fopen"))(path, mode);
}

ssize_t __getdelim(char **line, size_t *n, int end, FILE *f) { // getline calls it
  if (fails("getline", "")) return -1;
  return ((ssize_t(*)(char **, size_t *, int, FILE *))real("__getdelim"))(line, n, end, f);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from) {
  if (fails("mmap", "")) return MAP_FAILED;
  return ((void *(*)(void *, size_t, int, int, int, off_t))real("mmap"))(at, n, prot, flags, fd, from);
}

ssize_t read(int fd, void *to, size_t n) {
  if (fails("read", "")) return -1;
  return ((ssize_t(*)(int, void *, size_t))real("read"))(fd, to, n);
}

ssize_t getdents64(int fd, void *to, size_t n) {
  if (fails("getdents64", "")) return -1;
  return ((ssize_t(*)(int, void *, size_t))real("getdents64"))(fd, to, n);
}

DIR *opendir(const char *path) {
  if (fails("opendir", path)) return NULL;
  return ((DIR * (*)(const char *)) real("opendir"))(path);
}

int fstat(int fd, struct stat *s) {
  if (fails("fstat", "")) return -1;
  return ((int (*)(int, struct stat *))real("fstat"))(fd, s);
}

int stat(const char *path, struct stat *s) {
  if (fails("stat", path)) return -1;
  return ((int (*)(const char *, struct stat *))real("stat"))(path, s);
}

int lstat(const char *path, struct stat *s) {
  if (fails("lstat", path)) return -1;
  return ((int (*)(const char *, struct stat *))real("lstat"))(path, s);
}

int access(const char *path, int how) {
  if (fails("access", path)) return -1;
  return ((int (*)(const char *, int))real("access"))(path, how);
}

int close(int fd) {
  int status = ((int (*)(int))real("close"))(fd);
  return fails("close", "") ? -1 : status;
}
