// Whole tensors: calls of layers and functions, and arithmetic without subscripts.
#include "frontend/front.h"

void st_init(St *st, Fb *fb, Str name, Id loc) {
  *st = (St){.fb = fb, .env = {fb->fr, fb->unit, fb->layer, fb}, .loc = loc, .name = name};
  st->dots_mark = (IndexVar){.name = str_intern("..."), .hidden = true};
}

bool is_tensor_call(Env *env, const Ast *e) {
  if (e->kind != A_CALL || ast_is_reduce(e) || ast_is_local(e)) return false;
  Entity x = resolve_object(env, e->a);
  if (x.kind == ENT_BUILTIN) return tensor_builtin(x.name);
  return x.kind == ENT_FN || x.kind == ENT_LAYER || x.kind == ENT_METHOD;
}

Id val_tensor(Fb *fb, Val v, Dtype want, Id loc) {
  Front *fr = fb->fr;
  if (v.kind == V_TENSOR) return v.value;
  if (v.kind == V_ERROR) return NONE;
  if (v.kind == V_ABSENT) {
    err(fr, loc, "this parameter is absent: its condition is false");
    return NONE;
  }
  St st;
  st_init(&st, fb, str_intern("constant"), loc);
  R r = {.kind = R_CT, .ct = v.ct};
  if (want == DT_REAL && v.ct.kind == CT_INT) r.ct = ct_to_real(v.ct);
  if (v.ct.kind == CT_ITER) {
    number_of_samples(fr, loc, v.ct.per_sample);
    Id it = fb_iter(fb, v.ct.level);
    if (it == NONE) return NONE;
    Id e = ex2(fr->m, OP_MUL, ex_read(fr->m, &fb->fn, it, NULL), ex_int(fr->m, v.ct.mul));
    r = (R){.kind = R_IR, .e = ex2(fr->m, OP_ADD, e, ex_int(fr->m, v.ct.i)), .type = SC_INT};
  }
  Id body = to_ir(&st, r, loc);
  if (body == NONE) return NONE;
  Target t = {.value = NONE, .name = str_intern("constant"), .name_loc = loc};
  Frame f = {.guard = NONE};
  return emit_body(&st, &t, RED_NONE, body, &f, 0) ? t.value : NONE;
}

// value[i, j, ...] as a new value.
Id copy_value(Fb *fb, Id value, Str name, Id loc) {
  Module *m = fb->fr->m;
  St st;
  st_init(&st, fb, name, loc);
  Shape s = value_shape(fb, value);
  Target t = {.value = NONE, .shape = s, .name = name, .name_loc = loc};
  Frame f = {.guard = NONE};
  static const char *const plain[] = {"i", "j", "k", "l", "m", "n", "p", "q"};
  for (uint32_t d = 0; d < s.rank; d++) {
    IndexVar *v = var_new(&st, s.dim[d] ? s.dim[d] : str_intern(plain[d]), loc);
    v->extent = s.extent[d];
    v->per_sample = s.per_sample[d];
    t.sub[d] = ex_index(m, d);
    f.var[f.n++] = v;
  }
  return emit_body(&st, &t, RED_NONE, ex_read(m, &fb->fn, value, t.sub), &f, f.n) ? t.value : NONE;
}

// The compile-time arguments: given ones in the caller's terms, presets in the callee's.
static bool ct_actuals(Fb *fb, const Entity *callee, const ArgList *formal, const ArgList *arg,
                       const int *position, Actuals *out) {
  Front *fr = fb->fr;
  Env env = {fr, fb->unit, fb->layer, fb};
  LayerType *layer = callee->kind == ENT_FN ? NULL : callee->type;
  Unit *unit = callee->kind == ENT_FN ? callee->unit : layer->unit;
  Fb *scratch = fb_new(fr, unit, layer, str_intern("presets"), 0, fb->training);
  Env inner = {fr, unit, layer, scratch};
  scratch->param = NEWN(fr->arena, Id, layer ? layer->param.n : 0);
  for (uint32_t i = 0; i < formal->n; i++) {
    const Arg *f = &formal->at[i];
    if (formal_is_tensor(f)) continue;
    out->ct[i] =
        position[i] >= 0 ? ct_eval(&env, arg->at[position[i]].value) : ct_eval(&inner, f->value);
    out->loc[i] = position[i] >= 0 ? arg->at[position[i]].value->loc : formal_loc(f);
    if (out->ct[i].kind == CT_ERROR) return false;
    Binding *b = bind(scratch, formal_name(f), formal_loc(f));
    b->is_ct = true;
    b->ct = out->ct[i];
  }
  fb->uses_training |= scratch->uses_training;
  return true;
}

