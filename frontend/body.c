// Bodies of methods and functions: each distinct use of one becomes a function of the IR, with the
// tensors as arguments, then the parameters of the layer's subtree, then the iteration numbers
// that it needs.
#include "frontend/front.h"

Fb *fb_new(Front *fr, Unit *unit, LayerType *layer, Str name, Id loc, bool training) {
  Fb *fb = NEW(fr->arena, Fb);
  fb->fr = fr;
  fb->unit = unit;
  fb->layer = layer;
  fb->fn.name = name;
  fb->fn.loc = loc;
  fb->training = training;
  for (int i = 0; i < MAX_STACKS; i++) fb->iter[i] = NONE;
  return fb;
}

Id fb_value(Fb *fb, Str name, const Shape *s, Role role, Id loc) {
  Id v = fn_value(fb->fr->m, &fb->fn, name, s->type, s->extent, s->rank, role, loc);
  PUSH(fb->fr->arena, fb->shape, *s);
  PUSH(fb->fr->arena, fb->read, false);
  return v;
}

Shape value_shape(Fb *fb, Id value) { return fb->shape.at[value]; }

Id fb_iter(Fb *fb, uint32_t level) {
  if (level >= fb->fr->depth) {
    err(fb->fr, fb->fn.loc, "a stack's iteration number is used outside of its stack");
    return NONE;
  }
  if (fb->iter[level] != NONE) return fb->iter[level];
  Shape s = {.type = DT_I32};
  PUSH(fb->fr->arena, fb->iter_order, level);
  return fb->iter[level] = fb_value(fb, str_printf("layer%u", level), &s, ROLE_IN, fb->fn.loc);
}

void fb_params(Fb *fb) {
  LayerType *t = fb->layer;
  if (!t) return;
  fb->param = NEWN(fb->fr->arena, Id, t->param.n);
  for (uint32_t i = 0; i < t->param.n; i++) {
    const Param *p = &t->param.at[i];
    Shape s = {.type = DT_REAL, .rank = p->rank};
    memcpy(s.extent, p->extent, sizeof s.extent);
    fb->param[i] = fb_value(fb, p->name, &s, ROLE_IN, p->loc);
  }
}

Dtype formal_type(const Arg *f) {
  if (!f->note || f->note->kind != A_NAME || !strcmp(f->note->name, "real")) return DT_REAL;
  return !strcmp(f->note->name, "int") ? DT_I32 : DT_BOOL;
}

// one, other: two extents that differ, or 0.
static void not_as_declared(Front *fr, const Arg *f, const Shape *s, Id loc, const char *why,
                            int64_t one, int64_t other) {
  extent_error(fr, loc, one, other,
               arena_printf(fr->arena, "argument '%s' has shape %s%s", formal_name(f),
                            shape_text(fr, s), why));
  Buf b = {0};
  ast_print_expr(f->value, &b);
  note(fr, f->value->loc, "it is declared as '%s' here", b.text);
  buf_free(&b);
}

// A dimension of a signature: the name of a size that is known, or a new name for this one, or an
// expression.
static bool bind_dim(Fb *fb, const Arg *f, const Ast *e, Shape *s, uint32_t d, Id loc) {
  Front *fr = fb->fr;
  Env env = {fr, fb->unit, fb->layer, fb};
  Entity x = e->kind == A_NAME ? lookup(&env, e->name) : (Entity){.kind = ENT_CT};
  int64_t n;
  if (e->kind == A_NAME && !(x.kind == ENT_CT && x.ct.kind == CT_INT)) {
    Binding *b = bind(fb, e->name, e->loc);
    b->is_ct = b->size = true;
    b->ct = ct_int(s->extent[d]);
    b->ct.per_sample = s->per_sample[d];
    s->dim[d] = e->name;
    return true;
  }
  if (!ct_size(&env, e, &n)) return false;
  if (e->kind == A_NAME) s->dim[d] = e->name;
  if (n == s->extent[d]) return true;
  Buf b = {0};
  ast_print_expr(e, &b);
  not_as_declared(fr, f, s, loc,
                  arena_printf(fr->arena, "; its dimension %u has to be %s = %lld", d, b.text,
                               (long long)n),
                  s->extent[d], n);
  Binding *old = e->kind == A_NAME ? bind_find(fb, e->name) : NULL;
  if (old && old->size)
    note(fr, old->loc, "'%s' is %lld from this dimension", e->name, (long long)n);
  buf_free(&b);
  return false;
}

