// NumPy's .npy files, versions 1 to 3: little-endian numbers in C order, mapped.
#ifndef DTC_RUNTIME_NPY_H
#define DTC_RUNTIME_NPY_H

#include "runtime/files/file.h"
#include "runtime/program.h"

typedef enum DtNpyType {
  DT_NPY_BOOL,
  DT_NPY_I8,
  DT_NPY_U8,
  DT_NPY_I16,
  DT_NPY_U16,
  DT_NPY_I32,
  DT_NPY_U32,
  DT_NPY_I64,
  DT_NPY_U64,
  DT_NPY_F16,
  DT_NPY_F32,
  DT_NPY_F64
} DtNpyType;

typedef struct DtNpy {
  DtMap map; // empty where the bytes are the caller's
  DtNpyType type;
  int rank;
  int64_t extent[DT_MAX_RANK];
  int64_t count;             // elements
  const unsigned char *data; // in the map, aligned to a byte
} DtNpy;

// 65 with the cause where the header is bad or lies, or the data is of a kind not listed above.
int dt_npy_open(DtNpy *a, const char *path, DtError *e);
int dt_npy_parse(DtNpy *a, const unsigned char *bytes, size_t size, const char *path, DtError *e);
void dt_npy_close(DtNpy *a);

const char *dt_npy_type_name(DtNpyType type); // "float32"
bool dt_npy_is_real(DtNpyType type);

int64_t dt_npy_integer(const DtNpy *a,
                       int64_t i); // of an integer type; uint64 past int64 gives INT64_MAX
double dt_npy_real(const DtNpy *a, int64_t i); // of any type

#endif
