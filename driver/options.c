#include "driver/options.h"

#include <getopt.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "codegen/target.h"
#include "driver/command.h"
#include "ir/diag.h"
#include "runtime/pipeline/pipeline.h"
#include "runtime/program.h"

// One row an option: letter or number, long name, argument (NULL: none; values are parted by |), help.
// A row without a name heads those that follow. --help prints the rows in this order, and from that
// text scripts/from-help.awk makes manual pages and completions.
enum {
  OPT_TARGET = 256, OPT_EMULATE, OPT_ARCH, OPT_TP, OPT_PP, OPT_CP, OPT_SEQUENCE, OPT_CP_ATTENTION, OPT_EP,
  OPT_OFFLOAD, OPT_ZERO, OPT_ZERO_GROUP, OPT_ACCUMULATE, OPT_GATHER, OPT_IN_FLIGHT, OPT_SCHEDULE, OPT_PRECISION,
  OPT_CHECKPOINT, OPT_EMIT, OPT_DUMP, OPT_DUMP_PLACES, OPT_RUN, OPT_CHECK, OPT_INTERPRET, OPT_STEPS, OPT_VERIFY, OPT_DATA, OPT_REPORT,
  OPT_WITH_LOG, OPT_WITH_PROFILE,
  OPT_MEMORY, OPT_DETERMINISTIC, OPT_REDUCE_DTYPE, OPT_BUNDLE, OPT_DP, OPT_GLOBAL_BATCH,
  OPT_SAVE_TEMPS, OPT_TIME, OPT_HELP
};

typedef struct Row {
  int key;
  const char *name, *arg, *help;
} Row;

