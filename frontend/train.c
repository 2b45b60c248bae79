// The train block and -D: what to train on and how.
#include <math.h>

#include "frontend/front.h"

static const char *const settings[] = {"batch", "microbatch", "steps", "eval_every",   "seed",
                                       "clip",  "precision",  "residual", "lr", "length",    "data",
                                       "val",   "warmup",     "final", "weight_decay", "momentum",
                                       "beta1", "beta2",      "eps"};
enum { NSETTING = sizeof settings / sizeof settings[0] };

void read_defines(Front *fr) {
  for (uint32_t i = 0; i < fr->opt->ndefine; i++) {
    Define d = {0};
    parse_define(fr, fr->opt->define[i], &d.name, &d.name_loc, &d.value);
    PUSH(fr->arena, fr->define, d);
  }
}

// The last -D of a name counts.
static Define *find_define(Front *fr, Str name) {
  Define *d = NULL;
  for (uint32_t i = 0; i < fr->define.n; i++)
    if (fr->define.at[i].name == name) {
      d = &fr->define.at[i];
      d->used = true;
    }
  return d;
}

bool define_value(Front *fr, Str name, Ct *out, Id *loc) {
  Define *d = find_define(fr, name);
  if (!d) return false;
  *loc = d->value->loc;
  *out = ct_eval(&(Env){fr, fr->main, NULL, NULL}, d->value);
  return true;
}

static bool is_model_size(Front *fr, Str name) {
  for (uint32_t i = 0; i < fr->model->formal.n; i++)
    if (formal_name(&fr->model->formal.at[i]) == name) return true;
  return false;
}

// A -D for a setting: `train.length` where the model has a size of that name too.
// Where it has not, both names are the setting's, and the last -D of either counts.
static Define *setting_define(Front *fr, const char *name) {
  Define *d = find_define(fr, str_printf("train.%s", name));
  if (is_model_size(fr, str_intern(name))) return d;
  Define *plain = find_define(fr, str_intern(name));
  return plain > d ? plain : d;
}

static Env train_env(Front *fr) { return (Env){fr, fr->main, fr->root, NULL}; }

static bool as_int(Front *fr, const Ast *e, const char *name, int64_t least, int64_t *out) {
  Env env = train_env(fr);
  Ct c = ct_eval(&env, e);
  if (c.kind == CT_ERROR) return false;
  *out = c.i;
  if (c.kind != CT_INT) err(fr, e->loc, "'%s' is an int, and this is %s", name, ct_kind_text(&c));
  else if (c.i < least)
    err(fr, e->loc, "'%s' is at least %lld, and this is %lld", name, (long long)least,
        (long long)c.i);
  else return true;
  return false;
}

static bool as_real(Front *fr, const Ast *e, const char *name, double least, double *out) {
  Env env = train_env(fr);
  Ct c = ct_eval(&env, e);
  if (c.kind == CT_ERROR) return false;
  if (!ct_number(&c)) {
    err(fr, e->loc, "'%s' is a number, and this is %s", name, ct_kind_text(&c));
    return false;
  }
  *out = ct_as_real(&c);
  bool rate = !strncmp(name, "beta", 4); // of a running mean
  if (!isfinite(*out)) err(fr, e->loc, "'%s' is a finite number", name);
  else if (rate && *out >= 1) err(fr, e->loc, "'%s' is below 1, and this is %g", name, *out);
  else if (*out < least) err(fr, e->loc, "'%s' is at least %g, and this is %g", name, least, *out);
  else return true;
  return false;
}

static bool as_bool(Front *fr, const Ast *e, const char *name, bool *out) {
  Env env = train_env(fr);
  Ct c = ct_eval(&env, e);
  *out = c.i != 0;
  if (c.kind != CT_BOOL && c.kind != CT_ERROR)
    err(fr, e->loc, "'%s' is true or false, and this is %s", name, ct_kind_text(&c));
  return c.kind == CT_BOOL;
}

