#include "runtime/train/zero.h"

#include "runtime/train/bucket.h"
#include "runtime/device.h"
#include "runtime/base/trace.h"
#include "runtime/layers.h"
#include "runtime/train/run.h"

#include <stdlib.h>
#include <string.h>

static const unsigned DATA_AXES = 1u << DT_AXIS_CP | 1u << DT_AXIS_DP;

DtCut dt_cut(const DtProgram *p, int ranks) {
  DtCut c = {.owners = p->zero_group ? p->zero_group : ranks};
  if (ranks == 1) return c;
  int stage = c.owners > 1 ? p->zero : 0;
  c.moments = c.grads = stage >= 1;
  c.params = stage >= 3;
  c.each = p->accumulate_each;
  c.param_slots = c.params && !p->gather_once;
  c.grad_slots = c.each && stage >= 2;
  return c;
}

DtSizes dt_sizes(const DtUnits *u, const DtProgram *p, const DtCut *c) {
  int64_t slots = u->outside_count + DT_SLOTS * u->layer_count, whole = p->param_count;
  return (DtSizes){.params = c->params ? u->piece_count : whole,
                   .masters = !dt_has_masters(p) ? 0 : c->moments ? u->piece_count : whole,
                   .gathered = !c->params ? 0 : c->param_slots ? slots : whole,
                   .grads = c->grad_slots ? slots : whole,
                   .sums = !c->each ? 0 : c->grads ? u->piece_count : whole,
                   .moment = c->moments ? u->piece_count : whole,
                   .packed = c->moments ? c->owners * u->packed_count : 0};
}

int dt_zero_open(DtZero *z, const DtProgram *p, DtError *e) {
  const DtGroup *g = dt_group(DATA_AXES);
  memset(z, 0, sizeof *z);
  if (p->zero_group && g->n % p->zero_group != 0)
    return dt_fail(e, DT_EXIT_MISFIT,
                   "--zero-group %d does not divide the %d ranks that share parameters",
                   p->zero_group, g->n);
  z->cut = dt_cut(p, g->n);
  if (dt_stages_make(&z->stages, p, z->cut.owners, e)) return e->status;
  z->units = z->stages.units[dt_world.coord[DT_AXIS_PP]];
  z->shard = dt_group_within(g, z->cut.owners);
  z->across = dt_group_across(g, z->cut.owners);
  z->ticket = calloc((size_t)z->units.nunit + 1, sizeof *z->ticket);
  z->sum_of = calloc((size_t)z->units.nunit + 1, sizeof *z->sum_of);
  z->spread = calloc((size_t)z->units.nunit + 1, sizeof *z->spread);
  if (!z->ticket || !z->sum_of || !z->spread) {
    dt_zero_close(z); // no units: there is nothing to settle
    return dt_fail(e, DT_EXIT_OS, "no memory for the table of units");
  }
  for (int i = 0; i < DT_SLOTS; i++) z->slot[i].unit = z->grad_slot[i] = -1;
  z->p = &z->stages.view[dt_world.coord[DT_AXIS_PP]]; // from here on it is open
  return 0;
}

void dt_zero_close(DtZero *z) {
  dt_stages_free(&z->stages);
  memset(&z->units, 0, sizeof z->units);
  free(z->ticket);
  free(z->sum_of);
  free(z->spread);
  z->ticket = NULL;
  z->sum_of = NULL;
  z->spread = NULL;
}

static char *plus(DtType type, char *base, int64_t elements) {
  return base + elements * (int64_t)dt_type_size(type);
}
static char *param_at(const DtZero *z, char *base, int64_t elements) {
  return plus(z->p->param_type, base, elements);
}
static char *grad_at(const DtZero *z, char *base, int64_t elements) {
  return plus(z->p->type, base, elements);
}

static DtNote note_of(const DtUnit *u) { return (DtNote){u->name, u->layer, u->source}; }

DtRange dt_owned(const DtZero *z, int64_t unit) {
  return dt_unit_piece(&z->units.unit[unit], z->shard->me, z->cut.owners);
}

// ---- what a rank holds

