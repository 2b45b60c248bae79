#include "runtime/files/pieces.h"

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

void dt_piece_layout(const DtZero *z, int64_t instance, int rank, DtLayout *l) {
  const DtParam *p = dt_model_param(z, instance);
  int coord[DT_AXES];
  coordinates(rank, coord);
  dt_layout_make(l, p->rank - p->nstack, p->extent + p->nstack, p->shard, dt_world.degree, coord);
}

DtRange dt_piece(const DtZero *z, int64_t instance, int rank, const DtLayout *l) {
  const DtInstance *x = dt_model_instance(z, instance);
  const DtParam *p = dt_model_param(z, instance);
  int stage = z->stages.home[instance].stage, coord[DT_AXES];
  coordinates(rank, coord);
  // The number in the data group, the ranks of cp and dp, of which each part of `owners` is a zero group.
  int number = coord[DT_AXIS_CP] + dt_world.degree[DT_AXIS_CP] * coord[DT_AXIS_DP];
  bool copy = number >= z->cut.owners;
  for (int a = DT_AXIS_TP; a <= DT_AXIS_TP_OUTER; a++) copy |= !p->shard[a].block && coord[a] > 0;
  if (copy || coord[DT_AXIS_PP] != stage || dt_layout_empty(l)) return (DtRange){0, 0};
  DtRange r = dt_unit_piece(&z->stages.units[stage].unit[x->unit], number, z->cut.owners);
  int64_t lo = r.lo - x->begin, hi = r.hi - x->begin;
  if (lo < 0) lo = 0;
  if (hi > x->count) hi = x->count;
  return (DtRange){lo, hi > lo ? hi : lo};
}
