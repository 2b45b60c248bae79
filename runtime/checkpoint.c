// What a crash can leave, at each point of dt_checkpoint_save: a folder step-N.tmp, which no reader
// looks at and the next run removes; or the new checkpoint whole. The manifest holds hashes of the
// parts and of itself, so damage that comes later is found too.
#define _GNU_SOURCE
#include "runtime/checkpoint.h"

#include "runtime/trace.h"
#include "runtime/weights.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char FORMAT[] = "dtc checkpoint";
enum { VERSION = 1, MOST_PARTS = 1 + DT_MAX_MOMENTS, PATIENCE_SECONDS = 5 };
static const char *const part_name[MOST_PARTS] = {"params.safetensors", "moment0.safetensors",
                                                  "moment1.safetensors"};

// The step in "step-00000100", with `end` behind it; -1 where the name is another.
static int64_t step_of(const char *name, const char *end) {
  if (strncmp(name, "step-", 5) != 0) return -1;
  const char *p = name + 5;
  int64_t v = 0;
  int digits = 0;
  for (; *p >= '0' && *p <= '9' && digits < 18; p++, digits++) v = v * 10 + (*p - '0');
  return digits >= 8 && strcmp(p, end) == 0 ? v : -1;
}

static int compare_steps(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x > y ? -1 : x < y;
}

// Steps of the folders "step-N" + end, newest first. *n < 0: the folder cannot be read.
static int64_t *list_steps(const char *folder, const char *end, int64_t *n) {
  DIR *d = opendir(folder);
  int64_t *step = NULL, capacity = 0;
  *n = d ? 0 : -1;
  for (struct dirent *f; d && (f = readdir(d));) {
    int64_t s = step_of(f->d_name, end);
    if (s < 0) continue;
    if (*n == capacity) {
      int64_t *more = realloc(step, (size_t)(capacity += 64) * sizeof *more);
      if (!more) break;
      step = more;
    }
    step[(*n)++] = s;
  }
  if (d) closedir(d);
  if (step) qsort(step, (size_t)*n, sizeof *step, compare_steps);
  return step;
}

static int step_path(char out[PATH_MAX], const char *folder, int64_t step, const char *end,
                     DtError *e) {
  char name[64];
  snprintf(name, sizeof name, "step-%08lld%s", (long long)step, end);
  return dt_path(out, folder, name, e);
}

int64_t dt_checkpoint_newest(const char *folder) {
  int64_t n, *step = list_steps(folder, "", &n), newest = n > 0 ? step[0] : -1;
  free(step);
  return newest;
}

// Saving.

// Refuses a second run. One that was killed just now may take a moment to die, and holds its lock
// till then.
static int lock(DtSaver *s, DtError *e) {
  double until = dt_seconds() + PATIENCE_SECONDS;
  while (s->lock >= 0 && flock(s->lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return 0; // a file system without locks goes without this check
    if (dt_seconds() > until)
      return dt_fail(e, DT_EXIT_CREATE, "another run is saving to %s", s->folder);
    usleep(20000);
  }
  return 0;
}

int dt_saver_open(DtSaver *s, const char *folder, DtError *e) {
  char path[PATH_MAX];
  s->lock = -1;
  if (strlen(folder) >= sizeof s->folder)
    return dt_fail(e, DT_EXIT_CREATE, "the name is too long: %s", folder);
  strcpy(s->folder, folder);
  if (dt_make_folder(folder, e)) return e->status;
  if (access(folder, W_OK | X_OK) != 0)
    return dt_fail_errno(e, DT_EXIT_CREATE, "cannot write to", folder);
  s->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock(s, e)) return e->status;
  int64_t n, *step = list_steps(folder, ".tmp", &n);
  for (int64_t i = 0; i < n; i++)
    if (step_path(path, folder, step[i], ".tmp", e) || dt_remove_folder(path, e)) break;
  free(step);
  return e->status;
}

void dt_saver_close(DtSaver *s) {
  if (s->lock >= 0) close(s->lock);
  s->lock = -1;
}

