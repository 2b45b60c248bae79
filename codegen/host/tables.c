// The tables that a training program hands to the runtime: parameters, data, settings, kernels,
// buffers.
#include "codegen/host/host.h"
#include "codegen/target.h"
#include "runtime/pipeline/pipeline.h"

const char *const host_type[NDTYPE] = {
    [DT_F64] = "DT_TYPE_F64", [DT_F32] = "DT_TYPE_F32", [DT_I32] = "DT_TYPE_I32",
    [DT_BOOL] = "DT_TYPE_BOOL", [DT_BF16] = "DT_TYPE_BF16", [DT_F16] = "DT_TYPE_F16"};
static const char *const dt_init[NINIT] = {"DT_ZEROS", "DT_ONES", "DT_NORMAL", "DT_UNIFORM",
                                           "DT_CONST"};
static const char *const dt_data[] = {"DT_DATA_NONE", "DT_DATA_TOKENS", "DT_DATA_BYTES",
                                      "DT_DATA_ARRAYS"};
static const char *const dt_optimizer[] = {"DT_SGD", "DT_ADAM", "DT_ADAMW"};
static const char *const dt_schedule[] = {"DT_CONSTANT", "DT_LINEAR", "DT_COSINE", "DT_INVSQRT"};

static void put_extents(Buf *b, const int64_t *extent, uint32_t rank) {
  buf_printf(b, "{");
  for (uint32_t d = 0; d < rank; d++) buf_printf(b, "%s%lld", d ? ", " : "", (long long)extent[d]);
  buf_printf(b, "}");
}

static void put_optional(Buf *b, Str s) {
  if (s && *s)
    put_string(b, s);
  else
    buf_printf(b, "NULL");
}

// One line of the listing: a string literal.
static void line(Buf *b, const char *text) {
  buf_printf(b, "\n    ");
  put_string(b, str_printf("%s\n", text));
}

static Str shape(const Value *v) {
  Buf b = {0};
  buf_printf(&b, "[");
  for (uint32_t d = 0; d < v->rank; d++)
    buf_printf(&b, "%s%lld", d ? ", " : "", (long long)v->extent[d]);
  buf_printf(&b, "]");
  Str s = str_internn(b.text, b.n);
  buf_free(&b);
  return s;
}

static void list_fn(Host *h, Id fn) {
  const Fn *f = &h->m->fn.at[fn];
  const FnPlan *fp = &h->p->fn[fn];
  const Life *life = plan_lives(h->p, fn);
  Buf *b = h->out;
  line(b, str_printf("%s: %u kernels, frame of %lld bytes", f->name, fp->kernel.n,
                     (long long)fp->frame_bytes));
  for (Id v = 0; v < f->value.n; v++) {
    const Value *l = &f->value.at[v];
    if (fp->address[v] < 0) continue;
    line(b, str_printf("  %-21s %-24s %-4s %10lld at %-10lld kernels %u-%u", l->name, shape(l),
                       dtype_name[l->type], (long long)(value_count(l) * dtype_size(l->type)),
                       (long long)fp->address[v], life[v].first, life[v].last));
  }
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    if (fp->kernel.at[i].kind != K_CALL) continue;
    const Call *c = f->stmt.at[fp->kernel.at[i].stmt.at[0]].call;
    line(b, str_printf("  %-21s %-24s %-4s %10lld at %-10lld kernel  %u",
                       str_printf("(%s)", h->m->fn.at[c->fn].name), "", "",
                       (long long)call_scratch(h->p, c, c->nresult), (long long)fp->callee_frame[i],
                       i));
  }
}

void host_listing(Host *h) {
  buf_printf(
      h->out,
      "// Every buffer in a frame: shape, type, bytes, place, and the kernels of its function between which\n"
      "// it lives. Printed by --info.\nstatic const char listing[] =");
  for (uint32_t i = 0; i < h->order.n; i++) list_fn(h, h->order.at[i]);
  if (!h->order.n) buf_printf(h->out, " \"\"");
  buf_printf(h->out, ";\n\n");
}

