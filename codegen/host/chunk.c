// A pipeline's chunks: where their functions find what they receive, send and keep. Messages and slots are one array each, their values at multiples of 64
// bytes in the order of arguments and results.
#include "codegen/host/host.h"

enum { ALIGNMENT = 64 };

static int64_t aligned_bytes(const Value *v) {
  int64_t bytes = value_count(v) * dtype_size(v->type);
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

bool host_chunk_of(const Host *h, Id fn, uint32_t *chunk, ChunkPart *part) {
  for (uint32_t k = 0; k < h->m->chunk.n; k++)
    for (int i = 0; i < NCHUNK_PART; i++) {
      if (h->m->chunk.at[k].fn[i] != fn) continue;
      *chunk = k;
      *part = (ChunkPart)i;
      return true;
    }
  return false;
}

void host_chunk_begin(HostFn *x) {
  const Module *m = x->h->m;
  if (!host_chunk_of(x->h, x->id, &x->number, &x->part)) return;
  x->chunk = &m->chunk.at[x->number];
  x->entry = x->part == (m->split ? CHUNK_WEIGHTS : CHUNK_BACKWARD) ? ENTRY_STEP : ENTRY_EVAL;
  x->h->params = x->h->stage[x->number % m->stages];
}

static uint32_t data_count(const Module *m, ChunkPart part) {
  return part == CHUNK_SAMPLE ? 1 : m->ndata; // tokens alone
}

// Data, first, batch and totals.
static uint32_t lead_count(const Host *h, ChunkPart part) {
  if (part == CHUNK_SAMPLE) return data_count(h->m, part);
  Id count = h->m->entry[ENTRY_COUNT];
  return h->m->ndata + 2 + (count == NONE ? 0 : h->m->fn.at[count].result.n);
}

// Arguments from the first parameter on.
static uint32_t first_piece(const Module *m, uint32_t chunk, ChunkPart part) {
  const Chunk *c = &m->chunk.at[chunk];
  const Fn *f = &m->fn.at[c->fn[part]];
  uint32_t n = f->arg.n, grads = part == CHUNK_BACKWARD || part == CHUNK_WEIGHTS;
  while (n && means_trailing(f->value.at[f->arg.at[n - 1]].means)) n--;
  return n - c->piece.n * (1 + grads);
}

uint32_t host_chunk_piece(const HostFn *x, uint32_t arg, bool *grad) {
  const Module *m = x->h->m;
  uint32_t first = first_piece(m, x->number, x->part), n = x->chunk->piece.n, base = 0;
  bool grads = x->part == CHUNK_BACKWARD || x->part == CHUNK_WEIGHTS;
  if (arg < first || arg >= first + n * (1 + grads)) return NONE;
  while (x->h->params->chunk[base] != x->number) base++;
  *grad = arg >= first + n;
  return base + (arg - first) % n;
}

// ---- where things lie

DtSpan chunk_span(const Module *m, uint32_t chunk, ChunkPart maker, uint32_t of) {
  Id weights = m->chunk.at[chunk].fn[CHUNK_WEIGHTS];
  if (maker == CHUNK_BACKWARD) return DT_B_TO_W;
  const Fn *f = weights == NONE ? NULL : &m->fn.at[weights];
  for (uint32_t i = 0; f && i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    if (v->means == MEANS_KEPT && v->of == of) return DT_F_TO_W;
  }
  return DT_F_TO_B;
}

// Where the chunk keeps what means KEPT `of`, in a slot of *span; or NONE: bytes of all that it keeps in one of *span.
static int64_t slot_at(const Module *m, uint32_t chunk, uint32_t of, DtSpan *span, bool *found) {
  static const ChunkPart keeps[] = {CHUNK_FORWARD, CHUNK_BACKWARD};
  int64_t at[DT_SPANS] = {0};
  for (int k = 0; k < 2; k++) {
    const Fn *f = &m->fn.at[m->chunk.at[chunk].fn[keeps[k]]];
    for (uint32_t i = 0; i < f->result.n; i++) {
      const Value *v = &f->value.at[f->result.at[i]];
      if (v->means != MEANS_KEPT) continue;
      DtSpan here = chunk_span(m, chunk, keeps[k], v->of);
      if (v->of == of) return *span = here, *found = true, at[here];
      at[here] += aligned_bytes(v);
    }
  }
  return at[*span];
}

static Str slot_place(const HostFn *x, const Value *v) {
  static const char *const name[DT_SPANS] = {"DT_F_TO_B", "DT_F_TO_W", "DT_B_TO_W"};
  bool found = false;
  DtSpan span = DT_F_TO_B;
  int64_t at = slot_at(x->h->m, x->number, v->of, &span, &found);
  if (!found) BUG("%s: nothing keeps %s", x->f->name, v->name);
  return str_printf("(void *)((char *)call->slot[%s] + %lld)", name[span], (long long)at);
}

Str host_chunk_arg(const HostFn *x, uint32_t arg) {
  const Host *h = x->h;
  const Value *v = &x->f->value.at[x->f->arg.at[arg]];
  const char *type = c_type(h->m->compute);
  bool grad;
  Str rank = host_trailing_arg(h, v);
  if (rank) return rank;
  uint32_t nd = data_count(h->m, x->part), lead = lead_count(h, x->part);
  uint32_t piece = host_chunk_piece(x, arg, &grad);
  if (arg < nd) return str_printf("call->data[%u]", arg);
  if (arg < nd + 2 && arg < lead) return str_intern(arg == nd ? "&call->scalars->first" : "&call->scalars->batch");
  if (arg < lead) return host_scalar(h, "total", arg - nd - 2);
  if (piece != NONE)
    return str_printf("(%s *)call->%s + %lld", grad ? type : c_type(param_type(h->m)),
                      grad ? "grad" : "param", (long long)h->params->param[piece].offset);
  if (v->means == MEANS_KEPT) return slot_place(x, v);
  if (v->means != MEANS_RECEIVED) BUG("%s: where is %s", x->f->name, v->name);
  int64_t at = 0;
  for (uint32_t i = lead; i < arg; i++)
    at += aligned_bytes(&x->f->value.at[x->f->arg.at[i]]);
  return str_printf("(const void *)((const char *)call->in + %lld)", (long long)at);
}

Str host_chunk_result(const HostFn *x, uint32_t result) {
  const Value *v = &x->f->value.at[x->f->result.at[result]];
  int64_t sent = 0, out = 0;
  if (v->means == MEANS_KEPT) return slot_place(x, v);
  for (uint32_t i = 0; i < result; i++) {
    const Value *before = &x->f->value.at[x->f->result.at[i]];
    if (before->means == MEANS_SENT) sent += aligned_bytes(before);
    else if (before->means != MEANS_KEPT) out += value_count(before);
  }
  if (v->means == MEANS_SENT)
    return str_printf("(void *)((char *)call->send + %lld)", (long long)sent);
  return str_printf("(%s *)call->out + %lld", c_type(v->type), (long long)out);
}

// ---- messages

static int64_t sent_bytes(const Module *m, uint32_t chunk, ChunkPart part) {
  int64_t bytes = 0;
  const Fn *f = &m->fn.at[m->chunk.at[chunk].fn[part]];
  for (uint32_t i = 0; i < f->result.n; i++) {
    const Value *v = &f->value.at[f->result.at[i]];
    if (v->means == MEANS_SENT) bytes += aligned_bytes(v);
  }
  return bytes;
}

static int64_t received_bytes(const Host *h, uint32_t chunk, ChunkPart part) {
  int64_t bytes = 0;
  const Fn *f = &h->m->fn.at[h->m->chunk.at[chunk].fn[part]];
  for (uint32_t i = lead_count(h, part); i < first_piece(h->m, chunk, part); i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    if (v->means == MEANS_RECEIVED) bytes += aligned_bytes(v);
  }
  return bytes;
}

void host_check_messages(const Host *h) {
  const Module *m = h->m;
  for (uint32_t k = 0; k + 1 < m->chunk.n; k++) {
    bool same = sent_bytes(m, k, CHUNK_FORWARD) == received_bytes(h, k + 1, CHUNK_FORWARD) &&
                sent_bytes(m, k + 1, CHUNK_BACKWARD) == received_bytes(h, k, CHUNK_BACKWARD);
    for (int p = CHUNK_EVAL; p < NCHUNK_PART; p++)
      if (m->chunk.at[k].fn[p] != NONE)
        same &= sent_bytes(m, k, (ChunkPart)p) == received_bytes(h, k + 1, (ChunkPart)p);
    if (!same) BUG("chunks %u and %u exchange different messages", k, k + 1);
  }
}

typedef struct Touch {
  Id buffer;
  bool any;
} Touch;

static void note_touch(Id buffer, bool written, void *ctx) {
  Touch *t = ctx;
  (void)written;
  t->any |= buffer == t->buffer;
}

bool chunk_reads_data(const Plan *p, uint32_t chunk, ChunkPart part) {
  Id fn = p->m->chunk.at[chunk].fn[part];
  const FnPlan *fp = &p->fn[fn];
  Touch t = {0};
  for (uint32_t a = 0; a < data_count(p->m, part); a++) {
    t.buffer = p->m->fn.at[fn].arg.at[a];
    for (uint32_t i = 0; i < fp->kernel.n; i++) kernel_touch(p, fn, &fp->kernel.at[i], note_touch, &t);
  }
  return t.any;
}

void host_pipeline_names(Host *h) {
  if (!h->m->chunk.n) return;
  names_new(&h->file, str_intern("chunk"));
  names_new(&h->file, str_intern("stage"));
  for (uint32_t s = 0; s < h->m->stages; s++) {
    names_new(&h->file, str_printf("stage%u_param", s));
    names_new(&h->file, str_printf("stage%u_stack", s));
    names_new(&h->file, str_printf("stage%u_held", s));
  }
}

// The statement of the chunk's function that defines the value.
static Id place_of(const Fn *f, Id v) {
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (!s->call && s->lhs == v) return s->loc;
    for (uint32_t r = 0; s->call && r < s->call->nresult; r++)
      if (s->call->result[r].value == v) return s->loc;
  }
  return f->loc; // added to by calls alone
}

