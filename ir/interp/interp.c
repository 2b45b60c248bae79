// The interpreter: functions, calls and the statements' loops. See ir/interp/interp.h.
#include "ir/interp/interp.h"

#include <math.h>
#include <stdlib.h>

#include "ir/interp/code.h"

// ---- tensors

int64_t tensor_count(const Tensor *t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t->rank; d++) n *= t->extent[d];
  return n;
}

static void *zeros(int64_t n, size_t size) {
  void *p = calloc((size_t)n, size);
  if (p) return p;
  fprintf(stderr, "dtc: out of memory for a tensor of %lld elements\n", (long long)n);
  exit(70);
}

Tensor *tensor_new(Dtype type, const int64_t *extent, uint32_t rank) {
  Tensor *t = zeros(1, sizeof *t);
  t->type = type;
  t->rank = (uint8_t)rank;
  if (rank) memcpy(t->extent, extent, rank * sizeof *extent);
  int64_t n = tensor_count(t);
  if (scalar_of(type) == SC_REAL) t->real = zeros(n, sizeof *t->real);
  else t->integer = zeros(n, sizeof *t->integer);
  return t;
}

Tensor *tensor_like(const Value *v) { return tensor_new(v->type, v->extent, v->rank); }

void tensor_free(Tensor *t) {
  if (!t) return;
  free(t->real);
  free(t->integer);
  free(t->scale);
  free(t->tangent);
  free(t);
}

static void need_scale(Tensor *t) {
  if (!t->scale) t->scale = zeros(tensor_count(t), sizeof *t->scale);
}

// Room beside the elements for what the options carry.
static void need_room(Tensor *t, const InterpOptions *o) {
  if (o->scale) need_scale(t);
  if (o->tangent && t->real && !t->tangent)
    t->tangent = zeros(tensor_count(t), sizeof *t->tangent);
}

// Element `at` of the leading extent, sharing storage.
static Tensor slice(const Tensor *t, int64_t at) {
  Tensor r = *t;
  r.rank--;
  memmove(r.extent, r.extent + 1, r.rank * sizeof *r.extent);
  int64_t skip = at * tensor_count(&r);
  if (r.real) r.real += skip;
  if (r.integer) r.integer += skip;
  if (r.scale) r.scale += skip;
  if (r.tangent) r.tangent += skip;
  return r;
}

static void copy_elements(Tensor *to, const Tensor *from) {
  size_t n = (size_t)tensor_count(to);
  if (to->real) memcpy(to->real, from->real, n * sizeof *to->real);
  if (to->integer) memcpy(to->integer, from->integer, n * sizeof *to->integer);
  if (to->scale && from->scale) memcpy(to->scale, from->scale, n * sizeof *to->scale);
  else if (to->scale) memset(to->scale, 0, n * sizeof *to->scale);
  if (to->tangent && from->tangent) memcpy(to->tangent, from->tangent, n * sizeof *to->tangent);
  else if (to->tangent) memset(to->tangent, 0, n * sizeof *to->tangent);
}

// ---- state

// What a statement was compiled to.
typedef struct StmtCode {
  Code *body, *lhs; // lhs: NULL where elements are written in order
} StmtCode;

typedef struct FnCode {
  StmtCode *stmt;
  uint32_t *last; // by value: the last statement that mentions it
} FnCode;

struct Interp {
  const Module *m;
  Arena *arena;
  FnCode *fn; // by function; stmt is NULL until it is first called
  Exchange *exchange; // carries out collectives; NULL: there are none
  void *world;
};

// One activation of a function.
typedef struct Frame {
  Interp *x;
  const Fn *f;
  FnCode *code;
  const InterpOptions *o;
  Buf *error;
  Tensor **value; // by value: NULL until defined
  bool *own; // frees it
} Frame;

Interp *interp_new(const Module *m) {
  Arena *a = arena_new();
  Interp *x = NEW(a, Interp);
  x->m = m;
  x->arena = a;
  x->fn = NEWN(a, FnCode, m->fn.n + 1);
  return x;
}

void interp_free(Interp *x) {
  if (x) arena_free(x->arena);
}

void interp_join(Interp *x, Exchange *exchange, void *world) {
  x->exchange = exchange;
  x->world = world;
}

typedef struct Mention {
  uint32_t *last, at;
} Mention;

