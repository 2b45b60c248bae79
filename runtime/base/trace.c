#define _GNU_SOURCE
#include "runtime/base/trace.h"

#include "runtime/control.h"
#include "runtime/files/file.h"
#include "runtime/files/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_EVENTS = 4 << 20, RECEIVES = 3 }; // 3: the row of receives

typedef struct {
  const char *name;
  int64_t when; // nanoseconds, monotonic
  bool begin, second; // second: of the microbatch that runs beside another
} Event;

bool dt_tracing;
const char dt_trace_wait[] = "wait for communication";
const char *volatile dt_activity = "starting";

static struct {
  DtTransfer *transfer;
  int64_t n, capacity, dropped;
} row;

static bool second; // whose turn it is

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
  trace.event[trace.n++] = (Event){name, dt_nanoseconds(), begin, second};
}

void dt_trace_row(int number) { second = number == 1; }

void dt_trace_comm(const DtTransfer *done) {
  if (row.n == row.capacity) {
    int64_t more = row.capacity ? row.capacity * 2 : 1 << 12;
    DtTransfer *t = more <= MOST_EVENTS ? realloc(row.transfer, (size_t)more * sizeof *t) : NULL;
    if (!t) {
      row.dropped++;
      return;
    }
    row.transfer = t;
    row.capacity = more;
  }
  DtTransfer *t = &row.transfer[row.n++];
  *t = *done;
  t->end = dt_nanoseconds();
}

int dt_trace_start(DtError *e) {
  trace.capacity = 1 << 16;
  trace.n = trace.dropped = 0;
  trace.event = malloc((size_t)trace.capacity * sizeof *trace.event);
  if (!trace.event) return dt_fail(e, DT_EXIT_OS, "no memory for the profile");
  dt_tracing = true;
  return 0;
}

// Text on its way into the file: rank 0 writes it, the others send it to rank 0 a buffer at a time.
typedef struct {
  DtOut *out; // rank 0's, else NULL
  size_t used;
  char buffer[1 << 16];
} Sink;

static const DtNote PROFILE = {"profile", -1, NULL};

static const DtGroup *everybody(void) { return dt_group(DT_ALL_AXES); }

// A length, then that number of bytes; a length of 0 ends it.
static void send_off(Sink *s) {
  int32_t n = (int32_t)s->used;
  dt_control_send(everybody(), 0, DT_TYPE_I32, &n, 1, PROFILE);
  if (n) dt_control_send(everybody(), 0, DT_TYPE_I32, s->buffer, sizeof s->buffer / 4, PROFILE);
  s->used = 0;
}

static void take_from(Sink *s, int rank) {
  for (int32_t n;;) {
    dt_control_receive(everybody(), rank, DT_TYPE_I32, &n, 1, PROFILE);
    if (!n) return;
    dt_control_receive(everybody(), rank, DT_TYPE_I32, s->buffer, sizeof s->buffer / 4, PROFILE);
    dt_out_write(s->out, s->buffer, (size_t)n);
  }
}

