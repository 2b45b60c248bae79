// Templates to layer types: arguments and fields are evaluated, parameters of the whole subtree
// laid out in order of declaration.
#include <math.h>

#include "frontend/front.h"

enum { MAX_PARAMS = 100000, MAX_LAYERS = 1000000 };

Field *field_find(LayerType *t, Str name) {
  for (uint32_t i = t->field.n; i-- > 0;)
    if (t->field.at[i].name == name) return &t->field.at[i];
  return NULL;
}

static AstStmt *method_in(const StmtList *body, Str name) {
  for (uint32_t i = 0; i < body->n; i++)
    if (body->at[i]->tag == S_METHOD && body->at[i]->name == name) return body->at[i];
  return NULL;
}

AstStmt *method_find(LayerType *t, Str name) { return method_in(&t->decl->body, name); }

// Formals: x[...] is a tensor, with a type after a colon; anything else is a compile-time argument,
// maybe with a preset.
bool formal_is_tensor(const Arg *f) {
  return !f->name && f->value && f->value->kind == A_INDEX && f->value->a->kind == A_NAME;
}

Str formal_name(const Arg *f) {
  if (f->name) return f->name;
  if (formal_is_tensor(f)) return f->value->a->name;
  return f->value && f->value->kind == A_NAME ? f->value->name : NULL;
}

Id formal_loc(const Arg *f) {
  if (f->name) return f->name_loc;
  return formal_is_tensor(f) ? f->value->a->loc : f->value->loc;
}

static bool formal_type_ok(Front *fr, const Arg *f) {
  if (!f->note) return true;
  Str t = f->note->kind == A_NAME ? f->note->name : "";
  bool known = !strcmp(t, "int") || !strcmp(t, "real") || !strcmp(t, "bool");
  if (f->note->kind == A_ERROR || (known && formal_is_tensor(f))) return true;
  if (known) err(fr, f->note->loc, "only tensors, with [...] after the name, have a type");
  else err(fr, f->note->loc, "expected a type: real, int or bool");
  return false;
}

bool check_formals(Front *fr, const ArgList *formal, bool tensors) {
  bool ok = true;
  if (formal->n > MAX_ARGS) {
    err(fr, formal_loc(&formal->at[MAX_ARGS]), "there are at most %d arguments", MAX_ARGS);
    return false;
  }
  for (uint32_t i = 0; i < formal->n; i++) {
    const Arg *f = &formal->at[i];
    Str name = formal_name(f);
    if (!name) {
      if (f->value->kind != A_ERROR) err(fr, f->value->loc, "expected the name of an argument");
      ok = false;
    } else if (formal_is_tensor(f) && !tensors) {
      err(fr, f->value->loc,
          "a template's arguments are compile-time values; its methods take tensors");
      ok = false;
    } else if (!formal_type_ok(fr, f)) {
      ok = false;
    }
    for (uint32_t j = 0; name && j < i; j++)
      if (formal_name(&formal->at[j]) == name) {
        err(fr, formal_loc(f), "two arguments have the name '%s'", name);
        ok = false;
      }
  }
  return ok;
}

static void unknown_argument(Front *fr, const char *what, const ArgList *formal, const Arg *a) {
  Str names[MAX_ARGS];
  for (uint32_t i = 0; i < formal->n; i++) names[i] = formal_name(&formal->at[i]);
  Str near = did_you_mean(a->name, names, formal->n);
  if (near)
    err(fr, a->name_loc, "%s has no argument '%s'; did you mean '%s'?", what, a->name, near);
  else err(fr, a->name_loc, "%s has no argument '%s'", what, a->name);
}