// The region that has a program's masters.
static DtRegion stored(const DtZero *z, DtRegion region) {
  return region == DT_MASTER && !dt_has_masters(z->p) ? DT_PARAM : region;
}

DtStretch dt_stretch(const DtZero *z, DtRegion region, int64_t unit) {
  const DtUnit *u = &z->units.unit[unit];
  DtRange own = dt_owned(z, unit);
  region = stored(z, region);
  bool cut = region == DT_PARAM ? z->cut.params : region == DT_GRAD ? z->cut.grads : z->cut.moments;
  if (!cut) return (DtStretch){0, u->count, u->offset};
  bool in_place = region == DT_GRAD && !z->cut.each; // reduced into its place in the whole
  return (DtStretch){own.lo, own.hi, in_place ? u->offset + own.lo : u->piece};
}

DtPart dt_part(const DtZero *z, DtRegion region, int64_t unit) {
  region = stored(z, region);
  char *base = region == DT_PARAM    ? z->param
               : region == DT_MASTER ? z->master
               : region != DT_GRAD   ? z->moment[region - DT_MOMENT]
               : z->cut.each         ? z->sum
                                     : z->grad;
  DtStretch s = dt_stretch(z, region, unit);
  if (!base) return (DtPart){NULL, 0, 0};
  return (DtPart){plus(dt_region_type(z->p, region), base, s.at), s.lo, s.hi};
}

// Of elements [lo, hi) of a unit those of an instance, as elements of that.
static DtRange of_instance(const DtInstance *x, int64_t lo, int64_t hi) {
  int64_t end = x->begin + x->count;
  if (lo < x->begin) lo = x->begin;
  if (hi > end) hi = end;
  return (DtRange){lo - x->begin, (hi < lo ? lo : hi) - x->begin};
}

DtStretch dt_instance_stretch(const DtZero *z, DtRegion region, int64_t instance) {
  const DtInstance *x = &z->units.instance[instance];
  DtStretch s = dt_stretch(z, region, x->unit);
  DtRange r = of_instance(x, s.lo, s.hi);
  return (DtStretch){r.lo, r.hi, s.at + x->begin + r.lo - s.lo};
}

DtPart dt_instance_part(const DtZero *z, DtRegion region, int64_t instance) {
  const DtInstance *x = &z->units.instance[instance];
  DtPart p = dt_part(z, region, x->unit);
  DtRange r = of_instance(x, p.lo, p.hi);
  DtType type = dt_region_type(z->p, region);
  return (DtPart){p.at ? plus(type, p.at, x->begin + r.lo - p.lo) : NULL, r.lo, r.hi};
}

// ---- parameters

// The profile shows how long the steps wait, and for what.
static void wait_for(DtTicket *t, const char *what) {
  if (!*t) return;
  dt_trace_begin(what);
  dt_wait(*t);
  dt_trace_end(what);
  *t = 0;
}
static const char FOR_PARAMS[] = "wait for parameters", FOR_GRADS[] = "wait for gradients";

static DtTicket gather(DtZero *z, int64_t unit, char *to) {
  const DtUnit *u = &z->units.unit[unit];
  return dt_all_gather(z->shard, z->p->param_type, param_at(z, z->param, u->piece), to, u->count,
                       note_of(u));
}

static void gather_bucket(DtZero *z, int64_t from, int64_t to) {
  z->ticket[from] = dt_bucket_gather(z, from, to);
  z->spread[from] = to;
}

// All units [from, to) into their places in a whole region.
static void gather_units(DtZero *z, int64_t from, int64_t to) {
  for (int64_t i = from, next; i < to; i = next) {
    next = dt_bucket_end(&z->units, i, to);
    if (next > i + 1) gather_bucket(z, i, next);
    else z->ticket[i] = gather(z, i, param_at(z, z->gathered, z->units.unit[i].offset));
  }
}

// A unit outside stacks is in its place, and those that came with it.
static void arrive(DtZero *z, int64_t unit) {
  wait_for(&z->ticket[unit], FOR_PARAMS);
  if (z->spread[unit])
    dt_bucket_spread(z, unit, z->spread[unit], z->cut.params ? z->gathered : z->param);
  z->spread[unit] = 0;
}

