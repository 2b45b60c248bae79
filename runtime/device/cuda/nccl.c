#include "runtime/device/cuda/nccl.h"

const DtNccl *dt_nccl_open(DtError *e) {
  static DtNccl nccl;
  static const char *const function[] = {DT_NCCL(DT_NAME)};
  static const DtLibrary library = {"NCCL",
                                    "several ranks on GPUs exchange data by NCCL, and libnccl.so.2 cannot be loaded",
                                    {"libnccl.so.2"},
                                    "NCCL",
                                    DT_NCCL_VERSION / 10000,
                                    DT_NCCL_VERSION % 10000 / 100,
                                    function,
                                    sizeof function / sizeof *function};
  return dt_import(&library, &nccl, e) ? NULL : &nccl;
}
