#include "driver/compile.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "codegen/lower/text.h"
#include "codegen/lower/verify.h"
#include "codegen/link.h"
#include "codegen/target.h"
#include "driver/checkpoint.h"
#include "driver/passes.h"
#include "driver/fits.h"
#include "driver/report.h"
#include "driver/schedule.h"
#include "driver/verify_run.h"
#include "frontend/frontend.h"
#include "ir/verify.h"
#include "runtime/files/file.h"

typedef struct Job {
  const Options *o;
  Arena *a;
  Sources *src;
  Module *m;
  Limits limits;
  Checkpoint plain; // with --checkpoint: the module before recomputation
  Recompute recompute; // that was chosen
} Job;

// Sets the module's target, and its limits.
static void aim(const Job *j, Module *m) {
  target_use(m, j->o->target);
  m->limits = j->limits;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void timed(const Job *j, const char *what, double start) {
  if (j->o->time) fprintf(stderr, "%-16s %8.4f s\n", what, now() - start);
}

// Text goes to -o where it is given with --emit or --report, else to stdout.
static int put(const Job *j, const char *text, size_t n) {
  const char *path = j->o->output;
  int own = path ? dt_own_output(path) : -1; // /dev/stdout may be a file that is appended to
  if (own >= 0) fflush(stdout);
  FILE *f = own >= 0 ? fdopen(own, "w") : path ? fopen(path, "w") : stdout;
  if (!f) {
    fprintf(stderr, "dtc: %s: %s\n", path, strerror(errno));
    return EXIT_TOOL;
  }
  bool ok = fwrite(text, 1, n, f) == n && !fflush(f);
  int why = errno;
  if (f != stdout && fclose(f) && ok) {
    why = errno;
    ok = false;
  }
  if (ok) return 0;
  fprintf(stderr, "dtc: %s: %s\n", path ? path : "standard output", strerror(why));
  if (path && own < 0) remove_half(path);
  return EXIT_TOOL;
}

static int put_buf(const Job *j, Buf *b) {
  int status = put(j, b->text ? b->text : "", b->n);
  buf_free(b);
  return status;
}

// The file's bytes, NUL-terminated, on the job's arena; NULL after a message.
static char *slurp(const Job *j, Str path, size_t *n) {
  FILE *f = fopen(path, "rb");
  Buf b = {0};
  char part[65536];
  for (size_t got; f && (got = fread(part, 1, sizeof part, f)) > 0;) buf_write(&b, part, got);
  if (!f || ferror(f)) {
    fprintf(stderr, "dtc: %s: %s\n", path, strerror(errno));
    if (f) fclose(f);
    buf_free(&b);
    return NULL;
  }
  fclose(f);
  char *text = arena_alloc(j->a, b.n + 1);
  if (b.n) memcpy(text, b.text, b.n);
  *n = b.n;
  buf_free(&b);
  return text;
}

// A bug in a pass leaves the module that it choked on, as a test case to send.
static const Module *suspect;
static void write_reproducer(const char *message) {
  char path[] = "/tmp/dtc-bug-XXXXXX.ir";
  int fd = mkstemps(path, 3);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
  if (!f || !suspect) return;
  Buf b = {0};
  level_print(suspect, true, &b);
  fprintf(f, "# %s\n%s", message, b.text ? b.text : "");
  fclose(f);
  fprintf(stderr, "dtc: the program that caused it is in %s\n", path);
}

static FrontendOptions frontend_options(const Job *j) {
  VEC(Str) define = {0};
  for (uint32_t i = 0; i < j->o->define.n; i++) PUSH(j->a, define, j->o->define.at[i]);
  if (j->o->precision) PUSH(j->a, define, str_printf("precision=%s", j->o->precision));
  if (j->o->global_batch) PUSH(j->a, define, str_printf("batch=%lld", (long long)j->o->global_batch));
  return (FrontendOptions){
      .path = j->o->input,
      .stdlib = str_printf("%s/share/dtc/stdlib", install_dir()),
      .include = j->o->include.at,
      .ninclude = j->o->include.n,
      .define = define.at,
      .ndefine = define.n,
  };
}

static bool frontend(Job *j) {
  FrontendOptions f = frontend_options(j);
  double start = now();
  j->m = frontend_compile(j->a, j->src, &f);
  if (j->m) aim(j, j->m);
  timed(j, "frontend", start);
  return j->m;
}

// The same model with another batch and microbatch. NULL where it has no train block, or where that size is too
// large for it.
static Module *with_batch(const Job *j, int64_t n) {
  FrontendOptions f = frontend_options(j);
  VEC(Str) define = {0};
  for (uint32_t i = 0; i < f.ndefine; i++) PUSH(j->a, define, f.define[i]);
  const char *const size[] = {"batch", "microbatch"}; // the latter is at most the former
  for (int i = 0; i < 2; i++)
    PUSH(j->a, define, str_printf("train.%s=%lld", size[i], (long long)n));
  f.define = define.at;
  f.ndefine = define.n;
  Sources *silent = sources_new(j->a);
  silent->out = fopen("/dev/null", "w");
  if (!silent->out) return NULL;
  Module *m = frontend_compile(j->a, silent, &f);
  fclose(silent->out);
  silent->out = stderr;
  if (m) aim(j, m);
  return m;
}

// --run: IR text in, these passes, IR text out.
static int run_passes(Job *j) {
  size_t n;
  char *text = slurp(j, j->o->input, &n);
  if (!text) return EXIT_USAGE; // the program is not in error: there is none
  j->m = level_parse(j->a, j->src, j->o->input, text, n);
  suspect = j->m;
  if (!j->m) return EXIT_MODEL;
  aim(j, j->m);
  Buf why = {0};
  if (!ir_verify(j->m, &why) || (j->m->lowered && !plan_verify(j->m->lowered, &why))) {
    fprintf(stderr, "%s: error: %s\n", j->o->input, why.text);
    return EXIT_MODEL;
  }
  Str unknown = NULL;
  PipelineOptions po = {.time = j->o->time, .verify = true, .dump = stdout};
  if (*j->o->run && !pipeline_run_named(j->m, j->o->run, &po, &unknown)) {
    if (unknown) fprintf(stderr, "dtc: --run %s: there is no pass '%s'\n", j->o->run, unknown);
    return unknown ? EXIT_USAGE : EXIT_MODEL;
  }
  Buf out = {0};
  level_print(j->m, true, &out);
  return put_buf(j, &out);
}

static int check_pass_names(const Options *o) {
  if (!o->dump_after || !strcmp(o->dump_after, "all")) return 0;
  for (const char *p = o->dump_after; p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
    bool found = false;
    for (int i = 0; i < pass_count; i++) {
      size_t n = strlen(pass_table[i].name);
      found |= strcspn(p, ",") == n && !strncmp(p, pass_table[i].name, n);
    }
    if (found) continue;
    fprintf(stderr, "dtc: --dump-after %s: the passes are", o->dump_after);
    for (int i = 0; i < pass_count; i++) fprintf(stderr, " %s", pass_table[i].name);
    fputs("\n", stderr);
    return EXIT_USAGE;
  }
  return 0;
}

// FNV-1a, from `h` on.
static uint64_t hash_more(uint64_t h, const Buf *b) {
  for (size_t i = 0; i < b->n; i++) h = (h ^ (unsigned char)b->text[i]) * 0x100000001b3u;
  return h;
}

// The hash that distinguishes two programs: over everything emitted, and the limits that are not
// default.
static Str build_hash(const Module *m, const Buf *c, const Buf *object) {
  uint64_t h = 0xcbf29ce484222325u;
  Buf limits = {0};
  limits_print(&m->limits, m->usual_limits, &limits);
  h = hash_more(h, &limits);
  buf_free(&limits);
  h = hash_more(hash_more(h, c), object);
  return str_printf("%016llx", (unsigned long long)h);
}

static ZeroOptions zero_options(const Options *o) {
  return (ZeroOptions){(int)o->zero, (int)o->zero_group, o->accumulate_each, o->gather_once,
                       o->reduce && !strcmp(o->reduce, "bf16"), o->offload};
}

// The data-parallel degree, where --dp says it: else that of one rank.
static int data_degree(const Options *o) { return o->dp ? (int)o->dp : 1; }

static int32_t microbatches(const Job *j);

// Files of a run for --report html. False after a message.
static bool read_run(const Job *j, const Plan *p, RunFiles *run) {
  const Options *o = j->o;
  *run = (RunFiles){.log_path = o->with_log};
  if (o->with_log) {
    run->log = NEW(j->a, LogCurves);
    if (!plot_read(j->a, "--with-log", o->with_log, "loss", run->log)) return false;
    if (run->log->program && strcmp(run->log->program, j->m->name)) {
      fprintf(stderr, "dtc: %s is a log of the model %s, and this is %s\n", o->with_log, run->log->program, j->m->name);
      return false;
    }
  }
  if (o->with_profile) run->profile = NEW(j->a, Profile);
  return !o->with_profile || profile_read(j->a, o->with_profile, p, run->profile);
}

static void report_as(const Job *j, const Plan *p, const Report *r, const RunFiles *run, FILE *out) {
  if (!strcmp(j->o->report_form, "text")) report_text(r, j->m, out);
  if (!strcmp(j->o->report_form, "json")) report_json(r, j->m, out);
  if (strcmp(j->o->report_form, "html")) return;
  DtPipe *pipe = j->m->chunk.n ? schedule_make(p, microbatches(j), false) : NULL;
  report_html(r, p, pipe, j->o->input, run, out);
  dt_pipe_free(pipe);
}

static int report(const Job *j, const Plan *p) {
  RunFiles run;
  if (!read_run(j, p, &run)) return EXIT_MODEL;
  Report r = report_make(p, data_degree(j->o));
  Report plain;
  if (j->o->checkpoint) {
    plain = checkpoint_report(&j->plain, RECOMPUTE_NONE, 0);
    r.plain = &plain;
    r.again.proved &= j->recompute == j->o->checkpoint;
  }
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  ALLOCATED(f);
  report_as(j, p, &r, &run, f);
  ALLOCATED(!fclose(f));
  int status = put(j, text, n);
  free(text);
  return status;
}

// In fp64, which is for checking, nothing is to be rounded between ranks.
static int check_reduce(const Job *j) {
  if (!j->o->reduce || j->m->compute != DT_F64) return 0;
  fprintf(stderr, "dtc: error: --reduce-dtype %s: a program of fp64 sums gradients in fp64\n", j->o->reduce);
  return EXIT_USAGE;
}

// The update runs where the state is: on the host, which computes kernels of a target whose memory is the host's alone.
static int check_offload(const Job *j) {
  if (!j->o->offload) return 0;
  if (!offload_possible(j->m->lowered)) {
    fprintf(stderr, "dtc: error: --offload optimizer: this version of dtc has it for --target cpu alone; for %s it would need "
            "a second kernel of the update, for the processors of the host\n", j->m->target->name);
    return EXIT_USAGE;
  }
  if (offload_has_state(j->m->lowered)) return 0;
  fprintf(stderr, "dtc: error: --offload optimizer: this program's optimizer has no state: it needs momentum, or adam, or a "
          "precision of 16 bits\n");
  return EXIT_USAGE;
}

// A program needs data: a file without a train block can be checked and looked at, not linked.
static int has_data(const Job *j) {
  if (j->m->train.data != DATA_NONE || j->o->emit || j->o->report) return 0;
  fprintf(stderr, "%s: error: the train block has no data, and a training program needs it\n",
          j->o->input);
  fprintf(stderr, "  write in `train %s { ... }`: data = tokens(\"train.bin\", length = 1024)\n",
          j->m->name);
  return EXIT_MODEL;
}

// Whether the program can be written where it should go, found out before the work.
static int can_write(const Job *j) {
  Str path = j->o->output ? j->o->output : str_intern("./train");
  const char *slash = strrchr(path, '/');
  Str dir = slash ? str_internn(path, slash == path ? 1 : (size_t)(slash - path)) : str_intern(".");
  if (j->o->emit || j->o->report) return 0;
  struct stat st;
  bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
  if (!folder && !access(dir, W_OK) && (access(path, F_OK) || !access(path, W_OK))) return 0;
  if (folder) errno = EISDIR;
  fprintf(stderr, "dtc: cannot write %s: %s\n", path, strerror(errno));
  return EXIT_TOOL;
}

// That a data-parallel rank runs.
static int32_t microbatches(const Job *j) {
  const Train *t = &j->m->train;
  int64_t all = (t->batch + t->microbatch - 1) / t->microbatch, dp = data_degree(j->o);
  int64_t n = (all + dp - 1) / dp;
  return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

static int backend(Job *j) {
  Plan *p = j->m->lowered;
  p->zero = zero_options(j->o);
  p->in_flight = (int)j->o->in_flight;
  if (check_reduce(j) || check_offload(j)) return EXIT_USAGE;
  if (j->o->report) return report(j, p);
  int status = has_data(j);
  if (!status) status = can_write(j);
  if (!status && !memory_fits(p, j->o->input, data_degree(j->o), j->o->memory, stderr))
    status = EXIT_MODEL;
  if (status) return status;
  Buf text = {0}, object = {0};
  const Target *t = j->o->target;
  if (j->o->emit == EMIT_KERNELS || j->o->emit == EMIT_PLAN) {
    plan_print(p, &text);
    return put_buf(j, &text);
  }
  if (j->m->chunk.n && !schedule_check(p, microbatches(j))) return EXIT_BUG;
  if (j->o->emit == EMIT_SCHEDULE) {
    schedule_print(p, microbatches(j), &text);
    return put_buf(j, &text);
  }
  KernelOptions ko = {.arch = j->o->arch, .optimise = (int)j->m->limits.optimise,
                      .emulate = j->o->emulate};
  double start = now();
  Str why = t->refuses ? t->refuses(p) : NULL;
  if (why) return fprintf(stderr, "%s: error: %s\n", j->o->input, why), EXIT_MODEL;
  if (j->o->emit != EMIT_C) t->kernels(p, &ko, j->o->emit == EMIT_FORM ? j->o->form : NULL, &object);
  timed(j, "kernels", start);
  if (j->o->emit == EMIT_FORM) return put_buf(j, &object);
  start = now();
  host_c(p, j->o->arch, "", &text);
  Str hash = build_hash(p->m, &text, &object);
  buf_free(&text);
  host_c(p, j->o->arch, hash, &text);
  timed(j, "host C", start);
  if (j->o->emit == EMIT_C) return put_buf(j, &text);
  LinkOptions lo = {.output = j->o->output ? j->o->output : "./train",
                    .save_temps = j->o->save_temps,
                    .arch = j->o->arch,
                    .plan = p,
                    .emulate = j->o->emulate,
                    .quick = !j->m->limits.optimise};
  start = now();
  status = link_program(&lo, &text, &object) ? 0 : EXIT_TOOL;
  timed(j, "cc, link", start);
  buf_free(&text);
  buf_free(&object);
  return status;
}

// The mesh that the program is cut over.
static void add_axes(Job *j) {
  const int64_t size[NAMED_AXES] = {[AXIS_TP] = j->o->tp, [AXIS_CP] = j->o->cp};
  for (int id = 0; id < NAMED_AXES; id++) {
    if (size[id] < 2) continue;
    Axis x = axis_new(str_intern(axis_word[id]), size[id]);
    x.sequence = id == AXIS_TP && j->o->sequence;
    x.heads = id == AXIS_CP && j->o->heads;
    x.ring = id == AXIS_CP && j->o->ring;
    PUSH(j->a, j->m->axis, x);
  }
}

// The last pass that the requested output needs.
static Str last_pass(const Options *o) {
  if (o->interpret)
    return o->pp > 1 ? "pipeline" : o->checkpoint ? "recompute" : o->tp > 1 || o->cp > 1 ? "localise" : "precision";
  if (!o->check || o->emit || o->report) return NULL;
  Str last = "batch";
  bool past = false;
  for (int i = 0; o->dump_after && i < pass_count; i++) {
    past |= !strcmp(pass_table[i].name, "batch");
    if (past && (!strcmp(o->dump_after, "all") || strstr(o->dump_after, pass_table[i].name)))
      last = pass_table[i].name;
  }
  return last;
}

// Whether the passes up to `until` (NULL: all) have pass `name` among them.
static bool passes_reach(Str until, const char *name) {
  for (int i = 0; until && i < pass_count; i++) {
    if (!strcmp(pass_table[i].name, name)) return true;
    if (!strcmp(pass_table[i].name, until)) return false;
  }
  return true;
}

// Ranks of an interpreted run.
static int ranks(const Options *o) {
  int64_t dp = data_degree(o), tp = o->tp ? o->tp : 1, cp = o->cp ? o->cp : 1, pp = o->pp ? o->pp : 1;
  return (int)(dp * tp * cp * pp);
}

// Tests lower the sizes at which the compiler chooses (ir/limits.h).
static bool read_limits(Job *j) {
  const char *text = getenv("DTC_LIMITS");
  Buf why = {0};
  j->limits = j->o->target->limits;
  if (!text || limits_set(&j->limits, text, &why)) return true;
  fprintf(stderr, "dtc: DTC_LIMITS: %s\n", why.text);
  return false;
}

// The passes up to localise, and then what pass recompute is to do. 0, or an exit status.
static int prepare_checkpoint(Job *j, PipelineOptions po) {
  const Options *o = j->o;
  int64_t least;
  po.until = "localise";
  if (!pipeline_run(j->m, &po)) return EXIT_MODEL;
  j->plain = checkpoint_new(j->m, zero_options(o), (int)o->in_flight, data_degree(o));
  j->m->recompute = j->recompute = o->checkpoint;
  if (o->checkpoint != RECOMPUTE_AUTO) return 0;
  bool fits = checkpoint_choose(&j->plain, o->checkpoint_memory, &j->recompute, &j->m->keep, &least);
  j->m->recompute = j->recompute;
  if (fits) return 0;
  fprintf(stderr, "%s: error: a rank needs %lld bytes of memory with as much recomputed as can be, ", o->input, (long long)least);
  fprintf(stderr, "more than --checkpoint auto:%lld\n", (long long)o->checkpoint_memory);
  return EXIT_MODEL;
}

// ---- the model as it is written

// The front end's module with all of the batch as one microbatch, after the passes up to `until`. NULL after errors.
static Module *whole_batch(Job *j, const char *until) {
  int64_t batch = j->m->train.batch;
  Module *whole = with_batch(j, batch), *was = j->m;
  if (!whole) BUG("the model with a microbatch of %lld", (long long)batch);
  j->m = whole;
  PipelineOptions po = {.until = until};
  bool ok = pipeline_run(whole, &po);
  j->m = was;
  return ok ? whole : NULL;
}

// The step of the front end's module with all of the batch as one microbatch, and in *whole that module after pass
// `optimizer`, for the runtime. NULL after errors.
static Source *source_of(Job *j, Module **whole) {
  int64_t batch = j->m->train.batch;
  Module *loss = with_batch(j, batch), *step = with_batch(j, batch);
  if (!loss || !step) BUG("the model with a microbatch of %lld", (long long)batch);
  *whole = whole_batch(j, "optimizer");
  return *whole ? source_new(j->a, loss, step) : NULL;
}

static int interpret_source(Job *j) {
  Module *whole;
  InterpretRun run = {.steps = j->o->steps ? j->o->steps : 3, .ranks = 1, .source = source_of(j, &whole),
                      .data = j->o->data};
  if (!run.source) return EXIT_MODEL;
  int status = interpret(whole, &run);
  source_free(run.source);
  return status;
}

// Compiles the program and holds its first step against the interpreter's; v->folder is there.
static int verify_in(Job *j, VerifyRun *v) {
  Options o = *j->o;
  Job compiled = *j;
  Str missing = o.data ? NULL : verify_missing(v->whole);
  if (o.data) v->data = o.data;
  if (missing) {
    v->data = verify_data(v->whole, v->folder);
    if (!v->data) return EXIT_MODEL;
    fprintf(stderr, "dtc: %s does not exist, so random data are used (--data PATH names a file)\n",
            missing);
  }
  v->program = o.program;
  compiled.o = &o;
  if (!o.output) o.output = str_printf("%s/train", v->folder);
  if (!v->program) {
    int status = backend(&compiled);
    if (status) return status;
    v->program = o.output;
  }
  if (!strchr(v->program, '/')) v->program = str_printf("./%s", v->program);
  return verify_run(v, stdout);
}

static int verify(Job *j) {
  char folder[] = "/tmp/dtc-verify-XXXXXX";
  VerifyRun v = {.precision = j->m->train.precision, .ranks = ranks(j->o)};
  int status = has_data(j);
  if (status) return status;
  v.source = source_of(j, &v.whole);
  if (!v.source) return EXIT_MODEL;
  if (check_reduce(j)) return EXIT_USAGE;
  v.reduces_bf16 = zero_options(j->o).bf16;
  v.offloads = j->o->offload != 0;
  if ((is_half(j->m->store) || v.reduces_bf16) && !(v.rounded = whole_batch(j, "precision"))) return EXIT_MODEL;
  if (!verify_possible(v.source->loss, v.source->step, j->m, data_degree(j->o), j->o->input)) return EXIT_MODEL;
  v.folder = mkdtemp(folder);
  if (!v.folder) {
    fprintf(stderr, "dtc: cannot make %s: %s\n", folder, strerror(errno));
    return EXIT_MODEL;
  }
  status = verify_in(j, &v);
  DtError ignored = {0};
  dt_remove_folder(v.folder, &ignored);
  source_free(v.source);
  return status;
}

int compile(const Options *o, Arena *a) {
  Job j = {.o = o, .a = a, .src = sources_new(a)};
  j.src->out = stderr;
  j.src->color = isatty(2) && !getenv("NO_COLOR");
  bug_hook = write_reproducer;
  if (!read_limits(&j)) return EXIT_USAGE;
  if (o->run) return run_passes(&j);
  if (!o->target->knows_arch(o->arch)) {
    fprintf(stderr, "dtc: --arch %s: unknown processor\n", o->arch);
    return EXIT_USAGE;
  }
  int status = check_pass_names(o);
  if (status) return status;
  if (o->emit == EMIT_AST) {
    Buf text = {0};
    FrontendOptions f = frontend_options(&j);
    if (!frontend_print_ast(a, j.src, &f, &text)) return EXIT_MODEL;
    return put_buf(&j, &text);
  }
  if (!frontend(&j)) return EXIT_MODEL;
  add_axes(&j);
  suspect = j.m;
  if (o->emit == EMIT_IR) {
    Buf text = {0};
    level_print(j.m, o->dump_places, &text);
    return put_buf(&j, &text);
  }
#ifdef NDEBUG
  bool checked = getenv("DTC_VERIFY");
#else
  bool checked = true;
#endif
  if (o->pp > 1) {
    j.m->stages = (uint32_t)o->pp;
    j.m->chunks = (uint32_t)o->pipe_chunks;
    j.m->split = o->pipe_kind == DT_PIPE_ZB;
    j.m->schedule = o->schedule ? o->schedule : str_intern("1f1b");
  }
  if (o->source) return interpret_source(&j);
  PipelineOptions po = {.dump_after = o->dump_after, .dump = stdout, .places = o->dump_places,
                        .time = o->time, .verify = checked,
                        .until = last_pass(o)};
  if (o->checkpoint && passes_reach(po.until, "recompute")) {
    status = prepare_checkpoint(&j, po);
    if (status) return status;
    po.after = "localise";
  }
  if (!pipeline_run(j.m, &po)) return EXIT_MODEL;
  if (o->interpret) {
    InterpretRun run = {.steps = o->steps ? o->steps : 3, .ranks = ranks(o), .zero = zero_options(o), .data = o->data};
    return interpret(j.m, &run);
  }
  if (o->verify_run) return verify(&j);
  if (o->check && !o->emit && !o->report) return 0;
  return backend(&j);
}
