// The profile of several ranks is one file: a process for each rank, with a row for its steps and
// one for its communication, on one clock; and a delay asked for by DT_COMM_DELAY_MS is in it.
#define _GNU_SOURCE
#include "support/check.h"
#include "support/worlds.h"

#include "runtime/files/json.h"
#include "runtime/base/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, KERNELS = 2000 };

static int traced(void *unused) {
  (void)unused;
  float x = 1;
  DtError e = {0};
  DtNote note = {"a \"quoted\" name", 2, "m.dt:1"};
  if (dt_trace_start(&e)) return e.status;
  for (int step = 1; step <= STEPS; step++) {
    dt_comm_step(step);
    dt_comm_micro(7);
    dt_trace_begin("step");
    for (int i = 0; i < KERNELS; i++) {
      dt_trace_begin("kernel");
      dt_trace_end("kernel");
    }
    DtTicket t = dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_SUM, &x, &x, 1, note);
    dt_trace_begin("beside");
    sleep_ms(30);
    dt_trace_end("beside");
    dt_wait(t);
    dt_trace_end("step");
  }
  return dt_trace_write("trace.json", &e);
}

typedef struct {
  int begins, transfers, overlapped;
  double beside[STEPS][2]; // begin and end of each, microseconds
  int nbeside;
} Row;

static double number(const DtJson *j, const DtJsonValue *v, const char *name) {
  const DtJsonValue *n = dt_json_member(j, v, name, DT_JSON_REAL);
  return n ? n->real : -1;
}

static int64_t whole(const DtJson *j, const DtJsonValue *v, const char *name) {
  const DtJsonValue *n = dt_json_member(j, v, name, DT_JSON_INTEGER);
  return n ? n->integer : -1;
}

static bool has_text(const DtJson *j, const DtJsonValue *v, const char *name, const char *want) {
  const DtJsonValue *n = dt_json_member(j, v, name, DT_JSON_STRING);
  return n && strcmp(n->string, want) == 0;
}

// Communication against computation: all of it, and operation by operation.
static void check_summary(const DtJson *j, int ranks) {
  const DtJsonValue *rows = dt_json_member(j, dt_json_root(j), "ranks", DT_JSON_ARRAY);
  int n = 0;
  CHECK(rows != NULL);
  for (const DtJsonValue *v = dt_json_first(j, rows); v; v = dt_json_next(j, v), n++) {
    double all = number(j, v, "seconds"), wait = number(j, v, "waiting");
    double busy = number(j, v, "communicating"), beside = number(j, v, "beside_computation");
    CHECK(whole(j, v, "rank") == n);
    CHECK(all >= STEPS * 0.03 && wait >= 0 && busy >= STEPS * 0.02);
    CHECK(number(j, v, "computing") > all - wait - 1e-5 &&
          number(j, v, "computing") < all - wait + 1e-5);
    CHECK(beside > 0 && beside <= busy + 1e-5 && busy - beside <= wait + 1e-5);
    const DtJsonValue *table = dt_json_member(j, v, "operations", DT_JSON_ARRAY);
    const DtJsonValue *op = table ? dt_json_first(j, table) : NULL;
    CHECK(op && !dt_json_next(j, op));
    if (!op) continue;
    CHECK(has_text(j, op, "operation", "all_reduce") && has_text(j, op, "source", "m.dt:1"));
    CHECK(whole(j, op, "count") == STEPS && whole(j, op, "bytes") == 4 * STEPS);
    CHECK(number(j, op, "seconds") > busy - 1e-5);
  }
  CHECK(n == ranks);
}

static void check_events(const DtJson *j, int ranks) {
  Row row[8] = {0};
  const DtJsonValue *events = dt_json_member(j, dt_json_root(j), "traceEvents", DT_JSON_ARRAY);
  CHECK(events != NULL);
  for (const DtJsonValue *v = dt_json_first(j, events); v; v = dt_json_next(j, v)) {
    const DtJsonValue *ph = dt_json_member(j, v, "ph", DT_JSON_STRING);
    const DtJsonValue *name = dt_json_member(j, v, "name", DT_JSON_STRING);
    const DtJsonValue *pid = dt_json_member(j, v, "pid", DT_JSON_INTEGER);
    if (!ph || !name || !pid || pid->integer >= ranks) {
      CHECK(!"an event without name, ph or pid");
      return;
    }
    Row *r = &row[pid->integer];
    double at = number(j, v, "ts");
    bool waits = strcmp(name->string, dt_trace_wait) == 0; // where the machine has other work
    if (strcmp(ph->string, "B") == 0 && !waits) r->begins++;
    if (strcmp(name->string, "beside") == 0 && r->nbeside < STEPS)
      r->beside[r->nbeside][ph->string[0] == 'E'] = at, r->nbeside += ph->string[0] == 'E';
    if (strcmp(ph->string, "X") != 0) continue;
    CHECK(strcmp(name->string, "all_reduce a \"quoted\" name") == 0);
    CHECK(number(j, v, "dur") >= 20e3); // the delay
    const DtJsonValue *args = dt_json_member(j, v, "args", DT_JSON_OBJECT);
    CHECK(args && whole(j, args, "step") == r->transfers + 1);
    CHECK(args && whole(j, args, "microbatch") == 7 && whole(j, args, "layer") == 2);
    CHECK(args && has_text(j, args, "source", "m.dt:1"));
    double end = at + number(j, v, "dur");
    int k = r->transfers++;
    if (k < STEPS) r->overlapped += end > r->beside[k][0] && at < r->beside[k][1];
  }
  for (int i = 0; i < ranks; i++) {
    CHECK(row[i].begins == STEPS * (KERNELS + 2));
    CHECK(row[i].transfers == STEPS);
    CHECK(row[i].overlapped == STEPS);
  }
}

int main(void) {
  check_folder();
  setenv("DT_COMM_DELAY_MS", "20", 1);
  for (int ranks = 2; ranks <= 3; ranks++) {
    CHECK(in_world(ranks, 1, 1, 1, 60, traced, NULL, NULL) == 0);
    size_t n;
    char *text = read_whole("trace.json", &n);
    CHECK(text != NULL);
    DtJson j;
    DtError e = {0};
    CHECK(dt_json_parse(&j, text, n, "trace.json", &e) == 0);
    if (!e.status) check_events(&j, ranks);
    if (!e.status) check_summary(&j, ranks);
    dt_json_free(&j);
    free(text);
  }
  return check_done();
}
