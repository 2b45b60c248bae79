#include "driver/html.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void html_text(FILE *out, const char *text) {
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (strchr("<>&\"'", c) || c < ' ' || c == 127)
      fprintf(out, "&#%d;", c < ' ' || c == 127 ? 0xfffd : c);
    else putc(c, out);
  }
}

void html_digits(FILE *out, int64_t n) {
  char digit[32];
  int all = snprintf(digit, sizeof digit, "%" PRId64, n);
  for (int i = 0; i < all; i++) {
    if (i && (all - i) % 3 == 0 && digit[i - 1] != '-') putc(',', out);
    putc(digit[i], out);
  }
}

void html_scaled(FILE *out, double v, double step, const char *unit) {
  static const char prefix[] = " kMGTPE";
  int p = 0;
  while (fabs(v) >= 0.9995 * step && p < 6) {
    v /= step;
    p++;
  }
  int decimals = !p || fabs(v) >= 99.95 ? 0 : fabs(v) >= 9.995 ? 1 : 2;
  bool binary = step == 1024;
  char letter = binary && prefix[p] == 'k' ? 'K' : prefix[p];
  fprintf(out, "%.*f", decimals, v);
  if (!p && !*unit) return;
  fputs("&#160;", out);
  if (p) fprintf(out, "%c%s", letter, binary ? "i" : "");
  fputs(unit, out);
}

void html_seconds(FILE *out, double s) {
  static const struct {
    double from, by;
    const char *unit;
  } form[] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {0, 1e6, "µs"}};
  int i = 0;
  while (s < 0.9995 * form[i].from) i++;
  double v = s * form[i].by;
  fprintf(out, "%.*f&#160;%s", v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2, v, form[i].unit);
}

double html_tick(double length, int most) {
  double step = pow(10, floor(log10(length / most)));
  static const int of[] = {1, 2, 5, 10};
  for (int i = 0; i < 4; i++)
    if (step * of[i] * most >= length * 0.999999) return step * of[i];
  return step * 10;
}
