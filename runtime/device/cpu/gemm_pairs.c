// A tile of a product of bf16 by instructions on pairs (gemm_pairs.h): block by block of kc terms A and B are
// packed, the micro-kernel adds up a block's terms, and the blocks' sums are added in order.
#include "runtime/device/cpu/gemm_pairs.h"

#include "runtime/base/parallel.h"
#include "runtime/base/real.h"
#include "runtime/device/cpu/scratch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define WIDE_INLINE WIDE static inline __attribute__((always_inline))

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// ---- Packing

// The transpose of a square of 16 x 16 elements of 32 bits.
WIDE_INLINE void transpose(__m512i row[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      row[i + 2 * h] = _mm512_unpacklo_epi64(t[i + h], t[i + h + 2]);
      row[i + 2 * h + 1] = _mm512_unpackhi_epi64(t[i + h], t[i + h + 2]);
    }
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    t[c] = _mm512_shuffle_i32x4(row[c], row[c + 4], 0x88);
    t[c + 4] = _mm512_shuffle_i32x4(row[c], row[c + 4], 0xdd);
    t[c + 8] = _mm512_shuffle_i32x4(row[c + 8], row[c + 12], 0x88);
    t[c + 12] = _mm512_shuffle_i32x4(row[c + 8], row[c + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    row[c] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0x88);
    row[c + 8] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0xdd);
    row[c + 4] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0x88);
    row[c + 12] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0xdd);
  }
}

// A matrix whose rows or columns are in strides; `lines` x `terms` of it exist. A line is a row of A or a column
// of B, and its terms are those of a sum.
typedef struct Lines {
  const uint16_t *at;
  int64_t line, term; // strides
  int64_t lines, terms;
} Lines;

// Row i of `to` is 32 terms of line i as they lie in memory: 16 pairs. Terms that do not exist are 0.
WIDE_INLINE void load_terms(const Lines *x, int64_t line, int64_t term, __m512i to[16]) {
  __mmask32 some = x->terms - term >= 32 ? ~0u : (1u << (x->terms - term)) - 1;
  const uint16_t *from = x->at + line * x->line + term;
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++)
    to[i] = line + i < x->lines ? _mm512_maskz_loadu_epi16(some, from + i * x->line) : _mm512_setzero_si512();
}

// Row p of `to` is terms 2p and 2p + 1 of 16 lines, a pair of each line; lines lie side by side.
WIDE_INLINE void load_lines(const Lines *x, int64_t line, int64_t term, __m512i to[16]) {
  __mmask16 some = x->lines - line >= 16 ? 0xffff : (__mmask16)((1u << (x->lines - line)) - 1);
  const uint16_t *from = x->at + line + term * x->term;
  for (int p = 0; p < 16; p++) {
    __m256i even = _mm256_setzero_si256(), odd = even;
    if (term + 2 * p < x->terms) even = _mm256_maskz_loadu_epi16(some, from + 2 * p * x->term);
    if (term + 2 * p + 1 < x->terms) odd = _mm256_maskz_loadu_epi16(some, from + (2 * p + 1) * x->term);
    to[p] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
  }
}

// As load_terms, of lines and terms in any strides.
static void gather_terms(const Lines *x, int64_t line, int64_t term, uint16_t to[16][PAIRS_STEP]) {
  for (int i = 0; i < 16; i++)
    for (int p = 0; p < PAIRS_STEP; p++)
      to[i][p] = line + i < x->lines && term + p < x->terms ? x->at[(line + i) * x->line + (term + p) * x->term] : 0;
}

// 16 lines by 32 terms: a panel's step, or (by_pairs) a vector's part of a strip, its rows `stride` apart.
WIDE_INLINE void pack_square(const Lines *x, int64_t line, int64_t term, bool by_pairs, uint16_t *to, int64_t stride) {
  __m512i row[16];
  bool turned = x->term != 1 && x->line == 1; // row p is a pair of all lines
  if (x->term == 1) {
    load_terms(x, line, term, row);
  } else if (turned) {
    load_lines(x, line, term, row);
  } else {
    uint16_t square[16][PAIRS_STEP];
    gather_terms(x, line, term, square);
    for (int i = 0; i < 16; i++) row[i] = _mm512_loadu_si512(square[i]);
  }
  if (turned != by_pairs) transpose(row);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) _mm512_storeu_si512(to + i * stride, row[i]);
}

// A's panels, in the order in which A lies in memory.
WIDE static void pack_a(const Lines *x, int64_t steps, int64_t panels, uint16_t *to) {
  bool along_terms = x->line != 1;
  int64_t outer = along_terms ? panels : steps, inner = along_terms ? steps : panels;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t p = 0; p < inner; p++) {
      int64_t i = along_terms ? o : p, s = along_terms ? p : o;
      pack_square(x, i * PAIRS_PANEL, s * PAIRS_STEP, false, to + (i * steps + s) * PAIRS_PANEL * PAIRS_STEP,
                  PAIRS_STEP);
    }
}

