#define _GNU_SOURCE
#include "runtime/data/data.h"

#include "runtime/base/real.h"
#include "runtime/files/safetensors.h"
#include "runtime/data/shuffle.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int64_t dt_data_row(const DtData *data) {
  int64_t n = 1;
  for (int i = 1; i < data->rank; i++) n *= data->extent[i];
  return n;
}

size_t dt_data_bytes(const DtData *data) {
  return (size_t)(data->extent[0] * dt_data_row(data)) * dt_type_size(data->type);
}

static int out_of_range(const DtDataset *d, int k, int64_t sample, int64_t element,
                        int64_t position, int64_t value, DtError *e) {
  const DtData *a = &d->program->data[k];
  const char *path = d->path[d->kind == DT_DATA_ARRAYS ? k : 0];
  if (d->kind == DT_DATA_ARRAYS)
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s: element %lld of row %lld is %lld; '%s' takes %lld to %lld", path,
                   (long long)element, (long long)sample, (long long)value, a->name,
                   (long long)a->lo, (long long)a->hi - 1);
  return dt_fail(e, DT_EXIT_CONTENT, "%s: token %lld is %lld; '%s' takes %lld to %lld", path,
                 (long long)position, (long long)value, a->name, (long long)a->lo,
                 (long long)a->hi - 1);
}

static int check_tokens_program(const DtProgram *p, DtError *e) {
  if (p->ndata < 1 || p->ndata > 2)
    return dt_fail(e, DT_EXIT_BUG, "a model over tokens has %d arguments", p->ndata);
  for (int k = 0; k < p->ndata; k++)
    if (p->data[k].type != DT_TYPE_I32 || dt_data_row(&p->data[k]) != p->train.length)
      return dt_fail(e, DT_EXIT_BUG, "argument '%s' does not take %lld tokens", p->data[k].name,
                     (long long)p->train.length);
  return 0;
}

static int open_tokens(DtDataset *d, const char *path, DtError *e) {
  const DtProgram *p = d->program;
  int64_t length = p->train.length;
  if (check_tokens_program(p, e)) return e->status;
  if (strlen(path) >= PATH_MAX) return dt_fail(e, DT_EXIT_USAGE, "the name is too long: %s", path);
  strcpy(d->path[0], path);
  if (dt_tokens_open(&d->tokens, path, d->kind == DT_DATA_BYTES, e)) return e->status;
  d->tokens_each = length;
  d->count =
      d->tokens.count > 0 ? (d->tokens.count - 1) / length : 0; // the last target is one further
  if (d->count < 1)
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s: %lld tokens are too few for one sample of %lld and its targets", path,
                   (long long)d->tokens.count, (long long)length);
  return 0;
}

