// What the interpreter computes of a pipeline's chunks: every real is a double, every int and bool
// an int of 32 bits, values of a message or slot at multiples of 64 bytes in the order of the
// signature.
#include "driver/interpret_chunk.h"

#include "codegen/lower/kernel.h"
#include "runtime/layers.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

static int64_t bytes_of(const Value *v) {
  return value_count(v) * (scalar_of(v->type) == SC_REAL ? 8 : 4);
}

static int64_t room_of(const Value *v) {
  return (bytes_of(v) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static const Fn *fn_of(const Module *m, uint32_t chunk, int part) {
  Id fn = m->chunk.at[chunk].fn[part];
  return fn == NONE ? NULL : &m->fn.at[fn];
}

// Where the chunk keeps what means KEPT `of`, in a slot of *span; NONE: behind all that it keeps in one of *span.
static int64_t slot_at(const Module *m, uint32_t chunk, uint32_t of, DtSpan *span) {
  static const ChunkPart keeps[] = {CHUNK_FORWARD, CHUNK_BACKWARD};
  int64_t at[DT_SPANS] = {0};
  for (int k = 0; k < 2; k++) {
    const Fn *f = fn_of(m, chunk, keeps[k]);
    for (uint32_t i = 0; f && i < f->result.n; i++) {
      const Value *v = &f->value.at[f->result.at[i]];
      if (v->means != MEANS_KEPT) continue;
      DtSpan here = chunk_span(m, chunk, keeps[k], v->of);
      if (v->of == of) return *span = here, at[here];
      at[here] += room_of(v);
    }
  }
  return at[*span];
}

static int64_t sent(const Fn *f) {
  int64_t bytes = 0;
  for (uint32_t i = 0; f && i < f->result.n; i++) {
    const Value *v = &f->value.at[f->result.at[i]];
    if (v->means == MEANS_SENT) bytes += room_of(v);
  }
  return bytes;
}

void chunks_fill(const Module *m, DtProgram *p, DtEntry *run) {
  DtPipeChunk *chunk = NEWN(m->arena, DtPipeChunk, m->chunk.n);
  for (uint32_t k = 0; k < m->chunk.n; k++) {
    DtPipeChunk *c = &chunk[k];
    *c = p->chunk[k];
    for (int i = 0; i < DT_SPANS; i++) c->slot_bytes[i] = slot_at(m, k, NONE, &(DtSpan){(DtSpan)i});
    for (int i = 0; i < NCHUNK_PART; i++) {
      const Fn *f = fn_of(m, k, i);
      if (!f) continue;
      c->run[i] = run;
      c->reads_data[i] = true;
      c->sent_bytes[i] = sent(f);
      c->cost[i] = 1;
    }
  }
  p->chunk = chunk;
}

typedef struct Run {
  const Module *m;
  const DtProgram *p;
  const DtCall *c;
  const Fn *f;
  int64_t in, sent, out; // bytes received, sent and returned so far
  uint32_t first; // argument: the first of the chunk's parameters
} Run;

static bool makes_gradients(const Run *r) {
  return r->c->part == CHUNK_BACKWARD || r->c->part == CHUNK_WEIGHTS;
}

// The chunk's parameters, and their gradients, come last, before the rank's place on the mesh.
static uint32_t first_piece(const Run *r) {
  uint32_t n = r->f->arg.n, pieces = (uint32_t)r->p->chunk[r->c->chunk].nparam;
  while (n && means_trailing(r->f->value.at[r->f->arg.at[n - 1]].means)) n--;
  return n - pieces * (1 + makes_gradients(r));
}

// A parameter as kernels read it where it has 16 bits; chunk_run frees it.
static double *rounded_copy(const Value *v, const double *master) {
  int64_t n = value_count(v);
  double *copy = malloc((size_t)n * sizeof *copy);
  ALLOCATED(copy);
  for (int64_t i = 0; i < n; i++) copy[i] = interp_round(v->type, master[i]);
  return copy;
}

static char *kept_at(const Run *r, const Value *v) {
  DtSpan span = DT_F_TO_B;
  int64_t at = slot_at(r->m, (uint32_t)r->c->chunk, v->of, &span);
  return (char *)r->c->slot[span] + at;
}

static void *argument(Run *r, uint32_t i, void *(*place)(const DtCall *c, const Value *v)) {
  const Value *v = &r->f->value.at[r->f->arg.at[i]];
  const DtPipeChunk *chunk = &r->p->chunk[r->c->chunk];
  const DtStage *stage = &r->p->stage[r->c->chunk % r->p->pp];
  uint32_t pieces = (uint32_t)chunk->nparam, at = i - r->first;
  if (i >= r->first && at < pieces * (1 + makes_gradients(r))) {
    double *region = at < pieces ? r->c->param : r->c->grad;
    region += stage->param[(uint32_t)chunk->param + at % pieces].offset;
    return is_half(v->type) ? rounded_copy(v, region) : region;
  }
  if (v->means == MEANS_KEPT) return kept_at(r, v);
  if (v->means != MEANS_RECEIVED) return place(r->c, v);
  char *here = (char *)r->c->in + r->in;
  r->in += room_of(v);
  return here;
}

static void *result_place(Run *r, const Value *v) {
  char *here;
  if (v->means == MEANS_KEPT) return kept_at(r, v);
  if (v->means == MEANS_SENT) {
    here = (char *)r->c->send + r->sent;
    r->sent += room_of(v);
  } else {
    here = (char *)r->c->out + r->out;
    r->out += bytes_of(v);
  }
  return here;
}

// The first microbatch's gradients are added to nothing.
static void begin_gradients(const Run *r, const Tensor *arg) {
  if (r->c->part != (r->m->split ? CHUNK_WEIGHTS : CHUNK_BACKWARD)) return;
  dt_outside_grads(r->c);
  uint32_t n = (uint32_t)r->p->chunk[r->c->chunk].nparam;
  for (uint32_t i = r->first + n; r->c->fresh && i < r->first + 2 * n; i++)
    memset(arg[i].real, 0, (size_t)tensor_count(&arg[i]) * sizeof(double));
}

void chunk_run(Interp *interp, const Module *m, const DtProgram *p, const DtCall *c,
               void *(*place)(const DtCall *c, const Value *v)) {
  Id fn = m->chunk.at[c->chunk].fn[c->part];
  Run r = {.m = m, .p = p, .c = c, .f = &m->fn.at[fn]};
  const Fn *f = r.f;
  r.first = first_piece(&r);
  Tensor *arg = NEWN(m->arena, Tensor, f->arg.n + 1);
  Tensor **pointer = NEWN(m->arena, Tensor *, f->arg.n + 1);
  Tensor **result = NEWN(m->arena, Tensor *, f->result.n + 1);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    void *at = argument(&r, i, place);
    arg[i] = (Tensor){.type = v->type, .rank = v->rank};
    memcpy(arg[i].extent, v->extent, sizeof v->extent);
    if (scalar_of(v->type) == SC_REAL) arg[i].real = at;
    else arg[i].integer = at;
    pointer[i] = &arg[i];
  }
  begin_gradients(&r, arg);
  Buf error = {0};
  InterpOptions o = {.seed = c->scalars->key[0], .step = c->scalars->key[1], .round = is_half(m->store)};
  if (!interp_call(interp, fn, pointer, result, &o, &error)) BUG("--interpret: %s", error.text);
  for (uint32_t i = 0; i < f->result.n; i++) {
    const Value *v = &f->value.at[f->result.at[i]];
    void *from = result[i]->real ? (void *)result[i]->real : result[i]->integer;
    memcpy(result_place(&r, v), from, (size_t)bytes_of(v));
    tensor_free(result[i]);
  }
  for (uint32_t i = r.first; i < f->arg.n; i++)
    if (f->value.at[f->arg.at[i]].means == MEANS_PARAM && is_half(arg[i].type)) free(arg[i].real);
}
