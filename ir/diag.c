#include "ir/diag.h"

enum { MAX_CHAIN = 6, MAX_NAME = 64, MAX_LINE = 200 };

typedef struct Seen { // an error that was printed
  Id loc;
  Str text;
} Seen;

struct LocTable {
  Id *slot; // 0: empty, for loc 0 is never looked up
  uint32_t cap;
  VEC(Seen) seen;
  bool muted; // the last error was a repetition: so are its notes
  Id last;    // place of the last message
};

Sources *sources_new(Arena *a) {
  Sources *s = NEW(a, Sources);
  s->arena = a;
  s->out = stderr;
  s->max_errors = 20;
  s->table = NEW(a, struct LocTable);
  PUSH(a, s->loc, (Loc){0});
  return s;
}

uint32_t sources_add(Sources *s, Str name, const char *text, size_t n) {
  PUSH(s->arena, s->file, (SourceFile){name, text, n});
  return s->file.n - 1;
}

static uint64_t loc_hash(const Loc *l) {
  uint64_t h = l->file;
  const uint32_t part[] = {l->line, l->col, l->len, l->parent};
  for (int i = 0; i < 4; i++) h = (h ^ part[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  return h;
}

static void table_grow(Sources *s) {
  struct LocTable *t = s->table;
  t->cap = t->cap ? t->cap * 2 : 1024;
  t->slot = NEWN(s->arena, Id, t->cap);
  for (Id i = 1; i < s->loc.n; i++) {
    uint64_t h = loc_hash(&s->loc.at[i]) & (t->cap - 1);
    while (t->slot[h]) h = (h + 1) & (t->cap - 1);
    t->slot[h] = i;
  }
}

Id loc_new(Sources *s, uint32_t file, uint32_t line, uint32_t col, uint32_t len, Id parent) {
  Loc l = {file, line, col, len, parent};
  struct LocTable *t = s->table;
  if (s->loc.n * 2 >= t->cap) table_grow(s);
  uint64_t h = loc_hash(&l) & (t->cap - 1);
  for (; t->slot[h]; h = (h + 1) & (t->cap - 1))
    if (!memcmp(&s->loc.at[t->slot[h]], &l, sizeof l)) return t->slot[h];
  PUSH(s->arena, s->loc, l);
  return t->slot[h] = s->loc.n - 1;
}

Id loc_inlined(Sources *s, Id loc, Id parent) {
  if (!parent) return loc;
  if (!loc) return parent;
  Loc l = s->loc.at[loc];
  return loc_new(s, l.file, l.line, l.col, l.len, loc_inlined(s, l.parent, parent));
}

typedef struct Style {
  const char *bold, *severity, *caret, *off;
} Style;

static Style style_of(const Sources *s, Severity sev) {
  static const char *const color[] = {"\033[1;31m", "\033[1;35m", "\033[1;36m"};
  if (!s->color) return (Style){"", "", "", ""};
  return (Style){"\033[1m", color[sev], "\033[1;32m", "\033[0m"};
}

static bool continues_char(char c) { return ((unsigned char)c & 0xc0) == 0x80; } // of UTF-8

// The source line and, below it, a caret under the place with tildes to its end. Tabs are kept and
// a UTF-8 character counts as one column, so that the caret stands where a terminal shows the
// place. Of a very long line only what is around the place is shown.
static void print_line(const Sources *s, const Loc *l, const Style *st) {
  const SourceFile *f = &s->file.at[l->file];
  if (!f->text || !l->line) return;
  const char *p = f->text, *end = f->text + f->n;
  for (uint32_t i = 1; i < l->line && p < end; p++) i += *p == '\n';
  size_t n = 0, from = 0, at = l->col - 1;
  while (p + n < end && p[n] != '\n' && p[n] != '\r') n++;
  if (n > MAX_LINE && at > MAX_LINE / 2) from = at - MAX_LINE / 2;
  while (from && from < n && continues_char(p[from])) from--;
  size_t to = n - from > MAX_LINE ? from + MAX_LINE : n;
  const char *left = from ? "..." : "", *right = to < n ? "..." : "";
  fprintf(s->out, "%s%.*s%s\n", left, (int)(to - from), p + from, right);
  fprintf(s->out, "%*s", (int)strlen(left), "");
  for (size_t i = from; i < at && i < to; i++)
    if (p[i] == '\t') putc('\t', s->out);
    else if (!continues_char(p[i])) putc(' ', s->out);
  fprintf(s->out, "%s^", st->caret);
  for (size_t i = at + 1; i < at + l->len && i < to; i++)
    if (!continues_char(p[i])) putc('~', s->out);
  fprintf(s->out, "%s\n", st->off);
}

// The passes meet a mistake in the training loss and again in the one for validation.
static bool repeated(Sources *s, Id loc, const char *line) {
  struct LocTable *t = s->table;
  Str text = str_intern(line);
  for (uint32_t i = 0; i < t->seen.n; i++)
    if (t->seen.at[i].loc == loc && t->seen.at[i].text == text) return true;
  PUSH(s->arena, t->seen, (Seen){loc, text});
  return false;
}

// A note at the place of the message before does not show the line again.
static void print_one(Sources *s, Severity sev, Id loc, const char *text) {
  static const char *const word[] = {"error", "warning", "note"};
  Style st = style_of(s, sev);
  const Loc *l = &s->loc.at[loc];
  if (loc && l->file < s->file.n) {
    fprintf(s->out, "%s%s:", st.bold, s->file.at[l->file].name);
    if (l->line) fprintf(s->out, "%u:%u:", l->line, l->col);
    fputc(' ', s->out);
  } else {
    fprintf(s->out, "%sdtc: ", st.bold);
  }
  fprintf(s->out, "%s%s:%s %s%s%s\n", st.severity, word[sev], st.off, st.bold, text, st.off);
  if (loc && l->file < s->file.n && !(sev == DIAG_NOTE && loc == s->table->last))
    print_line(s, l, &st);
  s->table->last = loc;
}

static void print_chain(Sources *s, Id loc) {
  Id at = loc ? s->loc.at[loc].parent : 0;
  for (int i = 0; at && i < MAX_CHAIN; i++, at = s->loc.at[at].parent)
    print_one(s, DIAG_NOTE, at, "in a call from here");
}

void diag(Sources *s, Severity sev, Id loc, const char *fmt, ...) {
  Arena *scratch = arena_new();
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(scratch, fmt, ap);
  va_end(ap);
  if (sev != DIAG_NOTE) s->table->muted = repeated(s, loc, text);
  if (!s->table->muted) {
    s->nerror += sev == DIAG_ERROR;
    if (s->nerror <= s->max_errors) {
      print_one(s, sev, loc, text);
      if (sev != DIAG_NOTE) print_chain(s, loc);
    } else if (sev == DIAG_ERROR && s->nerror == s->max_errors + 1) {
      fprintf(s->out, "dtc: too many errors; the rest are not shown\n");
    }
  }
  arena_free(scratch);
}

// Optimal string alignment distance (edits and swaps of neighbours), cut off above `limit`.
static uint32_t distance(Str a, Str b, uint32_t limit) {
  uint32_t n = (uint32_t)strlen(a), m = (uint32_t)strlen(b);
  if (n > MAX_NAME || m > MAX_NAME || n > m + limit || m > n + limit) return limit + 1;
  uint32_t row[3][MAX_NAME + 1];
  for (uint32_t j = 0; j <= m; j++) row[0][j] = j;
  for (uint32_t i = 1; i <= n; i++) {
    uint32_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
    now[0] = i;
    for (uint32_t j = 1; j <= m; j++) {
      uint32_t d = last[j - 1] + (a[i - 1] != b[j - 1]);
      if (last[j] + 1 < d) d = last[j] + 1;
      if (now[j - 1] + 1 < d) d = now[j - 1] + 1;
      bool swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swap && before[j - 2] + 1 < d) d = before[j - 2] + 1;
      now[j] = d;
    }
  }
  return row[n % 3][m];
}

Str did_you_mean(Str name, const Str *candidate, uint32_t n) {
  uint32_t limit = strlen(name) > 1 ? ((uint32_t)strlen(name) + 2) / 3 : 0, best = limit + 1;
  Str found = NULL;
  for (uint32_t i = 0; i < n; i++) {
    if (!candidate[i] || candidate[i] == name) continue;
    uint32_t d = distance(name, candidate[i], limit);
    if (d < best && d < strlen(candidate[i])) {
      best = d;
      found = candidate[i];
    }
  }
  return found;
}
