#include "driver/passes.h"

#include <stdlib.h>
#include <time.h>

#include "codegen/lower/text.h"
#include "codegen/lower/verify.h"
#include "ir/verify.h"
#include "passes/passes.h"

// simplify removes the dead statements of the derivative before shard plans for them. range must see the functions as the user wrote them, before batch adds guards.
const Pass pass_table[] = {
    {"inline", "flatten the calls of layers and functions", pass_inline, 0, FACT_FLAT},
    {"range", "prove that every subscript is in range", pass_range, FACT_FLAT, FACT_RANGED},
    {"batch", "make the loss a sum over microbatches", pass_batch, FACT_FLAT | FACT_RANGED, FACT_BATCHED},
    {"differentiate", "make the training step: forward and backward", pass_differentiate, FACT_BATCHED, FACT_STEP},
    {"optimizer", "make the gradient norm and the update", pass_optimizer, FACT_STEP, FACT_UPDATE},
    {"precision", "choose a storage type for every value", pass_precision, FACT_UPDATE, FACT_STORED},
    {"simplify", "fold constants, share expressions, drop dead statements", pass_simplify,
     FACT_FLAT, 0},
    {"shard", "put indices on mesh axes", pass_shard, FACT_FLAT, 0},
    {"localise", "make the program that each rank runs", pass_localise, FACT_FLAT, 0},
    {"recompute", "compute again in the backward pass what is not saved", pass_recompute, FACT_STORED, 0},
    {"pipeline", "cut the step into the chunks of a pipeline", pass_pipeline, FACT_STORED, 0},
    {"normalise", "bring statements into the normal form for kernels", pass_normalise, FACT_STORED, FACT_NORMAL},
    // The lowered level: the module stays as it is.
    {"fuse", "group statements into kernels", pass_fuse, FACT_NORMAL, FACT_KERNELS},
    {"overlap", "run kernels while collectives do, and wait for those", pass_overlap, FACT_KERNELS, FACT_WAITS},
    {"plan", "give every buffer an address", pass_plan, FACT_WAITS, FACT_ADDRESSES},
};
const int pass_count = sizeof pass_table / sizeof pass_table[0];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Whether the comma-separated list holds name.
static bool listed(Str list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
    if (!strncmp(p, name, n) && (!p[n] || p[n] == ',')) return true;
  return false;
}

// Once `range` has proved the subscripts, every later pass must keep them provable.
static void verify(const Module *m, const char *pass, bool ranges) {
  Buf why = {0};
  if (m->lowered) { // the module is as it was
    if (plan_verify(m->lowered, &why)) return;
    BUG("after pass %s: %s", pass, why.text);
  }
  if (ranges ? ir_verify_ranges(m, &why) : ir_verify(m, &why)) return;
  BUG("after pass %s: %s", pass, why.text);
}

static void dump(const Module *m, const Pass *p, const PipelineOptions *o, Buf *before) {
  Buf text = {0};
  FILE *out = o->dump;
  level_print(m, o->places, &text);
  bool same = before->text && text.n == before->n && !memcmp(text.text, before->text, text.n);
  fprintf(out, "# after %s%s\n", p->name, same ? " (unchanged)" : "");
  if (!same) fwrite(text.text, 1, text.n, out);
  buf_free(before);
  *before = text;
}

static bool run_one(Module *m, const Pass *p, const PipelineOptions *o, bool ranged, Buf *before) {
  double start = now();
  bool ok = p->run(m);
  if (o->time) fprintf(stderr, "%-16s %8.4f s\n", p->name, now() - start);
  if (!ok) return false;
  // A pipeline's chunks get ints from one another whose ranges were proved before it was cut. What
  // is cut over a mesh is always checked: a reduction too many would go unnoticed otherwise.
  if (o->verify) verify(m, p->name, ranged && !m->chunk.n);
  else if (m->axis.n && !strcmp(p->name, "shard")) verify(m, p->name, false);
  if (o->dump_after && (!strcmp(o->dump_after, "all") || listed(o->dump_after, p->name)))
    dump(m, p, o, before);
  return true;
}

bool pipeline_run(Module *m, const PipelineOptions *o) {
  unsigned facts = 0;
  Buf before = {0};
  bool ok = true;
  Str after = o->after;
  if (o->verify && !after) verify(m, "frontend", false);
  for (int i = 0; ok && i < pass_count; i++) {
    const Pass *p = &pass_table[i];
    if ((p->requires & facts) != p->requires) BUG("pass %s comes too early", p->name);
    facts |= p->guarantees;
    if (after) { // it was run before
      if (!strcmp(after, p->name)) after = NULL;
      continue;
    }
    ok = run_one(m, p, o, facts & FACT_RANGED, &before);
    if (o->until && !strcmp(o->until, p->name)) break;
  }
  buf_free(&before);
  return ok;
}

// Whether ranks exchange anything in the module. The passes up to `shard` do not know collectives.
static bool is_cut(const Module *m) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      StmtKind k = m->fn.at[f].stmt.at[i].kind;
      if (k == ST_CONVERT || k == ST_COLL) return true;
    }
  return m->spmd;
}

// The level that the pass works on and leaves, or NLEVEL: the module's.
static PlanLevel level_of(const Pass *p) {
  int l = LEVEL_FUSE;
  while (l < NLEVEL && strcmp(p->name, level_name[l]) != 0) l++;
  return (PlanLevel)l;
}

// Each pass of the lowered level follows on the one before it; the others come before all of them.
static bool level_fits(const Module *m, const Pass *p) {
  PlanLevel want = level_of(p), have = m->lowered ? m->lowered->level : NLEVEL;
  if (want == NLEVEL || want == LEVEL_FUSE) {
    if (have == NLEVEL) return true;
    diag_error(m->src, 0, "pass %s is for modules, and this one has kernels (`lowered %s`)", p->name, level_name[have]);
    return false;
  }
  if (have != NLEVEL && have + 1 == want) return true;
  if (have == NLEVEL)
    diag_error(m->src, 0, "pass %s is for what pass %s leaves, and this module has no kernels", p->name,
               level_name[want - 1]);
  else
    diag_error(m->src, 0, "pass %s is for what pass %s leaves, and this module is `lowered %s`", p->name,
               level_name[want - 1], level_name[have]);
  return false;
}

static bool comes_before_shard(const Pass *pass) {
  for (const Pass *p = pass_table; strcmp(p->name, "shard"); p++)
    if (p == pass) return true;
  return false;
}

bool pipeline_run_named(Module *m, Str names, const PipelineOptions *o, Str *unknown) {
  Buf before = {0};
  bool ok = true;
  *unknown = NULL;
  for (const char *p = names; ok && p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
    size_t n = strcspn(p, ",");
    const Pass *pass = NULL;
    for (int i = 0; i < pass_count; i++)
      if (strlen(pass_table[i].name) == n && !strncmp(pass_table[i].name, p, n)) pass = &pass_table[i];
    if (!pass) *unknown = str_internn(p, n);
    if (pass && comes_before_shard(pass) && is_cut(m)) {
      diag_error(m->src, 0, "pass %s is for programs of one rank, and this one is cut over a mesh", pass->name);
      ok = false;
    }
    ok = ok && pass && level_fits(m, pass) && run_one(m, pass, o, false, &before);
  }
  buf_free(&before);
  return ok;
}
