// For every model of tests/passes/pipeline: the chunks that pass pipeline makes, run one after the
// other in the interpreter, compute what the step and eval did, in every cut. Two microbatches are
// run, so that gradients add up. What one chunk alone holds is equal to the last bit; the gradients
// of a parameter that several hold add up to the uncut one's.
#include <math.h>
#include <stdlib.h>

#include "driver/passes.h"
#include "frontend/frontend.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "support/load.h"

enum { MAX_ARGS = 256, MICRO = 2 };

static int failures;

static Module *compile(Arena *a, const char *path) {
  Str define = str_intern("train.precision=fp64");
  FrontendOptions o = {
      .path = path, .stdlib = str_intern(SOURCE_DIR "/stdlib"), .define = &define, .ndefine = 1};
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *m = frontend_compile(a, s, &o);
  if (m) use_cpu(m);
  for (int i = 0; m && i < pass_count; i++) {
    if (!pass_table[i].run(m)) return NULL;
    if (!strcmp(pass_table[i].name, "simplify")) return m;
  }
  return NULL;
}

typedef struct Named {
  Str name;
  Tensor *t;
} Named;

typedef struct List {
  Named at[MAX_ARGS];
  uint32_t n;
} List;

static void list_add(List *l, Str name, Tensor *t) {
  if (l->n == MAX_ARGS) exit(2);
  l->at[l->n++] = (Named){name, t};
}
static void list_free(List *l) {
  for (uint32_t i = 0; i < l->n; i++) tensor_free(l->at[i].t);
  l->n = 0;
}

typedef struct Run {
  const char *what;
  const Module *whole, *cut;
  uint32_t nlead;
  Tensor *arg[MAX_ARGS]; // of the step
  Tensor **param[64], **grad[64]; // by chunk: for each piece
  List sent, kept[64];
  double result[16];
} Run;

static void set_microbatch(Run *r, const Fn *f, int micro) {
  Rng rng = {.state = 17 + (uint64_t)micro};
  for (uint32_t i = 0; i < r->nlead; i++) {
    tensor_free(r->arg[i]);
    r->arg[i] = random_arg(r->whole, f, i, &rng);
    Str name = f->value.at[f->arg.at[i]].name;
    if (!strcmp(name, "$first")) r->arg[i]->integer[0] = 2 * micro;
    if (!strcmp(name, "$batch")) r->arg[i]->integer[0] = 3; // the second has a sample of padding
    if (!strncmp(name, "$total.", 7)) r->arg[i]->real[0] = 2.5;
  }
}

static Tensor *slice(const Tensor *whole, const Param *p, const Piece *q) {
  Tensor *t = tensor_new(whole->type, whole->extent, whole->rank);
  int64_t each = p->nstack ? tensor_count(whole) / whole->extent[0] : tensor_count(whole);
  tensor_free(t);
  int64_t extent[MAX_RANK];
  memcpy(extent, whole->extent, sizeof extent);
  if (p->nstack) extent[0] = q->count;
  t = tensor_new(whole->type, extent, whole->rank);
  memcpy(t->real, whole->real + q->first * each, (size_t)(q->count * each) * sizeof(double));
  return t;
}

static void make_pieces(Run *r) {
  const Module *m = r->cut;
  for (uint32_t k = 0; k < m->chunk.n; k++) {
    const Chunk *c = &m->chunk.at[k];
    r->param[k] = calloc(c->piece.n + 1, sizeof(Tensor *));
    r->grad[k] = calloc(c->piece.n + 1, sizeof(Tensor *));
    for (uint32_t i = 0; i < c->piece.n; i++) {
      const Piece *q = &c->piece.at[i];
      r->param[k][i] = slice(r->arg[r->nlead + q->param], &m->param.at[q->param], q);
      r->grad[k][i] = slice(r->arg[r->nlead + q->param], &m->param.at[q->param], q);
      memset(r->grad[k][i]->real, 0, (size_t)tensor_count(r->grad[k][i]) * sizeof(double));
    }
  }
}

static Tensor *kept(Run *r, uint32_t chunk, Str name) {
  for (uint32_t i = 0; i < r->kept[chunk].n; i++)
    if (r->kept[chunk].at[i].name == name) return r->kept[chunk].at[i].t;
  printf("%s: chunk %u has no %s\n", r->what, chunk, name);
  exit(1);
}

