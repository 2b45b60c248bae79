// --report html: time of the model's lines and of its kernels, from a profile of ./train --profile.
#include "codegen/host/host.h"
#include "driver/command.h"
#include "driver/html.h"
#include "driver/report_parts.h"
#include "ir/diag.h"
#include "runtime/base/trace.h"
#include "runtime/files/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

// ---- reading ----

enum { NEST = 16, ROWS = 4 }; // activities inside others; rows of a rank in a trace

// Which activities a row of a rank is in.
typedef struct Nest {
  uint32_t at[NEST]; // Profile.spent
  double since[NEST], inside[NEST];
  uint32_t depth;
} Nest;

typedef struct Reader {
  Arena *a;
  Profile *to;
  VEC(Nest) row; // of rank r, row t: r * ROWS + t
  uint32_t *slot, nslot; // names of `spent`, hashed by the interned pointer; NONE: free
} Reader;

static uint32_t *slot_of(Reader *r, Str name) {
  uint32_t i = (uint32_t)(((uintptr_t)name >> 3) * UINT64_C(0x9E3779B97F4A7C15) >> 40) % r->nslot;
  while (r->slot[i] != NONE && r->to->spent.at[r->slot[i]].name != name) i = (i + 1) % r->nslot;
  return &r->slot[i];
}

static uint32_t spent_of(Reader *r, Str name) {
  if (r->to->spent.n * 2 >= r->nslot) {
    r->nslot = r->nslot ? r->nslot * 2 : 256;
    r->slot = NEWN(r->a, uint32_t, r->nslot);
    memset(r->slot, 0xff, r->nslot * sizeof *r->slot);
    for (uint32_t i = 0; i < r->to->spent.n; i++) *slot_of(r, r->to->spent.at[i].name) = i;
  }
  uint32_t *slot = slot_of(r, name);
  if (*slot == NONE) {
    *slot = r->to->spent.n;
    PUSH(r->a, r->to->spent, ((Spent){.name = name, .fn = NONE}));
  }
  return *slot;
}

static bool begin_or_end(Reader *r, Nest *n, Str name, bool begins, double at) {
  uint32_t which = spent_of(r, name);
  if (begins) {
    if (n->depth == NEST) return false;
    n->at[n->depth] = which;
    n->since[n->depth] = at;
    n->inside[n->depth++] = 0;
    return true;
  }
  if (!n->depth || n->at[n->depth - 1] != which) return false;
  n->depth--;
  double all = at - n->since[n->depth];
  Spent *s = &r->to->spent.at[which];
  s->count++;
  s->seconds += all - n->inside[n->depth];
  if (n->depth) n->inside[n->depth - 1] += all;
  return true;
}

static bool take_event(Reader *r, const DtJson *j, const DtJsonValue *e) {
  const DtJsonValue *ph = dt_json_member(j, e, "ph", DT_JSON_STRING);
  const DtJsonValue *name = dt_json_member(j, e, "name", DT_JSON_STRING);
  const DtJsonValue *ts = dt_json_member(j, e, "ts", DT_JSON_REAL);
  const DtJsonValue *pid = dt_json_member(j, e, "pid", DT_JSON_INTEGER), *tid = dt_json_member(j, e, "tid", DT_JSON_INTEGER);
  if (!ph || !name || !pid || !tid) return false;
  if (strcmp(ph->string, "B") && strcmp(ph->string, "E")) return true;
  if (!ts || pid->integer < 0 || pid->integer > 1 << 20 || tid->integer < 0 || tid->integer >= ROWS) return false;
  while (r->row.n <= pid->integer * ROWS + tid->integer) PUSH(r->a, r->row, ((Nest){.depth = 0}));
  return begin_or_end(r, &r->row.at[pid->integer * ROWS + tid->integer], str_intern(name->string), *ph->string == 'B',
                      ts->real * 1e-6);
}

static double number(const DtJson *j, const DtJsonValue *of, const char *key) {
  const DtJsonValue *v = dt_json_member(j, of, key, DT_JSON_REAL);
  return v ? v->real : 0;
}

static bool take_all(Reader *r, const DtJson *j) {
  const DtJsonValue *root = dt_json_root(j), *other = dt_json_member(j, root, "otherData", DT_JSON_OBJECT);
  const DtJsonValue *events = dt_json_member(j, root, "traceEvents", DT_JSON_ARRAY);
  const DtJsonValue *ranks = dt_json_member(j, root, "ranks", DT_JSON_ARRAY);
  if (!events || !ranks || !other) return false;
  for (const DtJsonValue *e = dt_json_first(j, events); e; e = dt_json_next(j, e))
    if (!take_event(r, j, e)) return false;
  for (const DtJsonValue *k = dt_json_first(j, ranks); k; k = dt_json_next(j, k))
    PUSH(r->a, r->to->rank, ((RankTime){number(j, k, "seconds"), number(j, k, "waiting"), number(j, k, "communicating"),
                                       number(j, k, "beside_computation")}));
  r->to->dropped = (int64_t)number(j, other, "dropped_events");
  return r->to->rank.n > 0;
}

