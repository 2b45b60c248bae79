// The whole front end: a model's file to a Module with its entry functions.
#include "frontend/front.h"


// Which model: the one that is trained, or the only one.
static bool choose_model(Front *fr, Unit *u) {
  AstDecl *first = NULL;
  for (uint32_t i = 0; i < u->decl.n; i++) {
    AstDecl *d = u->decl.at[i];
    if (d->kind == D_TRAIN && fr->train) {
      err(fr, d->name_loc, "a file has one train block");
      note(fr, fr->train->name_loc, "the first one is here");
      return false;
    }
    if (d->kind == D_TRAIN) fr->train = d;
    if (d->kind == D_MODEL && !first) first = d;
  }
  fr->model = fr->train ? unit_find(u, fr->train->name, D_MODEL) : first;
  if (fr->model) return true;
  Str names[] = {first ? first->name : NULL};
  Str near = first ? did_you_mean(fr->train->name, names, 1) : NULL;
  if (fr->train)
    err(fr, fr->train->name_loc, "there is no model '%s'%s", fr->train->name,
        near ? str_printf("; did you mean '%s'?", near) : "");
  else err(fr, loc_new(fr->src, u->file, 1, 1, 1, 0), "there is no model in this file");
  return false;
}

// Shape of a data argument: the microbatch first; t is the length of a sample; other sizes are the
// model's.
static bool data_shape(Front *fr, const Arg *f, int64_t batch, Shape *s) {
  const Train *t = &fr->m->train;
  Env env = {fr, fr->main, fr->root, NULL};
  if (!formal_is_tensor(f)) {
    err(fr, formal_loc(f), "the arguments of the loss are data: tensors such as %s[b, t]: int",
        formal_name(f));
    return false;
  }
  const ArgList *dim = &f->value->arg;
  *s = (Shape){.type = formal_type(f), .rank = dim->n};
  if (!dim->n || dim->n > MAX_RANK || dim->at[0].value->kind != A_NAME ||
      lookup(&env, dim->at[0].value->name).kind == ENT_CT) {
    err(fr, f->value->loc,
        "the first dimension of a data argument is the batch: give it a new name, such as b");
    return false;
  }
  s->extent[0] = batch;
  s->per_sample[0] = 1;
  for (uint32_t d = 1; d < dim->n; d++) {
    const Ast *e = dim->at[d].value;
    bool known = e->kind != A_NAME || lookup(&env, e->name).kind == ENT_CT;
    if (t->length && d == 1 && (t->data == DATA_TOKENS || t->data == DATA_BYTES))
      s->extent[d] = t->length;
    else if (known && !ct_size(&env, e, &s->extent[d])) return false;
    else if (!known) {
      err(fr, e->loc,
          "the extent of '%s' is not known: name a size of the model here, or give the train block "
          "data with a length",
          e->name);
      return false;
    }
  }
  return true;
}

// tokens(...) and bytes(...) give tokens and targets.
static bool check_data(Front *fr, const AstStmt *loss) {
  DataKind k = fr->m->train.data;
  if (k != DATA_TOKENS && k != DATA_BYTES) return true;
  bool ok = loss->formal.n == 2;
  for (uint32_t i = 0; ok && i < 2; i++) {
    const Arg *f = &loss->formal.at[i];
    ok = formal_is_tensor(f) && formal_type(f) == DT_I32 && f->value->arg.n == 2;
  }
  if (!ok)
    err(fr, loss->name_loc,
        "data of tokens or bytes needs loss(tokens[b, t]: int, targets[b, t]: int)");
  return ok;
}

static bool scalar_result(Fb *fb, Id v, Id loc, const char *what) {
  Shape s = value_shape(fb, v);
  if (s.rank == 0 && s.type == DT_REAL) return true;
  err(fb->fr, loc, "%s is a real scalar, and this is %s", what, shape_text(fb->fr, &s));
  return false;
}

// Metrics are expressions over names that the loss has bound.
static bool add_metrics(Fb *fb) {
  Front *fr = fb->fr;
  Metric metric[MAX_METRICS];
  uint32_t n = train_metrics(fr, metric, MAX_METRICS), known = fr->m->metric.n;
  bool ok = true;
  for (uint32_t i = 0; i < n; i++) {
    Id v =
        val_tensor(fb, whole(fb, metric[i].value, metric[i].name), DT_REAL, metric[i].value->loc);
    if (v == NONE || !scalar_result(fb, v, metric[i].value->loc, "a metric")) {
      ok = false;
      continue;
    }
    PUSH(fr->arena, fb->result, v);
    if (!known) PUSH(fr->arena, fr->m->metric, metric[i].name);
  }
  return ok;
}