static void put(Sink *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(Sink *s, const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (n < 0 || n >= (int)sizeof line) return;
  if (s->out) {
    dt_out_write(s->out, line, (size_t)n);
    return;
  }
  if (s->used + (size_t)n > sizeof s->buffer) send_off(s);
  memcpy(s->buffer + s->used, line, (size_t)n);
  s->used += (size_t)n;
}

static void put_row_name(Sink *s, int row, const char *name) {
  put(s,
      ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
      dt_world.rank, row, name);
}

static void put_rank(Sink *s, int64_t start) {
  int rank = dt_world.rank;
  bool pair = false, receives = false;
  put(s,
      "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"rank "
      "%d\"}}",
      rank ? ",\n" : "", rank, rank);
  for (int64_t i = 0; i < trace.n; i++) {
    const Event *v = &trace.event[i];
    char name[256];
    dt_json_escape(name, sizeof name, v->name);
    put(s, ",\n{\"name\":\"%s\",\"ph\":\"%c\",\"ts\":%.3f,\"pid\":%d,\"tid\":%d}", name,
        v->begin ? 'B' : 'E', (double)(v->when - start) / 1e3, rank, v->second ? 2 : 0);
    pair |= v->second;
  }
  if (row.n) put_row_name(s, 1, "communication");
  if (pair) put_row_name(s, 2, "the other microbatch");
  for (int64_t i = 0; i < row.n; i++) receives |= row.transfer[i].receive;
  if (receives) put_row_name(s, RECEIVES, "receives");
  for (int64_t i = 0; i < row.n; i++) {
    const DtTransfer *t = &row.transfer[i];
    char what[256] = " ", source[128];
    dt_json_escape(what + 1, sizeof what - 1, t->what ? t->what : "");
    dt_json_escape(source, sizeof source, t->source ? t->source : "");
    put(s,
        ",\n{\"name\":\"%s%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,"
        "\"args\":{\"axes\":\"%s\",\"bytes\":%lld,\"step\":%lld,\"microbatch\":%lld,\"layer\":%lld,"
        "\"posted\":%.3f,\"source\":\"%s\"}}",
        t->op, t->what ? what : "", (double)(t->begin - start) / 1e3,
        (double)(t->end - t->begin) / 1e3, rank, t->receive ? RECEIVES : 1,
        t->axes, (long long)t->bytes, (long long)t->step,
        (long long)t->micro, (long long)t->layer, (double)(t->posted - start) / 1e3, source);
  }
}

// ---- communication against computation

// Operations of one kind, name and axes: together one line of the table.
static int by_operation(const void *a, const void *b) {
  const DtTransfer *x = a, *y = b;
  int order = strcmp(x->op, y->op);
  if (!order) order = strcmp(x->axes, y->axes);
  return order ? order : strcmp(x->what ? x->what : "", y->what ? y->what : "");
}

static int by_time(const void *a, const void *b) {
  const DtTransfer *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

// Time that both the communication thread was in an operation and the steps waited for one.
static int64_t exposed(const DtTransfer *t, int64_t n, const Event *e, int64_t nevent) {
  int64_t sum = 0, k = 0, since = 0; // since: not counted before
  for (int64_t i = 0; i < nevent; i++) {
    if (e[i].name != dt_trace_wait) continue;
    if (e[i].begin) {
      since = e[i].when;
      continue;
    }
    while (k < n && t[k].end <= since) k++;
    for (int64_t j = k; j < n && t[j].begin < e[i].when; j++) {
      int64_t lo = t[j].begin > since ? t[j].begin : since;
      int64_t hi = t[j].end < e[i].when ? t[j].end : e[i].when;
      if (hi <= lo) continue;
      sum += hi - lo;
      since = hi;
    }
  }
  return sum;
}

static int64_t waited(void) {
  int64_t sum = 0, since = 0;
  for (int64_t i = 0; i < trace.n; i++) {
    const Event *e = &trace.event[i];
    if (e->name != dt_trace_wait) continue;
    if (e->begin) since = e->when;
    else sum += e->when - since;
  }
  return sum;
}

// One rank alone has none, and no array.
static void sort_transfers(int (*before)(const void *, const void *)) {
  if (row.n) qsort(row.transfer, (size_t)row.n, sizeof *row.transfer, before);
}

static void put_operations(Sink *s) {
  sort_transfers(by_operation);
  for (int64_t i = 0, next; i < row.n; i = next) {
    const DtTransfer *t = &row.transfer[i];
    int64_t bytes = 0, time = 0;
    for (next = i; next < row.n && !by_operation(t, &row.transfer[next]); next++) {
      bytes += row.transfer[next].bytes;
      time += row.transfer[next].end - row.transfer[next].begin;
    }
    char what[256], source[128];
    dt_json_escape(what, sizeof what, t->what ? t->what : "");
    dt_json_escape(source, sizeof source, t->source ? t->source : "");
    put(s,
        "%s\n  {\"operation\":\"%s\",\"what\":\"%s\",\"axes\":\"%s\",\"source\":\"%s\","
        "\"count\":%lld,\"bytes\":%lld,\"seconds\":%.6f}",
        i ? "," : "", t->op, what, t->axes, source, (long long)(next - i), (long long)bytes,
        (double)time * 1e-9);
  }
}

static void put_summary(Sink *s) {
  int64_t all = trace.n ? trace.event[trace.n - 1].when - trace.event[0].when : 0, time = 0;
  int64_t wait = waited();
  sort_transfers(by_time);
  for (int64_t i = 0; i < row.n; i++) time += row.transfer[i].end - row.transfer[i].begin;
  int64_t beside = time - exposed(row.transfer, row.n, trace.event, trace.n);
  put(s,
      "%s{\"rank\":%d,\"seconds\":%.6f,\"computing\":%.6f,\"waiting\":%.6f,\"communicating\":%.6f,"
      "\"beside_computation\":%.6f,\"operations\":[",
      dt_world.rank ? ",\n" : "", dt_world.rank, (double)all * 1e-9, (double)(all - wait) * 1e-9,
      (double)wait * 1e-9, (double)time * 1e-9, (double)beside * 1e-9);
  put_operations(s);
  put(s, "]}");
}

// The time that all ranks count from, by this rank's clock. Clocks of several machines meet at a
// barrier.
static int64_t common_start(void) {
  int64_t start = trace.n ? trace.event[0].when : 0, here, first;
  if (dt_world.size == 1) return start;
  dt_barrier(everybody());
  int64_t times[2] = {here = dt_nanoseconds(), start};
  dt_control_broadcast(everybody(), DT_TYPE_I32, 0, times, sizeof times / 4, PROFILE);
  first = times[1];
  return dt_world.local_size == dt_world.size ? first : here - (times[0] - first);
}

static int write_all(Sink *s, const char *path, DtError *e) {
  DtOut o;
  bool writes = dt_world.rank == 0;
  if (writes && !dt_out_open(&o, path, e)) s->out = &o;
  if (dt_agree(e->status)) return 0;
  int32_t dropped = (int32_t)(trace.dropped + row.dropped);
  dt_control_reduce(everybody(), DT_TYPE_I32, DT_SUM, &dropped, 1, PROFILE);
  int64_t start = common_start();
  if (writes)
    put(s,
        "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":%d},\n\"traceEvents\":[\n",
        dropped);
  for (int part = 0; part < 2; part++) {
    if (part) put_summary(s);
    else put_rank(s, start);
    if (!writes) {
      if (s->used) send_off(s);
      send_off(s);
      continue;
    }
    for (int r = 1; r < dt_world.size; r++) take_from(s, r);
    put(s, part ? "\n]}\n" : "\n],\n\"ranks\":[\n");
  }
  return writes ? dt_out_close(&o, e) : 0;
}

// One status for all ranks; the text is the first rank's.
int dt_trace_write(const char *path, DtError *e) {
  dt_tracing = false;
  static Sink s;
  s = (Sink){.out = NULL};
  write_all(&s, path, e);
  e->status = dt_agree(e->status);
  free(trace.event);
  free(row.transfer);
  memset(&trace, 0, sizeof trace);
  memset(&row, 0, sizeof row);
  return e->status;
}
