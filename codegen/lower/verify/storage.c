// Where values lie: views within what they are views of, rows inside of kernels with a place for each element, and, after
// pass plan, buffers that are alive together apart from one another in the function's frame.
#include "codegen/lower/verify/verifier.h"
#include "codegen/target.h"

#include <stdlib.h>

static int64_t bytes_of(const Value *v) { return value_count(v) * dtype_size(v->type); }

// ---- layouts

static uint32_t position(const Id *list, uint32_t n, Id value) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i] == value) return i;
  return NONE;
}

// The first and the last element of the layout.
static bool span(const Value *v, const Layout *l, int64_t *lo, int64_t *hi) {
  *lo = *hi = l->offset;
  for (uint32_t d = 0; d < v->rank; d++) {
    int64_t n;
    if (!mul_ok(v->extent[d] - 1, l->stride[d], &n) || !add_ok(n < 0 ? *lo : *hi, n, n < 0 ? lo : hi)) return false;
  }
  return true;
}

// Whether two elements have one place: dimensions of stride 0 aside, which an outer loop tells apart.
static bool is_apart(const Value *v, const Layout *l) {
  bool done[MAX_RANK] = {false};
  int64_t past = 1; // a stride from which on nothing meets what is done
  for (;;) {
    uint32_t next = MAX_RANK;
    for (uint32_t d = 0; d < v->rank; d++)
      if (!done[d] && v->extent[d] > 1 && l->stride[d] &&
          (next == MAX_RANK || llabs(l->stride[d]) < llabs(l->stride[next])))
        next = d;
    if (next == MAX_RANK) return true;
    if (llabs(l->stride[next]) < past) return false;
    if (!mul_ok(llabs(l->stride[next]), v->extent[next], &past)) past = INT64_MAX;
    done[next] = true;
  }
}

// The values that kernels write. A statement that moves nothing, as its value is a view, writes none.
static const bool *written_values(const Verifier *v) {
  bool *written = NEWN(v->m->arena, bool, v->f->value.n + 1);
  for (uint32_t k = 0; k < v->fp->kernel.n; k++) {
    const Kernel *kernel = &v->fp->kernel.at[k];
    for (uint32_t i = 0; i < kernel->stmt.n; i++) {
      const Stmt *s = &v->f->stmt.at[kernel->stmt.at[i]];
      if (s->kind == ST_COMP) written[s->lhs] = true;
    }
  }
  return written;
}

// A sum that the kernel of a product has in no memory (verify_computes); its layout is in C, whatever C's type.
static bool is_unstored(const Verifier *v, Id value, Id buffer) {
  for (uint32_t i = 0; i < v->fp->kernel.n; i++) {
    const Kernel *k = &v->fp->kernel.at[i];
    if (is_unstored_sum(v->m, v->f, v->fp->layout, k, value))
      return v->fp->layout[k->gemm.c].buffer == buffer && v->f->value.at[value].type == v->m->compute;
  }
  return false;
}

static bool view_fits(Verifier *v, Id value) {
  const Value *x = &v->f->value.at[value];
  const Layout *l = &v->fp->layout[value];
  const Value *of = &v->f->value.at[l->buffer];
  int64_t lo, hi;
  if (v->fp->layout[l->buffer].buffer != l->buffer)
    return v_fail(v, NULL, NONE, "`%s` is a view of a view, `%s`", x->name, of->name);
  if (x->role != ROLE_LOCAL) return v_fail(v, NULL, NONE, "`%s` is an argument, and no view", x->name);
  if (x->type != of->type && !is_unstored(v, value, l->buffer))
    return v_fail(v, NULL, NONE, "`%s` is a view of `%s`, which is of another type", x->name, of->name);
  if (!span(x, l, &lo, &hi) || lo < 0 || hi >= value_count(of))
    return v_fail(v, NULL, NONE, "the view `%s` goes from element %lld to %lld of `%s`, which has %lld", x->name,
                  (long long)lo, (long long)hi, of->name, (long long)value_count(of));
  return true;
}