static bool as_text(Front *fr, const Ast *e, const char *name, Str *out) {
  *out = e->name;
  if (e->kind == A_STR || e->kind == A_NAME) return true;
  if (e->kind != A_ERROR) err(fr, e->loc, "'%s' is a name or a string in quotes", name);
  return false;
}

static bool as_precision(Front *fr, const Ast *e, Str *out) {
  static const char *const known[] = {"fp32", "fp64", "bf16", "fp16"};
  if (!as_text(fr, e, "precision", out)) return false;
  for (int i = 0; i < 4; i++)
    if (!strcmp(known[i], *out)) return true;
  err(fr, e->loc, "unknown precision '%s'; expected fp32, fp64, bf16 or fp16", *out);
  return false;
}

// The type of the residual stream: float, or that of 'precision'.
static bool as_residual(Front *fr, const Ast *e, Str *out) {
  Str word;
  if (!as_text(fr, e, "residual", &word)) return false;
  *out = !strcmp(word, "fp32") ? word : NULL;
  if (*out || !strcmp(word, "precision")) return true;
  err(fr, e->loc, "'residual' is fp32 or precision (the type that 'precision' gives), and this is '%s'", word);
  return false;
}

// The arguments of optimizer and schedule: name, kind, where it goes.
typedef struct Argument {
  const char *name;
  enum { T_INT64, T_DOUBLE, T_FLAG, T_PAIR } kind;
  void *to, *to2;
  bool given;
} Argument;

static bool set_argument(Front *fr, Argument *s, const Ast *e) {
  bool two = s->kind == T_PAIR && e->kind == A_TUPLE && e->arg.n == 2;
  s->given = true;
  switch (s->kind) {
  case T_INT64: return as_int(fr, e, s->name, 0, s->to);
  case T_DOUBLE: return as_real(fr, e, s->name, 0, s->to);
  case T_FLAG: return as_bool(fr, e, s->name, s->to);
  case T_PAIR:
    if (two)
      return as_real(fr, e->arg.at[0].value, s->name, 0, s->to) &&
             as_real(fr, e->arg.at[1].value, s->name, 0, s->to2);
    err(fr, e->loc, "'%s' is a pair of numbers: (0.9, 0.999)", s->name);
  }
  return false;
}

static bool set_arguments(Front *fr, const Ast *call, Argument *argument, uint32_t n) {
  bool ok = true;
  for (uint32_t i = 0; i < call->arg.n; i++) {
    const Arg *a = &call->arg.at[i];
    Str names[8];
    uint32_t at = a->name ? 0 : i;
    for (uint32_t k = 0; k < n; k++) names[k] = str_intern(argument[k].name);
    while (a->name && at < n && names[at] != a->name) at++;
    if (at >= n || a->note || argument[at].given) {
      Str near = a->name ? did_you_mean(a->name, names, n) : NULL;
      Id loc = a->name ? a->name_loc : a->value->loc;
      if (at < n) err(fr, loc, "'%s' is given twice", argument[at].name);
      else if (near)
        err(fr, loc, "'%s' has no argument '%s'; did you mean '%s'?", call->a->name, a->name, near);
      else if (a->name) err(fr, loc, "'%s' has no argument '%s'", call->a->name, a->name);
      else err(fr, loc, "'%s' takes at most %u arguments", call->a->name, n);
      ok = false;
      continue;
    }
    ok &= set_argument(fr, &argument[at], a->value);
  }
  return ok;
}

static bool is_call(Front *fr, const Ast *e, const char *expected) {
  if (e->kind == A_CALL && e->a->kind == A_NAME) return true;
  if (e->kind != A_ERROR) err(fr, e->loc, "expected %s", expected);
  return false;
}