// Elements before a slot, in a region of slots.
static int64_t slot_begin(const DtZero *z, int slot) {
  return z->units.outside_count + slot * z->units.layer_count;
}

static int find_slot(const DtSlot *slot, int64_t unit) {
  for (int i = 0; i < DT_SLOTS; i++)
    if (slot[i].unit == unit) return i;
  return -1;
}

static void fetch(DtZero *z, int slot, int64_t unit) {
  z->slot[slot] = (DtSlot){unit, gather(z, unit, param_at(z, z->gathered, slot_begin(z, slot)))};
}

// The layer itself, and the one that runs next into the slot of the one that ran before.
static char *layer_in_slot(DtZero *z, int64_t unit, int64_t next) {
  int s = find_slot(z->slot, unit);
  if (s < 0) fetch(z, s = 1 - z->slot_used, unit);
  z->slot_used = s;
  if (next >= 0 && find_slot(z->slot, next) < 0) fetch(z, 1 - s, next);
  wait_for(&z->slot[s].ticket, FOR_PARAMS);
  return param_at(z, z->gathered, slot_begin(z, s));
}

const void *dt_layer_params(const DtCall *call, int stack, int64_t layer, int64_t next) {
  DtZero *z = call->zero;
  int64_t first = z->units.stack[stack], unit = first + layer;
  bool goes_on = next >= 0 && next < z->p->stack[stack].count;
  if (z->cut.param_slots) return layer_in_slot(z, unit, goes_on ? first + next : -1);
  wait_for(&z->ticket[unit], FOR_PARAMS);
  return param_at(z, z->cut.params ? z->gathered : z->param, z->units.unit[unit].offset);
}

// Gathers the parameters outside stacks before the first layer runs, and begins to gather the first layer.
static void gather_first(DtZero *z) {
  const DtUnits *u = &z->units;
  bool slots = z->cut.param_slots, first = slots && u->nunit > u->outside;
  if (z->cut.params && !z->gathered_now) gather_units(z, 0, slots ? u->outside : u->nunit);
  z->gathered_now = true;
  if (first && find_slot(z->slot, u->outside) < 0) fetch(z, 1 - z->slot_used, u->outside);
  for (int64_t i = 0; i < u->outside; i++) arrive(z, i);
}

void dt_zero_updated(DtZero *z, int64_t unit) {
  const DtUnit *u = &z->units.unit[unit];
  if (z->cut.params) {
    for (int i = 0; i < DT_SLOTS; i++) {
      wait_for(&z->slot[i].ticket, FOR_PARAMS);
      z->slot[i].unit = -1;
    }
    z->gathered_now = false;
  } else if (z->cut.moments && u->together) {
    if (unit + 1 == u->together)
      gather_bucket(z, dt_bucket_begin(&z->units, unit), u->together);
  } else if (z->cut.moments) {
    DtPart p = dt_part(z, DT_PARAM, unit);
    char *own = param_at(z, p.at, dt_owned(z, unit).lo);
    z->ticket[unit] =
        dt_all_gather(z->shard, z->p->param_type, own, p.at, u->count, note_of(u));
  }
}

// ---- gradients

static bool alone(const DtZero *z) {
  return z->cut.owners == 1 && (!z->across || z->across->n == 1);
}

// Whether gradients are sent in fewer bits than they are computed in.
static bool narrows(const DtZero *z) { return z->p->reduce_type != z->p->type; }

// The unit's gradient has arrived and is part of the sum.
static void settle(DtZero *z, int64_t unit) {
  DtSum *s = &z->sum_of[unit];
  if (!s->pending) return;
  s->pending = false;
  wait_for(&s->ticket, FOR_GRADS);
  if (s->until) {
    dt_bucket_add(z, unit, s->until, s->store);
    return;
  }
  if (narrows(z)) dt_device_widen(z->p->reduce_type, (float *)(void *)s->to, s->from, s->count, !s->store);
  else if (s->from != s->to) dt_device_add(z->p->type, s->to, s->from, s->count);
}

