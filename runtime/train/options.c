#include "runtime/train/options.h"

#include "runtime/device.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { FLAG, TEXT, COUNT, POSITIVE, ANY_INTEGER, RATE, SECONDS } Kind;

typedef struct {
  const char *name, *value; // value: its name in --help, NULL for a flag
  Kind kind; // COUNT: >= 0; POSITIVE: >= 1; RATE: a number >= 0; SECONDS: one above 0
  size_t field;
  size_t given; // a bool that says that the option was there, or 0
  const char *help;
} Option;

#define F(name) offsetof(DtOptions, name)
static const Option options[] = {
    {NULL, NULL, FLAG, 0, 0, "Training"},
    {"data", "PATH", TEXT, F(data), 0,
     "training data instead of the model's: a file; for\narrays a folder with the model's files, "
     "or\nNAME=FILE,NAME=FILE"},
    {"val", "PATH", TEXT, F(val), 0, "validation data, likewise"},
    {"steps", "N", COUNT, F(steps), 0, "stop after N steps in all"},
    {"batch", "N", POSITIVE, F(batch), 0, "samples a step"},
    {"lr", "X", RATE, F(lr), 0, "peak learning rate"},
    {"schedule-steps", "N", POSITIVE, F(schedule_steps), 0,
     "the end of the learning rate's schedule (default:\n"
     "the model's steps; --steps does not move it)"},
    {"seed", "N", ANY_INTEGER, F(seed), F(seed_given),
     "seed of initial weights, order of samples, dropout"},
    {"no-shuffle", NULL, FLAG, F(no_shuffle), 0, "take samples in file order"},
    {"eval-every", "N", COUNT, F(eval_every), F(eval_given),
     "validate every N steps, and at the end"},
    {"eval-samples", "N", POSITIVE, F(eval_samples), 0,
     "at most N samples in a validation (default: all)"},
    {"eval-only", NULL, FLAG, F(eval_only), 0, "validate, print the result and end"},
    {NULL, NULL, FLAG, 0, 0, "Weights and checkpoints"},
    {"init", "FILE", TEXT, F(init), 0, "start from these weights (safetensors)"},
    {"export", "FILE", TEXT, F(export_to), 0, "write the weights at the end (safetensors)"},
    {"export-gradient", "FILE", TEXT, F(export_gradient), 0,
     "write the last step's gradient, before clipping\n(safetensors)"},
    {"save", "DIR", TEXT, F(save), 0,
     "write checkpoints DIR/step-00000100 at the end\nand when stopped by a signal"},
    {"save-every", "N", POSITIVE, F(save_every), 0, "and every N steps"},
    {"save-sync", NULL, FLAG, F(save_sync), 0,
     "write them at the end of their step, not behind the\nnext steps: needs no memory for a copy of the state"},
    {"keep", "N", POSITIVE, F(keep), 0, "remove all but the newest N checkpoints"},
    {"resume", "DIR", TEXT, F(resume), 0,
     "continue from the newest valid checkpoint in DIR, or\nfrom checkpoint DIR; an empty or "
     "missing DIR starts\na new run"},
    {NULL, NULL, FLAG, 0, 0, "Text"},
    {"sample", "N", COUNT, F(sample), 0, "write N tokens of text at the end"},
    {"prompt", "TEXT", TEXT, F(prompt), 0, "the beginning of the text"},
    {"temperature", "X", RATE, F(temperature), 0,
     "divides the logits (default: 1; 0: the likeliest\ntoken)"},
    {NULL, NULL, FLAG, 0, 0, "Reports"},
    {"log", "FILE", TEXT, F(log), 0, "write a line of JSON for each step"},
    {"tensorboard", "DIR", TEXT, F(tensorboard), 0, "write event files for TensorBoard"},
    {"profile", "FILE", TEXT, F(profile), 0, "write a Chrome trace of the steps (JSON)"},
    {"info", NULL, FLAG, F(info), 0, "print sizes, layout and memory (JSON), and end"},
    {"dry-run", NULL, FLAG, F(dry_run), 0,
     "start the ranks, allocate, check all data, print the\nplan, and end"},
    {"quiet", NULL, FLAG, F(quiet), 0, "no progress on stdout"},
    {NULL, NULL, FLAG, 0, 0, "Machine"},
    {"threads", "N", POSITIVE, F(threads), 0,
     "threads of each rank (default: the processors it may\n"
     "use, divided by the ranks of this machine)"},
    {"ranks", "N", POSITIVE, F(ranks), 0,
     "start N ranks on this machine (default: the number\nin the launcher's environment, or one)"},
    {"offload-dir", "DIR", TEXT, F(offload_dir), 0,
     "where a program of `dtc --offload` keeps its state,\nin a file of each rank that the run removes"},
    {"timeout", "SECONDS", SECONDS, F(timeout), 0,
     "limit for a silent peer (default: 100, or ten steps\nif that is more)"},
    {"reduce", "WAY", TEXT, F(reduce), 0,
     "on GPUs: 'exact' takes sums over ranks in their order,\nas on the CPU; 'nccl' (default) as NCCL does"},
    {"version", NULL, FLAG, F(version), 0, "print the model's name and build"},
    {"help", NULL, FLAG, F(help), 0, "print this"},
};
enum { NOPTIONS = sizeof options / sizeof *options };

