// A call of the attention intrinsic (stdlib/nn.dt defines it): its shape as a DtAttention, its
// operands in order.
//
//   forward   (q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, e]) -> (o[b, t, g, r, e], lse[b, g, r,
//   t]) backward  (q, k, v, o, lse, do, inout dq, inout dk, inout dv)
//
// Operands may be views, slices of a packed q, k, v, say: they are strides. lse may be dropped.
#include "codegen/host.h"

enum { Q, K, V, O, LSE, DO, DQ, DK, DV, MOST = 16 };

// What the body says of positions. It compares them where it is causal, and nowhere else:
// `s <= t`, or where a rank has some of the queries only, `s <= rank * C + t`.
typedef struct Positions {
  const Module *m;
  const Fn *callee;
  bool causal, known; // known: every comparison is of that kind, and they agree
  Id rank; // the callee's argument that holds the rank's number, or NONE
  int64_t each; // C: queries of a rank
} Positions;

// index, or rank * C + index
static bool position(const Positions *p, Id e, Id *rank, int64_t *each) {
  const Module *m = p->m;
  *rank = NONE;
  *each = 0;
  if (ex_is(m, e, OP_INDEX)) return true;
  if (!ex_is(m, e, OP_ADD) || !ex_is(m, ex_arg(m, e, 1), OP_INDEX)) return false;
  Id at = ex_arg(m, e, 0);
  if (!ex_is(m, at, OP_MUL) || !ex_is(m, ex_arg(m, at, 0), OP_READ) ||
      !ex_is(m, ex_arg(m, at, 1), OP_INT))
    return false;
  *rank = (Id)ex(m, ex_arg(m, at, 0))->integer;
  *each = ex(m, ex_arg(m, at, 1))->integer;
  return host_rank_arg(m, &p->callee->value.at[*rank]) != NULL;
}

static void find_comparisons(Positions *p, Id e) {
  Op op = (Op)ex(p->m, e)->op;
  for (uint32_t i = 0; i < ex(p->m, e)->narg; i++) find_comparisons(p, ex_arg(p->m, e, i));
  if (op < OP_LT || op > OP_NE) return;
  Id key = ex_arg(p->m, e, 0), query = ex_arg(p->m, e, 1), rank;
  int64_t each;
  bool fits = op == OP_LE && ex_is(p->m, key, OP_INDEX) && position(p, query, &rank, &each);
  p->known &= fits && (!p->causal || (p->rank == rank && p->each == each));
  p->causal = true;
  if (!fits) return;
  p->rank = rank;
  p->each = each;
}

static Positions positions_of(const Module *m, const Fn *callee) {
  Positions p = {.m = m, .callee = callee, .known = true, .rank = NONE};
  for (uint32_t i = 0; i < callee->stmt.n; i++)
    if (callee->stmt.at[i].kind == ST_COMP) find_comparisons(&p, callee->stmt.at[i].body);
  return p;
}

static bool is_causal(const Module *m, const Fn *callee) { return positions_of(m, callee).causal; }

// The rank's number is no operand: the offset of positions comes from it.
static uint32_t operands(const Module *m, const Stmt *s, Id *value) {
  const Fn *callee = &m->fn.at[s->call->fn];
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->call->narg && n < MOST; i++)
    if (!host_rank_arg(m, &callee->value.at[callee->arg.at[i]])) value[n++] = s->call->arg[i].value;
  for (uint32_t i = 0; i < s->call->nresult && n < MOST; i++) value[n++] = s->call->result[i].value;
  return n;
}

static bool call_mentions(const Call *c, Id v) {
  for (uint32_t i = 0; i < c->narg; i++)
    if (c->arg[i].value == v) return true;
  return false;
}

// The backward's implementation stores where the definition adds, so nothing may have been added
// there before.
static bool is_fresh(const Fn *f, const Stmt *call, Id v) {
  if (f->value.at[v].role != ROLE_LOCAL) return false;
  for (const Stmt *s = f->stmt.at; s != call; s++)
    if (s->call ? call_mentions(s->call, v) : s->lhs == v) return false;
  return true;
}