static bool bind_dots(Fb *fb, const Arg *f, const Ast *e, const Shape *s, uint32_t d, uint32_t n,
                      Id loc) {
  Front *fr = fb->fr;
  if (fb->dots_known) {
    if (fb->ndots == n && !memcmp(fb->dots, s->extent + d, n * sizeof *fb->dots)) return true;
    not_as_declared(
        fr, f, s, loc,
        arena_printf(fr->arena, "; '...' stands for %s in it, but for %s in the arguments before",
                     extents_text(fr, s->extent + d, n), extents_text(fr, fb->dots, fb->ndots)),
        0, 0);
    note(fr, fb->dots_loc, "'...' was %s here", extents_text(fr, fb->dots, fb->ndots));
    return false;
  }
  fb->dots_known = true;
  fb->ndots = n;
  memcpy(fb->dots, s->extent + d, n * sizeof *fb->dots);
  fb->dots_loc = e->loc;
  return true;
}

// Makes the argument's value and binds its name and the names of its dimensions.
bool bind_formal(Fb *fb, const Arg *f, const Shape *given, Id loc) {
  Front *fr = fb->fr;
  const ArgList *dim = &f->value->arg;
  Shape s = *given;
  uint32_t dots = 0, d = 0;
  for (uint32_t i = 0; i < dim->n; i++) {
    if (!dim->at[i].value || dim->at[i].name || dim->at[i].note) {
      err(fr, f->value->loc, "a dimension is a name, a size or '...'");
      return false;
    }
    dots += dim->at[i].value->kind == A_DOTS;
  }
  if (dots > 1) {
    err(fr, f->value->loc, "'...' occurs twice");
    return false;
  }
  if (dots ? dim->n - 1 > s.rank : dim->n != s.rank) {
    not_as_declared(fr, f, &s, loc,
                    arena_printf(fr->arena, ", but it needs %s%u dimension%s",
                                 dots ? "at least " : "", dim->n - dots,
                                 dim->n - dots == 1 ? "" : "s"),
                    0, 0);
    return false;
  }
  if (s.type != formal_type(f)) {
    not_as_declared(
        fr, f, &s, loc,
        arena_printf(fr->arena, ", but %s is needed", scalar_text(scalar_of(formal_type(f)))),
        0, 0);
    return false;
  }
  for (uint32_t i = 0; i < dim->n; i++) {
    const Ast *e = dim->at[i].value;
    uint32_t n = e->kind == A_DOTS ? s.rank - (dim->n - 1) : 1;
    if (e->kind == A_DOTS ? !bind_dots(fb, f, e, &s, d, n, loc) : !bind_dim(fb, f, e, &s, d, loc))
      return false;
    d += n;
  }
  Binding *b = bind(fb, formal_name(f), formal_loc(f));
  b->value = fb_value(fb, formal_name(f), &s, ROLE_IN, formal_loc(f));
  return true;
}

static void bind_tensor(Fb *fb, Str name, Id loc, Id value) { // NONE: it is in error
  Binding *b = bind(fb, name, loc);
  b->value = value;
  b->failed = value == NONE;
  fb->failed |= value == NONE;
}

static bool is_zero(const Ast *e) {
  return (e->kind == A_INT && e->integer == 0) || (e->kind == A_REAL && e->real == 0);
}

static bool uses_name(const Ast *e, Str name) {
  if (!e) return false;
  if (e->kind == A_NAME && e->name == name) return true;
  if (uses_name(e->a, name) || uses_name(e->b, name) || uses_name(e->c, name)) return true;
  for (uint32_t i = 0; i < e->arg.n; i++)
    if (uses_name(e->arg.at[i].value, name) || uses_name(e->arg.at[i].note, name)) return true;
  return false;
}

// The left side's subscript without its range: i < n is i.
static const Ast *without_range(const Ast *e) {
  return e->kind == A_BINARY && e->op == B_LT && e->a->kind == A_NAME ? e->a : e;
}

static bool binds(const Ast *e) {
  const Ast *name = without_range(e);
  if (e->kind == A_GROUP) return e->arg.n && e->arg.at[0].name;
  return name->kind == A_NAME || e->kind == A_DOTS;
}

