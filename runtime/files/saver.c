// What a crash can leave, at each point of dt_checkpoint_save: a folder step-N.tmp, which no reader
// looks at and the next run removes; or the new checkpoint whole. The manifest holds hashes of the
// parts and of itself, so damage that comes later is found too.
#define _GNU_SOURCE
#include "runtime/files/saver.h"

#include "runtime/base/trace.h"
#include "runtime/control.h"
#include "runtime/files/manifest.h"
#include "runtime/files/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  PATIENCE_SECONDS = 5,
  NAMES = 96 // room for names of a checkpoint and its parts behind that of the folder
};

static bool first_rank(void) { return dt_world.rank == 0; }
static const DtGroup *world(void) { return dt_group(DT_ALL_AXES); }

// ---- The folder that a run saves to

// Refuses a second run. One that was killed just now may take a moment to die, and holds its lock
// till then.
static int lock(DtSaver *s, int how, DtError *e) {
  double until = dt_seconds() + PATIENCE_SECONDS;
  while (s->lock >= 0 && flock(s->lock, how | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return 0; // a file system without locks goes without this check
    if (dt_seconds() > until)
      return dt_fail(e, DT_EXIT_CREATE, "another run is saving to %s", s->folder);
    usleep(20000);
  }
  return 0;
}

static int open_folder(DtSaver *s, DtError *e) {
  if (access(s->folder, W_OK | X_OK) != 0)
    return dt_fail_errno(e, DT_EXIT_CREATE, "cannot write to", s->folder);
  s->lock = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return s->lock < 0 ? dt_input_error(e, "cannot open folder", s->folder) : 0;
}

// By the first rank, while no rank of another run is there.
static int clear_folder(DtSaver *s, DtError *e) {
  char path[PATH_MAX];
  if (dt_make_folder(s->folder, e) || open_folder(s, e) || lock(s, LOCK_EX, e)) return e->status;
  int64_t step = INT64_MAX;
  while (!dt_step_below(s->folder, ".tmp", step, &step, e) && step >= 0)
    if (dt_step_path(path, s->folder, step, ".tmp", e) || dt_remove_folder(path, e)) return e->status;
  return e->status ? e->status : lock(s, LOCK_SH, e);
}

// Every rank holds the lock: one that outlives its run by a moment might still be writing.
static int take_folder(DtSaver *s, const char *folder, DtError *e) {
  if (strlen(folder) + NAMES >= sizeof s->folder)
    dt_fail(e, DT_EXIT_CREATE, "the name is too long: %s", folder);
  else strcpy(s->folder, folder);
  if (first_rank() && !e->status) clear_folder(s, e);
  if (dt_agree_on(e)) return e->status;
  if (!first_rank() && !open_folder(s, e)) lock(s, LOCK_SH, e);
  return dt_agree_on(e);
}

int dt_saver_plan(DtRun *r, DtError *e) {
  bool steps = !r->o.eval_only && r->step < r->o.steps;
  r->snapshot_bytes = 0;
  if (!steps || !r->o.save || !r->o.save_every) return 0;
  return dt_save_snapshot_bytes(r->p, &r->zero.stages, dt_world.coord[DT_AXIS_PP], &r->zero.cut, dt_world.size,
                                &r->snapshot_bytes, e);
}

int dt_saver_open(DtSaver *s, DtRun *r, const char *folder, DtError *e) {
  *s = (DtSaver){.lock = -1};
  if (folder && take_folder(s, folder, e)) return e->status;
  s->part = calloc((size_t)dt_world.size, sizeof *s->part);
  if (!s->part) dt_fail(e, DT_EXIT_OS, "no memory for the list of parts");
  else dt_save_open(&s->save, r, folder != NULL, e);
  return dt_agree_on(e);
}

void dt_saver_close(DtSaver *s) {
  if (s->lock >= 0) close(s->lock);
  s->lock = -1;
  free(s->part);
  s->part = NULL;
  dt_save_close(&s->save);
}

// ---- Saving

static int make_folder(const char *path, DtError *e) {
  if (dt_remove_folder(path, e)) return e->status;
  if (mkdir(path, 0777) == 0) return 0;
  return dt_fail_errno(e, errno == ENOSPC ? DT_EXIT_IO : DT_EXIT_CREATE, "cannot create", path);
}

static int write_part(DtSaver *s, const char *folder, DtError *e) {
  char path[PATH_MAX], name[DT_PART_NAME];
  DtPartInfo mine = {0, 0};
  atomic_bool never = false;
  dt_part_name(name, dt_world.rank);
  // It is short enough: take_folder has left room.
  if (dt_path(path, folder, name, e)) return e->status;
  if (!s->save.snapshot) dt_save_part(&s->save, path, &mine, e);
  else if (!dt_save_take(&s->save, e)) dt_save_taken(&s->save, path, &never, &mine, e);
  if (dt_agree_on(e)) return e->status;
  enum { WORDS = sizeof mine / sizeof(int32_t) };
  dt_control_gather(world(), DT_TYPE_I32, &mine, s->part, WORDS, (DtNote){"the parts of a checkpoint", -1, NULL});
  return 0;
}

// Whether the first rank sees the others' files: their folder may be on another machine.
static int see_parts(const DtSaver *s, const char *folder, DtError *e) {
  for (int i = 0; i < dt_world.size; i++) {
    char path[PATH_MAX], name[DT_PART_NAME];
    struct stat f;
    dt_part_name(name, i);
    if (!s->part[i].bytes || dt_path(path, folder, name, e)) continue;
    if (stat(path, &f) != 0 || f.st_size != s->part[i].bytes)
      return dt_fail(e, DT_EXIT_IO,
                     "%s, which rank %d wrote, is not what rank 0 finds there: all ranks must save "
                     "to one file system",
                     path, i);
  }
  return e->status;
}

// Gives `from` the name `to`. A checkpoint of that name (of a run that went further and was then
// resumed from an earlier one) is exchanged in one operation and removed after.
static int take_name(const char *from, const char *to, DtError *e) {
  if (!dt_exists(to)) {
    if (rename(from, to) != 0) return dt_fail_errno(e, DT_EXIT_IO, "cannot create", to);
    return 0;
  }
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) != 0) {
    // No such operation here: for a moment only earlier checkpoints exist.
    if (dt_remove_folder(to, e)) return e->status;
    if (rename(from, to) != 0) return dt_fail_errno(e, DT_EXIT_IO, "cannot create", to);
    return 0;
  }
  DtError ignored = {0};
  dt_remove_folder(from, &ignored); // if this fails, the next run removes the .tmp
  return 0;
}