// Fills in kernels. Returns a kernel's name in the profile that this program does not have, or NULL: names of the
// runtime are words without underscores.
static Str match(Reader *r, const Plan *p) {
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; p->reached[f] && i < p->fn[f].kernel.n; i++) {
      const Kernel *k = &p->fn[f].kernel.at[i];
      uint32_t *slot = kernel_is_named(k) && r->nslot ? slot_of(r, str_intern(k->name)) : NULL;
      if (!slot || *slot == NONE) continue;
      Spent *s = &r->to->spent.at[*slot];
      s->kernel = k;
      s->fn = f;
    }
  for (uint32_t i = 0; i < r->to->spent.n; i++)
    if (!r->to->spent.at[i].kernel && strchr(r->to->spent.at[i].name, '_')) return r->to->spent.at[i].name;
  return NULL;
}

static int by_time(const void *x, const void *y) {
  const Spent *a = x, *b = y;
  if (a->seconds != b->seconds) return a->seconds < b->seconds ? 1 : -1;
  return strcmp(a->name, b->name);
}

bool profile_read(Arena *a, Str path, const Plan *p, Profile *to) {
  size_t n;
  char *text = command_read(a, "--with-profile", path, &n);
  if (!text) return false;
  DtJson j;
  DtError e = {0};
  Reader r = {.a = a, .to = to};
  to->path = path;
  bool ok = !dt_json_parse(&j, text, n, path, &e);
  bool is_profile = ok && take_all(&r, &j);
  dt_json_free(&j);
  if (!ok) fprintf(stderr, "dtc: %s\n", e.text);
  else if (!is_profile) fprintf(stderr, "dtc: %s is not a profile: ./train --profile FILE writes one\n", path);
  if (!is_profile) return false;
  Str other = match(&r, p);
  if (other)
    fprintf(stderr, "dtc: %s has the kernel %s, which this program has not: give the model and the options that its "
                    "program was compiled with\n", path, other);
  qsort(to->spent.at, to->spent.n, sizeof *to->spent.at, by_time);
  return !other;
}

// ---- printing ----

enum { MOST_KERNELS = 40 };

static void bar(double part, FILE *out) {
  fprintf(out, "<td class=\"bar\"><i style=\"width: %.1f%%\"></i>\n", 100 * part);
}

// The place in the model that a kernel is for, or 0.
static Id place(const Plan *p, const Spent *s) {
  const Sources *src = p->m->src;
  if (!s->kernel || !s->kernel->stmt.n || !src) return 0;
  Id loc = p->m->fn.at[s->fn].stmt.at[s->kernel->stmt.at[0]].loc;
  if (loc >= src->loc.n) return 0;
  while (src->loc.at[loc].parent) loc = src->loc.at[loc].parent;
  return loc;
}

typedef struct Line {
  uint32_t file, line;
  Id loc; // 0: of no line
  double seconds;
} Line;

static int longest_first(const void *x, const void *y) {
  const Line *a = x, *b = y;
  if (a->seconds != b->seconds) return a->seconds < b->seconds ? 1 : -1;
  return a->line < b->line ? -1 : a->line > b->line;
}

// The line's text, without blanks around it and its comment.
static void put_line(const Plan *p, Id loc, FILE *out) {
  const Sources *src = p->m->src;
  const Loc *l = &src->loc.at[loc];
  const char *at = l->file < src->file.n ? src->file.at[l->file].text : NULL;
  for (uint32_t i = 1; at && i < l->line; i++) at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
  if (!at) return;
  at += strspn(at, " \t");
  size_t n = strcspn(at, "\n#");
  while (n && strchr(" \t\r", at[n - 1])) n--;
  fputs(" <code>", out);
  html_text(out, str_internn(at, n));
  fputs("</code>", out);
}

static void put_place(const Plan *p, Id loc, FILE *out) {
  Buf b = {0};
  put_source(p->m, loc, true, &b);
  if (b.n) html_text(out, b.text);
  buf_free(&b);
}

static void lines_html(const Profile *r, const Plan *p, double all, FILE *out) {
  VEC(Line) line = {0};
  for (uint32_t i = 0; i < r->spent.n; i++) {
    Id loc = place(p, &r->spent.at[i]);
    uint32_t k = 0;
    Line here = loc ? (Line){p->m->src->loc.at[loc].file, p->m->src->loc.at[loc].line, loc, 0} : (Line){0};
    while (k < line.n && (line.at[k].file != here.file || line.at[k].line != here.line)) k++;
    if (!r->spent.at[i].kernel) continue;
    if (k == line.n) PUSH(p->m->arena, line, here);
    line.at[k].seconds += r->spent.at[i].seconds;
  }
  qsort(line.at, line.n, sizeof *line.at, longest_first);
  fputs("<h2>Time of the model's lines</h2>\n<p>Kernels are counted at the line that they were made for, forward and "
        "backward, of all layers of a stack.\n<div class=\"wide\"><table id=\"lines\">\n<thead><tr><th>line<td>time of a "
        "rank<td>share<td class=\"bar\"></thead>\n", out);
  for (uint32_t k = 0; k < line.n; k++) {
    fputs("<tr><th>", out);
    if (line.at[k].loc) put_place(p, line.at[k].loc, out);
    else fputs("other kernels", out);
    if (line.at[k].loc) put_line(p, line.at[k].loc, out);
    fprintf(out, "<td><data value=\"%.9g\">", line.at[k].seconds / r->rank.n);
    html_seconds(out, line.at[k].seconds / r->rank.n);
    fprintf(out, "</data><td>%.1f%%", 100 * line.at[k].seconds / all);
    bar(line.at[k].seconds / line.at[0].seconds, out);
  }
  fputs("</table></div>\n", out);
}

