#define _GNU_SOURCE
#include "runtime/train/log.h"

#include "runtime/files/json.h"
#include "runtime/train/log_run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECONDS_BETWEEN_LINES = 10 }; // on a pipe

// What a line of a log is.
typedef struct {
  bool record; // it has a step; what does not parse, a line cut off by a crash, has none
  bool run;    // the record of a run
  int64_t step;
} Line;

static Line look_at(const char *line, size_t n, DtError *e) {
  Line out = {0};
  DtJson j = {0};
  DtError why = {0};
  if (line[n - 1] != '\n') return out;
  if (!dt_json_parse(&j, line, n, "log", &why)) {
    const DtJsonValue *root = dt_json_root(&j);
    const DtJsonValue *s = dt_json_member(&j, root, "step", DT_JSON_INTEGER);
    bool run = s && dt_json_member(&j, root, "run", DT_JSON_OBJECT);
    out = (Line){s != NULL, run, s ? s->integer : 0};
  }
  dt_json_free(&j);
  if (why.status && why.status != DT_EXIT_CONTENT) *e = why;
  return out;
}

// Whether a line is the beginning of a record, cut off by a crash.
static bool is_begun(const char *line, ssize_t n) {
  static const char head[] = "{\"step\":";
  size_t most = sizeof head - 1, have = (size_t)n;
  return line[n - 1] != '\n' && strncmp(line, head, have < most ? have : most) == 0;
}

// Where the records end that a run keeps which begins after `step` steps: a fresh one, after 0, keeps
// all, and one that is resumed those of earlier runs, and of the last one those up to that step. A line
// that cannot be read does not end them: what is behind it would be cut off.
static int end_of_records(FILE *f, const char *path, int64_t step, off_t *end, DtError *e) {
  char *line = NULL;
  size_t capacity = 0;
  ssize_t n;
  bool kept = true;
  off_t at = *end = 0;
  errno = 0;
  while ((n = getline(&line, &capacity, f)) > 0) {
    Line l = look_at(line, (size_t)n, e);
    if (e->status) break;
    if (at == 0 && !l.record && !is_begun(line, n)) {
      dt_fail(e, DT_EXIT_CREATE,
              "cannot add to %s: it exists and is not a log; name another file, or remove it",
              path);
      break;
    }
    if (step == 0 || (l.run && l.step == 0)) kept = line[n - 1] == '\n';
    else kept = kept && l.record && l.step <= step;
    at += n;
    if (kept) *end = at;
  }
  if (!e->status && n < 0 && !feof(f)) dt_input_error(e, "cannot read", path);
  free(line);
  return e->status;
}

// Its buffer is there before the first record.
static FILE *create(const char *path) {
  static char buffer[4096];
  int own = dt_own_output(path);
  FILE *f = own >= 0 ? fdopen(own, "w") : fopen(path, "w");
  if (f) setvbuf(f, buffer, _IOFBF, sizeof buffer);
  return f;
}

