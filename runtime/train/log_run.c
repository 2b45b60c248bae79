#define _GNU_SOURCE
#include "runtime/train/log_run.h"

#include "runtime/files/json.h"
#include "runtime/base/parallel.h"
#include "runtime/base/processor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

void dt_log_time(char out[32]) {
  struct timespec t;
  struct tm d;
  clock_gettime(CLOCK_REALTIME, &t);
  gmtime_r(&t.tv_sec, &d);
  size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &d);
  snprintf(out + n, 32 - n, ".%03ldZ", t.tv_nsec / 1000000);
}

// A record being written; `failed` where memory is out, and what is written is not to be used.
typedef struct {
  FILE *f;
  bool failed;
} Writer;

static void string(Writer *w, const char *text) {
  char *quoted = text ? dt_json_quote(text) : NULL;
  w->failed |= text && !quoted;
  fputs(quoted ? quoted : "null", w->f);
  free(quoted);
}

static void text(Writer *w, const char *key, const char *value) {
  fprintf(w->f, ",\"%s\":", key);
  string(w, value);
}

static void integer(Writer *w, const char *key, int64_t v) {
  fprintf(w->f, ",\"%s\":%lld", key, (long long)v);
}

static void options(Writer *w, const DtRun *r) {
  const DtOptions *o = &r->o;
  char rate[32];
  dt_json_real(rate, o->lr);
  fputs(",\"command\":[", w->f);
  for (int i = 0; i < r->argc; i++) {
    if (i) fputc(',', w->f);
    string(w, r->argv[i]);
  }
  fprintf(w->f, "],\"options\":{\"steps\":%lld", (long long)o->steps);
  integer(w, "batch", o->batch);
  fprintf(w->f, ",\"lr\":%s,\"seed\":%llu", rate, (unsigned long long)r->seed);
  integer(w, "schedule_steps", o->schedule_steps);
  fprintf(w->f, ",\"shuffle\":%s", o->no_shuffle ? "false" : "true");
  integer(w, "eval_every", o->eval_every);
  text(w, "init", o->init);
  text(w, "save", o->save);
  integer(w, "save_every", o->save_every);
  fprintf(w->f, ",\"save_sync\":%s", o->save_sync ? "true" : "false");
  text(w, "resume", o->resume);
  if (o->offload_dir) text(w, "offload_dir", o->offload_dir);
  fputc('}', w->f);
}

static void layout(Writer *w, const DtRun *r) {
  const DtProgram *p = r->p;
  const int *n = dt_world.degree;
  fprintf(w->f, ",\"layout\":{\"ranks\":%d,\"tp\":%d,\"pp\":%d,\"cp\":%d,\"dp\":%d", dt_world.size,
          dt_tp_degree(), n[DT_AXIS_PP], n[DT_AXIS_CP], n[DT_AXIS_DP]);
  fprintf(w->f, ",\"zero\":%d,\"zero_group\":%d,\"accumulate\":\"%s\",\"gather\":\"%s\"", p->zero,
          r->zero.cut.owners, p->accumulate_each ? "each" : "once", p->gather_once ? "once" : "each");
  integer(w, "microbatch", r->micro);
  integer(w, "in_flight", dt_in_flight(p));
  integer(w, "threads", dt_threads());
  for (int i = 0; r->device[0].device.name[0] && i < dt_world.size; i++) {
    fputs(i ? "," : ",\"devices\":[", w->f);
    string(w, r->device[i].device.name);
    if (i == dt_world.size - 1) fputc(']', w->f);
  }
  fputc('}', w->f);
}

static bool data_set(Writer *w, const char *key, const DtDataset *d, bool comma) {
  if (!d->count) return comma;
  int files = d->kind == DT_DATA_ARRAYS ? d->program->ndata : 1;
  fprintf(w->f, "%s\"%s\":{\"files\":[", comma ? "," : "", key);
  for (int i = 0; i < files; i++) {
    if (i) fputc(',', w->f);
    string(w, d->path[i]);
  }
  fprintf(w->f, "],\"samples\":%lld}", (long long)d->count);
  return true;
}

static void machine(Writer *w) {
  char name[DT_PROCESSOR_NAME], folder[PATH_MAX];
  struct utsname u;
  if (uname(&u) != 0) memset(&u, 0, sizeof u);
  dt_processor_name(name);
  fputs(",\"machine\":{\"host\":", w->f);
  string(w, u.nodename);
  char system[sizeof u.sysname + sizeof u.release + sizeof u.machine + 2];
  snprintf(system, sizeof system, "%s %s %s", u.sysname, u.release, u.machine);
  text(w, "system", system);
  text(w, "processor", name + strspn(name, " "));
  integer(w, "processors", sysconf(_SC_NPROCESSORS_ONLN));
  integer(w, "memory_bytes", (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
  text(w, "folder", getcwd(folder, sizeof folder));
  fputc('}', w->f);
}

int dt_log_run(FILE *f, const DtRun *r, DtError *e) {
  Writer w = {.f = f};
  char now[32];
  int64_t parameters = 0;
  for (int i = 0; i < r->p->nparam; i++) parameters += r->p->param[i].count;
  dt_log_time(now);
  fprintf(f, "{\"step\":%lld,\"time\":\"%s\",\"run\":{\"program\":", (long long)r->step, now);
  string(&w, r->p->model);
  text(&w, "build", r->p->build);
  text(&w, "precision", r->p->train.precision);
  integer(&w, "parameters", parameters);
  options(&w, r);
  layout(&w, r);
  fputs(",\"data\":{", f);
  bool train = data_set(&w, "train", &r->train, false);
  data_set(&w, "val", &r->val, train);
  fputc('}', f);
  machine(&w);
  fputs("}}\n", f);
  errno = ENOMEM;
  return w.failed ? dt_fail_errno(e, DT_EXIT_OS, "cannot write", "the log's first record") : 0;
}
