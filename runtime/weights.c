#include "runtime/weights.h"

#include "runtime/init.h"
#include "runtime/parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The parameter's name with its stars replaced by the positions in the stacks. `out` may be NULL:
// then only the length is told.
static size_t layer_name(char *out, const DtParam *p, int64_t layer) {
  size_t n = 0;
  int level = 0;
  for (const char *s = p->name; *s; s++) {
    char number[24];
    const char *piece = number;
    if (*s == '*' && level < p->nstack) {
      int64_t inner = 1;
      for (int i = ++level; i < p->nstack; i++) inner *= p->extent[i];
      snprintf(number, sizeof number, "%lld", (long long)(layer / inner % p->extent[level - 1]));
    } else {
      number[0] = *s;
      number[1] = 0;
    }
    size_t length = strlen(piece);
    if (out) memcpy(out + n, piece, length);
    n += length;
  }
  if (out) out[n] = 0;
  return n + 1;
}

int dt_names_make(DtNames *names, const DtProgram *p, DtError *e) {
  memset(names, 0, sizeof *names);
  int64_t n = 0;
  size_t bytes = 0;
  for (int i = 0; i < p->nparam; i++)
    for (int64_t l = 0; l < dt_param_slices(&p->param[i]); l++, n++)
      bytes += layer_name(NULL, &p->param[i], l);
  names->tensor = calloc(n ? (size_t)n : 1, sizeof *names->tensor);
  names->text = malloc(bytes + 1);
  if (!names->tensor || !names->text) {
    dt_names_free(names);
    return dt_fail(e, DT_EXIT_OS, "no memory for %lld names", (long long)n);
  }
  char *text = names->text;
  for (int i = 0; i < p->nparam; i++) {
    const DtParam *a = &p->param[i];
    int64_t nlayers = dt_param_slices(a), each = a->count / nlayers;
    for (int64_t l = 0; l < nlayers; l++) {
      DtTensor *t = &names->tensor[names->n++];
      t->name = text;
      text += layer_name(text, a, l);
      t->type = p->type == DT_TYPE_F64 ? DT_ST_F64 : DT_ST_F32;
      t->count = each;
      t->rank = a->rank - a->nstack;
      memcpy(t->extent, a->extent + a->nstack, (size_t)t->rank * sizeof *t->extent);
    }
  }
  return 0;
}

void dt_names_free(DtNames *names) {
  free(names->tensor);
  free(names->text);
  memset(names, 0, sizeof *names);
}

typedef struct {
  const DtParam *a;
  uint64_t seed;
  DtType type;
  int64_t first; // of the parameter's elements, the one at `out`
  char *out;
} Init;

static void init_part(void *const *arg, int64_t begin, int64_t end) {
  const Init *x = arg[0];
  dt_init_fill(x->a, x->seed, x->type, x->first + begin, end - begin,
               x->out + (size_t)begin * dt_type_size(x->type));
}

void dt_weights_init(DtRun *r) {
  const DtUnits *u = &r->zero.units;
  for (int64_t i = 0; i < u->ninstance; i++) {
    const DtInstance *s = &u->instance[i];
    DtPart part = dt_instance_part(&r->zero, DT_PARAM, i);
    Init x = {&r->p->param[s->param], r->seed, r->p->type, s->layer * s->count + part.lo, part.at};
    void *arg[] = {&x};
    dt_parallel(init_part, arg, part.hi - part.lo, 1 << 16);
  }
}

