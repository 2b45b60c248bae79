// Checks what arguments and results mean: that each Meaning is one of the module's, on a value of its
// type and role, and that the entries take and return what their callers (see Entry) expect.
#include "ir/entry.h"

#include <stdarg.h>

#include "ir/layout.h"
#include "ir/text/text.h"

typedef struct Check {
  const Module *m;
  const Fn *f;
  Buf *why;
} Check;

static bool fail(Check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(Check *c, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  buf_printf(c->why, "function `%s`: %s", c->f->name, text);
  return false;
}

static Str meaning_text(const Check *c, Meaning k, uint32_t of) {
  Buf b = {0};
  ir_print_meaning(c->m, c->f, k, of, &b);
  Str text = str_internn(b.text ? b.text : "", b.n);
  buf_free(&b);
  return text;
}

// ---- each value's meaning

// What `of` may number at most.
static uint32_t count_of(const Module *m, const Fn *f, Meaning k) {
  switch (k) {
  case MEANS_ADJOINT: return f->value.n;
  case MEANS_DATA: return m->ndata;
  case MEANS_TOTAL: return MAX_TOTALS;
  case MEANS_PARAM:
  case MEANS_GRAD: return m->param.n;
  case MEANS_RANK: return m->spmd ? m->axis.n : 0;
  case MEANS_RECEIVED:
  case MEANS_SENT:
  case MEANS_KEPT: return UINT32_MAX;
  case MEANS_SCALAR: return NUPDATE_SCALAR;
  case MEANS_PIECE: return NUPDATE_PIECE;
  default: return 1;
  }
}

static bool fits(const Fn *f, const Value *v) {
  bool real = scalar_of(v->type) == SC_REAL;
  switch (v->means) {
  case MEANS_ADJOINT: return real && f->value.at[v->of].rank == v->rank && f->backward;
  case MEANS_FIRST:
  case MEANS_BATCH:
  case MEANS_RANK: return v->type == DT_I32 && !v->rank && v->role == ROLE_IN;
  case MEANS_TOTAL: return real && !v->rank && v->role != ROLE_INOUT;
  case MEANS_SCALAR:
  case MEANS_LOSS_SCALE: return real && !v->rank && v->role == ROLE_IN;
  case MEANS_PARAM:
  case MEANS_PIECE: return real && v->role == ROLE_IN;
  case MEANS_GRAD: return real && v->role == ROLE_INOUT;
  case MEANS_DATA:
  case MEANS_RECEIVED: return v->role == ROLE_IN;
  case MEANS_SENT: return v->role == ROLE_LOCAL;
  case MEANS_KEPT: return v->role != ROLE_INOUT;
  default: return true;
  }
}

bool meanings_verify(const Module *m, const Fn *f, Buf *why) {
  Check c = {m, f, why};
  for (uint32_t i = 0; i < f->arg.n + f->result.n; i++) {
    const Value *v = &f->value.at[i < f->arg.n ? f->arg.at[i] : f->result.at[i - f->arg.n]];
    if (v->means == MEANS_NONE && !v->of) continue;
    if (v->means >= NMEANING || v->of >= count_of(m, f, v->means))
      return fail(&c, "`%s` means something that the module does not have", v->name);
    if (!fits(f, v))
      return fail(&c, "`%s` cannot be `%s`: it has another type, or is written otherwise", v->name,
                  meaning_text(&c, v->means, v->of));
    // A chunk may hold a parameter twice, in two ranges of layers.
    if (v->means == MEANS_PARAM || v->means == MEANS_GRAD) continue;
    for (uint32_t k = 0; k < i && i < f->arg.n; k++)
      if (value_means(&f->value.at[f->arg.at[k]], v->means, v->of))
        return fail(&c, "`%s` and `%s` are both `%s`", f->value.at[f->arg.at[k]].name, v->name,
                    meaning_text(&c, v->means, v->of));
  }
  return true;
}

// ---- entries

// Argument `at` of the function means this.
static bool arg_is(Check *c, uint32_t at, Meaning k, uint32_t of) {
  Str want = meaning_text(c, k, of);
  if (at >= c->f->arg.n) return fail(c, "no argument `%s`", want);
  const Value *a = &c->f->value.at[c->f->arg.at[at]];
  return value_means(a, k, of) ||
         fail(c, "argument %u, `%s`, is not the `%s` that callers expect", at + 1, a->name, want);
}

// Whether a value has a parameter's shape: in the local form, that of a rank's share.
static bool shape_of_param(const Check *c, const Param *q, const Value *a) {
  if (a->rank != q->rank) return false;
  for (uint32_t d = 0; d < q->rank; d++) {
    int64_t want = c->m->spmd ? layout_extent(c->m, q->shard, d, q->extent[d]) : q->extent[d];
    if (a->extent[d] != want) return false;
  }
  return true;
}

// The parameters, or their gradients, in their order from argument *at on.
static bool params_are(Check *c, uint32_t *at, Meaning k) {
  for (uint32_t i = 0; i < c->m->param.n; i++, ++*at) {
    const Param *q = &c->m->param.at[i];
    if (!arg_is(c, *at, k, i)) return false;
    if (!shape_of_param(c, q, &c->f->value.at[c->f->arg.at[*at]]))
      return fail(c, "argument %u does not have the shape of parameter `%s`", *at + 1, q->name);
  }
  return true;
}

// The last arguments may be the loss's scale and the rank's place on the mesh.
static uint32_t skip_trailing(const Check *c, uint32_t n) {
  while (n < c->f->arg.n && means_trailing(c->f->value.at[c->f->arg.at[n]].means)) n++;
  return n;
}

static bool scalars_returned(Check *c) {
  for (uint32_t i = 0; i < c->f->result.n; i++)
    if (c->f->value.at[c->f->result.at[i]].rank) return fail(c, "result %u is not a scalar", i + 1);
  return true;
}

static bool totals_returned(Check *c) {
  for (uint32_t i = 0; i < c->f->result.n; i++)
    if (!value_means(&c->f->value.at[c->f->result.at[i]], MEANS_TOTAL, i))
      return fail(c, "result %u is not `total %u`", i + 1, i);
  return true;
}

bool entry_verify(const Module *m, Entry e, Buf *why) {
  const Fn *count = m->entry[ENTRY_COUNT] == NONE ? NULL : &m->fn.at[m->entry[ENTRY_COUNT]];
  Check c = {m, &m->fn.at[m->entry[e]], why};
  uint32_t at = 0, results = 1;
  if (e == ENTRY_UPDATE) return true;
  for (; at < (e == ENTRY_SAMPLE ? 1 : m->ndata); at++)
    if (!arg_is(&c, at, MEANS_DATA, at)) return false;
  // Before batch a loss knows nothing of the microbatch, nor does a step made of such a loss.
  bool loss = e == ENTRY_LOSS || e == ENTRY_STEP;
  bool batched =
      !loss || (at < c.f->arg.n && c.f->value.at[c.f->arg.at[at]].means == MEANS_FIRST);
  if (batched && e != ENTRY_EVAL_LOSS && e != ENTRY_SAMPLE) {
    if (!arg_is(&c, at++, MEANS_FIRST, 0)) return false;
    if (!arg_is(&c, at++, MEANS_BATCH, 0)) return false;
  }
  bool totals = batched && count && (loss || e == ENTRY_EVAL);
  for (uint32_t i = 0; totals && i < count->result.n; i++)
    if (!arg_is(&c, at++, MEANS_TOTAL, i)) return false;
  if (e != ENTRY_COUNT && !params_are(&c, &at, MEANS_PARAM)) return false;
  if (e == ENTRY_STEP && !params_are(&c, &at, MEANS_GRAD)) return false;
  at = skip_trailing(&c, at);
  if (at != c.f->arg.n) return fail(&c, "it takes %u arguments, callers give %u", c.f->arg.n, at);
  if (e == ENTRY_COUNT) return totals_returned(&c) && scalars_returned(&c);
  if (e != ENTRY_SAMPLE) results = 1 + m->metric.n;
  if (c.f->result.n != results)
    return fail(&c, "it returns %u values, callers take %u", c.f->result.n, results);
  return e == ENTRY_SAMPLE || scalars_returned(&c);
}
