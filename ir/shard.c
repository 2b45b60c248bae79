// The rule of ir/shard.h for one comprehension on one axis.
#include "ir/shard.h"

#include <stdlib.h>

// ---- layouts

bool shard_same(Shard a, Shard b) {
  if (a.kind != b.kind) return false;
  if (a.kind == SHARD_SPLIT) return a.dim == b.dim && a.block == b.block;
  return a.kind != SHARD_PARTIAL || a.op == b.op;
}

void shard_text(Shard s, Buf *out) {
  if (s.kind == SHARD_WHOLE) buf_printf(out, "whole");
  else if (s.kind == SHARD_SPLIT) buf_printf(out, "split %u/%lld", s.dim, (long long)s.block);
  else buf_printf(out, "a partial %s", s.op < NRED ? red_name[s.op] : "?");
}

bool shard_deals(int64_t extent, int64_t block, int64_t n) {
  int64_t round;
  if (block < 1 || block > extent || !mul_ok(block, n, &round)) return false;
  return extent % round == 0 || round >= extent;
}

int64_t shard_block(int64_t extent, int64_t n) { return (extent + n - 1) / n; }

int64_t shard_local(int64_t extent, int64_t block, int64_t n) {
  return shard_block(extent, block * n) * block;
}

__attribute__((format(printf, 2, 3))) static bool refuse(Buf *why, const char *fmt, ...) {
  char text[512];
  va_list ap;
  if (!why) return false;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  buf_printf(why, "%s", text);
  return false;
}

bool shard_nest(const Module *m, int64_t extent, uint32_t axis_a, int64_t block_a, uint32_t axis_b,
                int64_t block_b) {
  int64_t a = m->axis.at[axis_a].size, b = m->axis.at[axis_b].size;
  if (extent % (block_a * a) || extent % (block_b * b)) return false;
  return block_a % (block_b * axis_period(m, axis_b)) == 0 ||
         block_b % (block_a * axis_period(m, axis_a)) == 0;
}

static bool nested(const Module *m, const Value *v, uint32_t i, uint32_t j) {
  return shard_nest(m, v->extent[v->shard[i].dim], i, v->shard[i].block, j, v->shard[j].block);
}

bool shard_value_ok(const Module *m, const Value *v, Buf *why) {
  for (uint32_t i = 0; i < m->axis.n; i++) {
    Shard s = v->shard[i];
    const char *axis = m->axis.at[i].name;
    if (s.kind == SHARD_PARTIAL && (s.op < RED_SUM || s.op == RED_MEAN || s.op > RED_MIN))
      return refuse(why, "axis %s: `%s` is partial by no sum, max or min", axis, v->name);
    if (s.kind == SHARD_PARTIAL && v->type == DT_BOOL)
      return refuse(why, "axis %s: `%s` is of bools, which can't be partial", axis, v->name);
    if (s.kind != SHARD_SPLIT) continue;
    if (s.dim >= v->rank)
      return refuse(why, "axis %s: `%s` is split along dimension %u of %u", axis, v->name, s.dim,
                    v->rank);
    if (!shard_deals(v->extent[s.dim], s.block, m->axis.at[i].size))
      return refuse(why,
                    "axis %s: blocks of %lld do not distribute dimension %u of `%s`, %lld, over "
                    "%lld ranks",
                    axis, (long long)s.block, s.dim, v->name, (long long)v->extent[s.dim],
                    (long long)m->axis.at[i].size);
    for (uint32_t j = 0; j < i; j++)
      if (v->shard[j].kind == SHARD_SPLIT && v->shard[j].dim == s.dim && !nested(m, v, i, j))
        return refuse(why, "axes %s and %s split dimension %u of `%s` in blocks that do not nest",
                      m->axis.at[j].name, axis, s.dim, v->name);
  }
  return true;
}

