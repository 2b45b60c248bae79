// Running sums along one dimension of strided arrays, in linear time:
//
//     y[.., i, ..] (= | +=) sum of x[.., j, ..] over j <= i (or j < i, j >= i, j > i)
//
// A sum is taken in the order of j, in double and rounded once for each y where x is float, so its
// bits do not depend on how the other dimensions are cut into tasks. Ints wrap.
#ifndef DTC_RUNTIME_CPU_SCAN_H
#define DTC_RUNTIME_CPU_SCAN_H

#include <stdbool.h>
#include <stdint.h>

// Strides in elements. No two points write one element of y, and y does not overlap x.
typedef struct {
  int64_t n, x, y; // of the dimension that is summed along
  int64_t count, x_col, y_col; // of the one whose points are taken together: the tightest in memory
  int nloop; // the other dimensions, outermost first; 0 to 6
  struct {
    int64_t count, x, y;
  } loop[6];
  bool reverse; // from the last to the first: j >= i
  bool exclusive; // without x[i] itself
  bool add; // to what y holds
} DtScan;

void dt_scan_f32(const DtScan *s, const float *x, float *y);
void dt_scan_f64(const DtScan *s, const double *x, double *y);
void dt_scan_i32(const DtScan *s, const int32_t *x, int32_t *y);

#endif
