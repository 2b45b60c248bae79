// The training program: from the command line through training to the last file written.
#define _GNU_SOURCE
#include "runtime/files/checkpoint.h"
#include "runtime/files/saver.h"
#include "runtime/control.h"
#include "runtime/files/events.h"
#include "runtime/train/log.h"
#include "runtime/base/parallel.h"
#include "runtime/train/rehearse.h"
#include "runtime/train/run.h"
#include "runtime/base/signals.h"
#include "runtime/base/trace.h"
#include "runtime/model/weights.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

typedef struct {
  DtRun r;
  DtLog log;
  DtEvents events;
  DtSaver saver;
  int64_t saved; // step of the last checkpoint in --save's folder; -1: none
  bool first;    // of the ranks: the one that writes
  DtError log_error;
  double step_began;
} Program;

// Whether opening it to write would wait for a reader, perhaps for ever: a FIFO that has a
// name. Those of a shell, >(gzip >f) and the target of /dev/stdout, have a reader.
static bool may_wait(const char *path) {
  struct stat s;
  struct statfs f;
  return stat(path, &s) == 0 && S_ISFIFO(s.st_mode) &&
         !(statfs(path, &f) == 0 && f.f_type == PIPEFS_MAGIC);
}

// An output that cannot be written is reported now, not after hours of training.
static int check_output(const char *path, DtError *e) {
  char folder[PATH_MAX];
  if (!path) return 0;
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash - path) : 0;
  if (n >= sizeof folder) return dt_fail(e, DT_EXIT_CREATE, "the name is too long: %s", path);
  if (slash) memcpy(folder, path, n);
  folder[n] = 0;
  int why = access(!slash ? "." : n ? folder : "/", W_OK | X_OK) != 0 ? errno : 0;
  if (why && access(path, W_OK) != 0) {
    if (errno == ENOENT) errno = why; // it is the folder that lets nothing be made
    return dt_fail_errno(e, DT_EXIT_CREATE, "cannot create", path);
  }
  if (dt_is_folder(path))
    return dt_fail(e, DT_EXIT_CREATE, "cannot create %s: it is a folder", path);
  if (may_wait(path))
    return dt_fail(e, DT_EXIT_CREATE,
                   "cannot create %s: it is a FIFO, which may have no reader; name a file, or a "
                   "pipe that a shell makes",
                   path);
  return 0;
}

static int open_data(DtRun *r, DtError *e) {
  bool need_train = r->step < r->o.steps || r->o.dry_run;
  bool need_val = r->o.eval_only || r->o.eval_every > 0;
  int64_t most = r->o.dry_run ? 0 : DT_LOOK_THROUGH;
  if (need_train && !r->o.eval_only) {
    if (dt_dataset_open(&r->train, r->p, false, r->o.data, e) ||
        dt_dataset_check(&r->train, most, e))
      return e->status;
  }
  // A train block may ask for validations and leave it to --val where the data is.
  bool asked = r->o.eval_only || r->o.eval_given || r->o.val;
  if (!need_val || (!asked && r->p->train.val == DT_DATA_NONE)) return 0;
  if (!r->p->eval && !(r->p->nchunk && r->p->chunk[0].run[DT_EVAL]))
    return dt_fail(e, DT_EXIT_USAGE, "%s has no validation loss", r->p->model);
  if (dt_dataset_open(&r->val, r->p, true, r->o.val, e) || dt_dataset_check(&r->val, most, e))
    return e->status;
  r->has_val = true;
  return 0;
}

// Weights of the first step: from a checkpoint, a file, or initial values.
static int fill(DtRun *r, const DtCheckpoint *c, const DtCheckpoint *init, DtError *e) {
  if (c->path[0]) return dt_checkpoint_load(c, r, e);
  if (r->o.init) return dt_checkpoint_init(init, r->o.init, r, e);
  return dt_weights_init(r, e);
}

