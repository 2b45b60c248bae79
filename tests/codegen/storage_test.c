// Storage of what ranks exchange: from the post of a collective to its wait no kernel touches where
// its result will be. A sum over ranks takes over the storage of its terms only where they are read
// no more.
#include "codegen/target.h"
#include "codegen/lower/plan.h"
#include "ir/text/text.h"

static const char *const text =
    "module m\n"
    "compute f64\n"
    "axis tp 2\n"
    "spmd\n"
    "func terms.read.once(x: f64[64]) -> (y: f64[64]) {\n"
    "  a[i<64]: f64 = exp(x[i])\n"
    "  s: f64[64] = all_reduce sum tp a\n"
    "  y[i<64] = s[i] + 1.0\n"
    "}\n"
    "func terms.read.meanwhile(x: f64[64], w: f64[3, 64]) -> (y: f64[64], z: f64[3, 64]) {\n"
    "  a[i<64]: f64 = exp(x[i])\n"
    "  s: f64[64] = all_reduce sum tp a\n"
    "  z[c<3, i<64] = w[c, i] * a[i]\n"
    "  y[i<64] = s[i] + 1.0\n"
    "}\n"
    "func f(x: f64[64], w: f64[3, 64]) -> (y: f64[64], u: f64[64], v: f64[3, 64]) {\n"
    "  y = call terms.read.once(x)\n"
    "  u, v = call terms.read.meanwhile(x, w)\n"
    "}\n"
    "entry step = f\n";

typedef struct Meeting {
  const Plan *p;
  Id fn, result;
  bool met;
} Meeting;

static bool overlap(const Plan *p, Id fn, Id v, Id w) {
  const Value *x = &p->m->fn.at[fn].value.at[v], *y = &p->m->fn.at[fn].value.at[w];
  int64_t a = p->fn[fn].address[v], b = p->fn[fn].address[w];
  return a >= 0 && b >= 0 && a < b + value_count(y) * 8 && b < a + value_count(x) * 8;
}

static void meet(Id buffer, bool written, void *ctx) {
  Meeting *m = ctx;
  (void)written;
  m->met |= overlap(m->p, m->fn, buffer, m->result);
}

// Whether a kernel between a collective's post and its wait touches where the result will be.
static bool is_disturbed(const Plan *p, Id fn) {
  const FnPlan *fp = &p->fn[fn];
  Meeting m = {.p = p, .fn = fn};
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    const Kernel *k = &fp->kernel.at[i];
    if (k->kind != K_COLL) continue;
    m.result = p->m->fn.at[fn].stmt.at[k->stmt.at[0]].lhs;
    for (uint32_t j = i + 1; j < k->wait; j++)
      kernel_touch(p, fn, &fp->kernel.at[j], meet, &m);
  }
  return m.met;
}

static Id named(const Fn *f, const char *name) {
  for (Id v = 0; v < f->value.n; v++)
    if (!strcmp(f->value.at[v].name, name)) return v;
  return NONE;
}

// The kernels between post and wait.
static uint32_t meanwhile(const Plan *p, Id fn, Id result) {
  const FnPlan *fp = &p->fn[fn];
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    const Kernel *k = &fp->kernel.at[i];
    if (k->kind == K_COLL && p->m->fn.at[fn].stmt.at[k->stmt.at[0]].lhs == result)
      return k->wait - i - 1;
  }
  return 0;
}

int main(void) {
  Arena *a = arena_new();
  Sources *src = sources_new(a);
  src->out = stdout;
  Module *m = ir_parse(a, src, str_intern("storage"), text, strlen(text));
  int bad = 0;
  if (!m) return 1;
  target_use(m, target_named("cpu"));
  m->limits.kernel_statements = 1;
  Plan *p = plan_lower(m);
  for (Id fn = 0; fn < 2; fn++) {
    const Fn *f = &m->fn.at[fn];
    bool shared = overlap(p, fn, named(f, "a"), named(f, "s"));
    if (is_disturbed(p, fn)) printf("%s: a kernel touches what a collective writes\n", f->name), bad++;
    if (shared != (fn == 0)) printf("%s: `s` is%s where `a` is\n", f->name, shared ? "" : " not"), bad++;
  }
  if (!meanwhile(p, 1, named(&m->fn.at[1], "s")))
    printf("no kernel runs while the sum is under way\n"), bad++;
  arena_free(a);
  return bad != 0;
}
