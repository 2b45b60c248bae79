// A call of the attention intrinsic (ir/attention.h defines it): its shape as a struct of constants, and for each of its
// kernels (runtime/device/cuda/attention.h) a wrapper that names its arrays. Operands may be views: they are strides.
#include "codegen/cuda/cuda.h"
#include "codegen/lower/intrinsic.h"

#include <stdlib.h>

enum { MOST_DIM = 256, MOST_PLACE = 1 << 30, MOST_ARGS = NOPERAND + 3 };

// The kernels' arguments besides operands: sum(e: o * dout) of each query, and ints that say where a rank stands.
enum { ARG_DELTA = NOPERAND, ARG_QUERY_RANK, ARG_KEY_RANK, NARGS };
static const char *const arg_name[NARGS] = {"q",  "k",  "v",       "slopes", "sinks", "o",          "lse",   "dout",
                                            "dq", "dk", "dv", "dslopes", "dsinks", "delta", "query_rank", "key_rank"};

// A kernel of the call.
typedef struct Part {
  Str suffix; // of its name; "": the call's only one
  Str function; // of attention.h
  Str comment;
  int64_t blocks;
  int threads;
  bool placed; // it asks who sees whom
  uint8_t arg[MOST_ARGS];
  uint32_t narg;
} Part;

typedef struct AttentionCall {
  const Module *m;
  const Fn *f, *callee;
  const Stmt *s;
  const Attention *a;
  Id value[NOPERAND];
  int64_t batch, kv_heads, group, tq, tk, dim;
  bool tensor; // tensor cores compute it
} AttentionCall;

static AttentionCall call_of(const Module *m, const Fn *f, const Stmt *s) {
  AttentionCall c = {.m = m, .f = f, .callee = &m->fn.at[s->call->fn], .s = s};
  CHECK(intrinsic_values(m, s, c.value));
  const Value *q = &f->value.at[c.value[OPD_Q]], *k = &f->value.at[c.value[OPD_K]];
  c.a = &c.callee->form;
  c.batch = q->extent[0], c.tq = q->extent[1], c.kv_heads = q->extent[2], c.group = q->extent[3], c.dim = q->extent[4];
  c.tk = k->extent[1];
  return c;
}

// ---- which calls

static bool fits(const Module *m, const Fn *f, const Id *value, Operand i) {
  static const uint8_t rank[NOPERAND] = {5, 4, 4, 2, 2, 5, 4, 5, 5, 4, 4, 2, 2};
  const Value *v = &f->value.at[value[i]];
  bool half = is_half(v->type) && m->compute == DT_F32 && i != OPD_LSE;
  if (v->rank != rank[i] || (v->type != m->compute && !half)) return false;
  // One width of a head is known to the kernels; ranks may share out that of v and o alone.
  return v->rank == 2 || i == OPD_LSE || v->extent[v->rank - 1] == f->value.at[value[OPD_Q]].extent[4];
}

static bool is_near(const Positions *p) {
  for (int side = 0; side < 2; side++)
    if (llabs(p->by[side]) > MOST_PLACE || llabs(p->from[side]) > MOST_PLACE) return false;
  return true;
}

bool cuda_takes_attention(const Module *m, const Fn *f, const Stmt *s, const Id *value) {
  const Fn *callee = &m->fn.at[s->call->fn];
  if (callee->intrinsic != INTR_ATTENTION || (m->compute != DT_F32 && m->compute != DT_F64)) return false;
  for (int i = 0; i < NOPERAND; i++)
    if (value[i] != NONE && !fits(m, f, value, (Operand)i)) return false;
  AttentionCall c = call_of(m, f, s);
  const Attention *a = c.a;
  if (c.dim > MOST_DIM || c.tq > MOST_PLACE || c.tk > MOST_PLACE || c.batch * c.kv_heads * c.group > MOST_PLACE) return false;
  return a->ahead <= MOST_PLACE && a->window <= MOST_PLACE && is_near(&a->query) && is_near(&a->key);
}

