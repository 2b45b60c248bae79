// The streams of the stand-in of the driver.
#ifndef DTC_RUNTIME_CUDA_EMULATE_STREAM_H
#define DTC_RUNTIME_CUDA_EMULATE_STREAM_H

#include "runtime/device/cuda/driver.h"

#include <stdbool.h>
#include <stdint.h>

// Posts run(copy of `size` bytes at ctx) on the stream: it runs after all that was posted there before, and no sooner than
// somebody waits for the stream or for an event behind it.
void dt_emulate_post(CUstream stream, void (*run)(void *ctx), const void *ctx, size_t size);
// Posts an operation that needs other processes: try(the copy) is called again and again, when its turn has come, until it
// says that all is done. It waits for nothing.
void dt_emulate_try(CUstream stream, bool (*try)(void *ctx), const void *ctx, size_t size);
// Opens the device for a shared object that has no dt_main.
void dt_emulate_open(int64_t scratch);

#endif
