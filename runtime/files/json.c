#include "runtime/files/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LEVELS = 64, MOST_VALUES = 8 << 20 };

typedef struct {
  DtJson *j;
  const char *begin, *at, *end, *what;
  DtError *e;
  const char **keys; // scratch for the search for duplicates
  uint32_t nkeys;
} Parser;

static uint32_t fail(Parser *p, const char *cause) {
  dt_fail(p->e, DT_EXIT_CONTENT, "%s: %s at byte %zu of its JSON", p->what, cause,
          (size_t)(p->at - p->begin));
  return 0;
}

static uint32_t no_memory(Parser *p) {
  dt_fail(p->e, DT_EXIT_OS, "no memory to read %s", p->what);
  return 0;
}

static void skip_space(Parser *p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
    p->at++;
}

static uint32_t new_value(Parser *p, DtJsonKind kind) {
  DtJson *j = p->j;
  if (j->n == j->capacity) {
    uint32_t more = j->capacity ? j->capacity * 2 : 256;
    if (more > MOST_VALUES) return fail(p, "too many values");
    DtJsonValue *v = realloc(j->value, more * sizeof *v);
    if (!v) return no_memory(p);
    j->value = v;
    j->capacity = more;
  }
  j->value[j->n] = (DtJsonValue){.kind = kind};
  return j->n++;
}

static int hex4(Parser *p, unsigned *out) {
  if (p->end - p->at < 4) return 0;
  unsigned v = 0;
  for (int i = 0; i < 4; i++) {
    char c = *p->at++;
    if (c >= '0' && c <= '9') v = v * 16 + (unsigned)(c - '0');
    else if (c >= 'a' && c <= 'f') v = v * 16 + (unsigned)(c - 'a' + 10);
    else if (c >= 'A' && c <= 'F') v = v * 16 + (unsigned)(c - 'A' + 10);
    else return 0;
  }
  *out = v;
  return 1;
}

static void put_utf8(DtJson *j, unsigned c) {
  char *o = j->text + j->used;
  if (c < 0x80) {
    *o++ = (char)c;
  } else if (c < 0x800) {
    *o++ = (char)(0xC0 | c >> 6);
    *o++ = (char)(0x80 | (c & 63));
  } else if (c < 0x10000) {
    *o++ = (char)(0xE0 | c >> 12);
    *o++ = (char)(0x80 | (c >> 6 & 63));
    *o++ = (char)(0x80 | (c & 63));
  } else {
    *o++ = (char)(0xF0 | c >> 18);
    *o++ = (char)(0x80 | (c >> 12 & 63));
    *o++ = (char)(0x80 | (c >> 6 & 63));
    *o++ = (char)(0x80 | (c & 63));
  }
  j->used = (size_t)(o - j->text);
}

// After a backslash. Every escape is longer than its meaning, so text never outgrows the
// input.
static int escape(Parser *p) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (p->at == p->end) return 0;
  char c = *p->at++;
  const char *f = strchr(from, c);
  if (c && f) {
    p->j->text[p->j->used++] = to[f - from];
    return 1;
  }
  unsigned u, low;
  if (c != 'u' || !hex4(p, &u) || u == 0 || (u >= 0xDC00 && u < 0xE000)) return 0;
  if (u >= 0xD800 && u < 0xDC00) {
    if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u') return 0;
    p->at += 2;
    if (!hex4(p, &low) || low < 0xDC00 || low >= 0xE000) return 0;
    u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
  }
  put_utf8(p->j, u);
  return 1;
}

// Bytes of one UTF-8 character that may stand in a string, or 0 where there is none.
static int utf8_length(const char *s, const char *end) {
  const unsigned char *p = (const unsigned char *)s;
  if (p[0] < 0x80) return p[0] >= 0x20;
  int n = p[0] >= 0xC2 && p[0] < 0xE0   ? 2
          : p[0] >= 0xE0 && p[0] < 0xF0 ? 3
          : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
                                        : 0;
  if (n == 0 || end - s < n) return 0;
  for (int i = 1; i < n; i++)
    if ((p[i] & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, and past U+10FFFF.
  if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] >= 0xA0) ||
      (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] >= 0x90))
    return 0;
  return n;
}

