// Attention on shares of the sequence (passes/shard/ring.c) as the n steps of a ring: at step j rank
// r has the keys and values of rank r - j, computes its queries' part of attention with them, and
// has sent them on to the next rank before (codegen/lower/overlap.c lets that go on meanwhile).
//
//   forward   o, lse of the parts are merged as they come: with e1 = exp(lse1 - max), e2 = exp(lse2
//             - max), lse = log(e1 + e2) + max and o = (e1 o1 + e2 o2) / (e1 + e2)
//   backward  with o and lse of the whole each part is exact by itself; sums of dk and dv go round
//             with the shares that they are of, and one step more brings them home
//
// A part is a function, an intrinsic that is the body with positions of shares in the place of
// indices and without a sink, and for which a query that sees no key has o = 0 and lse = -inf. The
// sink is merged last, as a part with o = 0.
//
// In bf16 and fp16 q, k, v, o of the whole and its adjoint have 16 bits, and shares of k and v are sent
// so. The rest is float, o of a part too: o of the whole is rounded once, and sums of dk and dv never.
#include "ir/intrinsic.h"
#include "ir/layout.h"
#include "passes/localise/localise.h"
#include "passes/shard/shard.h"

// ---- writing statements over named indices

// Extents by letter: b batch, t query, s key, g group, r query head of the group, e feature. The
// statement being written has an index for each of `letters`, the first nfree of them free.
typedef struct Writer {
  Module *m;
  Fn *f;
  int64_t extent[128];
  const char *letters;
  Id loc;
  Dtype type;
} Writer;

static Id at(const Writer *w, char c) {
  return ex_index(w->m, (uint32_t)(strchr(w->letters, c) - w->letters));
}

static Id get(const Writer *w, Id value, const char *sub) {
  Id id[MAX_RANK] = {0};
  for (uint32_t d = 0; sub[d]; d++) id[d] = at(w, sub[d]);
  return ex_read(w->m, w->f, value, id);
}

static Id typed_value(const Writer *w, Str name, Dtype type, const char *dims) {
  int64_t extent[MAX_RANK] = {0};
  uint32_t rank = (uint32_t)strlen(dims);
  for (uint32_t d = 0; d < rank; d++) extent[d] = w->extent[(int)dims[d]];
  return fn_value(w->m, w->f, name, type, extent, rank, ROLE_LOCAL, w->loc);
}

static Id new_value(const Writer *w, Str name, const char *dims) {
  return typed_value(w, name, w->type, dims);
}

// lhs[sub] = red(what letters are not in sub: body)
static void put(const Writer *w, Id lhs, const char *sub, bool acc, Red red, Id body) {
  Index index[MAX_INDEX];
  Id id[MAX_RANK] = {0};
  uint32_t n = (uint32_t)strlen(w->letters);
  for (uint32_t i = 0; i < n; i++)
    index[i] = (Index){.name = str_internn(w->letters + i, 1),
                       .extent = w->extent[(int)w->letters[i]]};
  for (uint32_t d = 0; sub[d]; d++) id[d] = at(w, sub[d]);
  fn_comp(w->m, w->f, lhs, id, acc, red, index, (uint32_t)strlen(sub), n, body, w->loc);
}

static Id set(const Writer *w, const char *name, const char *sub, Red red, Id body) {
  Id v = new_value(w, str_intern(name), sub);
  put(w, v, sub, false, red, body);
  return v;
}

static Id exp_less(Module *m, Id a, Id b) { return ex1(m, OP_EXP, ex2(m, OP_SUB, a, b)); }

// ---- a part

typedef struct Part {
  Writer w;
  Id value[NOPERAND]; // or NONE
  uint32_t axis;
  int64_t block;
  Id from, rank; // whose keys and queries these are, where that matters
} Part;

static Id where_it_stands(Part *p, Id rank, char c) {
  if (rank == NONE) return at(&p->w, c);
  Id number = ex_read(p->w.m, p->w.f, rank, NULL);
  return local_position(p->w.m, p->axis, number, at(&p->w, c), p->w.extent[(int)c], p->block);
}

