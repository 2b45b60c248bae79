// Recognises the matrix product in a comprehension:
//
//     c[subscripts] (= | +=) sum(k..: a[subscripts] * b[subscripts])
//
// With every subscript a linear form of indices, each operand is a strided array over the
// statement's indices, and an index is of one of four classes by the operands that move with it: a
// row (a and c), a column (b and c), summed (a and b) or a batch (all three). Neighbours of a class
// whose strides nest in both operands merge to one; the largest of a class becomes the product's m,
// n or k, and what is left runs as loops around it. Nothing is copied: a transposed operand, a
// slice, a packed q, k, v are strides.
#include "codegen/lower/affine.h"
#include "codegen/target.h"
#include "passes/product.h"

typedef enum Class { BATCH, ROW, COLUMN, SUM, NCLASS } Class;

// An index, or several merged: its extent, and how far it moves in each operand (0: not at all).
typedef struct Dim {
  int64_t extent, a, b, c;
} Dim;

typedef struct Dims {
  Dim at[MAX_INDEX];
  uint32_t n;
} Dims;

typedef struct Product {
  const Module *m;
  const Fn *f;
  const Layout *layout;
  const Stmt *s;
  Affine a, b, c;
  Dims of[NCLASS];
} Product;

// The body's two reads, if it is a product of two.
static bool operands(const Product *p, Id *a, Id *b) {
  const Module *m = p->m;
  if (!ex_is(m, p->s->body, OP_MUL)) return false;
  *a = ex_arg(m, p->s->body, 0);
  *b = ex_arg(m, p->s->body, 1);
  return ex_is(m, *a, OP_READ) && ex_is(m, *b, OP_READ);
}

// Bare indices and groups of them, no index twice: then no two points write one element, also where
// the statement says `+=`.
static bool lhs_is_plain(const Product *p) {
  uint32_t seen = 0;
  for (uint32_t d = 0; d < p->f->value.at[p->s->lhs].rank; d++) {
    Id e = p->s->sub[d];
    uint32_t here = ex_indices(p->m, e);
    bool plain = ex_is(p->m, e, OP_INDEX) || ex_is(p->m, e, OP_GROUP) || ex_is(p->m, e, OP_INT);
    if (!plain || (here & seen)) return false;
    if (ex_is(p->m, e, OP_GROUP) && (uint32_t)__builtin_popcount(here) != ex(p->m, e)->narg)
      return false;
    seen |= here;
  }
  return true;
}

// Sorts the indices into classes. Refuses one that only one factor has (its sum belongs before the
// product) and one that only the result has (a broadcast).
static bool classify(Product *p) {
  const Stmt *s = p->s;
  uint32_t a = 0, b = 0, c = 0, several = 0, summed = 0;
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (s->index[i].extent == 1) continue;
    several |= 1u << i;
    if (p->a.coef[i]) a |= 1u << i;
    if (p->b.coef[i]) b |= 1u << i;
    if (p->c.coef[i]) c |= 1u << i;
    if (i >= s->nfree) summed |= 1u << i;
  }
  ProductSets of = product_sets(a, b, summed);
  if (of.alone || c != (several & ~summed) || (c & ~(a | b))) return false;
  for (uint32_t i = 0; i < s->nindex; i++) {
    uint32_t bit = 1u << i;
    if (!(several & bit)) continue;
    Class k = of.sum & bit ? SUM : of.batch & bit ? BATCH : of.row & bit ? ROW : COLUMN;
    p->of[k].at[p->of[k].n++] = (Dim){s->index[i].extent, p->a.coef[i], p->b.coef[i], p->c.coef[i]};
  }
  return true;
}

static bool nests(const Dim *outer, const Dim *inner) {
  int64_t n = inner->extent;
  return outer->a == n * inner->a && outer->b == n * inner->b && outer->c == n * inner->c;
}

static void drop(Dims *d, uint32_t i) {
  for (d->n--; i < d->n; i++) d->at[i] = d->at[i + 1];
}

static void merge(Dims *d) {
  for (uint32_t i = 0; i < d->n; i++) {
    for (uint32_t j = 0; j < d->n; j++) {
      if (i == j || !nests(&d->at[i], &d->at[j])) continue;
      d->at[j].extent *= d->at[i].extent;
      drop(d, i);
      merge(d);
      return;
    }
  }
}

// Takes the largest out of the class; one of extent 1 where there is none.
static Dim take_largest(Dims *d) {
  uint32_t best = 0;
  if (!d->n) return (Dim){1, 0, 0, 0};
  for (uint32_t i = 1; i < d->n; i++)
    if (d->at[i].extent > d->at[best].extent) best = i;
  Dim r = d->at[best];
  drop(d, best);
  return r;
}