bool match_args(Front *fr, const char *what, const ArgList *formal, Id decl_loc, const ArgList *arg,
                Id loc, int *position) {
  for (uint32_t i = 0; i < formal->n; i++) position[i] = -1;
  for (uint32_t i = 0; i < arg->n; i++) {
    const Arg *a = &arg->at[i];
    uint32_t at = i;
    if (a->note) {
      err(fr, a->note->loc, "unexpected ':' in an argument");
      return false;
    }
    for (at = a->name ? 0 : i;
         a->name && at < formal->n && formal_name(&formal->at[at]) != a->name;)
      at++;
    if (a->name && at == formal->n) {
      unknown_argument(fr, what, formal, a);
      note(fr, decl_loc, "%s is declared here", what);
      return false;
    }
    if (at >= formal->n) {
      err(fr, a->value->loc, "%s takes %u argument%s, and this is one more", what, formal->n,
          formal->n == 1 ? "" : "s");
      note(fr, decl_loc, "%s is declared here", what);
      return false;
    }
    if (position[at] >= 0) {
      err(fr, a->name_loc, "argument '%s' is given twice", formal_name(&formal->at[at]));
      return false;
    }
    position[at] = (int)i;
  }
  for (uint32_t i = 0; i < formal->n; i++)
    if (position[i] < 0 && !formal->at[i].name) {
      err(fr, loc, "%s needs its argument '%s'", what, formal_name(&formal->at[i]));
      note(fr, formal_loc(&formal->at[i]), "'%s' is declared here", formal_name(&formal->at[i]));
      return false;
    }
  return true;
}

static Field *add_field(Front *fr, LayerType *t, Str name, Id loc, FieldKind kind) {
  Field *old = field_find(t, name);
  if (old) {
    err(fr, loc, "'%s' is defined twice in layer '%s'", name, t->decl->name);
    note(fr, old->loc, "the first definition is here");
  }
  PUSH(fr->arena, t->field, (Field){.name = name, .kind = kind, .loc = loc, .first = t->param.n});
  return &t->field.at[t->field.n - 1];
}

static bool fits(const int64_t *extent, uint32_t n) {
  int64_t bytes = 8;
  for (uint32_t i = 0; i < n; i++)
    if (!mul_ok(bytes, extent[i], &bytes)) return false;
  return true;
}

static double product(const Param *p, int from, int to) {
  double n = 1;
  for (int i = from; i < to; i++) n *= (double)p->extent[i];
  return n;
}

// The rules by fan come down to normal and uniform: Glorot and Bengio 2010, He et al. 2015.
static bool set_init(Front *fr, Param *p, const Ct *c, Id loc) {
  double in = p->bar >= 0 ? product(p, 0, p->bar) : 0,
         out = p->bar >= 0 ? product(p, p->bar, p->rank) : 0;
  double gain2 = 2 / (1 + c->r * c->r), limit = 0, std = 0;
  if (c->init >= IR_XAVIER_UNIFORM && p->bar < 0) {
    err(fr, loc,
        "this initialiser needs fan-in and fan-out: write the parameter with a bar, as in w[in | "
        "out]");
    return false;
  }
  switch (c->init) {
  case IR_ZEROS: p->init = INIT_ZEROS; return true;
  case IR_ONES: p->init = INIT_ONES; return true;
  case IR_CONST:
    p->init = INIT_CONST;
    p->init_a = c->r;
    return true;
  case IR_NORMAL:
    p->init = INIT_NORMAL;
    p->init_a = c->r;
    p->init_b = c->r2;
    return true;
  case IR_UNIFORM:
    p->init = INIT_UNIFORM;
    p->init_a = c->r;
    p->init_b = c->r2;
    return true;
  case IR_XAVIER_UNIFORM: limit = c->r * sqrt(6 / (in + out)); break;
  case IR_XAVIER_NORMAL: std = c->r * sqrt(2 / (in + out)); break;
  case IR_KAIMING_UNIFORM: limit = sqrt(3 * gain2 / in); break;
  case IR_KAIMING_NORMAL: std = sqrt(gain2 / in); break;
  }
  p->init = std > 0 ? INIT_NORMAL : INIT_UNIFORM;
  p->init_a = std > 0 ? 0 : -limit;
  p->init_b = std > 0 ? std : limit;
  return true;
}

