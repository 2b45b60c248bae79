#include "codegen/target.h"
#include "tests/random/support/check.h"

#include <math.h>
#include <stdlib.h>

#include "ir/text/text.h"
#include "ir/verify.h"
#include "codegen/lower/fuse.h"
#include "passes/passes.h"

const char *const stage_name[NSTAGE] = {"generate",      "text",    "inline",    "range",
                                        "differentiate", "tangent", "finite",  "precision",
                                        "simplify",      "recompute", "normalise", "compile", "forward",
                                        "backward"};
static Stage nowhere;
Stage *current_stage = &nowhere;

void fail_with(Failure *f, Stage stage, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  f->failed = true;
  f->stage = stage;
  vsnprintf(f->message, sizeof f->message, fmt, ap);
  va_end(ap);
}

Module *copy_module(Arena *a, const Module *m) {
  Buf text = {0};
  ir_print(m, &text);
  Sources *s = sources_new(a);
  s->out = stderr;
  Module *r =
      ir_parse(a, s, str_intern("program.ir"), arena_copy(a, text.text, text.n + 1), text.n);
  buf_free(&text);
  if (r && m->target) target_use(r, m->target);
  if (r) r->limits = m->limits;
  return r;
}

// The state of checking one program.
typedef struct Check {
  const CheckOptions *o;
  Tally *t;
  Failure *f;
  ArgOptions arg;
} Check;

static bool wanted(const Check *c, Stage s) { return c->o->stages >> s & 1; }

static bool verified(Check *c, const Module *m, Stage stage) {
  Buf why = {0};
  *current_stage = stage;
  bool ok = ir_verify(m, &why);
  if (!ok) fail_with(c->f, stage, "does not verify: %s", why.text);
  buf_free(&why);
  return ok;
}

static bool round_trip(Check *c, const Module *m) {
  *current_stage = STAGE_TEXT;
  Arena *a = arena_new();
  Buf one = {0}, two = {0};
  Module *again = copy_module(a, m);
  ir_print(m, &one);
  if (again) ir_print(again, &two);
  bool ok = again && one.n == two.n && !memcmp(one.text, two.text, one.n);
  if (!again) fail_with(c->f, STAGE_TEXT, "what was printed does not parse");
  else if (!ok) fail_with(c->f, STAGE_TEXT, "it prints differently after parsing");
  if (ok && !verified(c, again, STAGE_TEXT)) ok = false;
  buf_free(&one);
  buf_free(&two);
  arena_free(a);
  return ok;
}

// Runs with bounds for comparisons in `unit`.
static bool reference_as(Check *c, Activation *a, const Module *m, Id fn, double unit, bool round,
                         Stage stage) {
  Buf error = {0};
  *a = activation_new(m, fn, &c->arg);
  bool ok = activation_run(
      a, &(InterpOptions){.seed = 7, .step = 3, .scale = true, .unit = unit, .round = round}, &error);
  if (!ok) fail_with(c->f, stage, "does not run: %s", error.text);
  buf_free(&error);
  return ok;
}

static bool reference(Check *c, Activation *a, const Module *m, Id fn, double unit, Stage stage) {
  return reference_as(c, a, m, fn, unit, false, stage);
}

static double roundoff(const Check *c) {
  return c->o->precision == DT_F64 ? 0x1p-53 : 0x1p-24;
}

// `want` ran with bounds of this unit.
static bool means_the_same(Check *c, const Activation *want, double unit, const Module *m, Id fn,
                           Stage stage) {
  Buf error = {0};
  Activation got = activation_new(m, fn, &c->arg);
  *current_stage = stage;
  bool ok = activation_run(&got, &(InterpOptions){.seed = 7, .step = 3}, &error) &&
            activation_same(want, &got, 8, unit, &error);
  if (!ok) fail_with(c->f, stage, "%s", error.text);
  buf_free(&error);
  activation_free(&got);
  return ok;
}

