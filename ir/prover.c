#include "ir/prover.h"

#include <stdlib.h>

typedef __int128 Wide;

enum { MAX_NEST = 200 }; // operators; deeper ones are taken for unknown
enum { MAX_REMAINDERS = 3 }; // that are looked at together in one form's bounds
// Coefficients stay below this, so that no bound computed in 128 bits overflows.
#define MAX_COEF ((int64_t)1 << 40)
static const Interval unbounded = {INT64_MIN, INT64_MAX}, int32 = {INT32_MIN, INT32_MAX};

typedef enum AtomKind {
  ATOM_INDEX, // id: position in the statement
  ATOM_READ, // id: value; sub: forms of its subscripts
  ATOM_QUOTIENT, // form sub[0], divided by `by`
  ATOM_OTHER // id: expression in env; a where, min, max or abs is solved by cases
} AtomKind;

typedef struct Atom {
  AtomKind kind;
  uint32_t id, env;
  bool wide;
  int64_t by;
  uint32_t nsub, sub[MAX_RANK]; // interned forms
  Interval base, box; // always; under the assumptions
  Id data; // ValueFact.data
  bool settled; // a case of it is being looked at
} Atom;

// What the indices of a definition that is looked through stand for. Env 0 is the statement's own.
typedef struct Env {
  const Stmt *s;
  uint32_t form[MAX_INDEX]; // interned
  uint32_t depth;
} Env;

// An assumption that is true in either of two ways.
typedef struct Open {
  Id cond;
  uint32_t env;
  bool holds;
} Open;

// Whether an expression is the same in 32 bits as in 64.
typedef struct Exact {
  Id e;
  uint32_t env;
  bool is;
} Exact;

typedef struct Trail {
  uint32_t atom;
  Interval box;
} Trail;

struct Prover {
  Arena *a;
  const Module *m;
  const Fn *f;
  const ValueFact *fact;
  const Stmt **def; // of each value, where it can be looked through; NULL elsewhere
  VEC(Atom) atom;
  VEC(Lin) form; // interned
  VEC(Env) env;
  VEC(Lin) known; // each >= 0
  VEC(Open) open;
  VEC(Exact) exact;
  VEC(Trail) trail;
  bool dead;
  bool basing; // forms and bounds are to hold always, whatever is assumed
  uint32_t work, splits, nesting;
};

// ---- linear forms

static Lin constant(int64_t c) { return (Lin){.constant = c}; }
static Lin atom_form(uint32_t atom) { return (Lin){.n = 1, .term = {{atom, 1}}}; }

static bool lin_same(const Lin *a, const Lin *b) {
  if (a->constant != b->constant || a->n != b->n) return false;
  for (uint32_t i = 0; i < a->n; i++)
    if (a->term[i].atom != b->term[i].atom || a->term[i].coef != b->term[i].coef) return false;
  return true;
}

// *r = a * ka + b * kb. False where that has too many terms or too large numbers.
static bool combine(const Lin *a, int64_t ka, const Lin *b, int64_t kb, Lin *r) {
  int64_t ca, cb;
  Lin out = {0};
  if (!mul_ok(a->constant, ka, &ca) || !mul_ok(b->constant, kb, &cb) ||
      !add_ok(ca, cb, &out.constant))
    return false;
  for (uint32_t i = 0, j = 0; i < a->n || j < b->n;) {
    bool left = i < a->n && (j == b->n || a->term[i].atom <= b->term[j].atom);
    bool right = j < b->n && (i == a->n || b->term[j].atom <= a->term[i].atom);
    LinTerm t = {left ? a->term[i].atom : b->term[j].atom, 0};
    Wide c = (left ? (Wide)a->term[i++].coef * ka : 0) + (right ? (Wide)b->term[j++].coef * kb : 0);
    if (!c) continue;
    if (c > MAX_COEF || c < -MAX_COEF || out.n == MAX_TERMS) return false;
    t.coef = (int64_t)c;
    out.term[out.n++] = t;
  }
  *r = out;
  return true;
}

static int64_t coef_of(const Lin *f, uint32_t atom) {
  for (uint32_t i = 0; i < f->n; i++)
    if (f->term[i].atom == atom) return f->term[i].coef;
  return 0;
}

static uint32_t intern(Prover *p, const Lin *f) {
  for (uint32_t i = 0; i < p->form.n; i++)
    if (lin_same(&p->form.at[i], f)) return i;
  PUSH(p->a, p->form, *f);
  return p->form.n - 1;
}

// ---- bounds

static const Wide no_bound = (Wide)1 << 120;

