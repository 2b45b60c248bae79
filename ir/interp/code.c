// Compiles one statement for the interpreter: expressions to straight-line code on lanes.
#include <stdlib.h>

#include "ir/interp/code.h"

// What an expression was compiled to. The same expression under another mask is compiled again if
// it may fail: its check must see the lanes that reach it.
typedef struct Memo {
  Id e;
  bool wide;
  uint16_t mask, reg;
} Memo;

typedef struct Coder {
  const Module *m;
  const Fn *f;
  const Stmt *s;
  Arena *a;
  Code *code;
  VEC(Memo) memo; // chained by hash
  Id *next, *head; // of the chains
  uint32_t nnext;
  uint32_t nunsafe; // instructions so far that may fail
} Coder;

enum { NHEAD = 256 };

static uint32_t hash(Id e, bool wide, uint16_t mask) {
  return (e * 2654435761u ^ mask * 40503u ^ wide) % NHEAD;
}

static uint16_t memo_find(Coder *c, Id e, bool wide, uint16_t mask) {
  for (Id i = c->head[hash(e, wide, mask)]; i != NONE; i = c->next[i]) {
    const Memo *k = &c->memo.at[i];
    if (k->e == e && k->wide == wide && k->mask == mask) return k->reg;
  }
  return NO_REG;
}

static void memo_add(Coder *c, Id e, bool wide, uint16_t mask, uint16_t reg) {
  Memo k = {e, wide, mask, reg};
  PUSH(c->a, c->memo, k);
  vec_room(c->a, (void **)&c->next, &c->nnext, c->memo.n - 1, sizeof(Id));
  uint32_t h = hash(e, wide, mask);
  c->next[c->memo.n - 1] = c->head[h];
  c->head[h] = c->memo.n - 1;
}

