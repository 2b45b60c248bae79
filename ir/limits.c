#include "ir/limits.h"

#include <stdlib.h>
#include <string.h>

const Limits default_limits = {
#define X(name, value, least, most, meaning) .name = (value),
    COMPILER_LIMITS(X)
#undef X
};

static const struct {
  const char *name;
  int64_t least, most;
  const char *meaning;
} rows[] = {
#define X(name, value, least, most, meaning) {#name, (least), (most), meaning},
    COMPILER_LIMITS(X)
#undef X
#define X(name, least, most, meaning) {#name, (least), (most), meaning},
    TARGET_LIMITS(X)
#undef X
};
enum { NROWS = sizeof rows / sizeof *rows };
_Static_assert(sizeof(Limits) == NROWS * sizeof(int64_t), "Limits is an array of the rows");

static bool set_one(Limits *l, const char *text, size_t n, Buf *error) {
  size_t name = 0;
  while (name < n && text[name] != '=') name++;
  uint32_t i = 0;
  while (i < NROWS && (strlen(rows[i].name) != name || memcmp(rows[i].name, text, name))) i++;
  if (i == NROWS) {
    buf_printf(error, "there is no limit '%.*s'; there are", (int)name, text);
    for (i = 0; i < NROWS; i++) buf_printf(error, "%s %s", i ? "," : "", rows[i].name);
    return false;
  }
  char *end = (char *)text + name;
  bool number = name + 1 < n && text[name + 1] >= '0' && text[name + 1] <= '9';
  long long value = number ? strtoll(text + name + 1, &end, 10) : 0;
  if (!number || end != text + n || value < rows[i].least || value > rows[i].most) {
    buf_printf(error, "'%.*s': %s (%s) is a number from %lld to %lld", (int)n, text, rows[i].name,
               rows[i].meaning, (long long)rows[i].least, (long long)rows[i].most);
    return false;
  }
  ((int64_t *)l)[i] = value;
  return true;
}

bool limits_set(Limits *l, const char *text, Buf *error) {
  while (*text) {
    size_t n = strcspn(text, ",\n");
    if (!set_one(l, text, n, error)) return false;
    text += n + (text[n] != 0);
  }
  return true;
}

void limits_print(const Limits *l, const Limits *usual, Buf *out) {
  const int64_t *value = (const int64_t *)l, *was = (const int64_t *)usual;
  for (uint32_t i = 0, n = 0; i < NROWS; i++)
    if (value[i] != was[i])
      buf_printf(out, "%s%s=%lld", n++ ? "," : "", rows[i].name, (long long)value[i]);
}

bool limits_legal(const Limits *l, const char **which) {
  const int64_t *value = (const int64_t *)l;
  for (uint32_t i = 0; i < NROWS; i++) {
    *which = rows[i].name;
    if (value[i] < rows[i].least || value[i] > rows[i].most) return false;
  }
  return true;
}