// Which axes split the parameter.
static void print_shards(Host *h, const Param *p) {
  bool any = false;
  for (uint32_t a = 0; a < h->m->axis.n; a++) {
    const Shard *s = &p->shard[a];
    if (s->kind != SHARD_SPLIT) continue;
    buf_printf(h->out, "%s[%s] = {%u, %lld}", any ? ", " : ",\n     .shard = {", host_axis(h->m, a),
               s->dim - p->nstack, (long long)s->block);
    any = true;
  }
  if (any) buf_printf(h->out, "}");
}

// The axes over which the runtime is to sum the parameter's gradient.
static void print_partial(Host *h, const ParamLayout *l, uint32_t i) {
  const Value *grad = param_gradient(h->m, l, i);
  bool any = false;
  for (uint32_t a = 0; grad && a < h->m->axis.n; a++) {
    if (grad->shard[a].kind != SHARD_PARTIAL) continue;
    buf_printf(h->out, "%s1u << %s", any ? " | " : ", .partial = ", host_axis(h->m, a));
    any = true;
  }
}

void host_source(Host *h, Id loc) {
  Buf place = {0};
  put_source(h->m, loc, true, &place);
  if (place.n) buf_printf(h->out, ",\n     .source = ");
  if (place.n) put_string(h->out, place.text);
  buf_free(&place);
}

static void print_param(Host *h, const ParamLayout *l, uint32_t i) {
  Buf *b = h->out;
  const Param *p = &h->m->param.at[l->piece[i].param];
  const ParamPlace *q = &l->param[i];
  bool stacked = q->stack != NONE;
  int64_t n = 1, offset = q->offset + (stacked ? l->stack.at[q->stack].offset : 0), extent[MAX_RANK];
  memcpy(extent, p->extent, sizeof extent);
  if (p->nstack) extent[0] = l->piece[i].count;
  for (uint32_t d = 0; d < p->rank; d++) n *= extent[d];
  buf_printf(b, "    {.name = ");
  put_string(b, p->name);
  buf_printf(b, ", .rank = %u, .nstack = %u, .extent = ", p->rank, p->nstack);
  put_extents(b, extent, p->rank ? p->rank : 1);
  buf_printf(b, ",\n     .count = %lld, .offset = %lld,\n     .init = %s, .init_a = ", (long long)n,
             (long long)offset, dt_init[p->init]);
  put_real(b, p->init_a);
  buf_printf(b, ", .init_b = ");
  put_real(b, p->init_b);
  buf_printf(b, ", .decay = %s", p->decay ? "true" : "false");
  if (stacked) buf_printf(b, ", .stack = %u", q->stack + 1);
  if (q->count != n) buf_printf(b, ", .local = %lld", (long long)q->count);
  host_source(h, param_use(h->m, l->piece[i].param));
  print_shards(h, p);
  print_partial(h, l, i);
  buf_printf(b, "},\n");
}

static void print_stacks(Host *h, const ParamLayout *l, Str prefix) {
  Buf *b = h->out;
  if (!l->stack.n) return;
  buf_printf(b, "static const DtStack %sstack[] = {\n", prefix);
  for (uint32_t s = 0; s < l->stack.n; s++) {
    const StackPlace *t = &l->stack.at[s];
    buf_printf(b, "    {.name = ");
    put_string(b, t->name);
    buf_printf(b, ", .count = %lld, .offset = %lld, .stride = %lld", (long long)t->count,
               (long long)t->offset, (long long)t->stride);
    if (t->first) buf_printf(b, ", .first = %lld", (long long)t->first);
    uint32_t i = 0;
    while (l->param[i].stack != s) i++;
    host_source(h, param_use(h->m, l->piece[i].param));
    buf_printf(b, "},\n");
  }
  buf_printf(b, "};\n\n");
}

