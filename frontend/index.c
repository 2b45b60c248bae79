// The indices of a statement: the places where they are bound, and their extents. Every bare
// subscript and group says that a product of extents is a tensor's extent; solve() finds the
// unknown ones.
#include "frontend/front.h"

IndexVar *var_new(St *st, Str name, Id loc) {
  IndexVar *v = NEW(st->fb->fr->arena, IndexVar);
  v->name = name;
  v->loc = loc;
  return v;
}

IndexVar *frame_find(const Frame *f, Str name) {
  for (uint32_t i = f->n; i-- > 0;)
    if (f->var[i]->name == name && !f->var[i]->hidden) return f->var[i];
  return NULL;
}

static void fail(St *st) { st->failed = true; }

static bool frame_push(St *st, Frame *f, IndexVar *v, Id loc) {
  if (f->n == MAX_INDEX) {
    err(st->fb->fr, loc, "a statement has at most %d indices at one place", MAX_INDEX);
    return false;
  }
  f->var[f->n++] = v;
  return true;
}

bool frame_add(St *st, Frame *f, const VarList *list, Id loc) {
  for (uint32_t i = 0; i < list->n; i++) {
    if (list->at[i] != &st->dots_mark) {
      if (!frame_push(st, f, list->at[i], loc)) return false;
      continue;
    }
    for (uint32_t k = 0; k < st->dots.n; k++)
      if (!frame_push(st, f, st->dots.at[k], loc)) return false;
  }
  return true;
}

static bool set_range(St *st, IndexVar *v, const Ast *e) {
  Ct n;
  if (!ct_size_from(&st->env, e, &n)) return false;
  if (v->extent && v->extent != n.i) {
    err(st->fb->fr, e->loc, "index '%s' gets the extent %lld here, but has %lld already", v->name,
        (long long)n.i, (long long)v->extent);
    note(st->fb->fr, v->fixed_loc, "the other extent comes from here");
    return false;
  }
  v->extent = n.i;
  v->per_sample = n.per_sample;
  v->ranged = true;
  v->fixed_loc = e->loc;
  v->fixed_by = NULL;
  v->define = n.from;
  return true;
}

// Whether a local(...) around this place names the index, which is bound here.
static bool is_local(St *st, Str name) {
  bool yes = false;
  for (uint32_t i = 0; i < st->local.n; i++)
    if (st->local.at[i].name == name) yes = st->local.at[i].bound = true;
  return yes;
}

static bool bind_one(St *st, Str name, Id loc, const Ast *range, Frame *f, VarList *list) {
  Front *fr = st->fb->fr;
  IndexVar *old = frame_find(f, name);
  if (old) {
    err(fr, loc, "index '%s' is bound already", name);
    note(fr, old->loc, "it is bound here");
    return false;
  }
  IndexVar *v = var_new(st, name, loc);
  v->local = is_local(st, name);
  v->on = shard_on(st, name);
  PUSH(fr->arena, *list, v);
  return frame_push(st, f, v, loc) && (!range || set_range(st, v, range));
}

bool bind_index(St *st, const Ast *e, Frame *f, VarList *list) {
  Front *fr = st->fb->fr;
  bool ok = true;
  switch (e->kind) {
  case A_NAME: return bind_one(st, e->name, e->loc, NULL, f, list);
  case A_BINARY:
    if (e->op != B_LT || e->a->kind != A_NAME) break;
    return bind_one(st, e->a->name, e->a->loc, e->b, f, list);
  case A_GROUP:
    for (uint32_t i = 0; i < e->arg.n && ok; i++) {
      const Arg *a = &e->arg.at[i];
      if (!a->name) {
        err(fr, a->value->loc, "a name is needed here: this binds the indices of a group");
        return false;
      }
      ok = bind_one(st, a->name, a->name_loc, a->value, f, list);
    }
    return ok;
  case A_DOTS:
    if (st->dots_bound) {
      err(fr, e->loc, "'...' is bound already in this statement");
      return false;
    }
    st->dots_bound = true;
    st->dots_local = is_local(st, st->dots_mark.name);
    PUSH(fr->arena, *list, &st->dots_mark);
    return true;
  case A_ERROR: return false;
  default: break;
  }
  err(fr, e->loc, "expected an index: i, i < n, (h e) or ...");
  return false;
}