// Removes the oldest, up to `last`; checkpoints past it are another run's. A failure is no reason
// to stop.
static void remove_old(const char *folder, int64_t last, int64_t keep) {
  int64_t kept = 0, step = last + 1;
  DtError e = {0};
  while (!dt_step_below(folder, "", step, &step, &e) && step >= 0) {
    char path[PATH_MAX], away[PATH_MAX];
    if (kept++ < keep) continue;
    // First the name, then the files: a checkpoint is never seen with parts missing.
    if (!dt_step_path(path, folder, step, "", &e) && !dt_step_path(away, folder, step, ".tmp", &e) &&
        (rename(path, away) != 0 || dt_remove_folder(away, &e)))
      dt_note("cannot remove %s", path);
  }
}

// The first rank's work when all parts are safe.
static int complete(DtSaver *s, const char *temporary, const char *path, DtError *e) {
  if (see_parts(s, temporary, e) ||
      dt_manifest_write(temporary, s->save.r, s->part, dt_world.size, e) ||
      dt_sync_folder(temporary, e) || take_name(temporary, path, e))
    return e->status;
  return dt_sync_folder(s->folder, e);
}

int dt_checkpoint_save(DtSaver *s, int64_t keep, DtError *e) {
  char temporary[PATH_MAX], path[PATH_MAX];
  int64_t step = s->save.r->step;
  if (dt_step_path(temporary, s->folder, step, ".tmp", e) || dt_step_path(path, s->folder, step, "", e))
    return e->status;
  dt_trace_begin("save");
  dt_comm_files(true);
  if (first_rank()) make_folder(temporary, e);
  if (!dt_agree_on(e) && !write_part(s, temporary, e)) {
    if (first_rank()) complete(s, temporary, path, e);
    dt_agree_on(e);
  }
  if (first_rank() && e->status) {
    DtError ignored = {0};
    dt_remove_folder(temporary, &ignored); // gives the space back
  } else if (first_rank() && keep > 0) {
    remove_old(s->folder, step, keep);
  }
  dt_comm_files(false);
  dt_trace_end("save");
  return e->status;
}

int dt_export(DtSaver *s, const char *path, DtRegion what, DtError *e) {
  dt_trace_begin("export");
  dt_comm_files(true);
  dt_save_export(&s->save, path, what, e);
  dt_agree_on(e);
  dt_comm_files(false);
  dt_trace_end("export");
  return e->status;
}