// A stack's first result must have the type and shape of its first argument.
static bool check_stack(Fb *fb, const Entity *callee, const Inst *inst, const Actuals *a, Id loc) {
  Front *fr = fb->fr;
  Shape s = a->n && a->tensor[0] != NONE ? value_shape(fb, a->tensor[0]) : (Shape){0};
  const Shape *r = &inst->result[0];
  if (a->n && a->tensor[0] != NONE && s.type == r->type && s.rank == r->rank &&
      !memcmp(s.extent, r->extent, s.rank * sizeof s.extent[0]))
    return true;
  err(fr, loc, "a stack passes each result to the next layer, but %s makes %s of %s",
      callee_name(fr, callee), shape_text(fr, r), a->n ? shape_text(fr, &s) : "nothing");
  return false;
}

static Id result_value(Fb *fb, const Entity *callee, const Inst *inst, uint32_t k, Str name,
                       Id loc) {
  Shape s = inst->result[k];
  if (callee->stack && k > 0) { // one for each layer
    if (s.rank == MAX_RANK) {
      err(fb->fr, loc, "a stack's results have more than %d dimensions", MAX_RANK);
      return NONE;
    }
    memmove(s.extent + 1, s.extent, (MAX_RANK - 1) * sizeof s.extent[0]);
    memmove(s.per_sample + 1, s.per_sample, (MAX_RANK - 1) * sizeof s.per_sample[0]);
    memmove(s.dim + 1, s.dim, (MAX_RANK - 1) * sizeof s.dim[0]);
    s.extent[0] = callee->count;
    s.per_sample[0] = 0;
    s.dim[0] = str_intern("layer");
    s.rank++;
  }
  return fb_value(fb, name, &s, ROLE_LOCAL, loc);
}

// The call's arguments after the tensors: parameters, then iteration numbers.
static bool call_rest(Fb *fb, const Entity *callee, const Inst *inst, Call *c) {
  Front *fr = fb->fr;
  LayerType *layer = callee->kind == ENT_FN ? NULL : callee->type;
  for (uint32_t i = 0; layer && i < layer->param.n; i++)
    c->arg[c->narg++] =
        (Actual){callee->stack ? ACT_SLICE : ACT_WHOLE, fb->param[callee->first + i]};
  for (uint32_t i = 0; i < inst->iter.n; i++) {
    bool own = callee->stack && inst->iter.at[i] == fr->depth;
    Id v = own ? NONE : fb_iter(fb, inst->iter.at[i]);
    if (!own && v == NONE) return false;
    c->arg[c->narg++] = (Actual){own ? ACT_ITER : ACT_WHOLE, v};
  }
  return true;
}

// What is called with what, as text.
static Str call_key(const Call *c) {
  Buf b = {0};
  buf_printf(&b, "%u*%lld", c->fn, (long long)c->count);
  for (uint32_t i = 0; i < c->narg; i++) buf_printf(&b, "/%d:%u", (int)c->arg[i].mode, c->arg[i].value);
  Str key = str_intern(b.text);
  buf_free(&b);
  return key;
}