// One pass, then the verifier, the round trip and the meaning.
static bool pass(Check *c, Module *m, bool (*run)(Module *), Stage stage, Entry entry,
                 const Activation *want, double unit) {
  if (!wanted(c, stage)) return true;
  *current_stage = stage;
  if (!run(m)) return fail_with(c->f, stage, "the pass reports an error"), false;
  if (!verified(c, m, stage) || !round_trip(c, m)) return false;
  return !want || means_the_same(c, want, unit, m, m->entry[entry], stage);
}

static bool whole_numbers(const Activation *a) {
  bool ok = true;
  for (uint32_t i = 0; i < a->nresult; i++)
    for (int64_t e = 0; a->result[i]->real && e < tensor_count(a->result[i]); e++)
      ok &= fabs(a->result[i]->real[e]) < 0x1p40 &&
            floor(a->result[i]->real[e]) == a->result[i]->real[e];
  for (uint32_t i = 0; i < a->narg; i++)
    for (int64_t e = 0; a->arg[i]->real && e < tensor_count(a->arg[i]); e++)
      ok &= fabs(a->arg[i]->real[e]) < 0x1p40 && floor(a->arg[i]->real[e]) == a->arg[i]->real[e];
  return ok;
}

static bool is_passed(const Module *m, const Fn *f, Id value) {
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Call *c = f->stmt.at[i].call;
    for (uint32_t k = 0; c && k < c->narg; k++)
      if (c->arg[k].value == value) return true;
    for (uint32_t k = 0; c && k < c->nresult; k++)
      if (c->result[k].value == value) return true;
  }
  for (uint32_t i = 0; i < f->result.n; i++)
    if (f->result.at[i] == value) return true;
  (void)m;
  return false;
}

// Whether an element may be added to more than once: kernels do so in an order of their own, and each addition rounds.
static bool is_gathered(const Module *m, const Fn *f, Id value) {
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->acc && s->lhs == value && !fuse_injective(m, f, s)) return true;
  }
  return false;
}

// Some more values of 16 bits than pass precision would choose: any that is no argument, result or scatter-sum.
static void draw_halves(Module *m, uint64_t seed) {
  Rng r = {seed};
  for (Id f = 0; f < m->fn.n; f++)
    for (Id v = 0; v < m->fn.at[f].value.n; v++) {
      Value *x = &m->fn.at[f].value.at[v];
      bool take = rng_below(&r, 3) == 0;
      if (take && x->type == DT_F32 && x->role == ROLE_LOCAL && !is_passed(m, &m->fn.at[f], v) &&
          !is_gathered(m, &m->fn.at[f], v))
        x->type = m->store;
    }
}

// Pass precision, which may refuse to pass a parameter as float.
static bool narrows(Module *m) {
  FILE *out = m->src->out, *null = fopen("/dev/null", "w");
  m->src->out = null;
  bool ok = pass_precision(m);
  m->src->out = out;
  fclose(null);
  return ok;
}

static bool draws_halves(Check *c, Module *m) {
  if (is_half(m->store)) draw_halves(m, c->o->seed);
  return verified(c, m, STAGE_PRECISION) && round_trip(c, m);
}

// What layers compute again, as drawn: for auto a budget between the most and the least that they can save.
static void draw_recompute(Check *c, Module *m) {
  Rng r = {c->o->seed ^ 0x7ec0};
  Arena *a = arena_new();
  int64_t least, most;
  recompute_range(copy_module(a, m), &least, &most);
  m->recompute = (Recompute)rng_below(&r, NRECOMPUTE);
  if (m->recompute == RECOMPUTE_AUTO) m->keep = least + (most - least) * rng_below(&r, 9) / 8;
  arena_free(a);
}

static bool recompute(Check *c, Module *m, Entry entry, const Activation *want, double unit) {
  if (entry == ENTRY_STEP) draw_recompute(c, m);
  return pass(c, m, pass_recompute, STAGE_RECOMPUTE, entry, want, unit);
}