static void mention(Id value, void *ctx) {
  Mention *k = ctx;
  k->last[value] = k->at;
}

static FnCode *fn_code(Interp *x, Id fn) {
  const Fn *f = &x->m->fn.at[fn];
  FnCode *c = &x->fn[fn];
  if (c->stmt) return c;
  c->stmt = NEWN(x->arena, StmtCode, f->stmt.n + 1);
  c->last = NEWN(x->arena, uint32_t, f->value.n + 1);
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    Mention k = {c->last, i};
    stmt_reads(x->m, f, &f->stmt.at[i], mention, &k);
    stmt_writes(x->m, &f->stmt.at[i], mention, &k);
  }
  for (uint32_t i = 0; i < f->result.n; i++) c->last[f->result.at[i]] = UINT32_MAX;
  return c;
}

static StmtCode *stmt_code(Frame *fr, uint32_t at) {
  StmtCode *c = &fr->code->stmt[at];
  const Stmt *s = &fr->f->stmt.at[at];
  if (c->body) return c;
  c->body = code_body(fr->x->m, fr->f, s, fr->x->arena);
  if (!lhs_in_order(fr->x->m, fr->f, s)) c->lhs = code_lhs(fr->x->m, fr->f, s, fr->x->arena);
  return c;
}

static Tensor *define(Frame *fr, Id value) {
  Tensor *t = fr->value[value] = tensor_like(&fr->f->value.at[value]);
  fr->own[value] = true;
  need_room(t, fr->o);
  return t;
}

// An accumulator is made, as zeros, where it is first mentioned.
static Tensor *accumulator(Frame *fr, Id value) {
  return fr->value[value] ? fr->value[value] : define(fr, value);
}

// ---- storing

static double round_bits(double v, int mantissa, int emin, double max) {
  if (v == 0 || !isfinite(v)) return v;
  int e;
  frexp(v, &e); // v = f * 2^e, 0.5 <= |f| < 1
  int place = (e - 1 < emin ? emin : e - 1) - mantissa;
  double r = ldexp(rint(ldexp(v, -place)), place);
  return fabs(r) > max ? copysign(INFINITY, r) : r;
}

// 16-bit values are computed in float and rounded from there.
double interp_round(Dtype t, double v) {
  switch (t) {
  case DT_F32: return (float)v;
  case DT_BF16: return round_bits((float)v, 7, -126, 0x1.fep127);
  case DT_F16: return round_bits((float)v, 10, -14, 65504);
  default: return v;
  }
}

// The bound of a value after rounding: what lies within RIVALS bounds of it and rounds to the same
// is the same; otherwise it may be off by as much as their roundings differ.
static double rounded_bound(Dtype t, double v, double err, double unit) {
  enum { RIVALS = 4 };
  if (!isfinite(err) || !isfinite(v) || err == 0) return err;
  double low = interp_round(t, v - RIVALS * err * unit),
         high = interp_round(t, v + RIVALS * err * unit);
  return low == high ? 0 : (high - low) / unit;
}

// Results of one block of free points.
typedef struct Output {
  Reg v;
  bool real;
} Output;

// Uniform in [-1, 1], by splitmix64.
static double random_part(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (double)(int64_t)(z ^ z >> 31) * 0x1p-63;
}

static void store_noisy(const Frame *fr, Tensor *t, int64_t at, double v, double err, bool acc) {
  double unit = fr->o->unit > 0 ? fr->o->unit : 0x1p-24;
  if (acc) err += fabs(v);
  if (isfinite(err)) v += unit * err * random_part(fr->o->noise);
  t->real[at] = fr->o->round ? interp_round(t->type, v) : v;
  t->scale[at] = isfinite(err) && isfinite(t->scale[at]) ? 0 : INFINITY;
}

static void store_real(const Frame *fr, Tensor *t, int64_t at, double v, double err, bool acc) {
  if (acc) v += t->real[at];
  if (fr->o->noise) {
    store_noisy(fr, t, at, v, err, acc);
    return;
  }
  if (acc && fr->o->scale) err += t->scale[at] + fabs(v);
  if (fr->o->round && fr->o->scale && is_half(t->type))
    err = rounded_bound(t->type, v, err, fr->o->unit > 0 ? fr->o->unit : 0x1p-24);
  t->real[at] = fr->o->round ? interp_round(t->type, v) : v;
  if (fr->o->scale) t->scale[at] = err;
}