NodeInfo *node_info(St *st, const Ast *e) {
  for (uint32_t i = st->node.n; i-- > 0;)
    if (st->node.at[i].e == e) return &st->node.at[i];
  PUSH(st->fb->fr->arena, st->node, (NodeInfo){.e = e, .value = NONE});
  return &st->node.at[st->node.n - 1];
}

void constrain(St *st, Id loc, Str tensor, const Shape *s, uint32_t dim, IndexVar **factor, uint32_t n) {
  Constraint c = {.loc = loc, .tensor = tensor, .dim = dim, .n = n};
  c.extent = s->extent[dim];
  c.per_sample = s->per_sample[dim];
  memcpy(c.factor, factor, n * sizeof *factor);
  PUSH(st->fb->fr->arena, st->constraint, c);
}

// The rank of `...`, from the first tensor that is read with it.
static bool know_dots(St *st, uint32_t n, const Shape *s, uint32_t dim, Str name, Id loc) {
  static const char *const plain[] = {"i", "j", "k", "l", "m", "n", "p", "q"};
  Front *fr = st->fb->fr;
  if (!st->dots_bound) {
    err(fr, loc, "'...' is not bound: it is neither on the left nor in a reduction");
    return false;
  }
  if (st->dots_known && st->dots.n != n) {
    err(fr, loc, "'...' stands for %u dimension%s of '%s', but for %u elsewhere in this statement",
        n, n == 1 ? "" : "s", name, st->dots.n);
    note(fr, st->dots_loc, "%u here", st->dots.n);
    return false;
  }
  for (uint32_t i = 0; !st->dots_known && i < n; i++) {
    IndexVar *v = var_new(st, s->dim[dim + i] ? s->dim[dim + i] : str_intern(plain[i]), loc);
    v->hidden = true;
    v->local = st->dots_local;
    PUSH(fr->arena, st->dots, v);
  }
  if (!st->dots_known) st->dots_loc = loc;
  st->dots_known = true;
  return true;
}

static bool match_dots(St *st, const Shape *s, uint32_t dim, uint32_t n, Str name, Id loc) {
  if (!know_dots(st, n, s, dim, name, loc)) return false;
  for (uint32_t k = 0; k < n; k++)
    constrain(st, loc, name, s, dim + k, &st->dots.at[k], 1);
  return true;
}

static bool match_group(St *st, const Ast *e, const Shape *s, uint32_t dim, Str name, Frame *f) {
  Front *fr = st->fb->fr;
  IndexVar *factor[MAX_INDEX];
  bool whole = true;
  for (uint32_t i = 0; i < e->arg.n; i++) {
    const Arg *a = &e->arg.at[i];
    if (i >= MAX_INDEX) {
      err(fr, e->loc, "a group has at most %d factors", MAX_INDEX);
      return false;
    }
    if (!a->name) {
      Frame g = *f;
      g.whole = false;
      prepare(st, a->value, &g);
      whole = false;
      continue;
    }
    factor[i] = frame_find(f, a->name);
    if (!factor[i]) {
      err(fr, a->name_loc, "index '%s' is not bound: it is neither on the left nor in a reduction",
          a->name);
      return false;
    }
    if (a->value && !set_range(st, factor[i], a->value)) return false;
  }
  if (whole) constrain(st, e->loc, name, s, dim, factor, e->arg.n);
  return true;
}

static bool match_one(St *st, const Ast *e, const Shape *s, uint32_t dim, Str name, Frame *f) {
  IndexVar *v = e->kind == A_NAME ? frame_find(f, e->name) : NULL;
  if (v) {
    constrain(st, e->loc, name, s, dim, &v, 1);
    return true;
  }
  if (e->kind == A_GROUP) return match_group(st, e, s, dim, name, f);
  Entity x = e->kind == A_NAME ? lookup(&st->env, e->name) : (Entity){.kind = ENT_NONE};
  if (x.kind == ENT_CT && x.ct.kind == CT_INT && x.ct.i == s->extent[dim]) {
    // The extent itself, one past the end, is no subscript that anyone means.
    err(st->fb->fr, e->loc, "index '%s' is not bound: it is neither on the left nor in a reduction",
        e->name);
    return false;
  }
  Frame *g = NEW(st->fb->fr->arena, Frame);
  *g = *f;
  g->whole = false;
  PUSH(st->fb->fr->arena, st->loose, ((Loose){e, name, s->dim[dim], dim, s->extent[dim], g}));
  prepare(st, e, g);
  return true;
}