// The least value over the box, or -no_bound.
static Wide least(const Prover *p, const Lin *f, bool base) {
  Wide sum = f->constant;
  for (uint32_t i = 0; i < f->n; i++) {
    const Atom *a = &p->atom.at[f->term[i].atom];
    Interval box = base || p->basing ? a->base : a->box;
    int64_t end = f->term[i].coef > 0 ? box.lo : box.hi;
    if (end == INT64_MIN || end == INT64_MAX) return -no_bound;
    sum += (Wide)f->term[i].coef * end;
  }
  return sum;
}

static int64_t clamp(Wide v) {
  return v < INT64_MIN ? INT64_MIN : v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

// The bounds that the atoms' boxes give, and narrower ones where the form has a remainder in it: k * (a - by * q), with
// q = a // by, is k times 0 to by - 1 whatever a is. At most `remainders` of them are looked at together.
static Interval box_with(const Prover *p, const Lin *f, bool base, uint32_t remainders) {
  Lin minus;
  Interval r = unbounded;
  r.lo = clamp(least(p, f, base));
  if (combine(f, -1, f, 0, &minus)) r.hi = clamp(-least(p, &minus, base));
  for (uint32_t i = 0; remainders && i < f->n; i++) {
    const Atom *a = &p->atom.at[f->term[i].atom];
    if (a->kind != ATOM_QUOTIENT || f->term[i].coef % a->by) continue;
    Lin q = atom_form(f->term[i].atom), remainder, rest;
    int64_t k = -(f->term[i].coef / a->by);
    if (!combine(&p->form.at[a->sub[0]], 1, &q, -a->by, &remainder) ||
        !combine(f, 1, &remainder, -k, &rest))
      continue;
    Interval b = box_with(p, &rest, base, remainders - 1);
    Wide most = (Wide)k * (a->by - 1), lo = b.lo + (most < 0 ? most : 0), hi = b.hi + (most > 0 ? most : 0);
    if (b.lo != INT64_MIN && lo > r.lo) r.lo = clamp(lo);
    if (b.hi != INT64_MAX && hi < r.hi) r.hi = clamp(hi);
  }
  return r;
}

static Interval box_of(const Prover *p, const Lin *f, bool base) {
  return box_with(p, f, base, MAX_REMAINDERS);
}

static bool within(Interval a, Interval b) { return a.lo >= b.lo && a.hi <= b.hi; }
static Interval hull(Interval a, Interval b) {
  return (Interval){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b && (a < 0) != (b < 0)); }

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t t = a % b;
    a = b;
    b = t;
  }
  return a;
}

// ---- search

// The forms known to be >= 0: assumptions, then what defines each quotient.
static bool known_form(const Prover *p, uint32_t i, Lin *out) {
  if (i < p->known.n) {
    *out = p->known.at[i];
    return true;
  }
  uint32_t k = (i - p->known.n) / 2;
  const Atom *a = &p->atom.at[k];
  if (a->kind != ATOM_QUOTIENT) return false;
  Lin q = atom_form(k);
  if ((i - p->known.n) % 2 == 0) return combine(&p->form.at[a->sub[0]], 1, &q, -a->by, out);
  if (!combine(&q, a->by, &p->form.at[a->sub[0]], -1, out)) return false;
  return add_ok(out->constant, a->by - 1, &out->constant);
}

static bool search(Prover *p, const Lin *goal, int64_t scale, uint32_t depth);

// Cancels one atom of the goal by the known form f: f's multiple comes off, which only lowers the
// goal.
static bool eliminate(Prover *p, const Lin *goal, int64_t scale, const Lin *f, uint32_t depth) {
  for (uint32_t t = 0; t < f->n; t++) {
    int64_t fc = f->term[t].coef, gc = coef_of(goal, f->term[t].atom);
    if (!gc || (gc > 0) != (fc > 0)) continue;
    if (fc < 0) fc = -fc, gc = -gc;
    int64_t d = gcd(fc, gc), times = fc / d, s;
    Lin next;
    if (!mul_ok(scale, times, &s) || s > MAX_COEF || !combine(goal, times, f, -(gc / d), &next))
      continue;
    if (search(p, &next, s, depth - 1)) return true;
  }
  return false;
}

// Whether goal > -scale: the original goal, times scale, is at least this form, and is an integer.
static bool search(Prover *p, const Lin *goal, int64_t scale, uint32_t depth) {
  if (least(p, goal, false) > -scale) return true;
  if (!depth) return false;
  Lin f;
  for (uint32_t i = 0; i < p->known.n + 2 * p->atom.n; i++) {
    if (!known_form(p, i, &f)) continue;
    if (p->work++ > p->m->limits.prove_work) return false;
    if (eliminate(p, goal, scale, &f, depth)) return true;
  }
  return false;
}