static const Row rows[] = {
    {0, NULL, NULL, "The model"},
    {'o', "output", "FILE",
     "the training program (default ./train); with\n"
     "--emit or --report, where the text goes (default\nstdout)"},
    {'D', "define", "NAME=VALUE",
     "override a size of the model or a setting of its\ntrain block (repeatable)"},
    {'I', "include", "DIR", "where `use` looks before the stdlib (repeatable)"},
    {OPT_PRECISION, "precision", "fp32|fp64|bf16|fp16", "override the train block's; fp64 is for checking"},
    {OPT_TARGET, "target", "cpu|cuda", "the target to compile for (default cpu)"},
    {OPT_EMULATE, "emulate", NULL, "--target cuda: kernels run on the CPU, for tests"},
    {OPT_ARCH, "arch", "NAME",
     "processor: native (default), x86-64, x86-64-v3,\nx86-64-v4, or a name that LLVM knows"},
    {OPT_MEMORY, "memory", "BYTES",
     "refuse a program if a rank needs more (80G, 512M),\nand list options that would fit"},
    {OPT_CHECKPOINT, "checkpoint", "none|full|selective|auto[:BYTES]",
     "activation checkpointing: what a stack's layer\n"
     "computes again in its backward pass. full: all but\n"
     "its input; selective: attention, norms, activations;\n"
     "auto: what makes a rank fit BYTES (or --memory)"},
    {OPT_OFFLOAD, "offload", "optimizer",
     "keep the optimizer's state (moments, float masters)\n"
     "in a file, which a launch names a folder for:\n./train --offload-dir DIR"},
    {0, NULL, NULL, "Many ranks"},
    {OPT_TP, "tp", "N", "tensor-parallel degree: ranks that share a layer's\nproducts"},
    {OPT_SEQUENCE, "sequence-parallel", NULL,
     "with --tp: cut norms and residuals along the\nsequence"},
    {OPT_CP, "cp", "N", "context-parallel degree: ranks that share a\nsequence"},
    {OPT_CP_ATTENTION, "cp-attention", "gather|ring|alltoall",
     "with --cp: gather keys and values (default), pass\n"
     "them around a ring, or exchange the sequence for\nheads"},
    {OPT_PP, "pp", "N", "pipeline stages: each rank runs a part of the layers"},
    {OPT_SCHEDULE, "schedule", "gpipe|1f1b|interleaved[:CHUNKS]|zb",
     "the pipeline's schedule (default 1f1b)"},
    {OPT_IN_FLIGHT, "in-flight", "1|2",
     "with --tp or --cp: microbatches in progress at once;\n"
     "with 2, one computes while the other exchanges"},
    {0, NULL, NULL, "Data-parallel ranks (their number is found at launch)"},
    {OPT_ZERO, "zero", "0|1|2|3",
     "cut over data-parallel ranks: 1 the optimizer's\n"
     "state, 2 also gradients, 3 also parameters"},
    {OPT_ZERO_GROUP, "zero-group", "N",
     "cut within groups of N ranks; each group holds all\npieces (default: one group)"},
    {OPT_ACCUMULATE, "accumulate", "once|each",
     "reduce gradients once a step (default for --zero 0\n"
     "and 1) or at each microbatch (for 2 and 3)"},
    {OPT_REDUCE_DTYPE, "reduce-dtype", "fp32|bf16",
     "type in which gradients are exchanged and summed\n(default fp32; bf16 sends half of the bytes)"},
    {OPT_GATHER, "gather", "each|once",
     "--zero 3: gather a layer's parameters each time it\n"
     "runs (default), or all of them once a step"},
    {0, NULL, NULL, "Instead of linking a program"},
    {OPT_CHECK, "check", NULL, "type-check only"},
    {OPT_REPORT, "report", "text|json|html",
     "print parameters, FLOPs, memory, communication and\nschedule"},
    {OPT_WITH_LOG, "with-log", "FILE", "--report html: draw the losses of this log of a run"},
    {OPT_WITH_PROFILE, "with-profile", "FILE",
     "--report html: time of the model's lines and of\nkernels, from this profile of a run"},
    {OPT_EMIT, "emit", "ast|ir|kernels|c|cuda|llvm|asm|plan|schedule",
     "print this form of the program"},
    {OPT_INTERPRET, "interpret", "ranks|source",
     "train in the float64 interpreter, and print the\n"
     "log. ranks (default): the program of each rank;\n"
     "source: the model as written, on one rank, the\nwhole batch at once"},
    {OPT_STEPS, "steps", "N", "steps of --interpret (default 3)"},
    {OPT_VERIFY, "verify-run", "PROGRAM",
     "compile, run one step on its ranks, and compare loss\n"
     "and gradients with --interpret=source; or run a\nPROGRAM that was compiled before"},
    {OPT_DATA, "data", "PATH", "--interpret, --verify-run: training data instead of\nthe model's"},
    {OPT_DP, "dp", "N",
     "data-parallel degree for --report, --memory,\n"
     "--checkpoint auto, --emit schedule, --interpret and\n"
     "--verify-run; a launch computes its degree"},
    {OPT_GLOBAL_BATCH, "global-batch", "N",
     "batch for --report, --memory, --emit schedule,\n--interpret and --verify-run"},
    {OPT_RUN, "run", "PASS,...", "the input is IR text: run only these passes and\nprint"},
    {0, NULL, NULL, "Looking inside"},
    {OPT_DUMP, "dump-after", "PASS,...", "print the IR after these passes, or after all; a\nprogram is then linked only if -o names it"},
    {OPT_DUMP_PLACES, "dump-places", NULL,
     "with --dump-after and --emit ir: print the place of\neach statement in the source, @file:line:column"},
    {OPT_SAVE_TEMPS, "save-temps", "DIR", "leave the emitted sources and their Makefile in DIR"},
    {OPT_TIME, "time", NULL, "print the seconds of each pass and tool"},
    {'v', "version", NULL, "print the version, the commit and LLVM's version"},
    {OPT_HELP, "help", NULL, "print this"},
    {0, NULL, NULL, "Options with one choice on the CPU"},
    {OPT_DETERMINISTIC, "deterministic", NULL, "the same bits in each run: always on"},
    {OPT_EP, "ep", "N", "expert-parallel degree: 1"},
    {OPT_BUNDLE, "bundle", "DIR", "refused: a program for the CPU needs no bundle"},
};
enum { NROW = sizeof rows / sizeof rows[0] };

