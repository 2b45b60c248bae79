// The emitted C file's smallest parts: identifiers, literals, comments, wrapped calls.
#include "codegen/host/host.h"

#include <ctype.h>
#include <math.h>

enum { COLUMNS = 100 };

// Words that C17 and the headers that emitted code includes have taken. Names that begin with dt_,
// Dt, DT_ or an underscore, and limits (INT_MAX), are avoided by names_new itself.
static const char *const reserved[] = {
    "auto",     "break",   "case",   "char",     "const",    "continue",  "default",  "do",
    "double",   "else",    "enum",   "extern",   "float",    "for",       "goto",     "if",
    "inline",   "int",     "long",   "register", "restrict", "return",    "short",    "signed",
    "sizeof",   "static",  "struct", "switch",   "typedef",  "union",     "unsigned", "void",
    "volatile", "while",   "bool",   "true",     "false",    "NULL",      "asm",      "typeof",
    "linux",    "unix",    "main",   "call",     "frame",    "key",       "beta",     "memcpy",
    "memset",   "memmove", "strlen", "listing",  "size_t",   "ptrdiff_t", "wchar_t",  "max_align_t",
    "offsetof",
};

void names_init(Names *n, Arena *a, const Names *outer) {
  *n = (Names){.arena = a, .outer = outer};
  if (outer) return;
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    PUSH(a, n->taken, str_intern(reserved[i]));
}

static bool taken(const Names *n, Str name) {
  for (; n; n = n->outer)
    for (uint32_t i = 0; i < n->taken.n; i++)
      if (n->taken.at[i] == name) return true;
  return false;
}

static bool ends_in(const char *s, const char *tail) {
  size_t n = strlen(s), k = strlen(tail);
  return n >= k && !strcmp(s + n - k, tail);
}

// Letters, digits and single underscores; not a name that the headers may use.
static Str cleaned(Str wanted) {
  char text[128];
  size_t n = 0;
  for (const char *p = wanted; *p && n < sizeof text - 8; p++) {
    if (isalnum((unsigned char)*p))
      text[n++] = *p;
    else if (n && text[n - 1] != '_')
      text[n++] = '_';
  }
  while (n && text[n - 1] == '_') n--;
  text[n] = 0;
  bool bad = !n || isdigit((unsigned char)text[0]) || !strncmp(text, "dt_", 3) ||
             !strncmp(text, "Dt", 2) || !strncmp(text, "DT_", 3) || ends_in(text, "_t") ||
             ends_in(text, "_MAX") || ends_in(text, "_MIN") || ends_in(text, "_WIDTH");
  return bad ? str_printf("v_%s%s", text,
                          ends_in(text, "_t") || isupper((unsigned char)text[n ? n - 1 : 0]) ? "_"
                                                                                             : "")
             : str_intern(text);
}

Str names_new(Names *n, Str wanted) {
  Str base = cleaned(wanted), s = base;
  for (int i = 2; taken(n, s); i++) s = str_printf("%s_%d", base, i);
  PUSH(n->arena, n->taken, s);
  return s;
}

void names_take(Names *n, Str name) {
  bool good = *name && !isdigit((unsigned char)*name) && !taken(n, name);
  for (const char *p = name; *p; p++) good = good && (isalnum((unsigned char)*p) || *p == '_');
  if (!good) BUG("kernel name '%s'", name);
  PUSH(n->arena, n->taken, name);
}

// A comment ends with its line, so neither a newline nor a backslash (nor the trigraph of one) may
// be in it.
void put_comment(Buf *b, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];
    bool trigraph = c == '?' && i + 1 < n && text[i + 1] == '?';
    char out = c == '\\' ? '/' : c < 32 || c > 126 || trigraph ? '.' : (char)c;
    buf_write(b, &out, 1);
  }
}

void put_string(Buf *b, const char *text) {
  buf_write(b, "\"", 1);
  for (const char *p = text; *p; p++) {
    unsigned char c = (unsigned char)*p;
    if (c == '\n')
      buf_write(b, "\\n", 2);
    else if (c == '"' || c == '\\' || c == '?')
      buf_printf(b, "\\%c", c);
    else if (c < 32 || c > 126)
      buf_printf(b, "\\%03o", c);
    else
      buf_write(b, p, 1);
  }
  buf_write(b, "\"", 1);
}

enum { LITERAL = 85 }; // characters of a text that go on a line

// How much of the text a literal takes: to the end of its line, or up to the last space that fits.
static size_t literal_length(const char *text) {
  size_t n = strcspn(text, "\n"), fit = LITERAL;
  if (text[n]) return n + 1;
  if (n <= LITERAL) return n;
  while (fit && text[fit - 1] != ' ') fit--;
  return fit ? fit : n;
}

void put_text(Buf *b, int indent, const char *text) {
  if (*text && !text[literal_length(text)] && !strchr(text, '\n')) {
    put_string(b, text);
    return;
  }
  if (!*text) buf_printf(b, "\"\"");
  if (*text && b->n && b->text[b->n - 1] == ' ') b->n--;
  for (size_t n; *text; text += n) {
    n = literal_length(text);
    buf_printf(b, "\n%*s", indent, "");
    put_string(b, str_printf("%.*s", (int)n, text));
  }
}

