// Which values of a function are read from memory.
//
// A value is kept, and so has 16 bits, where
//   - a matrix product takes it as a factor, or a call takes or makes it;
//   - it is there while a matrix product or a call runs that neither makes nor reads it;
//   - it is a matrix product's result and a reduction reads it.
// Of the loss's own statements only those count: what the backward pass reads besides is saved, so
// that the loss is the same with a backward pass and without.
#include "passes/precision/types.h"
#include "passes/util.h"

typedef struct Keep {
  Types *t;
  Id fn;
  const Fn *f;
  uint32_t end; // statements from here on are the backward pass
  uint32_t *heavy; // by position: how many products and calls come before it
  uint32_t at; // the statement that is looked at
  const Stmt *s;
  uint32_t *made; // by value: the position of the statement that makes it, or NONE
} Keep;

static uint8_t *fact(const Keep *k, Id value) {
  return &k->t->fact[number_of(k->t, k->fn, value)];
}

static bool is_saved_by(const Keep *k, Id value) {
  return k->made[value] != NONE && k->made[value] < k->end && k->at >= k->end;
}

static void note_factor(Id value, void *ctx) {
  if (!is_saved_by(ctx, value)) *fact(ctx, value) |= KEPT;
}

// A read of the value by the statement at hand.
static void note_use(Id value, void *ctx) {
  const Keep *k = ctx;
  uint32_t made = k->made[value];
  if (made == NONE || !is_real(&k->f->value.at[value])) return;
  uint8_t *facts = fact(k, value);
  if (is_saved_by(k, value)) {
    *facts |= SAVED;
    return;
  }
  if (k->s->kind != ST_COMP || k->heavy[k->at] > k->heavy[made + 1]) *facts |= KEPT;
  bool reduces = k->s->red != RED_NONE && !is_product(k->t->m, k->s);
  if (reduces && is_product(k->t->m, &k->f->stmt.at[made])) *facts |= KEPT;
  // A renamed value is kept where its other name is; statements are visited from the last on.
  if (is_renaming(k->t->m, k->f, k->s) && (*fact(k, k->s->lhs) & (KEPT | SAVED | LINKED)))
    *facts |= KEPT;
}

static void find_made(Keep *k) {
  for (Id v = 0; v < k->f->value.n; v++) k->made[v] = NONE;
  for (uint32_t i = 0; i < k->f->stmt.n; i++) {
    const Stmt *s = &k->f->stmt.at[i];
    bool heavy = s->kind != ST_COMP || is_product(k->t->m, s);
    k->heavy[i + 1] = k->heavy[i] + heavy;
    if (s->kind == ST_COMP && !s->acc) k->made[s->lhs] = i;
  }
}

uint32_t types_backward(const Module *m, Id fn) {
  const Fn *f = &m->fn.at[fn];
  uint32_t end = 0;
  for (uint32_t i = 0; m->entry[ENTRY_STEP] == fn && i < f->stmt.n; i++)
    for (uint32_t r = 0; r < f->result.n; r++)
      if (f->stmt.at[i].kind == ST_COMP && f->stmt.at[i].lhs == f->result.at[r]) end = i + 1;
  return end ? end : f->stmt.n;
}

void types_keep(Types *t, Id fn) {
  Module *m = t->m;
  Keep k = {.t = t, .fn = fn, .f = &m->fn.at[fn]};
  k.made = NEWN(m->arena, uint32_t, k.f->value.n + 1);
  k.heavy = NEWN(m->arena, uint32_t, k.f->stmt.n + 2);
  find_made(&k);
  k.end = types_backward(m, fn);
  for (k.at = k.f->stmt.n; k.at-- > 0;) {
    k.s = &k.f->stmt.at[k.at];
    product_operands(m, k.s, note_factor, &k);
    stmt_reads(m, k.f, k.s, note_use, &k);
  }
}