// From after differentiate to before code generation. `want`: what the entry must give, with bounds
// for roundoff(c); it becomes out's.
static bool lower(Check *c, Module *m, Entry entry, Stage stage, Activation *want, Lowered *out) {
  static const Str name[NDTYPE] = {
      [DT_F32] = "fp32", [DT_F64] = "fp64", [DT_BF16] = "bf16", [DT_F16] = "fp16"};
  Dtype type = c->o->precision;
  double unit = roundoff(c);
  m->train.precision = str_intern(name[type]);
  // Arguments of 16 bits are rounded: what the program means is asked anew.
  bool half = is_half(type);
  bool ok = half ? narrows(m) : pass(c, m, pass_precision, STAGE_PRECISION, entry, want, unit);
  if (ok && half) {
    activation_free(want);
    ok = draws_halves(c, m) && reference(c, want, m, m->entry[entry], unit, STAGE_PRECISION);
  }
  ok = ok && pass(c, m, pass_simplify, STAGE_SIMPLIFY, entry, want, unit) && recompute(c, m, entry, want, unit) &&
            pass(c, m, pass_normalise, STAGE_NORMALISE, entry, want, unit);
  if (!ok) return false;
  *out = (Lowered){.m = m, .fn = m->entry[entry], .unit = unit, .stage = stage, .origin = *want};
  if (!reference_as(c, &out->want, m, out->fn, out->unit, half, STAGE_NORMALISE)) return false;
  out->start = activation_new(m, out->fn, &c->arg);
  out->exact = c->o->exact && whole_numbers(&out->want) &&
               (type == DT_F64 || (type == DT_F32 && stage == STAGE_FORWARD));
  if (c->o->exact && !out->exact) c->t->inexact++;
  return true;
}

// pass_range may fail to prove what is true, but not the other way round.
static bool check_range(Check *c, const Module *m) {
  if (!wanted(c, STAGE_RANGE)) return true;
  *current_stage = STAGE_RANGE;
  Arena *a = arena_new();
  Module *copy = copy_module(a, m);
  FILE *null = fopen("/dev/null", "w");
  copy->src->out = null;
  bool proved = pass_range(copy), ok = true;
  fclose(null);
  if (proved) c->t->proved++;
  else c->t->unproved++;
  for (uint64_t i = 0; proved && ok && i < 4; i++) {
    ArgOptions ao = c->arg;
    ao.seed += i;
    Buf error = {0};
    Activation run = activation_new(copy, copy->entry[ENTRY_LOSS], &ao);
    ok = activation_run(&run, &(InterpOptions){.step = 1}, &error);
    if (!ok) fail_with(c->f, STAGE_RANGE, "proved in range, but %s", error.text);
    activation_free(&run);
    buf_free(&error);
  }
  arena_free(a);
  return ok;
}

static bool stops(const Module *m) {
  for (Id e = 0; e < m->expr.n; e++)
    if (ex_is(m, e, OP_STOP)) return true;
  return false;
}

static bool check_tangent(Check *c, const Module *loss, const Module *step) {
  if (!wanted(c, STAGE_TANGENT)) return true;
  *current_stage = STAGE_TANGENT;
  Buf error = {0};
  FiniteResult r = tangent_check(loss, loss->entry[ENTRY_LOSS], step, step->entry[ENTRY_STEP],
                                 &c->arg, NULL, &error);
  if (r != FINITE_SAME) fail_with(c->f, STAGE_TANGENT, "%s", error.text);
  buf_free(&error);
  return r == FINITE_SAME;
}

static bool check_finite(Check *c, const Module *loss, const Module *step) {
  if (!wanted(c, STAGE_FINITE) || c->o->exact || stops(loss)) return true;
  *current_stage = STAGE_FINITE;
  Buf error = {0};
  FiniteOptions fo = {.arg = c->arg, .directions = 1};
  FiniteResult r =
      finite_check(loss, loss->entry[ENTRY_LOSS], step, step->entry[ENTRY_STEP], &fo, &error);
  if (r == FINITE_KINK) c->t->kinks++;
  if (r == FINITE_DIFFERS || r == FINITE_FAILS) fail_with(c->f, STAGE_FINITE, "%s", error.text);
  buf_free(&error);
  return r == FINITE_SAME || r == FINITE_KINK;
}

