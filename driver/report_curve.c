// --report html: the losses of a log over its steps.
#include "driver/html.h"
#include "driver/report_parts.h"

#include <math.h>

enum { WIDTH = 900, HEIGHT = 300, LEFT = 62, BOTTOM = 34, COLUMNS = 450, TICKS = 8 };

typedef struct Axes {
  double x0, x1, y0, y1; // y0 and y1 are logarithms where `log`
  bool log;
} Axes;

static void include(Axes *a, const Curve *c) {
  for (uint32_t i = 0; i < c->point.n; i++) {
    a->x0 = fmin(a->x0, c->point.at[i].x);
    a->x1 = fmax(a->x1, c->point.at[i].x);
    a->y0 = fmin(a->y0, c->point.at[i].y);
    a->y1 = fmax(a->y1, c->point.at[i].y);
  }
}

// Logarithmic where a loss falls to a fifth or less: the end of the curve would be flat otherwise.
static Axes axes(const LogCurves *c) {
  Axes a = {INFINITY, -INFINITY, INFINITY, -INFINITY, false};
  include(&a, &c->train);
  include(&a, &c->val);
  a.log = a.y0 > 0 && a.y1 >= 5 * a.y0;
  if (a.log) {
    a.y0 = log10(a.y0);
    a.y1 = log10(a.y1);
  }
  double room = a.y1 > a.y0 ? 0.04 * (a.y1 - a.y0) : fmax(fabs(a.y0) * 0.1, 1e-3);
  a.y0 -= room;
  a.y1 += room;
  if (a.x1 == a.x0) a.x1 = a.x0 + 1;
  return a;
}

static double across(const Axes *a, double x) { return LEFT + WIDTH * (x - a->x0) / (a->x1 - a->x0); }

static double down(const Axes *a, double y) {
  return HEIGHT * (1 - ((a->log ? log10(y) : y) - a->y0) / (a->y1 - a->y0));
}

static void mark_y(const Axes *a, double y, FILE *out) {
  double at = down(a, y);
  fprintf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>", LEFT, at, LEFT + WIDTH, at);
  fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8, at + 4, y);
}

static void marks_of_losses(const Axes *a, FILE *out) {
  if (!a->log) {
    double step = html_tick(a->y1 - a->y0, 6);
    for (double k = ceil(a->y0 / step); k * step <= a->y1; k++) mark_y(a, k == 0 ? 0 : k * step, out);
    return;
  }
  static const int of[] = {1, 2, 5};
  int every = a->y1 - a->y0 > 4 ? 3 : 1; // over many powers of ten these alone
  for (int power = (int)floor(a->y0); power <= a->y1; power++)
    for (int i = 0; i < 3; i += every) {
      double y = of[i] * pow(10, power);
      if (log10(y) >= a->y0 && log10(y) <= a->y1) mark_y(a, y, out);
    }
}

static void marks_of_steps(const Axes *a, FILE *out) {
  double step = fmax(html_tick(a->x1 - a->x0, TICKS), 1);
  for (double k = ceil(a->x0 / step); k * step <= a->x1; k++) {
    double x = across(a, k * step);
    fprintf(out, "<line x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%d\"/>", x, x, HEIGHT + 4);
    fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", x, HEIGHT + 20);
    html_digits(out, (int64_t)(k * step));
    fputs("</text>\n", out);
  }
}

// Of many points each column keeps first, least, largest and last, so that no peak is lost.
static void line(const Axes *a, const Curve *c, FILE *out) {
  bool all = c->point.n <= 4 * COLUMNS;
  char letter = 'M';
  fputs("<path id=\"losses\" class=\"losses\" d=\"", out);
  for (uint32_t i = 0, next; i < c->point.n; i = next) {
    int column = (int)((across(a, c->point.at[i].x) - LEFT) * COLUMNS / WIDTH);
    uint32_t keep[4] = {i, i, i, i};
    for (next = i + 1; !all && next < c->point.n; next++) {
      if ((int)((across(a, c->point.at[next].x) - LEFT) * COLUMNS / WIDTH) != column) break;
      if (c->point.at[next].y < c->point.at[keep[1]].y) keep[1] = next;
      if (c->point.at[next].y > c->point.at[keep[2]].y) keep[2] = next;
      keep[3] = next;
    }
    if (keep[1] > keep[2]) {
      uint32_t first = keep[2];
      keep[2] = keep[1];
      keep[1] = first;
    }
    for (int k = 0; k < 4; k++) {
      if (k && keep[k] == keep[k - 1]) continue;
      Point at = c->point.at[keep[k]];
      fprintf(out, "%c%.1f %.1f", letter, across(a, at.x), down(a, at.y));
      letter = 'L';
    }
  }
  fputs("\"/>\n", out);
}

static void circles(const Axes *a, const Curve *c, FILE *out) {
  for (uint32_t i = 0; i < c->point.n; i++) {
    Point p = c->point.at[i];
    fprintf(out, "<circle class=\"val\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>", across(a, p.x), down(a, p.y),
            c->point.n > 60 ? "2.5" : "4");
    fprintf(out, "validation after step %.0f: %.6g</title></circle>\n", p.x, p.y);
  }
}

static void last(const char *what, const char *id, const char *key, const Curve *c, FILE *out) {
  if (!c->point.n) return;
  Point p = c->point.at[c->point.n - 1];
  fprintf(out, "<span><i class=\"key %s\"></i>%s, <data id=\"%s\" value=\"%.17g\">%.4f</data> after step ", key, what, id,
          p.y, p.y);
  html_digits(out, (int64_t)p.x);
  fputs("</span>", out);
}

void report_curve_html(const LogCurves *c, Str path, FILE *out) {
  fputs("<h2>Losses</h2>\n<p>", out);
  html_text(out, path);
  if (c->runs > 1) fprintf(out, ", the last of its %d runs", c->runs);
  if (!c->train.point.n && !c->val.point.n) {
    fputs(", has no loss yet.\n", out);
    return;
  }
  Axes a = axes(c);
  fprintf(out, ". The scale of losses is %s.\n<p class=\"legend\">", a.log ? "logarithmic" : "linear");
  last("loss of a step", "last_loss", "F", &c->train, out);
  last("validation", "last_val_loss", "B", &c->val, out);
  fprintf(out,
          "\n<div class=\"wide\"><svg id=\"curve\" viewBox=\"0 -8 %d %d\" role=\"img\" "
          "aria-label=\"losses over steps\">\n",
          LEFT + WIDTH + 24, HEIGHT + BOTTOM + 16);
  marks_of_losses(&a, out);
  marks_of_steps(&a, out);
  fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>\n", LEFT - 8, HEIGHT + 20);
  line(&a, &c->train, out);
  circles(&a, &c->val, out);
  fputs("</svg></div>\n", out);
}