Str chunk_message(const Module *m, uint32_t chunk, ChunkPart part, Str *source) {
  enum { MOST = 3 };
  Id id = m->chunk.at[chunk].fn[part];
  const Fn *f = id == NONE ? NULL : &m->fn.at[id];
  Buf what = {0}, place = {0};
  uint32_t n = 0;
  buf_printf(&what, part == CHUNK_BACKWARD ? "gradients of activations" : "activations");
  for (uint32_t i = 0; f && i < f->result.n; i++) {
    const Value *v = &f->value.at[f->result.at[i]];
    if (v->means != MEANS_SENT) continue;
    if (!n) put_source(m, place_of(f, f->result.at[i]), true, &place);
    if (n++ < MOST) buf_printf(&what, "%s%s", n > 1 ? ", " : " ", value_plain_name(v));
  }
  if (n > MOST) buf_printf(&what, " and %u more", n - MOST);
  Str text = n ? str_internn(what.text, what.n) : NULL;
  *source = n && place.n ? str_internn(place.text, place.n) : NULL;
  buf_free(&what);
  buf_free(&place);
  return text;
}

// ---- sizes and costs

static void note_frame(const Plan *p, Id fn, FrameBytes *most) {
  const FnPlan *fp = &p->fn[fn];
  if (fp->frame_bytes > most->bytes) most->bytes = fp->frame_bytes;
  if (fp->frame_bound > most->bound) most->bound = fp->frame_bound;
}