static void store_integer(const Frame *fr, Tensor *t, int64_t at, int64_t v, double err, bool acc) {
  t->integer[at] = (int32_t)(uint64_t)(acc ? v + t->integer[at] : v);
  if (fr->o->scale) t->scale[at] = acc ? t->scale[at] + err : err;
}

static void store(const Frame *fr, const Stmt *s, const Output *out, int n, const int64_t *offset) {
  Tensor *t = fr->value[s->lhs];
  for (int l = 0; l < n; l++)
    if (t->tangent && out->real)
      t->tangent[offset[l]] = out->v.tangent[l] + (s->acc ? t->tangent[offset[l]] : 0);
  for (int l = 0; l < n; l++)
    if (out->real) store_real(fr, t, offset[l], out->v.real[l], out->v.err[l], s->acc);
    else store_integer(fr, t, offset[l], out->v.integer[l], out->v.err[l], s->acc);
}

// ---- reductions

typedef struct Reduction {
  Red red;
  bool real; // of the body
  int64_t count, seen; // bound points
  double acc, err, sum_abs;
  // Of acc, in the widest format: a sum of a thousand equal terms may otherwise lose more than the
  // gradient that is held against it, whose sums are others.
  long double tangent;
  double second; // argmax: the greatest of what the others may reach, bounds added
  int64_t integer, best; // integer: int accumulator; best: position of the winner
} Reduction;

static void reduce_sum(Reduction *r, const Reg *x, int from, int n, const InterpOptions *o) {
  if (!r->real) {
    for (int l = from; l < from + n; l++) {
      r->integer = (int32_t)(uint64_t)(r->integer + x->integer[l]);
      if (o->scale) r->err += x->err[l];
    }
    return;
  }
  double acc = r->acc;
  for (int l = from; l < from + n; l++) acc += x->real[l];
  r->acc = acc;
  for (int l = from; o->tangent && l < from + n; l++) r->tangent += x->tangent[l];
  for (int l = from; o->scale && l < from + n; l++) {
    r->err += x->err[l];
    r->sum_abs += isinf(x->real[l]) ? 0 : fabs(x->real[l]);
  }
}

// Whether x is the better one: NaN above all, else the greater (less for min). Equals: the first
// stays.
static bool better(const Reduction *r, double x, double acc) {
  if (isnan(acc)) return false;
  return isnan(x) || (r->red == RED_MIN ? x < acc : x > acc);
}

static void reduce_best(Reduction *r, const Reg *x, int from, int n, const InterpOptions *o,
                        double unit) {
  bool scale = o->scale;
  for (int l = from; l < from + n; l++) {
    double v = r->real ? x->real[l] : (double)x->integer[l];
    double reach = scale ? v + (r->real ? unit * x->err[l] : x->err[l]) : 0;
    int64_t at = r->seen + (l - from);
    if (at == 0 || better(r, v, r->acc)) {
      if (scale && at) r->second = fmax(r->second, r->acc + unit * r->sum_abs);
      r->acc = v;
      r->best = at;
      if (o->tangent) r->tangent = x->tangent[l];
      r->sum_abs = scale ? x->err[l] : 0; // the winner's own bound
    } else if (scale) {
      r->second = fmax(r->second, reach);
    }
    if (scale) r->err = fmax(r->err, x->err[l]);
  }
}

static void reduce_start(Reduction *r) {
  r->seen = 0;
  r->acc = r->err = r->sum_abs = r->tangent = 0;
  r->second = -INFINITY;
  r->integer = r->best = 0;
}

// Of an argmax: uncertain where another may reach the winner.
static double winner_bound(const Reduction *r, double unit) {
  bool exact = r->err == 0;
  return !exact && r->second >= r->acc - unit * r->sum_abs ? INFINITY : 0;
}