static int64_t wmul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t wadd(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static void affine_add(Affine *a, uint8_t index, int64_t coef) {
  for (uint8_t i = 0; i < a->n; i++) {
    if (a->index[i] != index) continue;
    a->coef[i] = wadd(a->coef[i], coef);
    return;
  }
  a->index[a->n] = index;
  a->coef[a->n++] = coef;
}

// Adds scale * e to *a; false where e is not affine. Arithmetic wraps, in any width alike.
static bool affine(const Coder *c, Id e, int64_t scale, Affine *a) {
  const Expr *x = ex(c->m, e);
  switch (x->op) {
  case OP_INT: a->constant = wadd(a->constant, wmul(scale, x->integer)); return true;
  case OP_INDEX: affine_add(a, (uint8_t)x->integer, scale); return true;
  case OP_NEG: return affine(c, ex_arg(c->m, e, 0), wmul(scale, -1), a);
  case OP_ADD:
  case OP_SUB:
    return x->type == SC_INT && affine(c, ex_arg(c->m, e, 0), scale, a) &&
           affine(c, ex_arg(c->m, e, 1), x->op == OP_SUB ? wmul(scale, -1) : scale, a);
  case OP_MUL:
    for (uint32_t i = 0; i < 2; i++) {
      const Expr *k = ex(c->m, ex_arg(c->m, e, i));
      if (k->op == OP_INT) return affine(c, ex_arg(c->m, e, 1 - i), wmul(scale, k->integer), a);
    }
    return false;
  case OP_GROUP:
    for (uint32_t i = x->narg; i-- > 0;) {
      Id arg = ex_arg(c->m, e, i);
      if (!affine(c, arg, scale, a)) return false;
      if (i) scale = wmul(scale, c->s->index[ex(c->m, arg)->integer].extent);
    }
    return true;
  default: return false;
  }
}

// Whether 0 <= a < extent for all positions of the indices.
static bool in_range(const Coder *c, const Affine *a, int64_t extent) {
  int64_t lo = a->constant, hi = a->constant, k;
  for (uint8_t i = 0; i < a->n; i++) {
    if (!mul_ok(a->coef[i], c->s->index[a->index[i]].extent - 1, &k)) return false;
    if (!add_ok(k < 0 ? lo : hi, k, k < 0 ? &lo : &hi)) return false;
  }
  return lo >= 0 && hi < extent;
}

static uint16_t new_reg(Coder *c) {
  CHECK(c->code->nreg < NO_REG - 1);
  return c->code->nreg++;
}

static uint16_t expr(Coder *c, Id e, bool wide, uint16_t mask);

static uint16_t emit(Coder *c, Ins in) {
  in.dst = new_reg(c);
  PUSH(c->a, c->code->ins, in);
  return in.dst;
}

static Access access_of(Coder *c, Id value, const Id *sub, uint16_t mask) {
  const Value *v = &c->f->value.at[value];
  Access r = {.value = value};
  int64_t stride = 1;
  for (uint32_t d = v->rank; d-- > 0; stride *= v->extent[d]) {
    Affine a = {0};
    if (affine(c, sub[d], 1, &a) && in_range(c, &a, v->extent[d])) {
      affine(c, sub[d], stride, &r.offset);
      continue;
    }
    uint16_t reg = expr(c, sub[d], true, mask);
    r.check[r.ncheck].reg = reg;
    r.check[r.ncheck].dim = (uint8_t)d;
    r.check[r.ncheck].stride = stride;
    r.check[r.ncheck++].extent = v->extent[d];
  }
  return r;
}

static uint16_t read(Coder *c, Id e, uint16_t mask) {
  const Expr x = *ex(c->m, e);
  Access a = access_of(c, (Id)x.integer, c->m->arg.at + x.arg, mask);
  if (a.ncheck) c->nunsafe++;
  PUSH(c->a, c->code->access, a);
  return emit(
      c,
      (Ins){.op = OP_READ, .real = x.type == SC_REAL, .mask = mask, .at = c->code->access.n - 1});
}

static uint16_t constant(Coder *c, const Expr *x) {
  Constant k = {.reg = new_reg(c), .is_real = x->op == OP_REAL};
  if (k.is_real) k.real = x->real;
  else k.integer = x->integer;
  PUSH(c->a, c->code->constant, k);
  return k.reg;
}

// A group whose first member is not affine. Its arithmetic is in 64 bits; as a narrow integer the
// last addition wraps.
static uint16_t group(Coder *c, Id e, bool wide, uint16_t mask) {
  uint32_t n = ex(c->m, e)->narg;
  uint16_t r = expr(c, ex_arg(c->m, e, 0), true, mask);
  for (uint32_t i = 1; i < n; i++) {
    Id index = ex_arg(c->m, e, i);
    Expr size = {.op = OP_INT, .integer = c->s->index[ex(c->m, index)->integer].extent};
    r = emit(c, (Ins){.op = OP_MUL, .wide = true, .arg = {r, constant(c, &size)}, .mask = mask});
    uint16_t x = expr(c, index, true, mask);
    r = emit(c, (Ins){.op = OP_ADD, .wide = wide || i + 1 < n, .arg = {r, x}, .mask = mask});
  }
  if (n == 1 && !wide) r = emit(c, (Ins){.op = OP_STOP, .arg = {r}, .mask = mask});
  return r;
}

// mask and (r or its opposite).
static uint16_t mask_and(Coder *c, uint16_t mask, uint16_t r, bool negate) {
  if (negate) r = emit(c, (Ins){.op = OP_NOT, .arg = {r}, .mask = NO_REG});
  if (mask == NO_REG) return r;
  return emit(c, (Ins){.op = OP_AND, .arg = {mask, r}, .mask = NO_REG});
}

static uint16_t operator(Coder *c, Id e, bool wide, uint16_t mask) {
  const Expr x = *ex(c->m, e);
  bool arith = x.op == OP_NEG || x.op == OP_ADD || x.op == OP_SUB || x.op == OP_MUL ||
               x.op == OP_IDIV || x.op == OP_MOD;
  Ins in = {.op = x.op, .wide = wide && arith && x.type == SC_INT, .mask = mask};
  in.strict = (x.op == OP_MAX || x.op == OP_MIN) && ex_is(c->m, ex_arg(c->m, e, 1), OP_REAL);
  bool lazy = x.op == OP_WHERE || x.op == OP_AND || x.op == OP_OR;
  in.real = ex(c->m, ex_arg(c->m, e, x.op == OP_WHERE ? 1 : 0))->type == SC_REAL;
  for (uint32_t i = 0; i < x.narg; i++) {
    uint16_t under = mask;
    if (lazy && i) under = mask_and(c, mask, in.arg[0], x.op == OP_OR || i == 2);
    bool element = x.op == OP_RANDOM && i == 2;
    in.arg[i] = expr(c, ex_arg(c->m, e, i), in.wide || element, under);
  }
  return emit(c, in);
}

// Code that leaves e in a register. `wide`: an integer in 64 bits, as in subscripts.
static uint16_t expr(Coder *c, Id e, bool wide, uint16_t mask) {
  const Expr *x = ex(c->m, e);
  wide &= x->type == SC_INT;
  uint16_t reg = memo_find(c, e, wide, NO_REG);
  if (reg == NO_REG) reg = memo_find(c, e, wide, mask);
  if (reg != NO_REG) return reg;
  uint32_t before = c->nunsafe;
  Affine a = {0};
  if (x->op == OP_REAL || x->op == OP_INT || x->op == OP_BOOL) {
    reg = constant(c, x);
  } else if (x->type == SC_INT && affine(c, e, 1, &a)) {
    PUSH(c->a, c->code->affine, a);
    reg = emit(c, (Ins){.op = OP_INDEX, .wide = wide, .mask = mask, .at = c->code->affine.n - 1});
  } else {
    Op op = x->op;
    reg = op == OP_READ    ? read(c, e, mask)
          : op == OP_GROUP ? group(c, e, wide, mask)
                           :
                           operator(c, e, wide, mask);
  }
  memo_add(c, e, wide, c->nunsafe == before ? NO_REG : mask, reg);
  return reg;
}

static Coder coder(const Module *m, const Fn *f, const Stmt *s, Arena *a) {
  Coder c = {.m = m, .f = f, .s = s, .a = a};
  c.code = NEW(a, Code);
  c.code->result = NO_REG;
  c.head = NEWN(a, Id, NHEAD);
  memset(c.head, 0xff, NHEAD * sizeof(Id));
  return c;
}

// Which registers an instruction reads; returns how many.
static int sources(const Code *c, const Ins *in, uint16_t **out, Code *mut) {
  int n = 0;
  (void)c;
  if (in->op == OP_READ) {
    Access *a = &mut->access.at[in->at];
    for (int i = 0; i < a->ncheck; i++) out[n++] = &a->check[i].reg;
  } else if (in->op != OP_INDEX) {
    for (int i = 0; i < op_info[in->op].arity; i++) out[n++] = (uint16_t *)&in->arg[i];
  }
  if (in->mask != NO_REG) out[n++] = (uint16_t *)&in->mask;
  return n;
}

// Registers so far were written once each; gives them as few real ones as their lives allow. An
// instruction's result never shares with its operands: error bounds look at both.
static void allocate(Code *c, Arena *a) {
  uint32_t *last = NEWN(a, uint32_t, c->nreg + 1u);
  uint16_t *to = NEWN(a, uint16_t, c->nreg + 1u), *spare = NEWN(a, uint16_t, c->nreg + 1u);
  uint16_t *src[MAX_RANK + 4], nreg = 0;
  uint32_t nspare = 0;
  for (uint32_t i = 0; i < c->ins.n; i++) {
    last[c->ins.at[i].dst] = i; // also what is never read
    for (int k = sources(c, &c->ins.at[i], src, c); k-- > 0;) last[*src[k]] = i;
  }
  for (uint32_t i = 0; i < c->constant.n; i++) last[c->constant.at[i].reg] = UINT32_MAX;
  if (c->result != NO_REG) last[c->result] = UINT32_MAX;
  for (int i = 0; i < c->lhs.ncheck; i++) last[c->lhs.check[i].reg] = UINT32_MAX;
  for (uint32_t i = 0; i < c->constant.n; i++) {
    to[c->constant.at[i].reg] = nreg;
    c->constant.at[i].reg = nreg++;
  }
  for (uint32_t i = 0; i < c->ins.n; i++) {
    Ins *in = &c->ins.at[i];
    uint16_t old[MAX_RANK + 4], dst = in->dst;
    int n = sources(c, in, src, c);
    in->dst = to[dst] = nspare ? spare[--nspare] : nreg++;
    for (int k = 0; k < n; k++) old[k] = *src[k], *src[k] = to[old[k]];
    for (int k = 0; k < n; k++) {
      if (last[old[k]] != i) continue;
      last[old[k]] = UINT32_MAX; // once, though it may be two operands
      spare[nspare++] = to[old[k]];
    }
    if (last[dst] == i) spare[nspare++] = in->dst;
  }
  if (c->result != NO_REG) c->result = to[c->result];
  for (int i = 0; i < c->lhs.ncheck; i++) c->lhs.check[i].reg = to[c->lhs.check[i].reg];
  c->nreg = nreg;
}

Code *code_body(const Module *m, const Fn *f, const Stmt *s, Arena *a) {
  Coder c = coder(m, f, s, a);
  c.code->result = expr(&c, s->body, false, NO_REG);
  allocate(c.code, a);
  return c.code;
}

Code *code_lhs(const Module *m, const Fn *f, const Stmt *s, Arena *a) {
  Coder c = coder(m, f, s, a);
  c.code->lhs = access_of(&c, s->lhs, s->sub, NO_REG);
  allocate(c.code, a);
  return c.code;
}

bool lhs_in_order(const Module *m, const Fn *f, const Stmt *s) {
  const Value *v = &f->value.at[s->lhs];
  if (s->nfree != v->rank) return false;
  for (uint32_t d = 0; d < v->rank; d++) {
    const Expr *x = ex(m, s->sub[d]);
    if (x->op != OP_INDEX || x->integer != d || s->index[d].extent != v->extent[d]) return false;
  }
  return true;
}