static bool param_options(Env *env, const AstStmt *s, Param *p) {
  p->decay = p->bar >= 0;
  for (uint32_t i = 0; i < s->formal.n; i++) {
    const Arg *a = &s->formal.at[i];
    if (strcmp(a->name, "decay")) {
      err(env->fr, a->name_loc,
          "a parameter has no option '%s'; `decay = false` turns weight decay off", a->name);
      return false;
    }
    if (i) {
      err(env->fr, a->name_loc, "'decay' is given twice");
      return false;
    }
    if (!ct_cond(env, a->value, &p->decay)) return false;
  }
  return true;
}

static bool make_param(Env *env, const AstStmt *s, Param *p) {
  Front *fr = env->fr;
  *p = (Param){
      .name = s->name, .rank = (uint8_t)s->target.n, .bar = (int8_t)s->bar, .loc = s->name_loc};
  if (s->target.n > MAX_RANK) {
    err(fr, s->name_loc, "a tensor has at most %d dimensions", MAX_RANK);
    return false;
  }
  bool ok = true;
  for (uint32_t i = 0; i < s->target.n && !fr->bad_size; i++)
    ok &= ct_size(env, s->target.at[i], &p->extent[i]);
  if (!ok) return false;
  if (!fits(p->extent, p->rank)) {
    err(fr, s->name_loc, "parameter '%s' of shape %s is too large", s->name,
        extents_text(fr, p->extent, p->rank));
    return false;
  }
  if (!s->value) {
    err(fr, s->name_loc, "parameter '%s' needs an initialiser: `= normal(0.02)`, `= zeros`, ...",
        s->name);
    return false;
  }
  Ct init = ct_eval(env, s->value);
  if (init.kind == CT_ERROR) return false;
  if (init.kind != CT_INIT) {
    err(fr, s->value->loc,
        "an initialiser is needed here (zeros, ones, normal, uniform, constant, xavier, kaiming, "
        "residual), and this is %s",
        ct_kind_text(&init));
    return false;
  }
  return set_init(fr, p, &init, s->value->loc) && param_options(env, s, p) &&
         param_shard(fr, s, p);
}

static void add_param(Env *env, const AstStmt *s) {
  LayerType *t = env->layer;
  bool present = true, ok = !s->cond || ct_cond(env, s->cond, &present);
  Param p;
  ok = ok && (!present || make_param(env, s, &p));
  Field *f = add_field(env->fr, t, s->name, s->name_loc,
                       !ok       ? F_ERROR
                       : present ? F_PARAM
                                 : F_ABSENT);
  (void)f;
  if (!ok) t->failed = true;
  else if (present) PUSH(env->fr->arena, t->param, p);
}

// Layers of a parameter, those of stacks in stacks counted: each has a place in the program's tables.
static bool few_layers(Front *fr, const Param *p, Id loc) {
  int64_t n = 1;
  for (uint32_t d = 0; d < p->nstack; d++)
    if (!mul_ok(n, p->extent[d], &n)) n = INT64_MAX;
  if (n <= MAX_LAYERS) return true;
  err(fr, loc, "a stack has at most %d layers with parameters, those of stacks in it counted",
      MAX_LAYERS);
  return false;
}

// Parameters of a sublayer under its name; those of a stack get its count as their first extent.
static bool take_params(Env *env, LayerType *sub, Str name, int64_t count, Id loc) {
  LayerType *t = env->layer;
  if (t->param.n + sub->param.n > MAX_PARAMS) {
    err(env->fr, loc, "a model has at most %d parameters, a stack's counted once", MAX_PARAMS);
    return false;
  }
  for (uint32_t i = 0; i < sub->param.n; i++) {
    Param p = sub->param.at[i];
    p.name = str_printf(count ? "%s.*.%s" : "%s.%s", name, p.name);
    if (count) {
      if (p.rank == MAX_RANK) {
        err(env->fr, loc, "parameter '%s' has more than %d dimensions, stacks counted", p.name,
            MAX_RANK);
        return false;
      }
      memmove(p.extent + 1, p.extent, sizeof p.extent - sizeof p.extent[0]);
      p.extent[0] = count;
      p.rank++;
      p.nstack++;
      if (!few_layers(env->fr, &p, loc)) return false;
      if (!fits(p.extent, p.rank)) {
        err(env->fr, loc, "parameter '%s' of shape %s is too large", p.name,
            extents_text(env->fr, p.extent, p.rank));
        return false;
      }
    }
    PUSH(env->fr->arena, t->param, p);
  }
  return true;
}

