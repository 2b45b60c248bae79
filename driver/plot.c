#include "driver/plot.h"

#include <math.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "driver/command.h"
#include "driver/options.h"
#include "runtime/files/json.h"

// ---- reading ----

static void add_number(Arena *a, const DtJson *j, const char *key, double step, Curve *to) {
  const DtJsonValue *v = dt_json_member(j, dt_json_root(j), key, DT_JSON_REAL);
  if (v && isfinite(v->real)) PUSH(a, to->point, ((Point){step, v->real}));
}

// Whether a record is that of a run which begins at the first step.
static bool begins(const DtJson *j, const DtJsonValue *step) {
  return step->integer == 0 && dt_json_member(j, dt_json_root(j), "run", DT_JSON_OBJECT);
}

static void add_record(Arena *a, const DtJson *j, const DtJsonValue *step, Str key, Str val, LogCurves *to) {
  const DtJsonValue *run = dt_json_member(j, dt_json_root(j), "run", DT_JSON_OBJECT);
  const DtJsonValue *program = run ? dt_json_member(j, run, "program", DT_JSON_STRING) : NULL;
  if (program) to->program = str_intern(program->string);
  if (begins(j, step)) {
    to->train.point.n = to->val.point.n = 0;
    to->runs++;
  }
  add_number(a, j, key, step->real, &to->train);
  add_number(a, j, val, step->real, &to->val);
}

bool plot_read(Arena *a, const char *who, const char *path, Str key, LogCurves *to) {
  size_t n;
  char *text = command_read(a, who, path, &n);
  if (!text) return false;
  Str val = str_printf("val_%s", key);
  int line = 0;
  for (char *p = text, *end; p < text + n; p = end + 1) {
    end = memchr(p, '\n', (size_t)(text + n - p));
    if (!end) break; // a line that is still being written
    DtJson j;
    DtError e = {0};
    line++;
    bool ok = !dt_json_parse(&j, p, (size_t)(end - p), path, &e);
    const DtJsonValue *step =
        ok ? dt_json_member(&j, dt_json_root(&j), "step", DT_JSON_INTEGER) : NULL;
    if (step) add_record(a, &j, step, key, val, to);
    dt_json_free(&j);
    if (ok) continue;
    fprintf(stderr, "dtc %s: %s:%d: this is not a record of a log (./train --log FILE writes "
                    "one)\n",
            who, path, line);
    return false;
  }
  return true;
}

// ---- drawing ----

typedef struct Field {
  Canvas c;
  double x0, x1, y0, y1;
  unsigned char *dots;  // of braille, a character each
  signed char *mark;    // index of the curve that has a point here, -1: none
  unsigned char *owner; // index of the curve that drew last
} Field;

static const char letters[] = "ox+*#%@&";

// Dots across and down: 2 and 4 a character.
static int dots_x(const Field *f) { return f->c.width * (f->c.braille ? 2 : 1); }
static int dots_y(const Field *f) { return f->c.height * (f->c.braille ? 4 : 1); }

static int to_dot(double v, double from, double to, int n) {
  double at = to > from ? (v - from) / (to - from) : 0.5;
  int d = (int)(at * (n - 1) + 0.5);
  return d < 0 ? 0 : d >= n ? n - 1 : d;
}

static void dot(Field *f, int x, int y, unsigned char owner) {
  static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  y = dots_y(f) - 1 - y;
  int at = f->c.braille ? y / 4 * f->c.width + x / 2 : y * f->c.width + x;
  f->dots[at] |= f->c.braille ? bit[y % 4][x % 2] : 1;
  f->owner[at] = owner;
}

// A column of dots holds all points that fall on it; columns are joined.
static void draw_line(Field *f, const Curve *c, unsigned char owner) {
  int last_x = -1, last_y = 0;
  for (uint32_t i = 0; i < c->point.n; i++) {
    int x = to_dot(c->point.at[i].x, f->x0, f->x1, dots_x(f));
    int y = to_dot(c->point.at[i].y, f->y0, f->y1, dots_y(f));
    int from = last_x < 0 ? x : last_x,
        steps = x - from > abs(y - last_y) ? x - from : abs(y - last_y);
    if (last_x < 0 || steps == 0) dot(f, x, y, owner);
    for (int k = 1; last_x >= 0 && k <= steps; k++)
      dot(f, from + (x - from) * k / steps, last_y + (y - last_y) * k / steps, owner);
    last_x = x;
    last_y = y;
  }
}