// Names in a subscript of += that mean nothing yet, or a dimension of an argument, are indices.
static void bind_inner(St *st, const Ast *e, Frame *f, VarList *list) {
  if (!e) return;
  Binding *b = e->kind == A_NAME ? bind_find(st->fb, e->name) : NULL;
  bool free = e->kind == A_NAME && !frame_find(f, e->name);
  if (free && (b ? b->size : lookup(&st->env, e->name).kind == ENT_NONE))
    bind_index(st, e, f, list);
  bind_inner(st, e->a, f, list);
  bind_inner(st, e->b, f, list);
  for (uint32_t i = 0; i < e->arg.n; i++) {
    const Arg *a = &e->arg.at[i];
    bind_inner(st, a->value, f, list);
  }
}

static bool bind_left(St *st, const ArgList *sub, bool acc, Frame *f, VarList *list) {
  Front *fr = st->fb->fr;
  bool ok = true;
  for (uint32_t i = 0; i < sub->n; i++) {
    const Arg *a = &sub->at[i];
    if (a->name || a->note || !a->value) {
      err(fr, a->name ? a->name_loc : a->value->loc, "expected an index: i, i < n, (h e) or ...");
      return false;
    }
    if (acc && a->value->kind == A_NAME && frame_find(f, a->value->name)) continue;
    if (binds(a->value)) {
      ok &= bind_index(st, a->value, f, list);
    } else if (!acc) {
      if (a->value->kind != A_ERROR)
        err(fr, a->value->loc,
            "the left side of '=' writes every element once, so it takes indices and groups only; "
            "'+=' takes any subscript");
      ok = false;
    }
  }
  for (uint32_t i = 0; i < sub->n && acc; i++)
    if (!binds(sub->at[i].value)) bind_inner(st, sub->at[i].value, f, list);
  return ok;
}

// Subscripts and shape of the target, once extents are known.
static bool target_subs(St *st, const ArgList *sub, Frame *f, Target *t) {
  Front *fr = st->fb->fr;
  uint32_t d = 0;
  for (uint32_t i = 0; i < sub->n; i++) {
    const Ast *e = without_range(sub->at[i].value);
    uint32_t n = e->kind == A_DOTS ? st->dots.n : 1;
    if (d + n > MAX_RANK) {
      err(fr, e->loc, "a tensor has at most %d dimensions", MAX_RANK);
      return false;
    }
    for (uint32_t k = 0; e->kind == A_DOTS && k < n; k++, d++) {
      for (uint32_t p = 0; p < f->n; p++)
        if (f->var[p] == st->dots.at[k]) t->sub[d] = ex_index(fr->m, p);
      t->shape.extent[d] = st->dots.at[k]->extent;
      t->shape.per_sample[d] = st->dots.at[k]->per_sample;
      t->shape.dim[d] = st->dots.at[k]->name;
    }
    if (e->kind == A_DOTS) continue;
    t->sub[d] = build_subscript(st, e, f);
    if (t->sub[d] == NONE) return false;
    IndexVar *v = e->kind == A_NAME ? frame_find(f, e->name) : NULL;
    t->shape.dim[d] = v ? v->name : NULL;
    int64_t extent = v ? v->extent : 1, per = v ? v->per_sample : 0;
    for (uint32_t k = 0; e->kind == A_GROUP && k < e->arg.n; k++) {
      IndexVar *g = e->arg.at[k].name ? frame_find(f, e->arg.at[k].name) : NULL;
      if (!g) continue;
      per = per_sample(B_MUL, extent, per, g->extent, g->per_sample);
      if (!mul_ok(extent, g->extent, &extent)) {
        err(fr, e->loc, "this group is too large");
        return false;
      }
    }
    t->shape.per_sample[d] = per;
    t->shape.extent[d++] = extent;
  }
  t->shape.rank = d;
  return true;
}