static LayerType *make_call(Env *env, const Ast *e) {
  Front *fr = env->fr;
  Entity x = e->kind == A_CALL ? resolve(env, e->a) : (Entity){.kind = ENT_NONE};
  if (x.kind == ENT_TEMPLATE) return layer_make(env, x.decl, x.unit, &e->arg, e->loc);
  if (e->kind == A_CALL && x.kind == ENT_NONE) unknown_name(env, e->a, "layer");
  else if (x.kind != ENT_ERROR && e->kind != A_ERROR)
    err(fr, e->loc, "a stack is made of a layer: stack n of Layer(...)");
  return NULL;
}

static LayerType *make_stack(Env *env, const Ast *e, int64_t *count) {
  Front *fr = env->fr;
  Ct n = ct_eval(env, e->b);
  *count = n.i;
  if (n.kind == CT_ERROR) return NULL;
  if (n.kind != CT_INT || n.i < 0) {
    err(fr, e->b->loc, "the count of a stack is an int that is not negative, and this is %s",
        n.kind == CT_INT ? ct_text(fr, &n) : ct_kind_text(&n));
    return NULL;
  }
  if (fr->depth == MAX_STACKS) {
    err(fr, e->loc, "stacks nest at most %d deep", MAX_STACKS);
    return NULL;
  }
  if (e->name) {
    env->layer->uses_depth = true;
    Field *f = add_field(fr, env->layer, e->name, e->loc, F_CT);
    f->ct = (Ct){.kind = CT_ITER, .level = fr->depth, .mul = 1};
  }
  fr->depth++;
  LayerType *t = make_call(env, e->a);
  fr->depth--;
  if (e->name) env->layer->field.n--;
  return t;
}

static void add_layer(Env *env, Str name, Id loc, LayerType *sub, bool stack, int64_t count) {
  LayerType *t = env->layer;
  Field *f = add_field(env->fr, t, name, loc, sub ? stack ? F_STACK : F_LAYER : F_ERROR);
  f->type = sub;
  f->count = count;
  if (sub) t->uses_depth |= sub->uses_depth;
  if (!sub || ((count || !stack) && !take_params(env, sub, name, count, loc))) t->failed = true;
}

static void add_value(Env *env, Str name, Id loc, const Ast *e) {
  Front *fr = env->fr;
  bool yes;
  Entity x = {.kind = ENT_NONE};
  if (e->kind == A_COND) {
    if (!ct_cond(env, e->b, &yes)) {
      add_field(fr, env->layer, name, loc, F_ERROR);
      env->layer->failed = true;
    } else if (yes || e->c) {
      add_value(env, name, loc, yes ? e->a : e->c);
    } else {
      add_field(fr, env->layer, name, loc, F_ABSENT);
    }
    return;
  }
  if (e->kind == A_STACK) {
    int64_t count = 0;
    LayerType *sub = make_stack(env, e, &count);
    add_layer(env, name, loc, sub, true, count);
    return;
  }
  if (e->kind == A_CALL) x = resolve(env, e->a);
  if (x.kind == ENT_TEMPLATE) {
    add_layer(env, name, loc, layer_make(env, x.decl, x.unit, &e->arg, e->loc), false, 0);
    return;
  }
  Ct c = ct_eval(env, e);
  Field *f = add_field(fr, env->layer, name, loc, c.kind == CT_ERROR ? F_ERROR : F_CT);
  f->ct = c;
  if (c.kind == CT_ERROR) env->layer->failed = true;
}