// The loss for one microbatch as a function that is not yet in the module; NULL after errors.
static Fb *build_loss(Front *fr, const AstStmt *loss, int64_t batch, bool training, Str name) {
  Fb *fb = fb_new(fr, fr->main, fr->root, name, loss->name_loc, training);
  fr->depth = fr->calls = fr->nsite = 0;
  if (loss->formal.n > MAX_DATA) {
    err(fr, formal_loc(&loss->formal.at[MAX_DATA]), "the loss takes at most %d arguments of data", MAX_DATA);
    return NULL;
  }
  for (uint32_t i = 0; i < loss->formal.n; i++) {
    Shape s;
    const Arg *f = &loss->formal.at[i];
    if (!data_shape(fr, f, batch, &s) || !bind_formal(fb, f, &s, f->value->loc)) return NULL;
  }
  fb_params(fb);
  for (uint32_t i = 0; i < fb->fn.arg.n; i++) {
    bool data = i < loss->formal.n;
    Value *v = &fb->fn.value.at[fb->fn.arg.at[i]];
    v->means = data ? MEANS_DATA : MEANS_PARAM;
    v->of = data ? i : i - loss->formal.n;
  }
  run_body(fb, &loss->body);
  if (fb->failed) return NULL;
  if (fb->result.n != 1) {
    err(fr, loss->name_loc, "the loss returns one value");
    return NULL;
  }
  return fb;
}

static bool make_entry(Front *fr, const AstStmt *loss, Entry which, bool training,
                       const char *suffix) {
  uint32_t before = fr->nerror;
  Fb *fb = build_loss(fr, loss, fr->m->train.microbatch, training,
                      str_printf("%s.%s", fr->m->name, suffix));
  if (!fb || !scalar_result(fb, fb->result.at[0], fb->result_loc.at[0], "the loss") ||
      !add_metrics(fb)) {
    CHECK(fr->nerror > before); // a failure says why
    return false;
  }
  fr->m->entry[which] = fb_finish(fb);
  return fr->nerror == before;
}

static void mark_live(Id value, void *ctx) { ((bool *)ctx)[value] = true; }

// Marks what the result needs, from the last statement back; stmt[i] says which statements stay.
static void find_live(Module *m, const Fn *f, bool *value, bool *stmt) {
  for (uint32_t i = f->stmt.n; i-- > 0;) {
    const Stmt *s = &f->stmt.at[i];
    bool need = s->kind == ST_COMP && value[s->lhs];
    for (uint32_t k = 0; s->call && k < s->call->nresult; k++)
      need |= value[s->call->result[k].value];
    stmt[i] = need;
    if (!need) continue;
    stmt_reads(m, f, s, mark_live, value);
    for (uint32_t k = 0; s->call && k < s->call->nresult; k++)
      value[s->call->result[k].value] = true;
  }
}

// Drops values that are not marked and renumbers the rest.
static void compact(Module *m, Fn *f, const bool *value, const bool *stmt) {
  Id *to = NEWN(m->arena, Id, f->value.n);
  Fn old = *f;
  f->value.n = f->stmt.n = f->arg.n = f->result.n = 0;
  f->value.at = NULL, f->value.cap = 0;
  for (Id v = 0; v < old.value.n; v++) {
    to[v] = value[v] ? f->value.n : NONE;
    if (value[v]) PUSH(m->arena, f->value, old.value.at[v]);
  }
  for (uint32_t i = 0; i < old.arg.n; i++)
    if (to[old.arg.at[i]] != NONE) f->arg.at[f->arg.n++] = to[old.arg.at[i]];
  for (uint32_t i = 0; i < old.stmt.n; i++) {
    if (!stmt[i]) continue;
    Stmt s = old.stmt.at[i];
    if (s.kind == ST_COMP) {
      for (uint32_t d = 0; d < old.value.at[s.lhs].rank; d++)
        s.sub[d] = ex_rename(m, s.sub[d], NULL, to);
      s.body = ex_rename(m, s.body, NULL, to);
      s.lhs = to[s.lhs];
    }
    for (uint32_t k = 0; s.call && k < s.call->narg; k++)
      if (s.call->arg[k].value != NONE) s.call->arg[k].value = to[s.call->arg[k].value];
    for (uint32_t k = 0; s.call && k < s.call->nresult; k++)
      s.call->result[k].value = to[s.call->result[k].value];
    f->stmt.at[f->stmt.n++] = s;
  }
}