static Id products(Part *p) {
  p->w.letters = "bgrtse";
  Id product = ex2(p->w.m, OP_MUL, get(&p->w, p->value[OPD_Q], "btgre"),
                   get(&p->w, p->value[OPD_K], "bsge"));
  return set(&p->w, "z.sum", "bgrts", RED_SUM, product);
}

// Scores, -inf where the query does not see the key.
static Id scores(Part *p, Id sum) {
  p->w.letters = "bgrts";
  Id slopes = p->value[OPD_SLOPES], slope = slopes == NONE ? NONE : get(&p->w, slopes, "gr");
  Id t = where_it_stands(p, p->rank, 't'), s = where_it_stands(p, p->from, 's');
  Id body = intrinsic_score(p->w.m, p->w.f, get(&p->w, sum, "bgrts"), t, s, slope);
  return set(&p->w, "z", "bgrts", RED_NONE, body);
}

// The value, or 0 where it is -inf.
static Id or_zero(Module *m, Id x) {
  return ex3(m, OP_WHERE, ex2(m, OP_GT, x, ex_real(m, -__builtin_inf())), x, ex_real(m, 0));
}

static void forward_part(Part *p, Id o, Id lse) {
  Module *m = p->w.m;
  Writer *w = &p->w;
  Id z = scores(p, products(p));
  Id top = set(w, "m", "bgrt", RED_MAX, get(w, z, "bgrts"));
  w->letters = "bgrt";
  Id base = set(w, "base", "bgrt", RED_NONE, or_zero(m, get(w, top, "bgrt")));
  w->letters = "bgrts";
  Id sum = set(w, "lse.sum", "bgrt", RED_SUM,
               exp_less(m, get(w, z, "bgrts"), get(w, base, "bgrt")));
  w->letters = "bgrt";
  put(w, lse, "bgrt", false, RED_NONE,
      ex2(m, OP_ADD, ex1(m, OP_LOG, get(w, sum, "bgrt")), get(w, base, "bgrt")));
  w->letters = "btgres";
  Id weight = exp_less(m, get(w, z, "bgrts"), get(w, base, "bgrt"));
  Id v = get(w, p->value[OPD_V], "bsge");
  Id all = set(w, "o.sum", "btgre", RED_SUM, ex2(m, OP_MUL, weight, v));
  w->letters = "btgre"; // a sum of 0 is of no keys, else it is 1 at least
  Id one = ex2(m, OP_MAX, get(w, sum, "bgrt"), ex_real(m, 1));
  put(w, o, "btgre", false, RED_NONE, ex2(m, OP_DIV, get(w, all, "btgre"), one));
}

// sum(e: o * do), of each query
static Id dots(Writer *w, const Id *v) {
  w->letters = "bgrte";
  return set(w, "dot", "bgrt", RED_SUM,
             ex2(w->m, OP_MUL, get(w, v[OPD_O], "btgre"), get(w, v[OPD_DO], "btgre")));
}

static void backward_part(Part *p) {
  Module *m = p->w.m;
  Writer *w = &p->w;
  const Id *v = p->value;
  Id dot = dots(w, v), sum = products(p), z = scores(p, sum);
  Id prob = set(w, "p", "bgrts", RED_NONE,
                exp_less(m, get(w, z, "bgrts"), get(w, v[OPD_LSE], "bgrt")));
  w->letters = "bgrtse";
  Id dp = set(w, "d.p", "bgrts", RED_SUM,
              ex2(m, OP_MUL, get(w, v[OPD_DO], "btgre"), get(w, v[OPD_V], "bsge")));
  w->letters = "bgrts";
  Id less = ex2(m, OP_SUB, get(w, dp, "bgrts"), get(w, dot, "bgrt"));
  Id by = intrinsic_score_adjoint(m, w->f, get(w, sum, "bgrts"), where_it_stands(p, p->rank, 't'),
                                  where_it_stands(p, p->from, 's'));
  Id dz = set(w, "d.z", "bgrts", RED_NONE,
              ex2(m, OP_MUL, ex2(m, OP_MUL, get(w, prob, "bgrts"), less), by));
  w->letters = "btgres";
  put(w, v[OPD_DQ], "btgre", true, RED_SUM,
      ex2(m, OP_MUL, get(w, dz, "bgrts"), get(w, v[OPD_K], "bsge")));
  w->letters = "bsgert";
  put(w, v[OPD_DK], "bsge", true, RED_SUM,
      ex2(m, OP_MUL, get(w, dz, "bgrts"), get(w, v[OPD_Q], "btgre")));
  put(w, v[OPD_DV], "bsge", true, RED_SUM,
      ex2(m, OP_MUL, get(w, prob, "bgrts"), get(w, v[OPD_DO], "btgre")));
}