static bool optimizer(Front *fr, const Ast *e) {
  static const char *const what = "sgd(...), adam(...) or adamw(...)";
  Train *t = &fr->m->train;
  if (!is_call(fr, e, what)) return false;
  Str name = e->a->name;
  Argument sgd[] = {{"lr", T_DOUBLE, &t->lr, NULL, false},
                {"momentum", T_DOUBLE, &t->momentum, NULL, false},
                {"nesterov", T_FLAG, &t->nesterov, NULL, false},
                {"weight_decay", T_DOUBLE, &t->weight_decay, NULL, false}};
  Argument adam[] = {{"lr", T_DOUBLE, &t->lr, NULL, false},
                 {"betas", T_PAIR, &t->beta1, &t->beta2, false},
                 {"eps", T_DOUBLE, &t->eps, NULL, false},
                 {"weight_decay", T_DOUBLE, &t->weight_decay, NULL, false}};
  bool is_sgd = !strcmp(name, "sgd"), is_adamw = !strcmp(name, "adamw");
  t->opt = is_sgd ? OPT_SGD : is_adamw ? OPT_ADAMW : OPT_ADAM;
  t->weight_decay = is_adamw ? 0.01 : 0;
  t->lr = is_sgd ? 0.01 : 1e-3;
  if (is_sgd || is_adamw || !strcmp(name, "adam"))
    return set_arguments(fr, e, is_sgd ? sgd : adam, 4);
  err(fr, e->a->loc, "unknown optimizer '%s'; expected %s", name, what);
  return false;
}

static bool schedule(Front *fr, const Ast *e, int64_t *steps) {
  static const char *const name[] = {"constant", "linear", "cosine", "inverse_sqrt"};
  static const char *const what = "constant(...), linear(...), cosine(...) or inverse_sqrt(...)";
  Train *t = &fr->m->train;
  if (!is_call(fr, e, what)) return false;
  Argument argument[] = {{"warmup", T_INT64, &t->warmup, NULL, false},
                 {"steps", T_INT64, steps, NULL, false},
                 {"final", T_DOUBLE, &t->final, NULL, false}};
  for (int k = 0; k < 4; k++)
    if (!strcmp(name[k], e->a->name)) {
      t->schedule = (ScheduleKind)k;
      return set_arguments(fr, e, argument, k == SCHED_CONSTANT || k == SCHED_INVSQRT ? 2 : 3);
    }
  err(fr, e->a->loc, "unknown schedule '%s'; expected %s", e->a->name, what);
  return false;
}

typedef struct Source {
  DataKind kind;
  Str path;
  int64_t length;
  VEC(Str) name;
  VEC(Str) file;
  Id loc;
} Source;

static bool read_arrays(Front *fr, const Ast *e, Source *s) {
  s->kind = DATA_ARRAYS;
  for (uint32_t i = 0; i < e->arg.n; i++) {
    const Arg *a = &e->arg.at[i];
    if (!a->name || !a->value || a->value->kind != A_STR) {
      err(fr, a->name ? a->name_loc : a->value->loc,
          "expected NAME = \"FILE.npy\" for each data argument of the loss");
      return false;
    }
    for (uint32_t k = 0; k < s->name.n; k++)
      if (s->name.at[k] == a->name) {
        err(fr, a->name_loc, "'%s' is given twice", a->name);
        return false;
      }
    PUSH(fr->arena, s->name, a->name);
    PUSH(fr->arena, s->file, a->value->name);
  }
  return true;
}

// tokens("f.bin", length = T), bytes("f.txt", length = T), arrays(x = "x.npy", ...)
static bool read_source(Front *fr, const Ast *e, Source *s) {
  static const char *const what = "tokens(\"FILE\", length = T), bytes(\"FILE\", length = T) or "
                                  "arrays(NAME = \"FILE.npy\", ...)";
  s->loc = e->loc;
  if (!is_call(fr, e, what)) return false;
  Str name = e->a->name;
  if (!strcmp(name, "arrays")) return read_arrays(fr, e, s);
  s->kind = !strcmp(name, "bytes") ? DATA_BYTES : DATA_TOKENS;
  if (s->kind == DATA_TOKENS && strcmp(name, "tokens")) {
    err(fr, e->a->loc, "unknown kind of data '%s'; expected %s", name, what);
    return false;
  }
  for (uint32_t i = 0; i < e->arg.n; i++) {
    const Arg *a = &e->arg.at[i];
    bool is_path = !a->name && a->value && a->value->kind == A_STR && !s->path;
    if (is_path) s->path = a->value->name;
    else if (!a->name || strcmp(a->name, "length")) {
      err(fr, a->name ? a->name_loc : a->value->loc, "expected %s(\"FILE\", length = T)", name);
      return false;
    } else if (!as_int(fr, a->value, "length", 1, &s->length)) return false;
  }
  if (s->path) return true;
  err(fr, e->loc, "expected %s(\"FILE\", length = T)", name);
  return false;
}