static bool is_own(const char *path) {
  int fd = dt_own_output(path);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// The log of earlier runs, or of the one that is resumed, which loses what comes after r->step.
static int go_on(DtLog *l, const DtRun *r, DtError *e) {
  off_t end;
  l->file = fopen(l->path, "r+");
  if (!l->file) return dt_input_error(e, "cannot open", l->path);
  if (end_of_records(l->file, l->path, r->step, &end, e)) return e->status;
  if (fseeko(l->file, end, SEEK_SET) == 0 && ftruncate(fileno(l->file), end) == 0) return 0;
  return dt_fail_errno(e, DT_EXIT_IO, "cannot cut off the later steps of", l->path);
}

static int open_file(DtLog *l, const DtRun *r, DtError *e) {
  struct stat s;
  bool there = stat(l->path, &s) == 0;
  if (!there && errno != ENOENT) return dt_input_error(e, "cannot look at", l->path);
  if (there && S_ISREG(s.st_mode) && s.st_size > 0 && !is_own(l->path)) return go_on(l, r, e);
  l->file = create(l->path);
  return l->file ? 0 : dt_fail_errno(e, DT_EXIT_CREATE, "cannot create", l->path);
}

static int flushed(DtLog *l, DtError *e) {
  if (!l->file || (fflush(l->file) == 0 && !ferror(l->file))) return 0;
  return dt_fail_errno(e, DT_EXIT_IO, "cannot write", l->path);
}

int dt_log_open(DtLog *l, const DtRun *r, DtError *e) {
  *l = (DtLog){.path = r->o.log,
               .quiet = r->o.quiet,
               .terminal = isatty(STDOUT_FILENO),
               .began = dt_seconds(),
               .last = dt_seconds(),
               .first = r->step};
  if (!r->o.log) return 0;
  return open_file(l, r, e) || dt_log_run(l->file, r, e) || flushed(l, e) ? e->status : 0;
}

static void number(DtLog *l, const char *key, double v) {
  char text[32];
  dt_json_real(text, v);
  fprintf(l->file, ",\"%s\":%s", key, text);
}

static void time_stamp(DtLog *l) {
  char now[32];
  dt_log_time(now);
  fprintf(l->file, ",\"time\":\"%s\"", now);
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

static void show(DtLog *l, char *line) {
  // A line that wraps would not be written over: it is cut to the terminal.
  struct winsize w;
  if (l->terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 &&
      strlen(line) >= w.ws_col)
    line[w.ws_col - 1] = 0;
  printf(l->terminal ? "\r\033[K%s" : "%s\n", line);
  l->live = l->terminal;
  fflush(stdout);
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
  if (r->p->loss_scaling)
    n += snprintf(line + n, sizeof line - (size_t)n, "%s  loss scale %.0f",
                  s->skipped ? " (skipped)" : "", s->loss_scale);
  snprintf(line + n, sizeof line - (size_t)n, "  %.0f %s/s  ETA %s", (double)tokens / s->seconds,
           r->train.tokens_each > 1 ? "tokens" : "samples", left);
  show(l, line);
}

void dt_log_micro(DtLog *l, const DtRun *r, int64_t done, int64_t all, double seconds) {
  double now = dt_seconds(), part = (double)done / (double)all;
  if (l->quiet || now - l->last < (l->terminal ? 0.05 : SECONDS_BETWEEN_LINES)) return;
  l->last = now;
  // Steps take equal times: those before it, or the part of the first one, give the time of one.
  int64_t steps = r->step - l->first;
  double each = ((now - l->began) - (steps ? seconds : 0)) / (steps ? (double)steps : part);
  double tokens = part * (double)r->o.batch * (double)r->train.tokens_each / seconds;
  char left[32], line[200];
  duration(left, fmax(each * ((double)(r->o.steps - r->step) - part), 0));
  snprintf(line, sizeof line, "step %lld/%lld  microbatch %lld/%lld  %.0f %s/s  ETA %s",
           (long long)r->step + 1, (long long)r->o.steps, (long long)done, (long long)all, tokens,
           r->train.tokens_each > 1 ? "tokens" : "samples", left);
  show(l, line);
}

int dt_log_step(DtLog *l, const DtRun *r, const DtResult *s, bool done, DtError *e) {
  int64_t step = r->step + !done, tokens = s->samples * r->train.tokens_each;
  if (!l->quiet && done) progress(l, r, s, step, tokens);
  if (!l->file) return 0;
  fprintf(l->file, "{\"step\":%lld", (long long)step);
  number(l, "loss", s->loss);
  number(l, "lr", s->rate);
  number(l, "grad_norm", s->norm);
  if (r->p->loss_scaling) {
    number(l, "loss_scale", s->loss_scale);
    fprintf(l->file, ",\"skipped_steps\":%lld", (long long)r->scaling.skipped);
  }
  fprintf(l->file, ",\"tokens\":%lld", (long long)tokens);
  number(l, "tokens_per_s", (double)tokens / s->seconds);
  number(l, "seconds", s->seconds);
  if (dt_world.size > 1) number(l, "comm_exposed_seconds", s->exposed);
  if (r->offload.open) number(l, "offload_exposed_seconds", s->away);
  fprintf(l->file, ",\"memory_bytes\":%lld,\"skipped\":%s", (long long)dt_memory_resident(),
          done && !s->skipped ? "false" : "true");
  time_stamp(l);
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
  time_stamp(l);
  fputs("}\n", l->file);
  return flushed(l, e);
}

int dt_log_saved(DtLog *l, const DtSaved *s, DtError *e) {
  if (!l->file) return 0;
  fprintf(l->file, "{\"step\":%lld,\"checkpoint\":\"step-%08lld\"", (long long)s->step, (long long)s->step);
  number(l, "seconds", s->seconds);
  number(l, "blocked_seconds", s->blocked);
  time_stamp(l);
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