static void reduce_end(const Reduction *r, Output *out, int at, const InterpOptions *o,
                       double unit) {
  double n = (double)r->count;
  out->v.tangent[at] = (double)(r->red == RED_MEAN ? r->tangent / n : r->tangent);
  switch (r->red) {
  case RED_SUM:
  case RED_MEAN:
    if (!r->real) out->v.integer[at] = r->integer;
    else out->v.real[at] = r->red == RED_MEAN ? r->acc / n : r->acc;
    if (!o->scale) return;
    double grows = o->noise ? 1 : 1 + log2(n) + n / 8;
    out->v.err[at] = r->err + (r->count > 1 && r->real ? grows * r->sum_abs : 0);
    if (r->red == RED_MEAN) out->v.err[at] = out->v.err[at] / n + fabs(r->acc / n);
    return;
  case RED_ARGMAX:
    out->v.integer[at] = r->best;
    out->v.err[at] = winner_bound(r, unit);
    break;
  default:
    if (r->real) out->v.real[at] = r->acc;
    else out->v.integer[at] = (int64_t)r->acc;
    out->v.err[at] = r->err;
  }
  if (o->ways && r->real) note_way(o, (uint64_t)r->best);
}

// Takes in the block's lanes; finished free points go to out[*nout ...].
static void reduce_block(const Block *b, const Reg *x, Reduction *r, Output *out, int *nout) {
  for (int l = 0; l < b->n;) {
    int n = b->n - l < r->count - r->seen ? b->n - l : (int)(r->count - r->seen);
    if (r->red == RED_SUM || r->red == RED_MEAN) reduce_sum(r, x, l, n, b->o);
    else reduce_best(r, x, l, n, b->o, b->unit);
    r->seen += n;
    l += n;
    if (r->seen < r->count) continue;
    reduce_end(r, out, (*nout)++, b->o, b->unit);
    reduce_start(r);
  }
}

// ---- comprehensions

static int64_t points(const Stmt *s, uint32_t from, uint32_t to) {
  int64_t n = 1;
  for (uint32_t i = from; i < to; i++) n *= s->index[i].extent;
  return n;
}

// Bodies of free points [first, first + n) to out.
static bool compute(Block *b, const Code *c, const Stmt *s, Reduction *r, int64_t first, int n,
                    Output *out) {
  if (s->red == RED_NONE) {
    block_place(b, first, n);
    if (!block_run(b, c)) return false;
    const Reg *x = &b->reg[c->result];
    memcpy(out->v.integer, x->integer, (size_t)n * sizeof *x->integer);
    if (b->o->scale) memcpy(out->v.err, x->err, (size_t)n * sizeof *x->err);
    if (b->o->tangent) memcpy(out->v.tangent, x->tangent, (size_t)n * sizeof *x->tangent);
    return true;
  }
  int nout = 0;
  int64_t end = (first + n) * r->count;
  for (int64_t p = first * r->count; p < end; p += LANES) {
    block_place(b, p, end - p < LANES ? (int)(end - p) : LANES);
    if (!block_run(b, c)) return false;
    reduce_block(b, &b->reg[c->result], r, out, &nout);
  }
  return true;
}

static bool written_twice(Block *b, const Stmt *s, int n, uint8_t *written) {
  for (int l = 0; l < n; l++) {
    if (!written[b->offset[l]]++) continue;
    if (b->error)
      buf_printf(b->error, "function `%s`: element %lld of `%s` is written twice", b->f->name,
                 (long long)b->offset[l], b->f->value.at[s->lhs].name);
    return true;
  }
  return false;
}

// Elements that the free points write, into l->offset. *anywhere is set where one may be another.
static bool place_lhs(Block *l, const Code *c, const Stmt *s, int64_t first, int n,
                      uint8_t *written, bool *anywhere) {
  if (!c) {
    for (int i = 0; i < n; i++) l->offset[i] = first + i;
    return true;
  }
  bool uncertain[LANES] = {false};
  block_place(l, first, n);
  if (!block_run(l, c) || !block_access(l, &c->lhs, NO_REG, uncertain)) return false;
  for (int i = 0; l->o->scale && i < n; i++) *anywhere |= uncertain[i];
  return s->acc || !written_twice(l, s, n, written);
}