static uint32_t emit_call(Fb *fb, const Entity *callee, const Inst *inst, const Actuals *a,
                          Str name, Id loc, Id *out, uint32_t max) {
  Front *fr = fb->fr;
  if (callee->stack && !check_stack(fb, callee, inst, a, loc)) return 0;
  if (inst->nresult > max) {
    err(fr, loc, "%s gives %u results; take them with %u names: x, y = ...",
        callee_name(fr, callee), inst->nresult, inst->nresult);
    return 0;
  }
  if (inst->identity && !(callee->stack && inst->nresult > 1)) {
    for (uint32_t k = 0; k < inst->nresult; k++) out[k] = a->tensor[inst->result_arg[k]];
    return inst->nresult;
  }
  Call *c = NEW(fr->arena, Call);
  uint32_t room = a->n + inst->iter.n + (callee->kind == ENT_FN ? 0 : callee->type->param.n);
  *c = (Call){
      .fn = inst->fn, .count = callee->stack ? callee->count : 1, .iter = str_intern("layer")};
  c->arg = NEWN(fr->arena, Actual, room);
  for (uint32_t i = 0; i < a->n; i++) {
    if (a->tensor[i] == NONE) continue;
    ActualMode mode = callee->stack && c->narg == 0 ? ACT_CARRY : ACT_WHOLE;
    c->arg[c->narg++] = (Actual){mode, a->tensor[i]};
  }
  if (!call_rest(fb, callee, inst, c)) return 0;
  // f(x) + f(x) is one call, unless f draws numbers. Twenty functions that each call the next one so
  // would be a million statements otherwise.
  Str key = inst->random ? NULL : call_key(c);
  uint32_t same = key ? map_find(&fb->called, key) : NONE;
  if (same != NONE) {
    const Call *old = fb->fn.stmt.at[same].call;
    for (uint32_t k = 0; k < old->nresult; k++) out[k] = old->result[k].value;
    return old->nresult;
  }
  if (key) map_set(fr->arena, &fb->called, key, fb->fn.stmt.n);
  c->nresult = inst->nresult;
  c->result = NEWN(fr->arena, Result, inst->nresult);
  for (uint32_t k = 0; k < inst->nresult; k++) {
    out[k] = result_value(fb, callee, inst, k, k ? str_printf("%s.%u", name, k + 1) : name, loc);
    if (out[k] == NONE) return 0;
    if (inst->wide) value_widen(&fb->fn.value.at[out[k]]);
    c->result[k] = (Result){!callee->stack ? RES_WHOLE : k ? RES_SLICE : RES_CARRY, out[k]};
  }
  fn_stmt(fr->m, &fb->fn, callee->stack ? ST_REPEAT : ST_CALL, loc)->call = c;
  return inst->nresult;
}

// Makes the instance and the call; a stack's layer lives one level deeper.
static uint32_t call_with(Fb *fb, const Entity *callee, const Actuals *a, Str name, Id loc, Id *out,
                          uint32_t max) {
  Front *fr = fb->fr;
  if (callee->stack && callee->count == 0) {
    out[0] = a->tensor[0];
    return a->n && a->tensor[0] != NONE;
  }
  if (callee->stack) fr->stack_count[fr->depth++] = callee->count;
  Inst *inst = instance(fb, callee, a, loc);
  if (callee->stack) fr->depth--;
  if (!inst) return 0;
  fb->random |= inst->random;
  fb->uses_training |= inst->uses_training;
  return emit_call(fb, callee, inst, a, name, loc, out, max);
}

// The callee of a user's call: a layer means its method `forward`. False after an error.
static bool callee_of(Fb *fb, const Ast *e, Entity *x) {
  Front *fr = fb->fr;
  *x = resolve_object(&(Env){fr, fb->unit, fb->layer, fb}, e->a);
  if (x->kind == ENT_LAYER) {
    x->method = method_find(x->type, str_intern("forward"));
    if (!x->method) {
      err(fr, e->a->loc, "layer '%s' has no method 'forward'", x->type->decl->name);
      note(fr, x->type->decl->name_loc, "it is declared here");
      return false;
    }
  }
  if (x->in_stack) {
    err(fr, e->a->loc, "only the layer that the stack repeats may call a layer inside it");
    return false;
  }
  return check_formals(fr, callee_formals(x), true);
}