// The degrees of the mesh axes that the program is cut over.
static void print_axes(Host *h) {
  for (uint32_t a = 0; a < h->m->axis.n; a++) {
    const Axis *x = &h->m->axis.at[a];
    uint32_t other = axis_other(h->m, a);
    int64_t whole = x->size * (other == NONE ? 1 : h->m->axis.at[other].size);
    bool outer = x->part == AXIS_OUTER;
    buf_printf(h->out, "    .%s%s = %lld,\n", axis_whole_name(h->m, a), outer ? "_outer" : "",
               (long long)(outer ? x->size : whole));
  }
}

void host_params(Host *h, const ParamLayout *l, Str prefix) {
  buf_printf(h->out, "static const DtParam %sparam[] = {\n", prefix);
  for (uint32_t i = 0; i < l->n; i++) print_param(h, l, i);
  if (!l->n) buf_printf(h->out, "    {.name = NULL},\n");
  buf_printf(h->out, "};\n\n");
  print_stacks(h, l, prefix);
}

// What is cut over the ranks that replicate the parameters.
static void print_zero(Host *h) {
  const ZeroOptions *z = &h->p->zero;
  Buf *b = h->out;
  if (h->p->in_flight > 1) buf_printf(b, "    .in_flight = %d,\n", h->p->in_flight);
  if (h->params->stack.n)
    buf_printf(b, "    .nstack = %u, .stack = stack,\n", h->params->stack.n);
  if (!z->stage && !z->group && !z->each) return;
  buf_printf(b, "    .zero = %d, .zero_group = %d, .accumulate_each = %s, .gather_once = %s,\n",
             z->stage, z->group, z->each ? "true" : "false", z->once ? "true" : "false");
}

// All of the proofs' requirements on one data argument together.
static bool data_range(const Host *h, uint32_t data, int64_t *lo, int64_t *hi) {
  *lo = INT64_MIN;
  *hi = INT64_MAX;
  bool found = false;
  for (uint32_t i = 0; i < h->m->range.n; i++) {
    const DataRange *r = &h->m->range.at[i];
    if (r->arg != data) continue;
    found = true;
    if (r->lo > *lo) *lo = r->lo;
    if (r->hi < *hi) *hi = r->hi;
  }
  return found;
}

static void print_data(Host *h) {
  Buf *b = h->out;
  const Train *t = &h->m->train;
  Id id = h->m->chunk.n ? h->m->chunk.at[0].fn[CHUNK_FORWARD] : h->m->entry[ENTRY_STEP];
  const Fn *step = &h->m->fn.at[id];
  buf_printf(b, "static const DtData data[] = {\n");
  for (uint32_t i = 0; i < h->m->ndata; i++) {
    const Value *v = &step->value.at[step->arg.at[i]];
    if (!host_type[v->type]) BUG("data argument %s of type %s", v->name, dtype_name[v->type]);
    buf_printf(b, "    {.name = ");
    put_string(b, v->name);
    buf_printf(b, ", .type = %s, .rank = %u, .extent = ", host_type[v->type], v->rank);
    put_extents(b, v->extent, v->rank);
    int64_t lo, hi;
    if (data_range(h, i, &lo, &hi))
      buf_printf(b, ",\n     .checked = true, .lo = %lld, .hi = %lld", (long long)lo, (long long)hi);
    buf_printf(b, ",\n     .path = ");
    put_optional(b, i < t->array_path.n ? t->array_path.at[i] : NULL);
    buf_printf(b, ", .val_path = ");
    put_optional(b, i < t->val_array_path.n ? t->val_array_path.at[i] : NULL);
    buf_printf(b, "},\n");
  }
  if (!h->m->ndata) buf_printf(b, "    {.name = NULL},\n");
  buf_printf(b, "};\n\n");
}