// B's strip from column `first` on.
WIDE static void pack_b(const Lines *x, int64_t first, int64_t steps, int64_t vectors, int64_t nr, uint16_t *to) {
  for (int64_t s = 0; s < steps; s++)
    for (int64_t j = 0; j < vectors; j++)
      pack_square(x, first + 16 * j, s * PAIRS_STEP, true, to + s * PAIRS_STEP * nr + 2 * 16 * j, 2 * nr);
}

// Fetches part `part` of `parts` of B's strip from column `first` on into the second-level cache, for packing it
// later: its lines are far apart, and packing would wait for each.
static void fetch_b(const Lines *x, int64_t first, int64_t nr, int64_t part, int64_t parts) {
  int64_t lines = min(nr, x->lines - first);
  const uint16_t *from = x->at + first * x->line;
  if (x->term == 1) {
    int64_t steps = (x->terms + PAIRS_STEP - 1) / PAIRS_STEP;
    for (int64_t i = lines * part / parts; i < lines * (part + 1) / parts; i++)
      for (int64_t s = 0; s < steps; s++) __builtin_prefetch(from + i * x->line + s * PAIRS_STEP, 0, 2);
  } else if (x->line == 1) {
    for (int64_t p = x->terms * part / parts; p < x->terms * (part + 1) / parts; p++) {
      __builtin_prefetch(from + p * x->term, 0, 2);
      __builtin_prefetch(from + p * x->term + lines - 1, 0, 2);
    }
  }
}

// ---- From the micro-kernel's sums to C

// An array of float or of bf16, in rows.
typedef struct Rows {
  void *at;
  int64_t row;
  bool wide;
} Rows;

WIDE_INLINE __m512 load(const void *p, bool wide, __mmask16 some) {
  if (wide) return _mm512_maskz_loadu_ps(some, p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, p)), 16));
}

// As dt_to_bf16 rounds.
WIDE_INLINE __m256i to_bf16(__m512 v) {
  __m512i bits = _mm512_castps_si512(v), high = _mm512_srli_epi32(bits, 16);
  __m512i last = _mm512_and_si512(high, _mm512_set1_epi32(1));
  __m512i up = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff))), 16);
  __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(up, nan, high, _mm512_set1_epi32(0x40)));
}

WIDE_INLINE void store(void *p, bool wide, __mmask16 some, __m512 v) {
  if (wide) _mm512_mask_storeu_ps(p, some, v);
  else _mm256_mask_storeu_epi16(p, some, to_bf16(v));
}

// to = factor * from + sum + bias; from and bias may be NULL. A row of `sum` has nr elements.
typedef struct Finish {
  const float *sum, *bias;
  int64_t nr, m, n;
  float factor;
  Rows from, to;
} Finish;

WIDE_INLINE void finish_as(const Finish *f, bool has_from, bool from_wide, bool to_wide) {
  const int64_t from_size = from_wide ? 4 : 2, to_size = to_wide ? 4 : 2;
  for (int64_t j = 0; j < f->n; j += 16) {
    __mmask16 some = f->n - j >= 16 ? 0xffff : (__mmask16)((1u << (f->n - j)) - 1);
    __m512 bias = f->bias ? _mm512_loadu_ps(f->bias + j) : _mm512_setzero_ps();
    const char *from = (const char *)f->from.at + j * from_size;
    char *to = (char *)f->to.at + j * to_size;
    for (int64_t i = 0; i < f->m; i++, from += f->from.row * from_size, to += f->to.row * to_size) {
      __m512 v = _mm512_loadu_ps(f->sum + i * f->nr + j);
      if (has_from) {
        __m512 before = load(from, from_wide, some);
        v = f->factor == 1 ? _mm512_add_ps(before, v) : _mm512_fmadd_ps(_mm512_set1_ps(f->factor), before, v);
      }
      if (f->bias) v = _mm512_add_ps(v, bias);
      store(to, to_wide, some, v);
    }
  }
}

WIDE static void finish(const Finish *f) {
  if (!f->from.at && f->to.wide) finish_as(f, false, true, true);
  else if (!f->from.at) finish_as(f, false, true, false);
  else if (f->from.wide && f->to.wide) finish_as(f, true, true, true);
  else if (f->from.wide) finish_as(f, true, true, false);
  else if (f->to.wide) finish_as(f, true, false, true);
  else finish_as(f, true, false, false);
}

// ---- A task

typedef struct Scratch {
  float *sum, *bias, *all; // of a strip's columns; the bias; the task's tile of C
  uint16_t *a, *b;         // panels; a strip
} Scratch;

