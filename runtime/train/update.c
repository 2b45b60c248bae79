// The optimizer's step and the gradient's norm, over what this rank holds: unit by unit, instance
// by instance, in blocks of a size that depends on nothing, so that neither threads nor ranks
// change a bit.
#include "runtime/train/bucket.h"
#include "runtime/launch.h"
#include "runtime/train/run.h"
#include "runtime/pipeline/schedule.h"

#include <math.h>
#include <string.h>

enum { NORM_BLOCK = 4096, LANES = 8 };

// Elements of a unit, cut at the ends of its instances and into blocks.
typedef struct Blocks {
  const DtUnits *units;
  const DtUnit *unit;
  DtRange range;
  int64_t size;
} Blocks;

typedef struct Block {
  int64_t instance, lo, hi; // elements of the unit
} Block;

static DtRange overlap(const Blocks *b, const DtInstance *x) {
  int64_t lo = b->range.lo > x->begin ? b->range.lo : x->begin, end = x->begin + x->count;
  int64_t hi = b->range.hi < end ? b->range.hi : end;
  return (DtRange){lo, hi > lo ? hi : lo};
}

// Block number `want`; with -1 the last one's number, plus one, is in the result's `instance`.
static Block find_block(const Blocks *b, int64_t want) {
  int64_t at = 0;
  for (int64_t i = 0; i < b->unit->n; i++) {
    int64_t instance = b->units->inside[b->unit->first + i];
    DtRange r = overlap(b, &b->units->instance[instance]);
    int64_t n = (r.hi - r.lo + b->size - 1) / b->size, lo = r.lo + (want - at) * b->size;
    if (want >= 0 && want < at + n)
      return (Block){instance, lo, lo + b->size < r.hi ? lo + b->size : r.hi};
    at += n;
  }
  return (Block){at, 0, 0};
}

static int64_t block_count(const Blocks *b) { return find_block(b, -1).instance; }

int64_t dt_norm_blocks(const DtUnits *u, const DtCut *cut) {
  int64_t most = 0;
  for (int64_t i = 0; i < u->nunit; i++)
    for (int k = 0; k < cut->owners; k++) {
      Blocks b = {u, &u->unit[i], dt_unit_piece(&u->unit[i], k, cut->owners), NORM_BLOCK};
      int64_t n = block_count(&b);
      if (n > most) most = n;
    }
  return most;
}

// ---- the norm

typedef struct Norm {
  const DtProgram *p;
  Blocks blocks;
  DtPart grad;
  double *partial; // one for each block
} Norm;

static double sum_f64(const double *v, int64_t n) {
  double sum[LANES] = {0};
  for (int64_t i = 0; i < n / LANES * LANES; i += LANES)
    for (int l = 0; l < LANES; l++) sum[l] += v[i + l] * v[i + l];
  for (int64_t i = n / LANES * LANES; i < n; i++) sum[i % LANES] += v[i] * v[i];
  for (int l = 1; l < LANES; l++) sum[0] += sum[l];
  return sum[0];
}

static double sum_f32(const float *v, int64_t n) {
  double sum[LANES] = {0};
  for (int64_t i = 0; i < n / LANES * LANES; i += LANES)
    for (int l = 0; l < LANES; l++) sum[l] += (double)v[i + l] * (double)v[i + l];
  for (int64_t i = n / LANES * LANES; i < n; i++) sum[i % LANES] += (double)v[i] * (double)v[i];
  for (int l = 1; l < LANES; l++) sum[0] += sum[l];
  return sum[0];
}

static void norm_blocks(void *const *arg, int64_t begin, int64_t end) {
  const Norm *n = arg[0];
  for (int64_t i = begin; i < end; i++) {
    Block b = find_block(&n->blocks, i);
    const char *at = n->grad.at + (b.lo - n->grad.lo) * (int64_t)dt_type_size(n->p->type);
    n->partial[i] = n->p->type == DT_TYPE_F64
                        ? sum_f64((const double *)(const void *)at, b.hi - b.lo)
                        : sum_f32((const float *)(const void *)at, b.hi - b.lo);
  }
}

// What a factor of tp does not split is there on every rank of it: the first one counts it.
static bool counts(const DtZero *z, int64_t instance) {
  const DtParam *p = &z->p->param[z->units.instance[instance].param];
  for (int a = DT_AXIS_TP; a <= DT_AXIS_TP_OUTER; a++)
    if (!p->shard[a].block && dt_world.coord[a] > 0) return false;
  return true;
}

static bool any_counts(const DtZero *z, const DtUnit *u) {
  for (int64_t i = 0; i < u->n; i++) {
    int64_t instance = z->units.inside[u->first + i];
    if (z->units.instance[instance].counts && counts(z, instance)) return true;
  }
  return false;
}

void dt_norm_parts(const DtZero *z, double *partial, double *part, int64_t stride) {
  for (int64_t i = 0; i < z->units.nunit; i++) {
    if (!any_counts(z, &z->units.unit[i])) continue;
    Norm n = {z->p, {&z->units, &z->units.unit[i], dt_owned(z, i), NORM_BLOCK},
              dt_part(z, DT_GRAD, i), partial};
    int64_t count = block_count(&n.blocks);
    void *arg[] = {&n};
    dt_parallel(norm_blocks, arg, count, 1);
    for (int64_t k = 0; k < count; k++) {
      int64_t instance = find_block(&n.blocks, k).instance;
      const DtInstance *x = &z->units.instance[instance];
      if (x->counts && counts(z, instance)) part[x->number * stride] += partial[k];
    }
  }
}

// ---- the update