// Runs a part of a chunk on what the last one sent.
static bool run_chunk(Run *r, uint32_t chunk, ChunkPart part) {
  const Chunk *c = &r->cut->chunk.at[chunk];
  const Fn *f = &r->cut->fn.at[c->fn[part]];
  Tensor *arg[MAX_ARGS], *result[MAX_ARGS];
  uint32_t n = 0, np = c->piece.n, nin = 0;
  bool grads = part == CHUNK_BACKWARD || part == CHUNK_WEIGHTS;
  for (; n < r->nlead; n++) arg[n] = r->arg[n];
  for (; n < f->arg.n - np * (grads ? 2 : 1); n++) {
    Str name = f->value.at[f->arg.at[n]].name;
    if (str_begins(name, "$in.")) arg[n] = nin < r->sent.n ? r->sent.at[nin++].t : NULL;
    else arg[n] = kept(r, chunk, name);
    if (!arg[n]) return printf("%s: chunk %u: nobody sends %s\n", r->what, chunk, name), false;
  }
  if (part != CHUNK_WEIGHTS && nin != r->sent.n)
    return printf("%s: chunk %u gets too much\n", r->what, chunk), false;
  for (uint32_t i = 0; i < np; i++) arg[n++] = r->param[chunk][i];
  for (uint32_t i = 0; grads && i < np; i++) arg[n++] = r->grad[chunk][i];
  if (!run_fn(r->cut, c->fn[part], arg, result, NULL)) return printf("%s\n", r->what), false;
  list_free(&r->sent);
  for (uint32_t i = 0, last = 0; i < f->result.n; i++) {
    Str name = f->value.at[f->result.at[i]].name;
    if (str_begins(name, "$slot.")) list_add(&r->kept[chunk], name, result[i]);
    else if (str_begins(name, "$out.")) list_add(&r->sent, name, result[i]);
    else {
      r->result[last++] = result[i]->real[0];
      tensor_free(result[i]);
    }
  }
  return true;
}

static bool run_cut(Run *r, bool eval) {
  const Module *m = r->cut;
  uint32_t n = m->chunk.n;
  bool ok = true;
  for (uint32_t k = 0; ok && k < n; k++) ok = run_chunk(r, k, eval ? CHUNK_EVAL : CHUNK_FORWARD);
  for (uint32_t k = n; !eval && ok && k-- > 0;) ok = run_chunk(r, k, CHUNK_BACKWARD);
  for (uint32_t k = n; !eval && ok && m->split && k-- > 0;) ok = run_chunk(r, k, CHUNK_WEIGHTS);
  list_free(&r->sent);
  for (uint32_t k = 0; k < n; k++) list_free(&r->kept[k]);
  return ok;
}

static void complain(const Run *r, const char *what, double want, double got) {
  if (failures++ < 20) printf("%s: %s: %.17g, uncut %.17g\n", r->what, what, got, want);
}

static void compare_results(const Run *r, const Fn *f, Tensor **want) {
  for (uint32_t i = 0; i < f->result.n; i++)
    if (want[i]->real[0] != r->result[i])
      complain(r, f->value.at[f->result.at[i]].name, want[i]->real[0], r->result[i]);
}

// Every element of every gradient: the sum over the pieces that hold it.
static void compare_gradients(const Run *r) {
  const Module *m = r->cut;
  for (uint32_t p = 0; p < m->param.n; p++) {
    const Tensor *want = r->arg[r->nlead + m->param.n + p];
    int64_t all = tensor_count(want), each = m->param.at[p].nstack ? all / want->extent[0] : all;
    for (int64_t e = 0; e < all; e++) {
      double sum = 0;
      int holders = 0;
      for (uint32_t k = 0; k < m->chunk.n; k++)
        for (uint32_t i = 0; i < m->chunk.at[k].piece.n; i++) {
          const Piece *q = &m->chunk.at[k].piece.at[i];
          int64_t at = e - q->first * each;
          if (q->param != p || at < 0 || at >= q->count * each) continue;
          sum += r->grad[k][i]->real[at];
          holders++;
        }
      double bound = holders > 1 ? 1e-12 * (fabs(want->real[e]) + 1) : 0;
      if (!holders) complain(r, "nobody holds it", want->real[e], NAN);
      if (!(fabs(sum - want->real[e]) <= bound))
        return complain(r, m->param.at[p].name, want->real[e], sum);
    }
  }
}

