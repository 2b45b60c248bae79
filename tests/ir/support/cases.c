#include "cases.h"

#include <dirent.h>
#include <stdlib.h>

static char *read_file(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  Buf b = {0};
  char part[4096];
  if (!f) return NULL;
  buf_write(&b, "", 0);
  for (size_t k; (k = fread(part, 1, sizeof part, f)) > 0;) buf_write(&b, part, k);
  fclose(f);
  *n = b.n;
  return b.text;
}

static bool run_case(const char *path, bool (*check)(Case *c)) {
  Case c = {.path = path, .a = arena_new()};
  char *text = read_file(path, &c.n);
  if (!text) return printf("%s: can't be read\n", path), false;
  c.text = text;
  c.src = sources_new(c.a);
  c.src->out = open_memstream(&c.said, &c.nsaid);
  c.src->max_errors = 1000;
  const char *slash = strrchr(path, '/');
  c.m = ir_parse(c.a, c.src, str_intern(slash + 1), text, c.n);
  bool ok = check(&c);
  fclose(c.src->out);
  free(c.said);
  free(text);
  arena_free(c.a);
  return ok;
}

int cases_run(const char *dir, bool (*check)(Case *c)) {
  DIR *d = opendir(dir);
  int bad = 0, n = 0;
  if (!d) return printf("%s: no such folder\n", dir), 1;
  for (struct dirent *e; (e = readdir(d));) {
    char path[4096];
    size_t k = strlen(e->d_name);
    if (k < 3 || strcmp(e->d_name + k - 3, ".ir")) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    bool ok = run_case(path, check);
    if (!ok) printf("FAIL %s\n", path);
    bad += !ok;
    n++;
  }
  closedir(d);
  printf("%d of %d files of %s pass\n", n - bad, n, dir);
  return bad + !n;
}

const char *case_said(Case *c) {
  fflush(c->src->out);
  return c->said;
}

const char *case_expects(const Case *c, const char *key, int k) {
  size_t n = strlen(key);
  for (const char *line = c->text; line[0] == '#'; line = strchr(line, '\n') + 1) {
    if (strncmp(line, "# ", 2) || strncmp(line + 2, key, n) || strncmp(line + 2 + n, ": ", 2))
      continue;
    const char *rest = line + n + 4;
    if (!k--) return arena_printf(c->a, "%.*s", (int)strcspn(rest, "\n"), rest);
  }
  return NULL;
}

// The k-th line of `said` that holds `mark`, or NULL.
static const char *said_line(Case *c, const char *mark, int k) {
  for (const char *line = case_said(c); *line; line = strchr(line, '\n') + 1) {
    const char *text = arena_printf(c->a, "%.*s", (int)strcspn(line, "\n"), line);
    if (strstr(text, mark) && !k--) return text;
    if (!strchr(line, '\n')) break;
  }
  return NULL;
}

static bool match(Case *c, const char *key, bool all) {
  for (int k = 0;; k++) {
    const char *mark = arena_printf(c->a, "%s: ", key);
    const char *want = case_expects(c, key, k), *got = said_line(c, mark, k);
    if (!want && (!got || !all)) return true;
    if (want && got && strstr(got, want)) continue;
    printf("%s %d\n  want %s\n  got  %s\n", key, k + 1, want ? want : "nothing",
           got ? got : "nothing");
    return false;
  }
}

bool case_errors_match(Case *c) { return match(c, "error", true) && match(c, "note", false); }
