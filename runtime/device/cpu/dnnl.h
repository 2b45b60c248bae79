// oneDNN's matrix product in float, loaded when it is asked for.
#ifndef DTC_RUNTIME_CPU_DNNL_H
#define DTC_RUNTIME_CPU_DNNL_H

#include "runtime/device/cpu/gemm_job.h"

// As dnnl.h has them: dnnl_sgemm, dnnl_version and what it returns, DNNL_RUNTIME_SEQ and DNNL_RUNTIME_OMP.
typedef int DtDnnlSgemm(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                        int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef struct DtDnnlVersionInfo {
  int major, minor, patch;
  const char *hash;
  unsigned cpu_runtime, gpu_runtime;
} DtDnnlVersionInfo;
typedef const DtDnnlVersionInfo *DtDnnlVersion(void);
enum { DT_DNNL_SEQ = 1, DT_DNNL_OMP = 2 };

// oneDNN's product of a tile. NULL, and the reason in *missing (unless that is NULL), where the library is not there, or
// cannot be kept to the calling thread. The first call loads it: from one thread.
DtGemmTile *dt_dnnl_tile(const char **missing);
const char *dt_dnnl_name(void); // "oneDNN 2.6.3", of the library that was loaded
// Whether it can take these strides: in each operand one is 1 and the other no overlap.
bool dt_dnnl_fits(const DtGemm *g);

#endif