// Extents of the rank's queries and keys, of which f's arguments (of the global form where `local`
// is false) are.
static void find_extents(const Module *m, const Fn *f, bool local, int64_t extent[128]) {
  const Value *q = &f->value.at[f->arg.at[OPD_Q]], *k = &f->value.at[f->arg.at[OPD_K]];
  for (uint32_t d = 0; d < 5; d++)
    extent[(int)"btgre"[d]] = local ? q->extent[d] : layout_extent(m, q->shard, d, q->extent[d]);
  extent['s'] = local ? k->extent[1] : layout_extent(m, k->shard, 1, k->extent[1]);
}

static Id add_arg(Part *p, Str name, Dtype t, const int64_t *extent, uint32_t rank, Role role) {
  return fn_value(p->w.m, p->w.f, name, t, extent, rank, role, p->w.loc);
}

// The operands of f that a part takes too, in order; their numbers go to its parameters.
static void copy_operands(Part *p, const Fn *f) {
  static const Operand order[] = {OPD_Q,  OPD_K,  OPD_V,  OPD_SLOPES, OPD_O,
                                  OPD_LSE, OPD_DO, OPD_DQ, OPD_DK,     OPD_DV};
  uint32_t at[NOPERAND];
  CHECK(intrinsic_operands(f, at));
  for (int i = 0; i < NOPERAND; i++) p->value[i] = NONE;
  for (uint32_t i = 0; i < (f->backward ? 10 : 4); i++) {
    if (at[order[i]] == NONE) continue;
    const Value *v = &f->value.at[f->arg.at[at[order[i]]]];
    int64_t extent[MAX_RANK] = {0};
    for (uint32_t d = 0; d < v->rank; d++)
      extent[d] = layout_extent(p->w.m, v->shard, d, v->extent[d]);
    p->value[order[i]] = add_arg(p, v->name, v->type, extent, v->rank, v->role);
  }
}

// Argument `v` is a rank's number: where its places of the sequence stand by it.
static Id add_rank(Part *p, Id v, Operand of) {
  Fn *g = p->w.f;
  Positions at;
  CHECK(local_positions(p->w.m, p->axis, p->w.extent[of == OPD_Q ? 't' : 's'], p->block, &at));
  at.arg = (uint8_t)(g->arg.n - 1);
  intrinsic_place(g, of, at);
  return v;
}

// Values of 16 bits are computed with as what the module computes in.
static Dtype compute_type(const Module *m, const Value *q) { return is_half(q->type) ? m->compute : q->type; }

static Id new_part(Module *m, Id fn, uint32_t axis) {
  const Str name = str_printf("%s.part", m->fn.at[fn].name);
  Id id = fn_new(m, name, m->fn.at[fn].loc);
  const Fn *f = &m->fn.at[fn];
  const Value *q = &f->value.at[f->arg.at[OPD_Q]];
  Fn *g = &m->fn.at[id];
  Part p = {.w = {.m = m, .f = g, .loc = f->loc, .type = compute_type(m, q)}, .axis = axis, .from = NONE,
            .rank = NONE};
  p.block = q->shard[axis].block;
  find_extents(m, f, false, p.w.extent);
  copy_operands(&p, f);
  intrinsic_make_part(g, f);
  if (intrinsic_uses_places(f)) {
    p.from = add_rank(&p, add_arg(&p, str_intern("from"), DT_I32, NULL, 0, ROLE_IN), OPD_K);
    p.rank = add_rank(&p, fn_rank_arg(m, g, axis, ROLE_IN), OPD_Q);
  }
  if (f->backward) {
    backward_part(&p);
    return id;
  }
  Id o = new_value(&p.w, str_intern("o"), "btgre");
  Id lse = new_value(&p.w, str_intern("lse"), "bgrt");
  forward_part(&p, o, lse);
  PUSH(m->arena, g->result, o);
  PUSH(m->arena, g->result, lse);
  return id;
}