static const char *string(Parser *p) {
  DtJson *j = p->j;
  size_t start = j->used;
  for (p->at++; p->at < p->end;) {
    if (*p->at == '"') {
      p->at++;
      j->text[j->used++] = 0;
      return j->text + start;
    }
    if (*p->at == '\\') {
      p->at++;
      if (!escape(p)) break;
      continue;
    }
    int n = utf8_length(p->at, p->end);
    if (n == 0) break;
    memcpy(j->text + j->used, p->at, (size_t)n);
    j->used += (size_t)n;
    p->at += n;
  }
  fail(p, "bad string");
  return NULL;
}

static bool digits(Parser *p) {
  const char *from = p->at;
  while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
  return p->at > from;
}

static uint32_t number(Parser *p) {
  const char *from = p->at;
  bool whole = true;
  if (*p->at == '-') p->at++;
  const char *first = p->at;
  if (!digits(p) || (*first == '0' && p->at - first > 1)) return fail(p, "bad number");
  if (p->at < p->end && *p->at == '.') {
    whole = false;
    p->at++;
    if (!digits(p)) return fail(p, "bad number");
  }
  if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
    whole = false;
    p->at++;
    if (p->at < p->end && (*p->at == '+' || *p->at == '-')) p->at++;
    if (!digits(p)) return fail(p, "bad number");
  }
  char text[64];
  size_t n = (size_t)(p->at - from);
  if (n >= sizeof text) return fail(p, "a number of too many digits");
  memcpy(text, from, n);
  text[n] = 0;
  uint32_t v = new_value(p, whole ? DT_JSON_INTEGER : DT_JSON_REAL);
  if (!v) return 0;
  errno = 0;
  if (whole) {
    p->j->value[v].integer = strtoll(text, NULL, 10);
    if (errno == ERANGE) return fail(p, "an integer past 64 bits");
  }
  p->j->value[v].real = strtod(text, NULL);
  return v;
}

static uint32_t word(Parser *p) {
  static const struct {
    const char *text;
    DtJsonKind kind;
    int64_t integer;
  } words[] = {{"null", DT_JSON_NULL, 0}, {"true", DT_JSON_BOOL, 1}, {"false", DT_JSON_BOOL, 0}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t n = strlen(words[i].text);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, words[i].text, n) != 0) continue;
    p->at += n;
    uint32_t v = new_value(p, words[i].kind);
    if (v) p->j->value[v].integer = words[i].integer;
    return v;
  }
  return fail(p, "unexpected character");
}

