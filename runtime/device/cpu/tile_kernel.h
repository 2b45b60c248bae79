// Products of blocks that lie in the caches, on one thread and without packing: a template to be
// included after vector.h.
//
// An element of C is a chain of fused multiply-adds in order of k, then added to beta * C, as in
// gemm_kernel.h. Tiles are always whole, MR rows by whole vectors: where m and n are not, A has
// readable rows and B and C have columns up to the next multiple, and what lands there means
// nothing.
#include "runtime/device/cpu/gemm_kernel.h"

// C[MR, nv vectors] = beta * C + A * B. A's strides are any; a row of B and of C is contiguous.
#define DT_TILE(nv)                                                                                \
  DT_FN static void DT_NAME(tile##nv)(int64_t k, const DT_REAL *a, int64_t a_row, int64_t a_col,   \
                                      const DT_REAL *b, int64_t b_row, DT_REAL *c, int64_t c_row,  \
                                      DT_REAL beta) {                                              \
    V sum[MR][nv];                                                                                 \
    _Pragma("GCC unroll 8") for (int i = 0; i < MR; i++)                                           \
        _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++) sum[i][j] = (V){0};                   \
    for (; k > 0; k--, a += a_col, b += b_row) {                                                   \
      V bv[nv];                                                                                    \
      _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++) bv[j] = v_load(b + j * DT_LANES);       \
      _Pragma("GCC unroll 8") for (int i = 0; i < MR; i++) {                                       \
        V av = v_set(a[i * a_row]);                                                                \
        _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++) sum[i][j] =                           \
            v_fma(av, bv[j], sum[i][j]);                                                           \
      }                                                                                            \
    }                                                                                              \
    _Pragma("GCC unroll 8") for (int i = 0; i < MR; i++)                                           \
        _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++)                                       \
            DT_NAME(write_row)(c + i * c_row + j * DT_LANES, sum[i][j], beta);                     \
  }
DT_TILE(1)
DT_TILE(2)
#if NV == 3
DT_TILE(3)
#endif
#undef DT_TILE

// Vectors that the next tile takes of `left`: tiles of one vector alone would wait for loads, so
// four are two and two.
static inline int DT_NAME(tile_width)(int64_t left) {
#if NV == 3
  if (left == 3 || left > 4) return 3;
#endif
  return left > 1 ? 2 : 1;
}

// The tile function of a width.
DT_FN static inline void DT_NAME(tile_of)(int width, int64_t k, const DT_REAL *a, int64_t a_row,
                                          int64_t a_col, const DT_REAL *b, int64_t b_row,
                                          DT_REAL *c, int64_t c_row, DT_REAL beta) {
  if (width == 1) DT_NAME(tile1)(k, a, a_row, a_col, b, b_row, c, c_row, beta);
  else if (width == 2) DT_NAME(tile2)(k, a, a_row, a_col, b, b_row, c, c_row, beta);
#if NV == 3
  else DT_NAME(tile3)(k, a, a_row, a_col, b, b_row, c, c_row, beta);
#endif
}