bool shard_convertible(Shard a, Shard b) {
  if (shard_same(a, b)) return false;
  if (a.kind == SHARD_WHOLE) return b.kind == SHARD_SPLIT || b.op == RED_SUM;
  return b.kind != SHARD_PARTIAL;
}

// ---- subscripts

// Where index i stands in one subscript: extents right of it, and whether something that varies is
// left of it. False where it is neither bare nor in a group.
static bool stands(const Module *m, const Stmt *s, Id sub, uint32_t i, int64_t *inner, bool *left) {
  const Expr *x = ex(m, sub);
  *inner = 1;
  *left = false;
  if (x->op == OP_INDEX) return x->integer == i;
  if (x->op != OP_GROUP) return false;
  bool found = false;
  for (uint32_t k = x->narg; k-- > 0;) {
    const Expr *a = ex(m, ex_arg(m, sub, k));
    int64_t extent = a->op == OP_INDEX ? s->index[a->integer].extent : 2;
    if (a->op == OP_INDEX && a->integer == i) found = true;
    else if (!found) *inner *= extent;
    else *left |= extent > 1;
  }
  return found;
}

// The layout of dimension d by index i; false where i does not stand there, *bad where it does but
// its extent leaves a remainder inside the group.
static bool split_at(const Module *m, const Stmt *s, Id sub, uint32_t d, uint32_t i, int64_t block,
                     int64_t period, Shard *out, bool *bad) {
  int64_t inner;
  bool left;
  if (!stands(m, s, sub, i, &inner, &left)) return false;
  *bad |= left && s->index[i].extent % (block * period) != 0;
  *out = shard_split(d, block * inner);
  return true;
}

bool shard_subscripts(const Module *m, const Stmt *s, const Id *sub, uint32_t rank, uint32_t index,
                      int64_t block, int64_t period, Shard *out) {
  bool bad = false;
  *out = shard_whole();
  for (uint32_t d = 0; d < rank; d++)
    if (split_at(m, s, sub[d], d, index, block, period, out, &bad)) return !bad;
  return true;
}

static int64_t ranks_of(const ShardAsk *q) { return q->m->axis.at[q->axis].size; }
static int64_t period_of(const ShardAsk *q) { return axis_period(q->m, q->axis); }

static const Id *subs_of(const Module *m, Id read) { return &m->arg.at[ex(m, read)->arg]; }

bool shard_need(const ShardAsk *q, Id read, Assign a, Shard *out) {
  *out = shard_whole();
  if (a.kind != ASSIGN_INDEX) return true;
  return shard_subscripts(q->m, q->s, subs_of(q->m, read), ex(q->m, read)->narg, a.index, a.block,
                          period_of(q), out);
}

// Whether a subscript is an index or a group of indices alone.
static bool is_index(const Module *m, Id sub) {
  const Expr *x = ex(m, sub);
  return x->op == OP_INDEX || (x->op == OP_GROUP && ex_is(m, ex_arg(m, sub, 0), OP_INDEX));
}

bool shard_guarded(const ShardAsk *q, Id read) {
  const Expr *x = ex(q->m, read);
  Shard t = q->type[x->integer];
  return t.kind == SHARD_SPLIT && t.dim < x->narg && x->type != SC_BOOL &&
         !is_index(q->m, ex_arg(q->m, read, t.dim));
}

// ---- linearity

// What an expression is on one rank: the constant zero, the value itself, or a term of a sum over
// the ranks.
typedef enum Kind { KIND_NEW, KIND_ZERO, KIND_HERE, KIND_PART, KIND_BAD } Kind;

typedef struct Linear {
  const ShardAsk *q;
  Buf *why;
  uint8_t *kind; // of each expression, a Kind
  // for shard_mask
  Module *m;
  Id rank0, *masked;
  uint32_t masks;
} Linear;

static Kind kind_of(Linear *l, Id e);

