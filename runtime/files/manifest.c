#define _GNU_SOURCE
#include "runtime/files/manifest.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char FORMAT[] = "dtc checkpoint";
enum { OLDEST = 1, VERSION = 2, MOST_PARTS = 1 << 20 };
// No run reaches these, and sums of them and a run's own numbers stay within int64.
static const int64_t MOST_STEPS = 1000000000000000, MOST_SAMPLES = 1000000000000000000,
                     MOST_BYTES = 1000000000000000000;

void dt_part_name(char out[DT_PART_NAME], int rank) {
  snprintf(out, DT_PART_NAME, "part-%05d.safetensors", rank);
}

// ---- Writing

typedef struct {
  DtOut out;
  DtHash hash; // of the lines so far
} Writer;

__attribute__((format(printf, 2, 3))) static void put(Writer *w, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  dt_hash_add(&w->hash, text, (size_t)n);
  dt_out_write(&w->out, text, (size_t)n);
}

int dt_manifest_write(const char *folder, const DtRun *r, const DtProgress *at, const DtPartInfo *info, int n, DtError *e) {
  const DtProgram *p = r->p;
  char path[PATH_MAX], model[256], lr[32], name[DT_PART_NAME];
  Writer w;
  if (dt_path(path, folder, "manifest.json", e) || dt_out_open(&w.out, path, e)) return e->status;
  dt_hash_begin(&w.hash);
  dt_json_escape(model, sizeof model, p->model);
  dt_json_real(lr, r->o.lr);
  put(&w, "{\"format\":\"%s\",\"version\":%d,\n", FORMAT, VERSION);
  put(&w, "\"model\":\"%s\",\"build\":\"%s\",\"precision\":\"%s\",\"ranks\":%d,\n", model, p->build,
      p->train.precision, dt_world.size);
  put(&w, "\"step\":%lld,\"samples\":%lld,\"seed\":%lld,\"shuffle\":%s,\"train_samples\":%lld,\n",
      (long long)at->step, (long long)at->samples, (long long)at->seed,
      r->o.no_shuffle ? "false" : "true", (long long)r->train.count);
  if (p->loss_scaling)
    put(&w, "\"loss_scale\":%lld,\"clean_steps\":%lld,\"skipped_steps\":%lld,\"skipped_at_1\":%lld,\n",
        (long long)at->scaling.scale, (long long)at->scaling.clean, (long long)at->scaling.skipped,
        (long long)at->scaling.in_row);
  put(&w, "\"batch\":%lld,\"lr\":%s,\"moments\":%d,\n\"parts\":[", (long long)r->o.batch, lr,
      p->nmoment);
  bool any = false;
  for (int i = 0; i < n; i++) {
    if (!info[i].bytes) continue;
    dt_part_name(name, i);
    put(&w, "%s\n{\"file\":\"%s\",\"bytes\":%lld,\"xxh64\":\"%016llx\"}", any ? "," : "", name,
        (long long)info[i].bytes, (unsigned long long)info[i].hash);
    any = true;
  }
  put(&w, "],\n");
  unsigned long long check = dt_hash_end(&w.hash);
  put(&w, "\"check\":\"%016llx\"}\n", check);
  return dt_out_close(&w.out, e);
}

// ---- Reading

// A name that stays in the folder, whatever it is joined to.
static bool good_name(const char *s) {
  return *s && strlen(s) < 256 && !strchr(s, '/') && !strstr(s, "..") && strcmp(s, ".") != 0;
}

// Sixteen digits of the kind that the writer writes.
static bool read_hash(const char *s, uint64_t *out) {
  *out = 0;
  for (int i = 0; i < 16; i++) {
    const char *digits = "0123456789abcdef", *at = s[i] ? strchr(digits, s[i]) : NULL;
    if (!at) return false;
    *out = *out << 4 | (uint64_t)(at - digits);
  }
  return !s[16];
}

