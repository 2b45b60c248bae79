// The verifier: one function a rule of ir/ir.h. The first broken rule ends the check.
#include "ir/verify.h"

#include <stdlib.h>

#include "ir/chunk.h"
#include "ir/entry.h"
#include "ir/intrinsic.h"
#include "ir/layout.h"
#include "ir/range.h"
#include "ir/shard.h"
#include "ir/text/text.h"

// How a value of the function being checked gets its elements.
typedef struct Written {
  enum { WRITTEN_NOT, WRITTEN_ONCE, WRITTEN_ADDED } how;
  uint32_t last; // statement of the (last) write
} Written;

typedef struct Verifier {
  const Module *m;
  Buf *why;
  const Fn *f;
  const Stmt *s; // NULL: between statements
  uint32_t at; // number of s
  Written *written; // for each value
  uint32_t *stamp, epoch; // for each expression, the last statement that it was checked in
} Verifier;

static bool fail(Verifier *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(Verifier *v, const char *fmt, ...) {
  if (v->f) buf_printf(v->why, "function `%s`: ", v->f->name);
  if (v->s) {
    buf_printf(v->why, "statement `");
    ir_print_stmt(v->m, v->f, v->s, v->why);
    buf_printf(v->why, "`: ");
  }
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  buf_printf(v->why, "%s", text);
  return false;
}

static bool shape_ok(uint32_t rank, const int64_t *extent, int64_t size) {
  if (rank > MAX_RANK) return false;
  for (uint32_t d = 0; d < rank; d++)
    if (extent[d] < 1 || !mul_ok(size, extent[d], &size)) return false;
  return true;
}

static bool same_shape(uint32_t rank, const int64_t *a, const int64_t *b) {
  return !memcmp(a, b, rank * sizeof *a);
}

static const char *name_of(const Verifier *v, Id value) { return v->f->value.at[value].name; }

// ---- expressions

static bool group_ok(Verifier *v, Id e) {
  const Expr *x = ex(v->m, e);
  uint32_t seen = 0;
  int64_t size = 1;
  if (!x->narg) return fail(v, "an empty group");
  for (uint32_t i = 0; i < x->narg; i++) {
    const Expr *a = ex(v->m, ex_arg(v->m, e, i));
    if (a->type != SC_INT) return fail(v, "a group's member is not an int");
    if (i && a->op != OP_INDEX) return fail(v, "a group's member after the first is not an index");
    if (a->op != OP_INDEX) continue;
    if (seen >> a->integer & 1) return fail(v, "a group has an index twice");
    seen |= 1u << a->integer;
    if (a->integer < v->s->nindex && !mul_ok(size, v->s->index[a->integer].extent, &size))
      return fail(v, "a group's extent does not fit 64 bits");
  }
  return true;
}

// Whether the statement may read the value: it is written already, and to the end.
static bool readable(Verifier *v, Id value) {
  const Value *t = &v->f->value.at[value];
  const Written *w = &v->written[value];
  if (t->role == ROLE_IN) return true;
  if (w->how == WRITTEN_NOT)
    return t->role != ROLE_LOCAL || fail(v, "`%s` is never defined", t->name);
  if (w->last < v->at) return true;
  return fail(v, "`%s` is read before its %s", t->name,
              w->how == WRITTEN_ONCE ? "definition" : "last `+=`");
}

static bool read_ok(Verifier *v, Id e) {
  const Expr *x = ex(v->m, e);
  if (x->integer < 0 || x->integer >= v->f->value.n) return fail(v, "a read of no value");
  const Value *t = &v->f->value.at[x->integer];
  if (x->narg != t->rank)
    return fail(v, "`%s` of rank %u is read with %u subscripts", t->name, t->rank, x->narg);
  if (x->type != scalar_of(t->type)) return fail(v, "a read of `%s` with another type", t->name);
  for (uint32_t i = 0; i < x->narg; i++)
    if (ex(v->m, ex_arg(v->m, e, i))->type != SC_INT) return fail(v, "a subscript is not an int");
  return readable(v, (Id)x->integer);
}

// The type rule of ir.h's operator table.
static bool types_ok(const Module *m, Id e) {
  const Expr *x = ex(m, e);
  Scalar t[3] = {SC_REAL, SC_REAL, SC_REAL};
  if (op_info[x->op].arity != x->narg) return false;
  bool same = true;
  for (uint32_t i = 0; i < x->narg; i++) {
    t[i] = ex(m, ex_arg(m, e, i))->type;
    same &= t[i] == t[0];
  }
  switch (op_info[x->op].rule) {
  case RULE_NUM: return same && t[0] != SC_BOOL && x->type == t[0];
  case RULE_CMP: return same && t[0] != SC_BOOL && x->type == SC_BOOL;
  case RULE_REAL: return same && t[0] == SC_REAL && x->type == SC_REAL;
  case RULE_INT: return same && t[0] == SC_INT && x->type == SC_INT;
  case RULE_BOOL: return same && t[0] == SC_BOOL && x->type == SC_BOOL;
  case RULE_SEL: return t[0] == SC_BOOL && t[1] == t[2] && x->type == t[1];
  case RULE_CONV:
    return x->type == (x->op == OP_TO_REAL ? SC_REAL : SC_INT) && t[0] != (Scalar)x->type;
  case RULE_LEAF: break;
  }
  return x->op != OP_RANDOM || (same && t[0] == SC_INT && x->type == SC_REAL);
}

static bool expr_ok(Verifier *v, Id e) {
  if (e >= v->m->expr.n) return fail(v, "no such expression");
  if (v->stamp[e] == v->epoch) return true;
  v->stamp[e] = v->epoch;
  const Expr *x = ex(v->m, e);
  if (x->op >= NOP || (x->narg && x->arg + x->narg > v->m->arg.n))
    return fail(v, "a broken expression");
  for (uint32_t i = 0; i < x->narg; i++) {
    Id a = ex_arg(v->m, e, i);
    if (a >= e) return fail(v, "an expression with a later argument");
    if (!expr_ok(v, a)) return false;
  }
  switch (x->op) {
  case OP_INDEX:
    return (x->integer >= 0 && x->integer < v->s->nindex) ||
           fail(v, "no index %lld", (long long)x->integer);
  case OP_READ: return read_ok(v, e);
  case OP_GROUP: return group_ok(v, e);
  case OP_REAL:
  case OP_INT:
  case OP_BOOL: return true;
  default: return types_ok(v->m, e) || fail(v, "`%s` breaks its type rule", op_info[x->op].text);
  }
}

// ---- a `=` writes every element once

// A subscript as constant + sum of coefficient * index. False where it isn't that.
typedef struct Affine {
  int64_t constant, coef[MAX_INDEX];
} Affine;

static bool affine(const Module *m, const Stmt *s, Id e, int64_t scale, Affine *a) {
  const Expr *x = ex(m, e);
  int64_t k;
  switch (x->op) {
  case OP_INT: return mul_ok(x->integer, scale, &k) && add_ok(a->constant, k, &a->constant);
  case OP_INDEX: return add_ok(a->coef[x->integer], scale, &a->coef[x->integer]);
  case OP_NEG: return mul_ok(scale, -1, &k) && affine(m, s, ex_arg(m, e, 0), k, a);
  case OP_ADD:
    return affine(m, s, ex_arg(m, e, 0), scale, a) && affine(m, s, ex_arg(m, e, 1), scale, a);
  case OP_SUB:
    return affine(m, s, ex_arg(m, e, 0), scale, a) && mul_ok(scale, -1, &k) &&
           affine(m, s, ex_arg(m, e, 1), k, a);
  case OP_MUL:
    for (uint32_t i = 0; i < 2; i++) {
      const Expr *c = ex(m, ex_arg(m, e, i));
      if (c->op == OP_INT)
        return mul_ok(scale, c->integer, &k) && affine(m, s, ex_arg(m, e, 1 - i), k, a);
    }
    return false;
  case OP_GROUP:
    for (uint32_t i = x->narg; i-- > 0;) {
      Id arg = ex_arg(m, e, i);
      if (!affine(m, s, arg, scale, a)) return false;
      if (i && !mul_ok(scale, s->index[ex(m, arg)->integer].extent, &scale)) return false;
    }
    return true;
  default: return false;
  }
}

// Whether the indices, as digits of a mixed radix, count each of 0 .. extent-1 once. *used gets
// them.
static bool counts_once(const Stmt *s, const Affine *a, int64_t extent, uint32_t *used) {
  int64_t place = 1, low = a->constant;
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (!a->coef[i]) continue;
    if (*used >> i & 1) return false;
    int64_t span;
    if (!mul_ok(a->coef[i], s->index[i].extent - 1, &span)) return false;
    if (span < 0 && !add_ok(low, span, &low)) return false;
  }
  for (bool found = true; found;) {
    found = false;
    for (uint32_t i = 0; i < s->nindex && !found; i++) {
      if ((a->coef[i] != place && a->coef[i] != -place) || (*used >> i & 1) ||
          s->index[i].extent == 1)
        continue;
      *used |= 1u << i;
      found = true;
      if (!mul_ok(place, s->index[i].extent, &place)) return false;
    }
  }
  for (uint32_t i = 0; i < s->nindex; i++)
    if (a->coef[i] && s->index[i].extent > 1 && !(*used >> i & 1)) return false;
  return place == extent && low == 0;
}

