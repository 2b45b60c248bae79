// Random programs through the whole compiler: support/check.h says what must hold of each.
//
//   random_random_test [--seed N] [--count N] [--seconds N] [--until STAGE] [--arch NAME] [--jobs N]
//                      [--batch N] [--opt N] [--limits NAME=VALUE,..] [--shrink SECONDS] [--show N]
//                      [--print 1]
//   random_random_test --file PROGRAM.ir [--seed N] [--limits NAME=VALUE,..] [--print 1]
//
// A failing program is made smaller, for so many seconds, and printed as IR text, so many of a
// kind. With --file it is such a text that is checked; the seed decides about precision and
// arguments. The limits of the compiler, its processor and LLVM's level are drawn as well, those of
// the passes for each program and the others for 32 programs together; a failure prints what it had,
// and options here say it again. After --seconds no batch is begun. The last line counts.
// --print shows programs as generated, or that of a file as it goes to code generation. Programs
// are checked in child processes, so that a bug that ends one is a failure like any other.
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codegen/target.h"
#include "ir/text/text.h"
#include "tests/random/support/check.h"

typedef struct Options {
  uint64_t seed, count, batch, jobs, shrink, show, seconds, opt;
  const char *arch, *file, *limits;
  uint64_t print;
  unsigned stages;
} Options;

enum { MOST_BATCH = 200 };

// Shared between a child and the process that waits for it.
typedef struct Shared {
  uint64_t at; // program being checked
  Stage stage;
  Tally tally;
  Failure failure[MOST_BATCH];
  bool whole; // compiling all of the batch together failed
  char error[1000];
} Shared;

static void set_limits(const Options *o, Limits *l) {
  Buf why = {0};
  *l = target_named("cpu")->limits;
  if (limits_set(l, o->limits, &why)) return;
  fprintf(stderr, "--limits %s\n", why.text);
  exit(64);
}

// Of the programs that are compiled together.
enum { TOGETHER = 32 };