static int compare_keys(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static uint32_t check_keys(Parser *p, uint32_t object) {
  DtJson *j = p->j;
  uint32_t n = j->value[object].count, i = 0;
  if (n < 2) return object;
  if (n > p->nkeys) {
    const char **more = realloc(p->keys, n * sizeof *more);
    if (!more) return no_memory(p);
    p->keys = more;
    p->nkeys = n;
  }
  for (uint32_t c = j->value[object].child; c; c = j->value[c].next) p->keys[i++] = j->value[c].key;
  qsort(p->keys, n, sizeof *p->keys, compare_keys);
  for (i = 1; i < n; i++)
    if (strcmp(p->keys[i - 1], p->keys[i]) == 0) return fail(p, "a key that occurs twice");
  return object;
}

static uint32_t value(Parser *p, int level);

static uint32_t container(Parser *p, int level) {
  bool object = *p->at == '{';
  char close = object ? '}' : ']';
  if (level >= MOST_LEVELS) return fail(p, "too many levels");
  uint32_t v = new_value(p, object ? DT_JSON_OBJECT : DT_JSON_ARRAY), last = 0;
  if (!v) return 0;
  p->at++;
  skip_space(p);
  if (p->at < p->end && *p->at == close) {
    p->at++;
    return v;
  }
  for (;;) {
    const char *key = NULL;
    skip_space(p);
    if (object) {
      if (p->at == p->end || *p->at != '"') return fail(p, "a key is missing");
      if (!(key = string(p))) return 0;
      skip_space(p);
      if (p->at == p->end || *p->at++ != ':') return fail(p, "':' is missing");
    }
    uint32_t c = value(p, level + 1);
    if (!c) return 0;
    p->j->value[c].key = key;
    if (last) p->j->value[last].next = c;
    else p->j->value[v].child = c;
    last = c;
    p->j->value[v].count++;
    skip_space(p);
    if (p->at == p->end) return fail(p, "unexpected end");
    if (*p->at == close) break;
    if (*p->at != ',') return fail(p, "',' is missing");
    p->at++;
  }
  p->at++;
  return object ? check_keys(p, v) : v;
}

static uint32_t value(Parser *p, int level) {
  skip_space(p);
  if (p->at == p->end) return fail(p, "unexpected end");
  char c = *p->at;
  if (c == '{' || c == '[') return container(p, level);
  if (c == '-' || (c >= '0' && c <= '9')) return number(p);
  if (c != '"') return word(p);
  const char *s = string(p);
  uint32_t v = s ? new_value(p, DT_JSON_STRING) : 0;
  if (v) p->j->value[v].string = s;
  return v;
}

int dt_json_parse(DtJson *j, const char *bytes, size_t size, const char *what, DtError *e) {
  *j = (DtJson){0};
  Parser p = {.j = j, .begin = bytes, .at = bytes, .end = bytes + size, .what = what, .e = e};
  // A string takes two quotes in the input and one zero here.
  j->text = malloc(size + 1);
  if (!j->text) return dt_fail(e, DT_EXIT_OS, "no memory to read %s", what);
  new_value(&p, DT_JSON_NULL); // position 0 means "none"
  bool good = j->n == 1 && value(&p, 0);
  skip_space(&p);
  if (good && p.at != p.end) good = fail(&p, "something after the end");
  free(p.keys);
  return good ? 0 : e->status;
}

void dt_json_free(DtJson *j) {
  free(j->value);
  free(j->text);
  *j = (DtJson){0};
}

const DtJsonValue *dt_json_member(const DtJson *j, const DtJsonValue *object, const char *key,
                                  DtJsonKind kind) {
  if (object->kind != DT_JSON_OBJECT) return NULL;
  for (const DtJsonValue *v = dt_json_first(j, object); v; v = dt_json_next(j, v))
    if (strcmp(v->key, key) == 0)
      return v->kind == kind || (v->kind == DT_JSON_INTEGER && kind == DT_JSON_REAL) ? v : NULL;
  return NULL;
}

void dt_json_escape(char *out, size_t size, const char *text) {
  char *end = out + size - 7; // room for one \u00XX and the zero
  for (const char *last = text + strlen(text); *text && out < end;) {
    unsigned char c = (unsigned char)*text;
    int n = utf8_length(text, last);
    if (c == '"' || c == '\\') *out++ = '\\', *out++ = (char)c;
    else if (c < 0x20 || c == 0x7F) out += sprintf(out, "\\u%04x", c);
    else if (n == 0) out += sprintf(out, "\\ufffd"); // a file's name may be any bytes
    else memcpy(out, text, (size_t)n), out += n;
    text += n ? n : 1;
  }
  *out = 0;
}

char *dt_json_quote(const char *text) {
  size_t n = strlen(text) * 6 + 16; // the longest escape takes six bytes
  char *out = malloc(n);
  if (!out) return NULL;
  out[0] = '"';
  dt_json_escape(out + 1, n - 2, text);
  strcat(out, "\"");
  return out;
}

void dt_json_real(char out[32], double x) {
  if (!isfinite(x)) {
    strcpy(out, "null");
    return;
  }
  for (int precision = 6; precision <= 17; precision++) {
    snprintf(out, 32, "%.*g", precision, x);
    if (strtod(out, NULL) == x) return;
  }
}