static void print_metrics(Host *h) {
  if (!h->m->metric.n) return;
  buf_printf(h->out, "static const char *const metric[] = {");
  for (uint32_t i = 0; i < h->m->metric.n; i++) {
    if (i) buf_printf(h->out, ", ");
    put_string(h->out, h->m->metric.at[i]);
  }
  buf_printf(h->out, "};\n\n");
}

static uint32_t print_kernels(Host *h) {
  Buf *b = h->out;
  uint32_t n = 0;
  buf_printf(b, "static const DtKernelInfo kernel[] = {\n");
  for (uint32_t i = 0; i < h->order.n; i++) {
    const FnPlan *fp = &h->p->fn[h->order.at[i]];
    for (uint32_t j = 0; j < fp->kernel.n; j++) {
      const Kernel *k = &fp->kernel.at[j];
      if (!kernel_is_named(k)) continue;
      Buf place = {0};
      if (k->stmt.n)
        put_source(h->m, h->m->fn.at[fp->fn].stmt.at[k->stmt.at[0]].loc, false, &place);
      buf_printf(b, "    {");
      put_string(b, k->name);
      buf_printf(b, ", ");
      put_string(b, place.n ? place.text : "");
      buf_printf(b, ", %.6g, %.6g},\n", k->bytes, k->flops);
      buf_free(&place);
      n++;
    }
  }
  if (!n) buf_printf(b, "    {NULL, NULL, 0, 0},\n");
  buf_printf(b, "};\n\n");
  return n;
}

static void put_field(Buf *b, const char *name, double v) {
  buf_printf(b, ", .%s = ", name);
  put_real(b, v);
}

static void print_train(Host *h) {
  const Train *t = &h->m->train;
  Buf *b = h->out;
  buf_printf(b, "    .train = {.data = %s, .val = %s,\n              .data_path = ",
             dt_data[t->data], dt_data[t->val]);
  put_optional(b, t->data_path);
  buf_printf(b, ", .val_path = ");
  put_optional(b, t->val_path);
  buf_printf(
      b,
      ",\n              .length = %lld, .batch = %lld, .microbatch = %lld, .steps = %lld,"
      "\n              .eval_every = %lld, .seed = %lld",
      (long long)t->length, (long long)t->batch, (long long)t->microbatch, (long long)t->steps,
      (long long)t->eval_every, (long long)t->seed);
  buf_printf(b, ",\n              .optimizer = %s", dt_optimizer[t->opt]);
  put_field(b, "lr", t->lr);
  put_field(b, "beta1", t->beta1);
  put_field(b, "beta2", t->beta2);
  put_field(b, "eps", t->eps);
  buf_printf(b, ",\n              .weight_decay = ");
  put_real(b, t->weight_decay);
  put_field(b, "momentum", t->momentum);
  buf_printf(b, ",\n              .nesterov = %s, .schedule = %s, .warmup = %lld",
             t->nesterov ? "true" : "false", dt_schedule[t->schedule], (long long)t->warmup);
  put_field(b, "final", t->final);
  buf_printf(b, ",\n              .clip = ");
  put_real(b, t->clip);
  buf_printf(b, ", .precision = ");
  put_string(b, precision_name(h->m));
  buf_printf(b, "},\n");
}

static void print_entries(Host *h) {
  static const char *const field[NENTRY] = {
      [ENTRY_SAMPLE] = "sample", [ENTRY_COUNT] = "count", [ENTRY_STEP] = "step",
      [ENTRY_EVAL] = "eval",     [ENTRY_UPDATE] = "update"};
  buf_printf(h->out, "   ");
  for (int e = 0; e < NENTRY; e++)
    if (field[e] && h->m->entry[e] != NONE)
      buf_printf(h->out, " .%s = %s,", field[e], h->fn[h->m->entry[e]]);
  buf_printf(h->out, "\n");
}

