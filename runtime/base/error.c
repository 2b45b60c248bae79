#include "runtime/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int dt_fail(DtError *e, int status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(e->text, sizeof e->text, format, args);
  va_end(args);
  e->teller = 0;
  e->status = status;
  return status;
}

int dt_fail_errno(DtError *e, int status, const char *what, const char *path) {
  return dt_fail(e, status, "%s %s: %s", what, path, strerror(errno));
}

void dt_report(const DtError *e) {
  fflush(stdout);
  if (e->teller) fprintf(stderr, "train: rank %d: error: %s\n", e->teller - 1, e->text);
  else fprintf(stderr, "train: error: %s\n", e->text);
}

void dt_note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fflush(stdout);
  fputs("train: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
}
