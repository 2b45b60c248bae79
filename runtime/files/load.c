#include "runtime/files/load.h"

#include "runtime/files/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) {
  return strcmp(((const DtTensor *)a)->name, ((const DtTensor *)b)->name);
}

static const DtTensor *find(const DtFiles *f, const char *name) {
  DtTensor key = {.name = name};
  return f->n ? bsearch(&key, f->tensor, (size_t)f->n, sizeof key, by_name) : NULL;
}

// The file that a tensor is in.
static const char *path_of(const DtFiles *f, const DtTensor *t) {
  for (int64_t i = 0; i < f->nfile; i++) {
    const DtTensor *in = dt_weights_find(&f->file[i], t->name);
    if (in && in->data == t->data) return f->path[i];
  }
  return f->what;
}

static int merge(DtFiles *f, DtError *e) {
  int64_t n = 0;
  for (int64_t i = 0; i < f->nfile; i++) n += f->file[i].n;
  f->tensor = calloc((size_t)n + 1, sizeof *f->tensor);
  if (!f->tensor) return dt_fail(e, DT_EXIT_OS, "no memory to read %s", f->what);
  for (int64_t i = 0; i < f->nfile; f->n += f->file[i++].n)
    memcpy(f->tensor + f->n, f->file[i].tensor, (size_t)f->file[i].n * sizeof *f->tensor);
  qsort(f->tensor, (size_t)n, sizeof *f->tensor, by_name);
  for (int64_t i = 1; i < n; i++) {
    const DtTensor *t = &f->tensor[i];
    char shown[128];
    if (strcmp(t[-1].name, t->name) != 0) continue;
    dt_json_escape(shown, sizeof shown, t->name);
    return dt_fail(e, DT_EXIT_CONTENT, "%s: '%s' occurs twice, in %.300s and %.300s", f->what,
                   shown, path_of(f, &t[-1]), path_of(f, t));
  }
  return 0;
}

int dt_files_open(DtFiles *f, const char *folder, const char *const *name, int64_t n,
                  const char *what, DtError *e) {
  *f = (DtFiles){.what = what};
  f->file = calloc((size_t)n + 1, sizeof *f->file);
  f->path = calloc((size_t)n + 1, sizeof *f->path);
  size_t bytes = 1;
  for (int64_t i = 0; i < n; i++) bytes += strlen(name[i]) + (folder ? strlen(folder) : 0) + 2;
  f->paths = malloc(bytes);
  if (!f->file || !f->path || !f->paths)
    return dt_fail(e, DT_EXIT_OS, "no memory to read %s", what);
  char *text = f->paths;
  for (int64_t i = 0; i < n; i++) {
    f->path[i] = text;
    text += sprintf(text, folder ? "%s/%s" : "%s%s", folder ? folder : "", name[i]) + 1;
    int status = dt_weights_open(&f->file[i], f->path[i], e);
    f->nfile++;
    if (status) return status;
  }
  return merge(f, e);
}

void dt_files_close(DtFiles *f) {
  for (int64_t i = 0; i < f->nfile; i++) dt_weights_close(&f->file[i]);
  free(f->file);
  free(f->path);
  free(f->paths);
  free(f->tensor);
  memset(f, 0, sizeof *f);
}

// Lists the tensors that the files lack and those that they have in excess, the first few of each.
static int names_differ(const DtFiles *f, const DtTensor *tensor, int64_t n, DtError *e) {
  char text[900], shown[96];
  size_t at = 0;
  int64_t missing = 0, unknown = 0;
  enum { SHOW = 3 };
  text[0] = 0;
  for (int64_t i = 0; i < n; i++) {
    if (find(f, tensor[i].name) || missing++ >= SHOW) continue;
    dt_json_escape(shown, sizeof shown, tensor[i].name);
    at += (size_t)snprintf(text + at, sizeof text - at, "%s'%s'",
                           missing > 1 ? ", " : "; missing: ", shown);
  }
  if (missing > SHOW)
    at += (size_t)snprintf(text + at, sizeof text - at, " and %lld more",
                           (long long)(missing - SHOW));
  for (int64_t i = 0; i < f->n; i++) {
    bool known = false;
    for (int64_t k = 0; k < n && !known; k++)
      known = strcmp(tensor[k].name, f->tensor[i].name) == 0;
    if (known || unknown++ >= SHOW) continue;
    dt_json_escape(shown, sizeof shown, f->tensor[i].name);
    at += (size_t)snprintf(text + at, sizeof text - at, "%s'%s'",
                           unknown > 1 ? ", " : "; unknown: ", shown);
  }
  if (unknown > SHOW)
    snprintf(text + at, sizeof text - at, " and %lld more", (long long)(unknown - SHOW));
  return dt_fail(e, DT_EXIT_CONTENT, "%.300s does not hold this model's parameters%s", f->what,
                 text);
}

