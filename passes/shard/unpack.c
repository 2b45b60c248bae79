// Before sharding: of a value that a forward pass saves, and the backward pass only takes apart (q,
// k and v by a constant subscript) or puts in another order, what comes of it is saved instead. The
// parts can be cut differently: with the sequence on an axis keys and values are needed whole,
// queries are not.
#include "passes/shard/shard.h"

// A repeat and its callee.
typedef struct Site {
  Id fn; // the caller
  uint32_t stmt;
} Site;

static Call *call_at(const Module *m, Site s) { return m->fn.at[s.fn].stmt.at[s.stmt].call; }

static uint32_t calls_of(const Module *m, Id fn) {
  uint32_t n = 0;
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++)
      n += m->fn.at[f].stmt.at[i].call && m->fn.at[f].stmt.at[i].call->fn == fn;
  return n;
}

typedef struct Uses {
  Id value;
  uint32_t n;
} Uses;

static void count_use(Id value, void *ctx) { ((Uses *)ctx)->n += value == ((Uses *)ctx)->value; }

static uint32_t uses_of(const Module *m, const Fn *f, Id value) {
  Uses u = {value, 0};
  for (uint32_t i = 0; i < f->stmt.n; i++) stmt_reads(m, f, &f->stmt.at[i], count_use, &u);
  for (uint32_t i = 0; i < f->result.n; i++) u.n += f->result.at[i] == value;
  return u.n;
}

// Whether the statement is y[...] = value[...]: a part of it, or all in another order.
static bool takes_part(const Module *m, const Stmt *s, Id value) {
  if (s->kind != ST_COMP || s->acc || s->red != RED_NONE || !ex_is(m, s->body, OP_READ))
    return false;
  if ((Id)ex(m, s->body)->integer != value) return false;
  for (uint32_t d = 0; d < ex(m, s->body)->narg; d++) {
    const Expr *x = ex(m, ex_arg(m, s->body, d));
    if (x->op != OP_INT && x->op != OP_INDEX && x->op != OP_GROUP) return false;
  }
  return true;
}

// The statement of g that takes the same part of `packed` as s, of another function, does of its
// own.
static uint32_t same_part(Module *m, const Fn *g, Id packed, const Fn *f, const Stmt *s) {
  Id sub[MAX_RANK];
  for (uint32_t d = 0; d < ex(m, s->body)->narg; d++) sub[d] = ex_arg(m, s->body, d);
  Id body = ex_read(m, g, packed, sub);
  for (uint32_t i = 0; i < g->stmt.n; i++) {
    const Stmt *t = &g->stmt.at[i];
    if (!takes_part(m, t, packed) || t->body != body || t->nindex != s->nindex) continue;
    uint32_t rank = f->value.at[s->lhs].rank;
    bool same = rank == g->value.at[t->lhs].rank &&
                !memcmp(s->sub, t->sub, rank * sizeof *s->sub) &&
                f->value.at[s->lhs].type == g->value.at[t->lhs].type;
    for (uint32_t k = 0; k < s->nindex; k++) same &= s->index[k].extent == t->index[k].extent;
    if (same) return i;
  }
  return NONE;
}

// Saves y, of the first repeat's callee, for the second one's, where it becomes an argument.
static void hand_on(Module *m, Site from, Site to, Id y, Id arg) {
  Call *a = call_at(m, from), *b = call_at(m, to);
  Fn *g = &m->fn.at[a->fn], *h = &m->fn.at[b->fn];
  const Value v = g->value.at[y];
  int64_t extent[MAX_RANK] = {a->count};
  memcpy(extent + 1, v.extent, v.rank * sizeof *extent);
  Id stack = fn_value(m, &m->fn.at[from.fn], str_printf("%s.saved", v.name), v.type, extent,
                      v.rank + 1, ROLE_LOCAL, v.loc);
  PUSH(m->arena, g->result, y);
  if (g->alias.n) PUSH(m->arena, g->alias, NONE);
  call_add_result(m, a, RES_SLICE, stack);
  h->value.at[arg].role = ROLE_IN;
  PUSH(m->arena, h->arg, arg);
  call_add_arg(m, b, ACT_SLICE, stack);
}

static void drop_arg(Fn *f, Call *c, uint32_t at) {
  f->value.at[f->arg.at[at]].role = ROLE_LOCAL;
  for (uint32_t i = at; i + 1 < c->narg; i++) {
    f->arg.at[i] = f->arg.at[i + 1];
    c->arg[i] = c->arg[i + 1];
  }
  f->arg.n--;
  c->narg--;
}

static void drop_result(Fn *f, Call *c, uint32_t at) {
  for (uint32_t i = at; i + 1 < c->nresult; i++) {
    f->result.at[i] = f->result.at[i + 1];
    if (f->alias.n) f->alias.at[i] = f->alias.at[i + 1];
    c->result[i] = c->result[i + 1];
  }
  f->result.n--;
  if (f->alias.n) f->alias.n--;
  c->nresult--;
}

// Argument j of the second repeat is result i of the first; false where it is more than taken
// apart.
static bool unpack(Module *m, Site from, uint32_t i, Site to, uint32_t j) {
  Call *a = call_at(m, from), *b = call_at(m, to);
  Fn *g = &m->fn.at[a->fn], *h = &m->fn.at[b->fn];
  Id packed = g->result.at[i], arg = h->arg.at[j], part[MAX_INDEX];
  if (h->value.at[arg].role != ROLE_IN || calls_of(m, a->fn) != 1 || calls_of(m, b->fn) != 1)
    return false;
  uint32_t n = 0;
  int64_t elements = 0;
  for (uint32_t k = 0; k < h->stmt.n; k++) {
    const Stmt *s = &h->stmt.at[k];
    if (!takes_part(m, s, arg)) continue;
    uint32_t same = n < MAX_INDEX ? same_part(m, g, packed, h, s) : NONE;
    if (same == NONE) return false;
    elements += value_count(&h->value.at[s->lhs]);
    part[n++] = g->stmt.at[same].lhs;
  }
  if (!n || uses_of(m, h, arg) != n || elements > value_count(&h->value.at[arg])) return false;
  uint32_t kept = 0, taken = 0;
  for (uint32_t k = 0; k < h->stmt.n; k++) {
    if (takes_part(m, &h->stmt.at[k], arg)) hand_on(m, from, to, part[taken++], h->stmt.at[k].lhs);
    else h->stmt.at[kept++] = h->stmt.at[k];
  }
  h->stmt.n = kept;
  drop_arg(h, b, j);
  drop_result(g, a, i);
  return true;
}

static void unpack_between(Module *m, Site from, Site to) {
  Call *a = call_at(m, from), *b = call_at(m, to);
  for (uint32_t i = 0; i < a->nresult; i++) {
    if (a->result[i].mode != RES_SLICE || uses_of(m, &m->fn.at[from.fn], a->result[i].value) != 1)
      continue;
    for (uint32_t j = 0; j < b->narg; j++)
      if (b->arg[j].mode == ACT_SLICE && b->arg[j].value == a->result[i].value &&
          unpack(m, from, i, to, j)) {
        i--;
        break;
      }
  }
}

void shard_unpack(Module *m) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++)
      for (uint32_t j = i + 1; m->fn.at[f].stmt.at[i].kind == ST_REPEAT && j < m->fn.at[f].stmt.n;
           j++)
        if (m->fn.at[f].stmt.at[j].kind == ST_REPEAT) unpack_between(m, (Site){f, i}, (Site){f, j});
  for (Id f = 0; f < m->fn.n; f++) fn_compact(m, &m->fn.at[f]);
}
