// Text from a model over tokens: one token at a time from the logits of a window of the last T.
#define _GNU_SOURCE
#include "runtime/base/philox.h"
#include "runtime/control.h"
#include "runtime/train/run.h"
#include "runtime/base/signals.h"
#include "runtime/base/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  int32_t *token; // the window: [T], `used` of them
  void *window;   // the same in the device's memory
  int64_t used, length, vocab;
  bool bytes; // tokens are bytes of text
  bool prints; // the other ranks only hold a part of the parameters
  void *logits; // [T, vocab] in the device's memory
} Text;

static void append(Text *t, int32_t token) {
  if (t->used == t->length) {
    t->used--;
    for (int64_t i = 0; i < t->used; i++) t->token[i] = t->token[i + 1];
  }
  t->token[t->used++] = token;
}

static void put(const Text *t, int32_t token) {
  if (!t->prints) return;
  if (t->bytes) putchar(token);
  else printf("%d ", token);
}

// The prompt: bytes, or for a larger vocabulary numbers. Without one, a line's start or GPT-2's
// end-of-text.
static int begin(Text *t, const char *prompt, DtError *e) {
  if (!prompt || !*prompt) {
    append(t, t->bytes ? '\n' : t->vocab > 50256 ? 50256 : 0);
    return 0;
  }
  for (const char *p = prompt; t->bytes && *p; p++) {
    int32_t token = (unsigned char)*p;
    if (token >= t->vocab)
      return dt_fail(e, DT_EXIT_USAGE, "--prompt: byte %d is not in the vocabulary of %lld", token,
                     (long long)t->vocab);
    append(t, token);
    put(t, token);
  }
  for (const char *p = prompt; !t->bytes && *p;) {
    char *end;
    long v = strtol(p, &end, 10);
    if (end == p || v < 0 || v >= t->vocab)
      return dt_fail(e, DT_EXIT_USAGE,
                     "--prompt takes numbers of tokens below %lld here; found '%s'",
                     (long long)t->vocab, p);
    append(t, (int32_t)v);
    put(t, (int32_t)v);
    for (p = end; *p == ' ' || *p == ','; p++) continue;
  }
  return 0;
}

static int32_t choose_of(const DtProgram *p, const void *logits, int64_t vocab, double temperature, double u) {
  int64_t best = 0;
  for (int64_t v = 1; v < vocab; v++)
    if (dt_get(p, logits, v) > dt_get(p, logits, best)) best = v;
  if (temperature == 0) return (int32_t)best;
  double top = dt_get(p, logits, best), sum = 0, at = 0;
  for (int64_t v = 0; v < vocab; v++) sum += exp((dt_get(p, logits, v) - top) / temperature);
  for (int64_t v = 0; v < vocab; v++) {
    at += exp((dt_get(p, logits, v) - top) / temperature);
    if (u * sum < at) return (int32_t)v;
  }
  return (int32_t)best; // where logits are not numbers
}

// From the logits of the last token.
static int32_t choose(const DtProgram *p, const Text *t, double temperature, double u) {
  size_t bytes = (size_t)t->vocab * dt_type_size(p->type);
  char *row = (char *)t->logits + (size_t)(t->used - 1) * bytes;
  void *logits = dt_device_map(row, bytes, DT_READ);
  int32_t token = choose_of(p, logits, t->vocab, temperature, u);
  dt_device_unmap(row, logits, bytes, DT_READ);
  return token;
}

bool dt_sample_needs_all(const DtRun *r) {
  const int *n = dt_world.degree;
  return r->zero.cut.params || dt_tp_degree() * n[DT_AXIS_CP] * n[DT_AXIS_PP] > 1;
}

// Of a pipeline the last stage alone has logits.
static void from_last_stage(int32_t *token) {
  const DtGroup *g = dt_group(1u << DT_AXIS_PP);
  DtNote note = {"the next token", -1, NULL};
  if (g->n > 1) dt_control_broadcast(g, DT_TYPE_I32, g->n - 1, token, 1, note);
}

static int generate(DtRun *r, Text *t, DtError *e) {
  const DtProgram *p = r->p;
  DtCall call = {.data = {t->window},
                 .scalars = r->scalars,
                 .frame = r->frame,
                 .out = t->logits};
  DtScalars scalars = dt_scalars(r, (uint64_t)r->step + 1, 1, NULL);
  DtWalkJob job = {.data = t->window, .count = 1, .forward = DT_SAMPLE, .out = t->logits};
  if (begin(t, r->o.prompt, e)) return e->status;
  dt_device_put(r->scalars, &scalars, sizeof scalars);
  for (int64_t i = 0; i < r->o.sample; i++) {
    // The rest of the window holds old tokens; a causal model does not look there.
    dt_trace_begin("sample");
    dt_device_put(t->window, t->token, (size_t)t->length * sizeof *t->token);
    if (p->nchunk && dt_walk(r, DT_WALK_SAMPLE, 0, &job, e)) return e->status;
    if (!p->nchunk) dt_zero_begin(&r->zero, &call);
    if (!p->nchunk) p->sample(&call);
    dt_trace_end("sample");
    int32_t next = choose(p, t, r->o.temperature,
                          dt_uniform((uint64_t)r->o.seed, 0, dt_site("sample"), 0, (uint64_t)i));
    from_last_stage(&next);
    append(t, next);
    put(t, next);
    int failed = fflush(stdout) != 0;
    r->stop = dt_stop_wanted();
    if (dt_sample_needs_all(r)) {
      failed = dt_agree(failed);
      r->stop = dt_agree(r->stop);
    }
    if (failed) return dt_fail_errno(e, DT_EXIT_IO, "cannot write", "the text");
    if (r->stop) return dt_fail(e, DT_EXIT_STOPPED, "stopped by %s", dt_signal_name(r->stop));
  }
  if (t->prints) putchar('\n');
  return 0;
}

int dt_sample(DtRun *r, DtError *e) {
  const DtProgram *p = r->p;
  Text t = {.length = p->sample_length,
            .vocab = p->sample_vocab,
            .prints = dt_world.rank == 0,
            .bytes = p->train.data == DT_DATA_BYTES || p->sample_vocab <= 256};
  int64_t window = t.length * (int64_t)sizeof *t.token;
  int64_t logits = t.length * t.vocab * (int64_t)dt_type_size(p->type);
  t.token = calloc((size_t)t.length, sizeof *t.token);
  t.window = dt_device_alloc(window, 0, e);
  t.logits = dt_device_alloc(logits, 0, e);
  int status = t.token && t.window && t.logits ? generate(r, &t, e)
                                               : dt_fail(e, DT_EXIT_OS, "no memory for sampling");
  free(t.token);
  dt_device_free(t.window, window);
  dt_device_free(t.logits, logits);
  return status;
}
