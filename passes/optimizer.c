// Makes the functions that follow the backward pass: the gradient's norm and the update.
// requires: the parameter table and the train settings.
// guarantees: ENTRY_NORM: (grad.PARAM...) -> norm2; ENTRY_UPDATE: (lr, correct1, correct2, scale,
//   PARAM..., grad.PARAM..., moment1.PARAM..., moment2.PARAM...) -> new parameters and moments over
//   the old ones. sgd has moment1 only, and only with momentum; adam and adamw have both.
// invalidates: nothing.
//
// The formulas are PyTorch's, in its order of operations. The gradient is first multiplied by
// `scale` (clipping); correct1 = 1 - beta1^t, correct2 = 1 - beta2^t. Weight decay reaches the
// parameters with Param.decay. All statements of one parameter are elementwise with the same
// subscripts, so that one kernel touches memory once.
#include "passes/passes.h"
#include "passes/util.h"

static Id add_value(Module *m, Fn *f, const char *prefix, const Param *p, Role role) {
  Str name = str_printf("%s%s", prefix, p->name);
  return fn_value(m, f, name, DT_REAL, p->extent, p->rank, role, p->loc);
}

// lhs[i, j, ...] = body, of a parameter's shape.
static void pointwise(Module *m, Fn *f, Id lhs, Id body) {
  const Value v = f->value.at[lhs];
  Index index[MAX_RANK];
  Id sub[MAX_RANK];
  bare_indices(&v, index);
  for (uint32_t d = 0; d < v.rank; d++) sub[d] = ex_index(m, d);
  fn_comp(m, f, lhs, sub, false, RED_NONE, index, v.rank, v.rank, body, v.loc);
}

static void make_norm(Module *m) {
  Id id = m->entry[ENTRY_NORM] = fn_new(m, str_intern("norm"), 0);
  Fn *f = &m->fn.at[id];
  Id sum = ex_real(m, 0.0);
  for (uint32_t p = 0; p < m->param.n; p++) add_value(m, f, "grad.", &m->param.at[p], ROLE_IN);
  for (uint32_t p = 0; p < m->param.n; p++) {
    const Param *q = &m->param.at[p];
    Id part = fn_value(m, f, str_printf("norm2.%s", q->name), DT_REAL, NULL, 0, ROLE_LOCAL, q->loc);
    Id g = read_bare(m, f, f->arg.at[p]);
    Index index[MAX_RANK];
    bare_indices(&f->value.at[f->arg.at[p]], index);
    fn_comp(m, f, part, NULL, false, RED_SUM, index, 0, q->rank, ex2(m, OP_MUL, g, g), q->loc);
    sum = fold_add(m, sum, ex_read(m, f, part, NULL));
  }
  Id norm2 = fn_value(m, f, str_intern("norm2"), DT_REAL, NULL, 0, ROLE_LOCAL, 0);
  fn_comp(m, f, norm2, NULL, false, RED_NONE, NULL, 0, 0, sum, 0);
  PUSH(m->arena, f->result, norm2);
}

// The update function being made.
typedef struct Update {
  Module *m;
  Fn *f;
  Id lr, correct1, correct2, scale; // reads of scalars
  Id step, root2, keep; // adam: lr / correct1, sqrt(correct2); adamw: 1 - lr * weight_decay
  Id *param, *grad, *moment1, *moment2; // arguments
} Update;