static Kind bad(Linear *l, const char *fmt, const char *name) {
  if (l->why) buf_printf(l->why, fmt, name);
  return KIND_BAD;
}

static Kind kind_read(Linear *l, Id e) {
  const Module *m = l->q->m;
  const char *name = l->q->f->value.at[ex(m, e)->integer].name;
  for (uint32_t i = 0; i < ex(m, e)->narg; i++) {
    Kind k = kind_of(l, ex_arg(m, e, i));
    if (k == KIND_BAD) return k;
    if (k == KIND_PART) return bad(l, "a subscript of `%s` is partial", name);
  }
  Shard t = l->q->type[ex(m, e)->integer];
  if (t.kind == SHARD_WHOLE) return KIND_HERE;
  if (t.kind == SHARD_SPLIT) {
    if (shard_guarded(l->q, e)) return KIND_PART;
    return bad(l, "`%s` is split along an index that is not assigned", name);
  }
  if (t.op == RED_SUM) return KIND_PART;
  return bad(l, "`%s` is a partial max or min, which may only be converted", name);
}

static bool is_zero(const Expr *x) {
  return (x->op == OP_REAL && x->real == 0) || (x->op == OP_INT && x->integer == 0);
}

// The kinds of an operator's arguments, in k; how many are partial.
static bool kinds_of(Linear *l, Id e, Kind *k, uint32_t *parts) {
  *parts = 0;
  for (uint32_t i = 0; i < ex(l->q->m, e)->narg; i++) {
    Kind a = kind_of(l, ex_arg(l->q->m, e, i));
    if (a == KIND_BAD) return false;
    *parts += a == KIND_PART;
    if (i < 3) k[i] = a;
  }
  return true;
}

static Kind kind_op(Linear *l, Id e) {
  const Expr *x = ex(l->q->m, e);
  Kind k[3] = {KIND_HERE, KIND_HERE, KIND_HERE};
  uint32_t parts;
  if (!kinds_of(l, e, k, &parts)) return KIND_BAD;
  if (!parts) return KIND_HERE;
  switch (x->op) {
  case OP_NEG:
  case OP_STOP:
  case OP_ADD:
  case OP_SUB: return KIND_PART;
  case OP_MUL: return parts == 1 ? KIND_PART : bad(l, "a product of two partial terms%s", "");
  case OP_DIV:
    return k[1] != KIND_PART ? KIND_PART : bad(l, "a division by a partial term%s", "");
  case OP_WHERE:
    return k[0] != KIND_PART ? KIND_PART : bad(l, "a condition on a partial term%s", "");
  default:
    return bad(l, "`%s` of a partial term is not linear",
               x->op == OP_GROUP ? "group" : op_info[x->op].text);
  }
}

static Kind kind_of(Linear *l, Id e) {
  if (l->kind[e]) return l->kind[e];
  const Expr *x = ex(l->q->m, e);
  Kind k;
  switch (x->op) {
  case OP_REAL:
  case OP_INT: k = is_zero(x) ? KIND_ZERO : KIND_HERE; break;
  case OP_BOOL:
  case OP_INDEX: k = KIND_HERE; break;
  case OP_READ: k = kind_read(l, e); break;
  default: k = kind_op(l, e);
  }
  return l->kind[e] = (uint8_t)k;
}

static Linear linear_new(const ShardAsk *q, Buf *why) {
  Linear l = {.q = q, .why = why, .kind = calloc(q->m->expr.n + 1, 1)};
  ALLOCATED(l.kind);
  return l;
}

// ---- the result

typedef struct Reads {
  const ShardAsk *q;
  Assign a;
  Buf *why;
  bool ok;
} Reads;

static void refuse_read(Reads *r, Id read, Shard need) {
  const ShardAsk *q = r->q;
  Buf is = {0}, want = {0};
  shard_text(q->type[ex(q->m, read)->integer], &is);
  shard_text(need, &want);
  refuse(r->why, "`%s` is %s; with %s assigned it is read as %s",
         q->f->value.at[ex(q->m, read)->integer].name, is.text,
         r->a.kind == ASSIGN_INDEX ? q->s->index[r->a.index].name : "a write", want.text);
  buf_free(&is);
  buf_free(&want);
}