static bool writes_once(Verifier *v) {
  const Stmt *s = v->s;
  const Value *t = &v->f->value.at[s->lhs];
  uint32_t used = 0;
  for (uint32_t d = 0; d < t->rank; d++) {
    Affine a = {0};
    if (!affine(v->m, s, s->sub[d], 1, &a) || !counts_once(s, &a, t->extent[d], &used))
      return fail(v, "subscript %u does not write each of %lld places exactly once", d,
                  (long long)t->extent[d]);
  }
  for (uint32_t i = 0; i < s->nfree; i++)
    if (!(used >> i & 1) && s->index[i].extent > 1)
      return fail(v, "index `%s` writes the same elements many times", s->index[i].name);
  return true;
}

// ---- comprehensions

static bool indices_ok(Verifier *v) {
  const Stmt *s = v->s;
  int64_t points = 1;
  if (s->nindex > MAX_INDEX || s->nfree > s->nindex) return fail(v, "bad numbers of indices");
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (!s->index[i].name) return fail(v, "an index has no name");
    if (s->index[i].extent < 1) return fail(v, "index `%s` is empty", s->index[i].name);
    if (!mul_ok(points, s->index[i].extent, &points))
      return fail(v, "more points than fit 64 bits");
    for (uint32_t j = 0; j < i; j++)
      if (s->index[i].name == s->index[j].name)
        return fail(v, "two indices `%s`", s->index[i].name);
  }
  if (s->red >= NRED) return fail(v, "no such reduction");
  if (s->red == RED_NONE && s->nfree != s->nindex) return fail(v, "bound indices and no reduction");
  return true;
}

