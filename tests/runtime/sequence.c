// What ranks will say to one another is run before it is said: operations that do not fit together
// are found, with the two ranks and their turns. Then the runtime's own sums of tied gradients over
// stages, rehearsed rank by rank, with faults planted in their tables.
#include "runtime/comm/sequence.h"

#include "runtime/train/rehearse.h"
#include "runtime/control.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static DtTurn all(uint64_t hash) { return (DtTurn){hash, 0, DT_TURN_ALL, 0}; }
static DtTurn to(int peer, uint64_t hash) { return (DtTurn){hash, 0, DT_TURN_SEND, peer}; }
static DtTurn from(int peer, uint64_t hash, int k) {
  return (DtTurn){hash, k, DT_TURN_RECV, peer};
}
static DtTurn wait_for(int peer, int k) { return (DtTurn){0, k, DT_TURN_WAIT, peer}; }

typedef struct {
  DtTurn turn[3][8];
  int64_t n[3];
} Ranks;

// "" where they get to the end, else "what: rank turn, rank turn".
static const char *told(const Ranks *r, int ranks) {
  static char text[200];
  const DtTurn *turn[3] = {r->turn[0], r->turn[1], r->turn[2]};
  DtStuck s;
  text[0] = 0;
  if (!dt_turns_run(turn, r->n, ranks, &s))
    snprintf(text, sizeof text, "%s: %d %d, %d %d", s.what, s.who[0], (int)s.at[0], s.who[1],
             (int)s.at[1]);
  return text;
}

static void swap(DtTurn *a, DtTurn *b) {
  DtTurn t = *a;
  *a = *b;
  *b = t;
}

static void check_pairs(void) {
  const Ranks good = {{{to(1, 7), to(1, 8), from(1, 9, 1), wait_for(1, 1), all(5)},
                       {from(0, 7, 1), from(0, 8, 2), wait_for(0, 1), to(0, 9), wait_for(0, 2),
                        all(5)}},
                      {5, 6}};
  CHECK(!*told(&good, 2));
  Ranks r = good;
  swap(&r.turn[0][0], &r.turn[0][1]);
  CHECK_SAYS(told(&r, 2), "two ranks differ in their next operation: 0 0, 1 0");
  r = good;
  swap(&r.turn[1][0], &r.turn[1][1]);
  CHECK_SAYS(told(&r, 2), "two ranks differ in their next operation: 0 0, 1 0");
  r = good; // the second rank sends before it takes what the first must send before it takes that
  swap(&r.turn[1][0], &r.turn[1][3]);
  swap(&r.turn[1][1], &r.turn[1][3]);
  swap(&r.turn[1][2], &r.turn[1][3]);
  CHECK_SAYS(told(&r, 2), "ranks wait for one another in a circle: ");
  r = good;
  r.turn[1][5] = all(6);
  CHECK_SAYS(told(&r, 2), "two ranks differ in their next operation: 0 4, 1 5");
  r = good;
  r.n[1] = 5;
  CHECK_SAYS(told(&r, 2), "an operation without a match: 0 4, 1 -1");
  r = good;
  r.turn[0][1] = all(5);
  CHECK_SAYS(told(&r, 2), "ranks wait for one another in a circle: 1 3, 0 1");
}

static void check_circle_of_three(void) {
  const Ranks good = {{{from(2, 3, 1), to(1, 1), wait_for(2, 1)},
                       {from(0, 1, 1), to(2, 2), wait_for(0, 1)},
                       {from(1, 2, 1), to(0, 3), wait_for(1, 1)}},
                      {3, 3, 3}};
  CHECK(!*told(&good, 3));
  Ranks r = good; // everybody sends first
  for (int k = 0; k < 3; k++) swap(&r.turn[k][0], &r.turn[k][1]);
  CHECK_SAYS(told(&r, 3), "ranks wait for one another in a circle: ");
  r = good;
  for (int k = 0; k < 3; k++) r.turn[k][r.n[k]++] = from((k + 1) % 3, 4, 2);
  CHECK_SAYS(told(&r, 3), "a message without a matching send or receive: 0 3, 1 -1");
}

// ---- tied gradients

enum { STAGES = 3, UNITS = 3, PLACES = 4 };
static const char *const name[UNITS] = {"wte.weight", "scale", "mask"};
static const char *const source[UNITS] = {"m.dt:4", "m.dt:5", "m.dt:6"};

