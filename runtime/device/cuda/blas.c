#include "runtime/device/cuda/blas.h"

const DtBlas *dt_blas_open(DtError *e) {
  static DtBlas blas;
  static const char *const function[] = {DT_BLAS(DT_NAME)};
  static const DtLibrary library = {"cuBLASLt",
                                    "this program computes matrix products with cuBLASLt, and neither libcublasLt.so.13 nor "
                                    "libcublasLt.so.12 can be loaded",
                                    {"libcublasLt.so.13", "libcublasLt.so.12"},
                                    "CUDA",
                                    DT_DRIVER_VERSION / 1000,
                                    DT_DRIVER_VERSION % 1000 / 10,
                                    function,
                                    sizeof function / sizeof *function};
  return dt_import(&library, &blas, e) ? NULL : &blas;
}
