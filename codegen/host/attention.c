// A call of the attention intrinsic (stdlib/nn.dt defines it): its shape as a DtAttention, its
// operands in order.
//
//   forward   (q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, e]) -> (o[b, t, g, r, e], lse[b, g, r,
//   t]) backward  (q, k, v, o, lse, do, inout dq, inout dk, inout dv)
//
// Operands may be views, slices of a packed q, k, v, say: they are strides. lse may be dropped.
#include "codegen/host/host.h"

enum { Q, K, V, O, LSE, DO, DQ, DK, DV, MOST = 16 };

// A position in terms of an index: `near` + index, and `far` + index from `turn` on, where ranks
// have two blocks of a folded sequence. near and far are of ints that the callee is given, or NONE:
// 0; turn 0: far is near.
typedef struct Place {
  int64_t turn;
  Id near, far;
} Place;

// What the body says of positions. It compares ints where it is causal, and nowhere else: the
// position of a key <= that of a query.
typedef struct Positions {
  const Module *m;
  const Fn *callee;
  bool causal, known; // known: every comparison is of that kind, and they agree
  Place key, query;
} Positions;

// Sums and products of constants and of the callee's ints.
static bool is_scalar(const Positions *p, Id e) {
  const Expr *x = ex(p->m, e);
  if (x->op == OP_INT) return true;
  if (x->op == OP_READ) return !x->narg && p->callee->value.at[x->integer].role == ROLE_IN;
  return (x->op == OP_ADD || x->op == OP_SUB || x->op == OP_MUL) &&
         is_scalar(p, ex_arg(p->m, e, 0)) && is_scalar(p, ex_arg(p->m, e, 1));
}

// index, or a scalar + index
static bool find_offset(const Positions *p, Id e, Id index, Id *offset) {
  *offset = NONE;
  if (e == index) return true;
  if (!ex_is(p->m, e, OP_ADD) || ex_arg(p->m, e, 1) != index) return false;
  *offset = ex_arg(p->m, e, 0);
  return is_scalar(p, *offset);
}

// where(index < turn, near + index, far + index), or the former
static bool find_place(const Positions *p, Id e, Place *to) {
  const Module *m = p->m;
  Id index = e;
  *to = (Place){0, NONE, NONE};
  if (ex_is(m, e, OP_WHERE)) {
    Id cond = ex_arg(m, e, 0);
    if (!ex_is(m, cond, OP_LT) || !ex_is(m, ex_arg(m, cond, 1), OP_INT)) return false;
    index = ex_arg(m, cond, 0);
    to->turn = ex(m, ex_arg(m, cond, 1))->integer;
    return ex_is(m, index, OP_INDEX) && find_offset(p, ex_arg(m, e, 1), index, &to->near) &&
           find_offset(p, ex_arg(m, e, 2), index, &to->far);
  }
  if (ex_is(m, e, OP_ADD)) index = ex_arg(m, e, 1);
  if (!ex_is(m, index, OP_INDEX) || !find_offset(p, e, index, &to->near)) return false;
  to->far = to->near;
  return true;
}

static bool same_place(const Place *a, const Place *b) {
  return a->turn == b->turn && a->near == b->near && a->far == b->far;
}

static void find_comparisons(Positions *p, Id e) {
  Op op = (Op)ex(p->m, e)->op;
  Place key, query;
  if (op >= OP_LT && op <= OP_NE && ex(p->m, ex_arg(p->m, e, 0))->type == SC_INT) {
    bool fits = op == OP_LE && find_place(p, ex_arg(p->m, e, 0), &key) &&
                find_place(p, ex_arg(p->m, e, 1), &query);
    bool same = fits && same_place(&p->key, &key) && same_place(&p->query, &query);
    p->known &= fits && (!p->causal || same);
    p->causal = true;
    if (!fits) return;
    p->key = key;
    p->query = query;
    return;
  }
  for (uint32_t i = 0; i < ex(p->m, e)->narg; i++) find_comparisons(p, ex_arg(p->m, e, i));
}

