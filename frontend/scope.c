// The meaning of a name. Innermost first: names of the body, the layer's fields and arguments, the
// file's declarations and the files that it uses, builtins. (Indices of a statement come
// before all of these; comp.c looks there first.)
#include "frontend/front.h"

static const char *const builtins[] = {
    "where",  "real", "int",  "stop_gradient", "random", "min",    "max",     "abs",
    "exp",    "log",  "sqrt", "sin",           "cos",    "tanh",   "erf",     "floor",
    "pow",    "sum",  "mean", "argmax",        "local",  "relu",   "sigmoid", "rsqrt",
    "square", "ceil", "pad",  "slice",         "concat", "cumsum", "topk"};

bool is_builtin(Str name) {
  for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
    if (!strcmp(builtins[i], name)) return true;
  return ct_function(name);
}

Binding *bind_find(Fb *fb, Str name) {
  uint32_t i = map_find(&fb->bound, name);
  return i == NONE ? NULL : &fb->bind.at[i];
}

// A new meaning for a name; it replaces an earlier one.
Binding *bind(Fb *fb, Str name, Id loc) {
  Binding *b = bind_find(fb, name);
  if (!b) {
    PUSH(fb->fr->arena, fb->bind, (Binding){0});
    map_set(fb->fr->arena, &fb->bound, name, fb->bind.n - 1);
    b = &fb->bind.at[fb->bind.n - 1];
  }
  *b = (Binding){.name = name, .loc = loc, .value = NONE};
  return b;
}

static Entity of_field(Env *env, Field *f, uint32_t first, bool in_stack) {
  switch (f->kind) {
  case F_CT: return (Entity){.kind = ENT_CT, .ct = f->ct};
  case F_ABSENT: return (Entity){.kind = ENT_ABSENT};
  case F_ERROR: return (Entity){.kind = ENT_ERROR};
  case F_PARAM:
    if (!env->fb || !env->fb->param) return (Entity){.kind = ENT_VALUE, .value = NONE};
    return (Entity){.kind = ENT_VALUE, .value = env->fb->param[first + f->first]};
  case F_LAYER:
  case F_STACK:
    return (Entity){.kind = ENT_LAYER,
                    .type = f->type,
                    .stack = f->kind == F_STACK,
                    .count = f->count,
                    .first = first + f->first,
                    .in_stack = in_stack};
  }
  return (Entity){.kind = ENT_NONE};
}

static Entity of_unit(Unit *u, Str name) {
  AstDecl *d = unit_find(u, name, D_FN);
  if (d) return (Entity){.kind = ENT_FN, .decl = d, .unit = u};
  d = unit_find(u, name, D_LAYER);
  if (d) return (Entity){.kind = ENT_TEMPLATE, .decl = d, .unit = u};
  return (Entity){.kind = ENT_NONE};
}

Entity lookup(Env *env, Str name) {
  Binding *b = env->fb ? bind_find(env->fb, name) : NULL;
  if (b && b->failed) return (Entity){.kind = ENT_ERROR};
  if (b && b->is_ct) return (Entity){.kind = ENT_CT, .ct = b->ct};
  if (b) return (Entity){.kind = ENT_VALUE, .value = b->value, .binding = b};
  Field *f = env->layer ? field_find(env->layer, name) : NULL;
  if (f) return of_field(env, f, 0, false);
  AstStmt *m = env->layer && env->fb ? method_find(env->layer, name) : NULL;
  if (m) return (Entity){.kind = ENT_METHOD, .type = env->layer, .method = m};
  if (env->fb && !strcmp(name, "training")) {
    env->fb->uses_training = true;
    return (Entity){.kind = ENT_CT, .ct = ct_bool(env->fb->training)};
  }
  Entity e = of_unit(env->unit, name);
  if (e.kind != ENT_NONE) return e;
  bool known;
  Unit *u = unit_use(env->unit, name, &known);
  if (known) return u ? (Entity){.kind = ENT_UNIT, .unit = u} : (Entity){.kind = ENT_ERROR};
  if (!strcmp(name, "inf")) return (Entity){.kind = ENT_CT, .ct = ct_real(__builtin_inf())};
  if (!strcmp(name, "pi")) return (Entity){.kind = ENT_CT, .ct = ct_real(3.14159265358979323846)};
  if (!strcmp(name, "zeros"))
    return (Entity){.kind = ENT_CT, .ct = {.kind = CT_INIT, .init = IR_ZEROS}};
  if (!strcmp(name, "ones"))
    return (Entity){.kind = ENT_CT, .ct = {.kind = CT_INIT, .init = IR_ONES}};
  if (is_builtin(name)) return (Entity){.kind = ENT_BUILTIN, .name = name};
  return (Entity){.kind = ENT_NONE};
}