FrameBytes largest_frame(const Plan *p, uint32_t stage) {
  const Module *m = p->m;
  FrameBytes most = {0};
  for (uint32_t i = 0; i < m->chunk.n * NCHUNK_PART; i++) {
    Id fn = m->chunk.at[i / NCHUNK_PART].fn[i % NCHUNK_PART];
    if (fn != NONE && i / NCHUNK_PART % m->stages == stage) note_frame(p, fn, &most);
  }
  for (int e = ENTRY_SAMPLE; e < NENTRY; e++)
    if (m->entry[e] != NONE) note_frame(p, m->entry[e], &most);
  return most;
}

int64_t chunk_slot_bytes(const Module *m, uint32_t chunk, DtSpan span) {
  bool found = false;
  return slot_at(m, chunk, NONE, &span, &found);
}

int64_t chunk_sent_bytes(const Module *m, uint32_t chunk, ChunkPart part) {
  return m->chunk.at[chunk].fn[part] == NONE ? 0 : sent_bytes(m, chunk, part);
}

double kernel_cost(const Plan *p, const Kernel *k) {
  const Limits *l = &p->m->limits;
  double flops = k->kind == K_LOOPS ? (double)l->loop_flops * k->flops : k->flops;
  double moved = (double)l->byte_flops * k->bytes;
  return flops > moved ? flops : moved;
}

static double fn_cost(const Plan *p, Id fn) {
  const FnPlan *fp = &p->fn[fn];
  double n = 0;
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    const Kernel *k = &fp->kernel.at[i];
    if (k->kind == K_CALL) {
      const Call *c = p->m->fn.at[fn].stmt.at[k->stmt.at[0]].call;
      n += (double)c->count * fn_cost(p, c->fn);
      continue;
    }
    n += kernel_cost(p, k);
  }
  return n;
}

int64_t chunk_cost(const Plan *p, Id fn) {
  double n = fn_cost(p, fn) / 1000;
  return n < 1 ? 1 : n > 1e15 ? (int64_t)1e15 : (int64_t)n;
}
