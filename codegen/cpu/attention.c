// A call of the attention intrinsic (ir/attention.h defines it): its shape as a DtAttention, its
// operands in order. Operands may be views, slices of a packed q, k, v, say: they are strides. lse
// may be dropped.
#include "codegen/cpu/target.h"
#include "codegen/host/host.h"
#include "codegen/lower/intrinsic.h"
#include "runtime/device/cpu/scratch.h"

// The type of operand i: that of q, which may be of 16 bits, or the type that is computed in. Forward, o has either.
static Dtype type_of(const Module *m, const Fn *f, const Id *value, Operand i, bool backward) {
  Dtype half = f->value.at[value[OPD_Q]].type, o = f->value.at[value[OPD_O]].type;
  if (i == OPD_O && !backward && o == m->compute) return o;
  return i == OPD_Q || i == OPD_K || i == OPD_V || i == OPD_O || i == OPD_DO ? half : m->compute;
}

static bool fits(const Module *m, const Fn *f, const Id *value, Operand i, bool backward) {
  static const uint8_t rank[NOPERAND] = {5, 4, 4, 2, 2, 5, 4, 5, 5, 4, 4, 2, 2};
  const Value *v = &f->value.at[value[i]];
  Dtype type = type_of(m, f, value, i, backward);
  if (v->rank != rank[i] || v->type != type) return false;
  if (is_half(type) ? m->compute != DT_F32 : type != m->compute) return false;
  if (v->rank == 2 && is_half(f->value.at[value[OPD_Q]].type)) return false; // slopes, sinks
  // One width of a head is known to the kernels; ranks may share out that of v and o alone.
  return v->rank == 2 || i == OPD_LSE ||
         v->extent[v->rank - 1] == f->value.at[value[OPD_Q]].extent[4];
}

bool cpu_takes_attention(const Module *m, const Fn *f, const Stmt *s, const Id *value) {
  bool backward = m->fn.at[s->call->fn].backward;
  if (m->fn.at[s->call->fn].intrinsic != INTR_ATTENTION) return false;
  for (int i = 0; i < NOPERAND; i++)
    if (value[i] != NONE && !fits(m, f, value, (Operand)i, backward)) return false;
  return true;
}

int64_t cpu_attention_scratch(const Module *m, const Fn *f, const Stmt *s) {
  const Value *q = &f->value.at[s->call->arg[OPD_Q].value];
  return dt_attention_scratch(q->extent[q->rank - 1], m->fn.at[s->call->fn].backward,
                              q->type == DT_F64);
}

// ---- the shape

// The strides of an operand whose dimensions are these.
static void print_stride(Buf *b, const char *name, const char *dims, const Layout *l) {
  buf_printf(b, ",\n    .%s = {", name);
  const char *comma = "";
  for (const char *c = "bgrte"; *c; c++) {
    const char *d = strchr(dims, *c);
    if (!d) continue;
    buf_printf(b, "%s.%c = %lld", comma, *c, (long long)l->stride[d - dims]);
    comma = ", ";
  }
  buf_printf(b, "}");
}

static void print_real(Buf *b, const char *name, double v) {
  buf_printf(b, ", .%s = ", name);
  put_real(b, v);
}

static void print_place(Buf *b, const char *name, const Positions *p) {
  if (!p->by[0] && !p->by[1] && !p->from[0] && !p->from[1]) return;
  buf_printf(b, ",\n    .%s = {.by = {%lld, %lld}, .from = {%lld, %lld}}", name, (long long)p->by[0],
             (long long)p->by[1], (long long)p->from[0], (long long)p->from[1]);
}

// What differs from a plain softmax of all keys.
static void print_form(Buf *b, const Attention *a) {
  buf_printf(b, ".causal = %d", a->causal);
  if (a->ahead) buf_printf(b, ", .ahead = %lld", (long long)a->ahead);
  if (a->window) buf_printf(b, ", .window = %lld", (long long)a->window);
  buf_printf(b, ",\n    .q_turn = %lld, .k_turn = %lld, .scale = ", (long long)a->query.turn,
             (long long)a->key.turn);
  put_real(b, a->scale);
  print_place(b, "q_at", &a->query);
  print_place(b, "k_at", &a->key);
  if (a->cap != 0) print_real(b, "cap", a->cap);
  if (a->bias != 0) print_real(b, "bias", a->bias);
  if (a->apart) buf_printf(b, ", .apart = 1");
  if (a->has_sink) buf_printf(b, ", .has_sink = 1");
  if (a->has_sink && !a->sinks) print_real(b, "sink", a->sink);
}

