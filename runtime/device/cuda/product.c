// Matrix products by cuBLASLt. A row-major C of m by n is to the library a column-major one of n by m, which is B^T A^T:
// its operands are ours in the other order.
#include "runtime/device/cuda/gpu.h"

#include "runtime/base/real.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct Matrix {
  cublasLtMatrixLayout_t layout;
  int transposed;
} Matrix;

enum { A, B, C, PLUS, BIAS, KEPT, OPERANDS };

// A product as the library knows it, found once for each shape and alignment of its operands.
typedef struct Product {
  struct Product *next;
  const DtGemm *g;
  unsigned alignment[OPERANDS]; // bytes
  uint32_t epilogue;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algo;
  int strided; // the loop that the library runs, or -1
} Product;

static Product *product[1 << 10];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const DtBlas *blas(void) { return dt_gpu.blas; }

static void check(cublasStatus_t s, const char *name, const char *doing) {
  DtError e = {0};
  if (!s) return;
  dt_fail(&e, DT_EXIT_OS, "cuBLASLt %zu cannot %s %s: status %d", blas()->cublasLtGetVersion(), doing, name, (int)s);
  dt_gpu_end(&e);
}

static cudaDataType_t type_of(DtType t) {
  switch (t) {
  case DT_TYPE_F64: return CUDA_R_64F;
  case DT_TYPE_BF16: return CUDA_R_16BF;
  case DT_TYPE_F16: return CUDA_R_16F;
  default: return CUDA_R_32F;
  }
}

// Bytes, a power of two up to 256, that the address is a multiple of.
static unsigned aligned(const void *p) {
  uintptr_t at = (uintptr_t)p, low = at & (~at + 1);
  return !at || low > 256 ? 256 : (unsigned)low;
}

// Bytes up to which every batch of an operand keeps its alignment.
static unsigned alignment_of(const DtGemm *g, const void *p, char operand, size_t size) {
  unsigned least = aligned(p);
  for (int i = 0; i < g->nbatch; i++) {
    int64_t stride = operand == 'a' ? g->batch[i].a : operand == 'b' ? g->batch[i].b : g->batch[i].c;
    unsigned here = stride ? aligned((const void *)(uintptr_t)((size_t)llabs(stride) * size)) : 256;
    if (here < least) least = here;
  }
  return least;
}

static void set(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute, const void *v, size_t n, const char *name) {
  check(blas()->cublasLtMatrixLayoutSetAttribute(l, attribute, v, n), name, "describe");
}

// Rows that lie `row` apart with columns next to each other, or the other way round.
static Matrix matrix(const char *name, cudaDataType_t type, int64_t rows, int64_t columns, int64_t row, int64_t column,
                     int count, int64_t stride) {
  bool by_rows = column == 1 && (row >= columns || rows == 1);
  int64_t inner = by_rows ? columns : rows, outer = by_rows ? rows : columns, pitch = by_rows ? row : column;
  Matrix m = {.transposed = !by_rows};
  if (pitch < inner) pitch = inner;
  check(blas()->cublasLtMatrixLayoutCreate(&m.layout, type, (uint64_t)inner, (uint64_t)outer, pitch), name, "describe");
  if (count > 1) {
    int32_t n = count;
    set(m.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n, name);
    set(m.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride, name);
  }
  return m;
}

// The largest loop whose results are apart.
static int strided_loop(const DtGemm *g) {
  int best = -1;
  for (int i = 0; i < g->nbatch; i++)
    if (g->batch[i].c && g->batch[i].count > 1 && g->batch[i].count < INT32_MAX &&
        (best < 0 || g->batch[i].count > g->batch[best].count))
      best = i;
  return best;
}

static void attribute(const Product *p, cublasLtMatmulDescAttributes_t which, const void *v, size_t n, const char *name) {
  check(blas()->cublasLtMatmulDescSetAttribute(p->product, which, v, n), name, "describe");
}

enum { AUX = CUBLASLT_EPILOGUE_GELU_AUX & ~CUBLASLT_EPILOGUE_GELU };

static uint32_t epilogue_of(const DtGemm *g, const DtEpilogue *e) {
  uint32_t is = (e->bias ? CUBLASLT_EPILOGUE_BIAS : 0) | (e->kept ? AUX : 0);
  if (g->act == DT_ACT_GELU) is |= CUBLASLT_EPILOGUE_GELU;
  return is ? is : CUBLASLT_EPILOGUE_DEFAULT;
}

static void describe(Product *p, const char *name, DtType operand, DtType result) {
  const DtGemm *g = p->g;
  int64_t stride[3] = {0};
  int count = 1;
  p->strided = strided_loop(g);
  if (p->strided >= 0) {
    count = (int)g->batch[p->strided].count;
    stride[0] = g->batch[p->strided].a, stride[1] = g->batch[p->strided].b, stride[2] = g->batch[p->strided].c;
  }
  Matrix a = matrix(name, type_of(operand), g->m, g->k, g->a_row, g->a_col, count, stride[0]);
  Matrix b = matrix(name, type_of(operand), g->k, g->n, g->b_row, g->b_col, count, stride[1]);
  Matrix c = matrix(name, type_of(result), g->m, g->n, g->c_row, 1, count, stride[2]);
  p->a = a.layout, p->b = b.layout, p->c = c.layout;
  bool f64 = operand == DT_TYPE_F64;
  check(blas()->cublasLtMatmulDescCreate(&p->product, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                         f64 ? CUDA_R_64F : CUDA_R_32F), name, "describe");
  int32_t first = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, second = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  attribute(p, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, name);
  attribute(p, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, name);
  attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue, name);
  int32_t type = type_of(result);
  if (p->epilogue & CUBLASLT_EPILOGUE_BIAS)
    attribute(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, name);
  if (p->epilogue & AUX) attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &g->n, sizeof g->n, name);
}

