// Errors of the front end. Templates are checked where they are instantiated, so one mistake may
// be met many times: a place is reported once.
#include "frontend/front.h"

static void flush_trail(Front *fr) {
  if (!fr->trail_due) return;
  fr->trail_due = false;
  int n = 0;
  for (Trail *t = fr->trail; t && n < 4; t = t->up, n++)
    diag_note(fr->src, t->loc, "in %s", t->what);
}

void trail_push(Front *fr, Trail *t, Id loc, const char *what) {
  flush_trail(fr);
  *t = (Trail){fr->trail, loc, what};
  fr->trail = t;
}

void trail_pop(Front *fr) {
  flush_trail(fr);
  fr->trail = fr->trail->up;
}

void err(Front *fr, Id loc, const char *fmt, ...) {
  flush_trail(fr);
  fr->nerror++;
  fr->muted = fr->quiet;
  fr->muted |= fr->src->nerror > fr->src->max_errors; // nothing is shown any more
  for (uint32_t i = 0; !fr->muted && i < fr->reported.n; i++)
    fr->muted |= fr->reported.at[i] == loc;
  if (fr->muted) return;
  PUSH(fr->arena, fr->reported, loc);
  va_list ap;
  va_start(ap, fmt);
  char *text = arena_vprintf(fr->arena, fmt, ap);
  va_end(ap);
  diag_error(fr->src, loc, "%s", text);
  fr->trail_due = fr->trail != NULL;
}

void note(Front *fr, Id loc, const char *fmt, ...) {
  if (fr->muted) return;
  va_list ap;
  va_start(ap, fmt);
  char *text = arena_vprintf(fr->arena, fmt, ap);
  va_end(ap);
  diag_note(fr->src, loc, "%s", text);
}

void extent_error(Front *fr, Id loc, int64_t one, int64_t other, const char *text) {
  for (uint32_t i = 0; i < fr->rounded.n; i++) {
    const Rounded *r = &fr->rounded.at[i];
    int64_t less = r->a / r->b * r->b;
    if ((one != r->a || other != less) && (one != less || other != r->a)) continue;
    err(fr, r->from, "%lld does not divide %lld", (long long)r->b, (long long)r->a);
    note(fr, r->loc, "the quotient is rounded down to %lld here", (long long)(r->a / r->b));
    note(fr, loc, "%s", text);
    return;
  }
  err(fr, loc, "%s", text);
}

bool decided_by_samples(Front *fr, Id loc, int64_t per_sample) {
  if (per_sample)
    err(fr, loc, "this depends on the number of samples, and no condition and no size may: the batch is cut into microbatches "
                 "and over ranks");
  return per_sample != 0;
}

void number_of_samples(Front *fr, Id loc, int64_t per_sample) {
  if (!per_sample || fr->number_loc || fr->quiet) return;
  fr->number_loc = loc;
  Trail **to = &fr->number_trail;
  for (const Trail *t = fr->trail; t; t = t->up, to = &(*to)->up) {
    *to = NEW(fr->arena, Trail);
    **to = (Trail){NULL, t->loc, t->what};
  }
}

void report_number_of_samples(Front *fr) {
  if (!fr->number_loc || fr->local) return;
  fr->trail = fr->number_trail;
  err(fr, fr->number_loc,
      "the number of samples in the batch is not a constant: the batch is cut into microbatches and over ranks; "
      "`mean(b: ...)` divides by it");
  flush_trail(fr);
  fr->trail = NULL;
}

const char *extents_text(Front *fr, const int64_t *extent, uint32_t n) {
  const char *text = "[";
  for (uint32_t i = 0; i < n; i++)
    text = arena_printf(fr->arena, "%s%s%lld", text, i ? ", " : "", (long long)extent[i]);
  return arena_printf(fr->arena, "%s]", text);
}

const char *shape_text(Front *fr, const Shape *s) {
  const char *type = s->type == DT_I32 ? "int" : s->type == DT_BOOL ? "bool" : "real";
  return arena_printf(fr->arena, "%s%s", type, extents_text(fr, s->extent, s->rank));
}
