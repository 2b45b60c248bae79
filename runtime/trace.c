#define _GNU_SOURCE
#include "runtime/trace.h"

#include "runtime/comm.h"
#include "runtime/file.h"
#include "runtime/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_EVENTS = 4 << 20 };

typedef struct {
  const char *name;
  int64_t when; // nanoseconds, monotonic
  bool begin;
} Event;

bool dt_tracing;
const char *volatile dt_activity = "starting";

// One operation of the communication thread.
typedef struct {
  const char *op, *what, *axes;
  int64_t layer, bytes, begin, end;
} Transfer;

static struct {
  Transfer *transfer;
  int64_t n, capacity, dropped;
} row;

static struct {
  Event *event;
  int64_t n, capacity, dropped;
} trace;

int64_t dt_nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void dt_trace_record(const char *name, bool begin) {
  if (trace.n == trace.capacity) {
    int64_t more = trace.capacity * 2;
    Event *e = more <= MOST_EVENTS ? realloc(trace.event, (size_t)more * sizeof *e) : NULL;
    if (!e) {
      trace.dropped++;
      return;
    }
    trace.event = e;
    trace.capacity = more;
  }
  trace.event[trace.n++] = (Event){name, dt_nanoseconds(), begin};
}

void dt_trace_comm(const char *op, const char *what, int64_t layer, const char *axes,
                   int64_t bytes, int64_t begin) {
  if (row.n == row.capacity) {
    int64_t more = row.capacity ? row.capacity * 2 : 1 << 12;
    Transfer *t = more <= MOST_EVENTS ? realloc(row.transfer, (size_t)more * sizeof *t) : NULL;
    if (!t) {
      row.dropped++;
      return;
    }
    row.transfer = t;
    row.capacity = more;
  }
  row.transfer[row.n++] = (Transfer){op, what, axes, layer, bytes, begin, dt_nanoseconds()};
}

int dt_trace_start(DtError *e) {
  trace.capacity = 1 << 16;
  trace.n = trace.dropped = 0;
  trace.event = malloc((size_t)trace.capacity * sizeof *trace.event);
  if (!trace.event) return dt_fail(e, DT_EXIT_OS, "no memory for the profile");
  dt_tracing = true;
  return 0;
}

static void write_transfers(DtOut *o, int64_t start) {
  if (row.n)
    dt_out_print(o, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":1,"
                    "\"args\":{\"name\":\"communication\"}}", dt_world.rank);
  for (int64_t i = 0; i < row.n; i++) {
    const Transfer *t = &row.transfer[i];
    char what[256];
    dt_json_escape(what, sizeof what, t->what ? t->what : "");
    dt_out_print(o,
                 ",\n{\"name\":\"%s %s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,"
                 "\"tid\":1,\"args\":{\"axes\":\"%s\",\"bytes\":%lld,\"layer\":%lld}}",
                 t->op, what, (double)(t->begin - start) / 1e3, (double)(t->end - t->begin) / 1e3,
                 dt_world.rank, t->axes, (long long)t->bytes, (long long)t->layer);
  }
  free(row.transfer);
  memset(&row, 0, sizeof row);
}

int dt_trace_write(const char *path, DtError *e) {
  dt_tracing = false;
  DtOut o;
  if (dt_out_open(&o, path, e)) return e->status;
  dt_out_print(
      &o,
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":%lld},\n\"traceEvents\":[\n",
      (long long)(trace.dropped + row.dropped));
  dt_out_print(&o, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":"
                   "\"rank %d\"}}", dt_world.rank, dt_world.rank);
  int64_t start = trace.n ? trace.event[0].when : 0;
  for (int64_t i = 0; i < trace.n; i++) {
    const Event *v = &trace.event[i];
    char name[256];
    dt_json_escape(name, sizeof name, v->name);
    dt_out_print(&o, ",\n{\"name\":\"%s\",\"ph\":\"%c\",\"ts\":%.3f,\"pid\":%d,\"tid\":0}", name,
                 v->begin ? 'B' : 'E', (double)(v->when - start) / 1e3, dt_world.rank);
  }
  write_transfers(&o, start);
  dt_out_print(&o, "\n]}\n");
  free(trace.event);
  memset(&trace, 0, sizeof trace);
  return dt_out_close(&o, e);
}
