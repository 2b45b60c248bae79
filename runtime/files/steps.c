#include "runtime/files/steps.h"

#include "runtime/files/file.h"

#include <stdio.h>
#include <string.h>

int64_t dt_step_of(const char *name, const char *end) {
  if (strncmp(name, "step-", 5) != 0) return -1;
  const char *p = name + 5;
  int64_t v = 0;
  int digits = 0;
  for (; *p >= '0' && *p <= '9' && digits < 18; p++, digits++) v = v * 10 + (*p - '0');
  return digits >= 8 && strcmp(p, end) == 0 ? v : -1;
}

typedef struct {
  const char *end;
  int64_t below, newest;
} Search;

static void look_at(const char *name, void *arg) {
  Search *s = arg;
  int64_t step = dt_step_of(name, s->end);
  if (step < s->below && step > s->newest) s->newest = step;
}

int dt_step_below(const char *folder, const char *end, int64_t below, int64_t *step, DtError *e) {
  Search s = {end, below, -1};
  *step = -1;
  if (dt_look_through(folder, look_at, &s) != 0)
    return dt_input_error(e, "cannot read folder", folder);
  *step = s.newest;
  return 0;
}

int dt_step_path(char out[PATH_MAX], const char *folder, int64_t step, const char *end, DtError *e) {
  char name[64];
  snprintf(name, sizeof name, "step-%08lld%s", (long long)step, end);
  return dt_path(out, folder, name, e);
}
