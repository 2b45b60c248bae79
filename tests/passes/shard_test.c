// Pass shard on the examples. Small ones, in float64: the entries compute on the ranks of each mesh
// what one rank does. At their sizes: the plans are Megatron's, counted collective by collective, and
// proved to be least ones. Arguments: only those examples.
#include <stdlib.h>
#include <time.h>

#include "driver/pipeline.h"
#include "frontend/frontend.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/shard.h"
#include "support/load.h"
#include "tests/oracle/oracle.h"

enum { MAX_DEFINES = 12 };

typedef struct Mesh {
  const char *name;
  int64_t tp, cp;
  bool sequence;
} Mesh;

static Module *compile(Arena *a, const char *example, const char *const *define) {
  Str d[MAX_DEFINES + 1] = {str_intern("train.precision=fp64")};
  uint32_t n = 1;
  for (; define && n <= MAX_DEFINES && define[n - 1]; n++) d[n] = str_intern(define[n - 1]);
  FrontendOptions o = {.path = str_printf(SOURCE_DIR "/%s.dt", example),
                       .stdlib = str_intern(SOURCE_DIR "/stdlib"), .define = d, .ndefine = n};
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *m = frontend_compile(a, s, &o);
  PipelineOptions p = {.until = str_intern("simplify")};
  return m && pipeline_run(m, &p) ? m : NULL;
}

static void add_axis(Module *m, const char *name, int64_t n, bool sequence) {
  Axis x = {.name = str_intern(name), .size = n, .sequence = sequence};
  if (n > 1) PUSH(m->arena, m->axis, x);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool has_product(const Module *m) {
  for (uint32_t f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++)
      if (stmt_is_product(m, &m->fn.at[f], &m->fn.at[f].stmt.at[i])) return true;
  return false;
}

// The example in the global form on a mesh, verified; NULL after a message. *refused (may be NULL):
// rightly: it has no products, or the sequence is odd.
static Module *sharded(Arena *a, const char *example, const char *const *define, const Mesh *k, bool *exact,
                       bool *refused) {
  Module *m = compile(a, example, define);
  Buf why = {0};
  if (!m) return NULL;
  add_axis(m, "tp", k->tp, k->sequence);
  add_axis(m, "cp", k->cp, false);
  Buf said = {0};
  size_t length = 0;
  m->src->out = open_memstream(&said.text, &length);
  bool ok = shard_module(m, exact);
  fclose(m->src->out);
  m->src->out = stdout;
  if (!ok && refused)
    *refused = (!has_product(m) && strstr(said.text, "can be cut over")) ||
               (k->sequence && strstr(said.text, "a sequence of 7 does not divide over 4 ranks"));
  if (!ok && !(refused && *refused)) printf("FAIL %s, %s: %s\n", example, k->name, said.text);
  free(said.text);
  if (ok && !ir_verify(m, &why)) {
    Buf text = {0};
    ir_print(m, &text);
    printf("FAIL %s, %s: %s\n%s", example, k->name, why.text, text.text);
    buf_free(&text);
    ok = false;
  }
  buf_free(&why);
  return ok ? m : NULL;
}

static Module *copy(Arena *a, const Module *m) {
  Buf text = {0};
  ir_print(m, &text);
  const char *kept = arena_copy(a, text.text, text.n + 1);
  buf_free(&text);
  return load_module(a, "printed.ir", kept);
}

// ---- what they compute

static const struct {
  const char *name, *define[MAX_DEFINES];
} small[] = {
    {"examples/mlp", {"inputs=13", "hidden=18", "classes=5", "train.batch=5", "train.microbatch=2"}},
    {"examples/classifier",
     {"vocab=11", "length=8", "layers=2", "heads=4", "dim=16", "train.batch=3", "train.microbatch=2"}},
    {"examples/chargpt",
     {"context=9", "layers=2", "heads=6", "dim=24", "train.length=8", "train.batch=3", "train.microbatch=2"}},
    {"examples/gpt2",
     {"vocab=19", "context=9", "layers=3", "heads=4", "dim=16", "train.length=8", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/llama",
     {"vocab=19", "layers=2", "heads=8", "kv_heads=4", "dim=32", "hidden=22", "train.length=8", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/gpt2", // 3 heads
     {"vocab=19", "context=9", "layers=2", "heads=3", "dim=12", "train.length=7", "train.batch=3", "train.microbatch=2"}},
    {"examples/llama", // 2 heads of keys and values
     {"vocab=19", "layers=2", "heads=4", "kv_heads=2", "dim=16", "hidden=23", "train.length=7", "train.batch=3",
      "train.microbatch=2"}},
};
static const Mesh mesh[] = {
    {"tp=2", 2, 1, false},        {"tp=3", 3, 1, false},        {"tp=4", 4, 1, false},
    {"tp=2, t too", 2, 1, true},  {"tp=4, t too", 4, 1, true},  {"cp=2", 1, 2, false},
    {"cp=3", 1, 3, false},        {"tp=2 cp=2", 2, 2, false},   {"tp=2 cp=2, t too", 2, 2, true},
};
enum { SMALL = sizeof small / sizeof *small, MESHES = sizeof mesh / sizeof *mesh };

static bool compare(const char *example, const Mesh *k, const Module *whole, const Module *local, double *most) {
  const Entry entry[] = {ENTRY_STEP, ENTRY_EVAL, ENTRY_SAMPLE, ENTRY_COUNT};
  Buf error = {0};
  for (int e = 0; e < 4; e++) {
    double worst;
    if (whole->entry[entry[e]] == NONE) continue;
    ArgOptions args = {.seed = 11 + (uint64_t)e};
    bool ran = ranks_compare(whole, local, whole->entry[entry[e]], &args, &(InterpOptions){.seed = 7, .step = 2},
                             &worst, &error);
    if (!ran || !(worst <= 1e-11)) {
      printf("FAIL %s, %s, %s: error %.1e %s\n", example, k->name, entry_name[entry[e]], worst,
             error.text ? error.text : "");
      buf_free(&error);
      return false;
    }
    if (worst > *most) *most = worst;
  }
  return true;
}

static bool check_small(const char *name, const char *const *define, const Mesh *k) {
  Arena *a = arena_new();
  double most = 0, start = now();
  bool exact, refused = false;
  Buf why = {0};
  Module *whole = sharded(a, name, define, k, &exact, &refused);
  double took = now() - start;
  Module *local = whole ? copy(a, whole) : NULL;
  bool ok = local && pass_localise(local);
  if (ok && !ir_verify_ranges(local, &why)) ok = printf("FAIL %s, %s: %s\n", name, k->name, why.text) < 0;
  ok = ok && compare(name, k, whole, local, &most);
  if (ok)
    printf("ok   %-36s %-16s error %.1e  %.2f s%s\n", name, k->name, most, took, exact ? "" : "  not proved least");
  if (refused) printf("ok   %-36s %-16s refused\n", name, k->name);
  buf_free(&why);
  arena_free(a);
  return ok || refused;
}

// ---- what they exchange

// Collectives of one function, and what else its conversions are.
typedef struct Counts {
  int all_reduce, all_reduce_max, reduce_scatter, all_gather, all_to_all;
} Counts;

static void count_convert(const Module *m, const Fn *f, const Stmt *s, Counts *c) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    Shard from = f->value.at[s->from].shard[a], to = f->value.at[s->lhs].shard[a];
    if (shard_same(from, to) || from.kind == SHARD_WHOLE) continue;
    bool split = to.kind == SHARD_SPLIT;
    if (from.kind == SHARD_SPLIT) ++*(split ? &c->all_to_all : &c->all_gather);
    else if (split) c->reduce_scatter++;
    else ++*(from.op == RED_SUM ? &c->all_reduce : &c->all_reduce_max);
  }
}

static Counts count(const Module *m, Id fn) {
  Counts c = {0};
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].kind == ST_CONVERT) count_convert(m, f, &f->stmt.at[i], &c);
  return c;
}

