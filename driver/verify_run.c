#include "driver/verify_run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/text/text.h"
#include "runtime/files/json.h"

// The interpreter takes about three minutes for a step of this size, bounds, spreads and tangents
// included.
static const double MOST_POINTS = 4e8;
// Added to each weight's first value: a zero would hide an error in its factor.
static const double MOVED = 0.02;
enum { BOUNDS = 2 }; // doc/numerics.md has these
static double spreads(bool fp64) { return fp64 ? 16 : 6; }

bool verify_possible(const Module *loss, const Module *step, const Module *cut, int dp, Str path) {
  double n = source_points(step, step->entry[ENTRY_STEP]);
  if (source_is_local(loss) && (dp > 1 || cut->train.microbatch < cut->train.batch)) {
    fprintf(stderr,
            "%s: error: --verify-run: statistics over `local(b: ...)` are those of a rank's "
            "microbatch, "
            "and the interpreter computes the whole batch as one\n"
            "  make the microbatch as large as the batch, -D microbatch=%lld, and run one "
            "data-parallel rank\n",
            path, (long long)cut->train.batch);
    return false;
  }
  if (n <= MOST_POINTS) return true;
  Buf largest = {0};
  source_largest(step, &largest);
  fprintf(stderr,
          "%s: error: --verify-run: a step computes %.2g elements, and the interpreter takes at "
          "most %.2g\n"
          "  the largest statement is %s; make the sizes of its indices smaller by -D, batch among "
          "them "
          "(-D batch=N)\n",
          path, n, MOST_POINTS, largest.text);
  buf_free(&largest);
  return false;
}

// ---- the program

enum { MOST_ARGS = 32 };

static int run_program(const VerifyRun *v, const char *const *more) {
  const char *argv[MOST_ARGS];
  int n = 0;
  argv[n++] = v->program;
  for (; *more && n < MOST_ARGS - 5; more++) argv[n++] = *more;
  if (v->offloads) argv[n++] = "--offload-dir", argv[n++] = v->folder;
  if (v->data) argv[n++] = "--data", argv[n++] = v->data;
  argv[n] = NULL;
  pid_t pid = fork();
  if (!pid) {
    dup2(2, 1);
    execv(v->program, (char **)argv);
    fprintf(stderr, "dtc: cannot run %s: %s\n", v->program, strerror(errno));
    _exit(127);
  }
  int status = -1;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) status = -1;
  if (status == 0) return 0;
  fprintf(stderr, "dtc: --verify-run: %s ended with %s %d\n", v->program,
          WIFEXITED(status) ? "status" : "signal",
          WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  return EXIT_MODEL;
}

static Str number(int64_t n) { return str_printf("%lld", (long long)n); }
static Str in(const VerifyRun *v, const char *name) { return str_printf("%s/%s", v->folder, name); }

// Initial weights of the program, in the precision that it keeps them in.
static int write_weights(const VerifyRun *v) {
  const char *argv[] = {"--ranks",      number(v->ranks),
                        "--steps",      "0",
                        "--export",     in(v, "init.safetensors"),
                        "--eval-every", "0",
                        "--quiet",      NULL};
  return run_program(v, argv);
}

static double uniform(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  return (double)(int64_t)(z ^ z >> 31) * 0x1p-63;
}

// Moves every weight of the file a little, in place.
static int move_weights(const VerifyRun *v) {
  FILE *f = fopen(in(v, "init.safetensors"), "r+b");
  uint64_t head = 0, state = 1;
  bool ok = f && fread(&head, 8, 1, f) == 1 && !fseek(f, (long)(8 + head), SEEK_SET),
       fp64 = !strcmp(v->precision, "fp64");
  long at = ok ? ftell(f) : 0, size = fp64 ? 8 : 4;
  for (double d;; at += size) {
    float s;
    if (!ok || fread(fp64 ? (void *)&d : &s, (size_t)size, 1, f) != 1) break;
    d = (fp64 ? d : (double)s) + MOVED * uniform(&state);
    s = (float)d;
    ok = !fseek(f, at, SEEK_SET) && fwrite(fp64 ? (void *)&d : &s, (size_t)size, 1, f) == 1 &&
         !fseek(f, at + size, SEEK_SET);
  }
  ok = f && !ferror(f) && ok;
  if (f && fclose(f)) ok = false;
  if (!ok) fprintf(stderr, "dtc: --verify-run: cannot rewrite %s\n", in(v, "init.safetensors"));
  return ok ? 0 : EXIT_MODEL;
}

static int run_step(const VerifyRun *v) {
  const char *argv[] = {"--ranks",
                        number(v->ranks),
                        "--steps",
                        "1",
                        "--init",
                        in(v, "init.safetensors"),
                        "--export-gradient",
                        in(v, "gradient.safetensors"),
                        "--log",
                        in(v, "log.jsonl"),
                        "--eval-every",
                        "0",
                        "--quiet",
                        NULL};
  return run_program(v, argv);
}