static void print_sample(Host *h) {
  const Module *m = h->m;
  Id first = m->chunk.n ? m->chunk.at[0].fn[CHUNK_SAMPLE] : m->entry[ENTRY_SAMPLE];
  Id last = m->chunk.n ? m->chunk.at[m->chunk.n - 1].fn[CHUNK_SAMPLE] : first;
  if (first == NONE) return;
  const Fn *f = &m->fn.at[first], *g = &m->fn.at[last];
  const Value *tokens = &f->value.at[f->arg.at[0]];
  const Value *logits = &g->value.at[g->result.at[g->result.n - 1]];
  buf_printf(h->out, "    .sample_length = %lld, .sample_vocab = %lld,\n",
             (long long)tokens->extent[tokens->rank - 1],
             (long long)logits->extent[logits->rank - 1]);
}

static void print_pipeline(Host *h) {
  const Module *m = h->m;
  DtPipeKind kind;
  int chunks;
  if (!m->chunk.n) return;
  if (!dt_pipe_parse(m->schedule, &kind, &chunks)) BUG("no schedule is called %s", m->schedule);
  buf_printf(h->out, "    .pp = %u, .schedule = %d, // %s\n    .nchunk = %u, .chunk = chunk, .stage = stage,\n",
             m->stages, kind, m->schedule, m->chunk.n);
}

void host_tables(Host *h, Str arch, Str build_hash) {
  Buf *b = h->out;
  ParamLayout *whole = param_layout(h->m);
  h->params = whole;
  host_params(h, whole, str_intern(""));
  host_pipeline(h);
  print_data(h);
  print_metrics(h);
  uint32_t nkernel = print_kernels(h);
  Id count = h->m->entry[ENTRY_COUNT];
  buf_printf(b, "const DtProgram dt_program = {\n    .model = ");
  put_string(b, h->m->name);
  buf_printf(b, ", .build = ");
  put_string(b, build_hash);
  buf_printf(b, ", .type = %s,\n    .param_type = %s, .reduce_type = %s, .loss_scaling = %s,\n",
             host_type[h->m->compute], host_type[param_type(h->m)],
             h->p->zero.bf16 ? "DT_TYPE_BF16" : host_type[h->m->compute],
             h->m->store == DT_F16 ? "true" : "false");
  h->m->target->program(h, arch);
  buf_printf(
      b,
      "    .ndata = %u, .nparam = %u, .ntotal = %u, .nmetric = %u, .nmoment = %d, .nkernel = %u,\n",
      h->m->ndata, h->m->param.n, count == NONE ? 0 : h->m->fn.at[count].result.n, h->m->metric.n,
      host_moments(h), nkernel);
  if (count != NONE && h->random[count]) buf_printf(b, "    .random_totals = true,\n");
  buf_printf(b, "    .data = data, .param = param, %s.kernel = kernel,\n",
             h->m->metric.n ? ".metric = metric, " : "");
  print_train(h);
  buf_printf(b, "    .param_count = %lld, .frame_bytes = %lld, .stores_grad = true,\n",
             h->m->chunk.n ? 0LL : (long long)whole->count, (long long)(h->m->chunk.n ? 0 : largest_frame(h->p, 0)));
  int64_t scratch = h->m->target->scratch(h->p);
  if (scratch) buf_printf(b, "    .scratch_bytes = %lld,\n", (long long)scratch);
  print_axes(h);
  print_zero(h);
  print_pipeline(h);
  print_entries(h);
  print_sample(h);
  buf_printf(b, "    .listing = listing");
  Id loss = h->m->chunk.n ? h->m->chunk.at[h->m->chunk.n - 1].fn[CHUNK_FORWARD] : h->m->entry[ENTRY_STEP];
  if (loss != NONE) host_source(h, h->m->fn.at[loss].loc);
  buf_printf(b, ",\n};\n\n");
  buf_printf(b,
             "int main(int argc, char **argv) {\n  return dt_main(&dt_program, argc, argv);\n}\n");
}
