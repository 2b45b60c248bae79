// A tile of a matrix product on one thread: a template, see vector.h for how it is instantiated.
//
// The scheme is that of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication,
// 2008): blocks of A and B are packed into strips that the micro-kernel reads in order; the
// micro-kernel holds an MR x NR tile of C in registers. An element of C is, for each block of kc, a
// chain of fused multiply-adds in order of k that starts at 0 and is added to C; that is all its
// value depends on. In particular it does not depend on where the tiles are cut, so tiles may
// follow the number of threads.
#ifndef DTC_GEMM_FETCH
#define DTC_GEMM_FETCH
// The elements that the next block is packed from: fetched into the second-level cache while this block is
// computed, a few lines at a time. Packing reads each element once, far apart, and would wait for
// memory otherwise.
typedef struct {
  const char *row;      // the row being fetched
  int64_t at, bytes;    // how far into it; its length
  int64_t stride, rows; // bytes from row to row; rows left
  int64_t lines;        // to fetch at a time
} GemmFetch;

static inline __attribute__((always_inline)) void gemm_fetch(GemmFetch *f) {
  for (int64_t i = 0; i < f->lines && f->rows > 0; i++) {
    __builtin_prefetch(f->row + f->at, 0, 2);
    f->at += 64;
    if (f->at < f->bytes) continue;
    f->at = 0;
    f->row += f->stride;
    f->rows--;
  }
}
#endif

#undef MR
#undef NV
#undef NR
#undef StripB
#undef BlockA
#undef BlockB
#if DT_LEVEL == 4
#define MR 8 // 24 of 32 registers hold C, 3 a row of B, the rest broadcast A
#define NV 3
#elif DT_LEVEL == 3
#define MR 4 // 12 of 16
#define NV 3
#else
#define MR 4 // 8 of 16: a product needs one more register before it is added
#define NV 2
#endif
#define NR (NV * DT_LANES)