// The axis along which the function's queries and keys are shares, those alone; NONE: none.
static uint32_t ring_axis(const Module *m, const Fn *f) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    if (!ring_fits(m, f, a)) continue;
    const Value *q = &f->value.at[f->arg.at[OPD_Q]], *k = &f->value.at[f->arg.at[OPD_K]];
    uint32_t all[MAX_AXIS];
    Shard s = q->shard[a];
    if (s.kind == SHARD_SPLIT && s.dim == 1 && shard_same(s, k->shard[a]) &&
        layout_axes(m, q->shard, 1, all) == 1 && layout_axes(m, k->shard, 1, all) == 1)
      return a;
  }
  return NONE;
}

Id *local_ring_parts(Module *m) {
  uint32_t n = m->fn.n;
  Id *part = NEWN(m->arena, Id, n + 1);
  for (Id f = 0; f < n; f++) {
    uint32_t axis = ring_axis(m, &m->fn.at[f]);
    part[f] = axis == NONE ? NONE : new_part(m, f, axis);
  }
  return part;
}

// ---- the steps

typedef struct Ring {
  Local *x;
  Writer w;
  uint32_t axis, part;
  int64_t n;
  Id value[NOPERAND]; // of the function, or NONE
  Id k, v; // the shares at hand
} Ring;

static Id shifted(Ring *r, Id value, const char *name, int64_t step) {
  Str text = str_printf("%s.%lld", name, (long long)step);
  Id to = typed_value(&r->w, text, r->w.f->value.at[value].type, "bsge");
  Stmt *s = fn_stmt(r->w.m, r->w.f, ST_COLL, r->w.loc);
  s->coll = COLL_SHIFT;
  s->axis = (uint8_t)r->axis;
  s->lhs = to;
  s->from = value;
  return to;
}

// The number of the rank whose keys are here at a step, as an int of the function.
static Id sender(Ring *r, int64_t step) {
  Module *m = r->w.m;
  Id me = local_rank(r->x, r->axis), none[1] = {0};
  if (step == 0) return (Id)ex(m, me)->integer;
  Str name = str_printf("from.%lld", (long long)step);
  Id v = fn_value(m, r->w.f, name, DT_I32, NULL, 0, ROLE_LOCAL, r->w.loc);
  Id before = ex2(m, OP_ADD, me, ex_int(m, r->n - step));
  fn_comp(m, r->w.f, v, none, false, RED_NONE, NULL, 0, 0,
          ex2(m, OP_MOD, before, ex_int(m, r->n)), r->w.loc);
  return v;
}

// A call of the part with the shares at hand; more: its arguments after these and the slopes.
static Call *call_part(Ring *r, int64_t step, const Id *more, uint32_t nmore) {
  Module *m = r->w.m;
  bool placed = intrinsic_uses_places(&m->fn.at[r->part]);
  Id from = placed ? sender(r, step) : NONE;
  Call *c = NEW(m->arena, Call);
  *c = (Call){.fn = r->part, .count = 1};
  call_add_arg(m, c, ACT_WHOLE, r->value[OPD_Q]);
  call_add_arg(m, c, ACT_WHOLE, r->k);
  call_add_arg(m, c, ACT_WHOLE, r->v);
  if (r->value[OPD_SLOPES] != NONE) call_add_arg(m, c, ACT_WHOLE, r->value[OPD_SLOPES]);
  for (uint32_t i = 0; i < nmore; i++) call_add_arg(m, c, ACT_WHOLE, more[i]);
  if (placed) {
    call_add_arg(m, c, ACT_WHOLE, from);
    call_add_arg(m, c, ACT_WHOLE, (Id)ex(m, local_rank(r->x, r->axis))->integer);
  }
  Stmt *s = fn_stmt(m, r->w.f, ST_CALL, r->w.loc);
  s->call = c;
  return c;
}