// Whether the assumptions can't all hold: -1 >= 0 follows from one of them and two others.
static bool contradiction(Prover *p) {
  Lin f, minus = constant(-1), goal;
  for (uint32_t i = 0; i < p->known.n; i++)
    if (known_form(p, i, &f) && combine(&minus, 1, &f, -1, &goal) &&
        search(p, &goal, 1, p->m->limits.prove_forms - 1))
      return true;
  return false;
}

// ---- expressions to forms

static Lin form_in(Prover *p, Id e, uint32_t env, bool wide);

static uint32_t add_atom(Prover *p, Atom a) {
  for (uint32_t i = 0; i < p->atom.n; i++) {
    const Atom *b = &p->atom.at[i];
    if (a.kind == b->kind && a.id == b->id && a.env == b->env && a.wide == b->wide &&
        a.by == b->by && a.nsub == b->nsub && !memcmp(a.sub, b->sub, a.nsub * sizeof *a.sub))
      return i;
  }
  a.box = a.base;
  PUSH(p->a, p->atom, a);
  return p->atom.n - 1;
}

static Interval any_int(bool wide) { return wide ? unbounded : int32; }

static Interval base_box(Prover *p, Id e, uint32_t env, bool wide);

static bool exact(Prover *p, Id e, uint32_t env);

static bool exact_operator(Prover *p, Id e, uint32_t env) {
  const Expr *x = ex(p->m, e);
  bool ok = true;
  for (uint32_t i = 0; ok && i < x->narg; i++) ok = exact(p, ex_arg(p->m, e, i), env);
  if (!ok || x->type == SC_BOOL) return ok;
  switch (x->op) {
  case OP_WHERE:
  case OP_MIN:
  case OP_MAX: return true; // one of those
  case OP_ABS: return base_box(p, ex_arg(p->m, e, 0), env, true).lo > INT32_MIN;
  case OP_IDIV:
  case OP_MOD: return base_box(p, ex_arg(p->m, e, 1), env, true).lo > 0;
  default: return within(base_box(p, e, env, true), int32);
  }
}

// Whether e is the same in 32 bits as in 64, whatever is assumed.
static bool exact(Prover *p, Id e, uint32_t env) {
  const Expr *x = ex(p->m, e);
  if (x->op == OP_READ || x->op == OP_GROUP) return true; // their insides are in 64 bits anyway
  if (x->type == SC_REAL || p->nesting > MAX_NEST) return x->type == SC_REAL;
  for (uint32_t i = 0; i < p->exact.n; i++)
    if (p->exact.at[i].e == e && p->exact.at[i].env == env) return p->exact.at[i].is;
  p->nesting++;
  Exact found = {e, env, exact_operator(p, e, env)};
  p->nesting--;
  PUSH(p->a, p->exact, found);
  return found.is;
}

// The atom of an expression that is not linear. `base` must hold whatever is assumed now, because
// the atom outlives the assumption.
static Lin other(Prover *p, Id e, uint32_t env, bool wide, Interval base) {
  if (!within(base, any_int(wide))) base = any_int(wide);
  Atom a = {.kind = ATOM_OTHER, .id = e, .env = env, .wide = wide, .base = base, .data = NONE};
  return atom_form(add_atom(p, a));
}

// The form that holds whatever is assumed.
static Lin base_form(Prover *p, Id e, uint32_t env, bool wide) {
  bool was = p->basing;
  p->basing = true;
  Lin f = form_in(p, e, env, wide);
  p->basing = was;
  return f;
}

static Interval base_box(Prover *p, Id e, uint32_t env, bool wide) {
  Lin f = base_form(p, e, env, wide);
  return box_of(p, &f, true);
}

static Lin quotient(Prover *p, const Lin *a, int64_t by);

// What 32 bits make of r, the exact value of e: itself where its bounds show that it fits.
static Lin checked(Prover *p, bool fits, const Lin *r, Id e, uint32_t env, bool wide) {
  if (fits && (wide || within(box_of(p, r, false), int32))) return *r;
  Lin half = constant((int64_t)1 << 31), a, w;
  if (!fits || wide || !combine(r, 1, &half, 1, &a)) return other(p, e, env, wide, unbounded);
  Lin q = quotient(p, &a, (int64_t)1 << 32);
  if (combine(r, 1, &q, -((int64_t)1 << 32), &w)) return w;
  return other(p, e, env, wide, unbounded);
}

static Lin index_form(Prover *p, const Expr *x, uint32_t env) {
  if (env) return p->form.at[p->env.at[env].form[x->integer]];
  Interval range = {0, p->env.at[0].s->index[x->integer].extent - 1};
  Atom a = {.kind = ATOM_INDEX, .id = (uint32_t)x->integer, .base = range, .data = NONE};
  return atom_form(add_atom(p, a));
}