// What the statement does with each axis; the rule of ir/shard.h is asked later.
static bool assigns_ok(Verifier *v) {
  const Stmt *s = v->s;
  const Value *t = &v->f->value.at[s->lhs];
  for (uint32_t a = 0; a < MAX_AXIS; a++) {
    const Assign *g = &s->assign[a];
    if (g->kind == ASSIGN_NONE) continue;
    if (a >= v->m->axis.n || v->m->spmd || g->kind > ASSIGN_WRITE)
      return fail(v, "an assignment to no axis");
    bool write = g->kind == ASSIGN_WRITE;
    if (write && !s->acc) return fail(v, "only a `+=` writes under a guard");
    if (g->index >= (write ? t->rank : s->nindex)) return fail(v, "an axis with no index");
    int64_t extent = write ? t->extent[g->index] : s->index[g->index].extent;
    const char *fault = layout_block_fault(v->m, a, extent, g->block);
    if (fault) return fail(v, "axis `%s` has %s", v->m->axis.at[a].name, fault);
  }
  return true;
}

static bool body_type_ok(Verifier *v) {
  const Stmt *s = v->s;
  Scalar to = scalar_of(v->f->value.at[s->lhs].type), from = ex(v->m, s->body)->type;
  bool ok = to == from;
  if (s->red == RED_ARGMAX) ok = to == SC_INT && from != SC_BOOL;
  else if (s->red == RED_MEAN) ok = ok && to == SC_REAL;
  else if (s->red != RED_NONE || s->acc) ok = ok && to != SC_BOOL;
  return ok || fail(v, "the right side's type does not fit `%s`", name_of(v, s->lhs));
}

static bool comp_ok(Verifier *v) {
  const Stmt *s = v->s;
  const Value *t = &v->f->value.at[s->lhs];
  uint32_t occur = 0;
  if (t->role == ROLE_IN) return fail(v, "`%s` is an argument and can't be written", t->name);
  if (t->role == ROLE_INOUT && !s->acc) return fail(v, "`%s` takes `+=` only", t->name);
  if (!indices_ok(v) || !expr_ok(v, s->body)) return false;
  for (uint32_t d = 0; d < t->rank; d++) {
    if (!expr_ok(v, s->sub[d])) return false;
    if (ex(v->m, s->sub[d])->type != SC_INT) return fail(v, "subscript %u is not an int", d);
    occur |= ex_indices(v->m, s->sub[d]);
  }
  for (uint32_t i = 0; i < s->nindex; i++) {
    bool free = i < s->nfree, here = occur >> i & 1;
    if (free && !here) return fail(v, "index `%s` is not on the left side", s->index[i].name);
    if (!free && here) return fail(v, "bound index `%s` is on the left side", s->index[i].name);
  }
  return body_type_ok(v) && assigns_ok(v) && (s->acc || writes_once(v));
}

// ---- conversions and collectives