// What += adds to: the accumulator that the name is bound to, or a new one that starts as its
// value.
static bool open_accumulator(St *st, const Ast *target, const Ast *value, Target *t) {
  Fb *fb = st->fb;
  Binding *b = bind_find(fb, target->a->name);
  if (!b) {
    for (uint32_t i = 0; i < target->arg.n; i++)
      if (!binds(target->arg.at[i].value)) {
        err(fb->fr, target->arg.at[i].value->loc,
            "the extent of this dimension is not known; write '%s[i < N, ...] = 0.0' before",
            target->a->name);
        return false;
      }
    return true;
  }
  if (b->failed || b->is_ct) {
    if (!b->failed) err(fb->fr, target->loc, "'%s' is a compile-time value", target->a->name);
    return false;
  }
  bool own = uses_name(value, b->name);
  for (uint32_t i = 0; i < target->arg.n; i++) own |= uses_name(target->arg.at[i].value, b->name);
  if (b->acc && !fb->read.at[b->value] && !own) {
    t->value = b->value;
    return true;
  }
  Shape s = value_shape(fb, b->value);
  Id from = b->value;
  t->value = fb_value(fb, t->name, &s, ROLE_LOCAL, t->name_loc);
  if (b->zero) return true;
  Id copy = copy_value(fb, from, t->name, st->loc); // x += old x, as the first of the sum's terms
  Stmt *first = &fb->fn.stmt.at[fb->fn.stmt.n - 1];
  first->lhs = t->value;
  first->acc = true;
  fb->fn.value.n = copy; // the copy is the accumulator itself
  fb->shape.n = fb->read.n = copy;
  return true;
}

static Id assign_comp(Fb *fb, const Ast *target, const Ast *value, const ArgList *shard, bool acc,
                      Id loc) {
  Front *fr = fb->fr;
  Str name = target->a->name;
  St *st = NEW(fr->arena, St);
  st_init(st, fb, name, loc);
  Frame f = {.guard = NONE}, g = {.guard = NONE};
  VarList list = {0};
  Target t = {.value = NONE, .name = name, .name_loc = target->a->loc, .acc = acc};
  bool ok = shard_enter(st, shard) && bind_left(st, &target->arg, acc, &f, &list);
  if (!ok || (acc && !open_accumulator(st, target, value, &t))) return NONE;
  if (acc && t.value != NONE) {
    ArgList plain = {0};
    for (uint32_t i = 0; i < target->arg.n; i++)
      PUSH(fr->arena, plain, ((Arg){.value = (Ast *)without_range(target->arg.at[i].value)}));
    Shape s = value_shape(fb, t.value);
    if (!match_subs(st, &plain, &s, name, target->loc, &f)) return NONE;
  }
  prepare(st, value, &f);
  if (!solve(st) || !shard_bound(st)) return NONE;
  if (st->dots_bound && !st->dots_known) {
    err(fr, loc, "the number of dimensions that '...' stands for is not known here");
    return NONE;
  }
  if (!frame_add(st, &g, &list, loc) || !check_extents(st, &g)) return NONE;
  if (!target_subs(st, &target->arg, &g, &t)) return NONE;
  return emit_comp(st, &t, value, &g) ? t.value : NONE;
}

static void note_accumulator(Fb *fb, Str name, bool acc, const Ast *value) {
  Binding *b = bind_find(fb, name);
  if (!b || b->failed) return;
  b->acc = acc;
  b->zero = !acc && is_zero(value);
}

// name = ..., name[...] = ... or +=; the value it is bound to, or NONE.
static Id assign(Fb *fb, const Ast *target, const Ast *value, const ArgList *shard, bool acc,
                 Id loc) {
  Front *fr = fb->fr;
  if (target->kind == A_ERROR || value->kind == A_ERROR) {
    fb->failed = true;
    return NONE;
  }
  if (target->kind == A_INDEX && target->a->kind == A_NAME) {
    Id v = assign_comp(fb, target, value, shard, acc, loc);
    bind_tensor(fb, target->a->name, target->a->loc, v);
    note_accumulator(fb, target->a->name, acc, value);
    return v;
  }
  if (target->kind != A_NAME || acc) {
    fb->failed = true;
    if (acc) err(fr, target->loc, "'+=' needs subscripts on the left: name[i, ...] += ...");
    else err(fr, target->loc, "the left side is a name, or a name with subscripts");
    return NONE;
  }
  no_shard(fb, shard);
  Val v = whole(fb, value, target->name);
  if (v.kind == V_CT) {
    Binding *b = bind(fb, target->name, target->loc);
    b->is_ct = true;
    b->ct = v.ct;
    return NONE;
  }
  Id id = v.kind == V_ABSENT   ? val_tensor(fb, v, DT_REAL, value->loc)
          : v.kind == V_TENSOR ? v.value
                               : NONE;
  bind_tensor(fb, target->name, target->loc, id);
  return id;
}