// A name for the value of an argument: of the layer or function that makes it, else of the
// argument.
static Str argument_name(const Ast *v, Str name, const Arg *f) {
  if (v->kind == A_CALL && (v->a->kind == A_NAME || v->a->kind == A_FIELD)) return v->a->name;
  return str_printf("%s.%s", name, formal_name(f));
}

uint32_t call_results(Fb *fb, const Ast *e, Str name, Id *out, uint32_t max) {
  Front *fr = fb->fr;
  Env env = {fr, fb->unit, fb->layer, fb};
  Entity x = resolve_object(&env, e->a);
  if (x.kind == ENT_BUILTIN) return builtin_results(fb, x.name, e, name, out, max);
  if (!callee_of(fb, e, &x)) return 0;
  const ArgList *formal = callee_formals(&x);
  int position[MAX_ARGS];
  const char *what = arena_printf(fr->arena, "'%s'", callee_name(fr, &x));
  Id decl_loc = x.method ? x.method->name_loc : x.decl->name_loc;
  if (!match_args(fr, what, formal, decl_loc, &e->arg, e->loc, position)) return 0;
  Actuals *a = NEW(fr->arena, Actuals);
  a->n = formal->n;
  bool ok = true;
  for (uint32_t i = 0; i < formal->n; i++) {
    a->tensor[i] = NONE;
    if (!formal_is_tensor(&formal->at[i])) continue;
    const Ast *v = e->arg.at[position[i]].value;
    a->loc[i] = v->loc;
    a->tensor[i] = val_tensor(fb, whole(fb, v, argument_name(v, name, &formal->at[i])),
                              formal_type(&formal->at[i]), v->loc);
    ok &= a->tensor[i] != NONE;
  }
  ok = ct_actuals(fb, &x, formal, &e->arg, position, a) && ok;
  return ok ? call_with(fb, &x, a, name, e->loc, out, max) : 0;
}

static Val v_error(void) { return (Val){.kind = V_ERROR}; }
static Val v_tensor(Id v) { return v == NONE ? v_error() : (Val){.kind = V_TENSOR, .value = v}; }

// Arithmetic of whole tensors, element by element.
static Val elementwise(Fb *fb, const Ast *e, Str name) {
  Front *fr = fb->fr;
  St *st = NEW(fr->arena, St);
  st_init(st, fb, name, e->loc);
  Frame f = {.guard = NONE, .whole = true};
  prepare(st, e, &f);
  if (!solve(st)) return v_error();
  if (st->dots_bound && !st->dots_known) {
    err(fr, e->loc, "the number of dimensions that '...' stands for is not known here");
    return v_error();
  }
  Target t = {.value = NONE, .name = name, .name_loc = e->loc, .shape = st->whole_shape};
  if (!frame_add(st, &f, &st->whole_var, e->loc)) return v_error();
  for (uint32_t d = 0; d < f.n; d++) t.sub[d] = ex_index(fr->m, d);
  return emit_comp(st, &t, e, &f) ? v_tensor(t.value) : v_error();
}

Val whole(Fb *fb, const Ast *e, Str name) {
  Front *fr = fb->fr;
  Env env = {fr, fb->unit, fb->layer, fb};
  Entity x;
  Id out;
  bool yes;
  if (e->kind == A_ERROR) return v_error();
  if (ct_is(&env, e)) {
    Ct c = ct_eval(&env, e);
    return c.kind == CT_ERROR ? v_error() : (Val){.kind = V_CT, .ct = c};
  }
  switch (e->kind) {
  case A_NAME:
  case A_FIELD:
    x = resolve(&env, e);
    if (x.kind == ENT_VALUE) {
      fb->read.at[x.value] = true;
      return v_tensor(x.value);
    }
    if (x.kind == ENT_ABSENT) return (Val){.kind = V_ABSENT};
    break;
  case A_COND:
    if (!ct_cond(&env, e->b, &yes)) return v_error();
    if (yes || e->c) return whole(fb, yes ? e->a : e->c, name);
    break;
  case A_CALL:
    if (!is_tensor_call(&env, e)) break;
    return call_results(fb, e, name, &out, 1) ? v_tensor(out) : v_error();
  default: break;
  }
  return elementwise(fb, e, name);
}