int64_t cuda_attention_scratch(const Module *m, const Fn *f, const Stmt *s) {
  AttentionCall c = call_of(m, f, s);
  return c.callee->backward ? c.batch * c.kv_heads * c.group * c.tq * (int64_t)dtype_size(m->compute) : 0;
}

// ---- its kernels

// Rows that begin at multiples of 16 bytes, their elements next to each other.
static bool has_whole_rows(const Cuda *c, Id value) {
  const Layout *l = &c->fp->layout[value];
  uint32_t last = c->f->value.at[value].rank - 1u;
  if (l->stride[last] != 1 || l->offset % 8 || cuda_alignment(c, l->buffer) < 16) return false;
  for (uint32_t d = 0; d < last; d++)
    if (l->stride[d] % 8) return false;
  return true;
}

// As runtime/device/cuda/flash.h takes operands.
static bool by_tensor_cores(const Plan *p, const FnPlan *fp, const AttentionCall *call) {
  const Cuda c = {.plan = p, .m = p->m, .f = call->f, .fp = fp};
  Dtype t = call->f->value.at[call->value[OPD_Q]].type;
  const Operand operand[] = {OPD_Q, OPD_K, OPD_V, OPD_DO};
  int n = call->callee->backward ? 4 : 3;
  if (!is_half(t) || call->dim % 16 || call->dim > (call->callee->backward ? 64 : 128)) return false; // sums fit in registers
  for (int i = 0; i < n; i++)
    if (call->f->value.at[call->value[operand[i]]].type != t || !has_whole_rows(&c, call->value[operand[i]])) return false;
  return true;
}

static AttentionCall call_of_kernel(const Plan *p, const FnPlan *fp, const Kernel *k) {
  const Fn *f = &p->m->fn.at[fp->fn];
  AttentionCall c = call_of(p->m, f, &f->stmt.at[k->stmt.at[0]]);
  c.tensor = by_tensor_cores(p, fp, &c);
  return c;
}

// Operands that the call may lack are in the list, too.
static void add(Part *p, const AttentionCall *c, const uint8_t *arg, uint32_t n) {
  memcpy(p->arg, arg, n);
  p->narg = n;
  if (!p->placed) return;
  if (c->a->query.by[0] || c->a->query.by[1]) p->arg[p->narg++] = ARG_QUERY_RANK;
  if (c->a->key.by[0] || c->a->key.by[1]) p->arg[p->narg++] = ARG_KEY_RANK;
}
static bool has(const AttentionCall *c, uint8_t arg) { return arg >= NOPERAND || arg == OPD_LSE || c->value[arg] != NONE; }
#define ADD(part, ...) add(part, c, (const uint8_t[]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}))

// Rows of a block's tile: as DtTiling has them.
static int64_t tile_of(const AttentionCall *c) { return c->dim * (int64_t)dtype_size(c->m->compute) <= 512 ? 64 : 32; }

// A kernel with a block for each tile of `rows` of each of `heads`.
static Part tiled(const AttentionCall *c, Str suffix, Str function, Str computes, int64_t heads, int64_t rows) {
  int64_t tile = c->tensor ? 64 : tile_of(c);
  return (Part){.suffix = suffix,
                .function = str_printf("%s_%s", c->tensor ? "flash" : "attention", function),
                .comment = str_printf(computes, (long long)tile),
                .blocks = heads * ((rows + tile - 1) / tile),
                .threads = c->tensor ? 128 : 256,
                .placed = true};
}