// Edits (insertion, deletion, change, swap of neighbours) between two short words.
static int distance(const char *a, const char *b) {
  enum { MOST = 32 };
  int d[MOST + 1][MOST + 1], n = (int)strlen(a), m = (int)strlen(b);
  if (n > MOST || m > MOST) return MOST;
  for (int i = 0; i <= n; i++) {
    for (int j = 0; j <= m; j++) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
      if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
          d[i - 2][j - 2] + 1 < best)
        best = d[i - 2][j - 2] + 1;
      d[i][j] = best;
    }
  }
  return d[n][m];
}

static const Option *find(const char *name) {
  for (int i = 0; i < NOPTIONS; i++)
    if (options[i].name && strcmp(options[i].name, name) == 0) return &options[i];
  return NULL;
}

static int unknown(const char *arg, const char *name, DtError *e) {
  const char *near = NULL;
  int least = 4; // a word further away is another word
  for (int i = 0; i < NOPTIONS; i++) {
    if (!options[i].name) continue;
    int d = distance(name, options[i].name);
    if (d < least && d < (int)strlen(options[i].name)) {
      least = d;
      near = options[i].name;
    }
  }
  if (near)
    return dt_fail(e, DT_EXIT_USAGE, "unknown option '%s'; did you mean '--%s'?", arg, near);
  return dt_fail(e, DT_EXIT_USAGE, "unknown option '%s'; --help lists them", arg);
}

static int set_real(const Option *x, const char *text, double *to, DtError *e) {
  char *end;
  double v = strtod(text, &end), least = x->kind == SECONDS ? 1e-3 : 0;
  bool decimal = *text && end == text + strspn(text, "0123456789+-.eE") && !*end;
  bool lost = errno && v < 1; // too small for a double
  *to = v;
  if (decimal && !lost && isfinite(v) && v >= least) return 0;
  return dt_fail(e, DT_EXIT_USAGE, "--%s takes a number%s; found '%s'", x->name,
                 least > 0 ? " of at least 0.001" : ", not negative", text);
}

static int set_integer(const Option *x, const char *text, int64_t *to, DtError *e) {
  static const char *const what[] = {
      [COUNT] = ", at least 0", [POSITIVE] = ", at least 1", [ANY_INTEGER] = ""};
  long long least = x->kind == POSITIVE ? 1 : x->kind == COUNT ? 0 : INT64_MIN;
  char *end;
  *to = strtoll(text, &end, 10);
  bool digits = *text && end == text + strspn(text, "0123456789+-") && !*end;
  if (digits && errno)
    return dt_fail(e, DT_EXIT_USAGE, "--%s takes an integer of 64 bits; found '%s'", x->name, text);
  if (digits && *to >= least) return 0;
  return dt_fail(e, DT_EXIT_USAGE, "--%s takes an integer%s; found '%s'", x->name, what[x->kind],
                 text);
}

static int set(DtOptions *o, const Option *x, const char *text, DtError *e) {
  char *at = (char *)o + x->field;
  if (x->given) *(bool *)((char *)o + x->given) = true;
  errno = 0;
  switch (x->kind) {
  case FLAG: *(bool *)at = true; return 0;
  case TEXT:
    if (!*text && strcmp(x->name, "prompt") != 0)
      return dt_fail(e, DT_EXIT_USAGE, "--%s takes a name", x->name);
    *(const char **)at = text;
    return 0;
  case RATE:
  case SECONDS: return set_real(x, text, (double *)at, e);
  default: return set_integer(x, text, (int64_t *)at, e);
  }
}

// Counts are added and multiplied: the bounds keep that within int64.
static int bounds(const DtOptions *o, DtError *e) {
  const int64_t far = 1000000000000000;
  const struct {
    const char *name;
    int64_t value, most;
  } count[] = {{"steps", o->steps, far},
               {"schedule-steps", o->schedule_steps, far},
               {"eval-every", o->eval_every, far},
               {"eval-samples", o->eval_samples, far},
               {"save-every", o->save_every, far},
               {"keep", o->keep, far},
               {"sample", o->sample, far},
               {"batch", o->batch, INT32_MAX / 2},
               {"ranks", o->ranks, INT32_MAX},
               {"threads", o->threads, 1024}};
  for (size_t i = 0; i < sizeof count / sizeof *count; i++)
    if (count[i].value > count[i].most)
      return dt_fail(e, DT_EXIT_USAGE, "--%s is %lld; at most %lld is possible", count[i].name,
                     (long long)count[i].value, (long long)count[i].most);
  const double years = 1e9;
  if (o->timeout > years)
    return dt_fail(e, DT_EXIT_USAGE, "--timeout is at most %.0f seconds", years);
  return 0;
}