// Gradients that the step leaves partial.
static int partial_gradients(const Module *m) {
  const Fn *f = &m->fn.at[m->entry[ENTRY_STEP]];
  int n = 0;
  for (uint32_t i = 0; i < f->arg.n; i++) n += f->value.at[f->arg.at[i]].shard[0].kind == SHARD_PARTIAL;
  return n;
}

// Whether what a conversion moves has a dimension of this extent: the vocabulary.
static bool moves_extent(const Module *m, Id fn, int64_t extent) {
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    for (uint32_t d = 0; s->kind == ST_CONVERT && d < f->value.at[s->lhs].rank; d++)
      if (f->value.at[s->lhs].extent[d] == extent && f->value.at[s->from].shard[0].kind != SHARD_WHOLE) return true;
  }
  return false;
}

// What Megatron exchanges in a step, around its blocks, in a block forward and backward (Shoeybi et
// al., 2019, section 3; Korthikanti et al., 2022, section 4.2.2 for the sequence). With an untied
// embedding, halves of the features are gathered: half of what the vocabulary's partial rows would
// cost to reduce. On cp keys and values are gathered, their gradients reduced and scattered.
static const struct {
  const char *example;
  Mesh mesh;
  int64_t vocab;
  Counts step, forward, backward;
  int partial;
} megatron[] = {
    {"examples/gpt2", {"tp=2", 2, 1, false}, 50257, {4, 1, 0, 0, 0}, {2, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, 0},
    {"examples/gpt2", {"tp=4", 4, 1, false}, 50257, {4, 1, 0, 0, 0}, {2, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, 0},
    {"examples/gpt2", {"tp=2, t too", 2, 1, true}, 50257, {2, 1, 2, 2, 0}, {0, 0, 2, 2, 0}, {0, 0, 2, 2, 0}, 8},
    {"examples/gpt2", {"tp=4, t too", 4, 1, true}, 50257, {2, 1, 2, 2, 0}, {0, 0, 2, 2, 0}, {0, 0, 2, 2, 0}, 8},
    {"examples/gpt2", {"cp=2", 1, 2, false}, 50257, {1, 0, 0, 0, 0}, {0, 0, 0, 2, 0}, {0, 0, 2, 0, 0}, 16},
    {"examples/llama", {"tp=2", 2, 1, false}, 32000, {3, 1, 0, 1, 0}, {2, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, 0},
    {"examples/llama", {"tp=4", 4, 1, false}, 32000, {3, 1, 0, 1, 0}, {2, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, 0},
    {"examples/llama", {"tp=2, t too", 2, 1, true}, 32000, {2, 1, 1, 1, 2}, {0, 0, 2, 2, 0}, {0, 0, 2, 2, 0}, 3},
    {"examples/llama", {"cp=2", 1, 2, false}, 32000, {1, 0, 0, 0, 0}, {0, 0, 0, 2, 0}, {0, 0, 2, 0, 0}, 12},
    {"examples/chargpt", {"tp=2", 2, 1, false}, 256, {4, 1, 0, 0, 0}, {2, 0, 0, 0, 0}, {2, 0, 0, 0, 0}, 0},
    {"examples/mlp", {"tp=2", 2, 1, false}, 0, {1, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, 0},
};
enum { PLANS = sizeof megatron / sizeof *megatron };

static bool same_counts(const char *what, Counts want, Counts got) {
  if (!memcmp(&want, &got, sizeof want)) return true;
  printf("  %s: want %d all-reduces, %d of maxima, %d reduce-scatters, %d all-gathers, %d all-to-alls; got "
         "%d %d %d %d %d\n", what, want.all_reduce, want.all_reduce_max, want.reduce_scatter, want.all_gather,
         want.all_to_all, got.all_reduce, got.all_reduce_max, got.reduce_scatter, got.all_gather, got.all_to_all);
  return false;
}

static bool check_plan(int i) {
  Arena *a = arena_new();
  bool exact = false, ok = true;
  double start = now();
  Module *m = sharded(a, megatron[i].example, NULL, &megatron[i].mesh, &exact, NULL);
  double took = now() - start;
  Id step = m ? m->entry[ENTRY_STEP] : NONE, body[2] = {NONE, NONE};
  for (uint32_t k = 0, n = 0; m && k < m->fn.at[step].stmt.n && n < 2; k++)
    if (m->fn.at[step].stmt.at[k].kind == ST_REPEAT) body[n++] = m->fn.at[step].stmt.at[k].call->fn;
  if (!m) ok = false;
  if (ok && !exact) ok = printf("  not proved least\n") < 0;
  if (ok) ok = same_counts("step", megatron[i].step, count(m, step));
  if (ok && body[0] != NONE)
    ok = same_counts("forward", megatron[i].forward, count(m, body[0])) &&
         same_counts("backward", megatron[i].backward, count(m, body[1]));
  if (ok && partial_gradients(m) != megatron[i].partial)
    ok = printf("  %d gradients are left partial, not %d\n", partial_gradients(m), megatron[i].partial) < 0;
  if (ok && megatron[i].vocab && moves_extent(m, step, megatron[i].vocab)) ok = printf("  moves the vocabulary\n") < 0;
  printf("%-4s %-36s %-16s plan  %.2f s\n", ok ? "ok" : "FAIL", megatron[i].example, megatron[i].mesh.name, took);
  arena_free(a);
  return ok;
}

// Layers are planned once: 3 and 48 of them alike.
static bool check_depth(void) {
  Buf text[2] = {{0}, {0}};
  const char *const define[2][2] = {{"layers=3", NULL}, {"layers=48", NULL}};
  const Mesh k = {"tp=2", 2, 1, false};
  bool ok = true;
  for (int i = 0; i < 2; i++) {
    Arena *a = arena_new();
    Module *m = sharded(a, "examples/gpt2", define[i], &k, NULL, NULL);
    for (uint32_t f = 0; m && f < m->fn.n; f++)
      if (!strncmp(m->fn.at[f].name, "Block", 5)) ir_print_fn(m, &m->fn.at[f], &text[i]);
    ok &= m != NULL;
    arena_free(a);
  }
  ok = ok && text[0].n && text[0].n == text[1].n && !memcmp(text[0].text, text[1].text, text[0].n);
  printf("%-4s layers are planned alike at any depth\n", ok ? "ok" : "FAIL");
  for (int i = 0; i < 2; i++) buf_free(&text[i]);
  return ok;
}

// ---- faults

// Conversion number `at` of the module, counted through its functions: where it is; false past the last.
static bool find_convert(const Module *m, uint32_t at, Id *fn, uint32_t *stmt) {
  for (*fn = 0; *fn < m->fn.n; ++*fn)
    for (*stmt = 0; *stmt < m->fn.at[*fn].stmt.n; ++*stmt)
      if (m->fn.at[*fn].stmt.at[*stmt].kind == ST_CONVERT && !at--) return true;
  return false;
}

// Without the conversion: what read its result reads its operand.
static void drop(Module *m, Id fn, uint32_t stmt) {
  Fn *f = &m->fn.at[fn];
  Stmt s = f->stmt.at[stmt];
  Id *to = NEWN(m->arena, Id, f->value.n + 1);
  for (Id v = 0; v < f->value.n; v++) to[v] = v == s.lhs ? s.from : v;
  for (uint32_t i = stmt; i + 1 < f->stmt.n; i++) f->stmt.at[i] = stmt_renumber(m, f, &f->stmt.at[i + 1], to);
  f->stmt.n--;
  for (uint32_t i = 0; i < f->result.n; i++) f->result.at[i] = to[f->result.at[i]];
}

// The conversion again, of its own result.
static void again(Module *m, Id fn, uint32_t stmt) {
  Fn *f = &m->fn.at[fn];
  Value v = f->value.at[f->stmt.at[stmt].lhs];
  Id twice = fn_value(m, f, v.name, v.type, v.extent, v.rank, ROLE_LOCAL, v.loc);
  memcpy(f->value.at[twice].shard, v.shard, sizeof v.shard);
  Stmt s = {.kind = ST_CONVERT, .lhs = twice, .from = f->stmt.at[stmt].lhs, .loc = f->stmt.at[stmt].loc};
  PUSH(m->arena, f->stmt, s);
}

// Every collective and slice of a plan, left out or done twice, is refused, and the message says where.
static bool check_faults(const Mesh *k) {
  Arena *a = arena_new();
  Module *whole = sharded(a, "examples/gpt2", NULL, k, NULL, NULL);
  uint32_t n = 0;
  bool ok = whole != NULL, more = ok;
  for (uint32_t at = 0; ok && more; at++)
    for (int twice = 0; ok && twice < 2; twice++) {
      Arena *b = arena_new();
      Module *m = copy(b, whole);
      Id fn;
      uint32_t stmt;
      Buf why = {0};
      if ((more = m && find_convert(m, at, &fn, &stmt))) {
        (twice ? again : drop)(m, fn, stmt);
        ok = !shard_verify(m, &why) && strstr(why.text, m->fn.at[fn].name) != NULL;
        if (!ok) printf("  conversion %u of `%s` %s: %s\n", at, m->fn.at[fn].name, twice ? "twice" : "left out", why.text ? why.text : "accepted");
        n++;
      }
      buf_free(&why);
      arena_free(b);
    }
  ok &= n > 20;
  printf("%-4s gpt2 %s: %u faults in conversions are found\n", ok ? "ok" : "FAIL", k->name, n);
  arena_free(a);
  return ok;
}

// The models of tests/gradient, which have every layer of the standard library.
static int check_models(int *n) {
  static char file[256][256];
  const Mesh *some[] = {&mesh[0], &mesh[1], &mesh[3]};
  int bad = 0, files = list_files(SOURCE_DIR "/tests/gradient/models", ".dt", file, 256);
  for (int i = 0; i < files; i++)
    for (int k = 0; k < 3; k++, ++*n)
      bad += !check_small(str_printf("tests/gradient/models/%.*s", (int)strlen(file[i]) - 3, file[i]), NULL, some[k]);
  return bad;
}

int main(int argc, char **argv) {
  int bad = 0, n = 0;
  bool all = argc < 2;
  for (int i = 0; i < PLANS && all; i++, n++) bad += !check_plan(i);
  if (all) bad += !check_depth();
  for (int k = 0; k < MESHES && all; k += 3) bad += !check_faults(&mesh[k]);
  for (int i = 0; i < SMALL; i++)
    for (int k = 0; k < MESHES; k++) {
      bool asked = all;
      for (int j = 1; j < argc; j++) asked |= strstr(small[i].name, argv[j]) != NULL;
      if (!asked || (mesh[k].cp > 1 && !strcmp(small[i].name, "examples/mlp"))) continue;
      n++;
      bad += !check_small(small[i].name, small[i].define, &mesh[k]);
    }
  if (all || !strcmp(argv[1], "models")) bad += check_models(&n);
  printf("%d of %d fail\n", bad, n);
  return bad || !n;
}