typedef struct {
  int64_t bytes[MOST_PARTS];
  uint64_t hash[MOST_PARTS];
} Parts;

static int write_manifest(const char *folder, const DtRun *r, const Parts *parts, DtError *e) {
  const DtProgram *p = r->p;
  char path[PATH_MAX], text[4096], model[256], lr[32];
  if (dt_path(path, folder, "manifest.json", e)) return e->status;
  dt_json_escape(model, sizeof model, p->model);
  dt_json_real(lr, r->o.lr);
  int n = snprintf(
      text, sizeof text,
      "{\"format\":\"%s\",\"version\":%d,\n\"model\":\"%s\",\"build\":\"%s\",\"precision\":\"%s\","
      "\n"
      "\"step\":%lld,\"samples\":%lld,\"seed\":%lld,\"shuffle\":%s,\"train_samples\":%lld,\n"
      "\"batch\":%lld,\"lr\":%s,\"moments\":%d,\n\"parts\":[",
      FORMAT, VERSION, model, p->build, p->train.precision, (long long)r->step,
      (long long)r->samples, (long long)r->seed, r->o.no_shuffle ? "false" : "true",
      (long long)r->train.count, (long long)r->o.batch, lr, p->nmoment);
  for (int i = 0; i < 1 + p->nmoment; i++)
    n += snprintf(text + n, sizeof text - (size_t)n,
                  "%s\n{\"file\":\"%s\",\"bytes\":%lld,\"xxh64\":\"%016llx\"}", i ? "," : "",
                  part_name[i], (long long)parts->bytes[i], (unsigned long long)parts->hash[i]);
  n += snprintf(text + n, sizeof text - (size_t)n, "],\n");
  DtOut o;
  if (dt_out_open(&o, path, e)) return e->status;
  dt_out_write(&o, text, (size_t)n);
  // The last line guards what stands before it.
  dt_out_print(&o, "\"check\":\"%016llx\"}\n", (unsigned long long)dt_hash(text, (size_t)n));
  return dt_out_close(&o, e);
}

static int make_folder(const char *folder, DtError *e) {
  if (mkdir(folder, 0777) == 0) return 0;
  return dt_fail_errno(e, errno == ENOSPC ? DT_EXIT_IO : DT_EXIT_CREATE, "cannot create", folder);
}

// All ranks come here; what fails anywhere is agreed on before anybody goes on.
static int write_folder(const char *folder, DtRun *r, DtError *e) {
  DtNames names;
  Parts parts;
  char path[PATH_MAX];
  bool first = dt_world.rank == 0;
  int status = dt_names_make(&names, r->p, e);
  if (first && !status) status = make_folder(folder, e);
  status = dt_agree(status);
  for (int i = 0; i < 1 + r->p->nmoment && !status; i++) {
    DtRegion region = i ? DT_MOMENT + i - 1 : DT_PARAM;
    if (!dt_path(path, folder, part_name[i], e))
      dt_weights_save(&names, r, region, path, &parts.bytes[i], &parts.hash[i], e);
    status = dt_agree(e->status);
  }
  if (first && !status) status = write_manifest(folder, r, &parts, e);
  if (first && !status) status = dt_sync_folder(folder, e);
  dt_names_free(&names);
  return status;
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
  dt_remove_folder(from, &ignored); // what is left is a .tmp that the next run removes
  return 0;
}

// Removes the oldest, up to `last`; checkpoints past it are another run's. A failure is no reason
// to stop.
static void remove_old(const char *folder, int64_t last, int64_t keep) {
  int64_t n, *step = list_steps(folder, "", &n), kept = 0;
  for (int64_t i = 0; i < n; i++) {
    char path[PATH_MAX], away[PATH_MAX];
    DtError e = {0};
    if (step[i] > last || kept++ < keep) continue;
    // First the name, then the files: a checkpoint is never seen with parts missing.
    if (!step_path(path, folder, step[i], "", &e) &&
        !step_path(away, folder, step[i], ".tmp", &e) &&
        (rename(path, away) != 0 || dt_remove_folder(away, &e)))
      dt_note("cannot remove %s", path);
  }
  free(step);
}