typedef struct Block { // while it is read
  Source data, val;
  int64_t schedule_steps;
  bool steps, microbatch;
  Id steps_loc;
} Block;

static bool unknown_setting(Front *fr, Str name, Id loc) {
  Str names[NSETTING + 2];
  uint32_t n = 0;
  for (int i = 0; i < 10; i++) // those that a block can set
    if (strcmp(settings[i], "lr") && strcmp(settings[i], "length"))
      names[n++] = str_intern(settings[i]);
  names[n++] = str_intern("data");
  names[n++] = str_intern("val");
  names[n++] = str_intern("optimizer");
  names[n++] = str_intern("schedule");
  Str near = did_you_mean(name, names, n);
  if (near) err(fr, loc, "the train block has no setting '%s'; did you mean '%s'?", name, near);
  else
    err(fr, loc,
        "the train block has no setting '%s'; it has data, val, batch, microbatch, optimizer, "
        "schedule, steps, clip, precision, residual, seed and eval_every",
        name);
  return false;
}

static bool set(Front *fr, Block *b, Str name, const Ast *e, Id loc) {
  Train *t = &fr->m->train;
  if (!strcmp(name, "data")) return read_source(fr, e, &b->data);
  if (!strcmp(name, "val")) return read_source(fr, e, &b->val);
  if (!strcmp(name, "optimizer")) return optimizer(fr, e);
  if (!strcmp(name, "schedule")) return schedule(fr, e, &b->schedule_steps);
  if (!strcmp(name, "precision")) return as_precision(fr, e, &t->precision);
  if (!strcmp(name, "residual")) return as_residual(fr, e, &t->residual);
  if (!strcmp(name, "clip")) return as_real(fr, e, name, 0, &t->clip);
  if (!strcmp(name, "batch")) return as_int(fr, e, name, 1, &t->batch);
  if (!strcmp(name, "eval_every")) return as_int(fr, e, name, 0, &t->eval_every);
  if (!strcmp(name, "seed")) return as_int(fr, e, name, 0, &t->seed);
  if (!strcmp(name, "microbatch")) {
    b->microbatch = true;
    return as_int(fr, e, name, 1, &t->microbatch);
  }
  if (!strcmp(name, "steps")) {
    b->steps = true;
    b->steps_loc = e->loc;
    return as_int(fr, e, name, 0, &t->steps);
  }
  return unknown_setting(fr, name, loc);
}

static bool read_block(Front *fr, Block *b) {
  bool ok = true;
  const StmtList *body = &fr->train->body;
  for (uint32_t i = 0; i < body->n; i++) {
    const AstStmt *s = body->at[i];
    if (s->tag == S_METRIC) continue;
    if (s->tag != S_ASSIGN || s->target.n != 1 || s->target.at[0]->kind != A_NAME) {
      err(fr, s->loc, "expected `setting = value` or `metric name = ...`");
      ok = false;
      continue;
    }
    for (uint32_t j = 0; j < i; j++)
      if (body->at[j]->tag == S_ASSIGN &&
          body->at[j]->target.at[0]->name == s->target.at[0]->name) {
        err(fr, s->target.at[0]->loc, "'%s' is set twice", s->target.at[0]->name);
        ok = false;
      }
    ok &= set(fr, b, s->target.at[0]->name, s->value, s->target.at[0]->loc);
  }
  return ok;
}