typedef struct Update {
  const DtRun *r;
  Blocks blocks;
  DtPart part[DT_REGIONS];
  int regions; // end of those that there are
  double scalar[2][5]; // real; without weight decay, with it
  uint64_t step;
} Update;

// What the update steps: all regions of DtProgram.type.
enum { STEPPED = DT_REGIONS - DT_MASTER };

// The parameters of a block are its masters, rounded.
static void round_block(const Update *u, Block b, const char *masters) {
  const DtPart *to = &u->part[DT_PARAM];
  DtType type = u->r->p->param_type;
  char *at = to->at + (size_t)(b.lo - to->lo) * dt_type_size(type);
  dt_narrow(type, at, (const float *)(const void *)masters, b.hi - b.lo);
}

// The kernel steps a whole piece: what is less is copied to one and back.
static void update_block(const Update *u, Block b) {
  const DtProgram *p = u->r->zero.p;
  int64_t size = (int64_t)dt_type_size(p->type), n = b.hi - b.lo, whole = p->update_piece;
  const DtParam *a = &p->param[u->r->zero.units.instance[b.instance].param];
  DtCall call = {.scalar = u->scalar[a->decay], .seed = u->r->seed, .step = u->step,
                 .loss_scale = 1};
  char *scratch = n < whole ? dt_scratch((size_t)(whole * size * STEPPED)) : NULL,
       *at[DT_REGIONS];
  for (int i = DT_MASTER; i < u->regions; i++) {
    at[i] = u->part[i].at + (b.lo - u->part[i].lo) * size;
    if (!scratch) continue;
    char *copy = scratch + (i - DT_MASTER) * whole * size;
    memcpy(copy, at[i], (size_t)(n * size));
    memset(copy + n * size, 0, (size_t)((whole - n) * size));
  }
  for (int i = DT_MASTER; i < u->regions; i++) {
    void *here = scratch ? scratch + (i - DT_MASTER) * whole * size : at[i];
    if (i == DT_MASTER) call.param = here;
    else if (i == DT_GRAD) call.grad = here;
    else call.moment[i - DT_MOMENT] = here;
  }
  p->update(&call);
  for (int i = DT_MASTER; scratch && i < u->regions; i++)
    if (i != DT_GRAD)
      memcpy(at[i], scratch + (i - DT_MASTER) * whole * size, (size_t)(n * size));
  if (dt_has_masters(p)) round_block(u, b, at[DT_MASTER]);
}

int64_t dt_update_scratch(const DtProgram *p) {
  return (int64_t)dt_type_size(p->type) * p->update_piece * STEPPED;
}

static void update_blocks(void *const *arg, int64_t begin, int64_t end) {
  const Update *u = arg[0];
  for (int64_t i = begin; i < end; i++) update_block(u, find_block(&u->blocks, i));
}

// Whether the unit, or one that is gathered with it, awaits its gradient.
static bool awaits(const DtRun *r, int64_t unit) {
  const DtUnits *u = &r->zero.units;
  if (!r->zero.stages.ntie) return false;
  int64_t end = dt_bucket_end(u, unit, u->nunit);
  for (int64_t i = dt_bucket_begin(u, unit); i < end; i++)
    if (dt_walk_awaits(r, i)) return true;
  return false;
}

static void update_unit(Update *u, int64_t unit) {
  const DtRun *r = u->r;
  const DtZero *z = &r->zero;
  for (int k = 0; k < u->regions; k++) u->part[k] = dt_part(z, (DtRegion)k, unit);
  // Where this rank is the owner of a piece, that is all that it steps.
  DtRange range = z->cut.moments ? dt_owned(z, unit) : (DtRange){0, z->units.unit[unit].count};
  u->blocks = (Blocks){&z->units, &z->units.unit[unit], range, r->p->update_piece};
  void *arg[] = {u};
  dt_parallel(update_blocks, arg, block_count(&u->blocks), 1);
}

void dt_update(DtRun *r, double rate, double scale) {
  const DtProgram *p = r->p;
  const DtTrain *t = &p->train;
  DtZero *z = &r->zero;
  int64_t updates = r->step + 1 - r->scaling.skipped; // this one too
  Update u = {.r = r, .regions = DT_MOMENT + p->nmoment, .step = (uint64_t)r->step + 1};
  for (int decay = 0; decay < 2; decay++) {
    double v[5] = {rate, dt_bias_correction(t->beta1, updates),
                   sqrt(dt_bias_correction(t->beta2, updates)), decay ? t->weight_decay : 0,
                   scale};
    for (int i = 0; i < 5; i++) dt_set(p, u.scalar[decay], i, v[i]);
  }
  for (int late = 0; late < 2; late++) {
    if (late) dt_walk_tie_wait(r);
    for (int64_t i = 0; i < z->units.nunit; i++) {
      if (awaits(r, i) != late) continue;
      update_unit(&u, i);
      dt_zero_updated(z, i);
    }
  }
}

// ---- gradients without the loss scale

static void divide(void *const *arg, int64_t begin, int64_t end) {
  float *gradient = arg[0];
  const float *by = arg[1];
  for (int64_t i = begin; i < end; i++) gradient[i] /= *by;
}

void dt_unscale_gradients(DtRun *r) {
  float by = (float)r->grad_scale;
  for (int64_t i = 0; r->p->loss_scaling && i < r->zero.units.nunit; i++) {
    DtPart grad = dt_part(&r->zero, DT_GRAD, i);
    void *arg[] = {grad.at, &by};
    dt_parallel(divide, arg, grad.hi - grad.lo, 1 << 14);
  }
  r->grad_scale = 1;
}