static bool arch_runs(const char *arch) {
  __builtin_cpu_init();
  if (!strcmp(arch, "x86-64-v4"))
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return strcmp(arch, "x86-64-v3") != 0 ||
         (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}

static CompileOptions compile_options(const Options *o, uint64_t seed) {
  static const char *const other[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
  Rng r = {seed / TOGETHER};
  CompileOptions c = {.limits = draw_limits(seed / TOGETHER + (UINT64_C(1) << 40))};
  uint32_t arch = rng_below(&r, 24), opt = rng_below(&r, 32);
  const char *drawn = arch < 3 ? other[arch] : "native";
  c.opt = o->opt <= 3 ? (int)o->opt : opt == 0 ? 3 : opt == 1 ? 1 : 0;
  c.arch = o->arch ? o->arch : arch_runs(drawn) ? drawn : "native";
  if (o->limits) set_limits(o, &c.limits);
  return c;
}

static CheckOptions options_of(const Options *o, uint64_t seed) {
  static const Dtype less[] = {DT_F32, DT_BF16, DT_F32, DT_F16};
  Limits limits = draw_limits(seed);
  if (o->limits) set_limits(o, &limits);
  return (CheckOptions){.limits = limits,
                        .seed = seed,
                        .exact = seed % 4 == 1,
                        .awkward = seed % 16 == 6,
                        .stages = o->stages,
                        .precision = seed / 4 % 2 ? DT_F64 : less[seed / 8 % 4]};
}

static Module *program(Arena *a, const Options *o, uint64_t seed) {
  CheckOptions c = options_of(o, seed);
  return generate(a, &(GenerateOptions){.seed = seed, .exact = c.exact, .awkward = c.awkward});
}

static bool compiles(const Options *o) { return o->stages >> STAGE_COMPILE & 1; }

// Jobs of one precision, compiled together or one by one.
typedef struct JobList {
  Job at[2 * MOST_BATCH];
  uint32_t owner[2 * MOST_BATCH], n; // owner: number in the batch
} JobList;

static void compile_jobs(const Options *o, Arena *a, JobList *j, Shared *s, bool together) {
  Failure *failure = calloc(j->n + 1, sizeof *failure);
  uint32_t step = together ? j->n : 1;
  for (uint32_t from = 0; from < j->n; from += step) {
    Buf error = {0};
    s->at = together ? UINT64_MAX : j->owner[from];
    if (together || !s->failure[j->owner[from]].failed) {
      CompileOptions c = compile_options(o, j->at[from].seed);
      bool ok = check_compiled(a, j->at + from, step, &c, failure + from, &error);
      if (!ok && together) s->whole = true;
      else if (!ok) fail_with(&failure[from], STAGE_COMPILE, "%s", error.text);
    }
    buf_free(&error);
    for (uint32_t k = from; k < from + step; k++)
      if (failure[k].failed && !s->failure[j->owner[k]].failed)
        s->failure[j->owner[k]] = failure[k];
  }
  free(failure);
}

// In a child: programs seed .. seed + n, but those that failed already.
static void run_batch(const Options *o, uint64_t seed, uint64_t n, Shared *s, bool together) {
  Arena *a = arena_new();
  JobList *list = calloc(2, sizeof *list);
  current_stage = &s->stage;
  s->tally = (Tally){0};
  for (uint64_t i = 0; i < n; i++) {
    if (s->failure[i].failed) continue;
    Lowered low[2];
    CheckOptions c = options_of(o, seed + i);
    JobList *j = &list[c.precision == DT_F64];
    s->at = i;
    s->stage = STAGE_GENERATE;
    if (!check_program(program(a, o, seed + i), &c, low, &s->tally, &s->failure[i])) continue;
    // The step computes what main does as well: where main is no less exact, some of each are enough.
    bool main_too = c.exact || (seed + i) % 3 == 0;
    for (int k = main_too ? 0 : 1; k < 2; k++)
      if (low[k].m) j->owner[j->n] = (uint32_t)i, j->at[j->n++] = (Job){low[k], seed + i};
  }
  for (int k = 0; k < 2 && compiles(o); k++) compile_jobs(o, a, &list[k], s, together);
  free(list);
  arena_free(a);
}

// Ends a child; under tests/coverage.sh with its counts.
void __gcov_dump(void) __attribute__((weak));
static _Noreturn void leave(void) {
  fflush(stdout);
  if (__gcov_dump) __gcov_dump();
  _exit(0);
}

static FILE *capture;

// Runs f in a child whose stderr goes to a file; true where it ended well, else the end of stderr
// is in text.
static bool in_child(void (*f)(void *ctx), void *ctx, char *text, size_t size) {
  if (!capture) capture = tmpfile();
  if (ftruncate(fileno(capture), 0)) return false;
  rewind(capture);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(fileno(capture), 2);
    setrlimit(RLIMIT_CPU, &(struct rlimit){120, 125}); // seconds; the machine may be busy
    f(ctx);
    leave();
  }
  int status;
  if (pid < 0 || waitpid(pid, &status, 0) < 0) return false;
  if (WIFEXITED(status) && !WEXITSTATUS(status)) return true;
  fseek(capture, 0, SEEK_END);
  long end = ftell(capture);
  fseek(capture, end > (long)size - 100 ? end - (long)size + 100 : 0, SEEK_SET);
  size_t n = fread(text, 1, size - 100, capture);
  if (WIFSIGNALED(status)) snprintf(text + n, 100, "signal %d", WTERMSIG(status));
  else text[n] = 0;
  return false;
}

// ---- shrinking

typedef struct Single {
  const Options *o;
  const Module *m;
  CheckOptions c;
  Shared *s;
} Single;

static void run_single(void *ctx) {
  Single *x = ctx;
  Lowered low[2];
  Arena *a = arena_new();
  current_stage = &x->s->stage;
  Module *m = copy_module(a, x->m);
  if (!m || !check_program(m, &x->c, low, &x->s->tally, &x->s->failure[0])) return;
  for (int k = 0; k < 2 && x->o->print; k++) { // as it goes to code generation
    Buf text = {0};
    if (low[k].m) ir_print(low[k].m, &text);
    if (low[k].m) printf("%s\n", text.text);
    fflush(stdout);
  }
  for (int k = 0; k < 2 && compiles(x->o) && !x->s->failure[0].failed; k++) {
    Buf error = {0};
    Job job = {.low = low[k]};
    CompileOptions c = compile_options(x->o, x->c.seed);
    if (low[k].m && !check_compiled(a, &job, 1, &c, &x->s->failure[0], &error))
      fail_with(&x->s->failure[0], STAGE_COMPILE, "%s", error.text);
  }
}

typedef struct Wanted {
  Single single;
  Failure failure;
} Wanted;

// The part of a message that tells kinds of failure apart: up to the first digit, quote or `.
static size_t kind_length(const char *message) { return strcspn(message, "0123456789`'\""); }

static bool same_kind(const Failure *a, const Failure *b) {
  size_t n = kind_length(a->message);
  if (!a->failed || !b->failed || a->stage != b->stage) return false;
  return a->stage >= STAGE_FORWARD || a->stage == STAGE_FINITE ||
         !strncmp(a->message, b->message, n < 12 ? n : 12);
}

static bool fails(const Module *m, void *ctx) {
  Wanted *w = ctx;
  Shared *s = w->single.s;
  char text[1000];
  w->single.m = m;
  s->failure[0].failed = false;
  if (!in_child(run_single, &w->single, text, sizeof text))
    fail_with(&s->failure[0], s->stage, "%s", text);
  return same_kind(&w->failure, &s->failure[0]);
}

static void report(const Options *o, uint64_t seed, const Failure *f, Shared *s) {
  CheckOptions c = options_of(o, seed);
  Arena *a = arena_new();
  Wanted w = {.single = {o, NULL, c, s}, .failure = *f};
  Module *m = program(a, o, seed);
  bool again = fails(m, &w);
  char *text = NULL;
  if (again && o->shrink) text = shrink(a, m, fails, &w, (double)o->shrink);
  Buf b = {0};
  if (!text) {
    ir_print(m, &b);
    text = b.text;
  } else {
    Arena *t = arena_new(); // the message of the small one
    Sources *src = sources_new(t);
    Module *small = ir_parse(t, src, str_intern("small"), text, strlen(text));
    if (small && fails(small, &w)) f = &s->failure[0];
  }
  Buf passes = {0}, code = {0};
  CompileOptions co = compile_options(o, seed);
  const Limits *usual = &target_named("cpu")->limits;
  limits_print(&c.limits, usual, &passes);
  limits_print(&co.limits, usual, &code);
  printf("passes: %s\ncode: --arch %s --opt %d %s\n", passes.n ? passes.text : "usual limits",
         co.arch, co.opt, code.n ? code.text : "usual limits");
  printf("---- seed %llu (%s%s), %s%s: %s\n%s\n", (unsigned long long)seed,
         dtype_name[c.precision],
         c.exact ? ", exact" : c.awkward ? ", awkward" : "",
         stage_name[f->stage], again ? "" : " (not when alone)", f->message, text);
  fflush(stdout);
  arena_free(a);
}

// ---- batches

typedef struct Batch {
  const Options *o;
  uint64_t seed, n;
  Shared *s;
  bool together;
} Batch;

static void batch_child(void *ctx) {
  Batch *b = ctx;
  run_batch(b->o, b->seed, b->n, b->s, b->together);
}

static void do_batch(const Options *o, uint64_t seed, uint64_t n, Shared *s, Tally *sum) {
  Batch b = {o, seed, n, s, true};
  memset(s, 0, sizeof *s);
  for (uint64_t tries = 0; tries <= 2 * n + 2; tries++) {
    s->whole = false;
    if (in_child(batch_child, &b, s->error, sizeof s->error) && !s->whole) break;
    // A crash while compiling many: one by one, to find out which.
    if (s->whole || s->at >= n) b.together = false;
    else fail_with(&s->failure[s->at], s->stage, "%s", s->error);
  }
  const uint32_t *from = (const uint32_t *)&s->tally;
  for (size_t i = 0; i < sizeof *sum / sizeof(uint32_t); i++) ((uint32_t *)sum)[i] += from[i];
}

// Kinds of failure that were shown in full: a few of each are enough.
typedef struct Shown {
  struct {
    Stage stage;
    char kind[16];
    uint64_t seen;
  } at[100];
  uint32_t n;
} Shown;

static bool worth_showing(const Options *o, Shown *x, const Failure *f) {
  char kind[16];
  uint32_t k = 0;
  snprintf(kind, sizeof kind, "%.*s", f->stage < STAGE_FINITE ? 12 : 0, f->message);
  while (k < x->n && (x->at[k].stage != f->stage || strcmp(x->at[k].kind, kind))) k++;
  if (k == x->n) {
    if (x->n == 100) return false;
    x->n++;
    x->at[k].stage = f->stage;
    strcpy(x->at[k].kind, kind);
  }
  return x->at[k].seen++ < o->show;
}

// Every jobs-th batch, from this one on. Returns the number of failures.
static uint32_t do_lane(const Options *o, uint64_t lane, Shared *s, Tally *sum) {
  Failure *failure = malloc(sizeof s->failure); // showing one uses s again
  Shown shown = {0};
  uint32_t failures = 0;
  uint64_t end = o->seed + o->count, first = o->seed / o->batch;
  time_t stop = time(NULL) + (time_t)o->seconds;
  // Batches begin at multiples of their size: those of TOGETHER programs share a draw.
  for (uint64_t b = first + lane; b * o->batch < end; b += o->jobs) {
    if (o->seconds && time(NULL) >= stop) break;
    uint64_t from = b * o->batch < o->seed ? o->seed : b * o->batch,
             last = (b + 1) * o->batch < end ? (b + 1) * o->batch : end, n = last - from;
    from -= o->seed;
    do_batch(o, o->seed + from, n, s, sum);
    memcpy(failure, s->failure, sizeof s->failure);
    if (!lane && from / 10240 != (from + n * o->jobs) / 10240)
      printf("at %llu of %llu\n", (unsigned long long)from, (unsigned long long)o->count), fflush(stdout);
    for (uint64_t i = 0; i < n; i++) {
      if (!failure[i].failed) continue;
      failures++;
      if (worth_showing(o, &shown, &failure[i])) report(o, o->seed + from + i, &failure[i], s);
      else
        printf("---- seed %llu, %s: %.200s\n", (unsigned long long)(o->seed + from + i),
               stage_name[failure[i].stage], failure[i].message);
    }
  }
  free(failure);
  return failures;
}

// ---- options

static bool parse_options(int argc, char **argv, Options *o) {
  *o = (Options){.seed = 1,
                 .count = 640,
                 .batch = TOGETHER,
                 .jobs = 2,
                 .shrink = 20,
                 .show = 2,
                 .opt = 4,
                 .stages = ~0u};
  for (int i = 1; i + 1 < argc; i += 2) {
    struct {
      const char *name;
      uint64_t *to;
    } number[] = {{"--seed", &o->seed},  {"--count", &o->count},   {"--batch", &o->batch},
                  {"--jobs", &o->jobs},  {"--shrink", &o->shrink}, {"--show", &o->show},
                  {"--print", &o->print}, {"--seconds", &o->seconds}, {"--opt", &o->opt}};
    bool found = false;
    for (size_t k = 0; k < sizeof number / sizeof *number; k++)
      if (!strcmp(argv[i], number[k].name))
        *number[k].to = strtoull(argv[i + 1], NULL, 10), found = true;
    if (!strcmp(argv[i], "--arch")) o->arch = argv[i + 1], found = true;
    if (!strcmp(argv[i], "--file")) o->file = argv[i + 1], found = true;
    if (!strcmp(argv[i], "--limits")) o->limits = argv[i + 1], found = true;
    for (int s = 0; !strcmp(argv[i], "--until") && s < NSTAGE; s++)
      if (!strcmp(argv[i + 1], stage_name[s])) o->stages = (2u << s) - 1, found = true;
    if (!found)
      return fprintf(stderr, "unknown option or value: %s %s\n", argv[i], argv[i + 1]), false;
  }
  return argc % 2 == 1 && TOGETHER % o->batch == 0 && o->batch >= 1 && o->batch <= MOST_BATCH && o->jobs >= 1;
}

static int check_file(const Options *o) {
  FILE *f = fopen(o->file, "r");
  if (!f) return perror(o->file), 66;
  Buf text = {0};
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) buf_write(&text, part, n);
  fclose(f);
  Arena *a = arena_new();
  Sources *src = sources_new(a);
  src->out = stderr;
  Module *m = ir_parse(a, src, str_intern(o->file), text.text, text.n);
  if (!m) return 65;
  Shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Single x = {o, m, options_of(o, o->seed), s};
  x.c.awkward = false;
  char end[1000];
  if (!in_child(run_single, &x, end, sizeof end)) fail_with(&s->failure[0], s->stage, "%s", end);
  const Failure *e = &s->failure[0];
  printf("%s: %s %s\n", o->file, e->failed ? stage_name[e->stage] : "good",
         e->failed ? e->message : "");
  return e->failed;
}