// A number of an object, from `least` to `most`.
static int read_number(const DtManifest *m, const DtJsonValue *object, const char *name,
                       int64_t least, int64_t most, const char *path, int64_t *out, DtError *e) {
  const DtJsonValue *v = dt_json_member(&m->json, object, name, DT_JSON_INTEGER);
  if (!v) return dt_fail(e, DT_EXIT_CONTENT, "%s: the integer '%s' is missing", path, name);
  if (v->integer < least || v->integer > most)
    return dt_fail(e, DT_EXIT_CONTENT, "%s: '%s' is %lld, possible are %lld to %lld", path, name,
                   (long long)v->integer, (long long)least, (long long)most);
  *out = v->integer;
  return 0;
}

static int read_part(DtManifest *m, const DtJsonValue *v, const char *path, DtError *e) {
  const DtJsonValue *file = dt_json_member(&m->json, v, "file", DT_JSON_STRING);
  const DtJsonValue *hash = dt_json_member(&m->json, v, "xxh64", DT_JSON_STRING);
  DtManifestPart *p = &m->part[m->nparts];
  if (!file || !hash || !read_hash(hash->string, &p->hash))
    return dt_fail(e, DT_EXIT_CONTENT, "%s: bad entry of a part", path);
  if (read_number(m, v, "bytes", 0, MOST_BYTES, path, &p->bytes, e)) return e->status;
  if (!good_name(file->string)) {
    char shown[128];
    dt_json_escape(shown, sizeof shown, file->string);
    return dt_fail(e, DT_EXIT_CONTENT, "%s: '%s' is not a name of a part", path, shown);
  }
  p->file = m->file[m->nparts] = file->string;
  m->nparts++;
  return 0;
}

static int read_parts(DtManifest *m, const DtJsonValue *root, const char *path, DtError *e) {
  const DtJsonValue *parts = dt_json_member(&m->json, root, "parts", DT_JSON_ARRAY);
  if (!parts || parts->count > MOST_PARTS || (m->version == 1 && parts->count != 1 + m->moments))
    return dt_fail(e, DT_EXIT_CONTENT, "%s: 'parts' is not a list of the parts", path);
  m->part = calloc((size_t)parts->count + 1, sizeof *m->part);
  m->file = calloc((size_t)parts->count + 1, sizeof *m->file);
  if (!m->part || !m->file) return dt_fail(e, DT_EXIT_OS, "no memory to read %s", path);
  for (const DtJsonValue *v = dt_json_first(&m->json, parts); v; v = dt_json_next(&m->json, v))
    if (read_part(m, v, path, e)) return e->status;
  return 0;
}

// Of a run with loss scaling.
static int read_scaling(DtManifest *m, const DtJsonValue *root, const char *path, DtError *e) {
  int64_t scale;
  if (!dt_json_member(&m->json, root, "loss_scale", DT_JSON_INTEGER)) return 0;
  if (read_number(m, root, "loss_scale", 1, (int64_t)DT_SCALE_MOST, path, &scale, e) ||
      read_number(m, root, "clean_steps", 0, DT_SCALE_GROWTH - 1, path, &m->scaling.clean, e) ||
      read_number(m, root, "skipped_steps", 0, m->step, path, &m->scaling.skipped, e) ||
      read_number(m, root, "skipped_at_1", 0, DT_SCALE_SKIPS - 1, path, &m->scaling.in_row, e))
    return e->status;
  m->scaling.scale = (double)scale;
  if (dt_loss_scale_valid(&m->scaling)) return 0;
  return dt_fail(e, DT_EXIT_CONTENT, "%s: 'loss_scale' is %lld, which is no power of two", path,
                 (long long)scale);
}