// Writes the transpose of MR vectors: to[p * MR + i] = row[i][p].
DT_FN static inline void DT_NAME(transpose_mr)(V row[MR], DT_REAL *to) {
  V next[MR];
  for (int round = 1; round < MR; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < MR / 2; i++) {
      next[2 * i] = v_low(row[i], row[i + MR / 2]);
      next[2 * i + 1] = v_high(row[i], row[i + MR / 2]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) row[i] = next[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; i++) v_store(to + i * DT_LANES, row[i]);
}

// Writes the transpose of a square of vectors: row p of it goes to to[p * stride ..].
#if DT_LEVEL == 4 && !DT_F64
// Within quarters of 128 bits first, then whole quarters: faster than permutations of all lanes.
DT_FN static inline void DT_NAME(transpose_lanes)(V row[16], DT_REAL *to, int64_t stride) {
  V t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = (V)_mm512_unpacklo_ps((__m512)row[i], (__m512)row[i + 1]);
    t[i + 1] = (V)_mm512_unpackhi_ps((__m512)row[i], (__m512)row[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 4) // row[i + c]: column c, 4 + c, 8 + c, 12 + c of rows i .. i + 3
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      row[i + 2 * h] = (V)_mm512_unpacklo_pd((__m512d)t[i + h], (__m512d)t[i + h + 2]);
      row[i + 2 * h + 1] = (V)_mm512_unpackhi_pd((__m512d)t[i + h], (__m512d)t[i + h + 2]);
    }
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    __m512 low = _mm512_shuffle_f32x4((__m512)row[c], (__m512)row[c + 4], 0x88);
    __m512 high = _mm512_shuffle_f32x4((__m512)row[c + 8], (__m512)row[c + 12], 0x88);
    v_store(to + c * stride, (V)_mm512_shuffle_f32x4(low, high, 0x88));
    v_store(to + (c + 8) * stride, (V)_mm512_shuffle_f32x4(low, high, 0xdd));
    low = _mm512_shuffle_f32x4((__m512)row[c], (__m512)row[c + 4], 0xdd);
    high = _mm512_shuffle_f32x4((__m512)row[c + 8], (__m512)row[c + 12], 0xdd);
    v_store(to + (c + 4) * stride, (V)_mm512_shuffle_f32x4(low, high, 0x88));
    v_store(to + (c + 12) * stride, (V)_mm512_shuffle_f32x4(low, high, 0xdd));
  }
}
#else
DT_FN static inline void DT_NAME(transpose_lanes)(V row[DT_LANES], DT_REAL *to, int64_t stride) {
  V next[DT_LANES];
  for (int round = 1; round < DT_LANES; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < DT_LANES / 2; i++) {
      next[2 * i] = v_low(row[i], row[i + DT_LANES / 2]);
      next[2 * i + 1] = v_high(row[i], row[i + DT_LANES / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < DT_LANES; i++) row[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < DT_LANES; i++) v_store(to + i * stride, row[i]);
}
#endif

// to[0 .. MR) = from[0 .. MR); MR may be less than a vector.
DT_FN static inline void DT_NAME(copy_mr)(DT_REAL *to, const DT_REAL *from) {
  __builtin_memcpy(to, from, MR * sizeof(DT_REAL));
}

// Packs A[m, k] into strips of MR rows: to[strip][p][i]; rows past m are 0. Where rows are
// contiguous (col 1) a strip is transposed by squares and the next strip is fetched meanwhile;
// where columns are (row 1), a few strips are copied at once, so that whole lines of A are read.
DT_FN static void DT_NAME(pack_a)(const DT_REAL *a, int64_t row, int64_t col, int64_t m, int64_t k,
                                  DT_REAL *to) {
  enum { STRIPS = 4 };
  for (; row == 1 && m >= STRIPS * MR; m -= STRIPS * MR, a += STRIPS * MR, to += STRIPS * MR * k)
    for (int64_t p = 0; p < k; p++) {
      const DT_REAL *from = a + p * col;
      for (int i = 0; i < STRIPS * MR; i += 64 / (int)sizeof(DT_REAL))
        __builtin_prefetch(from + 8 * col + i);
#pragma GCC unroll 4
      for (int s = 0; s < STRIPS; s++) DT_NAME(copy_mr)(to + (s * k + p) * MR, from + s * MR);
    }
  for (; m > 0; m -= MR, a += MR * row, to += MR * k) {
    int64_t rows = m < MR ? m : MR, p = 0;
    if (rows == MR && col == 1)
      for (; p + DT_LANES <= k; p += DT_LANES) {
        V v[MR];
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
          v[i] = v_load(a + i * row + p);
        }
        DT_NAME(transpose_mr)(v, to + p * MR);
      }
    else if (rows == MR && row == 1)
      for (; p < k; p++) DT_NAME(copy_mr)(to + p * MR, a + p * col);
    for (; p < k; p++)
      for (int64_t i = 0; i < MR; i++) to[p * MR + i] = i < rows ? a[i * row + p * col] : 0;
  }
}

// Packs one vector's width of B's columns, cols of which exist: to[p * NR ..]; the others are 0.
DT_FN static void DT_NAME(pack_lanes)(const DT_REAL *b, int64_t row, int64_t col, int64_t k,
                                      int64_t cols, DT_REAL *to) {
  int64_t p = 0;
  if (cols >= DT_LANES && row == 1)
    for (; p + DT_LANES <= k; p += DT_LANES) {
      V v[DT_LANES];
#pragma GCC unroll 16
      for (int i = 0; i < DT_LANES; i++) v[i] = v_load(b + i * col + p);
      DT_NAME(transpose_lanes)(v, to + p * NR, NR);
    }
  else if (cols >= DT_LANES && col == 1)
    for (; p < k; p++) v_store(to + p * NR, v_load(b + p * row));
  for (; p < k; p++)
    for (int64_t j = 0; j < DT_LANES; j++) to[p * NR + j] = j < cols ? b[p * row + j * col] : 0;
}

// Packs B[k, n] into strips of NR columns: to[strip][p][j]; columns past n are 0.
DT_FN static void DT_NAME(pack_b)(const DT_REAL *b, int64_t row, int64_t col, int64_t k, int64_t n,
                                  DT_REAL *to) {
  for (; n > 0; n -= NR, b += NR * col, to += NR * k) {
    if (n >= NR && col == 1) { // whole strips at once: their lines are next to each other
      for (int64_t p = 0; p < k; p++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
          v_store(to + p * NR + j * DT_LANES, v_load(b + p * row + j * DT_LANES));
      continue;
    }
    for (int j = 0; j < NV; j++)
      DT_NAME(pack_lanes)(b + j * DT_LANES * col, row, col, k, n - j * DT_LANES, to + j * DT_LANES);
  }
}

// C[i, j] of a full tile from the sums; beta 0 does not read C.
DT_FN static inline void DT_NAME(write_row)(DT_REAL *c, V sum, DT_REAL beta) {
  if (beta == 0) v_store(c, sum);
  else if (beta == 1) v_store(c, v_load(c) + sum);
  else v_store(c, v_fma(v_set(beta), v_load(c), sum));
}

// Where a strip of B comes from. Packed: at `packed`. Else `from` is B itself, its rows contiguous
// and `row` apart, and the micro-kernel packs it on its way: the stores cost it nothing.
typedef struct {
  const DT_REAL *from;
  int64_t row;
  DT_REAL *packed;
} DT_NAME(StripB);
#define StripB DT_NAME(StripB)

// The micro-kernel: C[MR, nv vectors] = beta * C + MR rows of A times a strip of B. A's strides are
// any: packed, or as it lies. `to` of row stride `row` is C, or a buffer where the tile hangs over
// C's edge. `ahead` is the tile of C that comes next: a row of it is asked for at a time, since C
// is not in the caches and a burst of misses would hold up A and B. B as it lies is asked for some
// rows ahead: its lines are far apart.
#define DT_MICRO(name, nv, packing)                                                                \
  DT_FN static void DT_NAME(name##nv)(int64_t k, const DT_REAL *a, int64_t a_row, int64_t a_col,   \
                                      const StripB *strip, DT_REAL *to, int64_t row,               \
                                      DT_REAL beta, const DT_REAL *ahead, GemmFetch *fetch) {      \
    const DT_REAL *b = packing ? strip->from : strip->packed, *a3 = a + 3 * a_row,                 \
                  *a6 = a + 6 * a_row;                                                             \
    DT_REAL *packed = strip->packed;                                                               \
    const int64_t b_row = packing ? strip->row : NR;                                               \
    V sum[MR][nv];                                                                                 \
    _Pragma("GCC unroll 8") for (int i = 0; i < MR; i++)                                           \
        _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++) sum[i][j] = (V){0};                   \
    for (int64_t p = 0, part = k / MR + 1; p < k; ahead += row) {                                  \
      _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++)                                         \
          __builtin_prefetch(ahead + j * DT_LANES);                                                \
      __builtin_prefetch(ahead + (nv) * DT_LANES - 1);                                             \
      gemm_fetch(&fetch[0]);                                                                       \
      gemm_fetch(&fetch[1]);                                                                       \
      for (int64_t end = p + part < k ? p + part : k; p < end;                                     \
           p++, a += a_col, a3 += a_col, a6 += a_col, b += b_row, packed += NR) {                  \
        V bv[nv];                                                                                  \
        _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++) {                                     \
          bv[j] = v_load(b + j * DT_LANES);                                                        \
          if (packing) v_store(packed + j * DT_LANES, bv[j]);                                      \
          if (packing) __builtin_prefetch(b + 24 * b_row + j * DT_LANES);                          \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int i = 0; i < MR; i++) {                                     \
          V av = v_set(i < 3 ? a[i * a_row] : i < 6 ? a3[(i - 3) * a_row] : a6[(i - 6) * a_row]);  \
          _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++) sum[i][j] =                         \
              v_fma(av, bv[j], sum[i][j]);                                                         \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
    _Pragma("GCC unroll 8") for (int i = 0; i < MR; i++)                                           \
        _Pragma("GCC unroll 4") for (int j = 0; j < nv; j++)                                       \
            DT_NAME(write_row)(to + i * row + j * DT_LANES, sum[i][j], beta);                      \
  }
DT_MICRO(micro, 1, false)
DT_MICRO(micro, 2, false)
#if NV == 3
DT_MICRO(micro, 3, false)
DT_MICRO(pack_micro, 3, true)
#else
DT_MICRO(pack_micro, 2, true)
#endif
#undef DT_MICRO

// strip->from: the strip is whole.
DT_FN static void DT_NAME(micro)(int vectors, int64_t k, const DT_REAL *a, int64_t a_row,
                                 int64_t a_col, const StripB *strip, DT_REAL *to, int64_t row,
                                 DT_REAL beta, const DT_REAL *ahead, GemmFetch *fetch) {
#if NV == 3
  if (strip->from)
    DT_NAME(pack_micro3)(k, a, a_row, a_col, strip, to, row, beta, ahead, fetch);
  else if (vectors == 3)
    DT_NAME(micro3)(k, a, a_row, a_col, strip, to, row, beta, ahead, fetch);
#else
  if (strip->from)
    DT_NAME(pack_micro2)(k, a, a_row, a_col, strip, to, row, beta, ahead, fetch);
#endif
  else if (vectors == 2)
    DT_NAME(micro2)(k, a, a_row, a_col, strip, to, row, beta, ahead, fetch);
  else
    DT_NAME(micro1)(k, a, a_row, a_col, strip, to, row, beta, ahead, fetch);
}

// A tile of C that hangs over the edge: rows x cols of it are C's.
DT_FN static void DT_NAME(edge)(int64_t k, const DT_REAL *a, int64_t a_row, int64_t a_col,
                                const StripB *strip, DT_REAL *c, int64_t row, DT_REAL beta,
                                int64_t rows, int64_t cols, GemmFetch *fetch) {
  _Alignas(64) DT_REAL tile[MR * NR];
  DT_NAME(micro)((int)((cols + DT_LANES - 1) / DT_LANES), k, a, a_row, a_col, strip, tile, NR, 0,
                 c, fetch);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      DT_REAL sum = tile[i * NR + j], *at = &c[i * row + j];
      // One lane of write_row; the vector functions are used so that the rounding is theirs.
      if (beta == 0) *at = sum;
      else if (beta == 1) *at += sum;
      else *at = v_fma(v_set(beta), v_set(*at), v_set(sum))[0];
    }
}