// Loss and gradient norm of the only step, from a log in the folder: its record follows that of the run.
static bool read_log(const VerifyRun *v, const char *log, double *loss, double *norm) {
  char *line = NULL;
  size_t capacity = 0;
  FILE *f = fopen(in(v, log), "r");
  bool ok = f && getline(&line, &capacity, f) > 0 && getline(&line, &capacity, f) > 0;
  if (f) fclose(f);
  DtJson j = {0};
  DtError e = {0};
  const DtJsonValue *a = NULL, *b = NULL, *skipped = NULL;
  if (ok && !dt_json_parse(&j, line, strlen(line), "the log", &e)) {
    a = dt_json_member(&j, dt_json_root(&j), "loss", DT_JSON_REAL);
    b = dt_json_member(&j, dt_json_root(&j), "grad_norm", DT_JSON_REAL);
    skipped = dt_json_member(&j, dt_json_root(&j), "skipped", DT_JSON_BOOL);
  }
  if (skipped && skipped->integer)
    fprintf(stderr, "dtc: --verify-run: gradients of the first step are not finite in %s, so the program skips it\n",
            v->precision);
  else if (!a || !b)
    fprintf(stderr, "dtc: --verify-run: no loss in %s\n", in(v, log));
  ok = a && b && !(skipped && skipped->integer);
  if (ok) *loss = a->real, *norm = b->real;
  dt_json_free(&j);
  free(line);
  return ok;
}

// ---- comparing

// One tensor, or a number: errors, and how many elements were left out because their value hangs on
// a comparison that roundings may turn.
typedef struct Errors {
  int64_t count, left_out;
  double largest, square, norm, worst; // worst: in units of the allowed error
  double allowed;                      // sum of squares
} Errors;

typedef struct Compare {
  bool fp64;
  double unit;
  double least; // the least allowed error of an element of the tensor
} Compare;

static void compare_one(const Compare *c, Errors *e, double want, double got, double bound,
                        double spread) {
  double error = fabs(want - got);
  double allowed = fmax(fmin(BOUNDS * c->unit * bound, spreads(c->fp64) * spread), c->least);
  e->count++;
  e->norm += want * want;
  if (!isfinite(bound)) {
    e->left_out++;
    return;
  }
  e->square += error * error;
  e->allowed += allowed * allowed;
  if (!(error <= e->largest)) e->largest = error;
  if (error == 0) return;
  double part = allowed > 0 ? error / allowed : INFINITY;
  if (!(part <= e->worst)) e->worst = isnan(part) ? INFINITY : part;
}

// The spread of an element is the most of a few samples, and may be small by luck: where it is not
// 0, it counts as a quarter of the tensor's at least.
static double typical(const double *spread, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += spread[i] * spread[i];
  return sqrt(sum / (double)(n ? n : 1)) / 4;
}

Str verify_instance(const Param *p, int64_t at) {
  int64_t number[MAX_RANK];
  for (uint32_t k = p->nstack; k-- > 0; at /= p->extent[k]) number[k] = at % p->extent[k];
  Buf b = {0};
  uint32_t k = 0;
  for (const char *c = p->name; *c; c++)
    if (*c == '*')
      buf_printf(&b, "%lld", (long long)number[k++]);
    else
      buf_printf(&b, "%c", *c);
  Str name = str_printf("%s", b.text);
  buf_free(&b);
  return name;
}

int64_t verify_instances(const Param *p) {
  int64_t n = 1;
  for (uint32_t k = 0; k < p->nstack; k++) n *= p->extent[k];
  return n;
}

bool verify_read(const VerifyRun *v, const DtWeights *w, Str name, int64_t count, double *to) {
  const DtTensor *t = dt_weights_find(w, name);
  if (t && t->count == count) {
    dt_tensor_read(t, 0, t->count, DT_TYPE_F64, to);
    return true;
  }
  fprintf(stderr, "dtc: --verify-run: %s has no gradient of %s; was it compiled from this model?\n", v->program, name);
  return false;
}

static bool compare_param(const VerifyRun *v, Compare *c, uint32_t p, const DtWeights *w,
                          Errors *e) {
  const Param *x = &v->source->loss->param.at[p];
  const Tensor *g = v->source->grad[p];
  int64_t stacks = verify_instances(x), all = tensor_count(g);
  // In fp64 layouts differ by up to 1e-11 of a tensor (tests/layouts): less than that is no fault.
  c->least = c->fp64 ? 4e-12 * typical(g->real, all) : 0;
  double least = typical(v->source->spread[p], all), *got = malloc((size_t)all * sizeof *got);
  bool ok = got;
  for (int64_t s = 0; ok && s < stacks; s++)
    ok = verify_read(v, w, verify_instance(x, s), all / stacks, got + s * (all / stacks));
  for (int64_t i = 0; ok && i < all; i++) {
    double spread = v->source->spread[p][i];
    compare_one(c, e, g->real[i], got[i], g->scale ? g->scale[i] : 0,
                spread > 0 ? fmax(spread, least) : 0);
  }
  free(got);
  return ok;
}