// Sends `count` elements at `in`, gradients of the microbatch or the step, to the sum at `to`,
// whole.
static void reduce_whole(DtZero *z, DtSum *s, char *in, char *to, int64_t count, DtNote note) {
  DtType type = z->p->reduce_type;
  bool store = z->fresh || !z->cut.each;
  if (narrows(z)) dt_device_narrow(type, in, (const float *)(const void *)in, count);
  *s = (DtSum){.pending = true, .store = store, .to = to, .count = count};
  s->from = store && !narrows(z) ? to : in;
  s->ticket = dt_all_reduce(z->shard, type, DT_SUM, in, s->from, count, note);
  if (z->across->n > 1)
    s->ticket = dt_all_reduce(z->across, type, DT_SUM, s->from, s->from, count, note);
}

// Likewise a unit's to its owners.
static void reduce_pieces(DtZero *z, int64_t unit, char *in) {
  DtSum *s = &z->sum_of[unit];
  const DtUnit *u = &z->units.unit[unit];
  DtPart sum = dt_part(z, DT_GRAD, unit);
  DtType type = z->p->reduce_type;
  bool store = z->fresh || !z->cut.each;
  if (narrows(z)) dt_device_narrow(type, in, (const float *)(const void *)in, u->count);
  *s = (DtSum){.pending = true, .store = store, .to = sum.at, .count = sum.hi - sum.lo};
  s->from = store && !narrows(z) ? sum.at : plus(type, in, sum.lo);
  s->ticket =
      dt_reduce_scatter(z->shard, type, DT_SUM, in, s->from, u->count, note_of(u));
  if (z->across->n > 1 && s->count > 0)
    s->ticket = dt_all_reduce(z->across, type, DT_SUM, s->from, s->from, s->count, note_of(u));
}

// The data group's sum goes over cp too: a gradient that ranks of cp have whole is to count once.
static void count_once(DtZero *z, const DtUnit *u, char *in) {
  if (dt_world.coord[DT_AXIS_CP] == 0) return;
  for (int64_t i = u->first; i < u->first + u->n; i++) {
    const DtInstance *x = &z->units.instance[z->units.inside[i]];
    if (!(z->p->param[x->param].partial & 1u << DT_AXIS_CP))
      dt_device_zero(grad_at(z, in, x->begin), (size_t)x->count * dt_type_size(z->p->type));
  }
}

static void reduce_unit(DtZero *z, int64_t unit, char *in) {
  const DtUnit *u = &z->units.unit[unit];
  count_once(z, u, in);
  if (z->cut.grads) reduce_pieces(z, unit, in);
  else
    reduce_whole(z, &z->sum_of[unit], in, dt_part(z, DT_GRAD, unit).at, u->count, note_of(u));
}

static void reduce_bucket(DtZero *z, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++)
    count_once(z, &z->units.unit[i], grad_at(z, z->grad, z->units.unit[i].offset));
  z->sum_of[from] = (DtSum){.pending = true,
                            .store = z->fresh || !z->cut.each,
                            .until = to,
                            .ticket = dt_bucket_reduce(z, from, to)};
}

void dt_outside_grads(const DtCall *call) {
  DtZero *z = call->zero;
  for (int64_t i = 0; i < z->units.outside; i++) settle(z, i);
}

void *dt_layer_grads(const DtCall *call, int stack, int64_t layer) {
  DtZero *z = call->zero;
  int64_t unit = z->units.stack[stack] + layer;
  settle(z, unit); // what the microbatch before has made of the same layer
  if (!z->cut.grad_slots) return grad_at(z, z->grad, z->units.unit[unit].offset);
  int s = z->grad_used = 1 - z->grad_used;
  if (z->grad_slot[s] >= 0) settle(z, z->grad_slot[s]);
  z->grad_slot[s] = unit;
  return grad_at(z, z->grad, slot_begin(z, s));
}

