// What the parts of --report html share: text, and numbers as people read them.
#ifndef DTC_HTML_H
#define DTC_HTML_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// Text of neither dtc nor the language: escaped.
void html_text(FILE *out, const char *text);
// Thousands are set apart.
void html_digits(FILE *out, int64_t n);
// Three digits that count, with a prefix: 1.65 T. Steps of 1000, or of 1024 with "iB".
void html_scaled(FILE *out, double v, double step, const char *unit);
// In s, ms or µs.
void html_seconds(FILE *out, double s);
// The distance of marks on an axis of this length: 1, 2 or 5 times a power of ten, at most `most` + 1 marks.
double html_tick(double length, int most);

#endif