// The function that gives logits[1, t, v] for one sequence of tokens, where the loss binds
// `logits` and they depend on nothing but the tokens. A model without such logits has none; that
// is no error.
static void make_sample(Front *fr, const AstStmt *loss) {
  const Arg *f = loss->formal.n ? &loss->formal.at[0] : NULL;
  if (!f || formal_type(f) != DT_I32 || f->value->arg.n != 2) return;
  Module *m = fr->m;
  fr->quiet = true;
  uint32_t nerror = fr->nerror;
  Fb *fb = build_loss(fr, loss, 1, false, str_printf("%s.sample", m->name));
  Binding *b = fb ? bind_find(fb, str_intern("logits")) : NULL;
  fr->quiet = false;
  fr->nerror = nerror;
  fr->trail_due = false;
  if (!b || b->value == NONE || b->failed) return;
  Shape s = value_shape(fb, b->value);
  Shape t = value_shape(fb, 0);
  if (s.rank != 3 || s.type != DT_REAL || s.extent[0] != 1 || s.extent[1] != t.extent[1]) return;
  bool *value = NEWN(fr->arena, bool, fb->fn.value.n), *stmt = NEWN(fr->arena, bool, fb->fn.stmt.n);
  value[b->value] = true;
  find_live(m, &fb->fn, value, stmt);
  for (uint32_t i = 1; i < loss->formal.n; i++)
    if (value[i]) return;
  value[0] = true;
  for (uint32_t i = 0; i < m->param.n; i++) value[fb->param[i]] = true;
  if (fb->fn.value.at[b->value].role != ROLE_LOCAL) return;
  Id result = 0;
  for (Id v = 0; v < b->value; v++) result += value[v];
  compact(m, &fb->fn, value, stmt);
  PUSH(fr->arena, fb->fn.result, result);
  Id id = fn_new(m, fb->fn.name, fb->fn.loc);
  m->fn.at[id] = fb->fn;
  m->entry[ENTRY_SAMPLE] = id;
}

// In a model with `local` extents mean a microbatch, and no index has to be found by them.
static void unmark_batch(Module *m) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      Stmt *s = &m->fn.at[f].stmt.at[i];
      for (uint32_t k = 0; s->kind == ST_COMP && k < s->nindex; k++) s->index[k].batch = false;
    }
}

static bool compile(Front *fr) {
  fr->main = unit_load(fr, fr->opt->path, fr->opt->text, 0);
  if (fr->nerror || !fr->main || !choose_model(fr, fr->main)) return false;
  fr->m->name = fr->model->name;
  read_defines(fr);
  fr->root = layer_root(fr, fr->model, fr->main);
  if (!fr->root || fr->nerror) return false;
  for (uint32_t i = 0; i < fr->root->param.n; i++)
    PUSH(fr->arena, fr->m->param, fr->root->param.at[i]);
  AstStmt *loss = method_find(fr->root, str_intern("loss"));
  bool ok = train_block(fr);
  ok = check_defines(fr) && ok;
  if (!loss) {
    err(fr, fr->model->name_loc, "model '%s' has no loss: loss(tokens[b, t]: int, ...) { ... }",
        fr->model->name);
    return false;
  }
  if (!ok || !check_formals(fr, &loss->formal, true) || !check_data(fr, loss)) return false;
  fr->m->ndata = loss->formal.n;
  if (!make_entry(fr, loss, ENTRY_LOSS, true, "loss") ||
      !make_entry(fr, loss, ENTRY_EVAL_LOSS, false, "eval_loss"))
    return false;
  report_number_of_samples(fr);
  make_sample(fr, loss);
  if (fr->local) unmark_batch(fr->m);
  return true;
}

static Front *front_new(Arena *a, Sources *s, const FrontendOptions *o) {
  Front *fr = NEW(a, Front);
  fr->arena = a;
  fr->src = s;
  fr->opt = o;
  fr->m = module_new(a, s);
  return fr;
}

Module *frontend_compile(Arena *a, Sources *s, const FrontendOptions *o) {
  Front *fr = front_new(a, s, o);
  return compile(fr) && !fr->nerror ? fr->m : NULL;
}

bool frontend_print_ast(Arena *a, Sources *s, const FrontendOptions *o, Buf *out) {
  Front *fr = front_new(a, s, o);
  Unit *u = unit_load(fr, o->path, o->text, 0);
  if (!u || fr->nerror) return false;
  for (uint32_t i = 0; i < u->decl.n; i++) ast_print_decl(u->decl.at[i], out);
  return true;
}
