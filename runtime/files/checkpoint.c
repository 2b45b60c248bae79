#define _GNU_SOURCE
#include "runtime/files/checkpoint.h"

#include "runtime/control.h"
#include "runtime/files/load.h"
#include "runtime/files/manifest.h"
#include "runtime/files/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool first_rank(void) { return dt_world.rank == 0; }
static const DtGroup *world(void) { return dt_group(DT_ALL_AXES); }

int dt_checkpoint_newest(const char *folder, int64_t *step, DtError *e) {
  return dt_step_below(folder, "", INT64_MAX, step, e);
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
  bool one = dt_step_of(slash ? slash + 1 : folder, "") >= 0; // a checkpoint was asked for by its name
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
  if (dt_step_below(folder, "", below, &f->step, e)) return e->status;
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
    else dt_step_path(c->path, folder, f.step, "", &why);
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