Entity resolve_object(Env *env, const Ast *e) {
  Binding *b = e->kind == A_NAME && env->fb ? bind_find(env->fb, e->name) : NULL;
  Field *f = b && b->size && env->layer ? field_find(env->layer, e->name) : NULL;
  if (f && (f->kind == F_LAYER || f->kind == F_STACK)) return of_field(env, f, 0, false);
  return resolve(env, e);
}

Entity resolve(Env *env, const Ast *e) {
  if (e->kind == A_NAME) return lookup(env, e->name);
  if (e->kind == A_ERROR) return (Entity){.kind = ENT_ERROR};
  if (e->kind != A_FIELD) return (Entity){.kind = ENT_NONE};
  Entity base = resolve_object(env, e->a);
  if (base.kind == ENT_ERROR) return base;
  if (base.kind == ENT_UNIT) return of_unit(base.unit, e->name);
  if (base.kind != ENT_LAYER) return (Entity){.kind = ENT_NONE};
  Field *f = field_find(base.type, e->name);
  bool empty = base.empty || (base.stack && !base.count);
  if (f && f->kind == F_PARAM && empty) return (Entity){.kind = ENT_ABSENT};
  if (f) {
    Entity r = of_field(env, f, base.first, base.in_stack || base.stack);
    r.empty = empty;
    return r;
  }
  AstStmt *m = method_find(base.type, e->name);
  if (!m) return (Entity){.kind = ENT_NONE};
  base.kind = ENT_METHOD;
  base.method = m;
  return base;
}

typedef VEC(Str) Names;

static void unit_names(Front *fr, Unit *u, Names *out) {
  for (uint32_t i = 0; i < u->decl.n; i++)
    if (u->decl.at[i]->kind == D_FN || u->decl.at[i]->kind == D_LAYER)
      PUSH(fr->arena, *out, u->decl.at[i]->name);
}

static void layer_names(Front *fr, LayerType *t, Names *out) {
  for (uint32_t i = 0; i < t->field.n; i++) PUSH(fr->arena, *out, t->field.at[i].name);
  for (uint32_t i = 0; i < t->decl->body.n; i++)
    if (t->decl->body.at[i]->tag == S_METHOD) PUSH(fr->arena, *out, t->decl->body.at[i]->name);
}

static void all_names(Env *env, Names *out) {
  Front *fr = env->fr;
  for (uint32_t i = 0; env->fb && i < env->fb->bind.n; i++)
    PUSH(fr->arena, *out, env->fb->bind.at[i].name);
  if (env->layer) layer_names(fr, env->layer, out);
  unit_names(fr, env->unit, out);
  for (uint32_t i = 0; i < env->unit->use.n; i++) PUSH(fr->arena, *out, env->unit->use.at[i].name);
  if (env->fb) PUSH(fr->arena, *out, str_intern("training"));
  for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
    PUSH(fr->arena, *out, str_intern(builtins[i]));
}

// A used file that has the name, for `Linear` where nn.Linear is meant.
static Str in_used_file(Env *env, Str name) {
  for (uint32_t i = 0; i < env->unit->use.n; i++) {
    Unit *u = env->unit->use.at[i].unit;
    if (u && of_unit(u, name).kind != ENT_NONE)
      return str_printf("%s.%s", env->unit->use.at[i].name, name);
  }
  return NULL;
}

