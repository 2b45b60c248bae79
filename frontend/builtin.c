// Functions of whole tensors that are sugar for comprehensions: pad, slice, concat, cumsum, topk.
#include "frontend/front.h"

#include <float.h>

typedef struct Tb { // a builtin while it is expanded: x's elements are at index[0 .. rank)
  Fb *fb;
  St st;
  Frame f;
  Target t;
  Id x;
  Shape s;
  uint32_t axis;
} Tb;

bool tensor_builtin(Str name) {
  static const char *const all[] = {"pad", "slice", "concat", "cumsum", "topk"};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (!strcmp(all[i], name)) return true;
  return false;
}

// Signatures, in the language's own form: tensors, then compile-time arguments with presets.
static const struct {
  const char *name, *arg[5];
  int tensors, least; // tensors first; as many arguments as `least` have no preset
  int64_t preset[5];
} sig[] = {
    {"pad", {"x", "axis", "before", "after", "value"}, 1, 4, {0}},
    {"slice", {"x", "axis", "start", "stop", "step"}, 1, 4, {0, 0, 0, 0, 1}},
    {"cumsum", {"x", "axis"}, 1, 2, {0}},
    {"topk", {"x", "k"}, 1, 2, {0}},
};
enum { NSIG = sizeof sig / sizeof sig[0] };

static bool bad_args(Fb *fb, int k, Id loc) {
  const char *list = "";
  for (int i = 0; i < 5 && sig[k].arg[i]; i++)
    list = arena_printf(fb->fr->arena, "%s%s%s%s", list, i ? ", " : "", sig[k].arg[i],
                        i >= sig[k].least ? " = ..." : "");
  err(fb->fr, loc, "the arguments are %s(%s)", sig[k].name, list);
  return false;
}

// The tensor argument and the compile-time ones, in the order of the signature.
static bool get_args(Fb *fb, int k, const Ast *e, Str name, Id *x, Ct *ct) {
  Front *fr = fb->fr;
  Env env = {fr, fb->unit, fb->layer, fb};
  const Ast *given[5] = {NULL};
  for (uint32_t i = 0; i < e->arg.n; i++) {
    int at = (int)i;
    if (e->arg.at[i].name)
      for (at = 0; at < 5 && (!sig[k].arg[at] || strcmp(sig[k].arg[at], e->arg.at[i].name)); at++) {
      }
    if (at >= 5 || !sig[k].arg[at] || given[at] || e->arg.at[i].note)
      return bad_args(fb, k, e->loc);
    given[at] = e->arg.at[i].value;
  }
  for (int i = 0; i < 5 && sig[k].arg[i]; i++) {
    ct[i] = ct_int(sig[k].preset[i]);
    if (i < sig[k].least && !given[i]) return bad_args(fb, k, e->loc);
    if (i == 0)
      *x = val_tensor(fb, whole(fb, given[0], str_printf("%s.x", name)), DT_REAL, given[0]->loc);
    else if (given[i]) ct[i] = ct_eval(&env, given[i]);
    if (ct[i].kind == CT_ERROR || (i == 0 && *x == NONE)) return false;
    if (given[i] && decided_by_samples(fr, given[i]->loc, ct[i].per_sample)) return false;
    if (ct[i].kind == CT_INT || (sig[k].arg[i][0] == 'v' && ct[i].kind == CT_REAL)) continue;
    err(fr, given[i]->loc, "argument '%s' is an int, and this is %s", sig[k].arg[i],
        ct_kind_text(&ct[i]));
    return false;
  }
  return true;
}

static bool get_axis(Front *fr, const Shape *s, int64_t axis, Id loc, uint32_t *out) {
  int64_t rank = s->rank, a = axis < 0 && axis >= -rank ? axis + rank : axis;
  *out = (uint32_t)a;
  if (a >= 0 && a < rank) return true;
  if (!rank) err(fr, loc, "axis %lld of a scalar, which has no dimensions", (long long)axis);
  else
    err(fr, loc, "axis %lld of %s, where they are 0 .. %lld, or -1 .. %lld from the end",
        (long long)axis, shape_text(fr, s), (long long)rank - 1, (long long)-rank);
  return false;
}

static void start(Tb *b, Fb *fb, Id x, Str name, Id loc) {
  static const char *const plain[] = {"i", "j", "k", "l", "m", "n", "p", "q"};
  *b = (Tb){.fb = fb, .x = x, .s = value_shape(fb, x), .f = {.guard = NONE}};
  st_init(&b->st, fb, name, loc);
  b->t = (Target){.value = NONE, .shape = b->s, .name = name, .name_loc = loc};
  for (uint32_t d = 0; d < b->s.rank; d++) {
    IndexVar *v = var_new(&b->st, b->s.dim[d] ? b->s.dim[d] : str_intern(plain[d]), loc);
    v->extent = b->s.extent[d];
    v->per_sample = b->s.per_sample[d];
    b->f.var[b->f.n++] = v;
    b->t.sub[d] = ex_index(fb->fr->m, d);
  }
}