static bool override_path(Front *fr, const char *name, Source *s) {
  Define *d = setting_define(fr, name);
  if (!d) return true;
  if (s->kind == DATA_ARRAYS || s->kind == DATA_NONE) {
    err(fr, d->value->loc, "-D %s=FILE is for data of one file: tokens(...) or bytes(...)", name);
    return false;
  }
  if (d->value->kind == A_STR) {
    s->path = d->value->name;
    return true;
  }
  SourceFile *f =
      &fr->src->file
           .at[fr->src->loc.at[d->value->loc].file]; // what parsed as an expression is a path
  s->path = str_intern(strchr(f->text, '=') + 1);
  return true;
}

static bool overrides(Front *fr, Block *b) {
  Train *t = &fr->m->train;
  struct {
    const char *name;
    int64_t least, *to;
  } ints[] = {{"batch", 1, &t->batch},        {"eval_every", 0, &t->eval_every},
              {"seed", 0, &t->seed},          {"warmup", 0, &t->warmup},
              {"length", 1, &b->data.length}, {"microbatch", 1, &t->microbatch},
              {"steps", 0, &t->steps}};
  struct {
    const char *name;
    double *to;
  } reals[] = {{"clip", &t->clip},
               {"lr", &t->lr},
               {"final", &t->final},
               {"momentum", &t->momentum},
               {"weight_decay", &t->weight_decay},
               {"beta1", &t->beta1},
               {"beta2", &t->beta2},
               {"eps", &t->eps}};
  bool ok = true;
  Define *d;
  for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
    if (!(d = setting_define(fr, ints[i].name))) continue;
    ok &= as_int(fr, d->value, ints[i].name, ints[i].least, ints[i].to);
    b->microbatch |= i == 5;
    if (i == 6) {
      b->steps = true;
      b->schedule_steps = t->steps;
    }
  }
  for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
    if ((d = setting_define(fr, reals[i].name)))
      ok &= as_real(fr, d->value, reals[i].name, 0, reals[i].to);
  if ((d = setting_define(fr, "precision"))) ok &= as_precision(fr, d->value, &t->precision);
  if ((d = setting_define(fr, "residual"))) ok &= as_residual(fr, d->value, &t->residual);
  return override_path(fr, "data", &b->data) && override_path(fr, "val", &b->val) && ok;
}

// A record of the log names each thing once.
static bool is_log_field(Str name) {
  static const char *const field[] = {"step",         "loss",    "lr",
                                      "grad_norm",    "tokens",  "tokens_per_s",
                                      "memory_bytes", "seconds", "skipped",
                                      "val_loss",     "time",    "run"};
  for (size_t i = 0; i < sizeof field / sizeof field[0]; i++)
    if (!strcmp(field[i], name)) return true;
  return false;
}

uint32_t train_metrics(Front *fr, Metric *out, uint32_t max) {
  uint32_t n = 0;
  for (uint32_t i = 0; fr->train && i < fr->train->body.n; i++) {
    const AstStmt *s = fr->train->body.at[i];
    if (s->tag != S_METRIC) continue;
    for (uint32_t k = 0; k < n; k++)
      if (out[k].name == s->name) err(fr, s->name_loc, "metric '%s' is defined twice", s->name);
    if (is_log_field(s->name))
      err(fr, s->name_loc, "'%s' is a field of the log; give the metric another name",
          s->name);
    if (n == max) err(fr, s->name_loc, "there are at most %u metrics", max);
    else out[n++] = (Metric){s->name, s->name_loc, s->value};
  }
  return n;
}