bool match_subs(St *st, const ArgList *sub, const Shape *s, Str name, Id loc, Frame *f) {
  Front *fr = st->fb->fr;
  uint32_t n = sub->n, dots = 0, at = 0;
  for (uint32_t i = 0; i < n; i++) {
    const Arg *a = &sub->at[i];
    if (a->name || a->note) {
      err(fr, a->name ? a->name_loc : a->note->loc, "unexpected '%c' in a subscript",
          a->name ? '=' : ':');
      return false;
    }
    dots += a->value->kind == A_DOTS;
    if (a->value->kind == A_ERROR) return false;
  }
  if (dots > 1) {
    err(fr, loc, "'...' occurs twice in the subscripts of '%s'", name);
    return false;
  }
  if (dots ? n - 1 > s->rank : n != s->rank) {
    err(fr, loc, "'%s' has %u dimension%s, %s, and is read with %u subscript%s", name, s->rank,
        s->rank == 1 ? "" : "s", shape_text(fr, s), n - dots, n - dots == 1 ? "" : "s");
    return false;
  }
  bool ok = true;
  for (uint32_t i = 0; i < n; i++) {
    const Ast *e = sub->at[i].value;
    if (e->kind == A_DOTS) {
      ok &= match_dots(st, s, at, s->rank - (n - 1), name, e->loc);
      at += s->rank - (n - 1);
    } else {
      ok &= match_one(st, e, s, at++, name, f);
    }
  }
  return ok;
}

// Two extents of one index, with both places.
static void disagree(St *st, const Constraint *c, const IndexVar *v, int64_t extent) {
  Front *fr = st->fb->fr;
  const char *text =
      v->hidden ? arena_printf(fr->arena,
                               "dimension %u of '%s' has extent %lld, but %lld is needed", c->dim,
                               c->tensor, (long long)extent, (long long)v->extent)
                : arena_printf(fr->arena,
                               "index '%s' has extent %lld here, in dimension %u of '%s', but "
                               "%lld elsewhere",
                               v->name, (long long)extent, c->dim, c->tensor,
                               (long long)v->extent);
  extent_error(fr, c->loc, extent, v->extent, text);
  note(fr, v->fixed_loc, "extent %lld here, in dimension %u of '%s'", (long long)v->extent,
       v->fixed_dim, v->fixed_by);
  st->failed = true;
}

// Product of the known factors; *unknown is the one that is not known, with *count of them.
static int64_t known_factors(const Constraint *c, IndexVar **unknown, uint32_t *count, int64_t *per) {
  int64_t n = 1;
  *count = 0;
  *per = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    const IndexVar *v = c->factor[i];
    if (!v->extent) {
      *unknown = c->factor[i];
      ++*count;
      continue;
    }
    *per = per_sample(B_MUL, n, *per, v->extent, v->per_sample);
    if (!mul_ok(n, v->extent, &n)) n = INT64_MAX;
  }
  return n;
}

static void group_disagrees(St *st, const Constraint *c, int64_t n, bool divides) {
  Front *fr = st->fb->fr;
  const char *text = "";
  Id from = 0;
  for (uint32_t i = 0; i < c->n; i++)
    if (c->factor[i]->extent) {
      text = arena_printf(fr->arena, "%s%s%s=%lld", text, *text ? " " : "", c->factor[i]->name,
                          (long long)c->factor[i]->extent);
      from = c->factor[i]->define ? c->factor[i]->define : from;
    }
  text = arena_printf(fr->arena, "dimension %u of '%s' has %lld elements, %s (%s), which is %lld",
                      c->dim, c->tensor, (long long)c->extent,
                      divides ? "not those of" : "not a multiple of", text, (long long)n);
  if (from && !divides) {
    err(fr, from, "%lld does not divide %lld", (long long)n, (long long)c->extent);
    note(fr, c->loc, "%s", text);
  } else {
    extent_error(fr, c->loc, c->extent, n, text);
  }
  for (uint32_t i = 0; i < c->n; i++)
    if (c->factor[i]->extent)
      note(fr, c->factor[i]->fixed_loc, "'%s' has extent %lld from here", c->factor[i]->name,
           (long long)c->factor[i]->extent);
  st->failed = true;
}

