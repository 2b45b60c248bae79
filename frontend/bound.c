// An index of unknown extent: the error, with a range to paste if one is enough.
#include "frontend/front.h"

// coef * the index + something from lo to hi.
typedef struct Linear {
  int64_t coef, lo, hi;
} Linear;

// Far from where sums and products of a few terms overflow.
static bool small(int64_t v) { return v < INT64_C(1) << 40 && v > -(INT64_C(1) << 40); }

static bool linear(St *st, const Loose *l, const Ast *e, const IndexVar *v, Linear *out);

static bool linear_name(St *st, const Loose *l, const Ast *e, const IndexVar *v, Linear *out) {
  const IndexVar *other = frame_find(l->frame, e->name);
  if (other == v) *out = (Linear){1, 0, 0};
  else if (other) *out = (Linear){0, 0, other->extent - 1};
  else {
    Entity x = lookup(&st->env, e->name);
    if (x.kind != ENT_CT || x.ct.kind != CT_INT) return false;
    *out = (Linear){0, x.ct.i, x.ct.i};
  }
  return (!other || other == v || other->extent) && small(out->lo) && small(out->hi);
}

static bool linear_binary(St *st, const Loose *l, const Ast *e, const IndexVar *v, Linear *out) {
  Linear a, b;
  if (!linear(st, l, e->a, v, &a) || !linear(st, l, e->b, v, &b)) return false;
  if (e->op == B_ADD) *out = (Linear){a.coef + b.coef, a.lo + b.lo, a.hi + b.hi};
  else if (e->op == B_SUB) *out = (Linear){a.coef - b.coef, a.lo - b.hi, a.hi - b.lo};
  else if (e->op == B_MUL) {
    Linear c = a.coef || a.lo != a.hi ? b : a, x = a.coef || a.lo != a.hi ? a : b;
    int64_t k = c.lo;
    if (c.coef || c.lo != c.hi || k < 0 || k > 1 << 20 || x.hi > 1 << 20) return false;
    *out = (Linear){k * x.coef, k * x.lo, k * x.hi};
  } else return false;
  return small(out->coef) && small(out->lo) && small(out->hi);
}

static bool linear(St *st, const Loose *l, const Ast *e, const IndexVar *v, Linear *out) {
  if (e->kind == A_NAME) return linear_name(st, l, e, v, out);
  if (e->kind == A_BINARY) return linear_binary(st, l, e, v, out);
  *out = (Linear){0, e->integer, e->integer};
  return e->kind == A_INT && small(e->integer);
}

// The greatest range of v with which the subscript stays below its dimension, as text; NULL where
// none is known.
static const char *range_for(St *st, const Loose *l, const IndexVar *v) {
  Front *fr = st->fb->fr;
  Linear x;
  if (!linear(st, l, l->e, v, &x) || x.coef < 1) return NULL;
  int64_t over = x.hi > 0 ? x.hi : 0, n = (l->extent - 1 - over) / x.coef + 1;
  if (over >= l->extent) return NULL;
  Entity size = l->name ? lookup(&st->env, l->name) : (Entity){.kind = ENT_NONE};
  bool named = size.kind == ENT_CT && size.ct.kind == CT_INT && size.ct.i == l->extent;
  if (!named || x.coef > 1) return arena_printf(fr->arena, "%lld", (long long)n);
  if (over) return arena_printf(fr->arena, "%s - %lld", l->name, (long long)over);
  return l->name;
}

// No tensor says how far an index goes: which range would do.
static void unknown_extent(St *st, const IndexVar *v) {
  Front *fr = st->fb->fr;
  const Loose *l = NULL;
  const char *range = NULL;
  for (uint32_t i = 0; i < st->loose.n && !range; i++) {
    l = &st->loose.at[i];
    range = range_for(st, l, v);
  }
  const Binding *b = range ? NULL : bind_find(st->fb, v->name);
  bool size = b && b->is_ct && b->size;
  err(fr, v->loc,
      "the extent of index '%s' is not known: no tensor has it as a plain subscript; write %s < %s",
      v->name, v->name, range ? range : size ? v->name : "N");
  if (range)
    note(fr, l->e->loc, "dimension %u of '%s', with %lld elements, is read here", l->dim,
         l->tensor, (long long)l->extent);
  if (size) note(fr, b->loc, "on the right of '<', '%s' is this dimension", v->name);
}

bool check_extents(St *st, const Frame *f) {
  for (uint32_t i = 0; i < f->n; i++) {
    if (f->var[i]->extent) continue;
    unknown_extent(st, f->var[i]);
    st->failed = true;
    return false;
  }
  return true;
}
