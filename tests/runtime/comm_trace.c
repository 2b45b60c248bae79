// The profile of several ranks is one file: a process for each rank, with a row for its steps and
// one for its communication, on one clock; and a delay asked for by DT_COMM_DELAY_MS is in it.
#define _GNU_SOURCE
#include "support/check.h"
#include "support/worlds.h"

#include "runtime/json.h"
#include "runtime/trace.h"

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
    if (strcmp(ph->string, "B") == 0) r->begins++;
    if (strcmp(name->string, "beside") == 0 && r->nbeside < STEPS)
      r->beside[r->nbeside][ph->string[0] == 'E'] = at, r->nbeside += ph->string[0] == 'E';
    if (strcmp(ph->string, "X") != 0) continue;
    CHECK(strcmp(name->string, "all_reduce a \"quoted\" name") == 0);
    CHECK(number(j, v, "dur") >= 20e3); // the delay
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
    dt_json_free(&j);
    free(text);
  }
  return check_done();
}