static int open_outputs(Program *a, const DtCheckpoint *c, DtError *e) {
  DtRun *r = &a->r;
  if (a->first && !check_output(r->o.export_to, e) && !check_output(r->o.export_gradient, e))
    check_output(r->o.profile, e);
  if (dt_agree_on(e)) return e->status;
  bool writes = r->o.save || r->o.export_to || r->o.export_gradient;
  if (writes && dt_saver_open(&a->saver, r, r->o.save, e)) return e->status;
  if (!a->first) return 0;
  if (r->o.save) {
    int64_t newest;
    if (dt_checkpoint_newest(r->o.save, &newest, e)) return e->status;
    if (newest >= 0 && newest == r->step && c->path[0]) a->saved = newest;
    if (newest > r->step)
      dt_note("%s holds step %lld of another run, which --resume would prefer to this one's",
              r->o.save, (long long)newest);
  }
  return dt_log_open(&a->log, r, e) ? e->status : dt_events_open(&a->events, r, e);
}

static void announce(const Program *a, const DtCheckpoint *c) {
  const DtRun *r = &a->r;
  int64_t n = 0;
  if (r->o.quiet || !a->first) return;
  bool more = r->o.eval_only || r->o.export_to || r->o.sample; // what a finished run is taken up for
  if (c->path[0] && r->step >= r->o.steps && !more)
    dt_note("%s is of step %lld and the run ends with step %lld: it is finished; --steps N "
            "continues it",
            c->path, (long long)r->step, (long long)r->o.steps);
  if (r->step >= r->o.steps) return;
  for (int i = 0; i < r->p->nparam; i++) n += r->p->param[i].count;
  printf("%s: %.2f million parameters, %s, batch %lld, ", r->p->model, (double)n / 1e6,
         r->p->train.precision, (long long)r->o.batch);
  if (dt_world.size > 1) printf("%d ranks of ", dt_world.size);
  printf("%d thread%s", dt_threads(), dt_threads() == 1 ? "" : "s");
  if (r->device[0].device.name[0]) printf(dt_world.size > 1 ? ", the first on %s" : " on %s", r->device[0].device.name);
  if (c->path[0]) printf(", from %s", c->path);
  else if (r->o.resume) printf(", nothing to resume in %s: a fresh start", r->o.resume);
  putchar('\n');
  fflush(stdout);
}

// What this rank can do without the others.
static int prepare_alone(Program *a, const DtCheckpoint *c, const DtCheckpoint *init, DtError *e) {
  DtRun *r = &a->r;
  r->step = c->path[0] ? c->step : 0;
  dt_trace_begin("opening the data");
  if (open_data(r, e)) return e->status;
  bool training = !r->o.eval_only && (r->step < r->o.steps || r->o.save || r->o.dry_run);
  dt_trace_begin("allocating memory");
  if (dt_zero_open(&r->zero, r->p, e) || dt_saver_plan(r, e) || dt_step_prepare(r, training, e) ||
      (dt_in_flight(r->p) > 1 && dt_flight_open(e)) ||
      dt_memory_allocate(r, training, e) || dt_rehearse(r, training, e))
    return e->status;
  dt_trace_begin("filling the parameters");
  if (fill(r, c, init, e) || dt_offload_start(r, e)) return e->status;
  if (r->o.seed_given) {
    if (a->first && c->path[0] && r->seed != (uint64_t)r->o.seed)
      dt_note("--seed changes the order of samples from here on");
    r->seed = (uint64_t)r->o.seed;
  }
  if (a->first && c->path[0] && c->precision[0] && strcmp(c->precision, r->p->train.precision) != 0)
    dt_note("%s was saved in %s, and this program trains in %s: its weights and moments are converted",
            c->path, c->precision, r->p->train.precision);
  if (a->first && c->path[0] && r->train.count && c->train_samples &&
      c->train_samples != r->train.count)
    dt_note("the data has %lld samples, had %lld when %s was saved: their order is another",
            (long long)r->train.count, (long long)c->train_samples, c->path);
  return 0;
}