// A read fits an assigned index by any dimension in which it stands.
static void read_fits(const Module *m, Id read, void *ctx) {
  Reads *r = ctx;
  const ShardAsk *q = r->q;
  Shard type = q->type[ex(m, read)->integer], need = shard_whole(), at;
  bool found = false;
  if (!r->ok) return;
  for (uint32_t d = 0; r->a.kind == ASSIGN_INDEX && d < ex(m, read)->narg; d++) {
    bool bad = false;
    if (!split_at(m, q->s, ex_arg(m, read, d), d, r->a.index, r->a.block, period_of(q),
                  &at, &bad))
      continue;
    if (!bad && shard_same(at, type)) return;
    if (!found) need = at;
    found = true;
  }
  if (!found && type.kind == SHARD_WHOLE) return;
  refuse_read(r, read, need);
  r->ok = false;
}

static bool reads_fit(const ShardAsk *q, Assign a, Buf *why) {
  Reads r = {q, a, why, true};
  comp_reads(q->m, q->f, q->s, read_fits, &r);
  return r.ok;
}

static bool result_bound(const ShardAsk *q, Assign a, Shard *out, Buf *why) {
  const char *name = q->s->index[a.index].name;
  Red red = q->s->red;
  if (red == RED_ARGMAX) return refuse(why, "`%s` is assigned, and argmax reduces over it", name);
  if (q->s->acc && red != RED_SUM && red != RED_MEAN)
    return refuse(why, "`%s` is assigned, and its %s is added up", name, red_name[red]);
  *out = shard_partial(red == RED_MEAN ? RED_SUM : red);
  return true;
}

static bool result_index(const ShardAsk *q, Assign a, Shard *out, Buf *why) {
  const Stmt *s = q->s;
  if (a.index >= s->nindex) return refuse(why, "index %u of %u is assigned", a.index, s->nindex);
  const Index *i = &s->index[a.index];
  if (!shard_deals(i->extent, a.block, ranks_of(q)))
    return refuse(why, "blocks of %lld do not distribute `%s`, %lld, over %lld ranks",
                  (long long)a.block, i->name, (long long)i->extent,
                  (long long)ranks_of(q));
  if (a.index >= s->nfree) return result_bound(q, a, out, why);
  if (!shard_subscripts(q->m, s, s->sub, q->f->value.at[s->lhs].rank, a.index, a.block,
                        period_of(q), out))
    return refuse(why, "`%s` does not divide inside its group on the left", i->name);
  if (out->kind == SHARD_SPLIT) return true;
  if (!s->acc) return refuse(why, "`%s` is assigned, and is no subscript on the left", i->name);
  *out = shard_partial(RED_SUM);
  return true;
}

static bool result_write(const ShardAsk *q, Assign a, Shard *out, Buf *why) {
  const Value *v = &q->f->value.at[q->s->lhs];
  if (!q->s->acc) return refuse(why, "a guarded write is of a `+=`");
  if (a.index >= v->rank || is_index(q->m, q->s->sub[a.index]))
    return refuse(why, "a guarded write is along a subscript that is no index");
  if (!shard_deals(v->extent[a.index], a.block, ranks_of(q)))
    return refuse(why, "blocks of %lld do not distribute dimension %u of `%s`", (long long)a.block,
                  a.index, v->name);
  *out = shard_split(a.index, a.block);
  return true;
}

bool shard_makes(const ShardAsk *q, Assign a, Shard *out, Buf *why) {
  return a.kind == ASSIGN_INDEX ? result_index(q, a, out, why) : result_write(q, a, out, why);
}

