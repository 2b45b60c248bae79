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
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const double WORTH_A_NOTE = 0.1; // seconds
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
  r->behind_steps = !r->o.eval_only && r->step < r->o.steps && dt_save_behind(r->p, &r->o);
  r->snapshot_bytes = 0;
  if (!r->behind_steps) return 0;
  return dt_save_snapshot_bytes(r->p, &r->zero.stages, dt_world.coord[DT_AXIS_PP], &r->zero.cut, dt_world.size,
                                &r->snapshot_bytes, e);
}

int dt_saver_open(DtSaver *s, DtRun *r, const char *folder, DtError *e) {
  *s = (DtSaver){.lock = -1, .last = {.step = -1}};
  if (folder && take_folder(s, folder, e)) return e->status;
  s->part = calloc((size_t)dt_world.size, sizeof *s->part);
  if (!s->part) dt_fail(e, DT_EXIT_OS, "no memory for the list of parts");
  else if (!dt_save_open(&s->save, r, folder != NULL, e) && folder && r->behind_steps && !dt_behind_open(&s->behind, e))
    r->behind = &s->behind;
  return dt_agree_on(e);
}

void dt_saver_close(DtSaver *s) {
  atomic_store(&s->stop, true);
  dt_behind_close(&s->behind);
  if (s->save.r) s->save.r->behind = NULL;
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

// The first rank's work when all parts are safe. On any thread.
static int complete(DtSaver *s, DtError *e) {
  if (see_parts(s, s->temporary, e) ||
      dt_manifest_write(s->temporary, s->save.r, &s->at, s->part, dt_world.size, e) ||
      dt_sync_folder(s->temporary, e) || take_name(s->temporary, s->path, e) || dt_sync_folder(s->folder, e))
    return e->status;
  s->ended = dt_seconds();
  if (s->keep > 0) remove_old(s->folder, s->at.step, s->keep);
  return 0;
}

// The folder of a checkpoint of the state as it is now.
static int begin(DtSaver *s, int64_t keep, DtError *e) {
  const DtRun *r = s->save.r;
  char name[DT_PART_NAME];
  s->at = (DtProgress){r->step, r->samples, r->seed, r->scaling};
  s->keep = keep;
  s->mine = (DtPartInfo){0, 0};
  s->blocked = 0;
  s->began = dt_seconds();
  dt_part_name(name, dt_world.rank);
  // Names are short enough: take_folder has left room.
  if (dt_step_path(s->temporary, s->folder, r->step, ".tmp", e) || dt_step_path(s->path, s->folder, r->step, "", e) ||
      dt_path(s->own, s->temporary, name, e))
    return e->status;
  if (first_rank()) make_folder(s->temporary, e);
  return dt_agree_on(e);
}

// All ranks have written their parts, or have failed: no rank writes there any more.
static int gather_parts(DtSaver *s, DtError *e) {
  enum { WORDS = sizeof s->mine / sizeof(int32_t) };
  if (dt_agree_on(e)) return e->status;
  dt_control_gather(world(), DT_TYPE_I32, &s->mine, s->part, WORDS, (DtNote){"the parts of a checkpoint", -1, NULL});
  return 0;
}

// All ranks know that it is complete, or that it has failed.
static int end(DtSaver *s, DtError *e) {
  DtError ignored = {0};
  s->phase = DT_SAVER_IDLE;
  if (!e->status) s->last = (DtSaved){s->at.step, fmax(s->ended - s->began, s->blocked), s->blocked};
  else if (first_rank()) dt_remove_folder(s->temporary, &ignored); // gives the space back
  return e->status;
}

int dt_checkpoint_save(DtSaver *s, int64_t keep, DtError *e) {
  if (dt_checkpoint_finish(s, e)) return e->status;
  dt_trace_begin("save");
  dt_comm_files(true);
  if (!begin(s, keep, e)) {
    dt_save_part(&s->save, s->own, &s->mine, e);
    if (!gather_parts(s, e)) {
      if (first_rank()) complete(s, e);
      dt_agree_on(e);
    }
  }
  s->blocked = s->ended - s->began;
  dt_comm_files(false);
  dt_trace_end("save");
  return end(s, e);
}

// ---- Behind the steps

static void write_part(void *of, DtError *e) {
  DtSaver *s = of;
  if (dt_save_taken(&s->save, s->own, &s->stop, &s->mine, e) || dt_world.size > 1) return;
  // A rank alone has nobody to ask.
  s->part[0] = s->mine;
  complete(s, e);
}

static void complete_behind(void *of, DtError *e) { complete(of, e); }

// The job of each rank in this phase has ended, or is waited for: what comes next, on all ranks.
static int end_phase(DtSaver *s, DtError *e) {
  double since = dt_seconds();
  dt_behind_end(&s->behind, e);
  bool more = s->phase == DT_SAVER_PARTS && dt_world.size > 1 && !gather_parts(s, e);
  if (!more) dt_agree_on(e);
  s->blocked += dt_seconds() - since;
  if (!more) return end(s, e);
  s->phase = DT_SAVER_MANIFEST;
  if (first_rank()) dt_behind_begin(&s->behind, complete_behind, s);
  return 0;
}

int dt_checkpoint_finish(DtSaver *s, DtError *e) {
  if (s->phase == DT_SAVER_IDLE) return 0;
  dt_trace_begin("wait for a checkpoint");
  dt_comm_files(true);
  while (s->phase != DT_SAVER_IDLE) end_phase(s, e);
  dt_comm_files(false);
  dt_trace_end("wait for a checkpoint");
  return e->status;
}

int dt_checkpoint_step(DtSaver *s, DtError *e) {
  const DtRun *r = s->save.r;
  if (s->phase == DT_SAVER_IDLE) return 0;
  if (r->unwritten) atomic_store(&s->stop, true);
  else if (r->written < (s->phase == DT_SAVER_PARTS ? dt_world.size : 1)) return 0;
  return end_phase(s, e);
}

// One that is still on its way when the next is due.
static int wait_for_last(DtSaver *s, DtError *e) {
  double began = dt_seconds();
  if (s->phase == DT_SAVER_IDLE) return 0;
  int64_t step = s->at.step;
  if (dt_checkpoint_finish(s, e)) return e->status;
  if (s->late || dt_seconds() - began < WORTH_A_NOTE) return 0;
  s->late = true;
  if (first_rank())
    dt_note("the checkpoint of step %lld was not complete when that of step %lld was due: the run waited %.1f s for it; a "
            "larger --save-every avoids that (said once; the log has blocked_seconds of each checkpoint)",
            (long long)step, (long long)s->save.r->step, dt_seconds() - began);
  return 0;
}

int dt_checkpoint_begin(DtSaver *s, int64_t keep, DtError *e) {
  if (wait_for_last(s, e)) return e->status;
  dt_trace_begin("take a snapshot");
  dt_comm_files(true);
  if (!begin(s, keep, e)) {
    dt_save_take(&s->save, e);
    dt_agree_on(e);
  }
  dt_comm_files(false);
  dt_trace_end("take a snapshot");
  if (e->status) return end(s, e);
  s->blocked = dt_seconds() - s->began;
  s->phase = DT_SAVER_PARTS;
  atomic_store(&s->stop, false);
  dt_behind_begin(&s->behind, write_part, s);
  return 0;
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
