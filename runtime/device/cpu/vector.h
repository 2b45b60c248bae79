// The vector layer of the CPU kernels, once for each instruction set and type.
//
// A kernel file is a template: it is included once for every (DT_LEVEL, DT_F64) pair and names what
// it defines with DT_NAME(x), e.g. gemm_task_f32_v4. Everything it defines carries DT_FN, so that
// one object file built for baseline x86-64 holds the variants for newer processors as well. Define
// DT_LEVEL (1, 3 or 4; see level.h) and DT_F64 (0 or 1), then include this file; it has no include
// guard on purpose. Of attention there is a third type: DT_HALF 1 with DT_F64 0, float on operands of
// 16 bits.
//
// Where the level has a fused multiply-add it is used wherever v_fma is written and nowhere else,
// on all levels in the same order: levels 3 and 4 round alike, level 1 rounds each product.
#undef DT_NAME
#undef DT_PASTE
#undef DT_PASTE_
#undef DT_TAG
#undef DT_FN
#undef DT_REAL
#undef DT_IN
#undef DT_INT
#undef DT_BYTES
#undef DT_LANES
#undef V
#undef VU
#undef VI
#undef v_fma
#undef v_max
#undef v_select
#undef v_bits
#undef v_set
#undef v_load
#undef v_store
#undef v_low
#undef v_high

#if defined(__x86_64__) && !defined(DT_VECTOR_INTRINSICS)
#define DT_VECTOR_INTRINSICS
#include <immintrin.h>
#endif

#if DT_LEVEL == 4
#define DT_BYTES 64
#define DT_FN \
  __attribute__((unused, target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi,bmi2")))
#elif DT_LEVEL == 3
#define DT_BYTES 32
#define DT_FN __attribute__((unused, target("avx2,fma,bmi,bmi2")))
#else
#define DT_BYTES 16
#define DT_FN __attribute__((unused))
#endif

#if DT_F64
#define DT_REAL double
#define DT_LANES (DT_BYTES / 8)
#else
#define DT_REAL float
#define DT_LANES (DT_BYTES / 4)
#endif

#if DT_HALF // what operands lie in memory as
#define DT_IN uint16_t
#else
#define DT_IN DT_REAL
#endif

#define DT_PASTE_(x, tag) x##_##tag
#define DT_PASTE(x, tag) DT_PASTE_(x, tag)
#define DT_NAME(x) DT_PASTE(x, DT_TAG)
#if DT_HALF && DT_LEVEL == 4
#define DT_TAG half_v4
#elif DT_HALF && DT_LEVEL == 3
#define DT_TAG half_v3
#elif DT_HALF
#define DT_TAG half_v1
#elif DT_LEVEL == 4 && DT_F64
#define DT_TAG f64_v4
#elif DT_LEVEL == 4
#define DT_TAG f32_v4
#elif DT_LEVEL == 3 && DT_F64
#define DT_TAG f64_v3
#elif DT_LEVEL == 3
#define DT_TAG f32_v3
#elif DT_F64
#define DT_TAG f64_v1
#else
#define DT_TAG f32_v1
#endif

// V: a vector; VU: the same, at any address; VI: as many integers of the same width (what ==
// gives).
#define V DT_NAME(Vector)
#define VU DT_NAME(VectorUnaligned)
#define VI DT_NAME(VectorInt)
typedef DT_REAL V __attribute__((vector_size(DT_BYTES)));
typedef DT_REAL VU __attribute__((vector_size(DT_BYTES), aligned(sizeof(DT_REAL)), may_alias));
#if DT_F64
#define DT_INT int64_t
typedef int64_t VI __attribute__((vector_size(DT_BYTES)));
#else
#define DT_INT int32_t
typedef int32_t VI __attribute__((vector_size(DT_BYTES)));
#endif

#define v_load(p) ((V)(*(const VU *)(p)))
#define v_store(p, v) (*(VU *)(p) = (VU)(v))
// x - 0 is x for every x, -0 too; x + 0 is not, and would cost an addition.
#define v_set(x) ((DT_REAL)(x) - (V){0})

// v_select(mask, a, b): a where the mask's bits are set. v_max(a, b): b where either is no number.
#define v_select(mask, a, b) ((V)(((mask) & (VI)(a)) | (~(mask) & (VI)(b))))
#define v_bits(x) ((DT_INT)(x) - (VI){0})

// v_low(a, b) = a0 b0 a1 b1 .., v_high: the same of the upper halves. log2(n) rounds of them
// transpose n vectors.
#if DT_LEVEL == 4 && DT_F64
#define v_fma(a, b, c) ((V)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define v_max(a, b) ((V)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#elif DT_LEVEL == 4
#define v_fma(a, b, c) ((V)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define v_max(a, b) ((V)_mm512_max_ps((__m512)(a), (__m512)(b)))
#elif DT_LEVEL == 3 && DT_F64
#define v_fma(a, b, c) ((V)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define v_max(a, b) ((V)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#elif DT_LEVEL == 3
#define v_fma(a, b, c) ((V)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define v_max(a, b) ((V)_mm256_max_ps((__m256)(a), (__m256)(b)))
#else
#define v_fma(a, b, c) ((a) * (b) + (c))
#define v_max(a, b) v_select((a) > (b), a, b)
#endif

#if DT_LEVEL == 4 && !DT_F64
#define v_low(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define v_high(a, b) \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif DT_LEVEL == 4 || (DT_LEVEL == 3 && !DT_F64)
#define v_low(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define v_high(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif DT_LEVEL == 3 || !DT_F64
#define v_low(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define v_high(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#else
#define v_low(a, b) __builtin_shufflevector(a, b, 0, 2)
#define v_high(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif
