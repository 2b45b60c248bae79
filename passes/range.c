// Does: proves that every subscript is in range, from extents and the conditions around it.
// Requires: calls flattened (inline), so that conditions and subscripts meet in one function.
// Guarantees: no read or write is out of range, given Module.range, which is checked on the data.
// Invalidates: nothing; only Module.range changes.
#include "ir/range.h"
#include "ir/text.h"
#include "passes/passes.h"
#include "passes/util.h"

static const char *text_of(const Module *m, const RangeIssue *i) {
  Buf b = {0};
  const Fn *f = &m->fn.at[i->fn];
  ir_print_expr(m, f, &f->stmt.at[i->stmt], i->sub, &b);
  const char *text = arena_printf(m->arena, "%s", b.text);
  buf_free(&b);
  return text;
}

static const char *wanted(const Module *m, const RangeIssue *i, int64_t extent) {
  if (i->low && i->high)
    return arena_printf(m->arena, "stays within 0 .. %lld", (long long)extent - 1);
  if (i->low) return "is never negative";
  return arena_printf(m->arena, "stays below %lld", (long long)extent);
}

static const char *condition(const Module *m, const RangeIssue *i, const char *sub,
                             int64_t extent) {
  if (i->low && i->high)
    return arena_printf(m->arena, "%s >= 0 and %s < %lld", sub, sub, (long long)extent);
  if (i->low) return arena_printf(m->arena, "%s >= 0", sub);
  return arena_printf(m->arena, "%s < %lld", sub, (long long)extent);
}

// What is known: bounds that the type alone gives are no news.
static const char *bounds(const Module *m, const RangeIssue *i) {
  bool lo = i->known.lo > INT32_MIN, hi = i->known.hi < INT32_MAX;
  long long l = (long long)i->known.lo, h = (long long)i->known.hi;
  if (lo && hi) return arena_printf(m->arena, "it lies within %lld .. %lld here", l, h);
  if (lo) return arena_printf(m->arena, "it is at least %lld here, with no upper bound known", l);
  if (hi) return arena_printf(m->arena, "it is at most %lld here, with no lower bound known", h);
  return "nothing bounds it here";
}

// The read that has this subscript.
typedef struct Culprit {
  const RangeIssue *issue;
  Id read;
} Culprit;

static void find_culprit(const Module *m, Id read, void *ctx) {
  Culprit *c = ctx;
  const RangeIssue *i = c->issue;
  if ((Id)ex(m, read)->integer == i->value && ex_arg(m, read, i->dim) == i->sub) c->read = read;
}

static Id place(const Module *m, const RangeIssue *i) {
  const Stmt *s = &m->fn.at[i->fn].stmt.at[i->stmt];
  Culprit c = {i, NONE};
  if (i->write || s->kind != ST_COMP) return s->loc;
  ex_reads(m, s->body, find_culprit, &c);
  return c.read == NONE ? s->loc : stmt_read_loc(m, s, c.read);
}

static void report(const Module *m, const RangeIssue *i) {
  const Fn *f = &m->fn.at[i->fn];
  const Value *v = &f->value.at[i->value];
  Id loc = place(m, i);
  const char *sub = text_of(m, i);
  int64_t extent = v->extent[i->dim];
  if (i->known.lo >= extent || i->known.hi < 0) { // no condition would help
    diag_error(m->src, loc, "subscript %u of `%s`, `%s`, is out of range: the extent there is %lld",
               i->dim + 1, v->name, sub, (long long)extent);
    if (!ex_is(m, i->sub, OP_INT)) diag_note(m->src, loc, "%s", bounds(m, i));
    return;
  }
  diag_error(m->src, loc, "cannot prove that subscript %u of `%s`, `%s`, %s", i->dim + 1, v->name,
             sub, wanted(m, i, v->extent[i->dim]));
  diag_note(m->src, loc, "%s; a condition around the %s would do: `where(%s, ..., ...)`",
            bounds(m, i), i->write ? "subscript" : "read", condition(m, i, sub, v->extent[i->dim]));
}

bool pass_range(Module *m) {
  RangeResult r;
  range_check(m, true, &r);
  for (uint32_t i = 0; i < r.issue.n; i++) report(m, &r.issue.at[i]);
  m->range.n = 0;
  for (uint32_t i = 0; i < r.range.n; i++) PUSH(m->arena, m->range, r.range.at[i]);
  return r.issue.n == 0;
}