// Before pass precision a value may be float where another real has no type yet.
static bool same_type(Dtype a, Dtype b) {
  bool open = (a == DT_REAL || b == DT_REAL) && scalar_of(a) == SC_REAL && scalar_of(b) == SC_REAL;
  return a == b || open;
}

// Whether the value has `lead` (0: none) as one more leading extent than t.
static bool leads(const Value *v, int64_t lead, const Value *t) {
  uint32_t k = lead > 0;
  return same_type(v->type, t->type) && v->rank == t->rank + k && (!k || v->extent[0] == lead) &&
         same_shape(t->rank, t->extent, v->extent + k);
}

static bool coll_ok(Verifier *v, const Value *to, const Value *from) {
  const Stmt *s = v->s;
  if (!v->m->spmd) return fail(v, "a collective in a program of the global form");
  if (s->axis >= v->m->axis.n || (int)s->coll >= NCOLL) return fail(v, "no such collective");
  if (coll_reduces(s->coll) && s->red != RED_SUM && s->red != RED_MAX && s->red != RED_MIN)
    return fail(v, "no such reduction");
  if (to->type == DT_BOOL) return fail(v, "ranks exchange reals and ints, not bools");
  if (s->both && axis_other(v->m, s->axis) == NONE)
    return fail(v, "a collective over two factors of an axis that has none");
  int64_t n = coll_size(v->m, s);
  const Value *outer = s->coll == COLL_ALL_GATHER ? to : from;
  const Value *inner = s->coll == COLL_ALL_GATHER ? from : to;
  bool cut = s->coll == COLL_ALL_GATHER || s->coll == COLL_REDUCE_SCATTER;
  if (!leads(outer, cut ? n : 0, inner))
    return fail(v, "`%s` and `%s` do not have the shapes of this collective", to->name, from->name);
  return s->coll != COLL_ALL_TO_ALL || (to->rank && to->extent[0] == n) ||
         fail(v, "the first extent is not the axis's size, %lld", (long long)n);
}

static bool move_ok(Verifier *v) {
  const Stmt *s = v->s;
  if (s->from >= v->f->value.n) return fail(v, "no value is moved");
  const Value *to = &v->f->value.at[s->lhs], *from = &v->f->value.at[s->from];
  if (!readable(v, s->from)) return false;
  if (s->kind == ST_COLL) return coll_ok(v, to, from);
  if (v->m->spmd) return fail(v, "a conversion in a program of one rank");
  return leads(to, 0, from) || fail(v, "`%s` does not have the shape of `%s`", to->name, from->name);
}

// ---- calls

// Whether the caller's value has the formal's type, with `stack` (0: none) as one more leading
// extent.
static bool fits(const Value *formal, const Value *v, int64_t stack) {
  return leads(v, stack, formal);
}

static bool actual_ok(Verifier *v, const Fn *callee, uint32_t i) {
  const Call *c = v->s->call;
  const Actual *a = &c->arg[i];
  const Value *formal = &callee->value.at[callee->arg.at[i]];
  if (a->mode != ACT_WHOLE && v->s->kind == ST_CALL)
    return fail(v, "argument %u: only whole values", i + 1);
  if (a->mode == ACT_ITER) {
    if (formal->type != DT_I32 || formal->rank || formal->role != ROLE_IN)
      return fail(v, "argument %u: the iteration is an int scalar", i + 1);
    return true;
  }
  if (a->mode > ACT_ITER || a->value >= v->f->value.n)
    return fail(v, "argument %u: no value", i + 1);
  const Value *t = &v->f->value.at[a->value];
  if (!fits(formal, t, a->mode == ACT_SLICE ? c->count : 0))
    return fail(v, "argument %u: `%s` does not have the type of `%s`", i + 1, t->name,
                formal->name);
  if (formal->role == ROLE_INOUT) {
    if (a->mode == ACT_CARRY) return fail(v, "argument %u: an in-out argument is carried", i + 1);
    if (t->role == ROLE_IN) return fail(v, "argument %u: `%s` can't be written", i + 1, t->name);
    for (uint32_t j = 0; j < c->narg; j++)
      if (j != i && c->arg[j].mode != ACT_ITER && c->arg[j].value == a->value)
        return fail(v, "argument %u: `%s` is written and passed twice", i + 1, t->name);
    return true;
  }
  const Written *w = &v->written[a->value];
  if (t->role == ROLE_LOCAL && w->how == WRITTEN_NOT)
    return fail(v, "`%s` is never defined", t->name);
  if (w->how != WRITTEN_NOT && w->last >= v->at)
    return fail(v, "`%s` is read before its last write", t->name);
  return true;
}