static uint32_t parts_of(const AttentionCall *c, Part *p) {
  int64_t kv_heads = c->batch * c->kv_heads, heads = kv_heads * c->group;
  if (!c->callee->backward) {
    p[0] = tiled(c, "", "forward", "%lld queries of a head a block", heads, c->tq);
    ADD(&p[0], OPD_Q, OPD_K, OPD_V, OPD_SLOPES, OPD_SINKS, OPD_O, OPD_LSE);
    return 1;
  }
  p[0] = (Part){"_delta", "attention_delta", "sum(e: o * dout), a warp for each query", (heads * c->tq + 7) / 8, 256, .placed = false};
  ADD(&p[0], OPD_O, OPD_DO, ARG_DELTA);
  p[1] = tiled(c, "_keys", "keys", "dk and dv, %lld keys a block", kv_heads, c->tk);
  ADD(&p[1], OPD_Q, OPD_K, OPD_V, OPD_SLOPES, OPD_LSE, OPD_DO, ARG_DELTA, OPD_DK, OPD_DV);
  p[2] = tiled(c, "_queries", "queries", "dq, %lld queries of a head a block", heads, c->tq);
  ADD(&p[2], OPD_Q, OPD_K, OPD_V, OPD_SLOPES, OPD_LSE, OPD_DO, ARG_DELTA, OPD_DQ);
  if (c->value[OPD_DSLOPES] == NONE && c->value[OPD_DSINKS] == NONE) return 3;
  p[3] = (Part){"_heads", "attention_heads", "gradients by head, a block each", c->kv_heads * c->group, 256, .placed = false};
  ADD(&p[3], OPD_SINKS, OPD_LSE, ARG_DELTA, OPD_DSLOPES, OPD_DSINKS);
  return 4;
}

uint32_t cuda_attention_kernels(const Plan *p, Id fn, const Kernel *k, Str *suffix) {
  Part part[CUDA_MOST_PARTS];
  AttentionCall c = call_of_kernel(p, &p->fn[fn], k);
  uint32_t n = parts_of(&c, part);
  for (uint32_t i = 0; i < n; i++) suffix[i] = part[i].suffix;
  return n;
}

// ---- the shape

static void put_strides(Cuda *c, const char *name, const Layout *l, bool grouped) {
  const int64_t *s = l->stride;
  buf_printf(c->out, "  using %s = DtStrides<%lld, %lld, %lld, %lld, %lld>;\n", name, (long long)s[0], (long long)s[1],
             (long long)s[2], grouped ? (long long)s[3] : 0LL, (long long)s[grouped ? 4 : 3]);
}

static void put_by_head(Cuda *c, const char *name, const Layout *l) {
  buf_printf(c->out, "  static constexpr int %s_g = %lld, %s_r = %lld;\n", name, (long long)l->stride[0], name, (long long)l->stride[1]);
}

// The parameters of all but a plain softmax of all keys.
static void put_form(Cuda *c, const Attention *a) {
  Buf *b = c->out;
  if (a->causal) buf_printf(b, "  static constexpr bool causal = true;\n");
  if (a->ahead) buf_printf(b, "  static constexpr int ahead = %lld;\n", (long long)a->ahead);
  if (a->window) buf_printf(b, "  static constexpr int window = %lld;\n", (long long)a->window);
  if (a->query.turn) buf_printf(b, "  static constexpr int q_turn = %lld;\n", (long long)a->query.turn);
  if (a->key.turn) buf_printf(b, "  static constexpr int k_turn = %lld;\n", (long long)a->key.turn);
  if (a->apart) buf_printf(b, "  static constexpr bool apart = true;\n");
  if (a->has_sink) buf_printf(b, "  static constexpr bool has_sink = true;\n");
  const struct {
    const char *name;
    double v;
  } real[] = {{"cap", a->cap}, {"bias", a->bias}, {"sink", a->has_sink && !a->sinks ? a->sink : 0}};
  buf_printf(b, "  static constexpr double scale = ");
  put_real(b, a->scale);
  for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
    if (real[i].v == 0) continue;
    buf_printf(b, ", %s = ", real[i].name);
    put_real(b, real[i].v);
  }
  buf_printf(b, ";\n");
}

