// Whether the context axis is folded: of a causal attention, whose last queries see most keys, each
// rank then takes an early and a late part of the sequence, which together are equal work.
#include "ir/intrinsic.h"
#include "passes/shard/shard.h"

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
      if (!intrinsic_grows(&m->fn.at[f])) continue;
      int64_t queries = intrinsic_queries(&m->fn.at[f])->extent[1];
      if (queries % folded_unit(m, a)) odd = queries;
      else m->axis.at[a].folded = true;
    }
    if (odd && !m->axis.at[a].folded) warn(m, a, odd);
  }
}