static int check_reduce(const DtOptions *o, DtError *e) {
  const char *other = dt_device_limits()->reduces;
  if (!o->reduce || (other && (strcmp(o->reduce, "exact") == 0 || strcmp(o->reduce, other) == 0))) return 0;
  if (other) return dt_fail(e, DT_EXIT_USAGE, "--reduce=%s: it may be 'exact' or '%s'", o->reduce, other);
  return dt_fail(e, DT_EXIT_USAGE, "--reduce has no meaning on this target: sums over ranks are in their order always");
}

static int combinations(const DtOptions *o, const DtProgram *p, DtError *e) {
  if (!o->save && (o->save_every || o->keep || o->save_sync))
    return dt_fail(e, DT_EXIT_USAGE, "--%s needs --save DIR",
                   o->save_every ? "save-every" : o->keep ? "keep" : "save-sync");
  if ((o->sample || o->prompt) && !dt_samples(p))
    return dt_fail(e, DT_EXIT_USAGE, "--%s: %s is not a model over tokens that has logits",
                   o->sample ? "sample" : "prompt", p->model);
  if (!o->sample && (o->prompt || o->temperature != 1))
    return dt_fail(e, DT_EXIT_USAGE, "--%s needs --sample N", o->prompt ? "prompt" : "temperature");
  if (o->export_gradient && (o->eval_only || o->steps == 0))
    return dt_fail(e, DT_EXIT_USAGE, "--export-gradient needs a step, and --%s makes none",
                   o->eval_only ? "eval-only" : "steps 0");
  if (check_reduce(o, e)) return e->status;
  if (o->offload_dir && !p->offload)
    return dt_fail(e, DT_EXIT_USAGE, "--offload-dir: the program was compiled without --offload, and keeps all in memory");
  if (o->eval_only && (o->export_to || o->sample))
    return dt_fail(e, DT_EXIT_USAGE, "--eval-only computes nothing else; use --%s with --steps 0",
                   o->export_to ? "export" : "sample");
  return bounds(o, e);
}

int dt_options_parse(DtOptions *o, const DtProgram *p, int argc, char **argv, DtError *e) {
  const DtTrain *t = &p->train;
  *o = (DtOptions){.steps = t->steps,
                   .schedule_steps = t->steps,
                   .batch = t->batch,
                   .seed = t->seed,
                   .eval_every = t->eval_every,
                   .lr = t->lr,
                   .temperature = 1};
  bool given[NOPTIONS] = {false};
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i];
    if (strcmp(arg, "-h") == 0) arg = "--help";
    if (strncmp(arg, "--", 2) != 0 || !arg[2])
      return dt_fail(e, DT_EXIT_USAGE, "unexpected '%s'; --help lists the options", arg);
    char name[64];
    const char *equal = strchr(arg, '=');
    size_t n = equal ? (size_t)(equal - arg) - 2 : strlen(arg) - 2;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), arg + 2);
    const Option *x = find(name);
    if (!x) return unknown(arg, name, e);
    if (x->kind == FLAG && equal) return dt_fail(e, DT_EXIT_USAGE, "--%s takes no value", name);
    const char *value = equal ? equal + 1 : NULL;
    if (x->kind != FLAG && !value && ++i < argc) value = argv[i];
    if (x->kind != FLAG && !value)
      return dt_fail(e, DT_EXIT_USAGE, "--%s takes a value: %s", name, x->value);
    bool *again = &given[x - options];
    if (*again && x->kind != FLAG)
      return dt_fail(e, DT_EXIT_USAGE, "--%s is given twice", name);
    *again = true;
    if (set(o, x, value, e)) return e->status;
  }
  return combinations(o, p, e);
}

// One paragraph, in lines of at most 79 characters.
static void help_exits(void) {
  static const char *const meaning[] = {
#define ROW(name, number, meaning) #number " " meaning,
      DT_EXITS(ROW)
#undef ROW
  };
  enum { N = sizeof meaning / sizeof *meaning, MOST = 79 };
  size_t at = (size_t)printf("\nExit status:") - 1;
  for (int i = 0; i < N; i++)
    for (const char *word = meaning[i], *next; *word; word = next + (*next == ' ')) {
      next = word + strcspn(word, " ");
      size_t n = (size_t)(next - word), end = *next ? 0 : 1;
      bool fits = at + 1 + n + end <= MOST;
      printf("%s%.*s%s", fits ? " " : "\n", (int)n, word, !end ? "" : i + 1 < N ? ";" : ".");
      at = (fits ? at + 1 : 0) + n + end;
    }
  printf("\n`dtc explain STATUS` says more.\n");
}

void dt_options_help(const DtProgram *p) {
  printf("usage: train [options]\n\nTrains %s, as its train block says.\n", p->model);
  for (int i = 0; i < NOPTIONS; i++) {
    const Option *x = &options[i];
    if (!x->name) {
      printf("\n%s:\n", x->help);
      continue;
    }
    char left[32];
    snprintf(left, sizeof left, "--%s%s%s", x->name, x->value ? " " : "", x->value ? x->value : "");
    const char *line = x->help;
    for (int first = 1; line; first = 0) {
      size_t n = strcspn(line, "\n");
      printf("  %-22s  %.*s\n", first ? left : "", (int)n, line);
      line = line[n] ? line + n + 1 : NULL;
    }
  }
  help_exits();
}
