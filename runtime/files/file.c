#define _GNU_SOURCE
#include "runtime/files/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, AHEAD = 8 << 20 };
static unsigned char *spare; // a buffer that was used before

void dt_standard_files(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      if (open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return; // the lowest number free: fd
}

int dt_input_error(DtError *e, const char *what, const char *path) {
  bool missing = errno == ENOENT || errno == ENOTDIR;
  bool refused = errno == ENOMEM || errno == EMFILE || errno == ENFILE;
  int status = missing ? DT_EXIT_MISSING : refused ? DT_EXIT_OS : DT_EXIT_IO;
  return dt_fail_errno(e, status, what, path);
}

int dt_map_open(DtMap *m, const char *path, DtError *e) {
  *m = (DtMap){0};
  int status = 0, fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); // a pipe is not waited for
  if (fd < 0) return dt_input_error(e, "cannot open", path);
  struct stat s;
  if (fstat(fd, &s) != 0) {
    status = dt_input_error(e, "cannot look at", path);
  } else if (!S_ISREG(s.st_mode)) {
    status = dt_fail(e, DT_EXIT_CONTENT, "%s is not a file", path);
  } else if (s.st_size > 0) {
    void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) status = dt_input_error(e, "cannot map", path);
    else *m = (DtMap){p, (size_t)s.st_size};
  }
  close(fd);
  return status;
}

void dt_map_close(DtMap *m) {
  if (m->bytes) munmap((void *)(uintptr_t)m->bytes, m->size);
  *m = (DtMap){0};
}

// N of "/dev/fd/N"; -1 where the name is another.
static int numbered(const char *path) {
  static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
  for (int i = 0; i < 2; i++) {
    size_t n = strlen(folders[i]), digits = strlen(path) > n ? strspn(path + n, "0123456789") : 0;
    if (strncmp(path, folders[i], n) == 0 && digits && digits < 6 && !path[n + digits])
      return atoi(path + n);
  }
  return -1;
}

static bool can_be_written(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

int dt_own_output(const char *path) {
  struct stat named, open_file;
  int fd = numbered(path);
  bool found = stat(path, &named) == 0;
  for (int i = 1; i <= 2 && found && fd < 0; i++)
    if (fstat(i, &open_file) == 0 && named.st_dev == open_file.st_dev &&
        named.st_ino == open_file.st_ino && can_be_written(i))
      fd = i;
  return fd >= 0 && can_be_written(fd) ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
}

static void release(DtOut *o) {
  if (spare) free(o->buffer);
  else spare = o->buffer;
  o->buffer = NULL;
  if (o->fd >= 0) close(o->fd);
  o->fd = -1;
}

int dt_out_reserve(DtError *e) {
  if (!spare) spare = malloc(BUFFER);
  return spare ? 0 : dt_fail(e, DT_EXIT_OS, "no memory to write files");
}

static int create(const char *path) {
  unlink(path);
  return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

int dt_out_open(DtOut *o, const char *path, DtError *e) {
  memset(o, 0, sizeof *o);
  o->fd = -1;
  if (strlen(path) + sizeof ".tmp" > sizeof o->path)
    return dt_fail(e, DT_EXIT_CREATE, "the name is too long: %s", path);
  strcpy(o->path, path);
  struct stat s;
  int own = dt_own_output(path);
  bool in_place = own >= 0 || (stat(path, &s) == 0 && !S_ISREG(s.st_mode)); // a pipe, a device
  if (!in_place) {
    strcpy(o->temporary, path);
    strcat(o->temporary, ".tmp");
  }
  o->buffer = spare ? spare : malloc(BUFFER);
  spare = NULL;
  o->fd = own;
  if (!o->buffer) {
    release(o);
    return dt_fail(e, DT_EXIT_OS, "no memory to write %s", path);
  }
  if (own < 0) o->fd = in_place ? open(path, O_WRONLY | O_CLOEXEC) : create(o->temporary);
  if (o->fd < 0) {
    dt_fail_errno(e, DT_EXIT_CREATE, "cannot create", path);
    release(o);
    return e->status;
  }
  dt_hash_begin(&o->hash);
  return 0;
}

static void put(DtOut *o, const unsigned char *p, size_t n) {
  dt_hash_add(&o->hash, p, n);
  o->bytes += n;
  while (n > 0 && !o->error) {
    ssize_t done = write(o->fd, p, n);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      o->error = errno;
      return;
    }
    p += done;
    n -= (size_t)done;
  }
  if (o->bytes - o->started < AHEAD) return;
  // The disk begins with this much, so that at the end there is not all to wait for.
  sync_file_range(o->fd, (off_t)o->started, (off_t)(o->bytes - o->started), SYNC_FILE_RANGE_WRITE);
  o->started = o->bytes;
}

static void flush(DtOut *o) {
  put(o, o->buffer, o->used);
  o->used = 0;
}

void dt_out_write(DtOut *o, const void *bytes, size_t n) {
  if (o->error) return;
  if (n > BUFFER - o->used) flush(o);
  if (n >= BUFFER) {
    put(o, bytes, n);
    return;
  }
  if (n) memcpy(o->buffer + o->used, bytes, n);
  o->used += n;
}

void dt_out_print(DtOut *o, const char *format, ...) {
  char small[512], *text = small;
  va_list args;
  va_start(args, format);
  int n = vsnprintf(small, sizeof small, format, args);
  va_end(args);
  if (n >= (int)sizeof small) {
    text = malloc((size_t)n + 1);
    if (!text) {
      o->error = ENOMEM;
      return;
    }
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
  }
  if (n > 0) dt_out_write(o, text, (size_t)n);
  if (text != small) free(text);
}

int dt_out_close(DtOut *o, DtError *e) {
  flush(o);
  // A pipe or a terminal cannot be synchronised and says EINVAL; that is no failure.
  if (!o->error && fsync(o->fd) != 0 && errno != EINVAL && errno != EROFS) o->error = errno;
  int fd = o->fd;
  o->fd = -1;
  if (close(fd) != 0 && !o->error) o->error = errno;
  if (!o->error && o->temporary[0] && rename(o->temporary, o->path) != 0) o->error = errno;
  if (o->error && o->temporary[0]) unlink(o->temporary);
  release(o);
  if (!o->error) return 0;
  errno = o->error;
  return dt_fail_errno(e, DT_EXIT_IO, "cannot write", o->path);
}

void dt_out_abandon(DtOut *o) {
  release(o);
  if (o->temporary[0]) unlink(o->temporary);
}

int dt_path(char out[PATH_MAX], const char *folder, const char *name, DtError *e) {
  size_t n = strlen(folder);
  const char *slash = n > 0 && folder[n - 1] == '/' ? "" : "/";
  if (snprintf(out, PATH_MAX, "%s%s%s", folder, slash, name) >= PATH_MAX)
    return dt_fail(e, DT_EXIT_USAGE, "the name is too long: %s/%s", folder, name);
  return 0;
}

int dt_make_folder(const char *path, DtError *e) {
  char part[PATH_MAX];
  if (strlen(path) >= sizeof part)
    return dt_fail(e, DT_EXIT_CREATE, "the name is too long: %s", path);
  strcpy(part, path);
  for (char *p = part + 1;; p++) {
    if (*p != '/' && *p != 0) continue;
    char keep = *p;
    *p = 0;
    int why = mkdir(part, 0777) != 0 ? errno : 0;
    if (why && !dt_is_folder(part)) {
      errno = why;
      return dt_fail_errno(e, DT_EXIT_CREATE, "cannot create folder", part);
    }
    if (keep == 0) return 0;
    *p = keep;
  }
}

int dt_sync_folder(const char *path, DtError *e) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return dt_fail_errno(e, DT_EXIT_IO, "cannot open folder", path);
  // Some file systems know no fsync of a folder: their renames are durable in their own way.
  int bad = fsync(fd) != 0 && errno != EINVAL && errno != EROFS;
  if (bad) dt_fail_errno(e, DT_EXIT_IO, "cannot synchronise folder", path);
  close(fd);
  return bad ? e->status : 0;
}