static Lin group_form(Prover *p, Id e, uint32_t env) {
  const Expr *x = ex(p->m, e);
  Lin sum = form_in(p, ex_arg(p->m, e, 0), env, true);
  for (uint32_t i = 1; i < x->narg; i++) {
    const Expr *k = ex(p->m, ex_arg(p->m, e, i));
    Lin index = index_form(p, k, env);
    if (!combine(&sum, p->env.at[env].s->index[k->integer].extent, &index, 1, &sum))
      return other(p, e, env, true, unbounded);
  }
  return sum;
}

static Interval product(Interval a, Interval b) {
  if (!within(a, int32) || !within(b, int32)) return unbounded;
  int64_t v[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
  Interval r = {v[0], v[0]};
  for (int i = 1; i < 4; i++) r = hull(r, (Interval){v[i], v[i]});
  return r;
}

static Lin product_form(Prover *p, Id e, uint32_t env, bool wide, const Lin *a, const Lin *b) {
  Lin r = {0};
  if (!b->n) return checked(p, combine(a, b->constant, a, 0, &r), &r, e, env, wide);
  if (!a->n) return checked(p, combine(b, a->constant, b, 0, &r), &r, e, env, wide);
  wide = wide || exact(p, e, env);
  return other(p, e, env, wide,
               product(base_box(p, ex_arg(p->m, e, 0), env, wide),
                       base_box(p, ex_arg(p->m, e, 1), env, wide)));
}

// a // by, for by > 0: the terms that by divides leave the quotient; the rest is an atom where its
// bounds do not fix it.
static Lin quotient(Prover *p, const Lin *a, int64_t by) {
  Lin whole = constant(floor_div(a->constant, by)),
      rest = constant(a->constant - whole.constant * by);
  for (uint32_t i = 0; i < a->n; i++) {
    LinTerm t = a->term[i];
    if (t.coef % by == 0) whole.term[whole.n++] = (LinTerm){t.atom, t.coef / by};
    else rest.term[rest.n++] = t;
  }
  Interval box = box_of(p, &rest, false), base = box_of(p, &rest, true);
  Lin r = constant(floor_div(box.lo, by));
  if (floor_div(box.hi, by) != r.constant) {
    Atom q = {.kind = ATOM_QUOTIENT, .by = by, .nsub = 1, .data = NONE};
    q.sub[0] = intern(p, &rest);
    q.base = (Interval){base.lo == INT64_MIN ? base.lo : floor_div(base.lo, by),
                        base.hi == INT64_MAX ? base.hi : floor_div(base.hi, by)};
    r = atom_form(add_atom(p, q));
  }
  Lin sum;
  return combine(&whole, 1, &r, 1, &sum) ? sum
                                         : r; // the sum has no more terms than a, and smaller ones
}

static Lin division_form(Prover *p, Id e, uint32_t env, bool wide, const Lin *a, const Lin *b) {
  bool mod = ex_is(p->m, e, OP_MOD);
  if (!b->n && b->constant >= 1 && b->constant <= MAX_COEF && p->atom.n <= p->m->limits.prove_atoms) {
    Lin q = quotient(p, a, b->constant), r;
    if (!mod) return q;
    if (combine(a, 1, &q, -b->constant, &r)) return r;
  }
  wide = wide || exact(p, e, env);
  Interval by = base_box(p, ex_arg(p->m, e, 1), env, wide);
  return other(p, e, env, wide, mod && by.lo >= 1 ? (Interval){0, by.hi - 1} : unbounded);
}

static bool find_other(const Prover *p, Id e, uint32_t env, bool wide, Lin *out) {
  for (uint32_t i = 0; i < p->atom.n; i++) {
    const Atom *a = &p->atom.at[i];
    if (a->kind != ATOM_OTHER || a->id != e || a->env != env || a->wide != wide) continue;
    *out = atom_form(i);
    return true;
  }
  return false;
}

// min, max, abs, where: an atom, with the bounds that both ways have in common. In a subscript too they are of 32 bits,
// as are their operands.
static Lin cases_form(Prover *p, Id e, uint32_t env) {
  const Expr *x = ex(p->m, e);
  Lin found;
  bool wide = exact(p, e, env);
  if (find_other(p, e, env, wide, &found)) return found;
  Lin a = base_form(p, ex_arg(p->m, e, x->op == OP_WHERE), env, wide);
  Interval ra = box_of(p, &a, true), r = unbounded;
  if (x->op == OP_ABS) {
    if (ra.lo >= 0) return a;
    if (within(ra, int32)) r = (Interval){0, -ra.lo > ra.hi ? -ra.lo : ra.hi};
    return other(p, e, env, wide, r);
  }
  Lin b = base_form(p, ex_arg(p->m, e, x->narg - 1u), env, wide);
  Interval rb = box_of(p, &b, true);
  if (lin_same(&a, &b)) return a;
  r = hull(ra, rb);
  if (x->op == OP_MIN) r.hi = ra.hi < rb.hi ? ra.hi : rb.hi;
  if (x->op == OP_MAX) r.lo = ra.lo > rb.lo ? ra.lo : rb.lo;
  return other(p, e, env, wide, r);
}

// The env in which the defining statement of a read's value computes the element read; 0: none.
static uint32_t definition(Prover *p, Id e, uint32_t env, const uint32_t *sub) {
  const Expr *x = ex(p->m, e);
  const Stmt *s = p->def[x->integer];
  if (!s || p->env.at[env].depth >= p->m->limits.prove_definitions || p->env.n > p->m->limits.prove_atoms) return 0;
  Env in = {.s = s, .depth = p->env.at[env].depth + 1};
  for (uint32_t d = 0; d < x->narg; d++) in.form[ex(p->m, s->sub[d])->integer] = sub[d];
  for (uint32_t i = 1; i < p->env.n; i++) {
    const Env *o = &p->env.at[i];
    if (o->s == s && o->depth == in.depth && !memcmp(o->form, in.form, sizeof in.form)) return i;
  }
  PUSH(p->a, p->env, in);
  return p->env.n - 1;
}

static void read_subscripts(Prover *p, Id e, uint32_t env, uint32_t *sub) {
  for (uint32_t d = 0; d < ex(p->m, e)->narg; d++) {
    Lin s = form_in(p, ex_arg(p->m, e, d), env, true);
    sub[d] = intern(p, &s);
  }
}

// An int value's element: as its definition computes it where that is linear, else an atom.
static Lin read_form(Prover *p, Id e, uint32_t env) {
  const Expr *x = ex(p->m, e);
  const ValueFact *fact = &p->fact[x->integer];
  Atom a = {.kind = ATOM_READ,
            .id = (uint32_t)x->integer,
            .nsub = x->narg,
            .base = fact->range,
            .data = fact->data};
  read_subscripts(p, e, env, a.sub);
  uint32_t in = definition(p, e, env, a.sub);
  if (in) {
    Lin r = form_in(p, p->env.at[in].s->body, in, false);
    bool linear = true;
    for (uint32_t i = 0; i < r.n; i++) {
      const Atom *t = &p->atom.at[r.term[i].atom];
      linear &= t->kind != ATOM_OTHER || ex_is(p->m, t->id, OP_WHERE);
    }
    if (linear && within(box_of(p, &r, false), int32)) return r;
  }
  return atom_form(add_atom(p, a));
}

static Lin operator_form(Prover *p, Id e, uint32_t env, bool wide) {
  const Expr *x = ex(p->m, e);
  Lin a, b, r = {0};
  switch (x->op) {
  case OP_INT: return constant(x->integer);
  case OP_INDEX: return index_form(p, x, env);
  case OP_GROUP: return group_form(p, e, env);
  case OP_READ: return read_form(p, e, env);
  case OP_STOP: return form_in(p, ex_arg(p->m, e, 0), env, wide);
  case OP_NEG:
    a = form_in(p, ex_arg(p->m, e, 0), env, wide);
    return checked(p, combine(&a, -1, &a, 0, &r), &r, e, env, wide);
  case OP_WHERE:
  case OP_MIN:
  case OP_MAX:
  case OP_ABS: return cases_form(p, e, env);
  case OP_TO_INT: {
    bool from_bool = ex(p->m, ex_arg(p->m, e, 0))->type == SC_BOOL;
    return other(p, e, env, wide, from_bool ? (Interval){0, 1} : int32);
  }
  default: break;
  }
  if (x->narg != 2) return other(p, e, env, wide, unbounded);
  a = form_in(p, ex_arg(p->m, e, 0), env, wide);
  b = form_in(p, ex_arg(p->m, e, 1), env, wide);
  switch (x->op) {
  case OP_ADD: return checked(p, combine(&a, 1, &b, 1, &r), &r, e, env, wide);
  case OP_SUB: return checked(p, combine(&a, 1, &b, -1, &r), &r, e, env, wide);
  case OP_MUL: return product_form(p, e, env, wide, &a, &b);
  case OP_IDIV:
  case OP_MOD: return division_form(p, e, env, wide, &a, &b);
  default: return other(p, e, env, wide, unbounded);
  }
}

static Lin form_in(Prover *p, Id e, uint32_t env, bool wide) {
  if (p->atom.n > p->m->limits.prove_atoms || p->nesting > MAX_NEST) return other(p, e, env, wide, unbounded);
  p->nesting++;
  Lin r = operator_form(p, e, env, wide);
  p->nesting--;
  return r;
}

// ---- assumptions

static void tighten(Prover *p, uint32_t atom, Interval to) {
  Atom *a = &p->atom.at[atom];
  if (to.lo <= a->box.lo && to.hi >= a->box.hi) return;
  PUSH(p->a, p->trail, (Trail){atom, a->box});
  if (to.lo > a->box.lo) a->box.lo = to.lo;
  if (to.hi < a->box.hi) a->box.hi = to.hi;
  if (a->box.lo > a->box.hi) p->dead = true;
}

// form >= 0 is known: it is kept, and narrows the box of each of its atoms.
static void know(Prover *p, const Lin *form) {
  if (!form->n) p->dead |= form->constant < 0;
  for (uint32_t i = 0; i < form->n; i++) {
    Lin minus, self = atom_form(form->term[i].atom);
    int64_t c = form->term[i].coef;
    if (!combine(form, -1, &self, c, &minus)) continue; // c * atom >= minus
    Wide low = least(p, &minus, false);
    if (low < -no_bound / 2 || low > INT64_MAX || low < -INT64_MAX) continue;
    Interval to = unbounded;
    if (c > 0) to.lo = -floor_div(-(int64_t)low, c);
    else to.hi = floor_div(-(int64_t)low, -c);
    tighten(p, form->term[i].atom, to);
  }
  if (form->n > 1) PUSH(p->a, p->known, *form);
}

// a - b >= least
static void know_difference(Prover *p, const Lin *a, const Lin *b, int64_t least) {
  Lin d;
  if (combine(a, 1, b, -1, &d) && add_ok(d.constant, -least, &d.constant)) know(p, &d);
}

static void assume_in(Prover *p, Open o);

static bool quick_nonneg(Prover *p, const Lin *a, const Lin *b) {
  Lin d;
  p->work = 0;
  return combine(a, 1, b, -1, &d) && search(p, &d, 1, 1);
}

// a != b: known where a <= b or b <= a is known, else left open.
static void know_different(Prover *p, const Lin *a, const Lin *b, Open o) {
  if (quick_nonneg(p, a, b)) know_difference(p, a, b, 1);
  else if (quick_nonneg(p, b, a)) know_difference(p, b, a, 1);
  else PUSH(p->a, p->open, o);
}

static void assume_compare(Prover *p, Open o) {
  static const Op negated[NOP] = {[OP_LT] = OP_GE, [OP_LE] = OP_GT, [OP_GT] = OP_LE,
                                  [OP_GE] = OP_LT, [OP_EQ] = OP_NE, [OP_NE] = OP_EQ};
  if (ex(p->m, ex_arg(p->m, o.cond, 0))->type != SC_INT) return;
  Lin a = form_in(p, ex_arg(p->m, o.cond, 0), o.env, false);
  Lin b = form_in(p, ex_arg(p->m, o.cond, 1), o.env, false);
  Op op = ex(p->m, o.cond)->op;
  switch (o.holds ? op : negated[op]) {
  case OP_LT: know_difference(p, &b, &a, 1); break;
  case OP_LE: know_difference(p, &b, &a, 0); break;
  case OP_GT: know_difference(p, &a, &b, 1); break;
  case OP_GE: know_difference(p, &a, &b, 0); break;
  case OP_EQ:
    know_difference(p, &a, &b, 0);
    know_difference(p, &b, &a, 0);
    break;
  default: know_different(p, &a, &b, o);
  }
}

static void assume_part(Prover *p, Open o, uint32_t i, bool holds) {
  o.cond = ex_arg(p->m, o.cond, i);
  o.holds = holds;
  assume_in(p, o);
}

static void assume_in(Prover *p, Open o) {
  const Expr *x = ex(p->m, o.cond);
  if (p->dead) return;
  switch (x->op) {
  case OP_BOOL: p->dead |= (x->integer != 0) != o.holds; return;
  case OP_NOT: assume_part(p, o, 0, !o.holds); return;
  case OP_AND:
  case OP_OR:
    if (o.holds != (x->op == OP_AND)) {
      PUSH(p->a, p->open, o);
      return;
    }
    assume_part(p, o, 0, o.holds);
    assume_part(p, o, 1, o.holds);
    return;
  case OP_READ: {
    uint32_t sub[MAX_RANK];
    read_subscripts(p, o.cond, o.env, sub);
    uint32_t in = definition(p, o.cond, o.env, sub);
    if (in) assume_in(p, (Open){p->env.at[in].s->body, in, o.holds});
    return;
  }
  case OP_LT:
  case OP_LE:
  case OP_GT:
  case OP_GE:
  case OP_EQ:
  case OP_NE: assume_compare(p, o); return;
  default: return;
  }
}

// ---- proof by cases

static bool prove(Prover *p, const Lin *goal);

// Takes one of an open assumption's two ways.
static void take(Prover *p, Open o, int way) {
  const Expr *x = ex(p->m, o.cond);
  if (x->op == OP_AND || x->op == OP_OR) {
    if (way) assume_part(p, o, 0, !o.holds); // the other one failed
    assume_part(p, o, (uint32_t)way, o.holds);
    return;
  }
  Lin a = form_in(p, ex_arg(p->m, o.cond, 0), o.env, false);
  Lin b = form_in(p, ex_arg(p->m, o.cond, 1), o.env, false);
  if (way) know_difference(p, &a, &b, 1);
  else know_difference(p, &b, &a, 1);
}

// In way 0 or 1 of an atom of cases, what it equals; assumes what that way needs.
static Lin choose(Prover *p, Atom a, int way) {
  const Expr *x = ex(p->m, a.id);
  if (x->op == OP_WHERE) {
    assume_in(p, (Open){ex_arg(p->m, a.id, 0), a.env, way == 0});
    return form_in(p, ex_arg(p->m, a.id, 1 + (uint32_t)way), a.env, a.wide);
  }
  Lin u = form_in(p, ex_arg(p->m, a.id, 0), a.env, a.wide), v;
  if (x->op == OP_ABS) v = u, combine(&u, -1, &u, 0, &v);
  else v = form_in(p, ex_arg(p->m, a.id, 1), a.env, a.wide);
  bool first_less = (x->op == OP_MIN) == (way == 0); // way 0: u
  know_difference(p, first_less ? &v : &u, first_less ? &u : &v, 0);
  return way ? v : u;
}

static bool by_cases(Prover *p, uint32_t atom, const Lin *goal) {
  p->atom.at[atom].settled = true;
  for (int way = 0; way < 2; way++) {
    Mark mark = prover_mark(p);
    Lin is = choose(p, p->atom.at[atom], way), self = atom_form(atom), next;
    know_difference(p, &self, &is, 0);
    know_difference(p, &is, &self, 0);
    int64_t c = coef_of(goal, atom);
    bool ok = p->dead;
    if (!ok && combine(goal, 1, &self, -c, &next) && combine(&next, 1, &is, c, &next))
      ok = prove(p, &next);
    prover_undo(p, mark);
    if (ok) continue;
    p->atom.at[atom].settled = false;
    return false;
  }
  p->atom.at[atom].settled = false;
  return true;
}

static bool by_open(Prover *p, uint32_t i, const Lin *goal) {
  Open o = p->open.at[i];
  for (int way = 0; way < 2; way++) {
    Mark mark = prover_mark(p);
    p->open.at[i].cond = NONE; // taken
    take(p, o, way);
    bool ok = p->dead || prove(p, goal);
    prover_undo(p, mark);
    p->open.at[i] = o;
    if (!ok) return false;
  }
  return true;
}

static bool has_cases(const Prover *p, uint32_t atom) {
  const Atom *a = &p->atom.at[atom];
  if (a->kind != ATOM_OTHER || a->settled) return false;
  Op op = ex(p->m, a->id)->op;
  if (op == OP_ABS) return a->base.lo >= 0; // else it may wrap
  return op == OP_WHERE || op == OP_MIN || op == OP_MAX;
}

// The first atom of cases in the goal, else in what is known.
static uint32_t find_cases(const Prover *p, const Lin *goal) {
  for (uint32_t i = 0; i < goal->n; i++)
    if (has_cases(p, goal->term[i].atom)) return goal->term[i].atom;
  for (uint32_t k = 0; k < p->known.n; k++)
    for (uint32_t i = 0; i < p->known.at[k].n; i++)
      if (has_cases(p, p->known.at[k].term[i].atom)) return p->known.at[k].term[i].atom;
  return NONE;
}

static bool prove(Prover *p, const Lin *goal) {
  p->work = 0;
  if (p->dead || search(p, goal, 1, p->m->limits.prove_forms)) return true;
  p->work = 0;
  if (contradiction(p)) return true;
  if (p->splits >= p->m->limits.prove_cases) return false;
  p->splits++;
  bool ok = false;
  uint32_t atom = find_cases(p, goal);
  if (atom != NONE) ok = by_cases(p, atom, goal);
  for (uint32_t i = 0; !ok && i < p->open.n; i++)
    if (p->open.at[i].cond != NONE) ok = by_open(p, i, goal);
  p->splits--;
  return ok;
}

// ---- the interface

Prover *prover_new(Arena *a, const Module *m) {
  Prover *p = NEW(a, Prover);
  p->a = a;
  p->m = m;
  return p;
}

// Whether every element of the statement's value is its body, at indices that are the subscripts.
static bool looks_through(const Module *m, const Fn *f, const Stmt *s) {
  if (s->kind != ST_COMP || s->acc || s->red != RED_NONE) return false;
  uint32_t rank = f->value.at[s->lhs].rank, seen = 0;
  if (f->value.at[s->lhs].type != DT_I32 && f->value.at[s->lhs].type != DT_BOOL) return false;
  for (uint32_t d = 0; d < rank; d++) {
    const Expr *x = ex(m, s->sub[d]);
    if (x->op != OP_INDEX || seen >> x->integer & 1) return false;
    seen |= 1u << x->integer;
  }
  return s->nindex == rank;
}

void prover_fn(Prover *p, const Fn *f, const ValueFact *fact) {
  p->f = f;
  p->fact = fact;
  p->def = NEWN(p->a, const Stmt *, f->value.n + 1);
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (looks_through(p->m, f, &f->stmt.at[i])) p->def[f->stmt.at[i].lhs] = &f->stmt.at[i];
}

void prover_stmt(Prover *p, const Stmt *s) {
  p->atom.n = p->form.n = p->env.n = p->known.n = p->open.n = p->exact.n = p->trail.n = p->splits = 0;
  p->dead = false;
  PUSH(p->a, p->env, (Env){.s = s});
}

Mark prover_mark(const Prover *p) { return (Mark){p->known.n, p->open.n, p->trail.n, p->dead}; }

void prover_undo(Prover *p, Mark mark) {
  while (p->trail.n > mark.trail) {
    Trail t = p->trail.at[--p->trail.n];
    p->atom.at[t.atom].box = t.box;
  }
  p->known.n = mark.known;
  p->open.n = mark.open;
  p->dead = mark.dead;
}

void prover_assume(Prover *p, Id cond, bool holds) {
  assume_in(p, (Open){cond, 0, holds});
}
bool prover_dead(const Prover *p) { return p->dead; }
Lin prover_form(Prover *p, Id e, bool wide) { return form_in(p, e, 0, wide); }
bool prover_nonneg(Prover *p, const Lin *goal) { return prove(p, goal); }
Interval prover_bounds(const Prover *p, const Lin *form) { return box_of(p, form, false); }

// The box of the form, made narrower by each known F >= 0: form <= form + F, and form >= form - F.
static Interval known_range(Prover *p, const Lin *form) {
  Interval r = box_of(p, form, false);
  for (uint32_t i = 0; i < p->known.n; i++) {
    Lin sum;
    if (combine(form, 1, &p->known.at[i], 1, &sum)) {
      Interval s = box_of(p, &sum, false);
      if (s.hi < r.hi) r.hi = s.hi;
    }
    if (combine(form, 1, &p->known.at[i], -1, &sum)) {
      Interval s = box_of(p, &sum, false);
      if (s.lo > r.lo) r.lo = s.lo;
    }
  }
  return r;
}

Interval prover_range(Prover *p, Id e) {
  const Expr *x = ex(p->m, e);
  if (x->op != OP_WHERE) {
    Lin f = form_in(p, e, 0, false);
    Interval r = known_range(p, &f);
    return within(r, int32) ? r : int32;
  }
  Interval r[2];
  bool reached[2];
  for (int way = 0; way < 2; way++) {
    Mark mark = prover_mark(p);
    prover_assume(p, ex_arg(p->m, e, 0), way == 0);
    reached[way] = !p->dead;
    if (reached[way]) r[way] = prover_range(p, ex_arg(p->m, e, 1 + (uint32_t)way));
    prover_undo(p, mark);
  }
  if (reached[0] && reached[1]) return hull(r[0], r[1]);
  return reached[0] ? r[0] : reached[1] ? r[1] : int32;
}

Id prover_data(const Prover *p, const Lin *form, int64_t extent, Interval *need) {
  for (uint32_t i = 0; i < form->n; i++) {
    uint32_t atom = form->term[i].atom;
    Lin rest, self = atom_form(atom);
    if (form->term[i].coef != 1 || p->atom.at[atom].data == NONE) continue;
    if (!combine(form, 1, &self, -1, &rest)) continue;
    Interval r = box_of(p, &rest, false);
    if (!within(r, int32) || extent > INT32_MAX) continue;
    *need = (Interval){-r.lo, extent - 1 - r.hi};
    if (need->lo <= need->hi) return p->atom.at[atom].data;
  }
  return NONE;
}