void dt_layer_reduce(const DtCall *call, int stack, int64_t layer) {
  DtZero *z = call->zero;
  const DtUnit *u = &z->units.unit[z->units.stack[stack] + layer];
  if (alone(z) || !(z->cut.each || call->last)) return;
  int64_t at = z->cut.grad_slots ? slot_begin(z, z->grad_used) : u->offset;
  reduce_unit(z, u - z->units.unit, grad_at(z, z->grad, at));
}

// ---- a call of the program

void dt_zero_begin(DtZero *z, DtCall *call) {
  call->zero = z;
  call->param = z->cut.params ? z->gathered : z->param;
  call->grad = z->grad;
  gather_first(z);
}

void dt_zero_begin_step(DtZero *z, DtCall *call, bool first, bool last) {
  dt_zero_begin(z, call);
  z->fresh = first;
  z->last = call->last = last;
  call->fresh = first || z->cut.each;
  if (z->p->stores_grad) return;
  dt_outside_grads(call);
  if (call->fresh) dt_device_zero(z->grad, z->grad_bytes);
}

DtRange dt_zero_units_of(const DtZero *z, int param, int n) {
  DtRange r = {0, 0};
  for (int i = 0; i < param + n; i++) {
    int64_t outside = !z->p->param[i].stack;
    if (i < param) r.lo += outside;
    r.hi += outside;
  }
  return r;
}

void dt_zero_end_units(DtZero *z, int64_t from, int64_t to) {
  if (alone(z) || from == to || !(z->cut.each || z->last)) return;
  for (int64_t i = from, next; z->cut.grads && i < to; i = next) {
    next = dt_bucket_end(&z->units, i, to);
    if (next > i + 1) reduce_bucket(z, i, next);
    else reduce_unit(z, i, grad_at(z, z->grad, z->units.unit[i].offset));
  }
  if (z->cut.grads) return;
  for (int64_t i = from; i < to; i++)
    count_once(z, &z->units.unit[i], grad_at(z, z->grad, z->units.unit[i].offset));
  int64_t at = z->units.unit[from].offset;
  int64_t end = to == z->units.outside ? z->units.outside_count : z->units.unit[to].offset;
  reduce_whole(z, &z->sum_of[from], grad_at(z, z->grad, at),
               grad_at(z, z->cut.each ? z->sum : z->grad, at), end - at,
               (DtNote){"the parameters outside stacks", -1, z->units.unit[from].source});
}

void dt_zero_end_step(DtZero *z) { dt_zero_end_units(z, 0, z->units.outside); }

// Gradients of parameters that tp or a factor of it does not split, where each of its ranks has
// made a part (a norm's gain, with the sequence split): the owners of the same piece add theirs,
// once a step.
static void sum_over_tp(DtZero *z) {
  DtTicket ticket = 0;
  for (int64_t i = 0; i < z->units.ninstance; i++) {
    const DtInstance *x = &z->units.instance[i];
    const DtParam *a = &z->p->param[x->param];
    const DtGroup *tp = dt_group(a->partial & DT_TP_AXES);
    if (tp->n == 1) continue;
    DtPart part = dt_instance_part(z, DT_GRAD, i);
    DtNote note = {a->name, dt_told_layer(a, x), a->source};
    if (part.hi > part.lo)
      ticket = dt_all_reduce(tp, z->p->type, DT_SUM, part.at, part.at, part.hi - part.lo, note);
  }
  if (ticket) dt_wait(ticket);
}

void dt_zero_finish(DtZero *z) {
  for (int64_t i = 0; i < z->units.nunit; i++) settle(z, i);
  sum_over_tp(z);
}

void dt_zero_forget(DtZero *z) {
  size_t n = (size_t)z->units.nunit;
  memset(z->ticket, 0, n * sizeof *z->ticket);
  memset(z->sum_of, 0, n * sizeof *z->sum_of);
  memset(z->spread, 0, n * sizeof *z->spread);
}

void dt_zero_settle(DtZero *z) {
  for (int64_t i = 0; i < z->units.nunit; i++) settle(z, i);
  for (int64_t i = 0; i < z->units.nunit; i++) arrive(z, i);
  for (int i = 0; i < DT_SLOTS; i++) wait_for(&z->slot[i].ticket, FOR_PARAMS);
}