// The shortest digits that give the same bits back.
void put_real(Buf *b, double v) {
  char text[64];
  CHECK(isfinite(v)); // settings of a training run and numbers of attention are
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    double back;
    if (sscanf(text, "%lf", &back) == 1 && back == v) break;
  }
  buf_printf(b, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

void put_call(Buf *b, int indent, const char *head, const Str *arg, uint32_t n, const char *tail) {
  int column = indent + (int)strlen(head) + 1, start = indent + 4;
  buf_printf(b, "%*s%s(", indent, "", head);
  for (uint32_t i = 0; i < n; i++) {
    int width = (int)strlen(arg[i]) + (i + 1 < n ? 1 : (int)strlen(tail) + 1);
    if (i && column + 1 + width > COLUMNS) {
      buf_printf(b, "\n%*s", start, "");
      column = start;
    } else if (i) {
      buf_write(b, " ", 1);
      column++;
    }
    buf_printf(b, "%s%s", arg[i], i + 1 < n ? "," : "");
    column += (int)strlen(arg[i]) + 1;
  }
  buf_printf(b, ")%s", tail);
}

void put_pieces(Buf *b, int indent, const Str *piece, uint32_t n) {
  int column = indent;
  for (uint32_t i = 0; i < n; i++) {
    const char *end = strrchr(piece[i], '\n'); // of a text in lines
    int width = (int)strcspn(piece[i], "\n") + 1;
    bool broken = *piece[i] == LINE_BREAK;
    if (i && (broken || column + 1 + width > COLUMNS)) {
      buf_printf(b, "\n%*s", indent, "");
      column = indent;
    } else if (i) {
      buf_write(b, " ", 1);
      column++;
    }
    buf_printf(b, "%s%s", piece[i] + broken, i + 1 < n ? "," : "");
    column = end ? (int)strlen(end) : column + width;
  }
}

void put_bytes(Buf *b, double bytes) {
  static const char *const unit[] = {"bytes", "kB", "MB", "GB", "TB"};
  int u = 0;
  for (; bytes >= 999.5 && u < 4; u++) bytes /= 1000; // 999.6 would print as 1e+03
  buf_printf(b, "%.3g %s", bytes, unit[u]);
}

void put_source(const Module *m, Id loc, bool outermost, Buf *b) {
  const Sources *s = m->src;
  if (!s || loc >= s->loc.n || !loc) return;
  while (outermost && s->loc.at[loc].parent) loc = s->loc.at[loc].parent;
  const Loc *l = &s->loc.at[loc];
  if (l->file >= s->file.n) return;
  const char *name = s->file.at[l->file].name, *slash = strrchr(name, '/');
  buf_printf(b, "%s:%u", slash ? slash + 1 : name, l->line);
}

// How much of the text goes on a line with this much room: up to a space outside of subscripts and
// before the mark of a place, or, where there is none, to any.
static size_t line_length(const char *text, size_t room) {
  size_t best = 0, n = strlen(text);
  int depth = 0;
  if (n <= room) return n;
  for (size_t i = 1; i <= room; i++) {
    depth += (text[i - 1] == '[') - (text[i - 1] == ']');
    if (text[i] == ' ' && text[i - 1] != ' ' && text[i - 1] != '#' && !depth) best = i;
  }
  for (size_t i = room; !best && i; i--)
    if (text[i] == ' ') best = i;
  return best ? best : room + strcspn(text + room, " ");
}

void put_wrapped(Buf *b, const char *first, const char *rest, const char *text) {
  const char *lead = first;
  for (;;) {
    size_t n = line_length(text, 100 - strlen(lead));
    buf_printf(b, "%s%.*s", lead, (int)n, text);
    text += n + strspn(text + n, " ");
    if (!*text) return;
    buf_printf(b, "\n");
    lead = rest;
  }
}

const char *precision_name(const Module *m) {
  if (is_half(m->store)) return m->store == DT_BF16 ? "bf16" : "fp16";
  return m->compute == DT_F64 ? "fp64" : "fp32";
}

const char *const host_type[NDTYPE] = {
    [DT_F64] = "DT_TYPE_F64",   [DT_F32] = "DT_TYPE_F32",   [DT_I32] = "DT_TYPE_I32",
    [DT_BOOL] = "DT_TYPE_BOOL", [DT_BF16] = "DT_TYPE_BF16", [DT_F16] = "DT_TYPE_F16"};

const char *c_type(Dtype t) {
  switch (t) {
  case DT_F32: return "float";
  case DT_F64: return "double";
  case DT_I32: return "int32_t";
  case DT_BOOL: return "uint8_t";
  case DT_BF16:
  case DT_F16: return "uint16_t";
  default: BUG("no C type for %s", dtype_name[t]);
  }
}