int dt_checkpoint_save(DtSaver *s, DtRun *r, int64_t keep, DtError *e) {
  char temporary[PATH_MAX], path[PATH_MAX];
  bool first = dt_world.rank == 0;
  if (step_path(temporary, s->folder, r->step, ".tmp", e) ||
      step_path(path, s->folder, r->step, "", e))
    return e->status;
  dt_trace_begin("save");
  int status = dt_agree(first ? dt_remove_folder(temporary, e) : 0);
  if (!status) status = write_folder(temporary, r, e);
  if (first && !status) status = take_name(temporary, path, e);
  if (first && !status) status = dt_sync_folder(s->folder, e);
  status = dt_agree(status);
  if (first && status) {
    DtError ignored = {0};
    dt_remove_folder(temporary, &ignored); // gives the space back
  } else if (first && keep > 0) {
    remove_old(s->folder, r->step, keep);
  }
  dt_trace_end("save");
  if (status && !e->status) dt_fail(e, status, "the checkpoint of step %lld could not be written",
                                    (long long)r->step);
  return status;
}

// Finding and loading.

static int check_part(const DtJson *j, const DtJsonValue *v, const char *folder, DtError *e) {
  const DtJsonValue *file = dt_json_member(j, v, "file", DT_JSON_STRING);
  const DtJsonValue *bytes = dt_json_member(j, v, "bytes", DT_JSON_INTEGER);
  const DtJsonValue *hash = dt_json_member(j, v, "xxh64", DT_JSON_STRING);
  char path[PATH_MAX], found[17];
  if (!file || !bytes || !hash || strchr(file->string, '/'))
    return dt_fail(e, DT_EXIT_CONTENT, "%s/manifest.json: bad entry of a part", folder);
  DtMap m;
  if (dt_path(path, folder, file->string, e) || dt_map_open(&m, path, e)) return e->status;
  snprintf(found, sizeof found, "%016llx", (unsigned long long)dt_hash(m.bytes, m.size));
  bool same = (int64_t)m.size == bytes->integer && strcmp(found, hash->string) == 0;
  dt_map_close(&m);
  return same ? 0
              : dt_fail(e, DT_EXIT_CONTENT, "%s is damaged: its hash is not the manifest's", path);
}

static int check_parts(const DtJson *j, DtCheckpoint *c, DtError *e) {
  const DtJsonValue *root = dt_json_root(j),
                    *parts = dt_json_member(j, root, "parts", DT_JSON_ARRAY);
  const DtJsonValue *format = dt_json_member(j, root, "format", DT_JSON_STRING);
  const DtJsonValue *version = dt_json_member(j, root, "version", DT_JSON_INTEGER), *moments;
  if (!format || strcmp(format->string, FORMAT) != 0 || !version || !parts)
    return dt_fail(e, DT_EXIT_CONTENT, "%s/manifest.json is no checkpoint's manifest", c->path);
  if (version->integer != VERSION)
    return dt_fail(e, DT_EXIT_CONTENT, "%s is of version %lld, this program reads %d", c->path,
                   (long long)version->integer, VERSION);
  struct {
    const char *name;
    int64_t *out;
  } number[] = {{"step", &c->step},
                {"samples", &c->samples},
                {"seed", &c->seed},
                {"train_samples", &c->train_samples}};
  for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
    const DtJsonValue *v = dt_json_member(j, root, number[i].name, DT_JSON_INTEGER);
    if (!v || (v->integer < 0 && number[i].out != &c->seed))
      return dt_fail(e, DT_EXIT_CONTENT, "%s/manifest.json: '%s' is missing", c->path,
                     number[i].name);
    *number[i].out = v->integer;
  }
  moments = dt_json_member(j, root, "moments", DT_JSON_INTEGER);
  if (!moments || moments->integer < 0 || moments->integer > DT_MAX_MOMENTS ||
      parts->count != 1 + moments->integer)
    return dt_fail(e, DT_EXIT_CONTENT, "%s/manifest.json: 'moments' and 'parts' disagree", c->path);
  c->nmoment = (int)moments->integer;
  for (const DtJsonValue *v = dt_json_first(j, parts); v; v = dt_json_next(j, v))
    if (check_part(j, v, c->path, e)) return e->status;
  return 0;
}