static Positions positions_of(const Module *m, const Fn *callee) {
  Positions p = {.m = m, .callee = callee, .known = true, .key = {0, NONE, NONE},
                 .query = {0, NONE, NONE}};
  for (uint32_t i = 0; i < callee->stmt.n; i++)
    if (callee->stmt.at[i].kind == ST_COMP) find_comparisons(&p, callee->stmt.at[i].body);
  return p;
}

static bool is_causal(const Module *m, const Fn *callee) { return positions_of(m, callee).causal; }

// Ints are no operands: positions come from them.
static uint32_t operands(const Module *m, const Stmt *s, Id *value) {
  const Fn *callee = &m->fn.at[s->call->fn];
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->call->narg && n < MOST; i++)
    if (callee->value.at[callee->arg.at[i]].rank) value[n++] = s->call->arg[i].value;
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
    // One width of a head is known to the kernels; ranks may share out that of v and o alone.
    if (i != LSE && x->extent[x->rank - 1] != f->value.at[v[Q]].extent[4]) return false;
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
  Positions p = positions_of(h->m, callee);
  Buf *b = h->out;
  buf_printf(
      b,
      "static const DtAttention %s = {\n    .batch = %lld, .kv_heads = %lld, .group = %lld, .tq = %lld,"
      " .tk = %lld, .dim = %lld, .causal = %d,\n    .q_turn = %lld, .k_turn = %lld, .scale = ",
      k->name, (long long)q->extent[0], (long long)q->extent[2], (long long)q->extent[3],
      (long long)q->extent[1], (long long)keys->extent[1], (long long)q->extent[4],
      p.causal, (long long)p.query.turn, (long long)p.key.turn);
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

// A scalar of the callee's arguments at a call, as a C expression; NONE is 0.
static void put_scalar(HostFn *x, const Positions *p, const Call *c, Id e, Buf *out) {
  static const char *const sign[NOP] = {[OP_ADD] = " + ", [OP_SUB] = " - ", [OP_MUL] = " * "};
  const Expr *k = e == NONE ? NULL : ex(p->m, e);
  if (!k || k->op == OP_INT) {
    buf_printf(out, "%lld", k ? (long long)k->integer : 0);
  } else if (k->op == OP_READ) {
    uint32_t i = 0;
    while (p->callee->arg.at[i] != (Id)k->integer) i++;
    buf_printf(out, "(int64_t)*%s", host_pointer(x, c->arg[i].value));
  } else {
    buf_printf(out, "(");
    put_scalar(x, p, c, ex_arg(p->m, e, 0), out);
    buf_printf(out, "%s", sign[k->op]);
    put_scalar(x, p, c, ex_arg(p->m, e, 1), out);
    buf_printf(out, ")");
  }
}

static Str difference(HostFn *x, const Positions *p, const Call *c, Id a, Id b) {
  Buf out = {0};
  put_scalar(x, p, c, a, &out);
  if (b != NONE) {
    buf_printf(&out, " - ");
    put_scalar(x, p, c, b, &out);
  }
  Str text = str_internn(out.text, out.n);
  buf_free(&out);
  return text;
}

static const Call *call_of(const HostFn *x, const Kernel *k) {
  return x->f->stmt.at[k->stmt.at[0]].call;
}

uint32_t host_attention_place(HostFn *x, const Kernel *k, Str place[3]) {
  const Call *c = call_of(x, k);
  Positions p = positions_of(x->h->m, &x->h->m->fn.at[c->fn]);
  if (p.query.near == NONE && p.query.far == NONE && p.key.near == NONE && p.key.far == NONE)
    return 0;
  place[0] = difference(x, &p, c, p.query.near, p.key.near);
  place[1] = p.query.turn ? difference(x, &p, c, p.query.far, p.query.near) : str_intern("0");
  place[2] = p.key.turn ? difference(x, &p, c, p.key.far, p.key.near) : str_intern("0");
  return 3;
}