// A caller gets a function's result in the storage that it gives for it, or as an argument.
static bool result_fits(Verifier *v, uint32_t result) {
  Id value = v->f->result.at[result];
  const Layout *l = &v->fp->layout[value];
  if (l->internal) return v_fail(v, NULL, NONE, "result `%s` lives inside of a kernel", value_name(v, value));
  if (l->buffer == value) return true;
  bool known = position(v->f->arg.at, v->f->arg.n, l->buffer) != NONE ||
               position(v->f->result.at, result, l->buffer) != NONE;
  if (known && !l->offset && layout_is_dense(&v->f->value.at[value], l) &&
      bytes_of(&v->f->value.at[value]) == bytes_of(&v->f->value.at[l->buffer]))
    return true;
  return v_fail(v, NULL, NONE, "result `%s` is a part of `%s`", value_name(v, value), value_name(v, l->buffer));
}

bool verify_layouts(Verifier *v) {
  const bool *written = written_values(v);
  for (Id i = 0; i < v->f->value.n; i++) {
    const Value *x = &v->f->value.at[i];
    const Layout *l = &v->fp->layout[i];
    if (l->buffer != i && !view_fits(v, i)) return false;
    if (l->internal && x->role != ROLE_LOCAL)
      return v_fail(v, NULL, NONE, "argument `%s` lives inside of a kernel", x->name);
    if (l->internal || written[i]) {
      int64_t lo, hi;
      if (!is_apart(x, l) || !span(x, l, &lo, &hi) || lo < 0)
        return v_fail(v, NULL, NONE, "elements of `%s` lie in one place", x->name);
    }
  }
  for (uint32_t i = 0; i < v->f->result.n; i++)
    if (!result_fits(v, i)) return false;
  return true;
}

// ---- rows of kernels

// Whether a subscript is an index, or a group, that follows the grid alone. The point of an index without a variable is
// that of one with, by verify_computes.
static bool follows_grid(const Verifier *v, const Kernel *k, uint32_t stmt, Id sub) {
  const Expr *e = ex(v->m, sub);
  const Stmt *s = &v->f->stmt.at[stmt];
  uint32_t set = ex_indices(v->m, sub);
  if (e->op != OP_INDEX && e->op != OP_GROUP) return false;
  for (uint32_t i = 0; e->op == OP_GROUP && i < e->narg; i++)
    if (!ex_is(v->m, ex_arg(v->m, sub, i), OP_INDEX)) return false;
  for (uint32_t i = 0; i < s->nindex; i++) {
    uint8_t var = v->when[stmt].ns->var[i];
    if (set >> i & 1 && s->index[i].extent > 1 && var != NO_VAR && var >= k->loops->ngrid) return false;
  }
  return true;
}

// A dimension without a stride in a row follows the grid wherever it is touched.
static bool row_fits(Verifier *v, const Kernel *k, uint32_t stmt, Id value, const Id *sub) {
  const Layout *l = &v->fp->layout[value];
  const Value *x = &v->f->value.at[value];
  for (uint32_t d = 0; d < x->rank; d++)
    if (!l->stride[d] && x->extent[d] > 1 && !follows_grid(v, k, stmt, sub[d]))
      return v_fail(v, k, stmt, "`%s` has one place for all of dimension %u, which it goes through", x->name, d);
  return true;
}

static bool rows_fit(Verifier *v, uint32_t kernel) {
  const Kernel *k = &v->fp->kernel.at[kernel];
  for (uint32_t i = 0; i < v->access[kernel].n; i++) {
    const Access *a = &v->access[kernel].at[i];
    const Stmt *s = &v->f->stmt.at[a->stmt == NONE ? 0 : a->stmt];
    Id sub[MAX_RANK];
    if (a->stmt == NONE || !v->fp->layout[a->value].internal) continue;
    uint32_t rank = v->f->value.at[a->value].rank;
    for (uint32_t d = 0; d < rank; d++) sub[d] = a->read == NONE ? s->sub[d] : ex_arg(v->m, a->read, d);
    if (!row_fits(v, k, a->stmt, a->value, sub)) return false;
  }
  return true;
}

// ---- sharing

typedef struct Sharing {
  const Kernel *k;
  uint32_t writer; // the statement that writes `out`
  Id out, in;
} Sharing;

