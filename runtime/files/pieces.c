#include "runtime/files/pieces.h"

#include <string.h>

static void coordinates(int rank, int coord[DT_AXES]) {
  for (int a = 0; a < DT_AXES; a++) {
    coord[a] = rank % dt_world.degree[a];
    rank /= dt_world.degree[a];
  }
}

const DtInstance *dt_model_instance(const DtZero *z, int64_t number) {
  const DtHome *h = &z->stages.home[number];
  return &z->stages.units[h->stage].instance[h->instance];
}

const DtParam *dt_model_param(const DtZero *z, int64_t number) {
  return &z->stages.view[z->stages.home[number].stage].param[dt_model_instance(z, number)->param];
}

void dt_mesh_layout(const DtMesh *m, const DtParam *p, DtLayout *l) {
  dt_layout_make(l, p->rank - p->nstack, p->extent + p->nstack, p->shard, m->degree, m->coord);
}

DtRange dt_mesh_piece(const DtMesh *m, const DtStages *s, const DtCut *cut, int64_t instance, const DtLayout *l) {
  const DtHome *home = &s->home[instance];
  const DtInstance *x = &s->units[home->stage].instance[home->instance];
  const DtParam *p = &s->view[home->stage].param[x->param];
  // The number in the data group, the ranks of cp and dp, of which each part of `owners` is a zero group.
  int number = m->coord[DT_AXIS_CP] + m->degree[DT_AXIS_CP] * m->coord[DT_AXIS_DP];
  bool copy = number >= cut->owners;
  for (int a = DT_AXIS_TP; a <= DT_AXIS_TP_OUTER; a++) copy |= !p->shard[a].block && m->coord[a] > 0;
  if (copy || m->coord[DT_AXIS_PP] != home->stage || dt_layout_empty(l)) return (DtRange){0, 0};
  DtRange r = dt_unit_piece(&s->units[home->stage].unit[x->unit], number, cut->owners);
  int64_t lo = r.lo - x->begin, hi = r.hi - x->begin;
  if (lo < 0) lo = 0;
  if (hi > x->count) hi = x->count;
  return (DtRange){lo, hi > lo ? hi : lo};
}

static DtMesh mesh_of(int rank) {
  DtMesh m;
  memcpy(m.degree, dt_world.degree, sizeof m.degree);
  coordinates(rank, m.coord);
  return m;
}

void dt_piece_layout(const DtZero *z, int64_t instance, int rank, DtLayout *l) {
  DtMesh m = mesh_of(rank);
  dt_mesh_layout(&m, dt_model_param(z, instance), l);
}

DtRange dt_piece(const DtZero *z, int64_t instance, int rank, const DtLayout *l) {
  DtMesh m = mesh_of(rank);
  return dt_mesh_piece(&m, &z->stages, &z->cut, instance, l);
}