static bool run_whole(Run *r, Entry e, int micro) {
  const Module *m = r->whole;
  const Fn *f = &m->fn.at[m->entry[e]];
  Tensor *result[16];
  set_microbatch(r, f, micro);
  if (!run_fn(m, m->entry[e], r->arg, result, NULL)) return false;
  bool ok = run_cut(r, e == ENTRY_EVAL);
  if (ok) compare_results(r, f, result);
  for (uint32_t i = 0; i < f->result.n; i++) tensor_free(result[i]);
  return ok;
}

static bool compare(Run *r) {
  const Module *m = r->whole;
  const Fn *f = &m->fn.at[m->entry[ENTRY_STEP]];
  Rng rng = {.state = 5};
  while (f->value.at[f->arg.at[r->nlead]].name != m->param.at[0].name) r->nlead++;
  for (uint32_t i = r->nlead; i < f->arg.n; i++) {
    r->arg[i] = random_arg(m, f, i, &rng);
    if (i >= r->nlead + m->param.n)
      memset(r->arg[i]->real, 0, (size_t)tensor_count(r->arg[i]) * sizeof(double));
  }
  make_pieces(r);
  bool ok = true;
  for (int micro = 0; ok && micro < MICRO; micro++)
    ok = run_whole(r, ENTRY_STEP, micro) && run_whole(r, ENTRY_EVAL, micro);
  if (ok) compare_gradients(r);
  for (uint32_t i = 0; i < f->arg.n; i++) tensor_free(r->arg[i]);
  for (uint32_t k = 0; k < r->cut->chunk.n; k++) {
    for (uint32_t i = 0; i < r->cut->chunk.at[k].piece.n; i++) {
      tensor_free(r->param[k][i]);
      tensor_free(r->grad[k][i]);
    }
    free(r->param[k]);
    free(r->grad[k]);
  }
  return ok;
}

// What is printed parses, and prints the same.
static bool round_trip(Arena *a, const Module *m, const char *what) {
  Buf one = {0}, two = {0}, why = {0};
  bool ok = ir_verify(m, &why);
  ir_print(m, &one);
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *copy =
      ok ? ir_parse(a, s, str_intern("printed.ir"), arena_copy(a, one.text, one.n + 1), one.n)
         : NULL;
  if (copy) ir_print(copy, &two);
  ok = copy && one.n == two.n && !memcmp(one.text, two.text, one.n);
  if (!ok) printf("%s: the chunks are no program: %s\n", what, why.n ? why.text : "");
  buf_free(&one);
  buf_free(&two);
  buf_free(&why);
  return ok;
}

static void check(const char *path, uint32_t stages, uint32_t chunks, bool split) {
  Arena *a = arena_new();
  Module *whole = compile(a, path), *cut = compile(a, path);
  char what[400];
  snprintf(what, sizeof what, "%s, %u stages of %u%s", path, stages, chunks,
           split ? ", split" : "");
  if (!whole || !cut) exit(1);
  cut->stages = stages;
  cut->chunks = chunks;
  cut->split = split;
  cut->schedule = str_intern("any");
  Run r = {.what = what, .whole = whole, .cut = cut};
  bool ok = pass_pipeline(cut) && cut->chunk.n == stages * chunks && round_trip(a, cut, what) &&
            compare(&r);
  if (!ok) failures++, printf("%s: failed\n", what);
  arena_free(a);
}

int main(void) {
  char name[64][256];
  int n = list_files(SOURCE_DIR "/tests/passes/pipeline", ".dt", name, 64);
  if (n < 5) return printf("models are missing\n"), 1;
  for (int i = 0; i < n; i++) {
    Str path = str_printf("%s/tests/passes/pipeline/%s", SOURCE_DIR, name[i]);
    for (uint32_t stages = 2; stages <= 4; stages++)
      for (int split = 0; split < 2; split++) check(path, stages, 1, split);
    check(path, 2, 2, false);
    check(path, 3, 2, false);
    check(path, 2, 4, false);
  }
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
