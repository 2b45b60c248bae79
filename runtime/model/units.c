#include "runtime/model/units.h"

#include <stdlib.h>
#include <string.h>

int64_t dt_param_slices(const DtParam *p) {
  int64_t n = 1;
  for (int i = 0; i < p->nstack; i++) n *= p->extent[i];
  return n;
}

static int64_t local_count(const DtParam *p) { return p->local ? p->local : p->count; }

DtRange dt_unit_piece(const DtUnit *u, int owner, int owners) {
  int64_t c = (u->count + owners - 1) / owners, lo = owner * c, hi = lo + c;
  return (DtRange){lo < u->count ? lo : u->count, hi < u->count ? hi : u->count};
}

static void add_units(DtUnits *u, const DtProgram *p) {
  for (int i = 0; i < p->nparam; i++) {
    const DtParam *a = &p->param[i];
    if (a->stack) continue;
    u->unit[u->nunit++] =
        (DtUnit){.offset = a->offset, .count = local_count(a), .layer = -1, .name = a->name,
                 .source = a->source};
    if (a->offset + local_count(a) > u->outside_count)
      u->outside_count = a->offset + local_count(a);
  }
  u->outside_count = (u->outside_count + 15) / 16 * 16;
  u->outside = u->nunit;
  for (int s = 0; s < p->nstack; s++) {
    const DtStack *t = &p->stack[s];
    u->stack[s] = u->nunit;
    if (t->stride > u->layer_count) u->layer_count = t->stride;
    for (int64_t l = 0; l < t->count; l++)
      u->unit[u->nunit++] = (DtUnit){.offset = t->offset + l * t->stride,
                                     .count = t->stride,
                                     .stack = s + 1,
                                     .layer = l,
                                     .name = t->name,
                                     .source = t->source};
  }
}

// The slices of a parameter of a stack lie in the layer of their first number.
static void add_instances(DtUnits *u, const DtProgram *p) {
  int64_t outside = 0;
  for (int i = 0; i < p->nparam; i++) {
    const DtParam *a = &p->param[i];
    int64_t slices = dt_param_slices(a), each = local_count(a) / slices;
    int64_t inner = a->stack ? slices / p->stack[a->stack - 1].count : slices;
    for (int64_t l = 0; l < slices; l++) {
      DtInstance *x = &u->instance[u->ninstance++];
      *x = (DtInstance){
          .param = i, .layer = l, .count = each, .begin = l % inner * each, .counts = true};
      x->number = u->ninstance - 1;
      x->unit = a->stack ? u->stack[a->stack - 1] + l / inner : outside;
      if (a->stack) x->begin += a->offset - p->stack[a->stack - 1].offset;
    }
    outside += !a->stack;
  }
}

static const DtUnits *sorting;
static int by_place(const void *a, const void *b) {
  const DtInstance *x = &sorting->instance[*(const int64_t *)a];
  const DtInstance *y = &sorting->instance[*(const int64_t *)b];
  if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void sort_instances(DtUnits *u) {
  for (int64_t i = 0; i < u->ninstance; i++) u->inside[i] = i;
  sorting = u;
  qsort(u->inside, (size_t)u->ninstance, sizeof *u->inside, by_place);
  for (int64_t i = 0; i < u->ninstance; i++) {
    DtUnit *x = &u->unit[u->instance[u->inside[i]].unit];
    if (!x->n++) x->first = i;
  }
}

// Units outside stacks that are exchanged together: those that cost little more to send than an
// operation costs by itself.
static void form_buckets(DtUnits *u, int owners) {
  static const int64_t SMALL = 1 << 16, MOST = 1 << 18; // elements
  for (int64_t i = 0, end; i < u->outside; i = end > i ? end : i + 1) {
    int64_t sum = 0;
    for (end = i; end < u->outside; end++) {
      int64_t n = u->unit[end].count;
      if (n > SMALL || sum + n > MOST) break;
      sum += n;
    }
    for (int64_t k = i; end > i + 1 && k < end; k++) {
      u->unit[k].together = end;
      u->unit[k].packed = u->packed_count;
      u->packed_count += (u->unit[k].count + owners - 1) / owners;
    }
  }
}

int dt_units_make(DtUnits *u, const DtProgram *p, int owners, DtError *e) {
  int64_t units = p->nparam, instances = 0;
  memset(u, 0, sizeof *u);
  for (int s = 0; s < p->nstack; s++) units += p->stack[s].count;
  for (int i = 0; i < p->nparam; i++) instances += dt_param_slices(&p->param[i]);
  u->unit = calloc((size_t)units + 1, sizeof *u->unit);
  u->instance = calloc((size_t)instances + 1, sizeof *u->instance);
  u->inside = calloc((size_t)instances + 1, sizeof *u->inside);
  u->stack = calloc((size_t)p->nstack + 1, sizeof *u->stack);
  if (!u->unit || !u->instance || !u->inside || !u->stack) {
    dt_units_free(u);
    return dt_fail(e, DT_EXIT_OS, "no memory for the table of %lld tensors", (long long)instances);
  }
  add_units(u, p);
  add_instances(u, p);
  u->model = u->ninstance;
  sort_instances(u);
  for (int64_t i = 0; i < u->nunit; i++) {
    u->unit[i].piece = u->piece_count;
    u->piece_count += (u->unit[i].count + owners - 1) / owners;
  }
  form_buckets(u, owners);
  return 0;
}

void dt_units_free(DtUnits *u) {
  free(u->unit);
  free(u->instance);
  free(u->inside);
  free(u->stack);
  memset(u, 0, sizeof *u);
}