// Sends the shares on, and does the step with what is at hand meanwhile.
static void next_shares(Ring *r, int64_t step, Id *k, Id *v) {
  *k = step + 1 < r->n ? shifted(r, r->k, "k", step + 1) : r->k;
  *v = step + 1 < r->n ? shifted(r, r->v, "v", step + 1) : r->v;
}

// The condition that places of lse[b, g, r, t] are not past the end of a split; NONE: none is.
static Id inside(Ring *r, Id lse) {
  Module *m = r->w.m;
  const Value *whole = &r->x->old[lse];
  Id cond = NONE;
  for (uint32_t a = 0; a < m->axis.n; a++) {
    Shard s = whole->shard[a];
    if (s.kind != SHARD_SPLIT) continue;
    if (whole->extent[s.dim] % (s.block * m->axis.at[a].size) == 0) continue;
    Id i = at(&r->w, "bgrt"[s.dim]), end = ex_int(m, whole->extent[s.dim]);
    Id first = ex2(m, OP_MUL, local_rank(r->x, a), ex_int(m, s.block));
    Id is_in = ex2(m, OP_LT, ex2(m, OP_ADD, first, i), end);
    cond = cond == NONE ? is_in : ex2(m, OP_AND, cond, is_in);
  }
  return cond;
}

// The sink's logit, of each head.
static Id sink(Ring *r) {
  Id sinks = r->value[OPD_SINKS];
  return intrinsic_sink(r->w.m, r->w.f, sinks == NONE ? NONE : get(&r->w, sinks, "gr"));
}

// lse and o of two parts together; o2 NONE: of a part and the sink, whose logit lse2 is. The last
// are those of the function.
static void merge(Ring *r, bool last, int64_t step, Id *o, Id *lse, Id o2, Id lse2) {
  Module *m = r->w.m;
  Writer *w = &r->w;
  Str n = str_printf("%lld", (long long)step);
  Id to = last ? w->f->result.at[1] : new_value(w, str_printf("lse.%s", n), "bgrt");
  w->letters = "bgrt";
  Id a = get(w, *lse, "bgrt"), b = o2 == NONE ? sink(r) : get(w, lse2, "bgrt");
  Id top = ex2(m, OP_MAX, a, b);
  Id sum = set(w, str_printf("sum.%s", n), "bgrt", RED_NONE,
               ex2(m, OP_ADD, exp_less(m, a, top), exp_less(m, b, top)));
  sum = get(w, sum, "bgrt");
  Id body = ex2(m, OP_ADD, ex1(m, OP_LOG, sum), top), in = last ? inside(r, to) : NONE;
  if (in != NONE) body = ex3(m, OP_WHERE, in, body, ex_real(m, 0));
  put(w, to, "bgrt", false, RED_NONE, body);
  Id one = set(w, str_printf("weight.%s", n), "bgrt", RED_NONE,
               ex2(m, OP_DIV, exp_less(m, a, top), sum));
  Id two = NONE;
  if (o2 != NONE)
    two = set(w, str_printf("weight.part.%s", n), "bgrt", RED_NONE,
              ex2(m, OP_DIV, exp_less(m, b, top), sum));
  Id out = last ? w->f->result.at[0] : new_value(w, str_printf("o.%s", n), "btgre");
  w->letters = "btgre";
  body = ex2(m, OP_MUL, get(w, *o, "btgre"), get(w, one, "bgrt"));
  if (o2 != NONE)
    body = ex2(m, OP_ADD, body, ex2(m, OP_MUL, get(w, o2, "btgre"), get(w, two, "bgrt")));
  in = last ? inside(r, to) : NONE; // a query of 0 has a mean of the values
  if (in != NONE) body = ex3(m, OP_WHERE, in, body, ex_real(m, 0));
  put(w, out, "btgre", false, RED_NONE, body);
  *o = out;
  *lse = to;
}