static int prepare(Program *a, DtError *e) {
  DtRun *r = &a->r;
  DtCheckpoint c = {.path = ""}, init = {.path = ""};
  if (dt_handshake_options(r, e)) return e->status;
  dt_trace_begin("reading the checkpoint");
  if (r->o.resume && dt_checkpoint_find(&c, r->o.resume, e)) return e->status;
  if (!c.path[0] && r->o.init && dt_checkpoint_find_weights(&init, r->o.init, e)) return e->status;
  prepare_alone(a, &c, &init, e);
  if (dt_agree_on(e) || dt_handshake_state(r, e) || dt_rehearse_compare(e)) return e->status;
  if (r->o.dry_run) return 0;
  open_outputs(a, &c, e);
  if (dt_agree_on(e)) return e->status;
  a->saved = dt_agree(a->saved >= 0) ? r->step : -1;
  if (r->o.profile && dt_trace_start(e)) return e->status;
  announce(a, &c);
  return 0;
}

// A log of --save-every says that a checkpoint is complete. Trouble is told at the end of the next step.
static void note_saved(Program *a) {
  const DtSaved *s = &a->saver.last;
  DtError e = {0};
  if (s->step < 0 || s->step == a->saved) return;
  a->saved = s->step;
  if (!a->first || !a->r.o.save_every || a->r.trouble || !dt_log_saved(&a->log, s, &e)) return;
  a->log_error = e;
  a->r.trouble = e.status;
  if (dt_world.size == 1) a->r.failed = a->r.trouble;
}

// What is on its way behind the steps is complete.
static int finish_saving(Program *a, DtError *e) {
  if (!a->r.o.save || dt_checkpoint_finish(&a->saver, e)) return e->status;
  note_saved(a);
  return 0;
}

static int save(Program *a, DtError *e) {
  if (finish_saving(a, e) || !a->r.o.save || a->saved == a->r.step) return e->status;
  if (dt_checkpoint_save(&a->saver, a->r.o.keep, e)) return e->status;
  note_saved(a);
  return 0;
}

// A checkpoint that --save-every asks for, or the last one.
static int save_step(Program *a, DtError *e) {
  DtRun *r = &a->r;
  bool last = r->step == r->o.steps;
  if (!last && (r->o.save_every == 0 || r->step % r->o.save_every != 0)) return 0;
  if (last || !r->behind_steps) return save(a, e);
  dt_checkpoint_begin(&a->saver, r->o.keep, e);
  note_saved(a); // the one before, where it was waited for
  return e->status;
}

static int validate(Program *a, DtError *e) {
  DtResult v = {0};
  if (dt_evaluate(&a->r, &v, e)) return e->status;
  if (a->first && !dt_log_eval(&a->log, &a->r, &v, e)) dt_events_eval(&a->events, &a->r, &v, e);
  return dt_agree_on(e);
}

// A signal asked for a stop: what is there is saved.
static int stopped(Program *a, DtError *e) {
  DtRun *r = &a->r;
  const char *name = dt_signal_name(r->stop);
  if (save(a, e)) return e->status;
  if (r->o.save)
    return dt_fail(e, DT_EXIT_STOPPED,
                   "stopped by %s after step %lld, which is saved; continue with --resume %s", name,
                   (long long)r->step, r->o.save);
  return dt_fail(e, DT_EXIT_STOPPED,
                 "stopped by %s after step %lld; nothing is saved (--save DIR was not given)", name,
                 (long long)r->step);
}

// The log cannot be written: its disk may be full where the checkpoints' is not.
static int log_failed(Program *a, DtError *e) {
  DtError ignored = {0};
  save(a, &ignored);
  *e = a->log_error;
  return e->status = a->r.failed;
}

