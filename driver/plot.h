// `dtc plot`: curves of a training program's log, drawn in the terminal.
#ifndef DTC_PLOT_H
#define DTC_PLOT_H

#include "ir/util.h"

typedef struct Point {
  double x, y;
} Point;

typedef struct Curve {
  Str name; // of the file, and of the number where it is not the loss
  VEC(Point) point;
  bool marks; // validations: single points, not a line
} Curve;

typedef struct Canvas {
  int width, height; // characters, of the field of the curves
  bool braille, color;
} Canvas;

// A log's numbers `key`, and those of validations, val_`key`: of several runs the last one's.
typedef struct LogCurves {
  Curve train, val;
  int runs;
  Str program; // of the last run's record; NULL: it has none
} LogCurves;
// False after a message of `dtc WHO`.
bool plot_read(Arena *a, const char *who, const char *path, Str key, LogCurves *to);

// Draws curves over one pair of axes: at least one has a point.
void plot_draw(const Curve *curve, uint32_t n, Canvas c, FILE *out);
int plot_command(Arena *a, int argc, char **argv);

#endif