static bool is_attention(const Module *m, const Fn *f, const Stmt *s) {
  const Fn *callee = &m->fn.at[s->call->fn];
  Id v[MOST];
  uint32_t n = operands(m, s, v), want = callee->backward ? DV + 1 : LSE + 1;
  static const uint8_t rank[] = {5, 4, 4, 5, 4, 5, 5, 4, 4};
  if (n != want || !positions_of(m, callee).known) return false; // such as with an adjoint of lse
  for (uint32_t i = 0; i < n; i++) {
    if (v[i] == NONE) {
      if (i != LSE) return false;
      continue;
    }
    const Value *x = &f->value.at[v[i]];
    if (x->rank != rank[i] || x->type != m->compute) return false;
    if (i >= DQ &&
        (!is_fresh(f, s, v[i]) || (i > DQ && v[i] == v[i - 1]) || (i == DV && v[i] == v[DQ])))
      return false;
  }
  return true;
}

// Two products of each pair of positions forward, five backward; half of the pairs where it is
// causal.
static Cost attention_cost(const Module *m, const Fn *f, const Stmt *s) {
  const Fn *callee = &m->fn.at[s->call->fn];
  Id v[MOST];
  uint32_t n = operands(m, s, v);
  const Value *q = &f->value.at[v[Q]], *keys = &f->value.at[v[K]];
  Cost c = {0, (double)value_count(q) * (double)keys->extent[1] * (callee->backward ? 10 : 4)};
  if (is_causal(m, callee)) c.flops /= 2;
  for (uint32_t i = 0; i < n; i++)
    if (v[i] != NONE)
      c.bytes += (double)value_count(&f->value.at[v[i]]) * dtype_size(f->value.at[v[i]].type);
  return c;
}

bool match_intrinsic(const Module *m, const Fn *f, const Stmt *s, Cost *cost) {
  if (s->kind != ST_CALL || m->fn.at[s->call->fn].intrinsic != INTR_ATTENTION ||
      !is_attention(m, f, s))
    return false;
  if (cost) *cost = attention_cost(m, f, s);
  return true;
}

static void print_stride(Buf *b, const char *name, const Layout *l, bool keys) {
  buf_printf(b, ",\n    .%s = {.b = %lld, .g = %lld, ", name, (long long)l->stride[0],
             (long long)l->stride[2]);
  if (!keys) buf_printf(b, ".r = %lld, ", (long long)l->stride[3]);
  buf_printf(b, ".t = %lld, .e = %lld}", (long long)l->stride[1],
             (long long)l->stride[keys ? 3 : 4]);
}

void host_attention_shape(Host *h, Id fn, const Kernel *k) {
  static const char *const name[] = {"q", "k", "v", "o", NULL, "dout", "dq", "dk", "dv"};
  const Fn *f = &h->m->fn.at[fn];
  const Stmt *s = &f->stmt.at[k->stmt.at[0]];
  const Fn *callee = &h->m->fn.at[s->call->fn];
  Id v[MOST];
  uint32_t n = operands(h->m, s, v);
  const Value *q = &f->value.at[v[Q]], *keys = &f->value.at[v[K]];
  Buf *b = h->out;
  buf_printf(
      b,
      "static const DtAttention %s = {\n    .batch = %lld, .kv_heads = %lld, .group = %lld, .tq = %lld,"
      " .tk = %lld, .dim = %lld, .causal = %d,\n    .scale = ",
      k->name, (long long)q->extent[0], (long long)q->extent[2], (long long)q->extent[3],
      (long long)q->extent[1], (long long)keys->extent[1], (long long)q->extent[4],
      is_causal(h->m, callee));
  put_real(b, 1 / __builtin_sqrt((double)q->extent[4]));
  for (uint32_t i = Q; i < n; i++)
    if (name[i])
      print_stride(b, name[i], &h->p->fn[fn].layout[v[i]], i == K || i == V || i == DK || i == DV);
  buf_printf(b, "};\n");
}

uint32_t host_attention_args(const Host *h, Id fn, const Kernel *k, Id *arg) {
  const Fn *f = &h->m->fn.at[fn];
  uint32_t n = operands(h->m, &f->stmt.at[k->stmt.at[0]], arg);
  if (arg[LSE] != NONE && !layout_is_dense(&f->value.at[arg[LSE]], &h->p->fn[fn].layout[arg[LSE]]))
    BUG("attention's lse is a view with gaps");
  return n;
}

Str host_attention_first(HostFn *x, const Kernel *k) {
  const Stmt *s = &x->f->stmt.at[k->stmt.at[0]];
  Positions p = positions_of(x->h->m, &x->h->m->fn.at[s->call->fn]);
  for (uint32_t i = 0; p.rank != NONE && i < s->call->narg; i++)
    if (p.callee->arg.at[i] == p.rank)
      return str_printf("(int64_t)*%s * %lld", host_pointer(x, s->call->arg[i].value),
                        (long long)p.each);
  return NULL;
}
