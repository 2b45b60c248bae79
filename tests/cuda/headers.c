// Compiled against the toolkit's headers (headers-agree.sh): prototypes, types and constants of runtime/device/cuda are
// theirs. With OWN, prints the constants and sizes that the runtime has without them.
#ifndef OWN
#include <cuda.h>
#include <cublasLt.h>
#include <nccl.h>
#endif
#include "runtime/device/cuda/blas.h"
#include "runtime/device/cuda/driver.h"
#include "runtime/device/cuda/nccl.h"

#include <stdio.h>

#ifndef OWN
#define X(name, arguments) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), __typeof__(((DtDriver *)0)->name)), #name);
DT_DRIVER(X)
#undef X
#define X(result, name, arguments) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), __typeof__(((DtBlas *)0)->name)), #name);
DT_BLAS(X)
#undef X
#define X(result, name, arguments) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), __typeof__(((DtNccl *)0)->name)), #name);
DT_NCCL(X)
#undef X
// Ours is how theirs begins.
_Static_assert(NCCL_CONFIG_UNDEF_INT == DT_NCCL_UNDEFINED, "a field that is not set");
#endif

#define SHOW(x) printf("%s %lld\n", #x, (long long)(x))
int main(void) {
  SHOW(CUDA_SUCCESS), SHOW(CUDA_ERROR_OUT_OF_MEMORY), SHOW(CUDA_ERROR_NO_DEVICE), SHOW(CUDA_ERROR_NOT_READY);
  SHOW(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), SHOW(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  SHOW(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), SHOW(CU_MEMORYTYPE_HOST), SHOW(CU_MEMORYTYPE_DEVICE);
  SHOW(CU_EVENT_DISABLE_TIMING), SHOW(CU_STREAM_NON_BLOCKING);
  SHOW(sizeof(CUresult)), SHOW(sizeof(CUdeviceptr)), SHOW(sizeof(CUDA_MEMCPY2D)), SHOW(sizeof(CUdevice));
  SHOW(offsetof(CUDA_MEMCPY2D, srcDevice)), SHOW(offsetof(CUDA_MEMCPY2D, dstMemoryType)), SHOW(offsetof(CUDA_MEMCPY2D, dstDevice));
  SHOW(offsetof(CUDA_MEMCPY2D, dstPitch)), SHOW(offsetof(CUDA_MEMCPY2D, WidthInBytes)), SHOW(offsetof(CUDA_MEMCPY2D, Height));
  SHOW(CUBLAS_COMPUTE_32F), SHOW(CUBLAS_COMPUTE_64F), SHOW(CUDA_R_32F), SHOW(CUDA_R_64F), SHOW(CUDA_R_16F), SHOW(CUDA_R_16BF);
  SHOW(CUBLAS_OP_N), SHOW(CUBLAS_OP_T), SHOW(CUBLASLT_EPILOGUE_BIAS);
  SHOW(CUBLASLT_EPILOGUE_DEFAULT), SHOW(CUBLASLT_EPILOGUE_GELU), SHOW(CUBLASLT_EPILOGUE_GELU_BIAS);
  SHOW(CUBLASLT_EPILOGUE_GELU_AUX), SHOW(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  SHOW(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER), SHOW(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
  SHOW(CUBLASLT_MATMUL_DESC_TRANSA), SHOW(CUBLASLT_MATMUL_DESC_TRANSB), SHOW(CUBLASLT_MATMUL_DESC_EPILOGUE);
  SHOW(CUBLASLT_MATMUL_DESC_BIAS_POINTER), SHOW(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  SHOW(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), SHOW(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  SHOW(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), SHOW(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  SHOW(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), SHOW(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  SHOW(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  SHOW(sizeof(cublasLtMatmulHeuristicResult_t)), SHOW(offsetof(cublasLtMatmulHeuristicResult_t, state));
  SHOW(sizeof(cublasLtMatmulAlgo_t)), SHOW(sizeof(cublasComputeType_t)), SHOW(sizeof(cudaDataType_t));
  SHOW(sizeof(cublasStatus_t)), SHOW(sizeof(cublasLtMatmulDescAttributes_t));
  SHOW(ncclSuccess), SHOW(ncclInProgress), SHOW(ncclUnhandledCudaError), SHOW(ncclInvalidArgument), SHOW(ncclInvalidUsage);
  SHOW(ncclRemoteError), SHOW(ncclSystemError), SHOW(ncclInternalError), SHOW(ncclSum), SHOW(ncclMax), SHOW(ncclMin);
  SHOW(ncclInt8), SHOW(ncclInt32), SHOW(ncclFloat16), SHOW(ncclFloat32), SHOW(ncclFloat64), SHOW(ncclBfloat16);
  SHOW(sizeof(ncclUniqueId)), SHOW(sizeof(ncclResult_t)), SHOW(sizeof(ncclDataType_t)), SHOW(sizeof(ncclRedOp_t));
  SHOW(offsetof(ncclConfig_t, magic)), SHOW(offsetof(ncclConfig_t, version)), SHOW(offsetof(ncclConfig_t, blocking));
  SHOW(offsetof(ncclConfig_t, minCTAs)), SHOW(offsetof(ncclConfig_t, maxCTAs)), SHOW(offsetof(ncclConfig_t, netName));
  SHOW(offsetof(ncclConfig_t, splitShare)), SHOW(offsetof(ncclConfig_t, cgaClusterSize));
  return 0;
}