static bool run_comp(Frame *fr, uint32_t at) {
  const Stmt *s = &fr->f->stmt.at[at];
  StmtCode *c = stmt_code(fr, at);
  Tensor *t = s->acc ? accumulator(fr, s->lhs) : define(fr, s->lhs);
  Block *b = malloc(2 * sizeof *b), *l = b + 1;
  ALLOCATED(b);
  double unit = fr->o->unit > 0 ? fr->o->unit : 0x1p-24;
  *b = (Block){.m = fr->x->m,
               .f = fr->f,
               .s = s,
               .value = fr->value,
               .o = fr->o,
               .unit = unit,
               .error = fr->error};
  *l = *b;
  static const Code empty;
  block_open(b, c->body, s->nindex);
  block_open(l, c->lhs ? c->lhs : &empty, s->nfree);
  Scalar body = ex(fr->x->m, s->body)->type;
  Reduction r = {.red = s->red, .real = body == SC_REAL, .count = points(s, s->nfree, s->nindex)};
  reduce_start(&r);
  int64_t nfree = points(s, 0, s->nfree), count = tensor_count(t);
  uint8_t *written = c->lhs && !s->acc ? zeros(count, 1) : NULL;
  Output out = {.real = scalar_of(t->type) == SC_REAL};
  bool ok = true, anywhere = false;
  for (int64_t p = 0; ok && p < nfree; p += LANES) {
    int n = nfree - p < LANES ? (int)(nfree - p) : LANES;
    ok = compute(b, c->body, s, &r, p, n, &out) && place_lhs(l, c->lhs, s, p, n, written, &anywhere);
    if (ok) store(fr, s, &out, n, l->offset);
  }
  for (int64_t i = 0; anywhere && i < count; i++) t->scale[i] = INFINITY;
  if (ok && written && nfree != count)
    BUG("`%s` is not written everywhere", fr->f->value.at[s->lhs].name);
  free(written);
  block_close(b);
  block_close(l);
  free(b);
  return ok;
}

// ---- calls

static bool run_fn(Interp *x, Id fn, Tensor *const *arg, Tensor **result, const InterpOptions *o,
                   Buf *error);

// The results of one iteration go where the call says. `carried`: by result.
static void take_results(Frame *fr, const Call *c, Tensor **result, int64_t iteration) {
  for (uint32_t i = 0; i < c->nresult; i++) {
    const Result *r = &c->result[i];
    if (r->mode == RES_DROP) {
      tensor_free(result[i]);
    } else if (r->mode == RES_SLICE) {
      Tensor part = slice(accumulator(fr, r->value), iteration);
      copy_elements(&part, result[i]);
      tensor_free(result[i]);
    } else {
      if (fr->own[r->value]) tensor_free(fr->value[r->value]);
      fr->value[r->value] = result[i];
      fr->own[r->value] = true;
    }
  }
}

static Tensor *actual(Frame *fr, const Call *c, uint32_t i, int64_t iteration, bool inout,
                      Tensor *part) {
  const Actual *a = &c->arg[i];
  if (a->mode == ACT_ITER) {
    part->integer[0] = (int32_t)iteration;
    return part;
  }
  Tensor *t = inout ? accumulator(fr, a->value) : fr->value[a->value];
  if (!t) BUG("`%s` is passed before it is defined", fr->f->value.at[a->value].name);
  if (inout) need_room(t, fr->o);
  if (a->mode != ACT_SLICE) return t;
  *part = slice(t, iteration);
  return part;
}

// The value that carried argument i has in a later iteration: the j-th carried result's.
static Id carried(const Call *c, uint32_t i) {
  uint32_t j = 0, k = 0;
  for (uint32_t n = 0; n < i; n++) j += c->arg[n].mode == ACT_CARRY;
  for (;; k++)
    if (c->result[k].mode == RES_CARRY && j-- == 0) return c->result[k].value;
}

static bool run_call(Frame *fr, const Call *c) {
  const Fn *g = &fr->x->m->fn.at[c->fn];
  Tensor **arg = zeros(c->narg + 1, sizeof *arg), **result = zeros(c->nresult + 1, sizeof *result);
  Tensor *part = zeros(c->narg + 1, sizeof *part);
  int32_t *number = zeros(c->narg + 1, sizeof *number);
  bool ok = true;
  for (int64_t k = 0; ok && k < c->count; k++) {
    int64_t iteration = c->reverse ? c->count - 1 - k : k;
    for (uint32_t i = 0; i < c->narg; i++) {
      bool inout = g->value.at[g->arg.at[i]].role == ROLE_INOUT;
      if (c->arg[i].mode == ACT_ITER) part[i] = (Tensor){.type = DT_I32, .integer = &number[i]};
      if (c->arg[i].mode == ACT_CARRY && k) arg[i] = fr->value[carried(c, i)];
      else arg[i] = actual(fr, c, i, iteration, inout, &part[i]);
    }
    ok = run_fn(fr->x, c->fn, arg, result, fr->o, fr->error);
    if (ok) take_results(fr, c, result, iteration);
  }
  free(arg);
  free(result);
  free(part);
  free(number);
  return ok;
}

