#include "driver/traffic.h"

#include "runtime/train/run.h"

static void add(Traffic *t, const char *axis, const char *what, double count, double bytes) {
  if (bytes <= 0) return;
  for (int i = 0; i < t->n; i++)
    if (!strcmp(t->row[i].axis, axis) && !strcmp(t->row[i].what, what)) {
      t->row[i].count += count;
      t->row[i].bytes += bytes;
      return;
    }
  CHECK(t->n < MAX_TRAFFIC);
  t->row[t->n++] = (TrafficRow){axis, what, count, bytes};
}

// The part of an array that one of n ranks sends when everything passes by it once.
static double share(double bytes, double n) { return bytes * (n - 1) / n; }

static double bytes_of(const Value *v) {
  double n = dtype_size(v->type);
  for (uint32_t d = 0; d < v->rank; d++) n *= (double)v->extent[d];
  return n;
}

static void add_coll(Traffic *t, const Module *m, const Fn *f, const Stmt *s, double times) {
  static const char *const what[NCOLL] = {"all-reduce", "all-gather", "reduce-scatter",
                                          "all-to-all", "shift"};
  const Value *whole = &f->value.at[s->coll == COLL_ALL_GATHER ? s->lhs : s->from];
  double sent = share(bytes_of(whole), (double)coll_size(m, s));
  if (s->coll == COLL_SHIFT) sent = bytes_of(whole);
  add(t, axis_whole_name(m, s->axis), what[s->coll], times, times * sent * (s->coll == COLL_ALL_REDUCE ? 2 : 1));
}

// What function f's statements send, and those of the functions that it calls.
static void add_fn(Traffic *t, const Module *m, Id fn, double times) {
  const Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->kind == ST_COLL) add_coll(t, m, f, s, times);
    if (s->kind == ST_CALL || s->kind == ST_REPEAT)
      add_fn(t, m, s->call->fn, times * (double)(s->kind == ST_REPEAT ? s->call->count : 1));
  }
}

// Over the ranks that share parameters: `owners` have the pieces of a unit, and `across` ranks the
// same piece.
static void add_data(Traffic *t, const DtProgram *p, const DtUnits *u, const DtCut *cut, int ranks,
                     int64_t micro) {
  double owners = cut->owners, across = ranks / owners;
  double size = (double)dt_type_size(p->reduce_type), param_size = (double)dt_type_size(p->param_type);
  double reductions = cut->each ? (double)micro : 1;
  for (int64_t i = 0; i < u->nunit; i++) {
    double bytes = size * (double)u->unit[i].count, piece = cut->grads ? bytes / owners : bytes;
    double reduced = share(bytes, owners) * (cut->grads ? 1 : 2) + share(piece, across) * 2;
    // A layer's parameters are gathered forward and backward.
    double gathers = cut->param_slots ? (double)micro * (u->unit[i].stack ? 2 : 1) : 1;
    add(t, "data", "gradients", 0, reductions * reduced);
    double params = param_size * (double)u->unit[i].count;
    if (cut->moments) add(t, "data", "parameters", 0, gathers * share(params, owners));
  }
}

static void add_messages(Traffic *t, const DtProgram *p, int stage, int64_t micro) {
  for (int c = 0; c < p->nchunk; c++) {
    if (c % p->pp != stage) continue;
    const int64_t *sent = p->chunk[c].sent_bytes;
    double n = (double)micro;
    if (c + 1 < p->nchunk) add(t, "pp", "activations", n, n * (double)sent[DT_FORWARD]);
    if (c > 0) add(t, "pp", "their gradients", n, n * (double)sent[DT_BACKWARD]);
  }
}

// A gradient that several stages hold: the first of them gets the others' and sends the sum back.
static void add_ties(Traffic *t, const DtProgram *p, const DtStages *s, const DtCut *cut, int stage) {
  for (int i = 0; i < s->ntie; i++)
    for (int k = 0; k < s->tie[i].n; k++) {
      const DtHolder *h = &s->tie[i].holder[k];
      if (h->stage != stage) continue;
      double count = (double)s->units[stage].unit[h->unit].count / (cut->grads ? cut->owners : 1);
      int messages = k ? 1 : s->tie[i].n - 1;
      add(t, "pp", "tied gradients", messages, messages * count * (double)dt_type_size(p->type));
    }
}

Traffic traffic_make(const Plan *p, const DtProgram *t, const DtStages *stages, const DtCut *cut,
                     int data_ranks, int stage, int64_t micro) {
  const Module *m = p->m;
  Traffic of = {.n = 0};
  if (!m->chunk.n) add_fn(&of, m, m->entry[ENTRY_STEP], (double)micro);
  for (uint32_t c = 0; c < m->chunk.n; c++)
    for (int part = 0; part < NCHUNK_PART; part++) {
      Id fn = m->chunk.at[c].fn[part];
      bool here = fn != NONE && (int)(c % m->stages) == stage;
      if (here && part != CHUNK_EVAL && part != CHUNK_SAMPLE) add_fn(&of, m, fn, (double)micro);
    }
  if (data_ranks > 1) add_data(&of, t, &stages->units[stage], cut, data_ranks, micro);
  if (m->chunk.n) add_messages(&of, t, stage, micro);
  add_ties(&of, t, stages, cut, stage);
  return of;
}