// `source` is the program, m a copy of it.
static bool forward(Check *c, const Module *source, Module *m, Lowered *out) {
  Activation exact, want;
  Id fn = source->entry[ENTRY_UPDATE];
  m->entry[ENTRY_LOSS] = NONE;
  bool ok = reference(c, &exact, source, fn, 0x1p-53, STAGE_GENERATE) &&
            pass(c, m, pass_inline, STAGE_INLINE, ENTRY_UPDATE, &exact, 0x1p-53) &&
            pass(c, m, pass_batch, STAGE_INLINE, ENTRY_UPDATE, &exact, 0x1p-53);
  activation_free(&exact);
  return ok && reference(c, &want, source, fn, roundoff(c), STAGE_GENERATE) &&
         lower(c, m, ENTRY_UPDATE, STAGE_FORWARD, &want, out);
}

// Points that a call of the function computes, bound indices included.
static double points(const Module *m, Id fn) {
  double sum = 0;
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    double n = s->kind == ST_COMP;
    for (uint32_t k = 0; s->kind == ST_COMP && k < s->nindex; k++) n *= (double)s->index[k].extent;
    sum += s->call ? (double)s->call->count * points(m, s->call->fn) : n;
  }
  return sum;
}

// The derivative of a product of many reads has many bound indices until pass normalise parts them: beyond this the
// interpreter would run for minutes, and the program is counted and left.
static bool is_too_large(Check *c, const Module *m) {
  bool large = points(m, m->entry[ENTRY_STEP]) > 2e8;
  c->t->large += large;
  return large;
}

static bool backward(Check *c, Module *m, Lowered *out) {
  Activation loss_want;
  Arena *a = arena_new();
  m->entry[ENTRY_UPDATE] = NONE;
  Module *loss = wanted(c, STAGE_DIFFERENTIATE) ? copy_module(a, m) : NULL; // before any pass
  bool ok = reference(c, &loss_want, m, m->entry[ENTRY_LOSS], 0x1p-53, STAGE_GENERATE) &&
            pass(c, m, pass_inline, STAGE_INLINE, ENTRY_LOSS, &loss_want, 0x1p-53) &&
            check_range(c, m);
  activation_free(&loss_want);
  ok = ok && loss && pass(c, m, pass_differentiate, STAGE_DIFFERENTIATE, ENTRY_STEP, NULL, 0) &&
       !is_too_large(c, m) && check_tangent(c, loss, m) && check_finite(c, loss, m);
  arena_free(a);
  Activation want;
  Id step = m->entry[ENTRY_STEP];
  return ok && reference(c, &want, m, step, roundoff(c), STAGE_DIFFERENTIATE) &&
         lower(c, m, ENTRY_STEP, STAGE_BACKWARD, &want, out);
}

bool check_program(const Module *source, const CheckOptions *o, Lowered out[2], Tally *t,
                   Failure *f) {
  Check c = {o, t, f, {.seed = o->seed, .small = o->exact}};
  out[0].m = out[1].m = NULL;
  t->programs++;
  if (!verified(&c, source, STAGE_GENERATE)) return false;
  bool ok = round_trip(&c, source);
  Module *one = ok ? copy_module(source->arena, source) : NULL,
         *two = ok ? copy_module(source->arena, source) : NULL;
  if (two) generate_loss(two);
  if (ok && o->awkward) {
    two->entry[ENTRY_UPDATE] = NONE;
    return pass(&c, two, pass_inline, STAGE_INLINE, ENTRY_LOSS, NULL, 0) && check_range(&c, two);
  }
  if (ok) {
    target_use(one, target_named("cpu"));
    target_use(two, target_named("cpu"));
    one->limits = two->limits = o->limits;
  }
  ok = ok && forward(&c, source, one, &out[0]) && backward(&c, two, &out[1]);
  return ok || !f->failed;
}
