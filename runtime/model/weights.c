#include "runtime/model/weights.h"

#include "runtime/model/init.h"
#include "runtime/base/parallel.h"
#include "runtime/files/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The parameter's name with its stars replaced by the positions in the stacks. `out` may be NULL:
// then only the length is returned, with the final zero.
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

enum { PREFIX = sizeof "moment0/" - 1 };

static void add_kind(DtNames *names, const DtProgram *p, int kind, char **text) {
  for (int i = 0; i < p->nparam; i++) {
    const DtParam *a = &p->param[i];
    int64_t layers = dt_param_slices(a);
    for (int64_t l = 0; l < layers; l++) {
      DtTensor *t = &names->tensor[names->n++];
      t->name = *text;
      if (kind) *text += sprintf(*text, "moment%d/", kind - 1);
      *text += layer_name(*text, a, l);
      t->type = p->type == DT_TYPE_F64 ? DT_ST_F64 : DT_ST_F32;
      t->rank = a->rank - a->nstack;
      memcpy(t->extent, a->extent + a->nstack, (size_t)t->rank * sizeof *t->extent);
      t->count = 1;
      for (int d = 0; d < t->rank; d++) t->count *= t->extent[d];
    }
  }
}

int dt_names_make(DtNames *names, const DtProgram *p, int moments, DtError *e) {
  memset(names, 0, sizeof *names);
  size_t bytes = 0, kinds = 1 + (size_t)moments;
  for (int i = 0; i < p->nparam; i++)
    for (int64_t l = 0; l < dt_param_slices(&p->param[i]); l++, names->each++)
      bytes += PREFIX + layer_name(NULL, &p->param[i], l);
  names->tensor = calloc(kinds * (size_t)names->each + 1, sizeof *names->tensor);
  names->text = malloc(kinds * bytes + 1);
  if (!names->tensor || !names->text) {
    dt_names_free(names);
    return dt_fail(e, DT_EXIT_OS, "no memory for the names of tensors");
  }
  char *text = names->text;
  for (int kind = 0; kind <= moments; kind++) add_kind(names, p, kind, &text);
  return 0;
}

void dt_names_free(DtNames *names) {
  free(names->tensor);
  free(names->text);
  memset(names, 0, sizeof *names);
}

// What a rank holds of an instance, as its initial values are made.
typedef struct {
  const DtParam *a;
  DtType type;
  uint64_t seed;
  int64_t first; // element of the parameter, all layers counted, that the tensor begins with
  DtLayout layout;
  int64_t lo; // the element of the local array that is at `at`, the host's
  char *at;
} Init;

static void init_part(void *const *arg, int64_t begin, int64_t end) {
  const Init *x = arg[0];
  size_t size = dt_type_size(x->type);
  for (int64_t i = begin, run; i < end; i += run) {
    int64_t element;
    char *at = x->at + (size_t)i * size;
    run = dt_layout_run(&x->layout, x->lo + i, end - i, &element);
    if (element < 0) memset(at, 0, (size_t)run * size);
    else dt_init_fill(x->a, x->seed, x->type, x->first + element, run, at);
  }
}

static int init_piece(Init *x, DtRun *r, DtRegion region, int64_t instance, DtError *e) {
  DtStretch all = dt_instance_stretch(&r->zero, region, instance);
  DtView v;
  for (x->lo = all.lo; x->lo < all.hi; x->lo += v.n) {
    if (dt_view_open(&v, r, region, instance, x->lo, all.hi - x->lo, DT_WRITE, e)) return e->status;
    x->at = v.at;
    void *arg[] = {x};
    dt_parallel(init_part, arg, v.n, 1 << 16);
    dt_view_close(&v);
  }
  return 0;
}

static int init_region(DtRun *r, DtRegion region, DtError *e) {
  const DtUnits *u = &r->zero.units;
  for (int64_t k = 0; k < u->ninstance && dt_holds(r, region) && !e->status; k++) {
    int64_t i = u->inside[k]; // as they lie in a region
    const DtParam *a = &r->zero.p->param[u->instance[i].param];
    Init x = {.a = a, .type = dt_region_type(r->p, region), .seed = r->seed};
    dt_piece_layout(&r->zero, u->instance[i].number, dt_world.rank, &x.layout);
    x.first = u->instance[i].layer * x.layout.count;
    init_piece(&x, r, region, i, e);
  }
  return e->status;
}

int dt_weights_init(DtRun *r, DtError *e) {
  if (init_region(r, DT_PARAM, e)) return e->status;
  return dt_has_masters(r->p) ? init_region(r, DT_MASTER, e) : 0;
}