// The first rank logs; the others hear of its trouble at the end of the next step.
static void log_step(Program *a, const DtResult *s, bool done) {
  DtRun *r = &a->r;
  DtError e = {0};
  if (!a->first || r->trouble) return;
  bool bad = dt_log_step(&a->log, r, s, done, &e) || (done && dt_events_step(&a->events, r, s, &e));
  if (!bad || !done) return;
  a->log_error = e;
  r->trouble = e.status;
  if (dt_world.size == 1) r->failed = r->trouble;
}

static int after_step(Program *a, DtError *e) {
  DtRun *r = &a->r;
  bool last = r->step == r->o.steps;
  if (dt_world.size == 1) r->stop = dt_stop_wanted();
  if (r->o.save && dt_checkpoint_step(&a->saver, e)) return e->status;
  note_saved(a);
  if (r->has_val && r->o.eval_every > 0 && (last || r->step % r->o.eval_every == 0) && !r->stop &&
      validate(a, e) && e->status != DT_EXIT_STOPPED)
    return e->status;
  e->status = 0;
  return save_step(a, e);
}

// The run has failed. The checkpoint on its way is of a step before that, and is completed if all ranks are here.
static int give_up(Program *a, bool all, DtError *e) {
  DtError more = {0};
  if ((all || dt_world.size == 1) && finish_saving(a, &more) && more.text[0]) dt_report(&more);
  return e->status;
}

static int step_failed(Program *a, const DtResult *s, DtError *e) {
  bool finite = e->status != DT_EXIT_NOT_FINITE;
  if (e->status == DT_EXIT_STOPPED) return e->status = 0, stopped(a, e);
  if (!finite) log_step(a, s, false);
  return give_up(a, !finite, e);
}

static void tick(void *of, int64_t done, int64_t all) {
  Program *a = of;
  dt_log_micro(&a->log, &a->r, done, all, dt_seconds() - a->step_began);
}

static int train(Program *a, DtError *e) {
  DtRun *r = &a->r;
  r->stop = dt_agree(dt_stop_wanted());
  r->tick = a->first ? tick : NULL;
  r->tick_of = a;
  while (r->step < r->o.steps) {
    if (r->stop) return stopped(a, e);
    DtResult s = {0};
    dt_signals_progress(r->step + 1, r->o.steps);
    a->step_began = dt_seconds();
    if (dt_step(r, &s, e)) return step_failed(a, &s, e);
    if (!r->failed) log_step(a, &s, true);
    if (r->failed) return log_failed(a, e);
    if (after_step(a, e)) return give_up(a, false, e);
  }
  r->failed = dt_agree(r->trouble);
  return r->failed ? log_failed(a, e) : 0;
}

// Where parameters are cut, all ranks run the model; the first one prints.
static int sample(Program *a, DtError *e) {
  if (a->r.o.sample > 0 && (a->first || dt_sample_needs_all(&a->r))) dt_sample(&a->r, e);
  return dt_agree_on(e);
}

// It is still there after the update: that of the last step.
static int export_gradient(Program *a, int64_t began, DtError *e) {
  DtRun *r = &a->r;
  if (r->step == began)
    return dt_fail(e, DT_EXIT_USAGE, "--export-gradient needs a step, and all %lld are done",
                   (long long)r->step);
  dt_unscale_gradients(r);
  return dt_export(&a->saver, r->o.export_gradient, DT_GRAD, e);
}

static int run(Program *a, DtError *e) {
  DtRun *r = &a->r;
  dt_comm_files(true); // most of what it does is to read
  prepare(a, e);
  dt_comm_files(false);
  if (e->status) return e->status;
  if (r->o.dry_run) {
    if (a->first) dt_plan(r);
    return 0;
  }
  if (r->o.eval_only) return validate(a, e);
  int64_t began = r->step;
  if (train(a, e)) return e->status;
  if (save(a, e)) return e->status; // --steps 0: a checkpoint of what was loaded
  if (r->o.export_gradient && export_gradient(a, began, e)) return e->status;
  if (r->o.export_to && dt_export(&a->saver, r->o.export_to, DT_MASTER, e)) return e->status;
  dt_log_break(&a->log);
  return sample(a, e);
}