static bool finish(Front *fr, Block *b) {
  Train *t = &fr->m->train;
  bool ok = true;
  if (b->steps && b->schedule_steps && b->schedule_steps != t->steps) {
    err(fr, b->steps_loc, "'steps' is %lld here, but %lld in the schedule", (long long)t->steps,
        (long long)b->schedule_steps);
    ok = false;
  }
  if (!b->steps && b->schedule_steps) t->steps = b->schedule_steps;
  if (!b->microbatch) t->microbatch = t->batch;
  if (t->microbatch > t->batch) t->microbatch = t->batch;
  t->data = b->data.kind;
  t->data_path = b->data.path;
  t->length = b->data.length;
  t->val = b->val.kind;
  t->val_path = b->val.path;
  if ((t->data == DATA_TOKENS || t->data == DATA_BYTES) && !t->length) {
    err(fr, b->data.loc, "the length of a sample is missing: write length = T after the file");
    ok = false;
  }
  if (t->val != DATA_NONE && t->val != t->data) {
    err(fr, b->val.loc, "'val' is of the same kind as 'data'");
    ok = false;
  } else if (b->val.length && b->val.length != t->length) {
    err(fr, b->val.loc, "'val' has samples of length %lld, but 'data' of %lld",
        (long long)b->val.length, (long long)t->length);
    ok = false;
  }
  return ok;
}

// The array files in the order of the loss's arguments.
static bool order_arrays(Front *fr, Source *s, bool val) {
  Train *t = &fr->m->train;
  AstStmt *loss = method_find(fr->root, str_intern("loss"));
  if (!loss || s->kind != DATA_ARRAYS) return true;
  Str names[MAX_ARGS];
  bool ok = true, used[MAX_ARGS] = {false};
  for (uint32_t i = 0; i < loss->formal.n; i++) {
    names[i] = formal_name(&loss->formal.at[i]);
    uint32_t k = 0;
    while (k < s->name.n && s->name.at[k] != names[i]) k++;
    if (k == s->name.n) {
      err(fr, s->loc, "no array for argument '%s' of the loss", names[i]);
      note(fr, formal_loc(&loss->formal.at[i]), "'%s' is declared here", names[i]);
      ok = false;
      continue;
    }
    if (k < MAX_ARGS) used[k] = true;
    if (!val) PUSH(fr->arena, t->array_name, names[i]);
    if (val) PUSH(fr->arena, t->val_array_path, s->file.at[k]);
    else PUSH(fr->arena, t->array_path, s->file.at[k]);
  }
  for (uint32_t k = 0; ok && k < s->name.n && k < MAX_ARGS; k++) {
    if (used[k]) continue;
    Str near = did_you_mean(s->name.at[k], names, loss->formal.n);
    err(fr, s->loc, "the loss has no argument '%s'%s", s->name.at[k],
        near ? str_printf("; did you mean '%s'?", near) : "");
    ok = false;
  }
  return ok;
}

bool train_block(Front *fr) {
  Train *t = &fr->m->train;
  Block b = {0};
  *t = (Train){.batch = 1,
               .steps = 1000,
               .opt = OPT_ADAMW,
               .lr = 1e-3,
               .beta1 = 0.9,
               .beta2 = 0.999,
               .eps = 1e-8,
               .weight_decay = 0.01,
               .precision = str_intern("fp32")};
  bool ok = !fr->train || read_block(fr, &b);
  ok = overrides(fr, &b) && ok;
  return ok && finish(fr, &b) && order_arrays(fr, &b.data, false) && order_arrays(fr, &b.val, true);
}

bool check_defines(Front *fr) {
  bool ok = true;
  for (uint32_t i = 0; i < fr->define.n; i++) {
    const Define *d = &fr->define.at[i];
    if (d->used) continue;
    bool later = false; // a -D of the same name that came after it was used
    for (uint32_t k = i + 1; k < fr->define.n; k++) later |= fr->define.at[k].name == d->name;
    if (later) continue;
    Str names[MAX_ARGS + NSETTING];
    uint32_t n = 0;
    for (uint32_t k = 0; k < fr->model->formal.n && k < MAX_ARGS; k++)
      names[n++] = formal_name(&fr->model->formal.at[k]);
    for (int k = 0; k < NSETTING; k++) names[n++] = str_intern(settings[k]);
    Str near = did_you_mean(d->name, names, n);
    err(fr, d->name_loc, "model '%s' has no size and its train block no setting '%s'%s",
        fr->model->name, d->name, near ? str_printf("; did you mean '%s'?", near) : "");
    ok = false;
  }
  return ok;
}