bool dt_is_folder(const char *path) {
  struct stat s;
  return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool dt_exists(const char *path) {
  struct stat s;
  return lstat(path, &s) == 0;
}

int dt_look_at(const char *path, DtKind *kind, DtError *e) {
  struct stat s;
  *kind = DT_NOTHING;
  if (stat(path, &s) == 0) *kind = S_ISDIR(s.st_mode) ? DT_FOLDER : DT_OTHER;
  else if (errno != ENOENT && errno != ENOTDIR) return dt_input_error(e, "cannot look at", path);
  else if (lstat(path, &s) == 0) *kind = DT_OTHER;
  return 0;
}

// A directory stream would allocate its buffer.
static int look_through(int fd, void (*look)(const char *name, void *arg), void *arg) {
  _Alignas(struct dirent64) char buffer[4096];
  ssize_t n;
  while ((n = getdents64(fd, buffer, sizeof buffer)) > 0)
    for (ssize_t at = 0; at < n;) {
      struct dirent64 *f = (struct dirent64 *)(void *)(buffer + at);
      at += f->d_reclen;
      if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0) look(f->d_name, arg);
    }
  return n < 0 ? -1 : 0;
}

int dt_look_through(const char *path, void (*look)(const char *name, void *arg), void *arg) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  int status = look_through(fd, look, arg), kept = errno;
  close(fd);
  errno = kept;
  return status;
}

static void unlink_in(const char *name, void *arg) { unlinkat(*(int *)arg, name, 0); }

int dt_remove_folder(const char *path, DtError *e) {
  enum { PASSES = 3 }; // some file systems lose their place while names go
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    struct stat s;
    if (errno == ENOENT) return 0;
    bool link = (errno == ELOOP || errno == ENOTDIR) && lstat(path, &s) == 0 && S_ISLNK(s.st_mode);
    if (link && unlink(path) == 0) return 0;
    return dt_fail_errno(e, DT_EXIT_IO, link ? "cannot remove" : "cannot open folder", path);
  }
  bool gone = false;
  for (int i = 0; i < PASSES && !gone; i++) {
    lseek(fd, 0, SEEK_SET);
    if (look_through(fd, unlink_in, &fd) != 0) break;
    gone = rmdir(path) == 0 || errno == ENOENT;
    if (!gone && errno != ENOTEMPTY && errno != EEXIST) break;
  }
  if (!gone) dt_fail_errno(e, DT_EXIT_IO, "cannot remove", path);
  close(fd);
  return gone ? 0 : e->status;
}