static bool read_leaves_in_time(Verifier *v, const Sharing *x, const Access *a) {
  const When *w = &v->when[x->writer], *r = &v->when[a->stmt];
  const Stmt *writer = &v->f->stmt.at[x->writer], *reader = &v->f->stmt.at[a->stmt];
  Id sub[MAX_RANK];
  uint32_t rank = ex(v->m, a->read)->narg;
  for (uint32_t d = 0; d < rank; d++) sub[d] = ex_arg(v->m, a->read, d);
  if (a->value != x->in || r->nest > w->nest || rank != v->f->value.at[x->out].rank) return false;
  if (r->nest < w->nest) return v_same_grid_point(v, x->k, w, writer, r, reader, sub, rank);
  Affine to = v_element(v, writer, x->out, writer->sub), from = v_element(v, reader, x->in, sub);
  return writer->red == RED_NONE && v_same_point(w->ns, &to, r->ns, &from);
}

// In a kernel of loops: nothing reads an element of `in` after the point has overwritten it, and no other point does.
static bool loops_share(Verifier *v, uint32_t kernel, InPlace p) {
  Sharing x = {&v->fp->kernel.at[kernel], NONE, p.out, p.in};
  uint32_t writers = 0;
  for (uint32_t i = 0; i < v->f->stmt.n; i++)
    if (v->f->stmt.at[i].kind == ST_COMP && v->f->stmt.at[i].lhs == p.out) x.writer = i, writers++;
  if (!x.k->loops || writers != 1 || !v->when[x.writer].runs || v->when[x.writer].kernel != kernel ||
      (v->f->stmt.at[x.writer].acc && !v->when[x.writer].ns->init))
    return false;
  for (uint32_t i = 0; i < v->access[kernel].n; i++) {
    const Access *a = &v->access[kernel].at[i];
    if (a->buffer != p.in) continue;
    if (a->written || !read_leaves_in_time(v, &x, a)) return false;
  }
  return true;
}

static bool sharing_fits(Verifier *v, uint32_t kernel, InPlace p) {
  const Kernel *k = &v->fp->kernel.at[kernel];
  const Value *out = &v->f->value.at[p.out], *in = &v->f->value.at[p.in];
  const Layout *l = v->fp->layout;
  bool fits = p.out != p.in && l[p.out].buffer == p.out && l[p.in].buffer == p.in && out->role == ROLE_LOCAL &&
              in->role == ROLE_LOCAL && out->rank == in->rank && dtype_size(out->type) == dtype_size(in->type) &&
              !memcmp(out->extent, in->extent, out->rank * sizeof *out->extent);
  if (k->kind == K_COLL) {
    const Stmt *s = &v->f->stmt.at[k->stmt.at[0]];
    fits = l[p.out].buffer == p.out && s->lhs == p.out && l[s->from].buffer == p.in && s->coll == COLL_ALL_REDUCE;
  } else {
    fits = fits && k->kind == K_LOOPS && loops_share(v, kernel, p);
  }
  if (fits) return true;
  return v_fail(v, k, NONE, "`%s` may not take over the storage of `%s`: elements are read after they are overwritten",
                out->name, in->name);
}

bool verify_inplace(Verifier *v) {
  for (uint32_t i = 0; i < v->fp->kernel.n; i++) {
    const Kernel *k = &v->fp->kernel.at[i];
    if (k->kind == K_LOOPS && k->loops && !rows_fit(v, i)) return false;
    for (uint32_t j = 0; j < k->inplace.n; j++)
      if (!sharing_fits(v, i, k->inplace.at[j])) return false;
  }
  return true;
}

// ---- addresses

// A part of the frame, in use from kernel `first` to kernel `last`.
typedef struct Use {
  int64_t from, bytes;
  uint32_t first, last;
  Id value; // NONE: a callee's frame
} Use;
typedef VEC(Use) Uses;

static void find_lives(const Verifier *v, Life *life) {
  for (Id i = 0; i < v->f->value.n; i++) life[i] = (Life){UINT32_MAX, 0};
  for (uint32_t i = 0; i < v->fp->kernel.n; i++)
    for (uint32_t j = 0; j < v->access[i].n; j++) {
      Life *l = &life[v->access[i].at[j].buffer];
      if (l->first == UINT32_MAX) l->first = i;
      l->last = i;
    }
}

