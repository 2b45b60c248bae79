// NVIDIA's driver as this runtime uses it: libcuda.so.1 is loaded when the program starts, so that a program is built, and
// says what is missing, on machines without it. Names and types are those of cuda.h (a test compares them with it); a
// stand-in runs kernels on the CPU (emulate_driver.c).
#ifndef DTC_RUNTIME_CUDA_DRIVER_H
#define DTC_RUNTIME_CUDA_DRIVER_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stddef.h>

// With the toolkit's cuda.h included before, its types are meant.
#ifndef CUDA_VERSION
typedef enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NO_DEVICE = 100, CUDA_ERROR_NOT_READY = 600 } CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;
typedef enum CUdevice_attribute_enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
} CUdevice_attribute;
typedef enum CUjit_option_enum CUjit_option;
typedef enum CUlibraryOption_enum CUlibraryOption;
typedef enum CUmemorytype_enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 } CUmemorytype;
typedef struct CUarray_st *CUarray;
typedef struct CUDA_MEMCPY2D_st {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;
enum { CU_EVENT_DISABLE_TIMING = 2, CU_STREAM_NON_BLOCKING = 1 };
#endif

// Each function of the driver's library by its exported name.
#define DT_DRIVER(X)                                                                                                   \
  X(cuInit, (unsigned flags))                                                                                          \
  X(cuDriverGetVersion, (int *version))                                                                                \
  X(cuGetErrorString, (CUresult error, const char **text))                                                             \
  X(cuDeviceGetCount, (int *count))                                                                                    \
  X(cuDeviceGet, (CUdevice * device, int ordinal))                                                                     \
  X(cuDeviceGetName, (char *name, int size, CUdevice device))                                                          \
  X(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                                              \
  X(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))                                 \
  X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                                            \
  X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                  \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                   \
  X(cuCtxSetCurrent, (CUcontext context))                                                                              \
  X(cuMemAlloc_v2, (CUdeviceptr * p, size_t bytes))                                                                    \
  X(cuMemFree_v2, (CUdeviceptr p))                                                                                     \
  X(cuMemHostAlloc, (void **p, size_t bytes, unsigned flags))                                                          \
  X(cuMemFreeHost, (void *p))                                                                                          \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                           \
  X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                 \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
  X(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream))                                                  \
  X(cuMemsetD8Async, (CUdeviceptr p, unsigned char value, size_t bytes, CUstream stream))                              \
  X(cuStreamCreate, (CUstream * stream, unsigned flags))                                                               \
  X(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))                                     \
  X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                               \
  X(cuCtxGetStreamPriorityRange, (int *least, int *greatest))                                                          \
  X(cuStreamDestroy_v2, (CUstream stream))                                                                             \
  X(cuStreamSynchronize, (CUstream stream))                                                                            \
  X(cuEventCreate, (CUevent * event, unsigned flags))                                                                  \
  X(cuEventDestroy_v2, (CUevent event))                                                                                \
  X(cuEventRecord, (CUevent event, CUstream stream))                                                                   \
  X(cuEventQuery, (CUevent event))                                                                                     \
  X(cuEventElapsedTime, (float *ms, CUevent begin, CUevent end))                                                       \
  X(cuEventSynchronize, (CUevent event))                                                                               \
  X(cuLibraryLoadData, (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned njit,    \
                        CUlibraryOption *option, void **values, unsigned noption))                                     \
  X(cuLibraryUnload, (CUlibrary library))                                                                              \
  X(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))                                      \
  X(cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                                                     \
  X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,         \
                     unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **argument,            \
                     void **extra))

typedef struct DtDriver {
#define X(name, arguments) CUresult(*name) arguments;
  DT_DRIVER(X)
#undef X
} DtDriver;

enum { DT_DRIVER_VERSION = 12040 }; // that the program needs at least, as cuDriverGetVersion counts: 12.4

// A library that is loaded when the program starts.
typedef struct DtLibrary {
  const char *name, *absent; // for messages; absent: that it is needed and cannot be loaded
  const char *file[2];       // names to try in this order
  const char *release;       // with major.minor: the oldest release that has all functions
  int major, minor;
  const char *const *function; // names, in the order of the pointers that `to` consists of
  size_t functions;
} DtLibrary;

// The fields, and names, of a library's table X(result, name, arguments).
#define DT_FIELD(result, name, arguments) result(*name) arguments;
#define DT_NAME(result, name, arguments) #name,

// Loads a library and stores the addresses of its functions in *to. 0, or 71 where there is no such library, or one
// without some function.
int dt_import(const DtLibrary *l, void *to, DtError *e);

// Whether the memory of all devices is that of the host.
extern const bool dt_driver_on_host;

// NULL and 71 where there is no driver, or one without some function.
const DtDriver *dt_driver_open(DtError *e);

#endif