// `precision = fp32` in the body of a layer is no field: what its methods make is float in 16-bit programs.
static void set_precision(Env *env, const AstStmt *s) {
  const Ast *e = s->value;
  bool fp32 = (e->kind == A_NAME || e->kind == A_STR) && !strcmp(e->name, "fp32");
  if (env->layer->decl == env->fr->model)
    err(env->fr, s->loc, "the precision of a model stands in the train block; in a layer it is that layer's");
  else if (!fp32)
    err(env->fr, e->loc, "the precision of a layer is fp32, or it is the train block's");
  env->layer->wide = fp32;
  env->layer->failed |= !fp32 || env->layer->decl == env->fr->model;
}

static void run_fields(Env *env, const StmtList *body, bool nested) {
  bool yes;
  for (uint32_t i = 0; i < body->n && !env->fr->bad_size; i++) {
    const AstStmt *s = body->at[i];
    switch (s->tag) {
    case S_PARAM: add_param(env, s); break;
    case S_ASSIGN:
      if (s->shard.n)
        err(env->fr, s->shard.at[0].value->loc, "a field has no indices to shard"),
            env->layer->failed = true;
      else if (s->target.n == 1 && s->target.at[0]->kind == A_NAME && !strcmp(s->target.at[0]->name, "precision"))
        set_precision(env, s);
      else if (s->target.n == 1 && s->target.at[0]->kind == A_NAME)
        add_value(env, s->target.at[0]->name, s->target.at[0]->loc, s->value);
      else
        err(env->fr, s->loc, "a field of a layer is one name: `name = ...`"),
            env->layer->failed = true;
      break;
    case S_IF:
      if (ct_cond(env, s->value, &yes)) run_fields(env, yes ? &s->body : &s->other, true);
      else env->layer->failed = true;
      break;
    case S_METHOD:
      if (!s->name) err(env->fr, s->name_loc, "expected a method: name(x[...], ...) { ... }");
      else if (nested)
        err(env->fr, s->name_loc, "a method cannot be inside 'if'; put the 'if' inside the method");
      else if (method_in(body, s->name) != s)
        err(env->fr, s->name_loc, "method '%s' is defined twice", s->name);
      break;
    case S_RETURN:
    case S_ACC:
      err(env->fr, s->loc, "this belongs in a method, such as forward(x[...]) { ... }");
      break;
    case S_METRIC: err(env->fr, s->loc, "a metric belongs in the train block"); break;
    }
  }
}

static LayerType *find_type(Front *fr, AstDecl *decl, Str key) {
  for (uint32_t i = 0; i < fr->type.n; i++) {
    LayerType *t = fr->type.at[i];
    if (t->decl == decl && t->key == key &&
        (t->building || !t->uses_depth || t->depth == fr->depth))
      return t;
  }
  return NULL;
}

static LayerType *new_type(Front *fr, AstDecl *decl, Unit *unit) {
  LayerType *t = NEW(fr->arena, LayerType);
  t->decl = decl;
  t->unit = unit;
  t->depth = fr->depth;
  return t;
}

static bool may_make(Front *fr, Id loc) {
  if (fr->calls >= MAX_CALLS) {
    err(fr, loc, "layers nest more than %d deep here", MAX_CALLS);
    return false;
  }
  if (fr->type.n < MAX_INSTANCES) return true;
  if (!fr->full)
    err(fr, loc, "this model makes more than %d layers that differ in their arguments",
        MAX_INSTANCES);
  fr->full = true;
  return false;
}