// The results of a call take the names they are bound to; the first has its already.
static void name_results(Fb *fb, const AstList *target, const Id *out, Id before) {
  for (uint32_t i = 1; i < target->n; i++) {
    Str name = target->at[i]->name;
    if (out[i] < before || fb->fn.value.at[out[i]].name == name) continue;
    for (int k = 2; value_find(&fb->fn, name) != NONE; k++)
      name = str_printf("%s.%d", target->at[i]->name, k);
    fn_rename(fb->fr->m, &fb->fn, out[i], name);
  }
}

static void assign_many(Fb *fb, const AstStmt *s) {
  Front *fr = fb->fr;
  Id out[MAX_ARGS];
  Id before = fb->fn.value.n;
  uint32_t n = 0;
  bool names = s->target.n <= MAX_ARGS;
  no_shard(fb, &s->shard);
  for (uint32_t i = 0; i < s->target.n; i++) names &= s->target.at[i]->kind == A_NAME;
  if (!names) err(fr, s->loc, "several results go to names: x, y = f(...)");
  else if (!is_tensor_call(&(Env){fr, fb->unit, fb->layer, fb}, s->value))
    err(fr, s->value->loc, "only a call gives several results");
  else if ((n = call_results(fb, s->value, s->target.at[0]->name, out, s->target.n)) &&
           n < s->target.n)
    err(fr, s->loc, "%u names, but the call gives %u result%s", s->target.n, n, n == 1 ? "" : "s"),
        n = 0;
  if (n) name_results(fb, &s->target, out, before);
  for (uint32_t i = 0; i < s->target.n; i++) {
    const Ast *e = s->target.at[i]->kind == A_INDEX ? s->target.at[i]->a : s->target.at[i];
    if (e->kind == A_NAME) bind_tensor(fb, e->name, e->loc, n ? out[i] : NONE);
  }
}

static void run_return(Fb *fb, const AstStmt *s) {
  Front *fr = fb->fr;
  fb->returned = true;
  if (s->value && s->target.n != 1) {
    err(fr, s->loc, "'return name[...] = ...' gives one result");
    fb->failed = true;
    return;
  }
  for (uint32_t i = 0; i < s->target.n; i++) {
    const Ast *e = s->target.at[i];
    Id v;
    if (s->value && e->kind == A_INDEX) {
      v = assign(fb, e, s->value, &s->shard, false, s->loc);
    } else {
      no_shard(fb, &s->shard);
      Str name = s->value && e->kind == A_NAME ? e->name : str_intern("result");
      v = val_tensor(fb, whole(fb, s->value ? s->value : e, name), DT_REAL, e->loc);
    }
    if (v == NONE) fb->failed = true;
    PUSH(fr->arena, fb->result, v);
    PUSH(fr->arena, fb->result_loc, s->value ? s->value->loc : e->loc);
  }
}

static void run_stmt(Fb *fb, const AstStmt *s) {
  Front *fr = fb->fr;
  bool yes;
  switch (s->tag) {
  case S_ASSIGN:
    if (s->target.n == 1) assign(fb, s->target.at[0], s->value, &s->shard, false, s->loc);
    else assign_many(fb, s);
    return;
  case S_ACC: assign(fb, s->target.at[0], s->value, &s->shard, true, s->loc); return;
  case S_RETURN: run_return(fb, s); return;
  case S_IF:
    if (ct_cond(&(Env){fr, fb->unit, fb->layer, fb}, s->value, &yes))
      run_body(fb, yes ? &s->body : &s->other);
    else fb->failed = true;
    return;
  case S_PARAM:
    err(fr, s->loc, "a parameter belongs in the body of a layer, not in a method");
    break;
  case S_METHOD:
    err(fr, s->loc, "expected a statement: name = ..., name[i] = ..., return ..., or if");
    break;
  case S_METRIC: err(fr, s->loc, "a metric belongs in the train block"); break;
  }
  fb->failed = true;
}

void run_body(Fb *fb, const StmtList *body) {
  const Sources *src = fb->fr->src;
  for (uint32_t i = 0; i < body->n; i++) {
    if (src->nerror > src->max_errors) return; // no further one is shown
    if (fb->returned && body->at[i - 1]->tag != S_RETURN) return; // it was inside an if
    if (fb->returned) {
      err(fb->fr, body->at[i]->loc, "nothing after 'return' is reached");
      fb->failed = true;
      return;
    }
    run_stmt(fb, body->at[i]);
  }
}