// The column left of the help; "" where the option has a line alone.
static void print_row(const Row *r, FILE *out) {
  char left[96];
  bool letter = r->key < 256;
  int n = snprintf(left, sizeof left, "%s%c%s--%s%s%s", letter ? "-" : " ", letter ? r->key : ' ',
                   letter ? ", " : "  ", r->name, r->arg ? " " : "", r->arg ? r->arg : "");
  fprintf(out, n > 25 ? "  %s\n%28s" : "  %-25s ", left, "");
  for (const char *p = r->help; *p; p++) {
    putc(*p, out);
    if (*p == '\n') fprintf(out, "%28s", "");
  }
  putc('\n', out);
}

void options_help(FILE *out) {
  fputs("usage: dtc MODEL.dt [options]\n"
        "       dtc COMMAND ...\n\n"
        "Compiles a model description into a program that trains it.\n\n"
        "Commands (dtc COMMAND --help says more):\n", out);
  command_help_all(out);
  for (int i = 0; i < NROW; i++)
    if (rows[i].name) print_row(&rows[i], out);
    else fprintf(out, "\n%s:\n", rows[i].help);
  fputs("\nExit status: 0; 1 the model is in error; 2 usage; 3 a needed tool is missing or\n"
        "failed; 70 a bug in dtc.\n", out);
}

__attribute__((format(printf, 1, 2))) static int usage(const char *fmt, ...) {
  va_list ap;
  fputs("dtc: ", stderr);
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fputs("\n", stderr);
  return EXIT_USAGE;
}

// Digits alone, of a number from 1 to 2^40.
static bool positive(const char *text, int64_t *out) {
  *out = *text && !text[strspn(text, "0123456789")] ? strtoll(text, NULL, 10) : 0;
  return *out >= 1 && *out <= INT64_C(1) << 40;
}

// A number with K, M, G or T (powers of 1024) after it.
static bool bytes(const char *text, int64_t *out) {
  char *end;
  double v = strtod(text, &end);
  if (end != text + strspn(text, "0123456789.e")) return false; // no sign, no hexadecimal number
  const char *unit = "KMGT", *at = *end ? strchr(unit, *end) : NULL;
  if (end == text || (*end && (!at || end[1])) || !(v > 0)) return false;
  for (int i = 0; at && i <= at - unit; i++) v *= 1024;
  if (!(v >= 1 && v < 9e18)) return false;
  *out = (int64_t)v;
  return true;
}

static int set_emit(Options *o, const char *what) {
  static const char *const name[] = {"ast", "ir", "kernels", "c", "plan", "schedule"};
  o->emit = EMIT_FORM; // as which a target prints kernels, which check_form knows once --target is read
  o->form = what;
  for (int i = 0; i < 6; i++)
    if (!strcmp(what, name[i])) o->emit = (Emit)(EMIT_AST + i);
  return 0;
}

static int check_form(const Options *o) {
  Buf names = {0};
  if (o->emit != EMIT_FORM) return 0;
  for (int i = 0; o->target->forms[i]; i++) {
    if (!strcmp(o->target->forms[i], o->form)) return 0;
    buf_printf(&names, "%s, ", o->target->forms[i]);
  }
  int status = usage("--emit %s: expected ast, ir, kernels, c, %splan or schedule", o->form, names.text);
  buf_free(&names);
  return status;
}

static int set_target(Options *o, const char *name) {
  Buf names = {0};
  o->target = target_named(name);
  if (o->target) return 0;
  target_names(&names);
  int status = usage("--target %s: expected %s", name, names.text);
  buf_free(&names);
  return status;
}

// Degrees of parallelism that this version does not have are refused, never ignored.
static int one_only(const char *name, const char *value, const char *only) {
  if (!strcmp(value, only)) return 0;
  return usage("--%s %s: this version of dtc has --%s %s only", name, value, name, only);
}

