// A stand-in for cuBLASLt: the functions of blas.h, computed on the CPU when the stand-in of the driver runs the stream.
// Products add up in double. The sum is rounded to the type of computation, and so is each step after it: C, the bias,
// the function. A stored value is rounded once from that.
#include "runtime/device/cuda/blas.h"
#include "runtime/device/cuda/emulate_stream.h"

#include "runtime/base/real.h"

#include <math.h>
#include <stdlib.h>

typedef struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t pitch, stride;
  int32_t count;
} Layout;

typedef struct Desc {
  cublasComputeType_t compute;
  int32_t transposed[2];
  uint32_t epilogue;
  const void *bias;
  int32_t bias_type;
  void *kept;
  int64_t kept_pitch;
} Desc;

enum { INVALID_VALUE = 7, NOT_SUPPORTED = 15 };

static cublasStatus_t create(cublasLtHandle_t *handle) {
  *handle = malloc(1);
  return *handle ? 0 : 3;
}

static cublasStatus_t destroy(cublasLtHandle_t handle) {
  free(handle);
  return 0;
}

static size_t version(void) { return 0; }

static cublasStatus_t desc_create(cublasLtMatmulDesc_t *to, cublasComputeType_t compute, cudaDataType_t scale) {
  Desc *d = calloc(1, sizeof *d);
  if (!d || (compute == CUBLAS_COMPUTE_64F) != (scale == CUDA_R_64F)) return free(d), INVALID_VALUE;
  d->compute = compute;
  d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  *to = (void *)d;
  return 0;
}

static cublasStatus_t copy(void *to, size_t size, const void *from, size_t bytes) {
  if (size != bytes) return INVALID_VALUE;
  memcpy(to, from, size);
  return 0;
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *v, size_t n) {
  Desc *d = (void *)desc;
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA: return copy(&d->transposed[0], 4, v, n);
  case CUBLASLT_MATMUL_DESC_TRANSB: return copy(&d->transposed[1], 4, v, n);
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return copy(&d->epilogue, 4, v, n);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return copy(&d->bias, sizeof d->bias, v, n);
  case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return copy(&d->bias_type, 4, v, n);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return copy(&d->kept, sizeof d->kept, v, n);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return copy(&d->kept_pitch, 8, v, n);
  default: return NOT_SUPPORTED;
  }
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *to, cudaDataType_t type, uint64_t rows, uint64_t columns,
                                    int64_t pitch) {
  Layout *l = calloc(1, sizeof *l);
  if (!l || pitch < (int64_t)rows) return free(l), INVALID_VALUE;
  *l = (Layout){type, rows, columns, pitch, 0, 1};
  *to = (void *)l;
  return 0;
}

static cublasStatus_t layout_set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void *v,
                                 size_t n) {
  Layout *l = (void *)layout;
  switch (attribute) {
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return copy(&l->count, 4, v, n);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return copy(&l->stride, 8, v, n);
  default: return NOT_SUPPORTED;
  }
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *to) {
  static int one;
  *to = (void *)&one;
  return 0;
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                                     const void *v, size_t n) {
  (void)preference, (void)v;
  return n != (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4) ? INVALID_VALUE : 0;
}

static uint64_t inner(const Layout *l, int32_t transposed) { return transposed ? l->columns : l->rows; }
static uint64_t outer(const Layout *l, int32_t transposed) { return transposed ? l->rows : l->columns; }

enum { AUX = CUBLASLT_EPILOGUE_GELU_AUX & ~CUBLASLT_EPILOGUE_GELU };

// Pitch and address of the kept sum are such as the library asks for.
static bool aux_fits(const Desc *d, const Layout *c) {
  return d->kept && (uintptr_t)d->kept % 16 == 0 && d->kept_pitch % 8 == 0 && d->kept_pitch >= (int64_t)c->rows;
}

static bool epilogue_fits(const Desc *d, const Layout *c) {
  static const uint32_t known[] = {CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_GELU,
                                   CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
  bool is = false;
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++) is |= d->epilogue == known[i];
  if (d->epilogue & CUBLASLT_EPILOGUE_BIAS) is &= d->bias && d->bias_type == c->type;
  if (d->epilogue & AUX) is &= aux_fits(d, c);
  return is && (d->epilogue == CUBLASLT_EPILOGUE_DEFAULT || (c->count == 1 && d->compute == CUBLAS_COMPUTE_32F));
}

