// The shape of a batched strided matrix product in emitted code, C[m, n] = beta * C + A[m, k] * B[k, n], on any target.
#ifndef DTC_RUNTIME_PRODUCT_H
#define DTC_RUNTIME_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/program.h"

// A function of the sum: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
typedef enum { DT_ACT_NONE, DT_ACT_GELU } DtAct;

// All strides are in elements and may be anything, zero and negative included; a matrix whose row
// or column stride is 1 is fastest. C's columns are contiguous, and no two elements of C overlap.
typedef struct {
  int64_t m, n, k;
  int64_t a_row, a_col; // A[i, p] is a[i * a_row + p * a_col]
  int64_t b_row, b_col; // B[p, j] is b[p * b_row + j * b_col]
  int64_t c_row;        // C[i, j] is c[i * c_row + j]
  int nbatch;           // loops around the product, outermost first; 0 to 4
  struct {
    int64_t count;
    int64_t a, b, c; // strides of the three operands
  } batch[4];        // c == 0 with count > 1: the products are added up, in order
  DtType operand, result, bias, plus, kept; // of 16-bit operands: the types of A and B, C, bias, residual and kept sum
  bool plus_first; // added before the bias
  DtAct act; // that the library computes
} DtGemm;

// Further arguments of a product: C = act(A * B + bias[n] + plus[m, n]). Each may be NULL. `plus` is in the order of C,
// and so is `kept`, where the sum before `act` goes. On the CPU `act` takes n sums at arg[0] to elements of C at arg[1].
typedef struct {
  const void *bias, *plus;
  void *kept;
  void (*act)(void *const *arg, int64_t begin, int64_t end);
} DtEpilogue;

#endif