static int set_checkpoint(Options *o, const char *v) {
  const char *colon = strchr(v, ':');
  size_t n = colon ? (size_t)(colon - v) : strlen(v);
  for (int i = 0; i < NRECOMPUTE; i++) {
    if (strlen(recompute_name[i]) != n || strncmp(recompute_name[i], v, n)) continue;
    o->checkpoint = (Recompute)i;
    o->checkpoint_memory = 0;
    if (!colon) return 0;
    if (i == RECOMPUTE_AUTO && bytes(colon + 1, &o->checkpoint_memory)) return 0;
  }
  return usage("--checkpoint %s: expected none, full, selective, auto or auto:BYTES, with BYTES like 80G", v);
}

// A list, of which this version has the first word.
static int set_offload(Options *o, const char *v) {
  static const char *const word[] = {"optimizer", "parameters", "activations"};
  o->offload = 0;
  for (const char *at = v;; at++) {
    size_t n = strcspn(at, ",");
    int i = 0;
    while (i < 3 && (strlen(word[i]) != n || strncmp(word[i], at, n))) i++;
    if (i == 3) return usage("--offload %s: expected optimizer", v);
    if (i > 0) return usage("--offload %s: this version of dtc offloads the optimizer's state alone; --offload optimizer", v);
    o->offload = DT_OFFLOAD_OPTIMIZER;
    at += n;
    if (!*at) return 0;
  }
}

static int number(const char *name, const char *value, int64_t *to) {
  return positive(value, to) ? 0 : usage("--%s %s: expected a number, 1 or more", name, value);
}

enum { MOST_CUT = 4096, MOST_RANKS = 1 << 20 }; // parts of a model; data-parallel ranks

static int degree(const char *name, const char *value, int64_t most, int64_t *to) {
  if (positive(value, to) && *to <= most) return 0;
  return usage("--%s %s: expected a number of ranks, 1 to %lld", name, value, (long long)most);
}

static int set_word(Str *to, const char *name, const char *v) {
  if (strcmp(v, "once") && strcmp(v, "each"))
    return usage("--%s %s: expected once or each", name, v);
  *to = v;
  return 0;
}

static int combine_pipeline(Options *o) {
  DtPipeKind kind;
  Str s = o->schedule ? o->schedule : str_intern("1f1b");
  if (!dt_pipe_parse(s, &kind, &o->pipe_chunks))
    return usage("--schedule %s: expected gpipe, 1f1b, interleaved, interleaved:CHUNKS or zb", s);
  o->pipe_kind = (int)kind;
  if (o->pp < 2 && o->schedule) return usage("--schedule %s is for a pipeline: --pp 2 or more", s);
  if (o->pp < 2 && o->emit == EMIT_SCHEDULE)
    return usage("--emit schedule is for a pipeline: --pp 2 or more");
  return 0;
}