static void print_row(FILE *out, const char *name, const Errors *e) {
  double norm = sqrt(e->norm);
  fprintf(out, "%-40s %11lld  %8.2g  %8.2g  %8.2g%s\n", name, (long long)e->count, e->largest,
          norm > 0 ? sqrt(e->square) / norm : sqrt(e->square), e->worst,
          e->worst <= 1 ? "" : "  WRONG");
}

static int report(const VerifyRun *v, const DtWeights *w, double loss, double norm, FILE *out) {
  const Source *s = v->source;
  Compare c = {.fp64 = !strcmp(v->precision, "fp64")};
  c.unit = c.fp64 ? 0x1p-53 : 0x1p-24;
  Errors l = {0}, n = {0};
  double worst = 0, squares = 0, allowed = 0;
  int64_t left_out = 0;
  compare_one(&c, &l, s->value, loss, s->value_bound, s->value_spread);
  fprintf(out, "%-40s %11s  %8s  %8s  %8s\n", "gradient of", "elements", "largest", "relative",
          "of bound");
  for (uint32_t p = 0; p < s->loss->param.n; p++) {
    Errors e = {0};
    if (!compare_param(v, &c, p, w, &e)) return EXIT_MODEL;
    print_row(out, s->loss->param.at[p].name, &e);
    worst = fmax(worst, e.worst);
    squares += e.norm;
    allowed += e.allowed;
    left_out += e.left_out;
  }
  // The norm is off by no more than the gradient.
  n.largest = fabs(norm - sqrt(squares));
  n.worst = n.largest == 0 ? 0 : n.largest / sqrt(allowed);
  fprintf(out, "\nloss           %.9g, in float64 %.17g: %.2g of the allowed error%s\n", loss,
          s->value, l.worst, l.worst <= 1 ? "" : "  WRONG");
  fprintf(out, "gradient norm  %.9g, in float64 %.17g: %.2g of the allowed error%s\n", norm,
          sqrt(squares), n.worst, n.worst <= 1 || left_out ? "" : "  WRONG");
  if (left_out)
    fprintf(out, "%lld elements depend on a comparison that rounding may change, and were left "
                 "out\n",
            (long long)left_out);
  worst = fmax(worst, fmax(l.worst, left_out ? 0 : n.worst));
  fprintf(out, "forward mode agrees with the gradient in float64: %.2g of the allowed error\n",
          s->slope);
  fprintf(
      out,
      worst <= 1
          ? "right: the largest error is %.2g of the error allowed in %s (doc/numerics.md)\n"
          : "WRONG: the largest error is %.2g times the error allowed in %s (doc/numerics.md)\n",
      worst, v->precision);
  return worst <= 1 ? 0 : EXIT_MODEL;
}

// The interpreter's first step, in float64: the source's, or that of the module which rounds to 16 bits.
static int interpret_step(const VerifyRun *v, bool rounded) {
  InterpretRun run = {.steps = 1,
                      .ranks = 1,
                      .source = rounded ? NULL : v->source,
                      .data = v->data,
                      .init = in(v, "init.safetensors"),
                      .log = in(v, rounded ? "rounded.jsonl" : "oracle.jsonl"),
                      .gradient = rounded ? in(v, "rounded.safetensors") : NULL};
  return interpret(rounded ? v->rounded : v->whole, &run) ? EXIT_MODEL : 0;
}

// Loss, norm and gradients that a run left in the folder. False after a message.
static bool outcome_open(const VerifyRun *v, const char *log, const char *gradient, StepOutcome *to) {
  DtError e = {0};
  if (!read_log(v, log, &to->loss, &to->norm)) return false;
  if (dt_weights_open(&to->gradient, in(v, gradient), &e)) dt_report(&e);
  return !e.status;
}

int verify_run(VerifyRun *v, FILE *out) {
  StepOutcome got = {0}, own = {0};
  int status = write_weights(v);
  if (!status) status = move_weights(v);
  if (!status) status = run_step(v);
  if (status) return status;
  v->source->measure = !v->rounded || !is_half(v->rounded->store);
  v->source->unit = strcmp(v->precision, "fp64") ? 0x1p-24 : 0x1p-53;
  status = interpret_step(v, false);
  if (!status && !outcome_open(v, "log.jsonl", "gradient.safetensors", &got)) status = EXIT_MODEL;
  if (!status && v->rounded) status = interpret_step(v, true);
  if (!status && v->rounded && !outcome_open(v, "rounded.jsonl", "rounded.safetensors", &own)) status = EXIT_MODEL;
  if (!status && v->rounded) status = verify_half(v, &got, &own, out);
  else if (!status) status = report(v, &got.gradient, got.loss, got.norm, out);
  dt_weights_close(&got.gradient);
  dt_weights_close(&own.gradient);
  return status;
}