static int open_array(DtDataset *d, int k, DtError *e) {
  const DtData *a = &d->program->data[k];
  DtNpy *n = &d->array[k];
  const char *path = d->path[k];
  if (dt_npy_open(n, path, e)) return e->status;
  if (a->type == DT_TYPE_I32 && dt_npy_is_real(n->type))
    return dt_fail(e, DT_EXIT_CONTENT, "%s holds %s; '%s' takes integers", path,
                   dt_npy_type_name(n->type), a->name);
  if (a->type == DT_TYPE_BOOL && n->type != DT_NPY_BOOL)
    return dt_fail(e, DT_EXIT_CONTENT, "%s holds %s; '%s' takes bool: save x.astype(bool)", path,
                   dt_npy_type_name(n->type), a->name);
  bool same = n->rank == a->rank;
  for (int i = 1; same && i < a->rank; i++) same = n->extent[i] == a->extent[i];
  if (!same) {
    char found[192], row[192];
    dt_shape_text(found, n->rank, n->extent);
    dt_shape_text(row, a->rank - 1, a->extent + 1);
    return dt_fail(e, DT_EXIT_CONTENT, "%s has shape %s; '%s' takes rows of shape %s", path, found,
                   a->name, row);
  }
  if (n->extent[0] < 1) return dt_fail(e, DT_EXIT_CONTENT, "%s holds no sample", path);
  if (k > 0 && n->extent[0] != d->count)
    return dt_fail(e, DT_EXIT_CONTENT, "%s has %lld rows, %s has %lld", path,
                   (long long)n->extent[0], d->path[0], (long long)d->count);
  d->count = n->extent[0];
  d->tokens_each = 1;
  return 0;
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// "NAME=FILE,NAME=FILE" over the model's own files.
static int name_files(DtDataset *d, const char *given, DtError *e) {
  for (const char *at = given; *at;) {
    size_t n = strcspn(at, ",");
    const char *equal = memchr(at, '=', n);
    int k = 0;
    for (; equal && k < d->program->ndata; k++) {
      const char *name = d->program->data[k].name;
      if (strlen(name) == (size_t)(equal - at) && memcmp(name, at, (size_t)(equal - at)) == 0)
        break;
    }
    if (!equal || k == d->program->ndata)
      return dt_fail(e, DT_EXIT_USAGE,
                     "'%.*s': expected a folder, or NAME=FILE with an argument of the model",
                     (int)n, at);
    size_t length = n - (size_t)(equal + 1 - at);
    if (length >= PATH_MAX) return dt_fail(e, DT_EXIT_USAGE, "the name is too long: %s", given);
    memcpy(d->path[k], equal + 1, length);
    d->path[k][length] = 0;
    at += n + (at[n] == ',');
  }
  return 0;
}

static int open_arrays(DtDataset *d, bool val, const char *given, DtError *e) {
  const DtProgram *p = d->program;
  for (int k = 0; k < p->ndata; k++) {
    const char *own = val && p->data[k].val_path ? p->data[k].val_path : p->data[k].path;
    if (!own) continue;
    if (given && dt_is_folder(given)) {
      if (dt_path(d->path[k], given, base_name(own), e)) return e->status;
    } else if (strlen(own) < PATH_MAX) {
      strcpy(d->path[k], own);
    }
  }
  if (given && !dt_is_folder(given)) {
    if (!strchr(given, '=') && p->ndata > 1)
      return dt_fail(e, dt_exists(given) ? DT_EXIT_USAGE : DT_EXIT_MISSING,
                     "%s: expected a folder with the model's files, or NAME=FILE,...", given);
    if (strchr(given, '=')) {
      if (name_files(d, given, e)) return e->status;
    } else if (strlen(given) < PATH_MAX) {
      strcpy(d->path[0], given);
    }
  }
  for (int k = 0; k < p->ndata; k++) {
    if (!d->path[k][0])
      return dt_fail(e, DT_EXIT_MISSING, "the model's '%s' has no file", p->data[k].name);
    if (open_array(d, k, e)) return e->status;
  }
  return 0;
}

int dt_dataset_open(DtDataset *d, const DtProgram *p, bool val, const char *given, DtError *e) {
  memset(d, 0, sizeof *d);
  const DtTrain *t = &p->train;
  d->program = p;
  d->kind = val && t->val != DT_DATA_NONE ? t->val : t->data;
  const char *what = val ? "validation data" : "training data", *option = val ? "--val" : "--data";
  if (d->kind == DT_DATA_ARRAYS) {
    if (val && !given && t->val == DT_DATA_NONE)
      return dt_fail(e, DT_EXIT_MISSING, "no %s: name it with %s", what, option);
    return open_arrays(d, val, given, e);
  }
  if (d->kind == DT_DATA_NONE)
    return dt_fail(e, DT_EXIT_MISSING,
                   "the model's train block has no data, so the format of %s is unknown", option);
  const char *path = given ? given : val ? t->val_path : t->data_path;
  if (!path) return dt_fail(e, DT_EXIT_MISSING, "no %s: name it with %s", what, option);
  return open_tokens(d, path, e);
}

void dt_dataset_close(DtDataset *d) {
  dt_tokens_close(&d->tokens);
  for (int k = 0; k < DT_MAX_DATA; k++) dt_npy_close(&d->array[k]);
}

static int tokens_row(const DtDataset *d, int k, int64_t sample, int32_t *out, DtError *e) {
  const DtData *a = &d->program->data[k];
  int64_t from = sample * d->tokens_each + k; // argument 1, the targets, is one further
  for (int64_t i = 0; i < d->tokens_each; i++) out[i] = dt_token(&d->tokens, from + i);
  for (int64_t i = 0; a->checked && i < d->tokens_each; i++)
    if (out[i] < a->lo || out[i] >= a->hi)
      return out_of_range(d, k, sample, i, from + i, out[i], e);
  return 0;
}

static int array_integers(const DtDataset *d, int k, int64_t sample, int64_t n, int32_t *out,
                          DtError *e) {
  const DtData *a = &d->program->data[k];
  for (int64_t i = 0; i < n; i++) {
    int64_t v = dt_npy_integer(&d->array[k], sample * n + i);
    if (a->checked && (v < a->lo || v >= a->hi))
      return out_of_range(d, k, sample, i, sample * n + i, v, e);
    if (v < INT32_MIN || v > INT32_MAX)
      return dt_fail(e, DT_EXIT_CONTENT, "%s: element %lld of row %lld is %lld, past 32 bits",
                     d->path[k], (long long)i, (long long)sample, (long long)v);
    out[i] = (int32_t)v;
  }
  return 0;
}

int dt_dataset_row(const DtDataset *d, int64_t sample, int64_t row, void *const *buffer,
                   DtError *e) {
  const DtProgram *p = d->program;
  for (int k = 0; k < p->ndata; k++) {
    const DtData *a = &p->data[k];
    int64_t n = dt_data_row(a);
    if (d->kind != DT_DATA_ARRAYS) {
      if (tokens_row(d, k, sample, (int32_t *)buffer[k] + row * n, e)) return e->status;
    } else if (a->type == DT_TYPE_I32) {
      if (array_integers(d, k, sample, n, (int32_t *)buffer[k] + row * n, e)) return e->status;
    } else if (a->type == DT_TYPE_BOOL) {
      uint8_t *out = (uint8_t *)buffer[k] + row * n;
      for (int64_t i = 0; i < n; i++) out[i] = dt_npy_integer(&d->array[k], sample * n + i) != 0;
    } else if (a->type == DT_TYPE_F32 && d->array[k].type == DT_NPY_F32) {
      memcpy((float *)buffer[k] + row * n, d->array[k].data + sample * n * 4, (size_t)n * 4);
    } else if (a->type == DT_TYPE_F32) {
      float *out = (float *)buffer[k] + row * n;
      for (int64_t i = 0; i < n; i++) out[i] = (float)dt_npy_real(&d->array[k], sample * n + i);
    } else {
      double *out = (double *)buffer[k] + row * n;
      for (int64_t i = 0; i < n; i++) out[i] = dt_npy_real(&d->array[k], sample * n + i);
    }
  }
  return 0;
}

// Whether an argument's values could be wrong at all: bytes are below 256.
static bool must_look(const DtDataset *d, int k) {
  const DtData *a = &d->program->data[k];
  if (a->type != DT_TYPE_I32) return false;
  if (d->kind != DT_DATA_ARRAYS)
    return a->checked && (a->lo > 0 || a->hi < (d->tokens.width == 1 ? 256 : 65536));
  return a->checked || d->array[k].type == DT_NPY_I64 || d->array[k].type == DT_NPY_U64 ||
         d->array[k].type == DT_NPY_U32;
}

int dt_dataset_check(const DtDataset *d, int64_t most_bytes, DtError *e) {
  int64_t bytes = (int64_t)d->tokens.map.size, widest = 0;
  bool look = false;
  for (int k = 0; k < d->program->ndata; k++) {
    int64_t n = dt_data_row(&d->program->data[k]);
    bytes += (int64_t)d->array[k].map.size;
    widest = n > widest ? n : widest;
    look |= must_look(d, k);
  }
  if (!look || (most_bytes > 0 && bytes > most_bytes)) return 0;
  int32_t *row = malloc((size_t)widest * sizeof *row);
  if (!row) return dt_fail(e, DT_EXIT_OS, "no memory to check the data");
  int status = 0;
  for (int64_t s = 0; s < d->count && !status; s++)
    for (int k = 0; k < d->program->ndata && !status; k++) {
      if (!must_look(d, k)) continue;
      status = d->kind == DT_DATA_ARRAYS
                   ? array_integers(d, k, s, dt_data_row(&d->program->data[k]), row, e)
                   : tokens_row(d, k, s, row, e);
    }
  free(row);
  return status;
}

int64_t dt_dataset_sample(const DtDataset *d, int64_t i, uint64_t seed, bool shuffle) {
  int64_t at = i % d->count;
  return shuffle ? dt_shuffle(at, d->count, seed, (uint64_t)(i / d->count)) : at;
}

// Of a large file, blocks: the disk is asked for all of them before the first is waited for.
static void hash_blocks(DtHash *h, const DtMap *m) {
  enum { BLOCKS = 1024, BLOCK = 16 << 10, PAGE = 4096 };
  const size_t step = (m->size - BLOCK) / (BLOCKS - 1);
  for (size_t i = 0; i < BLOCKS; i++) {
    uintptr_t at = (uintptr_t)(m->bytes + i * step), page = at / PAGE * PAGE;
    madvise((void *)page, at - page + BLOCK, MADV_WILLNEED);
  }
  for (size_t i = 0; i < BLOCKS; i++) dt_hash_add(h, m->bytes + i * step, BLOCK);
  dt_hash_add(h, m->bytes + m->size - BLOCK, BLOCK);
}

uint64_t dt_dataset_hash(const DtDataset *d, int k) {
  const DtMap *m = d->kind == DT_DATA_ARRAYS ? &d->array[k].map : &d->tokens.map;
  uint64_t size = m->size;
  DtHash h;
  dt_hash_begin(&h);
  dt_hash_add(&h, &size, sizeof size);
  if (size > DT_LOOK_THROUGH) hash_blocks(&h, m);
  else if (size) dt_hash_add(&h, m->bytes, size);
  return dt_hash_end(&h);
}