static bool result_ok(Verifier *v, const Fn *callee, uint32_t i) {
  const Call *c = v->s->call;
  const Result *r = &c->result[i];
  const Value *formal = &callee->value.at[callee->result.at[i]];
  bool repeat = v->s->kind == ST_REPEAT;
  if (r->mode == RES_DROP) return true;
  if (r->mode > RES_DROP || (r->mode == RES_WHOLE) == repeat)
    return fail(v, "result %u: bad mode", i + 1);
  if (r->value >= v->f->value.n) return fail(v, "result %u: no value", i + 1);
  const Value *t = &v->f->value.at[r->value];
  if (!fits(formal, t, r->mode == RES_SLICE ? c->count : 0))
    return fail(v, "result %u: `%s` does not have the type of `%s`", i + 1, t->name, formal->name);
  return true;
}

// The j-th carried result feeds the j-th carried argument.
static bool carries_ok(Verifier *v, const Fn *callee) {
  const Call *c = v->s->call;
  uint32_t i = 0, k = 0;
  for (;; i++, k++) {
    while (i < c->narg && c->arg[i].mode != ACT_CARRY) i++;
    while (k < c->nresult && c->result[k].mode != RES_CARRY) k++;
    if (i == c->narg || k == c->nresult) break;
    const Value *from = &callee->value.at[callee->result.at[k]];
    if (!fits(&callee->value.at[callee->arg.at[i]], from, 0))
      return fail(v, "argument %u is not of the type of result %u, which feeds it", i + 1, k + 1);
  }
  return (i == c->narg && k == c->nresult) || fail(v, "as many results as arguments are carried");
}

static bool call_ok(Verifier *v) {
  const Call *c = v->s->call;
  const Fn *callee = &v->m->fn.at[c->fn];
  if (c->count < 1 || (v->s->kind == ST_CALL && (c->count != 1 || c->reverse)))
    return fail(v, "a bad count");
  if (c->narg != callee->arg.n) return fail(v, "%u arguments for %u", c->narg, callee->arg.n);
  if (c->nresult != callee->result.n)
    return fail(v, "%u results for %u", c->nresult, callee->result.n);
  for (uint32_t i = 0; i < c->narg; i++)
    if (!actual_ok(v, callee, i)) return false;
  for (uint32_t i = 0; i < c->nresult; i++)
    if (!result_ok(v, callee, i)) return false;
  return carries_ok(v, callee);
}

// ---- functions

static bool note_write(Verifier *v, Id value, bool add) {
  if (value >= v->f->value.n) return fail(v, "no value %u is written", value);
  Written *w = &v->written[value];
  if (!add && v->f->value.at[value].role != ROLE_LOCAL)
    return fail(v, "`%s` is an argument and takes `+=` at most", name_of(v, value));
  if (w->how == WRITTEN_ONCE || (w->how == WRITTEN_ADDED && !add))
    return fail(v, "`%s` is defined twice", name_of(v, value));
  *w = (Written){add ? WRITTEN_ADDED : WRITTEN_ONCE, v->at};
  return true;
}

static bool note_writes(Verifier *v) {
  const Stmt *s = v->s;
  if (s->kind == ST_COMP) return note_write(v, s->lhs, s->acc);
  if (s->kind == ST_CONVERT || s->kind == ST_COLL) return note_write(v, s->lhs, false);
  if (!s->call || s->call->fn >= v->m->fn.n) {
    v->s = NULL;
    return fail(v, "a call of no function");
  }
  const Fn *callee = &v->m->fn.at[s->call->fn];
  for (uint32_t i = 0; i < s->call->narg && i < callee->arg.n; i++)
    if (callee->value.at[callee->arg.at[i]].role == ROLE_INOUT &&
        s->call->arg[i].mode != ACT_ITER && !note_write(v, s->call->arg[i].value, true))
      return false;
  for (uint32_t i = 0; i < s->call->nresult; i++)
    if (s->call->result[i].mode != RES_DROP && !note_write(v, s->call->result[i].value, false))
      return false;
  return true;
}

static int by_name(const void *a, const void *b) {
  const Str *x = a, *y = b;
  return *x < *y ? -1 : *x > *y;
}

static bool names_unique(Verifier *v, Str *name, uint32_t n, const char *what) {
  for (uint32_t i = 0; i < n; i++)
    if (!name[i]) return fail(v, "a %s has no name", what);
  qsort(name, n, sizeof *name, by_name);
  for (uint32_t i = 1; i < n; i++)
    if (name[i] == name[i - 1]) return fail(v, "two %ss are named `%s`", what, name[i]);
  return true;
}

