#include "mesh.h"

#include <stdlib.h>
#include <time.h>

#include "driver/passes.h"
#include "frontend/frontend.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/shard/shard.h"
#include "load.h"

Module *mesh_compile(Arena *a, const char *example, const char *const *define) {
  Str d[MAX_DEFINES + 1] = {str_intern("train.precision=fp64")};
  uint32_t n = 1;
  for (; define && n <= MAX_DEFINES && define[n - 1]; n++) d[n] = str_intern(define[n - 1]);
  FrontendOptions o = {.path = str_printf(SOURCE_DIR "/%s.dt", example),
                       .stdlib = str_intern(SOURCE_DIR "/stdlib"), .define = d, .ndefine = n};
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *m = frontend_compile(a, s, &o);
  if (m) use_cpu(m);
  PipelineOptions p = {.until = str_intern("simplify")};
  return m && pipeline_run(m, &p) ? m : NULL;
}

static void add_axis(Module *m, Axis x) {
  if (x.size > 1) PUSH(m->arena, m->axis, x);
}

double mesh_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool has_product(const Module *m) {
  for (uint32_t f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++)
      if (stmt_is_product(m, &m->fn.at[f].stmt.at[i])) return true;
  return false;
}

Module *mesh_shard(Arena *a, const char *example, const char *const *define, const Mesh *k,
                   bool *exact, bool *refused) {
  Module *m = mesh_compile(a, example, define);
  Buf why = {0};
  if (!m) return NULL;
  Axis tp = axis_new(str_intern("tp"), k->tp), cp = axis_new(str_intern("cp"), k->cp);
  tp.sequence = k->sequence;
  cp.heads = k->heads;
  cp.ring = k->ring;
  add_axis(m, tp);
  add_axis(m, cp);
  Buf said = {0};
  size_t length = 0;
  m->src->out = open_memstream(&said.text, &length);
  bool ok = pass_shard(m);
  if (exact) *exact = !m->unproved;
  fclose(m->src->out);
  m->src->out = stdout;
  if (!ok && refused)
    *refused = (!has_product(m) && strstr(said.text, "can be cut over")) ||
               (k->cp > 1 && strstr(said.text, "no sequence of this model")) ||
               (k->heads && strstr(said.text, "--cp-attention alltoall: ")) ||
               (k->ring && strstr(said.text, "--cp-attention ring: ")) ||
               (k->sequence && strstr(said.text, "does not divide over"));
  if (!ok && !(refused && *refused)) printf("FAIL %s, %s: %s\n", example, k->name, said.text);
  free(said.text);
  if (ok && !ir_verify(m, &why)) {
    printf("FAIL %s, %s: %s\n", example, k->name, why.text);
    ok = false;
  }
  buf_free(&why);
  return ok ? m : NULL;
}