static void point(const Product *p, const DtEpilogue *e, const char *name) {
  if (e->bias) attribute(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &e->bias, sizeof e->bias, name);
  if (e->kept) attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &e->kept, sizeof e->kept, name);
}

// The first of those that the library suggests: the same one for the same shape, alignment, GPU and version.
static void choose(Product *p, const char *name) {
  static const cublasLtMatmulPreferenceAttributes_t least[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  uint32_t alignment[] = {p->alignment[B], p->alignment[A], p->alignment[PLUS], p->alignment[C]};
  uint64_t workspace = (uint64_t)dt_gpu.workspace_bytes;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  check(blas()->cublasLtMatmulPreferenceCreate(&preference), name, "choose an algorithm for");
  check(blas()->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                     sizeof workspace), name, "choose an algorithm for");
  for (int i = 0; i < 4; i++)
    check(blas()->cublasLtMatmulPreferenceSetAttribute(preference, least[i], &alignment[i], sizeof alignment[i]), name,
          "choose an algorithm for");
  check(blas()->cublasLtMatmulAlgoGetHeuristic(dt_gpu.products, p->product, p->b, p->a, p->c, p->c, preference, 1, &found, &count),
        name, "choose an algorithm for");
  if (!count) check(15, name, "find an algorithm for"); // CUBLAS_STATUS_NOT_SUPPORTED
  p->algo = found.algo;
}

static Product *find(const DtGemm *g, const char *name, DtType operand, DtType result, const unsigned *alignment,
                     const DtEpilogue *e) {
  Product **list = &product[((uintptr_t)g >> 4) % (sizeof product / sizeof *product)], *p = *list;
  while (p && (p->g != g || memcmp(p->alignment, alignment, sizeof p->alignment))) p = p->next;
  if (p) return p;
  p = calloc(1, sizeof *p);
  if (!p) check(3, name, "get memory for"); // CUBLAS_STATUS_ALLOC_FAILED
  p->g = g;
  p->epilogue = epilogue_of(g, e);
  memcpy(p->alignment, alignment, sizeof p->alignment);
  describe(p, name, operand, result);
  point(p, e, name);
  choose(p, name);
  p->next = *list;
  *list = p;
  return p;
}

typedef struct Operands {
  const char *a, *b, *plus; // plus: what beta scales; c itself unless there is a residual
  char *c;
  size_t size, result_size; // of an element
} Operands;

static void multiply(const Product *p, const char *name, const Operands *x, bool f64, double beta) {
  float one = 1, by = (float)beta;
  double one64 = 1;
  const void *alpha = f64 ? (void *)&one64 : (void *)&one, *scale = f64 ? (void *)&beta : (void *)&by;
  check(blas()->cublasLtMatmul(dt_gpu.products, p->product, alpha, x->b, p->b, x->a, p->a, scale, x->plus, p->c, x->c, p->c,
                               &p->algo, dt_gpu.workspace, (size_t)dt_gpu.workspace_bytes, dt_gpu.stream),
        name, "compute");
}

// The loops that the library does not run. Of products that are added up the later ones add to the first.
static void loops(const Product *p, const char *name, Operands x, int loop, bool f64, double beta) {
  const DtGemm *g = p->g;
  if (loop == g->nbatch) {
    multiply(p, name, &x, f64, beta);
    return;
  }
  int64_t count = loop == p->strided ? 1 : g->batch[loop].count;
  for (int64_t i = 0; i < count; i++) {
    loops(p, name, x, loop + 1, f64, i && !g->batch[loop].c ? 1 : beta);
    x.a += g->batch[loop].a * (int64_t)x.size;
    x.b += g->batch[loop].b * (int64_t)x.size;
    x.c += g->batch[loop].c * (int64_t)x.result_size;
    x.plus += g->batch[loop].c * (int64_t)x.result_size;
  }
}

void dt_cuda_product(const DtGemm *g, const char *name, DtType operand, const void *a, const void *b, void *c, double beta,
                     const DtEpilogue *e) {
  DtType result = dt_is_16_bit(operand) ? g->result : operand;
  const void *plus = e->plus ? e->plus : c;
  Operands x = {a, b, plus, c, dt_type_size(operand), dt_type_size(result)};
  unsigned alignment[OPERANDS] = {alignment_of(g, a, 'a', x.size), alignment_of(g, b, 'b', x.size),
                                  alignment_of(g, c, 'c', x.result_size), alignment_of(g, plus, 'c', x.result_size),
                                  aligned(e->bias), aligned(e->kept)};
  dt_gpu_enter();
  pthread_mutex_lock(&lock);
  Product *p = find(g, name, operand, result, alignment, e);
  point(p, e, name);
  loops(p, name, x, 0, operand == DT_TYPE_F64, e->plus ? 1 : beta);
  pthread_mutex_unlock(&lock);
}