static bool same_file(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// dtc does one thing with a model, and refuses an option that has no use there.
static int combine_outputs(const Options *o) {
  const struct {
    bool on;
    const char *name;
  } wish[] = {{o->emit, "--emit"},
              {o->run, "--run"},
              {o->interpret, "--interpret"},
              {o->verify_run, "--verify-run"},
              {o->report, "--report"},
              {o->check && !o->dump_after, "--check"}};
  const char *first = NULL;
  for (size_t i = 0; i < sizeof wish / sizeof *wish; i++) {
    if (!wish[i].on) continue;
    if (first)
      return usage("%s and %s ask for different things; give one of them", first, wish[i].name);
    first = wish[i].name;
  }
  if (o->steps && !o->interpret)
    return usage("--steps is for --interpret; the program has its own: ./train --steps N");
  if (o->data && !o->verify_run && !o->interpret)
    return usage("--data is for --interpret and --verify-run; a program has its own: ./train --data PATH");
  if (o->source && ((o->tp | o->cp | o->pp | o->dp) > 1))
    return usage("--interpret=source runs the model on one rank; --interpret runs the program of "
                 "each rank");
  if (o->global_batch && !o->interpret && !o->verify_run && !o->report && !o->memory && o->emit != EMIT_SCHEDULE)
    return usage("--global-batch is for --report, --memory, --emit schedule, --interpret and "
                 "--verify-run; the batch of a program is -D batch=N");
  if ((o->with_log || o->with_profile) && (!o->report || strcmp(o->report_form, "html")))
    return usage("--with-%s is for --report html", o->with_log ? "log" : "profile");
  if (o->dump_places && !o->dump_after && o->emit != EMIT_IR)
    return usage("--dump-places is for --dump-after and --emit ir");
  if (o->output && same_file(o->input, o->output))
    return usage("-o %s is the model itself", o->output);
  return 0;
}

// Two microbatches take turns within a layer: buffers that hold one layer at a time would be the
// other's.
static int combine_flight(const Options *o) {
  if (o->in_flight < 2) return 0;
  if (o->interpret)
    return usage("--in-flight 2 is for a program: --interpret runs one microbatch after the other");
  if (o->pp > 1)
    return usage("--in-flight 2 cannot be combined with --pp: a pipeline has other microbatches to "
                 "compute while one is exchanged");
  if (o->tp < 2 && o->cp < 2)
    return usage("--in-flight 2 is for --tp or --cp of 2 or more: without them a microbatch has no "
                 "exchange to wait for");
  if (o->accumulate_each)
    return usage("--in-flight 2 needs --accumulate once%s: two microbatches add to the same "
                 "gradients before either is done",
                 o->accumulate ? "" : ", which is not the default of --zero 2 and 3");
  if (o->zero == 3 && !o->gather_once)
    return usage("--in-flight 2 with --zero 3 needs --gather once: two microbatches use a layer's "
                 "parameters in turn");
  return 0;
}

static int combine_target(const Options *o) {
  return o->emulate && strcmp(o->target->name, "cuda") ? usage("--emulate is for --target cuda") : 0;
}

// What one option means for another.
static int combine(Options *o) {
  int bad = combine_pipeline(o);
  if (!bad) bad = combine_target(o);
  if (!bad) bad = combine_outputs(o);
  if (bad) return bad;
  if (o->gather && o->zero < 3)
    return usage("--gather is for --zero 3, which cuts parameters");
  if ((o->heads || o->ring) && o->cp < 2)
    return usage("--cp-attention %s is for --cp 2 or more", o->ring ? "ring" : "alltoall");
  if (o->reduce && o->interpret)
    return usage("--reduce-dtype is for a program: --interpret computes in double precision");
  if (o->checkpoint == RECOMPUTE_AUTO && !o->checkpoint_memory && !(o->checkpoint_memory = o->memory))
    return usage("--checkpoint auto needs the memory of a rank: --checkpoint auto:80G, or --memory 80G");
  if (o->checkpoint && o->source)
    return usage("--interpret=source runs the model as written, which saves all: --checkpoint is for programs");
  if (o->offload && o->interpret)
    return usage("--offload is for a program: --interpret has no files for its state");
  if (o->sequence && o->tp < 2) return usage("--sequence-parallel is for --tp 2 or more");
  if (o->dp && !o->report && !o->interpret && !o->verify_run && !o->memory && o->emit != EMIT_SCHEDULE &&
      o->checkpoint != RECOMPUTE_AUTO)
    return usage("--dp is for --report, --memory, --checkpoint auto, --emit schedule, --interpret and --verify-run: a "
                 "launch computes the data-parallel degree");
  o->accumulate_each = o->accumulate ? !strcmp(o->accumulate, "each") : o->zero >= 2;
  o->gather_once = o->gather && !strcmp(o->gather, "once");
  bad = combine_flight(o);
  if (bad) return bad;
  int64_t holders = o->dp * (o->cp ? o->cp : 1); // ranks that share a parameter
  if (o->zero_group && holders % o->zero_group)
    return usage("--zero-group %lld does not divide the %lld ranks of --dp and --cp",
                 (long long)o->zero_group, (long long)holders);
  return 0;
}

static bool is_form(const char *report) {
  return !strcmp(report, "text") || !strcmp(report, "json") || !strcmp(report, "html");
}

static const char *spelt(int key) {
  int i = 0;
  while (rows[i].key != key) i++;
  return str_printf("--%s", rows[i].name);
}

// An option that has a value stands once, as nothing says which value is meant; -D and -I repeat.
static int only_once(bool *given, int key) {
  int i = 0;
  while (rows[i].key != key) i++;
  bool again = given[i] && rows[i].arg && key != 'D' && key != 'I';
  given[i] = true;
  return again ? usage("option --%s is given twice", rows[i].name) : 0;
}

// How the program is cut over ranks, and how these exchange.
static int set_parallel(Options *o, int key, const char *v) {
  switch (key) {
  case OPT_TP: return degree("tp", v, MOST_CUT, &o->tp);
  case OPT_PP: return degree("pp", v, MOST_CUT, &o->pp);
  case OPT_SCHEDULE: o->schedule = v; return 0;
  case OPT_CP: return degree("cp", v, MOST_CUT, &o->cp);
  case OPT_SEQUENCE: o->sequence = true; return 0;
  case OPT_CP_ATTENTION:
    o->heads = !strcmp(v, "alltoall");
    o->ring = !strcmp(v, "ring");
    if (o->heads || o->ring || !strcmp(v, "gather")) return 0;
    return usage("--cp-attention %s: expected gather, ring or alltoall", v);
  case OPT_EP: return one_only("ep", v, "1");
  case OPT_DP: return degree("dp", v, MOST_RANKS, &o->dp);
  case OPT_ZERO:
    o->zero = v[0] - '0';
    if (!v[1] && o->zero >= 0 && o->zero <= 3) return 0;
    return usage("--zero %s: expected 0, 1, 2 or 3", v);
  case OPT_ZERO_GROUP:
    return positive(v, &o->zero_group) && o->zero_group <= 1 << 20
               ? 0
               : usage("--zero-group %s: expected a number of ranks, 1 or more", v);
  case OPT_ACCUMULATE: return set_word(&o->accumulate, "accumulate", v);
  case OPT_GATHER: return set_word(&o->gather, "gather", v);
  case OPT_IN_FLIGHT:
    if (positive(v, &o->in_flight) && o->in_flight <= 2) return 0;
    return usage("--in-flight %s: expected 1 or 2", v);
  case OPT_REDUCE_DTYPE:
    o->reduce = v;
    if (!strcmp(v, "fp32") || !strcmp(v, "bf16")) return 0;
    return usage("--reduce-dtype %s: expected fp32 or bf16", v);
  }
  return usage("internal: option %d", key);
}

static int set(Options *o, Arena *a, int key, const char *v) {
  if (v && !*v && key != OPT_RUN) return usage("option %s needs a value", spelt(key));
  switch (key) {
  case 'o': o->output = v; return 0;
  case 'D':
    if (!strchr(v, '=') || *v == '=') return usage("-D %s: expected NAME=VALUE", v);
    PUSH(a, o->define, v);
    return 0;
  case 'I': PUSH(a, o->include, v); return 0;
  case OPT_TARGET: return set_target(o, v);
  case OPT_EMULATE: o->emulate = true; return 0;
  case OPT_ARCH: o->arch = v; return 0;
  case OPT_CHECKPOINT: return set_checkpoint(o, v);
  case OPT_OFFLOAD: return set_offload(o, v);
  case OPT_PRECISION:
    o->precision = v;
    if (!strcmp(v, "fp32") || !strcmp(v, "fp64") || !strcmp(v, "bf16") || !strcmp(v, "fp16")) return 0;
    return usage("--precision %s: expected fp32, fp64, bf16 or fp16", v);
  case OPT_EMIT: return set_emit(o, v);
  case OPT_DUMP: o->dump_after = v; return 0;
  case OPT_DUMP_PLACES: o->dump_places = true; return 0;
  case OPT_RUN: o->run = v; return 0;
  case OPT_CHECK: o->check = true; return 0;
  case OPT_INTERPRET:
    o->interpret = true;
    o->source = v && !strcmp(v, "source");
    return !v || o->source || !strcmp(v, "ranks")
               ? 0
               : usage("--interpret=%s: expected ranks or source", v);
  case OPT_VERIFY:
    o->verify_run = true;
    o->program = v;
    return 0;
  case OPT_DATA: o->data = v; return 0;
  case OPT_STEPS: return number("steps", v, &o->steps);
  case OPT_GLOBAL_BATCH: return number("global-batch", v, &o->global_batch);
  case OPT_REPORT:
    o->report = true;
    o->report_form = v ? v : "text";
    if (!is_form(o->report_form))
      return usage("--report=%s: expected text, json or html", v);
    return 0;
  case OPT_WITH_LOG: o->with_log = v; return 0;
  case OPT_WITH_PROFILE: o->with_profile = v; return 0;
  case OPT_MEMORY:
    return bytes(v, &o->memory) ? 0 : usage("--memory %s: expected bytes, 1 or more, like 80G", v);
  case OPT_DETERMINISTIC: o->deterministic = true; return 0;
  case OPT_BUNDLE:
    return usage("--bundle %s: a bundle holds CUDA libraries, and a program for the CPU needs "
                 "none: use -o FILE", v);
  case OPT_SAVE_TEMPS: o->save_temps = v; return 0;
  case OPT_TIME: o->time = true; return 0;
  case 'v': o->version = true; return 0;
  case OPT_HELP: o->help = true; return 0;
  }
  return set_parallel(o, key, v);
}

static int unknown(const char *text) {
  Str name[NROW];
  uint32_t n = 0;
  for (int i = 0; i < NROW; i++)
    if (rows[i].name) name[n++] = str_intern(rows[i].name);
  if (strncmp(text, "--", 2)) return usage("unknown option '%s'; `dtc --help` lists them", text);
  Str near = did_you_mean(str_internn(text + 2, strcspn(text + 2, "=")), name, n);
  if (near) return usage("unknown option '%s'; did you mean '--%s'?", text, near);
  return usage("unknown option '%s'; `dtc --help` lists them", text);
}

static bool may_be_alone(int key) {
  return key == OPT_REPORT || key == OPT_INTERPRET || key == OPT_VERIFY;
}

// Who looks at the IR wants no program, least of all one in the place of an older ./train.
static bool only_dumps(const Options *o) {
  return o->dump_after && !o->output && !o->save_temps && !o->emit && !o->report && !o->interpret &&
         !o->verify_run && !o->run;
}

int options_parse(Options *o, Arena *a, int argc, char **argv) {
  struct option longs[NROW + 1] = {0};
  for (int i = 0, n = 0; i < NROW; i++) {
    if (!rows[i].name) continue;
    int has = !rows[i].arg                 ? no_argument
              : may_be_alone(rows[i].key) ? optional_argument
                                          : required_argument;
    longs[n++] = (struct option){rows[i].name, has, NULL, rows[i].key};
  }
  *o = (Options){0};
  bool given[NROW] = {false};
  opterr = 0;
  for (int key; (key = getopt_long(argc, argv, ":o:D:I:v", longs, NULL)) != -1;) {
    if (key == ':') return usage("option '%s' needs a value", argv[optind - 1]);
    if (key == '?') {
      if (optopt && optopt < 256)
        return usage("unknown option '-%c'; `dtc --help` lists them", optopt);
      if (optopt) return usage("option '%s' takes no value", argv[optind - 1]);
      return unknown(argv[optind - 1]);
    }
    bool apart = key == OPT_REPORT && !optarg && optind < argc && is_form(argv[optind]);
    int bad = only_once(given, key);
    if (!bad) bad = set(o, a, key, apart ? argv[optind++] : optarg);
    if (bad) return bad;
  }
  if (o->help || o->version) return 0;
  if (optind >= argc) return usage("no model given; usage: dtc MODEL.dt [options]");
  if (optind + 1 < argc)
    return usage("more than one model given: '%s' and '%s'", argv[optind], argv[optind + 1]);
  o->input = argv[optind];
  if (!o->target && o->emit == EMIT_FORM) o->target = target_with_form(o->form); // whose form it is
  if (!o->target) o->target = target_named("cpu");
  if (!o->arch) o->arch = o->target->usual_arch;
  int bad = check_form(o);
  if (!bad) bad = combine(o);
  o->check |= only_dumps(o);
  return bad;
}
