// The training program: from the command line through training to the last file written.
#define _GNU_SOURCE
#include "runtime/checkpoint.h"
#include "runtime/cpu/level.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/run.h"
#include "runtime/signals.h"
#include "runtime/trace.h"
#include "runtime/weights.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  DtRun r;
  DtLog log;
  DtSaver saver;
  int64_t saved; // step of the last checkpoint in --save's folder; -1: none
} Program;

// Data files up to this size are looked through before the first step: 64 MiB take under a tenth of
// a second.
static const int64_t LOOK_THROUGH = 64 << 20;

// An output that cannot be written is told now, not after hours of training.
static int check_output(const char *path, DtError *e) {
  char folder[PATH_MAX];
  if (!path) return 0;
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash - path) : 0;
  if (n >= sizeof folder) return dt_fail(e, DT_EXIT_CREATE, "the name is too long: %s", path);
  if (slash) memcpy(folder, path, n);
  folder[n] = 0;
  if (access(!slash ? "." : n ? folder : "/", W_OK | X_OK) != 0 && access(path, W_OK) != 0)
    return dt_fail_errno(e, DT_EXIT_CREATE, "cannot create", path);
  if (dt_is_folder(path))
    return dt_fail(e, DT_EXIT_CREATE, "cannot create %s: it is a folder", path);
  return 0;
}

static int open_data(DtRun *r, DtError *e) {
  bool need_train = r->step < r->o.steps || r->o.dry_run;
  bool need_val = r->o.eval_only || r->o.eval_every > 0;
  int64_t most = r->o.dry_run ? 0 : LOOK_THROUGH;
  if (need_train && !r->o.eval_only) {
    if (dt_dataset_open(&r->train, r->p, false, r->o.data, e) ||
        dt_dataset_check(&r->train, most, e))
      return e->status;
  }
  // A train block may ask for validations and leave it to --val where the data is.
  bool asked = r->o.eval_only || r->o.eval_given || r->o.val;
  if (!need_val || (!asked && r->p->train.val == DT_DATA_NONE)) return 0;
  if (!r->p->eval) return dt_fail(e, DT_EXIT_USAGE, "%s has no validation loss", r->p->model);
  if (dt_dataset_open(&r->val, r->p, true, r->o.val, e) || dt_dataset_check(&r->val, most, e))
    return e->status;
  r->has_val = true;
  return 0;
}

// Weights of the first step: from a checkpoint, a file, or initial values.
static int fill(DtRun *r, const DtCheckpoint *c, DtError *e) {
  DtNames names;
  if (c->path[0]) return dt_checkpoint_load(c, r, e);
  if (!r->o.init) {
    dt_weights_init(r->p, r->seed, r->param);
    return 0;
  }
  if (dt_names_make(&names, r->p, e)) return e->status;
  int status = dt_weights_load(&names, r->p, r->param, r->o.init, e);
  dt_names_free(&names);
  return status;
}

static int open_outputs(Program *a, const DtCheckpoint *c, DtError *e) {
  DtRun *r = &a->r;
  if (check_output(r->o.export_to, e) || check_output(r->o.profile, e)) return e->status;
  if (r->o.save) {
    if (dt_saver_open(&a->saver, r->o.save, e)) return e->status;
    int64_t newest = dt_checkpoint_newest(r->o.save);
    if (newest >= 0 && newest == r->step && c->path[0]) a->saved = newest;
    if (newest > r->step)
      dt_note("%s holds step %lld of another run, which --resume would prefer to this one's",
              r->o.save, (long long)newest);
  }
  if (r->o.profile && dt_trace_start(e)) return e->status;
  return dt_log_open(&a->log, r, e);
}

static void announce(const Program *a, const DtCheckpoint *c) {
  const DtRun *r = &a->r;
  int64_t n = 0;
  if (r->o.quiet || r->step >= r->o.steps) return;
  for (int i = 0; i < r->p->nparam; i++) n += r->p->param[i].count;
  printf("%s: %.2f million parameters, %s, batch %lld, %d thread%s", r->p->model, (double)n / 1e6,
         r->p->train.precision, (long long)r->o.batch, dt_threads(), dt_threads() == 1 ? "" : "s");
  if (c->path[0]) printf(", from %s", c->path);
  else if (r->o.resume) printf(", nothing to resume in %s: a fresh start", r->o.resume);
  putchar('\n');
  fflush(stdout);
}

static int prepare(Program *a, DtError *e) {
  DtRun *r = &a->r;
  DtCheckpoint c = {.path = ""};
  dt_trace_begin("reading the checkpoint");
  if (r->o.resume && dt_checkpoint_find(&c, r->o.resume, e)) return e->status;
  r->step = c.path[0] ? c.step : 0;
  dt_trace_begin("opening the data");
  if (open_data(r, e)) return e->status;
  bool training = !r->o.eval_only && (r->step < r->o.steps || r->o.save || r->o.dry_run);
  dt_trace_begin("allocating memory");
  if (dt_memory_allocate(r, training, e)) return e->status;
  dt_trace_begin("filling the parameters");
  if (fill(r, &c, e)) return e->status;
  if (r->o.seed_given) {
    if (c.path[0] && r->seed != (uint64_t)r->o.seed)
      dt_note("--seed changes the order of samples from here on");
    r->seed = (uint64_t)r->o.seed;
  }
  if (c.path[0] && r->train.count && c.train_samples && c.train_samples != r->train.count)
    dt_note("the data has %lld samples, had %lld when %s was saved: their order is another",
            (long long)r->train.count, (long long)c.train_samples, c.path);
  if (r->o.dry_run) return 0;
  if (open_outputs(a, &c, e)) return e->status;
  announce(a, &c);
  return 0;
}