static int check_tensor(const DtFiles *f, const DtTensor *want, const DtTensor *t, DtError *e) {
  if (t->rank != want->rank ||
      memcmp(t->extent, want->extent, (size_t)t->rank * sizeof *t->extent) != 0) {
    char expected[192], shape[192];
    dt_shape_text(expected, want->rank, want->extent);
    dt_shape_text(shape, t->rank, t->extent);
    return dt_fail(e, DT_EXIT_CONTENT, "%.600s: '%s' has shape %s, expected %s", path_of(f, t),
                   want->name, shape, expected);
  }
  if (dt_stored_real(t->type)) return 0;
  return dt_fail(e, DT_EXIT_CONTENT, "%.600s: '%s' holds %s, expected F32, F64, F16 or BF16",
                 path_of(f, t), want->name, dt_stored_name(t->type));
}

int dt_files_check(const DtFiles *f, const DtTensor *tensor, int64_t n, DtError *e) {
  int64_t found = 0;
  for (int64_t i = 0; i < n; i++) found += find(f, tensor[i].name) != NULL;
  if (found != n || f->n != n) return names_differ(f, tensor, n, e);
  for (int64_t i = 0; i < n; i++)
    if (check_tensor(f, &tensor[i], find(f, tensor[i].name), e)) return e->status;
  return 0;
}

// Elements [lo, hi) of the local array, to the host's memory.
static void read_elements(const DtTensor *t, const DtLayout *l, int64_t lo, int64_t hi, DtType type, char *to) {
  size_t size = dt_type_size(type);
  for (int64_t at = lo, run; at < hi; at += run, to += (size_t)run * size) {
    int64_t element;
    run = dt_layout_run(l, at, hi - at, &element);
    if (element < 0) memset(to, 0, (size_t)run * size);
    else dt_tensor_read(t, element, run, type, to);
  }
}

static int fill_instance(const DtTensor *t, DtRun *r, DtRegion region, int64_t i, DtError *e) {
  DtStretch all = dt_instance_stretch(&r->zero, region, i);
  DtLayout l;
  DtView v;
  dt_piece_layout(&r->zero, r->zero.units.instance[i].number, dt_world.rank, &l);
  for (int64_t at = all.lo; at < all.hi; at += v.n) {
    if (dt_view_open(&v, r, region, i, at, all.hi - at, DT_WRITE, e)) return e->status;
    read_elements(t, &l, at, at + v.n, dt_region_type(r->p, region), v.at);
    dt_view_close(&v);
  }
  return 0;
}

// Instances as they lie in a region.
static int fill_region(const DtFiles *f, const DtTensor *tensor, DtRun *r, DtRegion region, DtError *e) {
  const DtUnits *u = &r->zero.units;
  for (int64_t k = 0; k < u->ninstance && dt_holds(r, region) && !e->status; k++) {
    int64_t i = u->inside[k];
    fill_instance(find(f, tensor[u->instance[i].number].name), r, region, i, e);
  }
  return e->status;
}

int dt_files_fill(const DtFiles *f, const DtTensor *tensor, DtRun *r, DtRegion region, DtError *e) {
  if (fill_region(f, tensor, r, region, e)) return e->status;
  return region == DT_MASTER && dt_has_masters(r->p) ? fill_region(f, tensor, r, DT_PARAM, e) : 0;
}