// A result that is an argument, or another result too, is copied, so that each result has its own
// value.
static void own_results(Fb *fb) {
  for (uint32_t i = 0; i < fb->result.n; i++) {
    Id v = fb->result.at[i];
    bool shared = fb->fn.value.at[v].role != ROLE_LOCAL;
    for (uint32_t j = 0; j < i; j++) shared |= fb->result.at[j] == v;
    if (shared)
      fb->result.at[i] =
          copy_value(fb, v, str_printf("%s.out", fb->fn.value.at[v].name), fb->fn.value.at[v].loc);
  }
}

Id fb_finish(Fb *fb) {
  Module *m = fb->fr->m;
  own_results(fb);
  for (uint32_t i = 0; i < fb->result.n; i++) PUSH(m->arena, fb->fn.result, fb->result.at[i]);
  for (Id v = 0; fb->wide && v < fb->fn.value.n; v++)
    if (fb->fn.value.at[v].role == ROLE_LOCAL) value_widen(&fb->fn.value.at[v]);
  Id id = fn_new(m, fb->fn.name, fb->fn.loc);
  fb->fn.name = m->fn.at[id].name;
  m->fn.at[id] = fb->fn;
  return id;
}

const ArgList *callee_formals(const Entity *c) {
  return c->method ? &c->method->formal : &c->decl->formal;
}

// An intrinsic's flags are part of its name: attention.causal.
const char *callee_name(Front *fr, const Entity *c) {
  if (!c->method) return c->decl->name;
  return arena_printf(fr->arena, "%s.%s", c->type->decl->name, c->method->name);
}

static Str instance_name(Front *fr, const Entity *c, const Actuals *arg) {
  Str name = str_intern(callee_name(fr, c));
  const ArgList *formal = callee_formals(c);
  for (uint32_t i = 0; !c->method && c->decl->intrinsic && i < arg->n; i++)
    if (arg->tensor[i] == NONE && arg->ct[i].kind == CT_BOOL && arg->ct[i].i)
      name = str_printf("%s.%s", name, formal_name(&formal->at[i]));
  return name;
}

static bool is_wide(const Fb *caller, const Entity *c) { return caller->wide || (c->method && c->type->wide); }

static Str instance_key(Fb *caller, const Entity *c, const Actuals *arg) {
  Front *fr = caller->fr;
  Buf b = {0};
  buf_printf(&b, "%s%p %p", is_wide(caller, c) ? "fp32 " : "", c->method ? (void *)c->method : (void *)c->decl,
             c->method ? (void *)c->type : NULL);
  for (uint32_t i = 0; i < arg->n; i++) {
    bool tensor = arg->tensor[i] != NONE;
    Shape s = tensor ? value_shape(caller, arg->tensor[i]) : (Shape){.rank = 1, .per_sample = {arg->ct[i].per_sample}};
    buf_printf(&b, " %s", tensor ? shape_text(fr, &s) : ct_text(fr, &arg->ct[i]));
    for (uint32_t d = 0; d < s.rank; d++)
      if (s.per_sample[d]) buf_printf(&b, "/%u:%lld", d, (long long)s.per_sample[d]);
  }
  Str key = str_intern(b.text);
  buf_free(&b);
  return key;
}

static Inst *find_instance(Front *fr, Str key, bool training) {
  uint32_t first = map_find(&fr->inst_of, key);
  for (Inst *x = first == NONE ? NULL : fr->inst.at[first]; x; x = x->next) {
    if (x->random && !x->building) continue;
    if (x->building || !x->uses_training || x->training == training) return x;
  }
  return NULL;
}

static void add_instance(Front *fr, Inst *x) {
  uint32_t first = map_find(&fr->inst_of, x->key);
  if (first == NONE) {
    map_set(fr->arena, &fr->inst_of, x->key, fr->inst.n);
  } else {
    Inst *last = fr->inst.at[first];
    while (last->next) last = last->next;
    last->next = x;
  }
  PUSH(fr->arena, fr->inst, x);
}

