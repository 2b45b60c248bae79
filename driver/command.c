#include "driver/command.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/explain.h"
#include "driver/fmt.h"
#include "driver/new.h"
#include "driver/options.h"
#include "driver/plot.h"

static const Command commands[] = {
    {"new", "NAME [--from EXAMPLE]", "write a commented model, with how to get data", new_command},
    {"fmt", "[--check] [FILE...]", "lay out models (no FILE: stdin to stdout)", fmt_command},
    {"explain", "[STATUS|TEXT]", "what an exit status or a message means", explain_command},
    {"plot", "LOG...", "draw the losses of a log in the terminal", plot_command},
};
enum { NCOMMAND = sizeof commands / sizeof *commands };

const Command *command_find(const char *name) {
  for (int i = 0; i < NCOMMAND; i++)
    if (!strcmp(commands[i].name, name)) return &commands[i];
  return NULL;
}

void command_help_all(FILE *out) {
  for (int i = 0; i < NCOMMAND; i++) {
    char left[80];
    int n = snprintf(left, sizeof left, "%s %s", commands[i].name, commands[i].arg);
    fprintf(out, n > 24 ? "  %s\n%28s%s\n" : "  %-25s%s%s\n", left, n > 24 ? "" : " ",
            commands[i].help);
  }
}

int command_help(const char *name, const char *more) {
  const Command *c = command_find(name);
  printf("usage: dtc %s %s\n\n%s\n", c->name, c->arg, more);
  return 0;
}

int command_usage(const char *name, const char *fmt, ...) {
  va_list ap;
  fprintf(stderr, "dtc %s: ", name);
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fprintf(stderr, "; `dtc %s --help` says how\n", name);
  return EXIT_USAGE;
}

static bool complain(const char *name, const char *path) {
  fprintf(stderr, "dtc %s: %s: %s\n", name, path, strerror(errno));
  return false;
}

char *command_read(Arena *a, const char *name, const char *path, size_t *n) {
  errno = 0;
  FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
  Buf b = {0};
  char part[65536];
  for (size_t got; f && (got = fread(part, 1, sizeof part, f)) > 0;) buf_write(&b, part, got);
  char *text = NULL;
  if (!f || ferror(f)) complain(name, path);
  else {
    text = arena_alloc(a, b.n + 1);
    if (b.n) memcpy(text, b.text, b.n);
    *n = b.n;
  }
  if (f && f != stdin) fclose(f);
  buf_free(&b);
  return text;
}

// A link stays a link: the file that it names is replaced.
bool command_write(const char *name, const char *path, const Buf *b) {
  char real[PATH_MAX], part[PATH_MAX + 16];
  struct stat st;
  bool old = realpath(path, real) && !stat(real, &st);
  snprintf(part, sizeof part, "%s.dtc-XXXXXX", old ? real : path);
  int fd = mkstemp(part);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
  if (!f) return complain(name, path);
  mode_t mask = umask(0);
  umask(mask);
  bool ok = fwrite(b->text ? b->text : "", 1, b->n, f) == b->n && !fflush(f);
  ok = ok && !fchmod(fd, old ? st.st_mode & 07777 : 0666 & ~mask);
  ok = !fclose(f) && ok;
  ok = ok && !rename(part, old ? real : path);
  if (ok) return true;
  complain(name, path);
  unlink(part);
  return false;
}
