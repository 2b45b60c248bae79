// recompute: the backward pass computes again what the forward pass does not save.
//
// Does: in each layer of a stack, that is, in a repeat and the repeat of the backward pass that reads what it saves, chooses
//       what to save and puts the statements that make the rest into the backward function, each before its first reader.
//       full         what the repeat carries, the layer's input, is saved, and nothing else
//       selective    the fewest bytes that are enough without running again a product of matrices, a layer inside, or a sum
//                    over ranks: attention, norms and activations run again
//       auto BYTES   at most that many bytes in all stacks together, so that what runs again costs least: exact by branch and
//                    bound (choose.h), with all layers of a stack alike. A stack inside of a layer is one statement
// Requires: the program of one rank, or the local form; not cut into chunks.
// Guarantees: the same results to the last bit: what runs again is the same statement, of the same values. Every rank runs the
//       same collectives in the same order. Module.recomputed says what was saved, and Module.recompute is that of none.
// Invalidates: positions of statements and values.
//
// After localise, so that what ranks gather is not kept either; before pipeline, which keeps what crosses with a microbatch.
#include "passes/cost.h"
#include "passes/passes.h"
#include "passes/recompute/recompute.h"

// The layers that are in no other, as one graph: their values and steps one after the other.
typedef struct Joint {
  Keep keep;
  uint32_t *value, *step; // by layer: its first
} Joint;

static void append(Joint *j, const Keep *k) {
  Keep *all = &j->keep;
  for (uint32_t v = 0; v < k->nvalue; v++) {
    all->value[all->nvalue + v] = k->value[v];
    if (k->value[v].def != NONE) all->value[all->nvalue + v].def += all->nstep;
  }
  for (uint32_t s = 0; s < k->nstep; s++) {
    KeepStep *to = &all->step[all->nstep + s];
    *to = k->step[s];
    to->read = NEWN(all->arena, uint32_t, to->nread + 1);
    for (uint32_t i = 0; i < to->nread; i++) to->read[i] = k->step[s].read[i] + all->nvalue;
  }
  all->nvalue += k->nvalue;
  all->nstep += k->nstep;
}

static Joint joint(Module *m, const Layers *layers) {
  Joint j = {.keep = {.arena = m->arena, .nodes = m->limits.keep_nodes}};
  uint32_t nvalue = 0, nstep = 0;
  for (uint32_t i = 0; i < layers->n; i++) {
    if (layers->at[i]->outer) continue;
    layer_graph(layers->at[i], RECOMPUTE_AUTO);
    nvalue += layers->at[i]->keep.nvalue;
    nstep += layers->at[i]->keep.nstep;
  }
  j.keep.value = NEWN(m->arena, KeepValue, nvalue + 1);
  j.keep.step = NEWN(m->arena, KeepStep, nstep + 1);
  j.value = NEWN(m->arena, uint32_t, layers->n + 1);
  j.step = NEWN(m->arena, uint32_t, layers->n + 1);
  for (uint32_t i = 0; i < layers->n; i++) {
    j.value[i] = j.keep.nvalue;
    j.step[i] = j.keep.nstep;
    if (!layers->at[i]->outer) append(&j, &layers->at[i]->keep);
  }
  return j;
}

static Layers layers_of(Module *m) {
  Layers all = {0};
  if (m->entry[ENTRY_STEP] != NONE) layers_find(m, NULL, m->entry[ENTRY_STEP], m->entry[ENTRY_STEP], &all);
  return all;
}

void recompute_range(Module *m, int64_t *least, int64_t *most) {
  Layers layers = layers_of(m);
  Joint j = joint(m, &layers);
  Choice few, all;
  if (!keep_least(&j.keep, &few) || !keep_within(&j.keep, INT64_MAX, &all)) BUG("nothing can be saved");
  *least = few.bytes;
  *most = all.bytes;
}

// The least cost within the budget; where none is, the fewest bytes.
static void apply_auto(Module *m, const Layers *layers) {
  Joint j = joint(m, layers);
  Choice c;
  if (!keep_within(&j.keep, m->keep, &c) && !keep_least(&j.keep, &c)) BUG("nothing can be saved");
  m->recomputed.proved = c.cost == c.bound;
  for (uint32_t i = 0; i < layers->n; i++)
    if (!layers->at[i]->outer)
      layer_apply(layers->at[i], &(Choice){.again = c.again + j.step[i], .kept = c.kept + j.value[i]});
}

static void apply_each(Module *m, const Layers *layers) {
  m->recomputed.proved = true;
  for (uint32_t i = layers->n; i-- > 0;) { // a layer inside first: what it needs crosses its outer layer
    Choice c;
    layer_graph(layers->at[i], m->recompute);
    if (!keep_least(&layers->at[i]->keep, &c)) BUG("%s cannot run again", layer_forward(layers->at[i])->name);
    layer_apply(layers->at[i], &c);
  }
}

static int64_t saved_bytes(const Layers *layers) {
  int64_t n = 0;
  for (uint32_t i = 0; i < layers->n; i++)
    if (!layers->at[i]->outer) n += layer_saved_bytes(layers->at[i]);
  return n;
}

static double backward_cost(const Layers *layers) {
  double n = 0;
  for (uint32_t i = 0; i < layers->n; i++) {
    const Layer *l = layers->at[i];
    if (!l->outer) n += (double)l->times * cost_again_fn(l->m, l->backward->fn);
  }
  return n;
}

bool pass_recompute(Module *m) {
  if (m->recompute == RECOMPUTE_NONE) return true;
  if (m->chunk.n || (m->axis.n && !m->spmd)) {
    diag_error(m->src, 0, "pass recompute is for the program of one rank, before it is cut into chunks");
    return false;
  }
  Layers layers = layers_of(m);
  m->recomputed = (Recomputed){.before = saved_bytes(&layers), .cost = -backward_cost(&layers)};
  if (m->recompute == RECOMPUTE_AUTO) apply_auto(m, &layers);
  else apply_each(m, &layers);
  for (uint32_t i = 0; i < layers.n; i++) layer_tidy(layers.at[i]);
  m->recomputed.kept = saved_bytes(&layers);
  m->recomputed.cost += backward_cost(&layers);
  for (uint32_t i = 0; i < layers.n; i++) {
    fn_compact(m, layer_forward(layers.at[i]));
    fn_compact(m, layer_backward(layers.at[i]));
  }
  if (layers.n) fn_compact(m, entry_fn(m, ENTRY_STEP));
  module_sweep(m);
  m->recompute = RECOMPUTE_NONE;
  m->keep = 0;
  return true;
}