static bool shards_ok(Verifier *v, const Value *t) {
  const char *fault = layout_fault(v->m, t->shard, t->rank, t->extent);
  if (fault) return fail(v, "`%s` has %s", t->name, fault);
  for (uint32_t a = 0; a < v->m->axis.n; a++) {
    if (v->m->spmd && t->shard[a].kind == SHARD_SPLIT)
      return fail(v, "`%s` is split in a program of one rank", t->name);
    if (t->shard[a].kind == SHARD_PARTIAL && t->type == DT_BOOL)
      return fail(v, "`%s` is a partial bool", t->name);
  }
  return true;
}

static bool values_ok(Verifier *v) {
  const Fn *f = v->f;
  uint32_t args = 0;
  Str *name = NEWN(v->m->arena, Str, f->value.n + 1);
  for (Id i = 0; i < f->value.n; i++) {
    const Value *t = &f->value.at[i];
    name[i] = t->name;
    if (t->type >= NDTYPE || !shape_ok(t->rank, t->extent, dtype_size(t->type)))
      return fail(v, "`%s` has a bad shape", t->name ? t->name : "?");
    if (v->m->compute == DT_F64 && scalar_of(t->type) == SC_REAL && t->type != DT_REAL && t->type != DT_F64)
      return fail(v, "`%s` is a narrower real than the program computes in", t->name);
    if (!shards_ok(v, t)) return false;
    args += t->role != ROLE_LOCAL;
  }
  if (args != f->arg.n) return fail(v, "%u values are arguments, %u are listed", args, f->arg.n);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    if (f->arg.at[i] >= f->value.n) return fail(v, "argument %u is no value", i + 1);
    if (f->value.at[f->arg.at[i]].role == ROLE_LOCAL)
      return fail(v, "argument %u is a local", i + 1);
    for (uint32_t j = 0; j < i; j++)
      if (f->arg.at[i] == f->arg.at[j]) return fail(v, "argument %u is listed twice", i + 1);
  }
  for (uint32_t i = 0; i < f->result.n; i++)
    if (f->result.at[i] >= f->value.n) return fail(v, "result %u is no value", i + 1);
  return names_unique(v, name, f->value.n, "value");
}

typedef struct Over {
  const Stmt *s; // defines the result
  Id arg;
  bool elsewhere; // it is read at another element than s writes
} Over;

static void note_element(const Module *m, Id read, void *ctx) {
  Over *o = ctx;
  if (ex(m, read)->integer != o->arg) return;
  for (uint32_t d = 0; d < ex(m, read)->narg; d++)
    o->elsewhere |= ex_arg(m, read, d) != o->s->sub[d];
}

// Whether the result may be written into the argument's storage: each element replaces the one that
// it is computed from, and nothing reads the argument afterwards.
static bool takes_over(Verifier *v, Id result, Id arg) {
  const Fn *f = v->f;
  const char *y = name_of(v, result), *x = name_of(v, arg);
  const Written *w = &v->written[result];
  const Stmt *s = w->how == WRITTEN_ONCE ? &f->stmt.at[w->last] : NULL;
  if (!s || s->kind != ST_COMP || s->red != RED_NONE)
    return fail(v, "result `%s` is over `%s`, and no pointwise statement defines it", y, x);
  Over o = {s, arg, false};
  ex_reads(v->m, s->body, note_element, &o);
  if (o.elsewhere)
    return fail(v, "result `%s` is over `%s`, of which it reads other elements", y, x);
  for (uint32_t i = w->last + 1; i < f->stmt.n; i++)
    if (stmt_has_read(v->m, f, &f->stmt.at[i], arg))
      return fail(v, "`%s` is read after result `%s` takes over its storage", x, y);
  return true;
}

static bool aliases_ok(Verifier *v) {
  const Fn *f = v->f;
  if (f->alias.n && f->alias.n != f->result.n)
    return fail(v, "%u aliases for %u results", f->alias.n, f->result.n);
  for (uint32_t i = 0; i < f->alias.n; i++) {
    Id a = f->alias.at[i];
    if (a == NONE) continue;
    if (a >= f->value.n || f->value.at[a].role != ROLE_IN)
      return fail(v, "result %u is over no argument that is only read", i + 1);
    const Value *x = &f->value.at[a], *y = &f->value.at[f->result.at[i]];
    if (x->type != y->type || x->rank != y->rank || !same_shape(x->rank, x->extent, y->extent))
      return fail(v, "result `%s` is over `%s`, which has another type", y->name, x->name);
    for (uint32_t j = 0; j < i; j++)
      if (f->alias.at[j] == a) return fail(v, "two results are over `%s`", x->name);
    if (f->result.at[i] != a && !takes_over(v, f->result.at[i], a)) return false;
  }
  return true;
}

