// --report html: the frames of functions, each buffer at its address for the time that it is alive.
#include "codegen/lower/plan.h"
#include "codegen/host/host.h"
#include "driver/html.h"
#include "driver/report_parts.h"

#include <math.h>

enum { WIDTH = 900, HEIGHT = 260, LEFT = 78, BOTTOM = 36, MOST_BLOCKS = 4000, DEEPEST = 4 };

typedef struct Picture {
  const Plan *p;
  FILE *out;
  double time, bytes; // all of both
  uint32_t blocks; // drawn
  double begin; // of the function that is drawn now
} Picture;

static double kernel_time(const Plan *p, Id fn, const Kernel *k) {
  if (k->kind != K_CALL) return kernel_cost(p, k);
  const Call *c = p->m->fn.at[fn].stmt.at[k->stmt.at[0]].call;
  double sum = 1;
  for (uint32_t i = 0; i < p->fn[c->fn].kernel.n; i++) sum += kernel_time(p, c->fn, &p->fn[c->fn].kernel.at[i]);
  return sum * (double)c->count;
}

static double fn_time(const Plan *p, Id fn) {
  double sum = 0;
  for (uint32_t i = 0; i < p->fn[fn].kernel.n; i++) sum += kernel_time(p, fn, &p->fn[fn].kernel.at[i]);
  return sum;
}

static double across(const Picture *d, double t) { return LEFT + WIDTH * t / d->time; }
static double down(const Picture *d, double bytes) { return HEIGHT * (1 - bytes / d->bytes); }

static int hue(Str name) {
  uint32_t h = 2166136261u;
  for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 16777619u;
  return (int)(h % 360);
}

static void put_size(const Picture *d, double bytes) { html_scaled(d->out, bytes, 1024, "B"); }

static void block(Picture *d, Str name, double from, double to, double at, double bytes) {
  double w = across(d, to) - across(d, from), h = down(d, at) - down(d, at + bytes);
  if (w < 0.15 || h < 0.15) return; // less than a dot
  d->blocks++;
  fprintf(d->out, "<rect class=\"block\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" ", across(d, from),
          down(d, at + bytes), w, h);
  fprintf(d->out, "fill=\"hsl(%d 45%% 58%%)\"><title>", hue(name));
  html_text(d->out, name);
  fputs(", ", d->out);
  put_size(d, bytes);
  fputs(" at ", d->out);
  html_digits(d->out, (int64_t)at);
  fputs("</title></rect>\n", d->out);
  if (w < 9.0 * (double)strlen(name) || h < 14) return;
  fprintf(d->out, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">", across(d, from) + 4, (down(d, at) + down(d, at + bytes)) / 2 + 4);
  html_text(d->out, name);
  fputs("</text>\n", d->out);
}

static void frame(Picture *d, Id fn, double from, double length, double base, int depth);

static void callee(Picture *d, Id fn, uint32_t k, double from, double to, double base, int depth) {
  const Call *c = d->p->m->fn.at[fn].stmt.at[d->p->fn[fn].kernel.at[k].stmt.at[0]].call;
  if (depth < DEEPEST && d->p->reached[c->fn])
    frame(d, c->fn, from, to - from, base + (double)d->p->fn[fn].callee_frame[k], depth + 1);
}

static void frame(Picture *d, Id fn, double from, double length, double base, int depth) {
  const FnPlan *fp = &d->p->fn[fn];
  const Fn *f = &d->p->m->fn.at[fn];
  double scale = length / fmax(fn_time(d->p, fn), 1e-9), at = from;
  double *begin = NEWN(d->p->m->arena, double, fp->kernel.n + 1);
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    begin[i] = at;
    at += scale * kernel_time(d->p, fn, &fp->kernel.at[i]);
  }
  begin[fp->kernel.n] = at;
  Life *life = plan_lives(d->p, fn);
  for (Id v = 0; v < f->value.n && d->blocks < MOST_BLOCKS; v++)
    if (fp->address[v] >= 0 && fp->layout[v].buffer == v && life[v].first != UINT32_MAX)
      block(d, value_plain_name(&f->value.at[v]), begin[life[v].first], begin[life[v].last + 1],
            base + (double)fp->address[v], (double)value_count(&f->value.at[v]) * dtype_size(f->value.at[v].type));
  for (uint32_t i = 0; i < fp->kernel.n && d->blocks < MOST_BLOCKS; i++) {
    if (fp->kernel.at[i].kind == K_CALL) callee(d, fn, i, begin[i], begin[i + 1], base, depth);
    if (fp->kernel.at[i].kind == K_INTRINSIC && begin[i + 1] > begin[i]) {
      const Call *c = f->stmt.at[fp->kernel.at[i].stmt.at[0]].call;
      block(d, d->p->m->fn.at[c->fn].name, begin[i], begin[i + 1], base + (double)fp->callee_frame[i],
            (double)call_scratch(d->p, c, c->nresult));
    }
  }
}