static void draw_marks(Field *f, const Curve *c, unsigned char owner) {
  for (uint32_t i = 0; i < c->point.n; i++) {
    int x = to_dot(c->point.at[i].x, f->x0, f->x1, f->c.width);
    int y = f->c.height - 1 - to_dot(c->point.at[i].y, f->y0, f->y1, f->c.height);
    f->mark[y * f->c.width + x] = (signed char)owner;
  }
}

static void bounds(Field *f, const Curve *curve, uint32_t n) {
  f->x0 = f->y0 = INFINITY;
  f->x1 = f->y1 = -INFINITY;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < curve[i].point.n; k++) {
      Point p = curve[i].point.at[k];
      f->x0 = fmin(f->x0, p.x);
      f->x1 = fmax(f->x1, p.x);
      f->y0 = fmin(f->y0, p.y);
      f->y1 = fmax(f->y1, p.y);
    }
}

static void color(const Field *f, int which, FILE *out) {
  static const int code[] = {34, 33, 32, 35, 36, 31};
  if (f->c.color) fprintf(out, which < 0 ? "\033[0m" : "\033[%dm", code[which < 0 ? 0 : which % 6]);
}

static void print_cell(const Field *f, int at, FILE *out) {
  int mark = f->mark[at], drawn = f->dots[at];
  if (mark < 0 && !drawn) {
    putc(' ', out);
    return;
  }
  color(f, mark >= 0 ? mark : f->owner[at], out);
  if (mark >= 0) putc(letters[mark % 8], out);
  else if (!f->c.braille) putc(f->owner[at] ? letters[f->owner[at] % 8] : '.', out);
  else
    fprintf(out, "%c%c%c", 0xe2, 0xa0 | drawn >> 6, 0x80 | (drawn & 0x3f)); // U+2800 and the dots
  color(f, -1, out);
}

static void print_axes(const Field *f, FILE *out) {
  const char *bar = f->c.braille ? "│" : "|", *corner = f->c.braille ? "└" : "+";
  for (int y = 0; y < f->c.height; y++) {
    bool labelled = y % 4 == 0 || y == f->c.height - 1;
    double v = f->c.height > 1 ? f->y1 - (f->y1 - f->y0) * y / (f->c.height - 1) : f->y1;
    if (labelled) fprintf(out, "%10.4g %s", v, bar);
    else fprintf(out, "%10s %s", "", bar);
    for (int x = 0; x < f->c.width; x++) print_cell(f, y * f->c.width + x, out);
    putc('\n', out);
  }
  fprintf(out, "%10s %s", "", corner);
  for (int x = 0; x < f->c.width; x++) fputs(f->c.braille ? "─" : "-", out);
  char left[32], right[32];
  snprintf(left, sizeof left, "step %.0f", f->x0);
  snprintf(right, sizeof right, "%.0f", f->x1);
  fprintf(out, "\n%12s%s%*s\n", "", left, f->c.width - (int)strlen(left), right);
}

void plot_draw(const Curve *curve, uint32_t n, Canvas c, FILE *out) {
  size_t cells = (size_t)c.width * (size_t)c.height;
  Field f = {.c = c, .dots = calloc(cells, 1), .mark = malloc(cells), .owner = calloc(cells, 1)};
  if (!f.dots || !f.mark || !f.owner) BUG("no memory for a plot");
  memset(f.mark, -1, cells);
  bounds(&f, curve, n);
  for (uint32_t i = 0; i < n; i++)
    if (!curve[i].marks) draw_line(&f, &curve[i], (unsigned char)i);
  for (uint32_t i = 0; i < n; i++)
    if (curve[i].marks) draw_marks(&f, &curve[i], (unsigned char)i);
  print_axes(&f, out);
  for (uint32_t i = 0; i < n; i++) {
    if (!curve[i].point.n) continue;
    const char *sign = c.braille ? "━" : i ? (char[]){letters[i % 8], 0} : ".";
    color(&f, (int)i, out);
    fprintf(out, "%12s%s", "", curve[i].marks ? (char[]){letters[i % 8], 0} : sign);
    color(&f, -1, out);
    fprintf(out, " %s, last %.4g\n", curve[i].name, curve[i].point.at[curve[i].point.n - 1].y);
  }
  free(f.dots);
  free(f.mark);
  free(f.owner);
}