void cpu_attention_shape(Host *h, Id fn, const Kernel *k) {
  static const struct {
    const char *name, *dims;
  } operand[NOPERAND] = {{"q", "btgre"},  {"k", "btge"},     {"v", "btge"},   {"slope", "gr"},
                         {"sink_at", "gr"}, {"o", "btgre"},  {NULL, NULL},    {"dout", "btgre"},
                         {"dq", "btgre"}, {"dk", "btge"},    {"dv", "btge"},  {"dslope", "gr"},
                         {"dsink", "gr"}};
  const Fn *f = &h->m->fn.at[fn];
  const Stmt *s = &f->stmt.at[k->stmt.at[0]];
  Id v[NOPERAND];
  CHECK(intrinsic_values(h->m, s, v));
  const Value *q = &f->value.at[v[OPD_Q]], *keys = &f->value.at[v[OPD_K]];
  Buf *b = h->out;
  buf_printf(
      b,
      "static const DtAttention %s = {\n    .batch = %lld, .kv_heads = %lld, .group = %lld,"
      " .tq = %lld, .tk = %lld, .dim = %lld, ",
      k->name, (long long)q->extent[0], (long long)q->extent[2], (long long)q->extent[3],
      (long long)q->extent[1], (long long)keys->extent[1], (long long)q->extent[4]);
  print_form(b, &h->m->fn.at[s->call->fn].form);
  for (int i = 0; i < NOPERAND; i++)
    if (operand[i].name && v[i] != NONE)
      print_stride(b, operand[i].name, operand[i].dims, &h->p->fn[fn].layout[v[i]]);
  if (is_half(q->type)) buf_printf(b, ",\n    .operand = %s", host_type[q->type]);
  if (is_half(q->type) && f->value.at[v[OPD_O]].type == DT_F32) buf_printf(b, ", .float_o = 1");
  buf_printf(b, "};\n");
}

// ---- the call

static bool is_moved_at_all(const Attention *a) { return is_moved(&a->query) || is_moved(&a->key); }

// Where the number is that queries or keys stand by.
static Str place(HostFn *x, const Call *c, const Positions *p) {
  return p->by[0] || p->by[1] ? host_pointer(x, c->arg[p->arg].value) : str_intern("NULL");
}

static Str array(HostFn *x, Id value) {
  return value == NONE ? str_intern("NULL") : host_start(x, value);
}

enum { MOST_ARGS = 20 };

// The name of what is called, and its n arguments; NULL: a result that is dropped.
static Str attention_call(HostFn *x, const Kernel *k, Str arg[MOST_ARGS], uint32_t *n) {
  const Call *c = x->f->stmt.at[k->stmt.at[0]].call;
  const Fn *callee = &x->h->m->fn.at[c->fn];
  const Attention *a = &callee->form;
  bool arrays = a->slopes || a->sinks, placed = arrays || is_moved_at_all(a);
  Id v[NOPERAND];
  CHECK(intrinsic_values(x->h->m, &x->f->stmt.at[k->stmt.at[0]], v));
  if (v[OPD_LSE] != NONE &&
      !layout_is_dense(&x->f->value.at[v[OPD_LSE]], &x->fp->layout[v[OPD_LSE]]))
    BUG("attention's lse is a view with gaps");
  arg[0] = k->name;
  *n = 1;
  if (placed) arg[1] = place(x, c, &a->query), arg[2] = place(x, c, &a->key), *n = 3;
  for (int i = OPD_SLOPES; arrays && i <= OPD_SINKS; i++)
    arg[(*n)++] = array(x, v[i]);
  for (int i = OPD_DSLOPES; arrays && callee->backward && i <= OPD_DSINKS; i++)
    arg[(*n)++] = array(x, v[i]);
  for (int i = OPD_Q; i <= (callee->backward ? OPD_DV : OPD_LSE); i++)
    if (i != OPD_SLOPES && i != OPD_SINKS)
      arg[(*n)++] = v[i] == NONE ? NULL : host_start(x, v[i]);
  return str_printf("dt_attend%s%s", callee->backward ? "_bwd" : "",
                    arrays ? "_with" : placed ? "_at" : "");
}

void cpu_attention_launch(HostFn *x, uint32_t kernel) {
  const Kernel *k = &x->fp->kernel.at[kernel];
  Str arg[MOST_ARGS];
  uint32_t n;
  Str name = attention_call(x, k, arg, &n);
  for (uint32_t i = 0; i < n; i++) // dropped, but the implementation writes it
    if (!arg[i]) arg[i] = str_printf("(void *)(%s)", host_frame(x, x->fp->callee_frame[kernel]));
  put_call(&x->body, 2, name, arg, n, ";\n");
}
