#define _GNU_SOURCE
#include "runtime/log.h"

#include "runtime/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SECONDS_BETWEEN_LINES = 10 }; // on a pipe

// Where the records up to `step` end. What does not parse, a line cut off by a crash, ends them
// too.
static long end_of_records(FILE *f, int64_t step) {
  char *line = NULL;
  size_t capacity = 0;
  long end = 0;
  for (ssize_t n; (n = getline(&line, &capacity, f)) > 0;) {
    DtJson j;
    DtError ignored;
    bool keep = false;
    if (line[n - 1] == '\n' && !dt_json_parse(&j, line, (size_t)n, "log", &ignored)) {
      const DtJsonValue *s = dt_json_member(&j, dt_json_root(&j), "step", DT_JSON_INTEGER);
      keep = s && s->integer <= step;
    }
    dt_json_free(&j);
    if (!keep) break;
    end = ftell(f);
  }
  free(line);
  return end;
}

// Its buffer is there before the first record.
static FILE *create(const char *path) {
  static char buffer[4096];
  FILE *f = fopen(path, "w");
  if (f) setvbuf(f, buffer, _IOFBF, sizeof buffer);
  return f;
}

int dt_log_open(DtLog *l, const DtRun *r, DtError *e) {
  *l = (DtLog){.path = r->o.log,
               .quiet = r->o.quiet,
               .terminal = isatty(STDOUT_FILENO),
               .began = dt_seconds(),
               .first = r->step};
  if (!r->o.log) return 0;
  l->file = r->step > 0 ? fopen(r->o.log, "r+") : NULL;
  if (l->file) {
    long end = end_of_records(l->file, r->step);
    if (fseek(l->file, end, SEEK_SET) != 0 || ftruncate(fileno(l->file), end) != 0) {
      // A pipe or a device: it has no records to cut off.
      fclose(l->file);
      l->file = create(r->o.log);
    }
  } else {
    l->file = create(r->o.log);
  }
  return l->file ? 0 : dt_fail_errno(e, DT_EXIT_CREATE, "cannot create", r->o.log);
}

static int flushed(DtLog *l, DtError *e) {
  if (!l->file || (fflush(l->file) == 0 && !ferror(l->file))) return 0;
  return dt_fail_errno(e, DT_EXIT_IO, "cannot write", l->path);
}

static void number(DtLog *l, const char *key, double v) {
  char text[32];
  dt_json_real(text, v);
  fprintf(l->file, ",\"%s\":%s", key, text);
}

static void metrics(DtLog *l, const DtProgram *p, const DtResult *s, const char *prefix) {
  for (int i = 0; i < p->nmetric; i++) {
    char key[256], name[200];
    dt_json_escape(name, sizeof name, p->metric[i]);
    snprintf(key, sizeof key, "%s%s", prefix, name);
    number(l, key, s->metric[i]);
  }
}

void dt_log_break(DtLog *l) {
  if (l->live) fputc('\n', stdout);
  l->live = false;
  fflush(stdout);
}

static void duration(char out[32], double seconds) {
  long s = seconds < 1e9 ? (long)(seconds + 0.5) : 0;
  if (s >= 3600) snprintf(out, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  else snprintf(out, 32, "%ld:%02ld", s / 60, s % 60);
}

static void progress(DtLog *l, const DtRun *r, const DtResult *s, int64_t step, int64_t tokens) {
  double now = dt_seconds(), each = (now - l->began) / (double)(step - l->first);
  bool ends = step == r->o.steps || step == l->first + 1;
  // A live line more often than 20 times a second only makes work; a plain one would fill a file.
  if (!ends && now - l->last < (l->terminal ? 0.05 : SECONDS_BETWEEN_LINES)) return;
  l->last = now;
  char left[32], line[200];
  duration(left, each * (double)(r->o.steps - step));
  int n = snprintf(line, sizeof line, "step %lld/%lld  loss %.4f  lr %.2e  norm %.3f",
                   (long long)step, (long long)r->o.steps, s->loss, s->rate, s->norm);
  snprintf(line + n, sizeof line - (size_t)n, "  %.0f %s/s  ETA %s", (double)tokens / s->seconds,
           r->train.tokens_each > 1 ? "tokens" : "samples", left);
  // A line that wraps would not be written over: it is cut to the terminal.
  struct winsize w;
  if (l->terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 &&
      strlen(line) >= w.ws_col)
    line[w.ws_col - 1] = 0;
  printf(l->terminal ? "\r\033[K%s" : "%s\n", line);
  l->live = l->terminal;
  fflush(stdout);
}

int dt_log_step(DtLog *l, const DtRun *r, const DtResult *s, bool done, DtError *e) {
  int64_t step = r->step + !done, tokens = s->samples * r->train.tokens_each;
  if (!l->quiet && done) progress(l, r, s, step, tokens);
  if (!l->file) return 0;
  fprintf(l->file, "{\"step\":%lld", (long long)step);
  number(l, "loss", s->loss);
  number(l, "lr", s->rate);
  number(l, "grad_norm", s->norm);
  fprintf(l->file, ",\"tokens\":%lld", (long long)tokens);
  number(l, "tokens_per_s", (double)tokens / s->seconds);
  number(l, "seconds", s->seconds);
  fprintf(l->file, ",\"memory_bytes\":%lld,\"skipped\":%s", (long long)dt_memory_resident(),
          done ? "false" : "true");
  metrics(l, r->p, s, "");
  fputs("}\n", l->file);
  return flushed(l, e);
}

int dt_log_eval(DtLog *l, const DtRun *r, const DtResult *s, DtError *e) {
  if (!l->quiet || r->o.eval_only) {
    dt_log_break(l);
    printf("step %lld  val_loss %.6f", (long long)r->step, s->loss);
    for (int i = 0; i < r->p->nmetric; i++) printf("  val_%s %.6f", r->p->metric[i], s->metric[i]);
    printf("  (%lld samples, %.1f s)\n", (long long)s->samples, s->seconds);
    fflush(stdout);
  }
  if (!l->file) return 0;
  fprintf(l->file, "{\"step\":%lld", (long long)r->step);
  number(l, "val_loss", s->loss);
  metrics(l, r->p, s, "val_");
  fprintf(l->file, ",\"samples\":%lld", (long long)s->samples);
  number(l, "seconds", s->seconds);
  fputs("}\n", l->file);
  return flushed(l, e);
}

int dt_log_close(DtLog *l, DtError *e) {
  dt_log_break(l);
  if (!l->file) return 0;
  int bad = fclose(l->file) != 0;
  l->file = NULL;
  return bad ? dt_fail_errno(e, DT_EXIT_IO, "cannot write", l->path) : 0;
}
