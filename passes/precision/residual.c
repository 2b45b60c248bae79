// The residual stream: x and y of every residual sum
//
//     y[i, ..] = x[i, ..] + ...                 at the statement's own indices; x may be multiplied by a constant
//
// another of whose terms depends on x by way of a matrix product or of a call. The adjoint of such a sum is one
// itself: d.x = d.y + ..., with terms that depend on d.y. To the stream belongs also what calls tie to it (what a stack
// carries, what it is before the first layer and after the last one), and each other name of it.
#include "passes/precision/types.h"
#include "passes/util.h"

typedef struct Stream {
  Types *t;
  Id fn;
  const Fn *f;
  uint32_t *made; // by value: the position of the statement that makes it; 0 for arguments
  uint8_t *follows; // by value: whether it depends on x
  bool found;
} Stream;

enum { NO, DIRECTLY, BY_PRODUCT }; // of follows

// Whether e is x[i, ..] at the indices of s's left side; its value goes to *x.
static bool is_same_place(const Module *m, const Fn *f, const Stmt *s, Id e, Id *x) {
  if (ex_is(m, e, OP_MUL)) {
    Id a = ex_arg(m, e, 0), b = ex_arg(m, e, 1);
    e = ex_is(m, a, OP_REAL) ? b : ex_is(m, b, OP_REAL) ? a : e;
  }
  if (!ex_is(m, e, OP_READ)) return false;
  *x = (Id)ex(m, e)->integer;
  const Value *v = &f->value.at[*x], *y = &f->value.at[s->lhs];
  bool same = is_real(v) && v->rank && v->rank == y->rank;
  for (uint32_t d = 0; same && d < v->rank; d++)
    same = v->extent[d] == y->extent[d] && ex_arg(m, e, d) == s->sub[d];
  return same;
}

static void note_read(Id value, void *ctx) {
  const Stream *z = ctx;
  z->follows[z->f->value.n] |= z->follows[value]; // behind the values: the maximum of a statement's reads
}

// What the statement's operands follow.
static uint8_t operands_follow(Stream *z, const Stmt *s) {
  uint8_t *most = &z->follows[z->f->value.n];
  *most = NO;
  stmt_reads(z->t->m, z->f, s, note_read, z);
  return *most & BY_PRODUCT ? BY_PRODUCT : *most;
}

static void mark(Stream *z, Id value, uint8_t how) { z->follows[value] |= how; }

// Marks what the statement makes, if its operands follow x.
static void follow(Stream *z, const Stmt *s) {
  uint8_t how = operands_follow(z, s);
  if (!how) return;
  if (s->kind == ST_COMP) {
    mark(z, s->lhs, is_product(z->t->m, s) ? BY_PRODUCT : how);
    return;
  }
  const Call *c = s->call;
  const Fn *callee = c ? &z->t->m->fn.at[c->fn] : NULL;
  for (uint32_t i = 0; c && i < c->nresult; i++)
    if (c->result[i].mode != RES_DROP) mark(z, c->result[i].value, BY_PRODUCT);
  for (uint32_t i = 0; c && i < c->narg; i++)
    if (c->arg[i].mode != ACT_ITER && callee->value.at[callee->arg.at[i]].role == ROLE_INOUT)
      mark(z, c->arg[i].value, BY_PRODUCT);
}

// Whether a term of statement `at` other than the read of x depends on x by way of a product or a call.
static bool comes_back(Stream *z, uint32_t at, Id x) {
  memset(z->follows, NO, z->f->value.n + 1);
  z->follows[x] = DIRECTLY;
  for (uint32_t i = z->made[x]; i < at; i++)
    if (z->f->stmt.at[i].lhs != x || z->f->stmt.at[i].kind != ST_COMP) follow(z, &z->f->stmt.at[i]);
  return operands_follow(z, &z->f->stmt.at[at]) == BY_PRODUCT;
}

static void widen(Stream *z, Id value) {
  z->t->fact[types_root(z->t, number_of(z->t, z->fn, value))] |= WIDE;
  z->found = true;
}

// Visits the terms of a sum.
static void look_at_terms(Stream *z, uint32_t at, Id e) {
  const Module *m = z->t->m;
  const Stmt *s = &z->f->stmt.at[at];
  if (ex_is(m, e, OP_ADD) || ex_is(m, e, OP_SUB)) {
    look_at_terms(z, at, ex_arg(m, e, 0));
    look_at_terms(z, at, ex_arg(m, e, 1));
    return;
  }
  Id x;
  if (!is_same_place(m, z->f, s, e, &x) || !comes_back(z, at, x)) return;
  widen(z, x);
  widen(z, s->lhs);
}

static void look_at_function(Types *t, Id fn, bool *found) {
  const Fn *f = &t->m->fn.at[fn];
  Stream z = {.t = t, .fn = fn, .f = f};
  z.made = NEWN(t->m->arena, uint32_t, f->value.n + 1);
  z.follows = NEWN(t->m->arena, uint8_t, f->value.n + 2);
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].kind == ST_COMP) z.made[f->stmt.at[i].lhs] = i;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->kind != ST_COMP || s->red != RED_NONE || s->acc || !is_real(&f->value.at[s->lhs])) continue;
    if (ex_is(t->m, s->body, OP_ADD) || ex_is(t->m, s->body, OP_SUB)) look_at_terms(&z, i, s->body);
  }
  *found |= z.found;
}

// Other names of the stream's values; whether any is new.
static bool name_again(Types *t, Id fn) {
  const Fn *f = &t->m->fn.at[fn];
  bool any = false;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (!is_renaming(t->m, f, s)) continue;
    Id from = types_root(t, number_of(t, fn, (Id)ex(t->m, s->body)->integer));
    Id to = types_root(t, number_of(t, fn, s->lhs));
    if (!(t->fact[from] & WIDE) || t->fact[to] & WIDE) continue;
    t->fact[to] |= WIDE;
    any = true;
  }
  return any;
}

bool types_residual(Types *t) {
  bool found = false, more = true;
  for (Id f = 0; f < t->m->fn.n; f++)
    if (!t->wide[f] && !t->m->fn.at[f].intrinsic) look_at_function(t, f, &found);
  while (found && more) {
    more = false;
    for (Id f = 0; f < t->m->fn.n; f++)
      if (!t->wide[f] && !t->m->fn.at[f].intrinsic) more |= name_again(t, f);
  }
  return found;
}
