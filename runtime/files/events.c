// Event files: records of TFRecord (a length, its CRC, bytes, their CRC), each a message `Event` of
// tensorflow/core/util/event.proto in protocol buffers' wire format.
#define _GNU_SOURCE
#include "runtime/files/events.h"

#include "runtime/comm.h"
#include "runtime/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// CRC-32C (Castagnoli), bit by bit: a record has some hundred bytes.
static uint32_t crc32c(const unsigned char *p, size_t n) {
  uint32_t c = ~UINT32_C(0);
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? UINT32_C(0x82f63b78) : 0);
  }
  return ~c;
}

// As TFRecord stores it: a CRC of bytes that hold CRCs would be weak.
static uint32_t masked(uint32_t c) { return (c >> 15 | c << 17) + UINT32_C(0xa282ead8); }

static void little(unsigned char *to, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(v >> 8 * i);
}

// ---- messages ----

// Bytes that do not fit are left out: only a text can be so long, and it is cut before.
static void put(DtEvents *v, const void *bytes, size_t n) {
  if (n > sizeof v->buffer - v->used) return;
  memcpy(v->buffer + v->used, bytes, n);
  v->used += n;
}

static void put_varint(DtEvents *v, uint64_t x) {
  for (; x >= 128; x >>= 7) put(v, &(unsigned char){(unsigned char)(x | 128)}, 1);
  put(v, &(unsigned char){(unsigned char)x}, 1);
}

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 }; // wire types

static void put_key(DtEvents *v, int field, int wire) {
  put_varint(v, (uint64_t)(field << 3 | wire));
}

static void put_bytes(DtEvents *v, int field, const void *bytes, size_t n) {
  put_key(v, field, BYTES);
  put_varint(v, n);
  put(v, bytes, n);
}

static void put_text(DtEvents *v, int field, const char *text) {
  put_bytes(v, field, text, strlen(text));
}

static void put_integer(DtEvents *v, int field, int64_t x) {
  put_key(v, field, VARINT);
  put_varint(v, (uint64_t)x);
}

// A message within a message: its length stands before it, in two bytes.
static size_t begin(DtEvents *v, int field) {
  put_key(v, field, BYTES);
  put(v, "\x80", 2);
  return v->used;
}

static void end(DtEvents *v, size_t began) {
  size_t n = v->used - began;
  v->buffer[began - 2] = (unsigned char)(n | 128);
  v->buffer[began - 1] = (unsigned char)(n >> 7 & 127);
}

enum { HEADER = 12 }; // of a record: 8 bytes of length, and its CRC

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
static void begin_event(DtEvents *v, int64_t step) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
  unsigned char bytes[8];
  uint64_t bits;
  memcpy(&bits, &now, sizeof bits);
  little(bytes, bits, 8);
  v->used = HEADER;
  put_key(v, 1, FIXED64);
  put(v, bytes, 8);
  put_integer(v, 2, step);
}

