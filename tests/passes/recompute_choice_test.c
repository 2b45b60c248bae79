// The choice of what to keep and what to run again, against all choices there are, on random small functions.
#include "passes/recompute/choose.h"

#include <stdio.h>

enum { MOST = 9, ROUNDS = 500, BUDGETS = 10 };

static uint64_t state = 1;
static uint32_t below(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % n;
}

// Values in the order of their steps; a step makes one or two and reads some before it.
static Keep draw(Arena *a) {
  Keep k = {.arena = a, .nodes = INT64_MAX, .value = NEWN(a, KeepValue, 3 * MOST), .step = NEWN(a, KeepStep, MOST)};
  for (uint32_t n = 1 + below(2); n > 0; n--) k.value[k.nvalue++] = (KeepValue){1 + below(9), NONE, !below(4), false};
  for (uint32_t n = 1 + below(MOST); k.nstep < n; k.nstep++) {
    KeepStep *s = &k.step[k.nstep];
    uint32_t before = k.nvalue;
    *s = (KeepStep){below(3) ? below(20) : 0, !below(8), 0, NEWN(a, uint32_t, 4)};
    for (uint32_t i = below(4); i > 0; i--) s->read[s->nread++] = below(before);
    for (uint32_t i = 1 + !below(4); i > 0; i--)
      k.value[k.nvalue++] = (KeepValue){below(12), k.nstep, !below(3), !s->once && !below(10)};
  }
  return k;
}

// What must be kept and run if at most the steps of the set run again. False: something can be neither kept nor made.
static bool try_set(const Keep *k, uint32_t set, int64_t *bytes, int64_t *cost) {
  bool wanted[3 * MOST] = {false}, ran[MOST] = {false};
  for (uint32_t v = 0; v < k->nvalue; v++) wanted[v] = k->value[v].needed;
  *bytes = *cost = 0;
  for (uint32_t v = k->nvalue; v-- > 0;) { // a step reads values before its own
    const KeepValue *x = &k->value[v];
    if (!wanted[v]) continue;
    if (x->def == NONE || k->step[x->def].once || !(set >> x->def & 1)) {
      if (x->passing) return false;
      *bytes += x->bytes;
      continue;
    }
    if (!ran[x->def]) *cost += k->step[x->def].cost;
    ran[x->def] = true;
    for (uint32_t i = 0; i < k->step[x->def].nread; i++) wanted[k->step[x->def].read[i]] = true;
  }
  return true;
}

static uint32_t set_of(const Keep *k, const Choice *c) {
  uint32_t set = 0;
  for (uint32_t s = 0; s < k->nstep; s++) set |= (uint32_t)c->again[s] << s;
  return set;
}

static bool is_what_it_says(const Keep *k, const Choice *c) {
  int64_t bytes, cost, kept = 0;
  for (uint32_t v = 0; v < k->nvalue; v++) kept += c->kept[v] ? k->value[v].bytes : 0;
  return try_set(k, set_of(k, c), &bytes, &cost) && bytes == c->bytes && cost == c->cost && kept == bytes;
}

static bool check_budget(const Keep *k, int64_t budget) {
  int64_t best = -1, bytes, cost;
  for (uint32_t set = 0; set < 1u << k->nstep; set++)
    if (try_set(k, set, &bytes, &cost) && bytes <= budget && (best < 0 || cost < best)) best = cost;
  Choice c;
  if (!keep_within(k, budget, &c)) return best < 0;
  return best == c.cost && c.bytes <= budget && c.bound == c.cost && is_what_it_says(k, &c);
}

static bool check_least(const Keep *k) {
  int64_t least = -1, cheapest = -1, bytes, cost;
  for (uint32_t set = 0; set < 1u << k->nstep; set++) {
    if (!try_set(k, set, &bytes, &cost)) continue;
    if (least < 0 || bytes < least || (bytes == least && cost < cheapest)) least = bytes, cheapest = cost;
  }
  Choice c;
  if (!keep_least(k, &c)) return least < 0;
  return c.bytes == least && c.cost == cheapest && is_what_it_says(k, &c);
}

int main(void) {
  int bad = 0, tried = 0;
  for (int round = 0; round < ROUNDS; round++) {
    Arena *a = arena_new();
    Keep k = draw(a);
    int64_t all = 0;
    for (uint32_t v = 0; v < k.nvalue; v++) all += k.value[v].bytes;
    if (!check_least(&k)) printf("FAIL function %d: not the fewest bytes\n", round), bad++;
    for (int i = 0; i < BUDGETS; i++, tried++)
      if (!check_budget(&k, all * i / (BUDGETS - 1))) printf("FAIL function %d, budget %d\n", round, i), bad++;
    arena_free(a);
  }
  printf("%d functions, %d budgets, %d failures\n", ROUNDS, tried, bad);
  return bad != 0;
}