static void put_shape(Cuda *c, const AttentionCall *call) {
  static const struct {
    const char *name;
    Operand of;
    bool grouped;
  } operand[] = {{"Q", OPD_Q, true},   {"K", OPD_K, false},   {"V", OPD_V, false},   {"O", OPD_O, true},
                 {"DO", OPD_DO, true}, {"DQ", OPD_DQ, true}, {"DK", OPD_DK, false}, {"DV", OPD_DV, false}},
    by_head[] = {{"slope", OPD_SLOPES, 0}, {"sink", OPD_SINKS, 0}, {"dslope", OPD_DSLOPES, 0}, {"dsink", OPD_DSINKS, 0}};
  buf_printf(c->out, "struct %s_shape : DtAttention {\n", c->k->name);
  buf_printf(c->out, "  static constexpr int batch = %lld, kv_heads = %lld, group = %lld, tq = %lld, tk = %lld, dim = %lld;\n",
             (long long)call->batch, (long long)call->kv_heads, (long long)call->group, (long long)call->tq, (long long)call->tk,
             (long long)call->dim);
  put_form(c, call->a);
  buf_printf(c->out, "  // strides of b, t, g, r, e\n");
  for (size_t i = 0; i < sizeof operand / sizeof *operand; i++)
    if (call->value[operand[i].of] != NONE)
      put_strides(c, operand[i].name, &c->fp->layout[call->value[operand[i].of]], operand[i].grouped);
  for (size_t i = 0; i < sizeof by_head / sizeof *by_head; i++)
    if (call->value[by_head[i].of] != NONE) put_by_head(c, by_head[i].name, &c->fp->layout[call->value[by_head[i].of]]);
  buf_printf(c->out, "};\n");
}

// ---- the wrappers

static const char *type_of_arg(Cuda *c, const AttentionCall *call, uint8_t arg) {
  if (arg == ARG_QUERY_RANK || arg == ARG_KEY_RANK) return "int";
  if (arg == ARG_DELTA || arg == OPD_LSE) return c->real;
  return cuda_type(c, c->f->value.at[call->value[arg]].type);
}

static bool is_written(const AttentionCall *call, const Part *p, uint8_t arg) {
  if (arg == ARG_DELTA) return !strcmp(p->suffix, "_delta");
  return (arg >= OPD_DQ && arg < NOPERAND) || (!call->callee->backward && (arg == OPD_O || arg == OPD_LSE));
}

static void put_signature(Cuda *c, const AttentionCall *call, const Part *p) {
  Str arg[MOST_ARGS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->narg; i++)
    if (has(call, p->arg[i]))
      arg[n++] = str_printf("%s%s *__restrict__ %s", is_written(call, p, p->arg[i]) ? "" : "const ",
                            type_of_arg(c, call, p->arg[i]), arg_name[p->arg[i]]);
  buf_printf(c->out, "// %s: <<<%lld, %d>>>\n", p->comment, (long long)p->blocks, p->threads);
  buf_printf(c->out, "extern \"C\" __global__ void __launch_bounds__(%d, 1)\n", p->threads); // 1: registers for all sums, no spills
  put_call(c->out, 0, str_printf("%s_kernel%s", c->k->name, p->suffix), arg, n, " {\n");
}

// Where the first place (side 0) or the place at the turn (side 1) stands, less its number.
static void put_position(const Positions *p, const char *rank, int side, Buf *out) {
  if (p->by[side]) buf_printf(out, "*%s * %lld", rank, (long long)p->by[side]);
  if (p->from[side] || !p->by[side])
    buf_printf(out, "%s%lld", p->by[side] ? " + " : "", (long long)p->from[side]);
}

static Str difference(const Positions *a, const char *a_rank, int a_side, const Positions *b, const char *b_rank, int b_side) {
  Buf out = {0};
  put_position(a, a_rank, a_side, &out);
  if (b->by[b_side] || b->from[b_side]) {
    buf_printf(&out, " - (");
    put_position(b, b_rank, b_side, &out);
    buf_printf(&out, ")");
  }
  Str text = str_internn(out.text, out.n);
  buf_free(&out);
  return text;
}

static void put_places(Cuda *c, const Attention *a) {
  const Positions *q = &a->query, *k = &a->key;
  const char *qr = arg_name[ARG_QUERY_RANK], *kr = arg_name[ARG_KEY_RANK];
  if (!is_moved(q) && !is_moved(k)) {
    buf_printf(c->out, "  const DtPlaces places = {0, 0, 0};\n");
    return;
  }
  buf_printf(c->out, "  const DtPlaces places = {%s, %s, %s};\n", difference(q, qr, 0, k, kr, 0),
             q->turn ? difference(q, qr, 1, q, qr, 0) : "0", k->turn ? difference(k, kr, 1, k, kr, 0) : "0");
}