static void describe_instance(Fb *fb, Inst *x) {
  Front *fr = fb->fr;
  x->nresult = fb->result.n;
  x->result = NEWN(fr->arena, Shape, x->nresult);
  x->result_arg = NEWN(fr->arena, int, x->nresult);
  x->identity = fb->fn.stmt.n == 0;
  for (uint32_t k = 0; k < x->nresult; k++) x->result[k] = value_shape(fb, fb->result.at[k]);
}

// Fills the body; the trail has the place of the call.
static bool fill_instance(Fb *fb, const Entity *c, const Actuals *arg, const Fb *caller, Inst *x) {
  Front *fr = fb->fr;
  const ArgList *formal = callee_formals(c);
  Id arg_value[MAX_ARGS];
  for (uint32_t i = 0; i < arg->n; i++) {
    if (arg->tensor[i] != NONE) continue;
    Binding *b = bind(fb, formal_name(&formal->at[i]), formal_loc(&formal->at[i]));
    b->is_ct = true;
    b->ct = arg->ct[i];
  }
  for (uint32_t i = 0; i < arg->n; i++) {
    arg_value[i] = NONE;
    if (arg->tensor[i] == NONE) continue;
    Shape s = caller->shape.at[arg->tensor[i]];
    arg_value[i] = fb->fn.value.n;
    if (!bind_formal(fb, &formal->at[i], &s, arg->loc[i])) return false;
  }
  fb_params(fb);
  run_body(fb, c->method ? &c->method->body : &c->decl->body);
  if (!fb->returned && !fb->failed) {
    err(fr, fb->fn.loc, "'%s' returns nothing", fb->fn.name);
    return false;
  }
  if (fb->failed) return false;
  describe_instance(fb, x);
  for (uint32_t k = 0; k < x->nresult; k++) {
    x->result_arg[k] = -1;
    for (uint32_t i = 0; i < arg->n; i++)
      if (arg_value[i] == fb->result.at[k]) x->result_arg[k] = (int)i;
    x->identity &= x->result_arg[k] >= 0;
  }
  return true;
}

static bool may_instantiate(Front *fr, const Entity *c, Id loc) {
  if (fr->calls >= MAX_CALLS) {
    err(fr, loc, "'%s' is called more than %d calls deep", callee_name(fr, c), MAX_CALLS);
    return false;
  }
  if (fr->inst.n < MAX_INSTANCES) return true;
  if (!fr->full)
    err(fr, loc,
        "this model makes more than %d functions: one for each set of compile-time arguments and "
        "shapes that a function or method is called with",
        MAX_INSTANCES);
  fr->full = true;
  return false;
}

Inst *instance(Fb *caller, const Entity *c, const Actuals *arg, Id loc) {
  Front *fr = caller->fr;
  Str key = instance_key(caller, c, arg);
  Inst *x = find_instance(fr, key, caller->training);
  if (x && x->building) {
    err(fr, loc, "'%s' calls itself", callee_name(fr, c));
    return NULL;
  }
  if (x) return x->failed ? NULL : x;
  if (!may_instantiate(fr, c, loc)) return NULL;
  x = NEW(fr->arena, Inst);
  *x = (Inst){.key = key,
              .layer = c->method ? c->type : NULL,
              .training = caller->training,
              .building = true,
              .fn = NONE};
  add_instance(fr, x);
  LayerType *layer = c->method ? c->type : NULL;
  Fb *fb = fb_new(fr, c->method ? layer->unit : c->unit, layer, instance_name(fr, c, arg),
                  c->method ? c->method->name_loc : c->decl->name_loc, caller->training);
  Trail trail;
  trail_push(fr, &trail, loc, arena_printf(fr->arena, "'%s', called here", callee_name(fr, c)));
  fr->calls++;
  if (!c->method && c->decl->intrinsic) fb->fn.intrinsic = INTR_ATTENTION;
  x->wide = fb->wide = is_wide(caller, c);
  x->failed = !fill_instance(fb, c, arg, caller, x) || fb->failed;
  fr->calls--;
  trail_pop(fr);
  x->building = false;
  x->random = fb->random;
  x->uses_training = fb->uses_training;
  if (x->failed) return NULL;
  if (!x->identity) x->fn = fb_finish(fb);
  for (uint32_t i = 0; i < fb->iter_order.n; i++) PUSH(fr->arena, x->iter, fb->iter_order.at[i]);
  return x;
}
