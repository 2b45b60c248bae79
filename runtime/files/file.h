// Files: mapped for reading, buffered and hashed for writing, and the few operations on folders.
#ifndef DTC_RUNTIME_FILE_H
#define DTC_RUNTIME_FILE_H

#include "runtime/base/error.h"
#include "runtime/base/hash.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A whole file, mapped for reading. An empty one has bytes == NULL and size 0.
typedef struct DtMap {
  const unsigned char *bytes;
  size_t size;
} DtMap;

// Before any file is opened: where standard input, output or error is closed, a file in its place on which
// reading or writing fails as it would. Else the next file that is opened, a log or a checkpoint, would
// take its number, and what is printed would go there.
void dt_standard_files(void);

// The status of an input that cannot be used, by errno: 66 where it is not there; 71 where the system has
// no memory or no file numbers left; else 74. None of the last two says anything about the input.
int dt_input_error(DtError *e, const char *what, const char *path);

// 66 where there is no such file, 65 where it is not a regular one, 71 or 74 where it cannot be read.
int dt_map_open(DtMap *m, const char *path, DtError *e);
void dt_map_close(DtMap *m);

// A duplicate of the descriptor that a name stands for: /dev/fd/N, or the file, pipe or terminal that standard
// output or error goes to already. -1: it stands for none that can be written. Opened again by its name a
// file would be cut off, and be written from its beginning.
int dt_own_output(const char *path);

// A file being written. The first failure is kept, and dt_out_close reports it, so that a writer need
// not look at each call. Where `path` is a regular file or nothing, bytes go to `path`.tmp, which
// takes the name at the end: the file that was there stays whole until the new one is. A file that has that name
// before, left by a crash or put there, is removed; a link is not followed.
typedef struct DtOut {
  int fd;
  int error;                                // errno of the first failure, or 0
  char path[PATH_MAX], temporary[PATH_MAX]; // temporary[0] == 0: written in place
  unsigned char *buffer;
  size_t used;
  uint64_t bytes, started; // written; of which the disk was asked to take
  DtHash hash;
} DtOut;

int dt_out_open(DtOut *o, const char *path, DtError *e); // 73 where it cannot be created
// Sees to it that the next dt_out_open, while no other file is being written, allocates nothing.
int dt_out_reserve(DtError *e);
void dt_out_write(DtOut *o, const void *bytes, size_t n);
void dt_out_print(DtOut *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
int dt_out_close(DtOut *o, DtError *e); // synchronised and renamed; 74 where anything failed
void dt_out_abandon(DtOut *o);          // closed and removed

// Joins with a slash; 64 where the result is too long.
int dt_path(char out[PATH_MAX], const char *folder, const char *name, DtError *e);
int dt_make_folder(const char *path, DtError *e); // and its parents; no failure where it exists
int dt_sync_folder(const char *path, DtError *e); // makes the names in it durable
bool dt_is_folder(const char *path);
bool dt_exists(const char *path);
// What a name stands for; a link to nothing is DT_OTHER. 71 or 74 where the system does not say, which is
// not the same as that nothing is there.
typedef enum DtKind { DT_NOTHING, DT_FOLDER, DT_OTHER } DtKind;
int dt_look_at(const char *path, DtKind *kind, DtError *e);
// Calls `look` with each name in a folder, but for . and .., without allocating. -1 (and errno) where it
// cannot be read.
int dt_look_through(const char *path, void (*look)(const char *name, void *arg), void *arg);
// Removes a folder and the files in it (one level deep), or a link to a folder, alone. No failure where it
// does not exist.
int dt_remove_folder(const char *path, DtError *e);

#endif