typedef struct {
  DtTurn *turn[STAGES];
  int64_t *place[STAGES], n[STAGES];
} Rehearsed;

// What stage `me` says while it sums ties over stages and gives them back.
static void rehearse(DtTie *tie, int n, int me, DtTurn **turn, int64_t *count, int64_t **place) {
  const DtProgram p = {.pp = STAGES, .type = DT_TYPE_F64};
  static double grad[UNITS * PLACES], tied[PLACES];
  DtUnit unit[UNITS] = {{0}};
  DtRun r = {.p = &p, .walk = {.tied = (char *)tied}};
  dt_world_set(&p, me, STAGES, me, STAGES);
  for (int i = 0; i < UNITS; i++) unit[i] = (DtUnit){.offset = i * PLACES, .count = PLACES - i};
  r.zero = (DtZero){.p = &p, .cut = {.owners = 1}, .grad = (char *)grad, .shard = dt_group(0),
                    .stages = {.n = STAGES, .tie = tie, .ntie = n},
                    .units = {.unit = unit, .nunit = UNITS}};
  dt_rehearse_begin();
  dt_walk_tie(&r);
  dt_agree(0);
  dt_walk_tie_back(&r);
  dt_walk_tie_wait(&r);
  CHECK(dt_rehearse_end());
  free(*turn);
  free(*place);
  *turn = dt_rehearse_turns(count, place);
}

static char text[800];

// Stage `odd` has the ties of `planted`. What is found goes to `text`.
static bool fits(DtTie *tie, DtTie *planted, int n, int odd) {
  Rehearsed x = {{NULL}, {NULL}, {0}};
  DtStuck s;
  for (int k = 0; k < STAGES; k++)
    rehearse(k == odd ? planted : tie, n, k, &x.turn[k], &x.n[k], &x.place[k]);
  bool ok = dt_turns_run((const DtTurn *const *)x.turn, x.n, STAGES, &s);
  size_t used = 0;
  text[0] = 0;
  for (int k = 0; !ok && k < 2; k++) {
    char op[300] = "nothing more";
    rehearse(s.who[k] == odd ? planted : tie, n, s.who[k], &x.turn[s.who[k]], &x.n[s.who[k]],
             &x.place[s.who[k]]);
    if (s.at[k] >= 0) dt_rehearse_text(op, sizeof op, x.place[s.who[k]][s.at[k]]);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s: rank %d %s; ", s.what, s.who[k],
                             op);
  }
  dt_rehearse_free();
  for (int k = 0; k < STAGES; k++) {
    free(x.turn[k]);
    free(x.place[k]);
  }
  return ok;
}

static void check_ties(void) {
  DtHolder holder[UNITS][2] = {{{0, 0}, {2, 0}}, {{0, 1}, {2, 1}}, {{2, 2}, {0, 2}}};
  DtTie tie[UNITS], planted[UNITS];
  for (int i = 0; i < UNITS; i++)
    tie[i] = (DtTie){name[i], source[i], holder[i], 2};
  CHECK(fits(tie, tie, UNITS, 0));
  memcpy(planted, tie, sizeof tie);
  planted[0] = tie[1];
  planted[1] = tie[0];
  for (int odd = 0; odd < STAGES; odd += 2) { // two ties in another order on one stage
    CHECK(!fits(tie, planted, UNITS, odd));
    CHECK_SAYS(text, "two ranks differ in their next operation: rank 2 send of ");
    CHECK_SAYS(text, "rank 0 recv of ");
    CHECK_SAYS(text, "wte.weight");
    CHECK_SAYS(text, "scale");
    CHECK_SAYS(text, "m.dt:4");
    CHECK_SAYS(text, "m.dt:5");
  }
  CHECK(!fits(tie, planted, 1, 0)); // another tensor altogether
  memcpy(planted, tie, sizeof tie);
  planted[1] = tie[2]; // led from the other side, before the other one knows
  planted[2] = tie[1];
  CHECK(!fits(tie, planted, UNITS, 0));
  CHECK_SAYS(text, "rank 0 ");
  CHECK_SAYS(text, "rank 2 ");
  DtHolder here[2] = {{0, 1}, {1, 1}}; // one stage takes another for the holder
  memcpy(planted, tie, sizeof tie);
  planted[1].holder = here;
  CHECK(!fits(tie, planted, UNITS, 0));
  CHECK_SAYS(text, "scale");
}

int main(void) {
  check_pairs();
  check_circle_of_three();
  check_ties();
  return check_done();
}