// One argument of a call within a comprehension, as a tensor over the indices in `keep`.
static Id mapped_arg(St *st, Id e, Frame *f, uint32_t keep, Id loc) {
  Module *m = st->fb->fr->m;
  if (f->guard != NONE && ex(m, e)->type == SC_REAL)
    e = ex3(m, OP_WHERE, f->guard, e, ex_real(m, 0));
  Id value;
  return lift(st, RED_NONE, e, f, f->n, keep, loc, &value) == NONE ? NONE : value;
}

static bool mappable(Front *fr, const Entity *x, const Arg *f, Id loc) {
  const ArgList *sub = &f->value->arg;
  if (sub->n == 1 && sub->at[0].value && sub->at[0].value->kind == A_DOTS) return true;
  err(fr, loc,
      "'%s' takes a whole tensor here; call it with whole tensors and write subscripts after the "
      "call: f(x)[i, j]",
      callee_name(fr, x));
  note(fr, formal_loc(f), "'%s' is declared here", formal_name(f));
  return false;
}

// f(x[i, j]) inside a comprehension, for f over [...]: the arguments are made for all points, f is
// called once, and its result is read at this point.
R build_mapped(St *st, const Ast *e, Frame *f) {
  Fb *fb = st->fb;
  Front *fr = fb->fr;
  Module *m = fr->m;
  R bad = {.kind = R_ERROR};
  Entity x;
  int position[MAX_ARGS];
  Id arg[MAX_ARGS], out, sub[MAX_RANK];
  if (resolve_object(&st->env, e->a).kind == ENT_BUILTIN) {
    err(fr, e->loc, "'%s' takes whole tensors; write subscripts after the call: %s(...)[i, j]",
        e->a->name, e->a->name);
    return bad;
  }
  if (!callee_of(fb, e, &x)) return bad;
  const ArgList *formal = callee_formals(&x);
  Id decl_loc = x.method ? x.method->name_loc : x.decl->name_loc;
  const char *what = arena_printf(fr->arena, "'%s'", callee_name(fr, &x));
  if (!match_args(fr, what, formal, decl_loc, &e->arg, e->loc, position)) return bad;
  Actuals *a = NEW(fr->arena, Actuals);
  a->n = formal->n;
  uint32_t keep = f->guard == NONE ? 0 : ex_indices(m, f->guard);
  for (uint32_t i = 0; i < formal->n; i++) {
    a->tensor[i] = NONE;
    if (!formal_is_tensor(&formal->at[i])) continue;
    const Ast *v = e->arg.at[position[i]].value;
    if (!mappable(fr, &x, &formal->at[i], v->loc)) return bad;
    Frame g = *f;
    g.whole = false;
    arg[i] = to_scalar(st, build(st, v, &g), scalar_of(formal_type(&formal->at[i])), v->loc,
                       arena_printf(fr->arena, "argument '%s'", formal_name(&formal->at[i])));
    if (arg[i] == NONE) return bad;
    a->loc[i] = v->loc;
    keep |= ex_indices(m, arg[i]);
  }
  for (uint32_t i = 0; i < formal->n; i++)
    if (formal_is_tensor(&formal->at[i]) &&
        (a->tensor[i] = mapped_arg(st, arg[i], f, keep, a->loc[i])) == NONE)
      return bad;
  if (!ct_actuals(fb, &x, formal, &e->arg, position, a)) return bad;
  if (!call_with(fb, &x, a, str_printf("%s.part", st->name), e->loc, &out, 1)) return bad;
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->n; i++)
    if (keep >> i & 1) sub[n++] = ex_index(m, i);
  if (fb->fn.value.at[out].rank != n) {
    err(fr, e->loc, "'%s' changes the shape, so it cannot be called element by element",
        callee_name(fr, &x));
    return bad;
  }
  Id r = ex_read(m, &fb->fn, out, sub);
  return (R){.kind = R_IR, .e = r, .type = (Scalar)ex(m, r)->type};
}
