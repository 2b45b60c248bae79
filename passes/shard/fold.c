// Whether the context axis is folded: of a causal attention, whose last queries see most keys, each
// rank then takes an early and a late part of the sequence, which together are equal work.
#include "passes/shard/shard.h"

typedef struct Compared {
  const Module *m;
  bool found;
} Compared;

static void find_order(Compared *c, Id e) {
  Op op = (Op)ex(c->m, e)->op;
  for (uint32_t i = 0; i < ex(c->m, e)->narg; i++) find_order(c, ex_arg(c->m, e, i));
  c->found |= op >= OP_LT && op <= OP_GE && ex_indices(c->m, ex_arg(c->m, e, 0)) &&
              ex_indices(c->m, ex_arg(c->m, e, 1));
}

// Attention compares positions where it is causal, and nowhere else.
bool attention_is_causal(const Module *m, const Fn *f) {
  Compared c = {m, false};
  if (f->intrinsic != INTR_ATTENTION) return false;
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].kind == ST_COMP) find_order(&c, f->stmt.at[i].body);
  return c.found;
}

// What a sequence must be a multiple of: two blocks a rank, and the blocks of other axes that are
// to have the sequence within those.
static int64_t folded_unit(const Module *m, uint32_t axis) {
  int64_t n = 2 * m->axis.at[axis].size;
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (a != axis && m->axis.at[a].sequence) n *= m->axis.at[a].size;
  return n;
}

int64_t shard_turns(const Module *m, uint32_t axis, int64_t extent) {
  return m->axis.at[axis].folded && extent % folded_unit(m, axis) == 0 ? 2 : 1;
}

static void warn(const Module *m, uint32_t axis, int64_t extent) {
  const Axis *x = &m->axis.at[axis];
  diag(m->src, DIAG_WARNING, 0,
       "--%s %lld: a sequence of %lld is no multiple of %lld, so causal attention is more work for "
       "late ranks than for early ones",
       x->name, (long long)x->size, (long long)extent, (long long)folded_unit(m, axis));
}

void shard_fold(Module *m) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    int64_t odd = 0;
    if (!is_context(&m->axis.at[a]) || m->axis.at[a].heads) continue;
    for (Id f = 0; f < m->fn.n; f++) {
      if (!attention_is_causal(m, &m->fn.at[f])) continue;
      int64_t queries = m->fn.at[f].value.at[m->fn.at[f].arg.at[0]].extent[1];
      if (queries % folded_unit(m, a)) odd = queries;
      else m->axis.at[a].folded = true;
    }
    if (odd && !m->axis.at[a].folded) warn(m, a, odd);
  }
}