// ---- conversions and collectives

static bool run_move(Frame *fr, const Stmt *s) {
  Tensor *from = fr->value[s->from];
  if (!from) from = accumulator(fr, s->from); // nothing was added to it
  Tensor *to = define(fr, s->lhs);
  if (s->kind == ST_CONVERT) {
    copy_elements(to, from);
    return true;
  }
  CHECK(!fr->o->tangent || !fr->x->exchange);
  if (fr->x->exchange) {
    bool ok = fr->x->exchange(fr->x->world, fr->f, s, to, from, fr->error);
    bool round = ok && fr->o->round && to->real && coll_reduces(s->coll);
    for (int64_t i = 0; round && i < tensor_count(to); i++)
      to->real[i] = interp_round(to->type, to->real[i]);
    return ok;
  }
  if (fr->error) buf_printf(fr->error, "function `%s`: a collective of one rank", fr->f->name);
  return false;
}

static bool run_stmt(Frame *fr, uint32_t at) {
  const Stmt *s = &fr->f->stmt.at[at];
  switch (s->kind) {
  case ST_COMP: return run_comp(fr, at);
  case ST_CALL:
  case ST_REPEAT: return run_call(fr, s->call);
  case ST_CONVERT:
  case ST_COLL: return run_move(fr, s);
  }
  BUG("statement %u", at);
}

// ---- functions

static void release(Frame *fr, uint32_t at) {
  for (Id v = 0; v < fr->f->value.n; v++) {
    if (!fr->own[v] || fr->code->last[v] > at) continue;
    tensor_free(fr->value[v]);
    fr->value[v] = NULL;
    fr->own[v] = false;
  }
}

static void give_results(Frame *fr, Tensor **result) {
  for (uint32_t i = 0; i < fr->f->result.n; i++) {
    Id v = fr->f->result.at[i];
    Tensor *t = fr->value[v];
    if (!t) BUG("result `%s` is never defined", fr->f->value.at[v].name);
    if (fr->own[v]) {
      fr->own[v] = false;
      result[i] = t;
      continue;
    }
    result[i] = tensor_new(t->type, t->extent, t->rank); // an argument, or given out already
    need_room(result[i], fr->o);
    copy_elements(result[i], t);
  }
}

static bool run_fn(Interp *x, Id fn, Tensor *const *arg, Tensor **result, const InterpOptions *o,
                   Buf *error) {
  const Fn *f = &x->m->fn.at[fn];
  Frame fr = {.x = x, .f = f, .code = fn_code(x, fn), .o = o, .error = error};
  fr.value = zeros(f->value.n + 1, sizeof *fr.value);
  fr.own = zeros(f->value.n + 1, sizeof *fr.own);
  for (uint32_t i = 0; i < f->arg.n; i++) fr.value[f->arg.at[i]] = arg[i];
  bool ok = true;
  for (uint32_t i = 0; ok && i < f->stmt.n; i++) {
    ok = run_stmt(&fr, i);
    release(&fr, i);
  }
  if (ok) give_results(&fr, result);
  for (Id v = 0; v < f->value.n; v++)
    if (fr.own[v]) tensor_free(fr.value[v]);
  free(fr.value);
  free(fr.own);
  return ok;
}

bool interp_call(Interp *x, Id fn, Tensor *const *arg, Tensor **result, const InterpOptions *o,
                 Buf *error) {
  const Fn *f = &x->m->fn.at[fn];
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    const Tensor *t = arg[i];
    bool same = scalar_of(t->type) == scalar_of(v->type) && t->rank == v->rank &&
                !memcmp(t->extent, v->extent, v->rank * sizeof *v->extent);
    if (!same) BUG("argument `%s` of `%s` has another type or shape", v->name, f->name);
    if (v->role == ROLE_INOUT) need_room(arg[i], o);
  }
  return run_fn(x, fn, arg, result, o, error);
}

bool interp_run(const Module *m, Id fn, Tensor *const *arg, Tensor **result, const InterpOptions *o,
                Buf *error) {
  Interp *x = interp_new(m);
  bool ok = interp_call(x, fn, arg, result, o, error);
  interp_free(x);
  return ok;
}