int main(int argc, char **argv) {
  Options o;
  if (!parse_options(argc, argv, &o)) return 64;
  if (o.file) return check_file(&o);
  printf("seeds %llu to %llu\n", (unsigned long long)o.seed,
         (unsigned long long)(o.seed + o.count - 1));
  for (uint64_t i = 0; o.print && i < o.count; i++) {
    Buf b = {0};
    ir_print(program(arena_new(), &o, o.seed + i), &b);
    printf("%s\n", b.text);
  }
  o.print = 0;
  fflush(stdout);
  struct Lane { Shared s; Tally sum; uint32_t failures; bool done; } *lane =
      mmap(NULL, o.jobs * sizeof *lane, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (uint64_t j = 0; j < o.jobs; j++) {
    if (fork()) continue;
    lane[j].failures = do_lane(&o, j, &lane[j].s, &lane[j].sum);
    lane[j].done = true;
    leave();
  }
  while (wait(NULL) > 0) continue;
  Tally t = {0};
  uint32_t failures = 0;
  for (uint64_t j = 0; j < o.jobs; j++) {
    failures += lane[j].done ? lane[j].failures : 1;
    for (size_t i = 0; i < sizeof t / sizeof(uint32_t); i++)
      ((uint32_t *)&t)[i] += ((uint32_t *)&lane[j].sum)[i];
  }
  printf("%u programs, %u failures; no gradient learnt (kinks) of %u; ranges proved in %u, not in "
         "%u; derivatives too large for the interpreter: %u\n",
         t.programs, failures, t.kinks, t.proved, t.unproved, t.large);
  return failures != 0;
}