// x at the current point, with another subscript along the axis.
static Id at(Tb *b, Id x, Id sub) {
  Id all[MAX_RANK];
  memcpy(all, b->t.sub, sizeof all);
  all[b->axis] = sub;
  return ex_read(b->fb->fr->m, &b->fb->fn, x, all);
}

// n: an extent that does not depend on the number of samples, or one of an error.
static void set_extent(Tb *b, int64_t n) {
  b->f.var[b->axis]->extent = b->t.shape.extent[b->axis] = n;
  b->f.var[b->axis]->per_sample = b->t.shape.per_sample[b->axis] = 0;
}

// Functions that cut or lengthen a dimension: not that of the batch.
static bool axis_of_batch(const Tb *b, const Shape *s, Str what, Id loc) {
  if (!s->per_sample[b->axis]) return false;
  err(b->fb->fr, loc, "'%s' along axis %u, which has the samples of the batch: they are not chosen by number", what, b->axis);
  return true;
}

static uint32_t finish(Tb *b, Red red, Id body, Id *out) {
  if (!emit_body(&b->st, &b->t, red, body, &b->f, b->s.rank)) return 0;
  *out = b->t.value;
  return 1;
}

static Id constant_like(Module *m, const Shape *s, const Ct *c) {
  if (s->type == DT_I32) return ex_int(m, c->i);
  if (s->type == DT_BOOL) return ex_bool(m, c->kind == CT_INT ? c->i != 0 : c->r != 0);
  return ex_real(m, ct_as_real(c));
}

// Whether elements of x can have this value.
static bool fits_element(Front *fr, const Shape *s, const Ct *value, Id loc) {
  if (s->type != DT_I32) return true;
  if (value->kind == CT_REAL)
    err(fr, loc, "'pad' of ints with a value that is a real; int(...) converts");
  else if (value->i < INT32_MIN || value->i > INT32_MAX)
    err(fr, loc, "%lld does not fit in a tensor's 32-bit int", (long long)value->i);
  else return true;
  return false;
}

static uint32_t pad(Tb *b, const Ct *ct, Id loc, Id *out) {
  Module *m = b->fb->fr->m;
  int64_t before = ct[2].i, after = ct[3].i, n = b->s.extent[b->axis], total;
  if (before < 0 || after < 0 || !add_ok(n, before, &total) || !add_ok(total, after, &total)) {
    err(b->fb->fr, loc, "'pad' by %lld and %lld; neither is negative: slice(...) takes elements away",
        (long long)before, (long long)after);
    return 0;
  }
  if (!fits_element(b->fb->fr, &b->s, &ct[4], loc)) return 0;
  set_extent(b, total);
  Id i = ex_index(m, b->axis), lo = ex_int(m, before), hi = ex_int(m, before + n);
  Id inside = ex2(m, OP_AND, ex2(m, OP_GE, i, lo), ex2(m, OP_LT, i, hi));
  Id body =
      ex3(m, OP_WHERE, inside, at(b, b->x, ex2(m, OP_SUB, i, lo)), constant_like(m, &b->s, &ct[4]));
  return finish(b, RED_NONE, body, out);
}

static uint32_t slice(Tb *b, const Ct *ct, Id loc, Id *out) {
  Module *m = b->fb->fr->m;
  int64_t start = ct[2].i, stop = ct[3].i, step = ct[4].i, n = b->s.extent[b->axis];
  if (start < 0 && start >= -n) start += n;
  if (stop < 0 && stop >= -n) stop += n;
  if (start < 0 || stop <= start || stop > n || step < 1) {
    err(b->fb->fr, loc,
        "'slice' from %lld to %lld by %lld of a dimension of extent %lld: start < stop <= %lld and "
        "step >= 1 are needed",
        (long long)ct[2].i, (long long)ct[3].i, (long long)step, (long long)n, (long long)n);
    return 0;
  }
  set_extent(b, (stop - start - 1) / step + 1);
  Id i = ex_index(m, b->axis);
  if (step > 1) i = ex2(m, OP_MUL, ex_int(m, step), i);
  if (start) i = ex2(m, OP_ADD, i, ex_int(m, start));
  return finish(b, RED_NONE, at(b, b->x, i), out);
}