static LayerType *finish_type(Front *fr, LayerType *t, Id loc) {
  for (uint32_t i = 0; i < t->field.n; i++) {
    t->key = str_printf("%s,%s", t->key ? t->key : "", ct_text(fr, &t->field.at[i].ct));
    t->uses_depth |= t->field.at[i].ct.kind == CT_ITER;
  }
  if (!t->key) t->key = str_intern("");
  LayerType *same = find_type(fr, t->decl, t->key);
  if (same && same->building) {
    err(fr, loc, "layer '%s' contains itself", t->decl->name);
    return NULL;
  }
  if (same) return same->failed ? NULL : same;
  if (!may_make(fr, loc)) return NULL;
  PUSH(fr->arena, fr->type, t);
  t->building = true;
  fr->calls++;
  Trail trail;
  trail_push(fr, &trail, loc, arena_printf(fr->arena, "layer '%s', made here", t->decl->name));
  run_fields(&(Env){fr, t->unit, t, NULL}, &t->decl->body, false);
  trail_pop(fr);
  fr->calls--;
  t->building = false;
  return t->failed ? NULL : t;
}

LayerType *layer_make(Env *env, AstDecl *decl, Unit *unit, const ArgList *arg, Id loc) {
  Front *fr = env->fr;
  int position[MAX_ARGS];
  if (!check_formals(fr, &decl->formal, false)) return NULL;
  const char *what = arena_printf(fr->arena, "layer '%s'", decl->name);
  if (!match_args(fr, what, &decl->formal, decl->name_loc, arg, loc, position)) return NULL;
  LayerType *t = new_type(fr, decl, unit);
  bool ok = true;
  for (uint32_t i = 0; i < decl->formal.n; i++) {
    const Arg *f = &decl->formal.at[i];
    Env inner = {fr, unit, t, NULL};
    Ct c = position[i] >= 0 ? ct_eval(env, arg->at[position[i]].value) : ct_eval(&inner, f->value);
    ok &= c.kind != CT_ERROR;
    Field *field = add_field(fr, t, formal_name(f), formal_loc(f), F_CT);
    field->ct = c;
    field->from = position[i] >= 0 ? arg->at[position[i]].value->loc : f->value->loc;
  }
  return ok ? finish_type(fr, t, loc) : NULL;
}

// A -D whose value is not an expression is a string: reported here, where a number is needed.
static bool kinds_agree(Front *fr, const Arg *formal, const Ct *given, Id loc, Env *env) {
  if (given->kind != CT_STR && formal->value->kind != A_STR) return true;
  Ct usual = ct_eval(env, formal->value);
  if (given->kind == CT_ERROR || usual.kind == CT_ERROR) return true; // reported already
  if ((given->kind == CT_STR) == (usual.kind == CT_STR)) return true;
  err(fr, loc, "-D %s= gives %s, and its default is %s", formal_name(formal), ct_kind_text(given),
      ct_kind_text(&usual));
  return false;
}

LayerType *layer_root(Front *fr, AstDecl *model, Unit *unit) {
  if (!check_formals(fr, &model->formal, false)) return NULL;
  LayerType *t = new_type(fr, model, unit);
  bool ok = true;
  for (uint32_t i = 0; i < model->formal.n; i++) {
    const Arg *f = &model->formal.at[i];
    Str name = formal_name(f);
    Ct c;
    Id from = f->name ? f->value->loc : 0;
    Env env = {fr, unit, t, NULL};
    if (define_value(fr, name, &c, &from)) {
      ok &= !f->name || kinds_agree(fr, f, &c, from, &env);
      c.from = from;
    } else if (f->name) {
      c = ct_eval(&env, f->value);
    } else {
      err(fr, formal_loc(f), "'%s' has no default and is not set: give it one, or -D %s=VALUE",
          name, name);
      c = ct_error();
    }
    ok &= c.kind != CT_ERROR;
    Field *field = add_field(fr, t, name, formal_loc(f), F_CT);
    field->ct = c;
    field->from = from;
  }
  if (!ok) return NULL;
  Trail *trail = fr->trail;
  t->key = str_intern("model");
  PUSH(fr->arena, fr->type, t);
  t->building = true;
  run_fields(&(Env){fr, unit, t, NULL}, &model->body, false);
  t->building = false;
  fr->trail = trail;
  return t->failed ? NULL : t;
}
