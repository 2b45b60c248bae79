// Every function and layer of the standard library, in the models of tests/gradient/models, and
// every example, small: gradients are those of tangents and of central differences of the loss as
// the front end gave it, and the compiled program computes what the interpreter does. What no model calls is an error. Arguments: only
// those models. SEED=n: other numbers.
#include <dirent.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/gradient/support/case.h"

enum { PATH = 4096, MAX_CASES = 256, SECONDS = 600 };

// doc/numerics.md says why these are enough.
enum { BOUNDS = 2 };
static const struct Precision {
  Str name;
  double unit, spreads;
} precision[] = {{"fp64", 0x1p-53, 16}, {"fp32", 0x1p-24, 6}};

// First-order bounds: those of second order, in units of float32's roundoff, grow beyond all
// measure in a model of three layers. So what is uncertain in float32 only is compared too; it
// takes a number within 1e-7 of a kink.
static const InterpOptions bounds = {.seed = 7, .step = 3, .scale = true, .unit = 0x1p-53};

// What makes each example small.
static const struct {
  const char *name, *define[MAX_DEFINES];
} example[] = {
    {"examples/mlp",
     {"inputs=13", "hidden=18", "classes=5", "train.batch=5", "train.microbatch=2"}},
    {"examples/classifier",
     {"vocab=11", "length=7", "layers=2", "heads=2", "dim=12", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/chargpt",
     {"context=9", "layers=2", "heads=2", "dim=12", "train.length=7", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/gpt2",
     {"vocab=19", "context=9", "layers=3", "heads=2", "dim=12", "train.length=7", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/llama",
     {"vocab=19", "layers=2", "heads=4", "kv_heads=2", "dim=16", "hidden=22", "train.length=7",
      "train.batch=3", "train.microbatch=2"}},
};
enum { EXAMPLES = sizeof example / sizeof *example };

// ---- one model

typedef struct Numbers {
  FiniteCount finite;
  SameCount same[2]; // for each precision
} Numbers;

static bool uncertain(const Outcome *r) {
  for (int64_t i = 0; i < r->nout * r->parts; i += r->nout)
    if (r->out_scale[i] > 1e300) return true;
  return false;
}

static bool check_slopes(const Case *c, const Inputs *in, const Outcome *step, FiniteCount *n) {
  Arena *a = arena_new();
  Module *whole = case_compile(a, c, "fp64", true);
  bool ok = whole && finite_gradients(c, whole, in, step, n);
  arena_free(a);
  return ok;
}

// What was printed and parsed gives the same bits.
static bool check_text(const Case *c, const Module *m, const Inputs *in, const Outcome *step) {
  Arena *a = arena_new();
  Module *copy = case_copy(c, a, m, "optimizer");
  Outcome again = {0};
  SameCount ignored = {0};
  bool ok = copy && oracle_run(c, copy, ENTRY_STEP, in, &bounds, &again) &&
            outcome_same(c, step, &again, (Tolerance){0}, "printed and parsed", &ignored);
  outcome_free(&again);
  arena_free(a);
  return ok;
}

// The compiled entry against the interpreter; twice and on two threads the same bits.
static bool check_entry(const Case *c, const Native *n, Entry e, const Inputs *in,
                        const Outcome *want, const Outcome *spread, int which, SameCount *count) {
  Outcome got, again;
  Str what = str_printf("%s, %s", entry_name[e], precision[which].name);
  Tolerance t = {BOUNDS * precision[which].unit, precision[which].spreads, spread};
  bool ok = native_run(c, n, e, in, 1, &got);
  got.param = want->param;
  ok = ok && outcome_same(c, want, &got, t, what, count);
  for (int threads = 1; ok && threads <= 2; threads++) {
    SameCount ignored = {0};
    what = str_printf("%s, %s, again on %d threads", entry_name[e], precision[which].name, threads);
    ok = native_run(c, n, e, in, threads, &again) &&
         outcome_same(c, &got, &again, (Tolerance){0}, what, &ignored);
    outcome_free(&again);
  }
  outcome_free(&got);
  return ok;
}

// Inputs on which the loss does not hang on a comparison that roundings could turn.
static bool draw(const Case *c, const Module *m, Inputs *in, Outcome *step) {
  for (uint64_t k = 0; k < 8; k++) {
    *in = inputs_new(m, c->seed + 1000 * k);
    if (!oracle_run(c, m, ENTRY_STEP, in, &bounds, step)) return false;
    if (!uncertain(step)) return true;
    outcome_free(step);
    inputs_free(in);
  }
  printf("%s: every draw has an uncertain loss\n", c->name);
  return false;
}

static bool check_precision(const Case *c, int which, Numbers *n) {
  Arena *a = arena_new();
  Module *m = case_compile(a, c, precision[which].name, false);
  if (!m || !case_passes(c, m, NULL, "optimizer")) return false;
  Inputs in;
  Outcome step, eval, dstep, deval;
  double unit = precision[which].unit;
  if (!draw(c, m, &in, &step) || !oracle_run(c, m, ENTRY_EVAL, &in, &bounds, &eval)) return false;
  if (!oracle_spread(c, m, ENTRY_STEP, &in, unit, &step, &dstep) ||
      !oracle_spread(c, m, ENTRY_EVAL, &in, unit, &eval, &deval))
    return false;
  if (!check_text(c, m, &in, &step)) return false;
  if (which == 0 && !check_slopes(c, &in, &step, &n->finite)) return false;
  Native native;
  bool ok = case_passes(c, m, "precision", NULL) && native_build(c, m, &native) &&
            check_entry(c, &native, ENTRY_STEP, &in, &step, &dstep, which, &n->same[which]) &&
            check_entry(c, &native, ENTRY_EVAL, &in, &eval, &deval, which, &n->same[which]);
  if (ok && n->same[which].left_out > n->same[which].elements / 10) {
    printf("%s: too much is left out: %llu of %llu\n", c->name,
           (unsigned long long)n->same[which].left_out,
           (unsigned long long)n->same[which].elements);
    ok = false;
  }
  outcome_free(&step);
  outcome_free(&eval);
  outcome_free(&dstep);
  outcome_free(&deval);
  inputs_free(&in);
  arena_free(a);
  return ok;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool check_case(const Case *c) {
  Numbers n = {0};
  double start = now();
  bool ok = check_precision(c, 0, &n) && check_precision(c, 1, &n);
  printf("%-4s %-31s %3u slopes, %u kinks; error as part of what is allowed: slopes %.2f, "
         "tangents %.2f, ",
         ok ? "ok" : "FAIL", c->name, n.finite.probes, n.finite.kinks, n.finite.worst,
         n.finite.tangent);
  for (int i = 0; i < 2; i++)
    printf("%s %.2f, %llu of %llu left out; ", precision[i].name, n.same[i].worst,
           (unsigned long long)n.same[i].left_out, (unsigned long long)n.same[i].elements);
  printf("%.1f s\n", now() - start);
  return ok;
}

// In a process of its own: a bug that stops the compiler stops this model only.
static bool check_apart(const Case *c) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(SECONDS);
    bool ok = check_case(c);
    fflush(stdout);
    _exit(!ok);
  }
  int status = -1;
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    return printf("FAIL %s: no process\n", c->name), false;
  if (WIFSIGNALED(status)) printf("FAIL %s: ended by signal %d\n", c->name, WTERMSIG(status));
  return status == 0;
}

// ---- which models

typedef struct Suite {
  Case at[MAX_CASES];
  int n;
  Buf text; // of all models and examples
} Suite;

static bool read_text(const char *path, Buf *b) {
  FILE *f = fopen(path, "rb");
  char part[4096];
  if (!f) return printf("%s: cannot be read\n", path), false;
  for (size_t k; (k = fread(part, 1, sizeof part, f)) > 0;) buf_write(b, part, k);
  fclose(f);
  return true;
}

static bool add_example(Case *c) {
  for (int i = 0; i < EXAMPLES; i++) {
    if (strcmp(c->name, example[i].name)) continue;
    for (; c->ndefine < MAX_DEFINES && example[i].define[c->ndefine]; c->ndefine++)
      c->define[c->ndefine] = str_intern(example[i].define[c->ndefine]);
    return true;
  }
  printf("%s.dt: gradient_test.c does not say how to make it small\n", c->name);
  return false;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const Case *)a)->name, ((const Case *)b)->name);
}