// An array that the call lacks is a null pointer.
static void put_body(Cuda *c, const AttentionCall *call, const Part *p) {
  Str arg[MOST_ARGS + 1];
  uint32_t n = 0;
  if (p->placed) {
    put_places(c, call->a);
    arg[n++] = "places";
  }
  for (uint32_t i = 0; i < p->narg && p->arg[i] < ARG_QUERY_RANK; i++)
    arg[n++] = has(call, p->arg[i]) ? arg_name[p->arg[i]] : str_printf("(%s *)nullptr", c->real);
  put_call(c->out, 2, str_printf(p->threads == 128 ? "dt_%s<%s_shape>" : "dt_%s<%s_shape, %s>", p->function, c->k->name, c->real), arg, n, ";\n");
  buf_printf(c->out, "}\n");
}

void cuda_attention(Cuda *c) {
  Part part[CUDA_MOST_PARTS];
  AttentionCall call = call_of_kernel(c->plan, c->fp, c->k);
  uint32_t n = parts_of(&call, part);
  c->s = (Schedule){TEAM_BLOCK, 256, 1, 0, 0, 1};
  put_kernel(c->m, c->f, c->k, c->out);
  put_shape(c, &call);
  for (uint32_t i = 0; i < n; i++) {
    if (part[i].blocks > c->s.blocks) c->s.blocks = part[i].blocks;
    buf_printf(c->out, "\n");
    put_signature(c, &call, &part[i]);
    put_body(c, &call, &part[i]);
  }
}

// ---- in emitted C

void cuda_declare_attention(Host *h, Id fn, const Kernel *k) {
  Part part[CUDA_MOST_PARTS];
  AttentionCall c = call_of_kernel(h->p, &h->p->fn[fn], k);
  uint32_t n = parts_of(&c, part);
  buf_printf(h->out, "static DtCudaKernel %s[] = {\n", k->name);
  for (uint32_t i = 0; i < n; i++)
    buf_printf(h->out, "    {\"%s_kernel%s\", %lld, %d, 1, NULL},\n", k->name, part[i].suffix, (long long)part[i].blocks,
               part[i].threads);
  buf_printf(h->out, "};\n");
}

static Str host_argument(HostFn *x, const AttentionCall *c, uint32_t kernel, uint8_t arg) {
  const Call *call = c->s->call;
  switch (arg) {
  case ARG_DELTA: return "dt_cuda_scratch()";
  case ARG_QUERY_RANK: return host_pointer(x, call->arg[c->a->query.arg].value);
  case ARG_KEY_RANK: return host_pointer(x, call->arg[c->a->key.arg].value);
  default: break;
  }
  if (c->value[arg] == NONE) return host_frame(x, x->fp->callee_frame[kernel]); // dropped, but the kernel writes it
  if (arg == OPD_LSE && !layout_is_dense(&x->f->value.at[c->value[arg]], &x->fp->layout[c->value[arg]]))
    BUG("attention's lse is a view with gaps");
  return host_start(x, c->value[arg]);
}

void cuda_launch_attention(HostFn *x, uint32_t kernel) {
  const Kernel *k = &x->fp->kernel.at[kernel];
  Part part[CUDA_MOST_PARTS];
  AttentionCall c = call_of_kernel(x->h->p, x->fp, k);
  uint32_t parts = parts_of(&c, part);
  for (uint32_t i = 0; i < parts; i++) {
    Str arg[MOST_ARGS + 2] = {k->name, str_printf("%u", i)};
    uint32_t n = 2;
    for (uint32_t j = 0; j < part[i].narg; j++)
      if (has(&c, part[i].arg[j])) arg[n++] = host_argument(x, &c, kernel, part[i].arg[j]);
    put_call(&x->body, 2, "dt_launch_part", arg, n, ";\n");
  }
}
