// A schedule as text: a line a stage, time from left to right, dots where the stage waits.
#include "runtime/pipeline/pipeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char *at;
  size_t n, room;
} Text;

__attribute__((format(printf, 2, 3))) static void add(Text *t, const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (!t->at || n < 0 || (size_t)n >= sizeof line) return;
  if (t->n + (size_t)n + 1 > t->room) {
    t->room = 2 * (t->room + (size_t)n + 1);
    char *more = realloc(t->at, t->room);
    if (!more) free(t->at);
    t->at = more;
    if (!more) return;
  }
  memcpy(t->at + t->n, line, (size_t)n + 1);
  t->n += (size_t)n;
}

// "B3", or "B3b" on the second of a stage's chunks.
static int label(const DtPipe *p, const DtPipeOp *op, char *text, size_t size) {
  int local = op->chunk / p->shape.stages;
  char chunk[2] = {p->shape.chunks > 1 && local < 26 ? (char)('a' + local) : 0, 0};
  return snprintf(text, size, "%c%d%s", "FBW"[op->work], op->micro, chunk);
}

static int64_t shortest(const DtPipe *p) {
  int64_t least = p->length;
  for (int s = 0; s < p->shape.stages; s++)
    for (int64_t i = 0; i < p->stage[s].n; i++) {
      const DtPipeOp *op = &p->stage[s].op[i];
      if (op->work < DT_PIPE_COMPUTED && op->end - op->start < least) least = op->end - op->start;
    }
  return least < 1 ? 1 : least;
}

static int width(const DtPipe *p, int columns) {
  DtPipeOp widest = {.work = DT_PIPE_F, .micro = p->shape.micro - 1};
  char text[32];
  double want =
      (double)p->length / (double)shortest(p) * (label(p, &widest, text, sizeof text) + 1);
  return want < columns ? (int)(want + 0.5) : columns;
}

// First column of a time. Equal times get equal columns, so that neighbours meet.
static int column(const DtPipe *p, int64_t time, int w) {
  return (int)((double)time / (double)p->length * w + 0.5);
}

static void draw_stage(const DtPipe *p, int s, int w, char *line) {
  memset(line, '.', (size_t)w);
  line[w] = 0;
  for (int64_t i = 0; i < p->stage[s].n; i++) {
    const DtPipeOp *op = &p->stage[s].op[i];
    if (op->work >= DT_PIPE_COMPUTED) continue;
    char text[32];
    int from = column(p, op->start, w), to = column(p, op->end, w),
        n = label(p, op, text, sizeof text);
    for (int c = from; c < to; c++) line[c] = c - from < n ? text[c - from] : '-';
    if (n > to - from && to > from) line[from] = text[0];
    if (to - from > 1) line[to - 1] = ' ';
  }
}

char *dt_pipe_draw(const DtPipe *p, int columns) {
  Text t = {.at = calloc(1, 1), .room = 1};
  DtPipeBubble b = dt_pipe_bubble(p);
  add(&t, "%s: %d stages", dt_pipe_name[p->shape.kind], p->shape.stages);
  if (p->shape.chunks > 1) add(&t, " of %d chunks", p->shape.chunks);
  add(&t, ", %d microbatches: bubble %lld/%lld = %.2f%%\n", p->shape.micro, (long long)b.idle,
      (long long)b.all, 100.0 * (double)b.idle / (double)b.all);
  int w = width(p, columns < 16 ? 16 : columns);
  char *line = malloc((size_t)w + 1);
  if (!line) {
    free(t.at);
    return NULL;
  }
  for (int s = 0; s < p->shape.stages; s++) {
    draw_stage(p, s, w, line);
    add(&t, "stage %-3d |", s);
    for (int c = 0; c < w; c += 128) add(&t, "%.*s", w - c < 128 ? w - c : 128, line + c);
    add(&t, "| bubble %.2f%%, holds %d\n",
        100.0 * (double)(p->length - p->stage[s].busy) / (double)p->length, p->held[s]);
  }
  free(line);
  return t.at;
}