static bool all_ranged(const Constraint *c) {
  for (uint32_t i = 0; i < c->n; i++)
    if (!c->factor[i]->ranged) return false;
  return true;
}

// An index with a range that is a number reads samples.
static void chosen_by_number(St *st, const Constraint *c) {
  const IndexVar *v = c->factor[0];
  err(st->fb->fr, c->loc, "dimension %u of '%s' has the samples of the batch, which are not chosen by number", c->dim, c->tensor);
  note(st->fb->fr, v->fixed_loc, "'%s' goes to %lld here", v->name, (long long)v->extent);
  st->failed = true;
}

// An index that runs over samples reads a tensor of as many elements, which has none.
static void alike_by_chance(St *st, const Constraint *c) {
  const IndexVar *v = c->factor[0];
  Front *fr = st->fb->fr;
  err(fr, c->loc, "'%s' runs over the samples of the batch, and dimension %u of '%s' does not: it has %lld elements, as a microbatch has "
      "by chance", v->name, c->dim, c->tensor, (long long)c->extent);
  note(fr, v->fixed_loc, "'%s' runs over samples from here", v->name);
  st->failed = true;
}

// Uses a constraint if it can be used; true if it is done with.
static bool use(St *st, const Constraint *c) {
  IndexVar *unknown = NULL;
  uint32_t count;
  int64_t per, n = known_factors(c, &unknown, &count, &per);
  if (count > 1) return false;
  for (uint32_t i = 0; i < c->n; i++)
    if (c->factor[i]->failed) return true;
  if (count == 0 && c->n == 1 && c->per_sample && !per) {
    if (c->factor[0]->ranged) chosen_by_number(st, c);
    c->factor[0]->per_sample = c->per_sample;
  }
  if (count == 0 && c->n == 1 && per && !c->per_sample && n == c->extent && !c->factor[0]->ranged) alike_by_chance(st, c);
  if (count == 0) {
    if (n == c->extent || all_ranged(c))
      return true; // a range: the subscript is proved in range later
    if (c->n == 1) disagree(st, c, c->factor[0], c->extent);
    else group_disagrees(st, c, n, true);
    return true;
  }
  if (c->extent % n) {
    group_disagrees(st, c, n, false);
    unknown->extent = 1; // no second error, neither here nor where else it is read
    unknown->failed = true;
    return true;
  }
  unknown->extent = c->extent / n;
  unknown->per_sample = per_sample(B_IDIV, c->extent, c->per_sample, n, per);
  unknown->fixed_loc = c->loc;
  unknown->fixed_by = c->tensor;
  unknown->fixed_dim = c->dim;
  return true;
}

// Extents flow from one constraint to the next until nothing changes: at most one pass an index.
bool solve(St *st) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (uint32_t i = 0; i < st->constraint.n; i++) {
      Constraint *c = &st->constraint.at[i];
      if (c->done || !use(st, c)) continue;
      c->done = changed = true;
    }
  }
  return !st->failed;
}

// What a whole-tensor operand has to agree with.
static void unify_whole(St *st, const Shape *s, Id loc) {
  static const char *const plain[] = {"i", "j", "k", "l", "m", "n", "p", "q"};
  Front *fr = st->fb->fr;
  if (!s->rank) return;
  if (st->whole_known) {
    const Shape *w = &st->whole_shape;
    if (w->rank == s->rank && !memcmp(w->extent, s->extent, s->rank * sizeof *s->extent)) {
      for (uint32_t i = 0; i < s->rank; i++)
        if (s->per_sample[i]) st->whole_shape.per_sample[i] = st->whole_var.at[i]->per_sample = s->per_sample[i];
      return;
    }
    err(fr, loc, "this has shape %s, but %s is needed: shapes of whole tensors must agree",
        extents_text(fr, s->extent, s->rank), extents_text(fr, w->extent, w->rank));
    note(fr, st->whole_loc, "shape %s here", extents_text(fr, w->extent, w->rank));
    fail(st);
    return;
  }
  st->whole_known = true;
  st->whole_shape = *s;
  st->whole_loc = loc;
  for (uint32_t i = 0; i < s->rank; i++) {
    IndexVar *v = var_new(st, s->dim[i] ? s->dim[i] : str_intern(plain[i]), loc);
    v->hidden = true;
    v->extent = s->extent[i];
    v->per_sample = s->per_sample[i];
    PUSH(fr->arena, st->whole_var, v);
  }
}

