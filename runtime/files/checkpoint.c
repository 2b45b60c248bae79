// What a crash can leave, at each point of dt_checkpoint_save: a folder step-N.tmp, which no reader
// looks at and the next run removes; or the new checkpoint whole. The manifest holds hashes of the
// parts and of itself, so damage that comes later is found too.
#define _GNU_SOURCE
#include "runtime/files/checkpoint.h"
#include "runtime/control.h"

#include "runtime/files/load.h"
#include "runtime/files/manifest.h"
#include "runtime/base/trace.h"

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

// ---- Names

// The step in "step-00000100", with `end` behind it; -1 where the name is another.
static int64_t step_of(const char *name, const char *end) {
  if (strncmp(name, "step-", 5) != 0) return -1;
  const char *p = name + 5;
  int64_t v = 0;
  int digits = 0;
  for (; *p >= '0' && *p <= '9' && digits < 18; p++, digits++) v = v * 10 + (*p - '0');
  return digits >= 8 && strcmp(p, end) == 0 ? v : -1;
}

typedef struct {
  const char *end;
  int64_t below, newest;
} Search;

static void look_at(const char *name, void *arg) {
  Search *s = arg;
  int64_t step = step_of(name, s->end);
  if (step < s->below && step > s->newest) s->newest = step;
}

// The newest step below `below` of which there is a folder "step-N" + end; -1: none.
static int step_below(const char *folder, const char *end, int64_t below, int64_t *step,
                      DtError *e) {
  Search s = {end, below, -1};
  *step = -1;
  if (dt_look_through(folder, look_at, &s) != 0)
    return dt_input_error(e, "cannot read folder", folder);
  *step = s.newest;
  return 0;
}

static int step_path(char out[PATH_MAX], const char *folder, int64_t step, const char *end,
                     DtError *e) {
  char name[64];
  snprintf(name, sizeof name, "step-%08lld%s", (long long)step, end);
  return dt_path(out, folder, name, e);
}

