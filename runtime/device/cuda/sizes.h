// Sizes that the runtime, its kernels (arrays.h) and the compiler's reports know.
#ifndef DTC_RUNTIME_CUDA_SIZES_H
#define DTC_RUNTIME_CUDA_SIZES_H

enum {
  DT_SQUARES_BLOCK = 4096, // elements whose squares have one partial sum
  DT_IN_PLACE = 1024,      // elements that one block converts in place
  DT_WINDOW = 64 << 20,    // bytes that the host sees at a time
  DT_NUMBERS = 1 << 16,    // of layers that the device has in memory, each an int32_t
  DT_NUMBERS_BYTES = 4 * DT_NUMBERS,
  DT_EXCHANGE = 32 << 20 // bytes where other ranks' parts of an array lie before they are added up
};

#endif