static void prepare_reduce(St *st, const Ast *e, const Frame *f) {
  Frame g = *f;
  g.whole = false;
  VarList list = {0};
  for (uint32_t i = 0; i < e->arg.n; i++) {
    const Arg *a = &e->arg.at[i];
    if (a->name) {
      err(st->fb->fr, a->name_loc, "expected an index: i, i < n, (h e) or ...");
      fail(st);
    } else if (!bind_index(st, a->value, &g, &list)) {
      fail(st);
    }
  }
  node_info(st, e)->var = list;
  prepare(st, e->arg.at[e->arg.n - 1].note, &g);
}

// local(b: ...): the reductions over b in there are over the samples of one microbatch.
static void prepare_local(St *st, const Ast *e, Frame *f) {
  Front *fr = st->fb->fr;
  uint32_t first = st->local.n, n = e->arg.n;
  for (uint32_t i = 0; i < n; i++) {
    const Ast *a = e->arg.at[i].value;
    if (e->arg.at[i].name || (a->kind != A_NAME && a->kind != A_DOTS)) {
      if (a->kind != A_ERROR)
        err(fr, a->loc,
            "'local' takes names of indices that reductions in it bind: local(b: mean(b: ...))");
      fail(st);
      return;
    }
    Str name = a->kind == A_DOTS ? st->dots_mark.name : a->name;
    PUSH(fr->arena, st->local, ((LocalName){name, false}));
  }
  prepare(st, e->arg.at[n - 1].note, f);
  for (uint32_t i = 0; i < n; i++) {
    if (st->local.at[first + i].bound) continue;
    err(fr, e->arg.at[i].value->loc, "no reduction in this 'local' binds '%s'",
        st->local.at[first + i].name);
    fail(st);
  }
  st->local.n = first;
}

// Whether e uses an index that is in scope here.
static bool mentions(const St *st, const Ast *e, const Frame *f) {
  if (!e) return false;
  if (e->kind == A_NAME) return frame_find(f, e->name) != NULL;
  if (e->kind == A_DOTS) return st->dots_bound;
  bool yes = mentions(st, e->a, f) || mentions(st, e->b, f) || mentions(st, e->c, f);
  for (uint32_t i = 0; i < e->arg.n && !yes; i++) {
    const Arg *a = &e->arg.at[i];
    yes = (e->kind == A_GROUP && a->name && frame_find(f, a->name)) || mentions(st, a->value, f) ||
          mentions(st, a->note, f);
  }
  return yes;
}

static void prepare_args(St *st, const Ast *e, const Frame *f, bool whole) {
  for (uint32_t i = 0; i < e->arg.n; i++) {
    Frame g = *f;
    g.whole = whole && f->whole;
    if (e->arg.at[i].value) prepare(st, e->arg.at[i].value, &g);
  }
}

// A call of a function or layer: of whole tensors, or, where an argument uses an index, element by
// element.
static void prepare_call(St *st, const Ast *e, const Frame *f) {
  bool mapped = false;
  for (uint32_t i = 0; i < e->arg.n && !f->whole; i++)
    mapped |= mentions(st, e->arg.at[i].value, f);
  if (mapped) {
    prepare_args(st, e, f, false);
    node_info(st, e)->mapped = true;
    return;
  }
  Id out = NONE;
  uint32_t n = call_results(st->fb, e, st->name, &out, 1);
  NodeInfo *info = node_info(st, e);
  info->value = out;
  info->failed = n == 0;
  if (!n) {
    fail(st);
    return;
  }
  Shape s = value_shape(st->fb, out);
  if (f->whole) {
    unify_whole(st, &s, e->loc);
  } else if (s.rank) {
    err(st->fb->fr, e->loc, "the result has shape %s; write its subscripts here",
        shape_text(st->fb->fr, &s));
    fail(st);
  }
}