static int end_event(DtEvents *v, DtError *e) {
  unsigned char crc[4];
  size_t n = v->used - HEADER;
  little(v->buffer, n, 8);
  little(v->buffer + 8, masked(crc32c(v->buffer, 8)), 4);
  little(crc, masked(crc32c(v->buffer + HEADER, n)), 4);
  put(v, crc, 4);
  for (size_t done = 0; done < v->used;) {
    ssize_t got = write(v->fd, v->buffer + done, v->used - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return dt_fail_errno(e, DT_EXIT_IO, "cannot write", v->path);
    done += (size_t)got;
  }
  return 0;
}

// Summary: value = 1; Value: tag = 1, simple_value = 2.
static void scalar(DtEvents *v, const char *prefix, const char *tag, double x) {
  char name[256];
  unsigned char bytes[4];
  float f = (float)x;
  uint32_t bits;
  if (v->used > sizeof v->buffer - 512) return;
  snprintf(name, sizeof name, "%s%s", prefix, tag);
  memcpy(&bits, &f, sizeof bits);
  little(bytes, bits, 4);
  size_t value = begin(v, 1);
  put_text(v, 1, name);
  put_key(v, 2, FIXED32);
  put(v, bytes, 4);
  end(v, value);
}

// ---- records ----

// SessionLog: status = 1, of which START is 1: what earlier files hold from this step on is void.
static int start(DtEvents *v, const DtRun *r, DtError *e) {
  begin_event(v, 0);
  put_text(v, 3, "brain.Event:2");
  if (end_event(v, e)) return e->status;
  if (r->step == 0) return 0;
  begin_event(v, r->step + 1);
  size_t log = begin(v, 7);
  put_integer(v, 1, 1);
  end(v, log);
  return end_event(v, e);
}

static void describe(const DtRun *r, char *text, size_t n) {
  const DtProgram *p = r->p;
  int64_t parameters = 0;
  for (int i = 0; i < p->nparam; i++) parameters += p->param[i].count;
  snprintf(text, n,
           "| | |\n|---|---|\n| model | %.200s |\n| build | %s |\n| parameters | %lld |\n| "
           "precision | %s |\n"
           "| ranks | %d |\n| tp, cp, pp, ZeRO | %d, %d, %d, %d |\n| batch | %lld |\n| peak "
           "learning rate | %g |\n"
           "| steps | %lld |\n| seed | %llu |\n| data | %.1000s |\n| begins after step | %lld |\n",
           p->model, p->build, (long long)parameters, p->train.precision, dt_world.size,
           p->tp > 1 ? p->tp : 1, p->cp > 1 ? p->cp : 1, p->pp > 1 ? p->pp : 1, p->zero,
           (long long)r->o.batch, r->o.lr, (long long)r->o.steps, (unsigned long long)r->seed,
           r->o.data ? r->o.data : "as the model says", (long long)r->step);
}

// A text is a tensor of strings: Value: metadata = 9 (plugin_data = 1: plugin_name = 1), tensor = 8
// (dtype = 1: 7 is DT_STRING; tensor_shape = 2: dim = 2: size = 1; string_val = 8).
static int run_text(DtEvents *v, const DtRun *r, DtError *e) {
  char text[2048];
  describe(r, text, sizeof text);
  begin_event(v, r->step);
  size_t summary = begin(v, 5), value = begin(v, 1);
  put_text(v, 1, "run");
  size_t tensor = begin(v, 8);
  put_integer(v, 1, 7);
  size_t shape = begin(v, 2), dim = begin(v, 2);
  put_integer(v, 1, 1);
  end(v, dim);
  end(v, shape);
  put_text(v, 8, text);
  end(v, tensor);
  size_t metadata = begin(v, 9), plugin = begin(v, 1);
  put_text(v, 1, "text");
  end(v, plugin);
  end(v, metadata);
  end(v, value);
  end(v, summary);
  return end_event(v, e);
}

int dt_events_open(DtEvents *v, const DtRun *r, DtError *e) {
  v->fd = -1;
  if (!r->o.tensorboard) return 0;
  char name[300], host[200] = "";
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  gethostname(host, sizeof host - 1);
  snprintf(name, sizeof name, "events.out.tfevents.%lld.%s.%d.%09ld", (long long)t.tv_sec, host,
           (int)getpid(), t.tv_nsec);
  if (dt_make_folder(r->o.tensorboard, e) || dt_path(v->path, r->o.tensorboard, name, e))
    return e->status;
  v->fd = open(v->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (v->fd < 0) return dt_fail_errno(e, DT_EXIT_CREATE, "cannot create", v->path);
  return start(v, r, e) ? e->status : run_text(v, r, e);
}

int dt_events_step(DtEvents *v, const DtRun *r, const DtResult *s, DtError *e) {
  if (v->fd < 0) return 0;
  begin_event(v, r->step);
  size_t summary = begin(v, 5);
  scalar(v, "", "loss", s->loss);
  scalar(v, "", "lr", s->rate);
  scalar(v, "", "grad_norm", s->norm);
  if (r->p->loss_scaling) scalar(v, "", "loss_scale", s->loss_scale);
  scalar(v, "", "tokens_per_s", (double)(s->samples * r->train.tokens_each) / s->seconds);
  scalar(v, "", "seconds", s->seconds);
  scalar(v, "", "memory_bytes", (double)dt_memory_resident());
  for (int i = 0; i < r->p->nmetric; i++) scalar(v, "", r->p->metric[i], s->metric[i]);
  end(v, summary);
  return end_event(v, e);
}

int dt_events_eval(DtEvents *v, const DtRun *r, const DtResult *s, DtError *e) {
  if (v->fd < 0) return 0;
  begin_event(v, r->step);
  size_t summary = begin(v, 5);
  scalar(v, "val_", "loss", s->loss);
  for (int i = 0; i < r->p->nmetric; i++) scalar(v, "val_", r->p->metric[i], s->metric[i]);
  end(v, summary);
  return end_event(v, e);
}

int dt_events_close(DtEvents *v, DtError *e) {
  if (v->fd < 0) return 0;
  int bad = close(v->fd);
  v->fd = -1;
  return bad ? dt_fail_errno(e, DT_EXIT_IO, "cannot write", v->path) : 0;
}