// Reads the manifest in c->path and checks everything that it tells of.
static int check(DtCheckpoint *c, DtError *e) {
  char path[PATH_MAX], found[64];
  DtMap m;
  DtJson j = {0};
  if (dt_path(path, c->path, "manifest.json", e) || dt_map_open(&m, path, e)) return e->status;
  const char *text = (const char *)m.bytes, *line = m.size ? memrchr(text, '\n', m.size - 1) : NULL;
  int status = 0;
  if (line)
    snprintf(found, sizeof found, "\"check\":\"%016llx\"}\n",
             (unsigned long long)dt_hash(text, (size_t)(line + 1 - text)));
  size_t last = line ? m.size - (size_t)(line + 1 - text) : 0;
  if (!line || last != strlen(found) || memcmp(line + 1, found, last) != 0)
    status =
        dt_fail(e, DT_EXIT_CONTENT, "%s is damaged: its last line does not guard the others", path);
  if (!status) status = dt_json_parse(&j, text, m.size, path, e);
  if (!status) status = check_parts(&j, c, e);
  dt_json_free(&j);
  dt_map_close(&m);
  return status;
}

int dt_checkpoint_find(DtCheckpoint *c, const char *folder, DtError *e) {
  char manifest[PATH_MAX];
  memset(c, 0, sizeof *c);
  const char *slash = strrchr(folder, '/');
  bool one = step_of(slash ? slash + 1 : folder, "") >= 0; // a checkpoint was asked for by its name
  if (!dt_exists(folder))
    return one ? dt_fail(e, DT_EXIT_MISSING, "there is no checkpoint %s", folder) : 0;
  if (!dt_is_folder(folder))
    return dt_fail(e, DT_EXIT_CONTENT, "%s is not a folder of checkpoints", folder);
  if (dt_path(manifest, folder, "manifest.json", e)) return e->status;
  if (one || dt_exists(manifest)) {
    snprintf(c->path, sizeof c->path, "%s", folder);
    if (check(c, e))
      return e->status == DT_EXIT_MISSING ? (e->status = DT_EXIT_CONTENT) : e->status;
    return 0;
  }
  int64_t n, *step = list_steps(folder, "", &n);
  if (n < 0) return dt_fail_errno(e, DT_EXIT_IO, "cannot read folder", folder);
  bool found = false;
  for (int64_t i = 0; i < n && !found; i++) {
    DtError why = {0};
    memset(c, 0, sizeof *c);
    if (step_path(c->path, folder, step[i], "", e)) break;
    found = check(c, &why) == 0;
    if (!found) dt_note("%s", why.text);
    if (!found && i + 1 < n) dt_note("going back to the checkpoint before");
  }
  free(step);
  if (!found) c->path[0] = 0;
  if (!found && n > 0 && !e->status)
    return dt_fail(e, DT_EXIT_CONTENT, "%s holds no checkpoint that is whole", folder);
  return e->status;
}

int dt_checkpoint_load(const DtCheckpoint *c, DtRun *r, DtError *e) {
  DtNames names;
  char path[PATH_MAX];
  if (dt_names_make(&names, r->p, e)) return e->status;
  int status = 0;
  for (int i = 0; i < 1 + r->p->nmoment && !status; i++) {
    DtRegion region = i ? DT_MOMENT + i - 1 : DT_PARAM;
    if (i && !r->zero.moment[i - 1]) continue;
    if (i > 0 && c->nmoment != r->p->nmoment)
      status =
          dt_fail(e, DT_EXIT_CONTENT, "%s holds %d moments of an optimizer, this program's has %d",
                  c->path, c->nmoment, r->p->nmoment);
    if (!status) status = dt_path(path, c->path, part_name[i], e);
    if (!status) status = dt_weights_load(&names, r, region, path, e);
  }
  dt_names_free(&names);
  r->step = c->step;
  r->samples = c->samples;
  r->seed = (uint64_t)c->seed;
  return status;
}