// The shapes match, and the library would take these types and this epilogue.
static cublasStatus_t fits(const Desc *d, const Layout *a, const Layout *b, const Layout *c) {
  bool f64 = d->compute == CUBLAS_COMPUTE_64F;
  if (inner(a, d->transposed[0]) != c->rows || outer(b, d->transposed[1]) != c->columns ||
      outer(a, d->transposed[0]) != inner(b, d->transposed[1]) || a->count != c->count || b->count != c->count)
    return INVALID_VALUE;
  if (a->type != b->type || (f64 && a->type != CUDA_R_64F)) return NOT_SUPPORTED;
  if (c->type != a->type && c->type != CUDA_R_32F) return NOT_SUPPORTED;
  return epilogue_fits(d, c) ? 0 : NOT_SUPPORTED;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t *result,
                                int *count) {
  (void)handle, (void)preference, (void)d;
  memset(result, 0, sizeof *result);
  *count = most > 0;
  return fits((void *)desc, (void *)a, (void *)b, (void *)c);
}

typedef struct Call {
  Desc desc;
  Layout a, b, c;
  const char *a_at, *b_at, *c_at;
  char *d_at;
  double alpha, beta;
} Call;

static double get(cudaDataType_t type, const void *p, int64_t i) {
  switch (type) {
  case CUDA_R_64F: return ((const double *)p)[i];
  case CUDA_R_16BF: return dt_from_bf16(((const uint16_t *)p)[i]);
  case CUDA_R_16F: return dt_from_f16(((const uint16_t *)p)[i]);
  default: return ((const float *)p)[i];
  }
}

static void put(cudaDataType_t type, void *p, int64_t i, double v) {
  static const struct {
    cudaDataType_t is;
    DtType type;
  } of[] = {{CUDA_R_64F, DT_TYPE_F64}, {CUDA_R_16BF, DT_TYPE_BF16}, {CUDA_R_16F, DT_TYPE_F16}, {CUDA_R_32F, DT_TYPE_F32}};
  for (int k = 0; k < 4; k++)
    if (of[k].is == type) dt_put_real(of[k].type, p, i, v);
}

static double element(const Layout *l, const void *p, int64_t batch, int32_t transposed, int64_t row, int64_t column) {
  return get(l->type, p, batch * l->stride + (transposed ? row * l->pitch + column : column * l->pitch + row));
}

// In float, in the order of operations of the function's text (codegen/lower/epilogue.c).
static float gelu(float x) {
  return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
}

// The element in its column and row, of which the sum is known.
static void finish(const Call *x, double sum, int64_t row, int64_t column, int64_t at) {
  const Desc *d = &x->desc;
  bool f64 = d->compute == CUBLAS_COMPUTE_64F;
  double v = f64 ? sum : (float)sum, before = x->beta != 0 ? get(x->c.type, x->c_at, at) : 0;
  if (x->beta != 0) v = f64 ? v + x->beta * before : (float)v + (float)x->beta * (float)before;
  if (d->epilogue & CUBLASLT_EPILOGUE_BIAS) v = (float)v + (float)get(d->bias_type, d->bias, row);
  if (d->epilogue & AUX) put(x->c.type, d->kept, column * d->kept_pitch + row, v);
  if (d->epilogue & CUBLASLT_EPILOGUE_GELU) v = gelu((float)v);
  put(x->c.type, x->d_at, at, v);
}

static void compute(void *ctx) {
  const Call *x = ctx;
  int64_t terms = (int64_t)outer(&x->a, x->desc.transposed[0]);
  for (int64_t batch = 0; batch < x->c.count; batch++)
    for (int64_t column = 0; column < (int64_t)x->c.columns; column++)
      for (int64_t row = 0; row < (int64_t)x->c.rows; row++) {
        double sum = 0;
        int64_t at = batch * x->c.stride + column * x->c.pitch + row;
        for (int64_t k = 0; k < terms; k++)
          sum += element(&x->a, x->a_at, batch, x->desc.transposed[0], row, k) *
                 element(&x->b, x->b_at, batch, x->desc.transposed[1], k, column);
        finish(x, sum * x->alpha, row, column, at);
      }
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                             cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                             const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                             size_t workspace_bytes, cudaStream_t stream) {
  (void)handle, (void)algo, (void)workspace, (void)workspace_bytes, (void)d_layout;
  Call x = {*(Desc *)(void *)desc, *(Layout *)(void *)a_layout, *(Layout *)(void *)b_layout, *(Layout *)(void *)c_layout,
            a, b, c, d, 0, 0};
  bool f64 = x.desc.compute == CUBLAS_COMPUTE_64F;
  cublasStatus_t s = fits(&x.desc, &x.a, &x.b, &x.c);
  if (s) return s;
  x.alpha = f64 ? *(const double *)alpha : *(const float *)alpha;
  x.beta = f64 ? *(const double *)beta : *(const float *)beta;
  dt_emulate_post(stream, compute, &x, sizeof x);
  return 0;
}

const DtBlas *dt_blas_open(DtError *e) {
  static const DtBlas blas = {create,        destroy,    version,           desc_create,    desc_set, layout_create,
                              layout_set,    preference_create, preference_set, heuristic, matmul};
  (void)e;
  return &blas;
}
