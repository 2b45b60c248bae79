// Does: proves that every subscript is in range, from extents and the conditions around it.
// Requires: calls flattened (inline), so that conditions and subscripts meet in one function.
// Guarantees: no read or write is out of range, given Module.range, which is checked on the data.
// Invalidates: nothing; only Module.range changes.
#include "ir/range.h"
#include "ir/text/text.h"
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

// A value as the user named it: the second one of a name has a number that no file says.
static const char *said(const Module *m, Str name) {
  size_t n = strlen(name), at = n;
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') at--;
  if (at == n || at < 2 || name[at - 1] != '.') return name;
  return arena_printf(m->arena, "%.*s", (int)(at - 1), name);
}

// The read in the file's own words, x[b, t - j]; NULL where it is not on one line.
static const char *source_of(const Module *m, Id loc) {
  if (!loc) return NULL;
  const Loc *l = &m->src->loc.at[loc];
  const SourceFile *f = &m->src->file.at[l->file];
  const char *line = f->text;
  for (uint32_t i = 1; line && i < l->line; i++) line = (line = strchr(line, '\n')) ? line + 1 : NULL;
  if (!line || strcspn(line, "\n") < l->col - 1 + l->len) return NULL;
  const char *text = arena_printf(m->arena, "%.*s", (int)l->len, line + l->col - 1);
  int open = 0;
  for (const char *p = text; *p; p++) open += (*p == '[' || *p == '(') - (*p == ']' || *p == ')');
  return !open && text[l->len - 1] == ']' ? text : NULL;
}

// Subscript `dim` of a read's text that has `rank` of them and no `...`, else NULL.
static const char *subscript_of(const Module *m, const char *text, uint32_t dim, uint32_t rank) {
  size_t end = strlen(text) - 1, from = 0, at[MAX_RANK + 1];
  uint32_t n = 0;
  int open = 0;
  for (size_t i = end; i-- > 0 && !from;) {
    if (text[i] == '[' && !open) from = i + 1;
    open += (text[i] == ']' || text[i] == ')') - (text[i] == '[' || text[i] == '(');
  }
  if (!from || strstr(text + from, "...")) return NULL;
  at[n++] = from;
  for (size_t i = from; i < end; i++) {
    open += i == from ? -open : 0;
    open += (text[i] == '[' || text[i] == '(') - (text[i] == ']' || text[i] == ')');
    if (text[i] == ',' && !open && n < MAX_RANK) at[n++] = i + 1;
  }
  if (n != rank) return NULL;
  at[n] = end + 1;
  while (text[at[dim]] == ' ') at[dim]++;
  return arena_printf(m->arena, "%.*s", (int)(at[dim + 1] - 1 - at[dim]), text + at[dim]);
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

// What to write, to be pasted where the read is; on a left side, where the subscript is, and on the
// right of it.
static void remedy(const Module *m, const RangeIssue *i, Id loc, const char *sub, const char *read) {
  const Value *v = &m->fn.at[i->fn].value.at[i->value];
  int64_t extent = v->extent[i->dim];
  const char *known = bounds(m, i), *cond = condition(m, i, sub, extent);
  const char *zero = v->type == DT_I32 ? "0" : v->type == DT_BOOL ? "false" : "0.0";
  if (!i->write) {
    diag_note(m->src, loc, "%s; a condition around the read would do: `where(%s, %s, %s)`", known,
              cond, read ? read : "...", zero);
    return;
  }
  const char *kept = i->low ? arena_printf(m->arena, "max(%s, 0)", sub) : sub;
  if (i->high) kept = arena_printf(m->arena, "min(%s, %lld)", kept, (long long)extent - 1);
  diag_note(m->src, loc, "%s; this subscript would do: `%s`, and on the right `where(%s, ..., %s)`",
            known, kept, cond, zero);
}

static void report(const Module *m, const RangeIssue *i) {
  const Fn *f = &m->fn.at[i->fn];
  const Value *v = &f->value.at[i->value];
  Id loc = place(m, i);
  const char *read = i->write ? NULL : source_of(m, loc);
  const char *own = read ? subscript_of(m, read, i->dim, v->rank) : NULL;
  const char *sub = own ? own : text_of(m, i);
  int64_t extent = v->extent[i->dim];
  if (i->known.lo >= extent || i->known.hi < 0) { // no condition would help
    diag_error(m->src, loc, "subscript %u of `%s`, `%s`, is out of range: the extent there is %lld",
               i->dim, said(m, v->name), sub, (long long)extent);
    if (!ex_is(m, i->sub, OP_INT)) diag_note(m->src, loc, "%s", bounds(m, i));
    return;
  }
  diag_error(m->src, loc, "cannot prove that subscript %u of `%s`, `%s`, %s", i->dim,
             said(m, v->name), sub, wanted(m, i, v->extent[i->dim]));
  remedy(m, i, loc, sub, read);
}

bool pass_range(Module *m) {
  RangeResult r;
  range_check(m, true, &r);
  for (uint32_t i = 0; i < r.issue.n; i++) report(m, &r.issue.at[i]);
  m->range.n = 0;
  for (uint32_t i = 0; i < r.range.n; i++) PUSH(m->arena, m->range, r.range.at[i]);
  return r.issue.n == 0;
}
