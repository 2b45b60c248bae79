// Makes the function that follows the backward pass: the update.
// requires: the train settings.
// guarantees: ENTRY_UPDATE: (lr, correct1, root2, decay, scale, param, grad, moment1, moment2) -> the
//   new parameters and moments over the old ones. sgd has moment1 only, and only with momentum; adam
//   and adamw have both.
// invalidates: nothing.
//
// The update is elementwise and the same for every parameter, so it is made for a piece of
// UPDATE_PIECE elements of any of them: whoever owns some elements of a parameter (all of it, or a
// piece under ZeRO) updates just those, piece by piece. `decay` is the parameter's coefficient of
// weight decay, 0 for one without Param.decay.
//
// The formulas are PyTorch's, in its order of operations. The gradient is first multiplied by
// `scale` (clipping); correct1 = 1 - beta1^t, root2 = sqrt(1 - beta2^t).
#include "passes/passes.h"
#include "passes/util.h"

// lhs[i] = body.
static void pointwise(Module *m, Fn *f, Id lhs, Id body) {
  const Value v = f->value.at[lhs];
  Index index[MAX_RANK];
  Id sub[MAX_RANK];
  bare_indices(&v, index);
  for (uint32_t d = 0; d < v.rank; d++) sub[d] = ex_index(m, d);
  fn_comp(m, f, lhs, sub, false, RED_NONE, index, v.rank, v.rank, body, v.loc);
}

// The update function being made.
typedef struct Update {
  Module *m;
  Fn *f;
  Id lr, correct1, root2, decay, scale; // reads of scalars
  Id step, keep; // adam: lr / correct1; adamw: 1 - lr * decay
  Id param, grad, moment1, moment2; // arguments; NONE where there is no such moment
  Id next[3]; // new moments and parameters; NONE
} Update;

static Id scalar_arg(Update *u, UpdateScalar which) {
  const Value real = {.type = DT_REAL};
  Id v = fn_meant(u->m, u->f, str_intern(update_scalar_name[which]), MEANS_SCALAR, which, &real, ROLE_IN);
  return ex_read(u->m, u->f, v, NULL);
}

static Id scalar(Update *u, const char *name, Id body) {
  Id v = fn_value(u->m, u->f, str_intern(name), DT_REAL, NULL, 0, ROLE_LOCAL, 0);
  fn_comp(u->m, u->f, v, NULL, false, RED_NONE, NULL, 0, 0, body, 0);
  return ex_read(u->m, u->f, v, NULL);
}

static Id real(Update *u, double v) { return ex_real(u->m, v); }
static Id mul(Update *u, Id a, Id b) { return fold_mul(u->m, a, b); }
static Id add(Update *u, Id a, Id b) { return fold_add(u->m, a, b); }
static Id sub(Update *u, Id a, Id b) { return fold_sub(u->m, a, b); }

static Id argument(Update *u, UpdatePiece which) {
  const Value piece = {.type = DT_REAL, .rank = 1, .extent = {UPDATE_PIECE}};
  return fn_meant(u->m, u->f, str_intern(update_piece_name[which]), MEANS_PIECE, which, &piece, ROLE_IN);
}

static Id read(Update *u, Id value) { return read_bare(u->m, u->f, value); }

// Defines the value that takes over the storage of argument `old`.
static Id next(Update *u, Id old, Id body) {
  Value v = u->f->value.at[old];
  Id id = fn_value(u->m, u->f, str_printf("next.%s", v.name), v.type, v.extent, v.rank, ROLE_LOCAL,
                   v.loc);
  pointwise(u->m, u->f, id, body);
  return id;
}

static Id gradient(Update *u) {
  const Train *t = &u->m->train;
  Id g = mul(u, read(u, u->grad), u->scale);
  if (t->opt == OPT_ADAMW || t->weight_decay == 0) return g;
  return add(u, g, mul(u, u->decay, read(u, u->param)));
}

// torch.optim.SGD, dampening 0. Its buffer starts as the first gradient; ours as zero, which is the
// same.
static void sgd(Update *u) {
  const Train *t = &u->m->train;
  Id d = gradient(u), w = read(u, u->param);
  if (u->moment1 != NONE) {
    Id old = read(u, u->moment1);
    u->next[0] = next(u, u->moment1, add(u, mul(u, real(u, t->momentum), old), d));
    Id buffer = read(u, u->next[0]);
    d = t->nesterov ? add(u, d, mul(u, real(u, t->momentum), buffer)) : buffer;
  }
  u->next[2] = next(u, u->param, sub(u, w, mul(u, u->lr, d)));
}

// torch.optim.Adam and AdamW.
static void adam(Update *u) {
  Module *m = u->m;
  const Train *t = &m->train;
  Id g = gradient(u), w = read(u, u->param);
  Id m1 = read(u, u->moment1), m2 = read(u, u->moment2);
  Id lerp = add(u, m1, mul(u, sub(u, g, m1), real(u, 1 - t->beta1)));
  u->next[0] = next(u, u->moment1, lerp);
  Id square = mul(u, real(u, 1 - t->beta2), mul(u, g, g));
  u->next[1] = next(u, u->moment2, add(u, mul(u, real(u, t->beta2), m2), square));
  if (u->keep != NONE) w = mul(u, w, u->keep);
  Id root = ex1(m, OP_SQRT, read(u, u->next[1]));
  Id denom = add(u, fold_div(m, root, u->root2), real(u, t->eps));
  Id change = fold_div(m, read(u, u->next[0]), denom);
  u->next[2] = next(u, u->param, sub(u, w, mul(u, u->step, change)));
}

static void adam_scalars(Update *u) {
  Module *m = u->m;
  u->step = scalar(u, "step", fold_div(m, u->lr, u->correct1));
  if (m->train.opt == OPT_ADAMW && m->train.weight_decay != 0)
    u->keep = scalar(u, "keep", sub(u, real(u, 1), mul(u, u->lr, u->decay)));
}

static void add_result(Update *u, Id value, Id over) {
  PUSH(u->m->arena, u->f->result, value);
  PUSH(u->m->arena, u->f->alias, over);
}

static void make_update(Module *m) {
  const Train *t = &m->train;
  Id id = m->entry[ENTRY_UPDATE] = fn_new(m, str_intern("update"), 0);
  Update u = {.m = m, .f = &m->fn.at[id], .keep = NONE, .moment1 = NONE, .moment2 = NONE};
  bool adaptive = t->opt != OPT_SGD;
  u.lr = scalar_arg(&u, SCALAR_LR);
  u.correct1 = scalar_arg(&u, SCALAR_CORRECT1);
  u.root2 = scalar_arg(&u, SCALAR_ROOT2);
  u.decay = scalar_arg(&u, SCALAR_DECAY);
  u.scale = scalar_arg(&u, SCALAR_SCALE);
  u.param = argument(&u, PIECE_PARAM);
  u.grad = argument(&u, PIECE_GRAD);
  if (adaptive || t->momentum != 0) u.moment1 = argument(&u, PIECE_MOMENT1);
  if (adaptive) u.moment2 = argument(&u, PIECE_MOMENT2);
  if (adaptive) adam_scalars(&u);
  if (adaptive) adam(&u);
  else sgd(&u);
  add_result(&u, u.next[2], u.param);
  if (u.moment1 != NONE) add_result(&u, u.next[0], u.moment1);
  if (u.moment2 != NONE) add_result(&u, u.next[1], u.moment2);
}

bool pass_optimizer(Module *m) {
  if (m->entry[ENTRY_STEP] == NONE) return true; // nothing is trained
  make_update(m);
  return true;
}