// Lists what is missing from the file and what it has besides, the first few of each.
static int names_differ(const DtNames *names, const DtWeights *w, const char *path, DtError *e) {
  char text[900], shown[96];
  size_t at = 0;
  int64_t missing = 0, unknown = 0;
  enum { SHOW = 3 };
  text[0] = 0;
  for (int64_t i = 0; i < names->n; i++) {
    if (dt_weights_find(w, names->tensor[i].name) || missing++ >= SHOW) continue;
    dt_json_escape(shown, sizeof shown, names->tensor[i].name);
    at += (size_t)snprintf(text + at, sizeof text - at, "%s'%s'",
                           missing > 1 ? ", " : "; missing: ", shown);
  }
  if (missing > SHOW)
    at += (size_t)snprintf(text + at, sizeof text - at, " and %lld more",
                           (long long)(missing - SHOW));
  for (int64_t i = 0; i < w->n; i++) {
    bool known = false;
    for (int64_t k = 0; k < names->n && !known; k++)
      known = strcmp(names->tensor[k].name, w->tensor[i].name) == 0;
    if (known || unknown++ >= SHOW) continue;
    dt_json_escape(shown, sizeof shown, w->tensor[i].name);
    at += (size_t)snprintf(text + at, sizeof text - at, "%s'%s'",
                           unknown > 1 ? ", " : "; unknown: ", shown);
  }
  if (unknown > SHOW)
    snprintf(text + at, sizeof text - at, " and %lld more", (long long)(unknown - SHOW));
  return dt_fail(e, DT_EXIT_CONTENT, "%s does not hold this model's parameters%s", path, text);
}

static int check_tensors(const DtNames *names, const DtWeights *w, const char *path, DtError *e) {
  int64_t found = 0;
  for (int64_t i = 0; i < names->n; i++) found += dt_weights_find(w, names->tensor[i].name) != NULL;
  if (found != names->n || w->n != names->n) return names_differ(names, w, path, e);
  for (int64_t i = 0; i < names->n; i++) {
    const DtTensor *want = &names->tensor[i], *t = dt_weights_find(w, want->name);
    if (t->rank != want->rank ||
        memcmp(t->extent, want->extent, (size_t)t->rank * sizeof *t->extent) != 0) {
      char expected[192], shape[192];
      dt_shape_text(expected, want->rank, want->extent);
      dt_shape_text(shape, t->rank, t->extent);
      return dt_fail(e, DT_EXIT_CONTENT, "%s: '%s' has shape %s, expected %s", path, want->name,
                     shape, expected);
    }
    if (!dt_stored_real(t->type))
      return dt_fail(e, DT_EXIT_CONTENT, "%s: '%s' holds %s, expected F32, F64, F16 or BF16", path,
                     want->name, dt_stored_name(t->type));
  }
  return 0;
}

int dt_weights_load(const DtNames *names, DtRun *r, DtRegion region, const char *path, DtError *e) {
  DtWeights w;
  int status = dt_weights_open(&w, path, e);
  if (!status) status = check_tensors(names, &w, path, e);
  for (int64_t i = 0; i < names->n && !status; i++) {
    const DtTensor *t = dt_weights_find(&w, names->tensor[i].name);
    DtPart part = dt_instance_part(&r->zero, region, i);
    dt_tensor_read(t, part.lo, part.hi - part.lo, r->p->type, part.at);
  }
  dt_weights_close(&w);
  return status;
}

int dt_weights_save(const DtNames *names, DtRun *r, DtRegion region, const char *path,
                    int64_t *bytes, uint64_t *hash, DtError *e) {
  DtOut o;
  bool writes = dt_world.rank == 0 && !dt_out_open(&o, path, e);
  int64_t size = (int64_t)dt_type_size(r->p->type);
  dt_zero_settle(&r->zero);
  if (writes) dt_weights_header(&o, names->tensor, names->n, r->p->type);
  for (int64_t i = 0; i < names->n; i++) {
    const void *whole = dt_zero_collect(&r->zero, region, i, 0, r->whole);
    if (writes) dt_out_write(&o, whole, (size_t)(names->tensor[i].count * size));
  }
  if (!writes) return e->status;
  int status = dt_out_close(&o, e);
  if (bytes) *bytes = (int64_t)o.bytes;
  if (hash) *hash = dt_hash_end(&o.hash);
  return status;
}