static void prepare_read(St *st, const Ast *e, Frame *f) {
  Front *fr = st->fb->fr;
  Id value = NONE;
  bool absent = false, failed = false;
  Buf name = {0};
  ast_print_expr(e->a, &name);
  if (e->a->kind == A_CALL && is_tensor_call(&st->env, e->a)) {
    failed = !call_results(st->fb, e->a, st->name, &value, 1);
  } else if ((e->a->kind == A_NAME && !frame_find(f, e->a->name)) || e->a->kind == A_FIELD) {
    Entity x = resolve(&st->env, e->a);
    value = x.kind == ENT_VALUE ? x.value : NONE;
    absent = x.kind == ENT_ABSENT;
    failed = value == NONE && !absent;
    if (x.kind == ENT_NONE && e->a->kind == A_NAME && e->a->name == st->name)
      err(fr, e->loc,
          "'%s' has no value yet: a statement computes all of its elements at once, so none can "
          "depend on another; cumsum(x, axis) adds along an axis, a product with weights that fall "
          "off, sum(s: where(s <= t, 0.9 ** real(t - s) * x[b, s], 0.0)), is a linear recurrence, "
          "and a stack passes a tensor from layer to layer",
          e->a->name);
    else if (x.kind == ENT_NONE) unknown_name(&st->env, e->a, "tensor");
    else if (failed && x.kind != ENT_ERROR)
      err(fr, e->a->loc, "'%s' is not a tensor and takes no subscripts", name.text);
  } else {
    failed = true;
    if (e->a->kind == A_CALL && resolve(&st->env, e->a->a).kind == ENT_NONE)
      unknown_name(&st->env, e->a->a, "function");
    else if (e->a->kind != A_ERROR)
      err(fr, e->a->loc, "'%s' is not a tensor and takes no subscripts", name.text);
  }
  NodeInfo *info = node_info(st, e);
  info->value = value;
  info->absent = absent;
  info->failed = failed;
  if (value != NONE) {
    Shape s = value_shape(st->fb, value);
    Str short_name = str_internn(name.text, name.n > 40 ? strcspn(name.text, "(") : name.n);
    if (!match_subs(st, &e->arg, &s, short_name, e->loc, f)) {
      node_info(st, e)->failed = true;
      failed = true;
    }
  }
  buf_free(&name);
  if (failed) fail(st);
}

static void prepare_name(St *st, const Ast *e, const Frame *f) {
  if (e->kind == A_NAME && frame_find(f, e->name)) return;
  Entity x = resolve(&st->env, e);
  if (x.kind != ENT_VALUE) return;
  Shape s = value_shape(st->fb, x.value);
  if (f->whole) {
    unify_whole(st, &s, e->loc);
  } else if (s.rank) {
    err(st->fb->fr, e->loc, "this has shape %s; write its subscripts here",
        shape_text(st->fb->fr, &s));
    fail(st);
  }
}

void prepare(St *st, const Ast *e, Frame *f) {
  bool yes;
  switch (e->kind) {
  case A_NAME:
  case A_FIELD: prepare_name(st, e, f); return;
  case A_INDEX: prepare_read(st, e, f); return;
  case A_NEG:
  case A_NOT: prepare(st, e->a, f); return;
  case A_BINARY:
    prepare(st, e->a, f);
    prepare(st, e->b, f);
    return;
  case A_COND:
    if (!ct_cond(&st->env, e->b, &yes)) fail(st);
    else if (yes) prepare(st, e->a, f);
    else if (e->c) prepare(st, e->c, f);
    else {
      err(st->fb->fr, e->loc, "this needs an 'else': its condition is false");
      fail(st);
    }
    return;
  case A_CALL:
    if (ast_is_local(e)) prepare_local(st, e, f);
    else if (ast_is_reduce(e)) prepare_reduce(st, e, f);
    else if (is_tensor_call(&st->env, e)) prepare_call(st, e, f);
    else if (resolve_object(&st->env, e->a).kind == ENT_NONE) { // before errors of its arguments
      unknown_name(&st->env, e->a, "function");
      fail(st);
    } else prepare_args(st, e, f, true);
    return;
  case A_STACK:
    err(st->fb->fr, e->loc, "a stack is made in the body of a layer, not in a method");
    fail(st);
    return;
  default: return;
  }
}