// What other languages have, and how it is said here; NULL for any other name.
static const char *said_here(Str name) {
  static const struct {
    const char *name, *here;
  } known[] = {
      {"self", "fields of a layer have no prefix: fc(x), not self.fc(x)"},
      {"F", "relu, exp and the like are known everywhere; softmax and others are in nn: `use nn`"},
      {"torch", "relu, exp and the like are known everywhere; layers are in nn: `use nn`"},
      {"prod", "a product over an index is exp(sum(i: log(x[i]))) of positive numbers"},
      {"clamp", "min(max(x, low), high) keeps x in a range"},
      {"clip", "min(max(x, low), high) keeps x in a range"},
      {"matmul", "a product of matrices is y[i, j] = sum(k: a[i, k] * b[k, j])"},
      {"einsum", "a product of tensors is y[i, j] = sum(k: a[i, k] * b[k, j])"},
      {"Dense", "nn.Linear(in, out) is a dense layer"}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (!strcmp(known[i].name, name)) return known[i].here;
  return NULL;
}

// "Embedding, Linear, ...": the names in a file or layer, if none of them is near.
static const char *all_of(Front *fr, const Names *names) {
  const char *text = "";
  for (uint32_t i = 0; i < names->n; i++)
    text = arena_printf(fr->arena, "%s%s%s", text, i ? ", " : "", names->at[i]);
  return text;
}

static void unknown_field(Env *env, const Ast *e) {
  Front *fr = env->fr;
  Entity base = resolve(env, e->a);
  Buf text = {0};
  ast_print_expr(e->a, &text);
  Names names = {0};
  if (base.kind == ENT_UNIT) unit_names(fr, base.unit, &names);
  if (base.kind == ENT_LAYER) layer_names(fr, base.type, &names);
  Str near = did_you_mean(e->name, names.at, names.n);
  if (base.kind == ENT_NONE) unknown_name(env, e->a, "name");
  else if (base.kind == ENT_UNIT || base.kind == ENT_LAYER) {
    const char *here = said_here(e->name), *kind = base.kind == ENT_UNIT ? "file" : "layer";
    if (near)
      err(fr, e->loc, "%s '%s' has no '%s'; did you mean '%s'?", kind, text.text, e->name, near);
    else if (here) err(fr, e->loc, "%s '%s' has no '%s'; %s", kind, text.text, e->name, here);
    else
      err(fr, e->loc, "%s '%s' has no '%s'; it has %s", kind, text.text, e->name,
          names.n ? all_of(fr, &names) : "nothing");
  } else if (base.kind == ENT_VALUE && is_builtin(e->name))
    err(fr, e->loc, "'%s' has no fields; a function takes it: %s(%s)", text.text, e->name,
        text.text);
  else if (base.kind != ENT_ERROR) err(fr, e->loc, "'%s' has no fields", text.text);
  buf_free(&text);
}

// A layer that is made where it is called: nn.Linear(n, n)(x). False: this is something else.
static bool made_in_place(Env *env, const Ast *e) {
  if (e->kind != A_CALL) return false;
  Entity made = resolve(env, e->a);
  if (made.kind != ENT_NONE && made.kind != ENT_TEMPLATE) return false;
  if (made.kind == ENT_NONE) unknown_name(env, e->a, "layer");
  else {
    Buf text = {0};
    ast_print_expr(e->a, &text);
    err(env->fr, e->loc, "a layer is made in a layer's body, and called in its methods: name = %s(...) there, name(...) here",
        text.text);
    buf_free(&text);
  }
  return true;
}

void unknown_name(Env *env, const Ast *e, const char *what) {
  if (e->kind == A_FIELD) {
    unknown_field(env, e);
    return;
  }
  if (made_in_place(env, e)) return;
  if (e->kind != A_NAME) {
    err(env->fr, e->loc, "expected a %s", what);
    return;
  }
  if (!env->fb && !strcmp(e->name, "training")) {
    err(env->fr, e->loc,
        "'training' is known in methods only: a layer's fields are the same in training and "
        "validation");
    return;
  }
  Names names = {0};
  bool layer = !strcmp(what, "layer");
  for (uint32_t i = 0; layer && i < env->unit->decl.n; i++)
    if (env->unit->decl.at[i]->kind == D_LAYER)
      PUSH(env->fr->arena, names, env->unit->decl.at[i]->name);
  if (!layer) all_names(env, &names);
  const char *here = said_here(e->name);
  if (here) {
    err(env->fr, e->loc, "unknown %s '%s'; %s", what, e->name, here);
    return;
  }
  Str near = in_used_file(env, e->name);
  if (!near) near = did_you_mean(e->name, names.at, names.n);
  if (near) err(env->fr, e->loc, "unknown %s '%s'; did you mean '%s'?", what, e->name, near);
  else err(env->fr, e->loc, "unknown %s '%s'", what, e->name);
}
