// An operation as text and as a hash, and the last message of a rank that cannot go on.
#define _GNU_SOURCE
#include "runtime/comm/comm_op.h"

#include "runtime/base/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const dt_op_name[DT_OP_KINDS] = {"all_reduce", "reduce_scatter", "all_gather",
                                             "all_to_all", "shift",          "broadcast",
                                             "send",       "recv",           "barrier"};

int dt_comm_linger_ms;

typedef struct {
  char *at;
  size_t n, capacity;
} Text;

static void add(Text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(Text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->at + t->n, t->capacity - t->n, format, args);
  va_end(args);
  if (n > 0) t->n = (size_t)n < t->capacity - t->n ? t->n + (size_t)n : t->capacity - 1;
}

static void add_ranks(Text *t, const DtGroup *g) {
  enum { MOST = 16 };
  add(t, "ranks");
  for (int i = 0; i < g->n && i < MOST; i++) add(t, " %d", g->rank[i]);
  if (g->n > MOST) add(t, " ... %d", g->rank[g->n - 1]);
}

void dt_op_text(char *text, size_t n, const DtOp *op) {
  Text t = {text, 0, n};
  add(&t, "%s", dt_op_name[op->kind]);
  if (op->note.what) add(&t, " of %s", op->note.what);
  if (op->note.layer >= 0 && op->note.what) add(&t, ", layer %lld", (long long)op->note.layer);
  add(&t, " (%lld bytes", (long long)op->count * (long long)dt_type_size(op->type));
  if (op->kind == DT_OP_SEND) add(&t, " to rank %d", op->g->rank[op->peer]);
  if (op->kind == DT_OP_RECV) add(&t, " from rank %d", op->g->rank[op->peer]);
  add(&t, " over %s: ", op->g->axes);
  add_ranks(&t, op->g);
  add(&t, ")");
  if (op->step > 0) add(&t, ", step %lld", (long long)op->step);
  if (op->micro >= 0) add(&t, ", microbatch %lld", (long long)op->micro);
  if (op->note.source) add(&t, ", %s", op->note.source);
}

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x9e3779b97f4a7c15u ^ h >> 29; }

uint64_t dt_op_hash(const DtOp *op) {
  bool pair = op->kind == DT_OP_SEND || op->kind == DT_OP_RECV;
  uint64_t h = mix(1, pair ? DT_OP_SEND : op->kind);
  h = mix(h, op->type);
  h = mix(h, op->reduce);
  h = mix(h, pair ? 0 : (uint64_t)op->peer);
  h = mix(h, (uint64_t)op->count);
  for (const char *s = op->note.what; s && *s; s++) h = mix(h, (unsigned char)*s);
  h = mix(h, (uint64_t)op->note.layer);
  h = mix(h, (uint64_t)op->micro);
  return h;
}

static void copy_words(char *to, size_t n, const char *from) {
  size_t length = from ? strlen(from) : 0;
  if (length >= n) length = n - 1;
  if (length) memcpy(to, from, length);
  to[length] = 0;
}

void dt_doing_operation(DtDoing *d, const DtOp *op) {
  d->kind = -1;
  if (!op) return;
  copy_words(d->what, sizeof d->what, op->note.what);
  copy_words(d->source, sizeof d->source, op->note.source);
  copy_words(d->axes, sizeof d->axes, op->g->axes);
  d->layer = op->note.layer;
  d->bytes = op->count * (int64_t)dt_type_size(op->type);
  d->step = op->step;
  d->micro = op->micro;
  d->kind = (int)op->kind;
}

void dt_doing_activity(DtDoing *d) {
  copy_words(d->activity, sizeof d->activity, dt_activity_now());
  d->files = dt_comm_at_files();
  if (d->kind < 0) d->step = dt_comm_at_step();
}

void dt_doing_text(char *text, size_t n, const DtDoing *doing) {
  DtDoing d = *doing;
  d.what[sizeof d.what - 1] = d.source[sizeof d.source - 1] = 0;
  d.axes[sizeof d.axes - 1] = d.activity[sizeof d.activity - 1] = 0;
  Text t = {text, 0, n};
  if (d.kind >= 0 && d.kind < DT_OP_KINDS) {
    add(&t, "it was last seen in %s%s%s", dt_op_name[d.kind], d.what[0] ? " of " : "", d.what);
    if (d.layer >= 0) add(&t, ", layer %lld", (long long)d.layer);
    add(&t, " (%lld bytes over %s)", (long long)d.bytes, d.axes);
  } else {
    add(&t, "it was last seen at %s", d.activity);
  }
  if (d.step > 0) add(&t, ", step %lld", (long long)d.step);
  if (d.kind >= 0 && d.kind < DT_OP_KINDS && d.micro >= 0)
    add(&t, ", microbatch %lld", (long long)d.micro);
  if (d.kind >= 0 && d.kind < DT_OP_KINDS && d.source[0]) add(&t, ", %s", d.source);
}

double dt_blamed(double waited, bool at_files) {
  static double forgiven;
  if (at_files) forgiven = waited;
  else if (waited < forgiven) forgiven = 0; // of the wait before
  return waited - forgiven;
}

void dt_comm_rest(void) {
  if (dt_comm_linger_ms)
    nanosleep(&(struct timespec){dt_comm_linger_ms / 1000, dt_comm_linger_ms % 1000 * 1000000L},
              NULL);
}

void dt_comm_end(int status, const char *format, ...) {
  // One write, so that messages of ranks do not mix.
  char line[3000];
  Text t = {line, 0, sizeof line - 1};
  add(&t, "train: rank %d: error: ", dt_world.rank);
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line + t.n, t.capacity - t.n, format, args);
  va_end(args);
  if (n > 0) t.n = dt_least(n, (int64_t)(t.capacity - t.n) - 1) + t.n;
  const DtOp *op = dt_comm_current();
  if (op) {
    char what[800];
    dt_op_text(what, sizeof what, op);
    add(&t, "; this rank waited in %s", what);
  } else {
    add(&t, "; this rank waited for nothing, and was at %s", dt_activity_now());
    if (dt_comm_at_step() > 0) add(&t, " in step %lld", (long long)dt_comm_at_step());
  }
  line[t.n++] = '\n';
  for (size_t done = 0; done < t.n;) {
    ssize_t w = write(STDERR_FILENO, line + done, t.n - done);
    if (w <= 0) break;
    done += (size_t)w;
  }
  dt_link_abort();
  dt_comm_rest();
  _exit(status);
}