// A block of A: in strips at `packed`, or (from) as it lies, rows `row` apart and contiguous. Of
// that, only the rows past the last whole strip are packed, at their place among strips.
typedef struct {
  const DT_REAL *from;
  int64_t row;
  const DT_REAL *packed;
} DT_NAME(BlockA);
#define BlockA DT_NAME(BlockA)

// A block of B in strips of b_k rows, at least as many as are summed; `from` as in StripB: the
// block's first rows of A then pack it.
#define BlockB StripB

// C[m, n] = beta * C + a block of A times a block of B.
DT_FN static void DT_NAME(block)(int64_t m, int64_t n, int64_t k, const BlockA *a, const BlockB *b,
                                 int64_t b_k, DT_REAL *c, int64_t row, DT_REAL beta,
                                 GemmFetch *fetch) {
  for (int64_t j = 0; j < n; j += NR) {
    int64_t cols = n - j < NR ? n - j : NR;
    StripB strip = {b->from ? b->from + j : NULL, b->row, b->packed + j * b_k};
    if (b->from && cols < NR) {
      DT_NAME(pack_b)(strip.from, b->row, 1, k, cols, strip.packed);
      strip.from = NULL;
    }
    for (int64_t i = 0; i < m; i += MR, strip.from = NULL) {
      int64_t rows = m - i < MR ? m - i : MR;
      bool lies = a->from && rows == MR;
      const DT_REAL *as = lies ? a->from + i * a->row : a->packed + i * k;
      int64_t a_row = lies ? a->row : 1, a_col = lies ? 1 : MR;
      if (rows == MR && cols % DT_LANES == 0)
        DT_NAME(micro)((int)(cols / DT_LANES), k, as, a_row, a_col, &strip, c + i * row + j, row,
                       beta, i + MR < m ? c + (i + MR) * row + j : c + j + cols, fetch);
      else
        DT_NAME(edge)(k, as, a_row, a_col, &strip, c + i * row + j, row, beta, rows, cols, fetch);
    }
  }
}