// All ranks have the same status; the first one reports it.
static int finish(Program *a, DtError *e) {
  DtError more = {0};
  dt_zero_settle(&a->r.zero);
  dt_saver_close(&a->saver);
  if (dt_log_close(&a->log, &more) && !e->status) *e = more;
  if (dt_events_close(&a->events, &more) && !e->status) *e = more;
  if (dt_tracing && dt_trace_write(a->r.o.profile, &more) && !e->status) *e = more;
  dt_dataset_close(&a->r.train);
  dt_dataset_close(&a->r.val);
  if (dt_memory_check(&a->r, &more) && !e->status) *e = more;
  dt_offload_close(&a->r.offload);
  dt_memory_free(&a->r);
  free(a->r.device);
  dt_flight_close();
  dt_walk_close(&a->r.walk);
  dt_zero_close(&a->r.zero);
  dt_comm_unlink();
  dt_device_close();
  if (fflush(stdout) != 0 && errno != EPIPE && !e->status)
    dt_fail_errno(e, DT_EXIT_IO, "cannot write", "to stdout");
  bool common = e->status == DT_EXIT_STOPPED || e->status == DT_EXIT_NOT_FINITE;
  if (e->status && e->text[0] && (a->first || !common)) dt_report(e);
  // "Start me again" is promised only where there is something to go on from.
  if (e->status == DT_EXIT_STOPPED && a->saved != a->r.step) e->status = 128 + a->r.stop;
  dt_comm_stop();
  return e->status;
}

// An error of this rank alone is reported first. Then the others learn of it: they would wait for this rank.
static int alone(DtError *e) {
  int status = e->status;
  dt_report(e);
  dt_comm_decline();
  e->status = 0;
  return status;
}

// Settings that need no other rank: ends the program, or goes on with -1.
static int begin(Program *a, int argc, char **argv, DtError *e) {
  DtRun *r = &a->r;
  const DtProgram *p = r->p;
  if (dt_options_parse(&r->o, p, argc, argv, e)) return alone(e);
  if (r->o.help) dt_options_help(p);
  if (r->o.version) printf("train %s, build %s\n", p->model, p->build);
  if (r->o.help || r->o.version) return 0;
  if (dt_environment_check(e)) return alone(e);
  if (r->o.info) return dt_info(p, &r->o, e);
  r->seed = (uint64_t)r->o.seed;
  r->scaling = dt_loss_scale_first(p->loss_scaling);
  r->micro = p->ndata > 0 ? p->data[0].extent[0] : p->train.microbatch;
  if (dt_device_fits(p, e)) return e->status;
  dt_signals_install(); // before there are ranks: one may come while they meet
  if (dt_comm_start(p, (int)r->o.ranks, r->o.timeout, e)) return e->status;
  return -1;
}

int dt_main(const DtProgram *p, int argc, char **argv) {
  DtError e = {0};
  Program a = {.r = {.p = p, .argc = argc, .argv = argv}, .saver = {.lock = -1}, .events = {.fd = -1}, .saved = -1};
  dt_standard_files();
  int status = begin(&a, argc, argv, &e);
  if (status >= 0) {
    if (e.status) dt_report(&e);
    return status;
  }
  a.first = dt_world.rank == 0;
  bool exact = a.r.o.reduce && strcmp(a.r.o.reduce, "exact") == 0;
  dt_device_open(p, (int)a.r.o.threads, dt_world.local_rank, dt_world.local_size, &e);
  if (!dt_agree_on(&e) && !dt_devices_compare(&a.r, &e)) {
    dt_comm_link(exact, &e);
    if (!dt_agree_on(&e)) run(&a, &e);
  }
  return finish(&a, &e);
}
