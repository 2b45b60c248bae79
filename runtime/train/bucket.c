#include "runtime/train/bucket.h"

#include "runtime/base/real.h"
#include "runtime/device.h"

int64_t dt_bucket_end(const DtUnits *u, int64_t unit, int64_t end) {
  int64_t together = u->unit[unit].together;
  return together <= unit ? unit + 1 : together < end ? together : end;
}

int64_t dt_bucket_begin(const DtUnits *u, int64_t unit) {
  int64_t first = unit, together = u->unit[unit].together;
  while (first > 0 && together && u->unit[first - 1].together == together) first--;
  return first;
}

static size_t bytes(DtType type, int64_t elements) {
  return (size_t)elements * dt_type_size(type);
}

static int64_t longest(const DtZero *z, const DtUnit *u) {
  return (u->count + z->cut.owners - 1) / z->cut.owners;
}

// Elements of an owner's part of the array.
static int64_t width(const DtZero *z, int64_t from, int64_t to) {
  const DtUnit *first = &z->units.unit[from], *last = &z->units.unit[to - 1];
  return last->packed + longest(z, last) - first->packed;
}

// Where the array begins: with room for elements of the widest type. And an owner's piece of a unit in it, where
// its elements are of `type`.
static char *array(const DtZero *z, int64_t from) {
  return z->packed + bytes(z->p->type, z->cut.owners * z->units.unit[from].packed);
}
static char *piece(const DtZero *z, DtType type, int64_t from, int64_t to, int owner, int64_t unit) {
  int64_t before = z->units.unit[unit].packed - z->units.unit[from].packed;
  return array(z, from) + bytes(type, owner * width(z, from, to) + before);
}

// Gradients become elements of `type`.
static void put_gradients(const DtZero *z, DtType type, char *to, const char *from, int64_t n) {
  if (n <= 0) return;
  if (type == z->p->type) dt_device_copy(to, from, bytes(type, n));
  else dt_device_narrow(type, to, (const float *)(const void *)from, n);
}

// A piece that is shorter than others is filled up.
static void fill_up(const DtZero *z, DtType type, char *to, int64_t n, const DtUnit *u) {
  if (n < longest(z, u)) dt_device_zero(to + bytes(type, n), bytes(type, longest(z, u) - n));
}
static void pack(const DtZero *z, DtType type, char *to, const char *from, int64_t n,
                 const DtUnit *u) {
  if (n > 0) dt_device_copy(to, from, bytes(type, n));
  fill_up(z, type, to, n, u);
}

// The owners whose piece of the unit is as long as any: the first ones.
static int whole_pieces(const DtZero *z, const DtUnit *u) {
  return u->count ? (int)(u->count / longest(z, u)) : 0;
}

static DtNote note_of(const DtUnit *first) {
  return (DtNote){"small parameters", -1, first->source};
}

DtTicket dt_bucket_gather(const DtZero *z, int64_t from, int64_t to) {
  DtType type = z->p->param_type;
  char *mine = piece(z, type, from, to, z->shard->me, from);
  for (int64_t i = from; i < to; i++) {
    DtRange own = dt_owned(z, i);
    DtPart p = dt_part(z, DT_PARAM, i);
    pack(z, type, piece(z, type, from, to, z->shard->me, i), p.at + bytes(type, own.lo - p.lo),
         own.hi - own.lo, &z->units.unit[i]);
  }
  return dt_all_gather(z->shard, type, mine, array(z, from), z->cut.owners * width(z, from, to),
                       note_of(&z->units.unit[from]));
}

void dt_bucket_spread(const DtZero *z, int64_t from, int64_t to, char *whole) {
  DtType type = z->p->param_type;
  size_t pitch = bytes(type, width(z, from, to));
  for (int64_t i = from; i < to; i++) {
    const DtUnit *u = &z->units.unit[i];
    size_t each = bytes(type, longest(z, u));
    int n = whole_pieces(z, u);
    dt_device_copy_rows(whole + bytes(type, u->offset), each, piece(z, type, from, to, 0, i), pitch, each, n);
    if (n == z->cut.owners) continue;
    DtRange r = dt_unit_piece(u, n, z->cut.owners);
    if (r.lo < r.hi)
      dt_device_copy(whole + bytes(type, u->offset + r.lo), piece(z, type, from, to, n, i), bytes(type, r.hi - r.lo));
  }
}

DtTicket dt_bucket_reduce(const DtZero *z, int64_t from, int64_t to) {
  DtNote note = note_of(&z->units.unit[from]);
  DtType type = z->p->reduce_type;
  char *own = piece(z, type, from, to, z->shard->me, from);
  size_t pitch = bytes(type, width(z, from, to));
  for (int64_t i = from; i < to; i++) {
    const DtUnit *u = &z->units.unit[i];
    size_t each = bytes(type, longest(z, u));
    int n = type == z->p->type ? whole_pieces(z, u) : 0;
    if (n) dt_device_copy_rows(piece(z, type, from, to, 0, i), pitch, z->grad + bytes(type, u->offset), each, each, n);
    for (int k = n; k < z->cut.owners; k++) {
      DtRange r = dt_unit_piece(u, k, z->cut.owners);
      char *at = piece(z, type, from, to, k, i);
      put_gradients(z, type, at, z->grad + bytes(z->p->type, u->offset + r.lo), r.hi - r.lo);
      fill_up(z, type, at, r.hi - r.lo, u);
    }
  }
  DtTicket t = dt_reduce_scatter(z->shard, type, DT_SUM, array(z, from), own,
                                 z->cut.owners * width(z, from, to), note);
  if (z->across->n == 1) return t;
  return dt_all_reduce(z->across, type, DT_SUM, own, own, width(z, from, to), note);
}

void dt_bucket_add(const DtZero *z, int64_t from, int64_t to, bool store) {
  DtType type = z->p->reduce_type;
  for (int64_t i = from; i < to; i++) {
    DtPart sum = dt_part(z, DT_GRAD, i);
    const char *arrived = piece(z, type, from, to, z->shard->me, i);
    int64_t n = sum.hi - sum.lo;
    if (type != z->p->type) dt_device_widen(type, (float *)(void *)sum.at, arrived, n, !store);
    else if (!store) dt_device_add(type, sum.at, arrived, n);
    else if (n > 0) dt_device_copy(sum.at, arrived, bytes(type, n));
  }
}