static Scratch scratch_for(const DtPairsKernel *v, int64_t m, int64_t n, int64_t k) {
  DtPairsExtents x = dt_pairs_extents(v->panels, v->vectors, v->kc, v->m, v->n, m, n, k);
  char *p = dt_scratch((size_t)dt_pairs_bytes(&x));
  Scratch s = {.sum = (float *)(void *)p};
  s.bias = s.sum + x.m * x.nr, s.all = s.bias + x.n;
  s.a = (uint16_t *)(void *)(s.all + x.m * x.n), s.b = s.a + x.m * x.k;
  return s;
}

static Rows part(Rows x, int64_t i, int64_t j) {
  if (x.at) x.at = (char *)x.at + (i * x.row + j) * (x.wide ? 4 : 2);
  return x;
}

// A strip of C: the packed rows of A times the packed strip of B, some steps after others, so that these of B stay
// in the first-level cache for all of A's rows. Meanwhile B's strip from column `next` on is fetched.
static void strip(const DtPairsKernel *v, const Scratch *s, int64_t steps, const Finish *whole, const Lines *b,
                  int64_t next) {
  int64_t mr = 16 * v->panels, vectors = (whole->n + 15) / 16, parts = steps ? (steps + v->steps - 1) / v->steps : 1;
  for (int64_t k = 0; k < parts; k++) {
    int64_t first = steps * k / parts, some = steps * (k + 1) / parts - first;
    for (int64_t i = 0; i < whole->m; i += mr) {
      Finish f = *whole;
      f.m = min(mr, whole->m - i);
      f.sum = s->sum + i * f.nr;
      const uint16_t *at = s->a + (i * steps + first * PAIRS_PANEL) * PAIRS_STEP;
      if (k == 0) fetch_b(b, next, f.nr, i / mr, (whole->m + mr - 1) / mr);
      v->micro((f.m + 15) / 16, vectors, some, k > 0, steps * PAIRS_PANEL * PAIRS_STEP, at,
               s->b + first * PAIRS_STEP * f.nr, s->sum + i * f.nr);
      if (k + 1 < parts) continue;
      f.from = part(whole->from, i, 0), f.to = part(whole->to, i, 0);
      finish(&f);
    }
  }
}

// One block of terms: to = factor * from + A * B + bias.
static void block(const DtPairsKernel *v, const Scratch *s, const Lines *a, const Lines *b, const Finish *whole) {
  int64_t steps = (a->terms + PAIRS_STEP - 1) / PAIRS_STEP;
  pack_a(a, steps, (whole->m + 15) / 16, s->a);
  for (int64_t j = 0; j < whole->n; j += whole->nr) {
    Finish f = *whole;
    f.n = min(f.nr, whole->n - j);
    f.from = part(whole->from, 0, j), f.to = part(whole->to, 0, j);
    if (f.bias) f.bias += j;
    pack_b(b, j, steps, (f.n + 15) / 16, f.nr, s->b);
    strip(v, s, steps, &f, b, min(j + f.nr, whole->n));
  }
}

void dt_gemm_pairs_tile(const DtPairsKernel *v, const DtGemm *g, int64_t m, int64_t n, const uint16_t *a,
                        const uint16_t *b, void *c, float beta, const GemmHalfEnd *end, int64_t together,
                        DtGemmOffset *offset, const void *ctx) {
  Scratch s = scratch_for(v, m, n, g->k);
  int64_t blocks = (g->k + v->kc - 1) / v->kc, all = blocks * together, kc = dt_pairs_block(v->kc, g->k);
  Rows to = {c, g->c_row, g->result == DT_TYPE_F32}, sums = to.wide ? to : (Rows){s.all, n, true};
  Finish f = {.nr = 16 * v->vectors, .m = m, .n = n, .factor = beta};
  // A residual, a kept sum and a function have a pass over the sums in the cache.
  const bool apart = end->plus || end->kept || end->act;
  const void *bias = apart ? NULL : end->bias;
  if (bias && g->bias == DT_TYPE_F32) memcpy(s.bias, bias, (size_t)n * sizeof *s.bias);
  else if (bias) dt_widen(g->bias, s.bias, bias, n);
  f.from = beta == 0 ? (Rows){NULL, 0, true} : to;
  if (v->begin) v->begin();
  for (int64_t i = 0; i < all || i == 0; i++) {
    int64_t at_a = 0, at_b = 0, p = all ? i % blocks * kc : 0, k = all ? min(kc, g->k - p) : 0;
    bool last = i + 1 >= all;
    if (all) offset(ctx, i / blocks, &at_a, &at_b);
    Lines x = {a + at_a + p * g->a_col, g->a_row, g->a_col, m, k};
    Lines y = {b + at_b + p * g->b_row, g->b_col, g->b_row, n, k};
    f.to = last && !apart ? to : sums, f.bias = last && bias ? s.bias : NULL;
    block(v, &s, &x, &y, &f);
    f.from = sums, f.factor = 1;
  }
  if (apart) dt_gemm_half_finish(g, end, m, n, sums.at, sums.row, c);
  if (v->end) v->end();
}
#endif
