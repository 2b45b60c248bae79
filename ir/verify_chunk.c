// Checks that the chunks of a pipeline fit together: one rank stands for each stage, and what the
// function of one chunk sends is what that of its neighbour receives, message by message. A send
// waits for its receive, so one without the other is a rank that waits for ever. What is read of a
// microbatch has been kept before.
#include "ir/chunk.h"

#include "ir/text/text.h"

typedef struct End { // of messages between two chunks
  uint32_t chunk;
  const Fn *f;
  bool sends;
} End;

typedef struct Check {
  const Module *m;
  Buf *why;
} Check;

// The n-th result, or argument, that means this; NULL: there are fewer.
static const Value *nth(const Fn *f, bool result, Meaning k, uint32_t n) {
  uint32_t count = result ? f->result.n : f->arg.n;
  for (uint32_t i = 0; i < count; i++) {
    const Value *v = &f->value.at[result ? f->result.at[i] : f->arg.at[i]];
    if (v->means == k && n-- == 0) return v;
  }
  return NULL;
}

// The place of the statement that makes, or first reads, the value; its own where there is none.
static Id place_of(const Module *m, const Fn *f, const Value *v) {
  Id id = (Id)(v - f->value.at);
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    bool here = (!s->call && s->lhs == id) || stmt_has_read(m, f, s, id);
    for (uint32_t k = 0; s->call && k < s->call->nresult; k++)
      here |= s->call->result[k].value == id;
    if (here && s->loc) return s->loc;
  }
  return v->loc ? v->loc : f->loc;
}

static void put_place(Check *c, Id loc) {
  const Sources *src = c->m->src;
  while (src && loc && loc < src->loc.n && src->loc.at[loc].parent) loc = src->loc.at[loc].parent;
  if (!src || !loc || loc >= src->loc.n || src->loc.at[loc].file >= src->file.n) return;
  const Loc *l = &src->loc.at[loc];
  buf_printf(c->why, " (%s:%u:%u)", src->file.at[l->file].name, l->line, l->col);
}

static void put_value(Check *c, const Value *v) {
  buf_printf(c->why, "`%s: %s", v->name, dtype_name[v->type]);
  for (uint32_t d = 0; d < v->rank; d++)
    buf_printf(c->why, "%s%lld", d ? ", " : "[", (long long)v->extent[d]);
  buf_printf(c->why, "%s`", v->rank ? "]" : "");
}

static void put_end(Check *c, const End *e, const Value *v) {
  uint32_t stage = e->chunk % c->m->stages;
  int64_t ranks = 1;
  for (uint32_t a = 0; a < c->m->axis.n; a++) ranks *= c->m->axis.at[a].size;
  buf_printf(c->why, "rank %lld (stage %u) %s ", (long long)(ranks * stage), stage,
             e->sends ? "sends" : "receives");
  if (v) put_value(c, v);
  else buf_printf(c->why, "nothing");
  buf_printf(c->why, " in `%s`", e->f->name);
  put_place(c, v ? place_of(c->m, e->f, v) : e->f->loc);
}

static bool alike(const Value *a, const Value *b) {
  return a->type == b->type && a->rank == b->rank &&
         !memcmp(a->extent, b->extent, a->rank * sizeof *a->extent);
}

static bool messages_fit(Check *c, const End *from, const End *to) {
  for (uint32_t n = 0;; n++) {
    const Value *a = from->f ? nth(from->f, true, MEANS_SENT, n) : NULL;
    const Value *b = to->f ? nth(to->f, false, MEANS_RECEIVED, n) : NULL;
    if (!a && !b) return true;
    const char *what = !a || !b          ? "a message without a matching send or receive"
                       : !alike(a, b)    ? "a message of two shapes"
                       : a->of != b->of  ? "two ranks differ in their next operation"
                                         : NULL;
    if (!what) continue;
    buf_printf(c->why, "%s: ", what);
    if (from->f) put_end(c, from, a);
    if (from->f && to->f) buf_printf(c->why, "; and ");
    if (to->f) put_end(c, to, b);
    return false;
  }
}

static const Fn *fn_of(const Module *m, uint32_t chunk, ChunkPart part) {
  if (chunk >= m->chunk.n || m->chunk.at[chunk].fn[part] == NONE) return NULL;
  return &m->fn.at[m->chunk.at[chunk].fn[part]];
}

// From each chunk to the next, and to the one before.
static bool part_fits(Check *c, ChunkPart part) {
  bool back = part == CHUNK_BACKWARD;
  for (uint32_t k = 0; k <= c->m->chunk.n; k++) { // the ends have one neighbour only
    uint32_t below = k - 1; // of the first there is none: no such chunk
    End low = {below, fn_of(c->m, below, part), !back}, high = {k, fn_of(c->m, k, part), back};
    if (!messages_fit(c, back ? &high : &low, back ? &low : &high)) return false;
  }
  return true;
}

static bool kept_by(const Fn *f, const Value *v) {
  for (uint32_t n = 0; f && n < f->result.n; n++) {
    const Value *r = nth(f, true, MEANS_KEPT, n);
    if (r && r->of == v->of && alike(r, v)) return true;
  }
  return false;
}

static bool slots_fit(Check *c, uint32_t chunk, ChunkPart part) {
  const Fn *f = fn_of(c->m, chunk, part);
  for (uint32_t n = 0; f && n < f->arg.n; n++) {
    const Value *v = nth(f, false, MEANS_KEPT, n);
    if (!v || kept_by(fn_of(c->m, chunk, CHUNK_FORWARD), v)) continue;
    if (part == CHUNK_WEIGHTS && kept_by(fn_of(c->m, chunk, CHUNK_BACKWARD), v)) continue;
    buf_printf(c->why, "chunk %u: `%s` reads ", chunk, f->name);
    put_value(c, v);
    buf_printf(c->why, ", which no earlier function has kept");
    put_place(c, place_of(c->m, f, v));
    return false;
  }
  return true;
}

bool chunks_verify(const Module *m, Buf *why) {
  Check c = {m, why};
  for (uint32_t k = 0; k < m->chunk.n; k++)
    if (!slots_fit(&c, k, CHUNK_BACKWARD) || !slots_fit(&c, k, CHUNK_WEIGHTS)) return false;
  return !m->chunk.n || (part_fits(&c, CHUNK_FORWARD) && part_fits(&c, CHUNK_BACKWARD) &&
                         part_fits(&c, CHUNK_EVAL) && part_fits(&c, CHUNK_SAMPLE));
}
