// NCCL as this runtime uses it, loaded when a program of several ranks starts. Names and types are those of nccl.h (a test
// compares them with it); a stand-in runs between processes on the CPU (emulate_nccl.c).
#ifndef DTC_RUNTIME_CUDA_NCCL_H
#define DTC_RUNTIME_CUDA_NCCL_H

#include "runtime/device/cuda/blas.h"

#include <limits.h>

// With NCCL's nccl.h included before, its types are meant.
#ifndef NCCL_MAJOR
typedef struct ncclComm *ncclComm_t;
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclSum = 0, ncclMax = 2, ncclMin = 3 } ncclRedOp_t;
typedef enum { ncclInt8 = 0, ncclInt32 = 2, ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 } ncclDataType_t;
// That of NCCL 2.19; later ones begin with it, and read as much of it as `size` says.
typedef struct ncclConfig {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
} ncclConfig_t;
#endif
enum { DT_NCCL_MAGIC = (int)0xcafebeef, DT_NCCL_UNDEFINED = INT_MIN };

enum { DT_NCCL_VERSION = 21900 }; // that the program needs at least, as ncclGetVersion counts: 2.19

#define DT_NCCL(X)                                                                                                     \
  X(ncclResult_t, ncclGetVersion, (int *version))                                                                      \
  X(const char *, ncclGetErrorString, (ncclResult_t result))                                                           \
  X(const char *, ncclGetLastError, (ncclComm_t comm))                                                                 \
  X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                                                \
  X(ncclResult_t, ncclCommInitRankConfig,                                                                              \
    (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t * config))                                  \
  X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))                                      \
  X(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                                                    \
  X(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                                                 \
  X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                                                  \
  X(ncclResult_t, ncclGroupStart, (void))                                                                              \
  X(ncclResult_t, ncclGroupEnd, (void))                                                                                \
  X(ncclResult_t, ncclAllReduce,                                                                                       \
    (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,                    \
     cudaStream_t stream))                                                                                             \
  X(ncclResult_t, ncclReduceScatter,                                                                                   \
    (const void *in, void *out, size_t piece, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,                    \
     cudaStream_t stream))                                                                                             \
  X(ncclResult_t, ncclReduce,                                                                                          \
    (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,          \
     cudaStream_t stream))                                                                                             \
  X(ncclResult_t, ncclAllGather,                                                                                       \
    (const void *in, void *out, size_t piece, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream))              \
  X(ncclResult_t, ncclBroadcast,                                                                                       \
    (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream))    \
  X(ncclResult_t, ncclSend,                                                                                            \
    (const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))             \
  X(ncclResult_t, ncclRecv,                                                                                            \
    (void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))

typedef struct DtNccl {
  DT_NCCL(DT_FIELD)
} DtNccl;

// NULL and 71 where there is no such library, or one without some function.
const DtNccl *dt_nccl_open(DtError *e);

#endif