static void marks(const Picture *d, const Id *fn, uint32_t n) {
  static const double unit[] = {1, 1024, 1048576, 1073741824, 1099511627776};
  int u = 0;
  while (u < 4 && d->bytes > 2 * unit[u + 1]) u++;
  double step = html_tick(d->bytes / unit[u], 5) * unit[u];
  for (double k = 0; k * step <= d->bytes; k++) {
    double y = down(d, k * step);
    fprintf(d->out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT, y,
            LEFT + WIDTH, y, LEFT - 8, y + 4);
    put_size(d, k * step);
    fputs("</text>\n", d->out);
  }
  double at = 0;
  for (uint32_t i = 0; i < n; i++) {
    double next = at + fn_time(d->p, fn[i]), x = across(d, at);
    fprintf(d->out, "<line x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%d\"/>", x, x, HEIGHT + 6);
    if (across(d, next) - x > 9.0 * (double)strlen(d->p->m->fn.at[fn[i]].name)) {
      fprintf(d->out, "<text x=\"%.1f\" y=\"%d\">", x + 4, HEIGHT + 20);
      html_text(d->out, d->p->m->fn.at[fn[i]].name);
      fputs("</text>\n", d->out);
    }
    at = next;
  }
}

// Functions of a stage, which use one region in turn.
static void stage(const Plan *p, int number, const Id *fn, uint32_t n, FILE *out) {
  Picture d = {.p = p, .out = out};
  for (uint32_t i = 0; i < n; i++) {
    d.time += fn_time(p, fn[i]);
    d.bytes = fmax(d.bytes, (double)p->fn[fn[i]].frame_bytes);
  }
  if (!(d.time > 0) || !(d.bytes > 0)) return;
  if (number >= 0) fprintf(out, "<h3>Stage %d</h3>\n", number);
  fprintf(out, "<div class=\"wide\"><svg class=\"frames\" viewBox=\"0 -8 %d %d\" ", LEFT + WIDTH + 8,
          HEIGHT + BOTTOM + 8);
  fputs("role=\"img\" aria-label=\"buffers by address and time\">\n", out);
  marks(&d, fn, n);
  double at = 0;
  for (uint32_t i = 0; i < n; i++) {
    double length = fn_time(p, fn[i]);
    frame(&d, fn[i], at, length, 0, 0);
    at += length;
  }
  fputs("</svg></div>\n", out);
  if (d.blocks >= MOST_BLOCKS) fprintf(out, "<p class=\"soft\">Drawn are the first %d buffers.\n", MOST_BLOCKS);
}

void report_frames_html(const Plan *p, FILE *out) {
  const Module *m = p->m;
  fputs("<h2>Activations, by address and time</h2>\n<p>The frame of a microbatch: time runs to the right by the compiler's "
        "estimate of costs, a buffer is as high as it is large. Of a stack one layer is drawn, over the time of all.\n", out);
  if (!m->chunk.n) {
    stage(p, -1, &m->entry[ENTRY_STEP], 1, out);
    return;
  }
  for (uint32_t s = 0; s < m->stages; s++) {
    Id *fn = NEWN(m->arena, Id, m->chunk.n * NCHUNK_PART);
    uint32_t n = 0;
    for (int part = CHUNK_FORWARD; part <= CHUNK_WEIGHTS; part++)
      for (uint32_t k = s; k < m->chunk.n; k += m->stages)
        if (m->chunk.at[k].fn[part] != NONE) fn[n++] = m->chunk.at[k].fn[part];
    stage(p, (int)s, fn, n, out);
  }
}