static bool results_ok(Verifier *v) {
  const Fn *f = v->f;
  for (uint32_t i = 0; i < f->result.n; i++) {
    Id r = f->result.at[i];
    if (f->value.at[r].role == ROLE_LOCAL && v->written[r].how == WRITTEN_NOT)
      return fail(v, "result `%s` is never defined", name_of(v, r));
  }
  return aliases_ok(v);
}

static bool fn_ok(Verifier *v, const Fn *f) {
  v->f = f;
  v->s = NULL;
  if (!values_ok(v)) return false;
  if (f->intrinsic >= NINTR) return fail(v, "no such intrinsic");
  if (intrinsic_fault(f)) return fail(v, "%s", intrinsic_fault(f));
  v->written = NEWN(v->m->arena, Written, f->value.n + 1);
  for (v->at = 0; v->at < f->stmt.n; v->at++) {
    v->s = &f->stmt.at[v->at];
    if (!note_writes(v)) return false;
  }
  for (v->at = 0; v->at < f->stmt.n; v->at++) {
    v->s = &f->stmt.at[v->at];
    v->epoch++;
    bool move = v->s->kind == ST_CONVERT || v->s->kind == ST_COLL;
    if (!(v->s->kind == ST_COMP ? comp_ok(v) : move ? move_ok(v) : call_ok(v))) return false;
  }
  v->s = NULL;
  return results_ok(v) && meanings_verify(v->m, f, v->why);
}

// ---- the module

enum { MAX_CALLS = 500 }; // nested

// color: 0 not seen, 1 on the path, 2 done.
static bool acyclic(Verifier *v, Id fn, uint8_t *color, uint32_t depth) {
  const Fn *f = &v->m->fn.at[fn];
  if (depth > MAX_CALLS) return fail(v, "calls nest deeper than %d", MAX_CALLS);
  color[fn] = 1;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    if (!f->stmt.at[i].call) continue;
    Id callee = f->stmt.at[i].call->fn;
    if (color[callee] == 1) return fail(v, "function `%s` calls itself", v->m->fn.at[callee].name);
    if (!color[callee] && !acyclic(v, callee, color, depth + 1)) return false;
  }
  color[fn] = 2;
  return true;
}

static bool axes_ok(Verifier *v) {
  const Module *m = v->m;
  Str name[MAX_AXIS];
  if (m->axis.n > MAX_AXIS) return fail(v, "more than %d axes", MAX_AXIS);
  if (m->spmd && !m->axis.n) return fail(v, "a program of one rank, and no axes");
  for (uint32_t a = 0; a < m->axis.n; a++) {
    name[a] = m->axis.at[a].name;
    if (m->axis.at[a].size < 2 || m->axis.at[a].size > MAX_AXIS_SIZE)
      return fail(v, "axis `%s` has a bad size", name[a] ? name[a] : "?");
  }
  return names_unique(v, name, m->axis.n, "axis");
}

static bool tables_ok(Verifier *v) {
  const Module *m = v->m;
  if (!axes_ok(v)) return false;
  Str *name = NEWN(m->arena, Str, m->fn.n + m->param.n + 1);
  for (uint32_t i = 0; i < m->param.n; i++) {
    const Param *q = &m->param.at[i];
    name[i] = q->name;
    if (!shape_ok(q->rank, q->extent, 8) || q->nstack > q->rank || q->bar > q->rank - q->nstack ||
        q->bar < -1)
      return fail(v, "parameter `%s` has a bad shape", q->name ? q->name : "?");
    if (q->init >= NINIT)
      return fail(v, "parameter `%s` has no initialiser", q->name ? q->name : "?");
    const char *fault = layout_fault(m, q->shard, q->rank, q->extent);
    if (fault) return fail(v, "parameter `%s` has %s", q->name ? q->name : "?", fault);
    for (uint32_t a = 0; a < m->axis.n; a++)
      if (q->shard[a].kind == SHARD_PARTIAL ||
          (q->shard[a].kind == SHARD_SPLIT && q->shard[a].dim < q->nstack))
        return fail(v, "parameter `%s` is partial, or its stack is split", q->name);
  }
  if (!names_unique(v, name, m->param.n, "parameter")) return false;
  for (uint32_t i = 0; i < m->range.n; i++)
    if (m->range.at[i].arg >= m->ndata || m->range.at[i].lo >= m->range.at[i].hi)
      return fail(v, "range %u is of no data, or empty", i);
  for (uint32_t i = 0; i < m->fn.n; i++) name[i] = m->fn.at[i].name;
  return names_unique(v, name, m->fn.n, "function");
}