// All .dt files of a folder, sorted.
static bool add_folder(Suite *s, const char *dir, bool examples, uint64_t seed) {
  DIR *d = opendir(dir);
  bool ok = d;
  int from = s->n;
  for (struct dirent *e; d && (e = readdir(d));) {
    size_t k = strlen(e->d_name);
    if (k < 4 || strcmp(e->d_name + k - 3, ".dt")) continue;
    if (s->n == MAX_CASES) return printf("more than %d models\n", MAX_CASES), false;
    Case *c = &s->at[s->n++];
    Str name = str_internn(e->d_name, k - 3);
    *c = (Case){.name = examples ? str_printf("examples/%s", name) : name,
                .path = str_printf("%s/%s", dir, e->d_name),
                .seed = seed};
    ok = read_text(c->path, &s->text) && (!examples || add_example(c)) && ok;
  }
  if (d) closedir(d);
  else printf("%s: no such folder\n", dir);
  qsort(s->at + from, (size_t)(s->n - from), sizeof *s->at, by_name);
  return ok;
}

// Every name that the standard library declares is called by some model.
static bool all_covered(const Suite *s) {
  Buf text = {0};
  bool ok = read_text(SOURCE_DIR "/stdlib/nn.dt", &text);
  int n = 0;
  for (char *line = text.text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
    static const char *const word[] = {"layer ", "fn ", "intrinsic fn "};
    for (size_t w = 0; w < sizeof word / sizeof *word; w++) {
      if (strncmp(line, word[w], strlen(word[w]))) continue;
      const char *name = line + strlen(word[w]);
      Str call = str_printf("nn.%.*s(", (int)strcspn(name, "("), name);
      n++;
      if (strstr(s->text.text, call)) continue;
      printf("stdlib/nn.dt: no model in tests/gradient/models calls %s)\n", call);
      ok = false;
    }
  }
  buf_free(&text);
  return ok && n > 0;
}

int main(int argc, char **argv) {
  static Suite s;
  uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 1;
  printf("SEED=%llu\n", (unsigned long long)seed);
  bool ok = add_folder(&s, SOURCE_DIR "/tests/gradient/models", false, seed) &&
            add_folder(&s, SOURCE_DIR "/examples", true, seed) && all_covered(&s);
  int bad = 0, run = 0;
  for (int i = 0; i < s.n; i++) {
    bool wanted = argc < 2;
    for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], s.at[i].name);
    if (!wanted) continue;
    run++;
    bad += !check_apart(&s.at[i]);
  }
  printf("%d of %d models are right\n", run - bad, run);
  return !ok || bad || !run;
}