static void ring_forward(Ring *r) {
  Id o = NONE, lse = NONE, k, v;
  bool sinks = intrinsic_has_sink(r->w.f);
  for (int64_t step = 0; step < r->n; step++) {
    next_shares(r, step, &k, &v);
    Id o2 = new_value(&r->w, str_printf("o.part.%lld", (long long)step), "btgre");
    Id lse2 = new_value(&r->w, str_printf("lse.part.%lld", (long long)step), "bgrt");
    Call *c = call_part(r, step, NULL, 0);
    call_add_result(r->w.m, c, RES_WHOLE, o2);
    call_add_result(r->w.m, c, RES_WHOLE, lse2);
    if (step == 0) o = o2, lse = lse2;
    else merge(r, step + 1 == r->n && !sinks, step, &o, &lse, o2, lse2);
    r->k = k;
    r->v = v;
  }
  if (sinks) merge(r, true, r->n, &o, &lse, NONE, NONE);
}

static void add_to(Ring *r, Id acc, Id term, const char *dims) {
  r->w.letters = dims;
  put(&r->w, acc, dims, true, RED_NONE, get(&r->w, term, dims));
}

// What is known of a share's gradient so far, and this rank's part of it.
static Id added(Ring *r, const char *name, int64_t step, Id sum, Id part) {
  if (step == 0) return part;
  Id came = shifted(r, sum, str_printf("%s.came", name), step);
  r->w.letters = "bsge";
  return set(&r->w, str_printf("%s.sum.%lld", name, (long long)step), "bsge", RED_NONE,
             ex2(r->w.m, OP_ADD, get(&r->w, came, "bsge"), get(&r->w, part, "bsge")));
}

// The sink's part of each query's sum has the derivative -exp(sink - lse) * sum(e: o * do).
static void sink_backward(Ring *r) {
  Module *m = r->w.m;
  const Id *v = r->value;
  Id dot = dots(&r->w, v);
  r->w.letters = "grbt";
  Id weight = exp_less(m, sink(r), get(&r->w, v[OPD_LSE], "bgrt"));
  put(&r->w, v[OPD_DSINKS], "gr", true, RED_SUM,
      ex1(m, OP_NEG, ex2(m, OP_MUL, weight, get(&r->w, dot, "bgrt"))));
}

static void ring_backward(Ring *r) {
  const Id *arg = r->value;
  Id dk = NONE, dv = NONE, k, v;
  for (int64_t step = 0; step < r->n; step++) {
    next_shares(r, step, &k, &v);
    long long n = (long long)step;
    Id q_part = new_value(&r->w, str_printf("d.q.%lld", n), "btgre");
    Id k_part = new_value(&r->w, str_printf("d.k.%lld", n), "bsge");
    Id v_part = new_value(&r->w, str_printf("d.v.%lld", n), "bsge");
    call_part(r, step, (Id[]){arg[OPD_O], arg[OPD_LSE], arg[OPD_DO], q_part, k_part, v_part}, 6);
    add_to(r, arg[OPD_DQ], q_part, "btgre");
    dk = added(r, "d.k", step, dk, k_part);
    dv = added(r, "d.v", step, dv, v_part);
    r->k = k;
    r->v = v;
  }
  if (arg[OPD_DSINKS] != NONE) sink_backward(r);
  add_to(r, arg[OPD_DK], shifted(r, dk, "d.k.came", r->n), "bsge");
  add_to(r, arg[OPD_DV], shifted(r, dv, "d.v.came", r->n), "bsge");
}

void local_ring(Local *x, Id part) {
  Module *m = x->m;
  Fn *f = x->f;
  const Value *q = &f->value.at[f->arg.at[OPD_Q]];
  Ring r = {.x = x, .w = {.m = m, .f = f, .loc = f->loc, .type = compute_type(m, q)}, .part = part};
  uint32_t at[NOPERAND];
  CHECK(intrinsic_operands(f, at));
  for (int i = 0; i < NOPERAND; i++)
    r.value[i] = at[i] == NONE || at[i] >= f->arg.n ? NONE : f->arg.at[at[i]];
  if (!f->backward) r.value[OPD_O] = r.value[OPD_LSE] = NONE;
  while (!m->axis.at[r.axis].ring) r.axis++;
  r.n = m->axis.at[r.axis].size;
  r.k = r.value[OPD_K];
  r.v = r.value[OPD_V];
  find_extents(m, f, true, r.w.extent);
  if (f->backward) ring_backward(&r);
  else ring_forward(&r);
}