static bool use_fits(Verifier *v, const Kernel *k, const Use *u, const char *what) {
  int64_t alignment = v->m->target->alignment;
  if (u->from % alignment)
    return v_fail(v, k, NONE, "%s lies at %lld, which is no multiple of %lld", what, (long long)u->from,
                  (long long)alignment);
  if (u->from < 0 || u->bytes < 0 || u->from > v->fp->frame_bytes - u->bytes)
    return v_fail(v, k, NONE, "%s lies at bytes %lld to %lld of a frame of %lld", what, (long long)u->from,
                  (long long)(u->from + u->bytes), (long long)v->fp->frame_bytes);
  return true;
}

static bool buffer_uses(Verifier *v, const Life *life, Uses *uses) {
  for (Id i = 0; i < v->f->value.n; i++) {
    const Layout *l = &v->fp->layout[i];
    bool needs = l->buffer == i && !l->internal && v->f->value.at[i].role == ROLE_LOCAL &&
                 life[i].first != UINT32_MAX && position(v->f->result.at, v->f->result.n, i) == NONE;
    int64_t at = v->fp->address[i];
    Str name = str_printf("`%s`", value_name(v, i));
    Use u = {at, bytes_of(&v->f->value.at[i]), life[i].first, life[i].last, i};
    if (needs && at < 0) return v_fail(v, NULL, NONE, "%s has no address", name);
    if (!needs && at >= 0) return v_fail(v, NULL, NONE, "%s has an address, and no storage of its own", name);
    if (!needs) continue;
    if (!use_fits(v, NULL, &u, name)) return false;
    PUSH(v->m->arena, *uses, u);
  }
  return true;
}

static bool callee_uses(Verifier *v, Uses *uses) {
  for (uint32_t i = 0; i < v->fp->kernel.n; i++) {
    const Kernel *k = &v->fp->kernel.at[i];
    if (k->kind != K_CALL && k->kind != K_INTRINSIC) continue;
    const Call *c = v->f->stmt.at[k->stmt.at[0]].call;
    Use u = {v->fp->callee_frame[i], call_scratch(v->p, c, c->nresult), i, i, NONE};
    if (!use_fits(v, k, &u, "the callee's frame")) return false;
    if (u.bytes) PUSH(v->m->arena, *uses, u);
  }
  return true;
}

// Whether `in` ends where `out` begins, in a kernel that writes one over the other.
static bool takes_over(const Verifier *v, const Use *out, const Use *in) {
  if (out->value == NONE || in->value == NONE || out->from != in->from || out->bytes != in->bytes) return false;
  const Kernel *k = &v->fp->kernel.at[out->first];
  uint32_t end = k->kind == K_COLL ? k->wait : out->first;
  bool said = false;
  for (uint32_t i = 0; i < k->inplace.n; i++)
    said |= k->inplace.at[i].out == out->value && k->inplace.at[i].in == in->value;
  if (!said || in->last != end) return false;
  for (uint32_t i = out->first + 1; i < end; i++) // the exchange writes at any time
    for (uint32_t j = 0; j < v->access[i].n; j++)
      if (v->access[i].at[j].buffer == in->value) return false;
  return true;
}

static Str use_name(const Verifier *v, const Use *u) {
  if (u->value != NONE) return str_printf("`%s`", value_name(v, u->value));
  return str_printf("the frame of what kernel `%s` calls", v->fp->kernel.at[u->first].name);
}

bool verify_addresses(Verifier *v) {
  Life *life = NEWN(v->m->arena, Life, v->f->value.n + 1);
  Uses uses = {0};
  find_lives(v, life);
  if (!buffer_uses(v, life, &uses) || !callee_uses(v, &uses)) return false;
  for (uint32_t i = 0; i < uses.n; i++)
    for (uint32_t j = 0; j < i; j++) {
      const Use *x = &uses.at[i], *y = &uses.at[j];
      bool meet = x->from < y->from + y->bytes && y->from < x->from + x->bytes;
      if (!meet || x->first > y->last || y->first > x->last || takes_over(v, x, y) || takes_over(v, y, x)) continue;
      uint32_t both = x->first > y->first ? x->first : y->first;
      return v_fail(v, &v->fp->kernel.at[both], NONE, "%s and %s are in use together, and lie in one place, from %lld on",
                    use_name(v, x), use_name(v, y), (long long)(x->from > y->from ? x->from : y->from));
    }
  return true;
}