static uint32_t cumsum(Tb *b, Id loc, Id *out) {
  Module *m = b->fb->fr->m;
  if (b->s.type == DT_BOOL) {
    err(b->fb->fr, loc, "'cumsum' of bools; where(..., 1, 0) makes numbers of them");
    return 0;
  }
  if (b->f.n >= MAX_INDEX) return 0;
  IndexVar *v = var_new(&b->st, str_printf("%s_to", b->f.var[b->axis]->name), loc);
  v->extent = b->s.extent[b->axis];
  v->per_sample = b->s.per_sample[b->axis];
  Id j = ex_index(m, b->f.n);
  b->f.var[b->f.n++] = v;
  Ct zero = ct_int(0);
  Id body = ex3(m, OP_WHERE, ex2(m, OP_LE, j, ex_index(m, b->axis)), at(b, b->x, j),
                constant_like(m, &b->s, &zero));
  return finish(b, RED_SUM, body, out);
}

// Whether each element is found[0] or in `before`, those found earlier.
static Id taken_with(Tb *x, Id before, Id found, Str name, Id loc) {
  Module *m = x->fb->fr->m;
  Tb b;
  start(&b, x->fb, x->x, name, loc);
  uint32_t last = b.s.rank - 1;
  b.t.shape.type = DT_BOOL;
  Id e = ex2(m, OP_EQ, ex_index(m, last), ex_read(m, &b.fb->fn, found, b.t.sub)), out;
  if (before != NONE) e = ex2(m, OP_OR, ex_read(m, &b.fb->fn, before, b.t.sub), e);
  return finish(&b, RED_NONE, e, &out) ? out : NONE;
}

// The position of the greatest element that is not taken. Elements that are the least there is are
// still greater than those that are taken.
static Id next_top(Tb *x, Id taken, Str name, Id loc) {
  Module *m = x->fb->fr->m;
  Tb b;
  Id out;
  start(&b, x->fb, x->x, name, loc);
  Id body = ex_read(m, &b.fb->fn, b.x, b.t.sub);
  bool integer = b.s.type == DT_I32;
  if (taken != NONE) {
    Id least = integer ? ex_int(m, INT32_MIN + 1) : ex_real(m, -FLT_MAX);
    Id less = integer ? ex_int(m, INT32_MIN) : ex_real(m, -__builtin_inf());
    body = ex3(m, OP_WHERE, ex_read(m, &b.fb->fn, taken, b.t.sub), less,
               ex2(m, OP_MAX, body, least));
  }
  b.s.rank = b.t.shape.rank = b.s.rank - 1;
  return finish(&b, RED_ARGMAX, body, &out) ? out : NONE;
}

// values, positions = topk(x, k): the k greatest along the last axis, greatest first, each found
// by an argmax that leaves out those before it: k passes over a row, in one kernel. Values are picked by comparison, not by a gather:
// their derivative then needs no scatter.
static uint32_t topk(Tb *b, int64_t k, Str name, Id loc, Id *out, uint32_t max) {
  enum { MAX_TOP = 64 };
  Module *m = b->fb->fr->m;
  Front *fr = b->fb->fr;
  uint32_t last = b->s.rank - 1;
  Id found[MAX_TOP];
  if (k < 1 || k > MAX_TOP || k > b->s.extent[last] || b->s.type == DT_BOOL) {
    err(fr, loc, "'topk' of %lld along a dimension of extent %lld; at least 1 and at most %d",
        (long long)k, (long long)b->s.extent[last], MAX_TOP);
    return 0;
  }
  if (max < 2) {
    err(fr, loc, "'topk' gives values and positions; take them with two names: v, i = topk(x, k)");
    return 0;
  }
  Id taken = NONE;
  for (uint32_t r = 0; r < k; r++) {
    if (r) taken = taken_with(b, taken, found[r - 1], str_printf("%s.taken%u", name, r), loc);
    found[r] = next_top(b, taken, str_printf("%s.top%u", name, r + 1), loc);
    if (found[r] == NONE || (r && taken == NONE)) return 0;
  }
  Tb p, v;
  start(&p, b->fb, b->x, str_printf("%s.position", name), loc);
  p.axis = last;
  set_extent(&p, k);
  p.f.var[last]->name = str_intern("top");
  Id e = ex_read(m, &b->fb->fn, found[k - 1], p.t.sub);
  for (int64_t r = k - 1; r-- > 0;)
    e = ex3(m, OP_WHERE, ex2(m, OP_EQ, ex_index(m, last), ex_int(m, r)),
            ex_read(m, &b->fb->fn, found[r], p.t.sub), e);
  if (!finish(&p, RED_NONE, e, &out[1])) return 0;
  start(&v, b->fb, b->x, name, loc);
  v.axis = last;
  IndexVar *from = var_new(&v.st, v.f.var[last]->name, loc);
  from->extent = b->s.extent[last];
  from->per_sample = b->s.per_sample[last];
  set_extent(&v, k);
  v.f.var[last]->name = str_intern("top");
  Id j = ex_index(m, v.f.n), zero = b->s.type == DT_I32 ? ex_int(m, 0) : ex_real(m, 0);
  v.f.var[v.f.n++] = from;
  Id here = ex2(m, OP_EQ, j, ex_read(m, &b->fb->fn, out[1], v.t.sub));
  return finish(&v, RED_SUM, ex3(m, OP_WHERE, here, at(&v, b->x, j), zero), &out[0]) ? 2 : 0;
}