int dt_checkpoint_newest(const char *folder, int64_t *step, DtError *e) {
  return step_below(folder, "", INT64_MAX, step, e);
}

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
  while (!step_below(s->folder, ".tmp", step, &step, e) && step >= 0)
    if (step_path(path, s->folder, step, ".tmp", e) || dt_remove_folder(path, e)) return e->status;
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
  while (!step_below(folder, "", step, &step, &e) && step >= 0) {
    char path[PATH_MAX], away[PATH_MAX];
    if (kept++ < keep) continue;
    // First the name, then the files: a checkpoint is never seen with parts missing.
    if (!step_path(path, folder, step, "", &e) && !step_path(away, folder, step, ".tmp", &e) &&
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
  if (step_path(temporary, s->folder, step, ".tmp", e) || step_path(path, s->folder, step, "", e))
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

// ---- Finding

// A file that a checkpoint should have and has not is damage; and so is what it should not hold. What
// else fails says nothing about the checkpoint: the next attempt may read it.
static int damage_or_not(DtError *e) {
  if (e->status == DT_EXIT_MISSING) e->status = DT_EXIT_CONTENT;
  return e->status;
}

// Reads the manifest in c->path and checks everything that it tells of; each rank checks the hashes of
// some parts. All must have read the same manifest. A part that a rank cannot read is reported before one that another rank
// finds damaged.
static int check(DtCheckpoint *c, DtManifest *m, DtError *e) {
  DtError unread = {0};
  if (!dt_manifest_read(m, c->path, e))
    dt_manifest_check(m, c->path, dt_world.rank, dt_world.size, e);
  if (damage_or_not(e) && e->status != DT_EXIT_CONTENT) unread = *e;
  if (dt_agree_on(&unread)) {
    *e = unread;
    return e->status;
  }
  uint64_t check = m->check;
  dt_control_broadcast(world(), DT_TYPE_I32, 0, &check, 2, (DtNote){"a manifest's hash", -1, NULL});
  if (!e->status && check != m->check)
    dt_fail(e, DT_EXIT_CONTENT, "rank %d finds another checkpoint in %s than rank 0", dt_world.rank,
            c->path);
  return dt_agree_on(e);
}

static int check_and_note(DtCheckpoint *c, DtError *e) {
  DtManifest m;
  check(c, &m, e);
  c->step = m.step;
  c->samples = m.samples;
  c->seed = m.seed;
  c->train_samples = m.train_samples;
  c->scaling = m.scaling;
  snprintf(c->precision, sizeof c->precision, "%s", m.precision ? m.precision : "");
  dt_manifest_free(&m);
  return e->status;
}

// What the first rank has found in a folder.
enum { NOTHING, THE_FOLDER, A_STEP };
typedef struct {
  int64_t kind, step;
} Found;

// The newest in `folder` below step `below`, or the folder itself.
static int look(const char *folder, int64_t below, Found *f, DtError *e) {
  char manifest[PATH_MAX];
  const char *slash = strrchr(folder, '/');
  bool one = step_of(slash ? slash + 1 : folder, "") >= 0; // a checkpoint was asked for by its name
  DtKind kind, inside;
  *f = (Found){NOTHING, -1};
  if (dt_look_at(folder, &kind, e)) return e->status;
  if (kind == DT_NOTHING)
    return one ? dt_fail(e, DT_EXIT_MISSING, "there is no checkpoint %s", folder) : 0;
  if (kind != DT_FOLDER)
    return dt_fail(e, DT_EXIT_CONTENT, "%s is not a folder of checkpoints", folder);
  if (dt_path(manifest, folder, "manifest.json", e) || dt_look_at(manifest, &inside, e))
    return e->status;
  if (one || inside != DT_NOTHING) {
    f->kind = THE_FOLDER;
    return 0;
  }
  if (step_below(folder, "", below, &f->step, e)) return e->status;
  if (f->step >= 0) f->kind = A_STEP;
  else if (below < INT64_MAX)
    return dt_fail(e, DT_EXIT_CONTENT, "%s holds no complete checkpoint", folder);
  return 0;
}

// The result of the first rank counts for all.
static int look_together(const char *folder, int64_t below, Found *f, DtError *e) {
  *f = (Found){NOTHING, -1};
  if (first_rank()) look(folder, below, f, e);
  if (dt_agree_on(e)) return e->status;
  dt_control_broadcast(world(), DT_TYPE_I32, 0, f, sizeof *f / sizeof(int32_t),
                       (DtNote){"the newest checkpoint", -1, NULL});
  return 0;
}

int dt_checkpoint_find(DtCheckpoint *c, const char *folder, DtError *e) {
  memset(c, 0, sizeof *c);
  for (int64_t below = INT64_MAX;;) {
    Found f;
    DtError why = {0};
    if (look_together(folder, below, &f, e) || f.kind == NOTHING) return e->status;
    if (f.kind == THE_FOLDER) snprintf(c->path, sizeof c->path, "%s", folder);
    else step_path(c->path, folder, f.step, "", &why);
    if (!check_and_note(c, &why)) return 0;
    c->path[0] = 0;
    if (f.kind == THE_FOLDER || why.status != DT_EXIT_CONTENT) {
      *e = why;
      return e->status;
    }
    if (why.text[0]) dt_note("%s; going back to the checkpoint before", why.text);
    below = f.step;
  }
}

int dt_checkpoint_find_weights(DtCheckpoint *c, const char *path, DtError *e) {
  DtKind kind = DT_NOTHING;
  memset(c, 0, sizeof *c);
  if (first_rank()) dt_look_at(path, &kind, e);
  if (dt_agree_on(e)) return e->status;
  int32_t folder = kind == DT_FOLDER;
  dt_control_broadcast(world(), DT_TYPE_I32, 0, &folder, 1,
                       (DtNote){"what --init names", -1, NULL});
  if (!folder || dt_checkpoint_find(c, path, e) || c->path[0]) return e->status;
  if (first_rank()) dt_fail(e, DT_EXIT_MISSING, "there is no checkpoint in %s", path);
  return dt_agree_on(e);
}

// ---- Loading

static int open_weights(DtFiles *f, const DtNames *names, int64_t n, const char *folder,
                        const char *const *file, int64_t nfile, const char *what, DtError *e) {
  if (dt_files_open(f, folder, file, nfile, what, e)) return e->status;
  return dt_files_check(f, names->tensor, n, e);
}

// A part for each kind, all with the parameters' names.
static int load_version_1(const DtManifest *m, const char *folder, const DtNames *names, DtRun *r,
                          int64_t kinds, DtError *e) {
  for (int64_t k = 0; k < kinds && !e->status; k++) {
    char path[PATH_MAX];
    DtFiles f = {0};
    if (!dt_path(path, folder, m->file[k], e) &&
        !open_weights(&f, names, names->each, folder, &m->file[k], 1, path, e))
      dt_files_fill(&f, names->tensor, r, (DtRegion)(k ? DT_MOMENT + k - 1 : DT_MASTER), e);
    dt_files_close(&f);
  }
  return e->status;
}

static int load_parts(const DtManifest *m, const char *folder, const DtNames *names, DtRun *r,
                      int64_t kinds, DtError *e) {
  DtFiles f;
  if (!open_weights(&f, names, names->n, folder, m->file, m->nparts, folder, e))
    for (int64_t k = 0; k < kinds && !e->status; k++)
      dt_files_fill(&f, names->tensor + k * names->each, r, (DtRegion)(k ? DT_MOMENT + k - 1 : DT_MASTER), e);
  dt_files_close(&f);
  return e->status;
}

// The first `moments` regions of moments too.
static int load(const DtCheckpoint *c, DtRun *r, int64_t moments, DtError *e) {
  DtManifest m;
  DtNames names;
  if (dt_manifest_read(&m, c->path, e)) {
    dt_manifest_free(&m);
    return e->status;
  }
  if (moments && m.moments != moments)
    dt_fail(e, DT_EXIT_CONTENT, "%s holds %lld moments of an optimizer, this program's has %lld",
            c->path, (long long)m.moments, (long long)moments);
  if (!e->status && !dt_names_make(&names, r->p, (int)m.moments, e)) {
    if (m.version == 1) load_version_1(&m, c->path, &names, r, 1 + moments, e);
    else load_parts(&m, c->path, &names, r, 1 + moments, e);
    dt_names_free(&names);
  }
  dt_manifest_free(&m);
  return e->status;
}

int dt_checkpoint_load(const DtCheckpoint *c, DtRun *r, DtError *e) {
  bool training = r->p->nmoment > 0 && dt_holds(r, DT_MOMENT);
  r->step = c->step;
  r->samples = c->samples;
  r->seed = (uint64_t)c->seed;
  if (r->p->loss_scaling && c->scaling.scale > 0) r->scaling = c->scaling;
  return load(c, r, training ? r->p->nmoment : 0, e);
}

int dt_checkpoint_init(const DtCheckpoint *c, const char *path, DtRun *r, DtError *e) {
  DtNames names;
  DtFiles f;
  if (c->path[0]) return load(c, r, 0, e);
  if (dt_names_make(&names, r->p, 0, e)) return e->status;
  if (!open_weights(&f, &names, names.n, NULL, &path, 1, path, e))
    dt_files_fill(&f, names.tensor, r, DT_MASTER, e);
  dt_files_close(&f);
  dt_names_free(&names);
  return e->status;
}
