// Sizes that the runtime and its kernels (arrays.h) both know.
#ifndef DTC_RUNTIME_CUDA_SIZES_H
#define DTC_RUNTIME_CUDA_SIZES_H

enum {
  DT_SQUARES_BLOCK = 4096, // elements whose squares have one partial sum
  DT_IN_PLACE = 1024       // elements that one block converts in place
};

#endif
