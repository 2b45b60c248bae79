#include "runtime/comm/sequence.h"

#include <stdlib.h>

typedef struct {
  const DtTurn *const *turn;
  const int64_t *n;
  int ranks;
  int64_t *at;   // by rank: its next turn
  int64_t *next; // by rank and sender: its first receive from it that has met no send, or before
  bool **came;   // by rank and number of its receive
} Run;

static const DtTurn *head(const Run *x, int r) {
  return x->at[r] < x->n[r] ? &x->turn[r][x->at[r]] : NULL;
}

// The rank's first receive from `from` that has met no send: its turn; -1: there is none.
static int64_t open_receive(Run *x, int rank, int from) {
  int64_t *i = &x->next[rank * x->ranks + from];
  while (*i < x->n[rank] &&
         (x->turn[rank][*i].kind != DT_TURN_RECV || x->turn[rank][*i].peer != from))
    ++*i;
  return *i < x->n[rank] ? *i : -1;
}

static bool fail(DtStuck *s, const char *what, int a, int64_t at, int b, int64_t bt) {
  *s = (DtStuck){what, {a, b}, {at, bt}};
  return false;
}

// A send that has met its receive. False: they are not the same message.
static bool meet(Run *x, int r, const DtTurn *send, int64_t receive, DtStuck *s) {
  const DtTurn *other = &x->turn[send->peer][receive];
  if (other->hash != send->hash)
    return fail(s, "two ranks differ in their next operation", r, x->at[r], send->peer, receive);
  x->came[send->peer][other->receive] = true;
  x->next[send->peer * x->ranks + r]++;
  return true;
}

// Runs a rank as far as it goes alone.
static bool advance(Run *x, int r, bool *moved, DtStuck *s) {
  for (const DtTurn *t; (t = head(x, r)) && t->kind != DT_TURN_ALL; *moved = true) {
    if (t->kind == DT_TURN_WAIT && !x->came[r][t->receive]) return true;
    if (t->kind == DT_TURN_SEND) {
      int64_t receive = open_receive(x, t->peer, r);
      if (receive < 0 || receive >= x->at[t->peer]) return true;
      if (!meet(x, r, t, receive, s)) return false;
    }
    x->at[r]++;
  }
  return true;
}

// All have come to an operation of all.
static bool together(Run *x, bool *moved, DtStuck *s) {
  for (int r = 0; r < x->ranks; r++)
    if (!head(x, r) || head(x, r)->kind != DT_TURN_ALL) return true;
  for (int r = 1; r < x->ranks; r++)
    if (head(x, r)->hash != head(x, 0)->hash)
      return fail(s, "two ranks differ in their next operation", 0, x->at[0], r, x->at[r]);
  for (int r = 0; r < x->ranks; r++) x->at[r]++;
  *moved = true;
  return true;
}

// A rank that this one waits for.
static int awaited(const Run *x, int r) {
  const DtTurn *t = head(x, r);
  if (t->kind != DT_TURN_ALL) return t->peer;
  for (int k = 0; k < x->ranks; k++)
    if (!head(x, k) || head(x, k)->kind != DT_TURN_ALL) return k;
  return r;
}

static bool explain_left(Run *x, DtStuck *s) {
  for (int r = 0; r < x->ranks; r++)
    for (int k = 0; k < x->ranks; k++) {
      int64_t left = open_receive(x, r, k);
      if (left >= 0) return fail(s, "a message without a matching send or receive", r, left, k, -1);
    }
  return true;
}

// Nobody moves. Somebody waits for one that has finished, or they wait in a circle.
static bool explain(Run *x, DtStuck *s) {
  int r = 0;
  while (r < x->ranks && !head(x, r)) r++;
  if (r == x->ranks) return explain_left(x, s);
  for (int steps = 0; steps <= x->ranks; steps++) { // from anywhere this ends on the circle
    int to = awaited(x, r);
    if (!head(x, to)) return fail(s, "an operation without a match", r, x->at[r], to, -1);
    r = to;
  }
  int to = awaited(x, r);
  return fail(s, "ranks wait for one another in a circle", r, x->at[r], to, x->at[to]);
}

static bool prepare(Run *x) {
  size_t P = (size_t)x->ranks;
  x->at = calloc(P, sizeof *x->at);
  x->next = calloc(P * P, sizeof *x->next);
  x->came = calloc(P, sizeof *x->came);
  bool ok = x->at && x->next && x->came;
  for (size_t r = 0; ok && r < P; r++) {
    x->came[r] = calloc((size_t)x->n[r] + 1, sizeof **x->came);
    ok = x->came[r] != NULL;
  }
  return ok;
}

static void release(Run *x) {
  for (int r = 0; x->came && r < x->ranks; r++) free(x->came[r]);
  free(x->came);
  free(x->next);
  free(x->at);
}

bool dt_turns_run(const DtTurn *const *turn, const int64_t *n, int ranks, DtStuck *stuck) {
  Run x = {.turn = turn, .n = n, .ranks = ranks};
  *stuck = (DtStuck){"no memory to check the operations of ranks", {-1, -1}, {-1, -1}};
  bool ok = prepare(&x);
  for (bool moved = true; ok && moved;) {
    moved = false;
    for (int r = 0; ok && r < ranks; r++) ok = advance(&x, r, &moved, stuck);
    ok = ok && together(&x, &moved, stuck);
  }
  ok = ok && explain(&x, stuck);
  release(&x);
  return ok;
}

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x9e3779b97f4a7c15u ^ h >> 29; }

uint64_t dt_turns_hash(const uint64_t *hash, int64_t n) {
  uint64_t h = n ? 1 : 0;
  for (int64_t i = 0; i < n; i++) h = mix(h, hash[i]);
  return h;
}