// ---- the command ----

enum { MARGIN = 12, MOST_LOGS = 6 };

static Canvas canvas(int width, int height) {
  struct winsize w = {0};
  bool terminal = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col;
  const char *locale = getenv("LC_ALL");
  if (!locale || !*locale) locale = getenv("LC_CTYPE");
  if (!locale || !*locale) locale = getenv("LANG");
  bool utf8 = locale && (strstr(locale, "UTF-8") || strstr(locale, "utf8"));
  if (!width) width = terminal ? w.ws_col : 80;
  if (!height) height = terminal && w.ws_row < 24 ? w.ws_row : 22;
  width = width < 40 ? 40 : width > 400 ? 400 : width;
  height = height < 10 ? 10 : height > 200 ? 200 : height;
  return (Canvas){width - MARGIN, height - 5, utf8, isatty(STDOUT_FILENO) && !getenv("NO_COLOR")};
}

static int plot(Arena *a, char **log, int n, Str key, Canvas c) {
  Curve curve[2 * MOST_LOGS] = {0};
  int have = 0;
  for (int i = 0; i < n; i++) {
    LogCurves both = {.val.marks = true};
    if (!plot_read(a, "plot", log[i], key, &both)) return EXIT_MODEL;
    Str run = both.runs > 1 ? str_printf(" of the last of %d runs", both.runs) : "";
    Str of = n > 1 ? str_printf(" of %s", log[i]) : "";
    both.train.name = str_printf("%s%s%s", key, run, of);
    both.val.name = str_printf("val_%s%s%s", key, run, of);
    curve[2 * i] = both.train;
    curve[2 * i + 1] = both.val;
    have += both.train.point.n || both.val.point.n;
  }
  if (have) plot_draw(curve, 2 * (uint32_t)n, c, stdout);
  else fprintf(stderr, "dtc plot: no record has a number '%s'\n", key);
  return have ? 0 : EXIT_MODEL;
}

static bool size(const char *text, int *to) {
  *to = strspn(text, "0123456789") == strlen(text) && strlen(text) < 5 ? atoi(text) : 0;
  return *to > 0;
}

int plot_command(Arena *a, int argc, char **argv) {
  char *log[MOST_LOGS];
  int n = 0, width = 0, height = 0;
  Str key = "loss";
  for (int i = 1; i < argc; i++) {
    const char *v = i + 1 < argc ? argv[i + 1] : "";
    bool known = true;
    if (!strcmp(argv[i], "--help"))
      return command_help(
          "plot",
          "Draws the loss over the steps from logs of training programs (./train --log\n"
          "FILE): a line for steps, single points for validations; of a log with several\n"
          "runs the last one.\n\n"
          "  --key NAME              another number of the records: lr, grad_norm, ...\n"
          "  --width N, --height N   characters (default: the terminal's)");
    if (!strcmp(argv[i], "--key") && *v) key = v;
    else if (!strcmp(argv[i], "--width")) known = size(v, &width);
    else if (!strcmp(argv[i], "--height")) known = size(v, &height);
    else if (argv[i][0] == '-' && argv[i][1]) known = false;
    else {
      if (n == MOST_LOGS)
        return command_usage("plot", "at most %d logs are drawn together", MOST_LOGS);
      log[n++] = argv[i];
      continue;
    }
    if (!known) return command_usage("plot", "cannot take '%s%s%s'", argv[i], *v ? " " : "", v);
    i++;
  }
  if (!n) return command_usage("plot", "no log given");
  return plot(a, log, n, key, canvas(width, height));
}