// A kernel's name, which may be broken behind each underscore.
static void put_name(Str name, FILE *out) {
  for (const char *at = name; *at;) {
    size_t n = strcspn(at, "_") + (strchr(at, '_') != NULL);
    html_text(out, str_internn(at, n));
    at += n;
    if (*at) fputs("<wbr>", out);
  }
}

static void spent_html(const Profile *r, const Plan *p, const Spent *s, double all, FILE *out) {
  fprintf(out, "<tr><th>%s", s->kernel ? "<code>" : "");
  put_name(s->name, out);
  fprintf(out, "%s<th>", s->kernel ? "</code>" : "");
  Id loc = place(p, s);
  if (loc) put_place(p, loc, out);
  fputs("<td>", out);
  html_digits(out, s->count);
  fprintf(out, "<td><data value=\"%.9g\">", s->seconds / r->rank.n);
  html_seconds(out, s->seconds / r->rank.n);
  fputs("</data><td class=\"exact\">", out);
  html_seconds(out, s->count ? s->seconds / (double)s->count : 0);
  fputs("<td class=\"exact\">", out);
  if (s->kernel && s->seconds > 0 && s->kernel->flops > 0)
    html_scaled(out, s->kernel->flops * (double)s->count / s->seconds, 1000, "FLOP/s");
  fprintf(out, "<td>%.1f%%", 100 * s->seconds / all);
  bar(s->seconds / r->spent.at[0].seconds, out);
}

static void kernels_html(const Profile *r, const Plan *p, double all, FILE *out) {
  fputs("<h2>Time of kernels</h2>\n<p>Names without a place are the runtime's. Launches are those of all ranks, times of "
        "one.\n<div class=\"wide\"><table id=\"spent\">\n<thead><tr><th>kernel<th>line<td>launches<td>time of a rank"
        "<td class=\"exact\">of a launch<td class=\"exact\">rate<td>share<td class=\"bar\"></thead>\n", out);
  double rest = 0;
  for (uint32_t i = 0; i < r->spent.n; i++) {
    if (i < MOST_KERNELS) spent_html(r, p, &r->spent.at[i], all, out);
    else rest += r->spent.at[i].seconds;
  }
  if (r->spent.n > MOST_KERNELS) {
    fprintf(out, "<tr><th>%u more<th><td><td><data value=\"%.9g\">", r->spent.n - MOST_KERNELS, rest / r->rank.n);
    html_seconds(out, rest / r->rank.n);
    fprintf(out, "</data><td class=\"exact\"><td class=\"exact\"><td>%.1f%%", 100 * rest / all);
    bar(rest / r->spent.at[0].seconds, out);
  }
  fputs("</table></div>\n", out);
}

static void ranks_html(const Profile *r, FILE *out) {
  fputs("<div class=\"wide\"><table id=\"ranks_time\">\n<thead><tr><th>rank<td>recorded<td>waiting<td>communication<td>of it beside kernels"
        "</thead>\n", out);
  for (uint32_t i = 0; i < r->rank.n; i++) {
    const RankTime *t = &r->rank.at[i];
    const double v[] = {t->seconds, t->waiting, t->communicating, t->beside};
    fprintf(out, "<tr><th>%u", i);
    for (int k = 0; k < 4; k++) {
      fputs("<td>", out);
      html_seconds(out, fmax(v[k], 0));
    }
    putc('\n', out);
  }
  fputs("</table></div>\n", out);
}

void report_profile_html(const Profile *r, const Plan *p, FILE *out) {
  double all = 0;
  for (uint32_t i = 0; i < r->spent.n; i++) all += r->spent.at[i].seconds;
  if (!(all > 0)) all = 1;
  fputs("<h2>Profile</h2>\n<p>", out);
  html_text(out, r->path);
  fprintf(out, ": %u rank%s.", r->rank.n, r->rank.n > 1 ? "s" : "");
  if (r->dropped) {
    fputs(" The program could not keep ", out);
    html_digits(out, r->dropped);
    fputs(" events, which are missing here.", out);
  }
  putc('\n', out);
  if (r->rank.n > 1) ranks_html(r, out);
  lines_html(r, p, all, out);
  kernels_html(r, p, all, out);
}