// concat(x, y, ..., axis = 0)
static uint32_t concat(Fb *fb, const Ast *e, Str name, Id *out) {
  Front *fr = fb->fr;
  Module *m = fr->m;
  Env env = {fr, fb->unit, fb->layer, fb};
  Id part[MAX_ARGS];
  uint32_t n = 0;
  Ct axis = ct_int(0);
  bool given = false;
  for (uint32_t i = 0; i < e->arg.n; i++) {
    const Arg *a = &e->arg.at[i];
    if (a->note || (a->name && (given || strcmp(a->name, "axis"))) || n == MAX_ARGS) {
      err(fr, e->loc, "the arguments are concat(x, y, ..., axis = 0)");
      return 0;
    }
    given |= a->name != NULL;
    if (a->name) axis = ct_eval(&env, a->value);
    else if ((part[n++] = val_tensor(fb, whole(fb, a->value, str_printf("%s.part", name)), DT_REAL,
                                     a->value->loc)) == NONE)
      return 0;
    if (axis.kind == CT_ERROR) return 0;
  }
  if (!n || axis.kind != CT_INT) {
    err(fr, e->loc, "the arguments are concat(x, y, ..., axis = 0)");
    return 0;
  }
  Tb b;
  start(&b, fb, part[0], name, e->loc);
  if (!get_axis(fr, &b.s, axis.i, e->loc, &b.axis)) return 0;
  int64_t total = 0;
  for (uint32_t i = 0; i < n; i++) {
    Shape s = value_shape(fb, part[i]);
    bool same = s.rank == b.s.rank && s.type == b.s.type;
    if (same && axis_of_batch(&b, &s, "concat", e->loc)) return 0;
    for (uint32_t d = 0; same && d < s.rank; d++)
      same = d == b.axis || s.extent[d] == b.s.extent[d];
    if (!same) {
      err(fr, e->loc, "'concat' along axis %u of %s and %s, which differ in more than that", b.axis,
          shape_text(fr, &b.s), shape_text(fr, &s));
      return 0;
    }
    if (!add_ok(total, s.extent[b.axis], &total)) {
      err(fr, e->loc, "'concat' makes too large a tensor");
      return 0;
    }
  }
  set_extent(&b, total);
  Id i = ex_index(m, b.axis), body = NONE;
  for (uint32_t k = n;
       k-- > 0;) { // from the last: where(i < end of part k, part k, the parts after)
    int64_t size = fb->fn.value.at[part[k]].extent[b.axis], first = total - size;
    Id read = at(&b, part[k], first ? ex2(m, OP_SUB, i, ex_int(m, first)) : i);
    body = body == NONE ? read : ex3(m, OP_WHERE, ex2(m, OP_LT, i, ex_int(m, total)), read, body);
    total = first;
  }
  return finish(&b, RED_NONE, body, out);
}

uint32_t builtin_results(Fb *fb, Str builtin, const Ast *e, Str name, Id *out, uint32_t max) {
  Ct ct[5];
  Id x = NONE;
  Tb b;
  int k = 0;
  if (!strcmp(builtin, "concat")) return concat(fb, e, name, out);
  while (k < NSIG && strcmp(sig[k].name, builtin)) k++;
  CHECK(k < NSIG);
  if (!get_args(fb, k, e, name, &x, ct)) return 0;
  start(&b, fb, x, name, e->loc);
  bool top = !strcmp(builtin, "topk");
  if (!get_axis(fb->fr, &b.s, top ? -1 : ct[1].i, e->loc, &b.axis)) return 0;
  if (top) return topk(&b, ct[1].i, name, e->loc, out, max);
  if (!strcmp(builtin, "cumsum")) return cumsum(&b, e->loc, out);
  if (axis_of_batch(&b, &b.s, builtin, e->loc)) return 0;
  if (!strcmp(builtin, "pad")) return pad(&b, ct, e->loc, out);
  return slice(&b, ct, e->loc, out);
}
