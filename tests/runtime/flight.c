// Two calls of the program in flight change turns at every wait, and nowhere else: the order of what
// they do is fixed, each is told of as its own microbatch and layer, and both are done in the end,
// whichever of them waits more often.
#define _GNU_SOURCE
#include "support/check.h"

#include "runtime/comm.h"
#include "runtime/comm/flight.h"
#include "runtime/layers.h"

#include <stdio.h>
#include <string.h>

static char told[1024];
static const int *waits; // of each microbatch

// Deep enough that stacks, and what lies on them, are seen to be kept.
static double sink(int depth, const volatile double *above) {
  volatile double here[64];
  for (int i = 0; i < 64; i++) here[i] = above[i] + 1;
  if (depth > 0) return sink(depth - 1, here);
  dt_wait_aside(0);
  return here[63];
}

static void tell(const char *what) {
  DtPlace p = dt_comm_place();
  size_t n = strlen(told);
  snprintf(told + n, sizeof told - n, "%s%lld.%lld ", what, (long long)p.micro,
           (long long)p.layer);
}

static void entry(const DtCall *call) {
  const volatile double zero[64] = {0};
  int64_t mine = dt_comm_place().micro;
  tell("begin");
  for (int i = 0; i < waits[call->scalars->first]; i++) {
    int64_t outside = dt_layer_enter(i, waits[call->scalars->first]);
    tell("");
    CHECK(sink(20, zero) == 21);
    CHECK(dt_comm_place().micro == mine && dt_comm_place().layer == i);
    dt_layer_leave(outside);
  }
  tell("end");
  *(double *)call->out = (double)mine;
}

static void fly(int first, int second, const char *want) {
  double out[2] = {0};
  int n[2] = {first, second};
  const DtScalars scalars[2] = {{.first = 0}, {.first = 1}};
  DtCall call[2] = {{.scalars = &scalars[0], .out = &out[0]}, {.scalars = &scalars[1], .out = &out[1]}};
  told[0] = 0;
  waits = n;
  dt_flight_run(entry, "entry", &call[0], &call[1], 6);
  CHECK(out[0] == 6 && out[1] == 7);
  CHECK(dt_comm_place().micro == 6 && dt_comm_place().layer == -1);
  if (strcmp(told, want)) printf("%s\nnot %s\n", told, want);
  CHECK(strcmp(told, want) == 0);
}

int main(void) {
  DtError e = {0};
  CHECK(dt_flight_open(&e) == 0);
  for (int i = 0; i < 100; i++) {
    fly(2, 2, "begin6.-1 6.0 begin7.-1 7.0 6.1 7.1 end6.-1 end7.-1 ");
    fly(0, 0, "begin6.-1 end6.-1 begin7.-1 end7.-1 ");
    fly(0, 2, "begin6.-1 end6.-1 begin7.-1 7.0 7.1 end7.-1 ");
    fly(3, 1, "begin6.-1 6.0 begin7.-1 7.0 6.1 end7.-1 6.2 end6.-1 ");
    fly(1, 3, "begin6.-1 6.0 begin7.-1 7.0 end6.-1 7.1 7.2 end7.-1 ");
  }
  dt_wait_aside(0); // with nothing in flight it is dt_wait
  dt_flight_close();
  dt_flight_close();
  return check_done();
}