static Id scalar_arg(Update *u, const char *name) {
  Id v = fn_value(u->m, u->f, str_intern(name), DT_REAL, NULL, 0, ROLE_IN, 0);
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

static Id *arguments(Update *u, const char *prefix) {
  Id *v = NEWN(u->m->arena, Id, u->m->param.n + 1);
  for (uint32_t p = 0; p < u->m->param.n; p++)
    v[p] = add_value(u->m, u->f, prefix, &u->m->param.at[p], ROLE_IN);
  return v;
}

// Defines the value that takes over the storage of argument `old`.
static Id next(Update *u, Id old, Id body) {
  Value v = u->f->value.at[old];
  Id id = fn_value(u->m, u->f, str_printf("next.%s", v.name), v.type, v.extent, v.rank, ROLE_LOCAL,
                   v.loc);
  pointwise(u->m, u->f, id, body);
  return id;
}

static Id gradient(Update *u, uint32_t p) {
  const Train *t = &u->m->train;
  Id g = mul(u, read_bare(u->m, u->f, u->grad[p]), u->scale);
  if (t->opt == OPT_ADAMW || t->weight_decay == 0 || !u->m->param.at[p].decay) return g;
  return add(u, g, mul(u, real(u, t->weight_decay), read_bare(u->m, u->f, u->param[p])));
}

// torch.optim.SGD, dampening 0. Its buffer starts as the first gradient; ours as zero, which is the
// same.
static void sgd(Update *u, uint32_t p, Id *moment) {
  Module *m = u->m;
  const Train *t = &m->train;
  Id d = gradient(u, p), w = read_bare(m, u->f, u->param[p]);
  if (u->moment1) {
    Id old = read_bare(m, u->f, u->moment1[p]);
    moment[0] = next(u, u->moment1[p], add(u, mul(u, real(u, t->momentum), old), d));
    Id buffer = read_bare(m, u->f, moment[0]);
    d = t->nesterov ? add(u, d, mul(u, real(u, t->momentum), buffer)) : buffer;
  }
  moment[2] = next(u, u->param[p], sub(u, w, mul(u, u->lr, d)));
}

// torch.optim.Adam and AdamW.
static void adam(Update *u, uint32_t p, Id *moment) {
  Module *m = u->m;
  const Train *t = &m->train;
  Id g = gradient(u, p), w = read_bare(m, u->f, u->param[p]);
  Id m1 = read_bare(m, u->f, u->moment1[p]), m2 = read_bare(m, u->f, u->moment2[p]);
  Id lerp = add(u, m1, mul(u, sub(u, g, m1), real(u, 1 - t->beta1)));
  moment[0] = next(u, u->moment1[p], lerp);
  Id square = mul(u, real(u, 1 - t->beta2), mul(u, g, g));
  moment[1] = next(u, u->moment2[p], add(u, mul(u, real(u, t->beta2), m2), square));
  if (u->keep != NONE && m->param.at[p].decay) w = mul(u, w, u->keep);
  Id root = ex1(m, OP_SQRT, read_bare(m, u->f, moment[1]));
  Id denom = add(u, fold_div(m, root, u->root2), real(u, t->eps));
  Id change = fold_div(m, read_bare(m, u->f, moment[0]), denom);
  moment[2] = next(u, u->param[p], sub(u, w, mul(u, u->step, change)));
}

static void adam_scalars(Update *u) {
  Module *m = u->m;
  u->step = scalar(u, "step", fold_div(m, u->lr, u->correct1));
  u->root2 = scalar(u, "root2", ex1(m, OP_SQRT, u->correct2));
  if (m->train.opt == OPT_ADAMW && m->train.weight_decay != 0) {
    Id decay = mul(u, u->lr, real(u, m->train.weight_decay));
    u->keep = scalar(u, "keep", sub(u, real(u, 1), decay));
  }
}

static void add_results(Update *u, const Id *value, const Id *over) {
  for (uint32_t p = 0; p < u->m->param.n; p++) {
    PUSH(u->m->arena, u->f->result, value[p]);
    PUSH(u->m->arena, u->f->alias, over[p]);
  }
}

static void make_update(Module *m) {
  const Train *t = &m->train;
  Id id = m->entry[ENTRY_UPDATE] = fn_new(m, str_intern("update"), 0);
  Update u = {.m = m, .f = &m->fn.at[id], .keep = NONE};
  bool adaptive = t->opt != OPT_SGD;
  u.lr = scalar_arg(&u, "lr");
  u.correct1 = scalar_arg(&u, "correct1");
  u.correct2 = scalar_arg(&u, "correct2");
  u.scale = scalar_arg(&u, "scale");
  u.param = arguments(&u, "");
  u.grad = arguments(&u, "grad.");
  if (adaptive || t->momentum != 0) u.moment1 = arguments(&u, "moment1.");
  if (adaptive) u.moment2 = arguments(&u, "moment2.");
  if (adaptive) adam_scalars(&u);
  Id *made[3];
  for (int k = 0; k < 3; k++) made[k] = NEWN(m->arena, Id, m->param.n + 1);
  for (uint32_t p = 0; p < m->param.n; p++) {
    Id one[3] = {NONE, NONE, NONE};
    if (adaptive) adam(&u, p, one);
    else sgd(&u, p, one);
    for (int k = 0; k < 3; k++) made[k][p] = one[k];
  }
  add_results(&u, made[2], u.param);
  if (u.moment1) add_results(&u, made[0], u.moment1);
  if (u.moment2) add_results(&u, made[1], u.moment2);
}

bool pass_optimizer(Module *m) {
  if (m->entry[ENTRY_STEP] == NONE) return true; // nothing is trained
  make_norm(m);
  make_update(m);
  return true;
}