static bool result_none(const ShardAsk *q, Shard *out, Buf *why) {
  Linear l = linear_new(q, why);
  const Stmt *s = q->s;
  Kind k = kind_of(&l, s->body);
  for (uint32_t d = 0; k != KIND_BAD && d < q->f->value.at[s->lhs].rank; d++) {
    Kind sub = kind_of(&l, s->sub[d]);
    if (sub == KIND_PART)
      sub = bad(&l, "a subscript of `%s` is partial", q->f->value.at[s->lhs].name);
    if (sub == KIND_BAD) k = sub;
  }
  free(l.kind);
  if (k == KIND_BAD) return false;
  *out = k == KIND_PART ? shard_partial(RED_SUM) : shard_whole();
  if (k == KIND_PART && s->red != RED_NONE && s->red != RED_SUM && s->red != RED_MEAN)
    return refuse(why, "the %s of a partial term", red_name[s->red]);
  return true;
}

bool shard_result(const ShardAsk *q, Assign a, Shard *out, Buf *why) {
  if (a.kind == ASSIGN_NONE) return result_none(q, out, why);
  if (a.kind > ASSIGN_WRITE) return refuse(why, "no such assignment");
  return shard_makes(q, a, out, why) && reads_fit(q, a, why);
}

bool shard_added(Assign a, Shard term, Shard accumulator) {
  if (shard_same(term, accumulator)) return true;
  if (accumulator.kind != SHARD_PARTIAL || accumulator.op != RED_SUM) return false;
  if (a.kind == ASSIGN_NONE) return term.kind == SHARD_WHOLE;
  return a.kind == ASSIGN_INDEX && term.kind == SHARD_SPLIT;
}

// ---- masks

static Id mask_term(Linear *l, Id e) {
  const Expr *x = ex(l->q->m, e);
  if (l->kind[e] == KIND_ZERO) return e;
  l->masks++;
  if (l->rank0 == NONE) return e;
  return ex3(l->m, OP_WHERE, l->rank0, e,
             x->type == SC_REAL ? ex_real(l->m, 0.0) : ex_int(l->m, 0));
}

// e is partial: masks what is whole among the terms that it adds.
static Id mask(Linear *l, Id e) {
  Expr x = *ex(l->q->m, e);
  Id arg[3];
  bool adds = x.op == OP_ADD || x.op == OP_SUB || x.op == OP_WHERE;
  if (x.op == OP_READ) return e;
  if (l->masked[e] != NONE) return l->masked[e];
  for (uint32_t i = 0; i < x.narg; i++) {
    arg[i] = ex_arg(l->q->m, e, i);
    if (l->kind[arg[i]] == KIND_PART) arg[i] = mask(l, arg[i]);
    else if (adds && !(x.op == OP_WHERE && i == 0)) arg[i] = mask_term(l, arg[i]);
  }
  return l->masked[e] = l->m && l->rank0 != NONE ? ex_like(l->m, e, x.integer, arg) : e;
}

Id shard_mask(Module *m, const ShardAsk *q, bool whole_into_partial, Id rank0, uint32_t *masks) {
  Linear l = linear_new(q, NULL);
  l.m = m;
  l.rank0 = rank0;
  l.masked = malloc((q->m->expr.n + 1) * sizeof(Id));
  ALLOCATED(l.masked);
  memset(l.masked, 0xff, (q->m->expr.n + 1) * sizeof(Id));
  Kind k = kind_of(&l, q->s->body);
  Id body = q->s->body;
  if (k == KIND_PART) body = mask(&l, body);
  else if (k == KIND_HERE && whole_into_partial) body = mask_term(&l, body);
  free(l.kind);
  free(l.masked);
  if (masks) *masks = l.masks;
  return body;
}

void shard_types(const Fn *f, uint32_t axis, Shard *type) {
  for (Id v = 0; v < f->value.n; v++) type[v] = f->value.at[v].shard[axis];
}