// Takes the one that is contiguous in c.
static bool take_contiguous(Dims *d, Dim *r) {
  for (uint32_t i = 0; i < d->n; i++) {
    if (d->at[i].c != 1) continue;
    *r = d->at[i];
    drop(d, i);
    return true;
  }
  return false;
}

static int64_t points(const Dims *d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < d->n; i++) n *= d->at[i].extent;
  return n;
}

// C = A B where C's rows are contiguous is C' = B' A' where its columns are.
static void swap_operands(Product *p, GemmPlan *g) {
  Dims rows = p->of[ROW];
  p->of[ROW] = p->of[COLUMN];
  p->of[COLUMN] = rows;
  for (int k = 0; k < NCLASS; k++) {
    for (uint32_t i = 0; i < p->of[k].n; i++) {
      Dim *d = &p->of[k].at[i];
      int64_t a = d->a;
      d->a = d->b;
      d->b = a;
    }
  }
  Id a = g->a;
  int64_t offset = g->a_offset;
  g->a = g->b;
  g->b = a;
  g->a_offset = g->b_offset;
  g->b_offset = offset;
}

// The indices that are left of each class become loops around the product: batches first, sums innermost, so
// that an element of c is finished before the next is begun.
static bool loops_around(Product *p, GemmPlan *g) {
  g->nbatch = 0;
  for (int k = 0; k < NCLASS; k++) {
    for (uint32_t i = 0; i < p->of[k].n; i++) {
      const Dim *d = &p->of[k].at[i];
      if (g->nbatch == p->m->limits.product_loops) return false;
      g->batch[g->nbatch].count = d->extent;
      g->batch[g->nbatch].a = d->a;
      g->batch[g->nbatch].b = d->b;
      g->batch[g->nbatch++].c = d->c;
    }
  }
  return true;
}

bool match_gemm(const Module *m, const Fn *f, const Layout *layout, const Stmt *s, GemmPlan *g) {
  if (s->kind != ST_COMP || s->red != RED_SUM) return false;
  Product p = {.m = m, .f = f, .layout = layout, .s = s};
  Id a, b;
  if (!operands(&p, &a, &b) || !lhs_is_plain(&p)) return false;
  p.a = affine_read(m, layout, s, a);
  p.b = affine_read(m, layout, s, b);
  p.c = affine_lhs(m, f, layout, s);
  if (p.a.nrest || p.b.nrest || p.c.nrest || !classify(&p)) return false;
  double rows = (double)points(&p.of[ROW]), columns = (double)points(&p.of[COLUMN]);
  double terms = (double)points(&p.of[SUM]);
  *g = (GemmPlan){
      .a = layout[ex(m, a)->integer].buffer,
      .b = layout[ex(m, b)->integer].buffer,
      .c = layout[s->lhs].buffer,
      .a_offset = p.a.base,
      .b_offset = p.b.base,
      .c_offset = p.c.base,
      .accumulate = s->acc,
      .bias = NONE,
      .plus = NONE,
      .kept = NONE,
  };
  for (int k = 0; k < NCLASS; k++) merge(&p.of[k]);
  Dim column;
  if (!take_contiguous(&p.of[COLUMN], &column)) {
    swap_operands(&p, g);
    if (!take_contiguous(&p.of[COLUMN], &column)) return false;
  }
  Dim row = take_largest(&p.of[ROW]), sum = take_largest(&p.of[SUM]);
  g->m = row.extent;
  g->n = column.extent;
  g->k = sum.extent;
  g->a_row = row.a;
  g->c_row = row.c;
  g->b_col = column.b;
  g->a_col = sum.a;
  g->b_row = sum.b;
  return product_is_large(&m->limits, rows, columns, terms, (double)(g->m * g->n * g->k)) &&
         loops_around(&p, g) && m->target->takes_product(m, f, g);
}

bool product_types_fit(const Module *m, const Fn *f, const GemmPlan *g) {
  Dtype a = f->value.at[g->a].type, b = f->value.at[g->b].type, c = f->value.at[g->c].type;
  if (a != b || (m->compute != DT_F32 && m->compute != DT_F64)) return false;
  if (is_half(a) ? m->compute != DT_F32 || (c != a && c != DT_F32) : a != m->compute || c != a) return false;
  const Id term[] = {g->bias, g->plus, g->kept};
  for (int i = 0; i < 3; i++) {
    if (term[i] == NONE) continue;
    Dtype t = f->value.at[term[i]].type;
    if (t != m->compute && !(is_half(t) && is_half(a))) return false;
  }
  return true;
}