static int save(Program *a, DtError *e) {
  if (!a->r.o.save || a->saved == a->r.step) return 0;
  if (dt_checkpoint_save(&a->saver, &a->r, a->r.o.keep, e)) return e->status;
  a->saved = a->r.step;
  return 0;
}

static int validate(Program *a, DtError *e) {
  DtResult v = {0};
  if (dt_evaluate(&a->r, &v, e)) return e->status;
  return dt_log_eval(&a->log, &a->r, &v, e);
}

// A signal asked for a stop: what is there is saved.
static int stopped(Program *a, DtError *e) {
  DtRun *r = &a->r;
  const char *name = dt_signal_name(dt_stop_signal());
  if (save(a, e)) return e->status;
  if (r->o.save)
    return dt_fail(e, DT_EXIT_STOPPED,
                   "stopped by %s after step %lld, which is saved; go on with --resume %s", name,
                   (long long)r->step, r->o.save);
  return dt_fail(e, DT_EXIT_STOPPED,
                 "stopped by %s after step %lld; nothing is saved (--save DIR was not given)", name,
                 (long long)r->step);
}

static int train(Program *a, DtError *e) {
  DtRun *r = &a->r;
  while (r->step < r->o.steps) {
    if (dt_stop_signal()) return stopped(a, e);
    DtResult s = {0};
    dt_signals_progress(r->step + 1, r->o.steps);
    if (dt_step(r, &s, e)) {
      DtError ignored;
      if (e->status == DT_EXIT_NOT_FINITE) dt_log_step(&a->log, r, &s, false, &ignored);
      return e->status;
    }
    if (dt_log_step(&a->log, r, &s, true, e)) {
      DtError ignored = {0};
      save(a, &ignored); // the log's disk may be full where the checkpoints' is not
      return e->status;
    }
    bool last = r->step == r->o.steps;
    if (r->has_val && r->o.eval_every > 0 && (last || r->step % r->o.eval_every == 0) &&
        !dt_stop_signal() && validate(a, e) && e->status != DT_EXIT_STOPPED)
      return e->status;
    e->status = 0;
    if ((last || (r->o.save_every > 0 && r->step % r->o.save_every == 0)) && save(a, e))
      return e->status;
  }
  return 0;
}

static int export_weights(const DtRun *r, DtError *e) {
  DtNames names;
  if (dt_names_make(&names, r->p, e)) return e->status;
  dt_trace_begin("exporting");
  int status = dt_weights_save(&names, r->p, r->param, r->o.export_to, NULL, NULL, e);
  dt_names_free(&names);
  return status;
}

static int run(Program *a, DtError *e) {
  DtRun *r = &a->r;
  if (prepare(a, e)) return e->status;
  if (r->o.dry_run) {
    dt_plan(r);
    return 0;
  }
  if (r->o.eval_only) return validate(a, e);
  if (train(a, e)) return e->status;
  if (save(a, e)) return e->status; // --steps 0: a checkpoint of what was loaded
  if (r->o.export_to && export_weights(r, e)) return e->status;
  dt_log_break(&a->log);
  return r->o.sample > 0 ? dt_sample(r, e) : 0;
}

static int finish(Program *a, DtError *e) {
  DtError more = {0};
  if (dt_log_close(&a->log, &more) && !e->status) *e = more;
  if (dt_tracing && dt_trace_write(a->r.o.profile, &more) && !e->status) *e = more;
  dt_saver_close(&a->saver);
  dt_dataset_close(&a->r.train);
  dt_dataset_close(&a->r.val);
  dt_memory_free(&a->r);
  dt_parallel_done();
  if (fflush(stdout) != 0 && errno != EPIPE && !e->status)
    dt_fail_errno(e, DT_EXIT_IO, "cannot write", "to stdout");
  if (e->status) dt_report(e);
  return e->status;
}

int dt_main(const DtProgram *p, int argc, char **argv) {
  DtError e = {0};
  Program a = {.r = {.p = p}, .saver = {.lock = -1}, .saved = -1};
  DtRun *r = &a.r;
  if (dt_options_parse(&r->o, p, argc, argv, &e)) {
    dt_report(&e);
    return e.status;
  }
  if (r->o.help) {
    dt_options_help(p);
    return 0;
  }
  if (r->o.version) {
    printf("train %s, build %s\n", p->model, p->build);
    return 0;
  }
  if (r->o.info ? dt_info(p, &r->o, &e) : dt_options_one_rank(&r->o, &e)) dt_report(&e);
  if (r->o.info || e.status) return e.status;
  r->seed = (uint64_t)r->o.seed;
  r->micro = p->ndata > 0 ? p->data[0].extent[0] : p->train.microbatch;
  if (dt_cpu_level(p->cpu_level) < p->cpu_level) {
    dt_fail(&e, DT_EXIT_MISFIT, "this processor lacks what the program was compiled for: x86-64-v%d",
            p->cpu_level);
    dt_report(&e);
    return e.status;
  }
  dt_signals_install();
  dt_parallel_init((int)r->o.threads);
  run(&a, &e);
  return finish(&a, &e);
}