static bool chunks_ok(Verifier *v) {
  const Module *m = v->m;
  if (m->chunk.n && m->chunk.n != m->stages * m->chunks)
    return fail(v, "%u chunks for %u stages of %u", m->chunk.n, m->stages, m->chunks);
  for (uint32_t i = 0; i < m->chunk.n; i++) {
    const Chunk *c = &m->chunk.at[i];
    for (int k = 0; k < NCHUNK_PART; k++)
      if (c->fn[k] != NONE && c->fn[k] >= m->fn.n)
        return fail(v, "chunk %u: `%s` is not a function", i, chunk_part_name[k]);
    for (uint32_t k = 0; k < c->piece.n; k++) {
      const Piece *q = &c->piece.at[k];
      if (q->param >= m->param.n)
        return fail(v, "chunk %u holds a value that is not a parameter", i);
      const Param *p = &m->param.at[q->param];
      int64_t n = p->nstack ? p->extent[0] : 1;
      if (q->first < 0 || q->count < 1 || q->count > n || q->first > n - q->count)
        return fail(v, "chunk %u: `%s` has %lld slices", i, p->name, (long long)n);
    }
  }
  return true;
}

// ---- arrays of statements

// An array of a statement, by address.
typedef struct Held {
  const void *at;
  Id fn;
  uint32_t stmt;
} Held;

static int by_address(const void *a, const void *b) {
  const char *x = ((const Held *)a)->at, *y = ((const Held *)b)->at;
  return (x > y) - (x < y);
}

// Passes change subscripts, indices and actuals in place: an array that two statements share would
// change in both.
static bool share_nothing(Verifier *v) {
  const Module *m = v->m;
  VEC(Held) held = {0};
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      const Stmt *s = &m->fn.at[f].stmt.at[i];
      const Call *c = s->call;
      if (s->nindex) PUSH(m->arena, held, (Held){s->index, f, i});
      if (s->kind == ST_COMP && m->fn.at[f].value.at[s->lhs].rank)
        PUSH(m->arena, held, (Held){s->sub, f, i});
      if (c) PUSH(m->arena, held, (Held){c, f, i});
      if (c && c->narg) PUSH(m->arena, held, (Held){c->arg, f, i});
      if (c && c->nresult) PUSH(m->arena, held, (Held){c->result, f, i});
    }
  if (held.n) qsort(held.at, held.n, sizeof *held.at, by_address);
  for (uint32_t i = 1; i < held.n; i++) {
    if (held.at[i].at != held.at[i - 1].at) continue;
    const Held *a = &held.at[i - 1], *b = &held.at[i];
    v->f = &m->fn.at[b->fn];
    v->s = &v->f->stmt.at[b->stmt];
    return fail(v, "shares an array with statement %u of `%s`", a->stmt, m->fn.at[a->fn].name);
  }
  return true;
}

bool ir_verify(const Module *m, Buf *why) {
  Verifier v = {.m = m, .why = why};
  v.stamp = NEWN(m->arena, uint32_t, m->expr.n + 1);
  if (!tables_ok(&v)) return false;
  for (uint32_t i = 0; i < m->fn.n; i++)
    if (!fn_ok(&v, &m->fn.at[i])) return false;
  v.f = NULL;
  v.s = NULL;
  if (!share_nothing(&v)) return false;
  uint8_t *color = arena_alloc(m->arena, m->fn.n + 1);
  for (Id i = 0; i < m->fn.n; i++)
    if (!color[i] && !acyclic(&v, i, color, 0)) return false;
  for (int e = 0; e < NENTRY; e++) {
    if (m->entry[e] == NONE) continue;
    v.f = NULL;
    if (m->entry[e] >= m->fn.n) return fail(&v, "entry `%s` is not a function", entry_name[e]);
    if (!entry_verify(m, (Entry)e, why)) return false;
  }
  if (!chunks_ok(&v) || !chunks_verify(m, why)) return false;
  if (m->axis.n && !m->spmd) return shard_verify(m, why);
  return true;
}

bool ir_verify_ranges(const Module *m, Buf *why) {
  RangeResult r;
  if (!ir_verify(m, why)) return false;
  range_check(m, false, &r);
  if (!r.issue.n) return true;
  const RangeIssue *i = &r.issue.at[0];
  Verifier v = {.m = m, .why = why, .f = &m->fn.at[i->fn]};
  v.s = &v.f->stmt.at[i->stmt];
  return fail(&v, "subscript %u of `%s` may be out of range (%lld .. %lld of %lld)", i->dim,
              name_of(&v, i->value), (long long)i->known.lo, (long long)i->known.hi,
              (long long)v.f->value.at[i->value].extent[i->dim]);
}