static int read_fields(DtManifest *m, const char *path, DtError *e) {
  const DtJsonValue *root = dt_json_root(&m->json);
  const DtJsonValue *format = dt_json_member(&m->json, root, "format", DT_JSON_STRING);
  const DtJsonValue *version = dt_json_member(&m->json, root, "version", DT_JSON_INTEGER);
  const int64_t any = INT64_MIN;
  if (!format || strcmp(format->string, FORMAT) != 0 || !version)
    return dt_fail(e, DT_EXIT_CONTENT, "%s is not a checkpoint's manifest", path);
  m->version = version->integer;
  if (m->version < OLDEST || m->version > VERSION)
    return dt_fail(e, DT_EXIT_CONTENT, "%s is of version %lld, this program reads %d to %d", path,
                   (long long)m->version, OLDEST, VERSION);
  if (read_number(m, root, "step", 0, MOST_STEPS, path, &m->step, e) ||
      read_number(m, root, "samples", 0, MOST_SAMPLES, path, &m->samples, e) ||
      read_number(m, root, "seed", any, INT64_MAX, path, &m->seed, e) ||
      read_number(m, root, "train_samples", 0, MOST_SAMPLES, path, &m->train_samples, e) ||
      read_number(m, root, "moments", 0, DT_MAX_MOMENTS, path, &m->moments, e) ||
      read_scaling(m, root, path, e))
    return e->status;
  const DtJsonValue *precision = dt_json_member(&m->json, root, "precision", DT_JSON_STRING);
  m->precision = precision ? precision->string : NULL;
  return read_parts(m, root, path, e);
}

int dt_manifest_parse(DtManifest *m, const char *text, size_t size, const char *path, DtError *e) {
  *m = (DtManifest){.check = dt_hash(text, size)};
  const char *line = size ? memrchr(text, '\n', size - 1) : NULL;
  char expected[64] = "";
  if (line)
    snprintf(expected, sizeof expected, "\"check\":\"%016llx\"}\n",
             (unsigned long long)dt_hash(text, (size_t)(line + 1 - text)));
  size_t last = line ? size - (size_t)(line + 1 - text) : 0;
  if (!line || last != strlen(expected) || memcmp(line + 1, expected, last) != 0)
    return dt_fail(e, DT_EXIT_CONTENT, "%s is damaged: its last line does not match the others",
                   path);
  if (dt_json_parse(&m->json, text, size, path, e)) return e->status;
  return read_fields(m, path, e);
}

int dt_manifest_read(DtManifest *m, const char *folder, DtError *e) {
  char path[PATH_MAX];
  DtMap map;
  *m = (DtManifest){.version = 0};
  if (dt_path(path, folder, "manifest.json", e) || dt_map_open(&map, path, e)) return e->status;
  int status = dt_manifest_parse(m, (const char *)map.bytes, map.size, path, e);
  dt_map_close(&map);
  return status;
}

void dt_manifest_free(DtManifest *m) {
  dt_json_free(&m->json);
  free(m->part);
  free(m->file);
  m->part = NULL;
  m->file = NULL;
}

// ---- The parts

static int check_size(const DtManifestPart *p, const char *path, DtError *e) {
  struct stat s;
  if (stat(path, &s) != 0) return dt_input_error(e, "cannot look at", path);
  if (S_ISREG(s.st_mode) && s.st_size == p->bytes) return 0;
  return dt_fail(e, DT_EXIT_CONTENT, "%s is damaged: %lld bytes, the manifest says %lld", path,
                 (long long)s.st_size, (long long)p->bytes);
}

static int check_hash(const DtManifestPart *p, const char *path, DtError *e) {
  DtMap m;
  if (dt_map_open(&m, path, e)) return e->status;
  bool same = dt_hash(m.bytes, m.size) == p->hash;
  dt_map_close(&m);
  return same ? 0
              : dt_fail(e, DT_EXIT_CONTENT, "%s is damaged: its hash is not the manifest's", path);
}

int dt_manifest_check(const DtManifest *m, const char *folder, int64_t first, int64_t stride,
                      DtError *e) {
  char path[PATH_MAX];
  for (int64_t i = 0; i < m->nparts; i++)
    if (dt_path(path, folder, m->part[i].file, e) || check_size(&m->part[i], path, e))
      return e->status;
  for (int64_t i = first; i < m->nparts; i += stride)
    if (dt_path(path, folder, m->part[i].file, e) || check_hash(&m->part[i], path, e))
      return e->status;
  return 0;
}
