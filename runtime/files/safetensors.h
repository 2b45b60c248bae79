// Weights in files: the safetensors format (u64 length, JSON header, data), read strictly and
// written aligned.
#ifndef DTC_RUNTIME_SAFETENSORS_H
#define DTC_RUNTIME_SAFETENSORS_H

#include "runtime/files/file.h"
#include "runtime/files/json.h"
#include "runtime/program.h"

typedef enum DtStored {
  DT_ST_BOOL,
  DT_ST_U8,
  DT_ST_I8,
  DT_ST_U16,
  DT_ST_I16,
  DT_ST_F16,
  DT_ST_BF16,
  DT_ST_U32,
  DT_ST_I32,
  DT_ST_F32,
  DT_ST_U64,
  DT_ST_I64,
  DT_ST_F64
} DtStored;

const char *dt_stored_name(DtStored type); // "F32"
bool dt_stored_real(DtStored type);        // one that dt_tensor_read converts from

typedef struct DtTensor {
  const char *name;
  DtStored type;
  int rank;
  int64_t extent[DT_MAX_RANK];
  int64_t count;             // elements
  const unsigned char *data; // in the map, aligned to a byte
} DtTensor;

typedef struct DtWeights {
  DtMap map; // empty where the bytes are the caller's
  DtJson json;
  DtTensor *tensor; // by name
  int64_t n;
} DtWeights;

// Reads the header and checks all of it: lengths, offsets without gaps or overlaps, sizes that
// agree with shape and type, nothing behind the data, unique names. 65 (66, 74) with `path` and the
// cause; dt_weights_close in either case.
int dt_weights_open(DtWeights *w, const char *path, DtError *e);
int dt_weights_parse(DtWeights *w, const unsigned char *bytes, size_t size, const char *path,
                     DtError *e);
void dt_weights_close(DtWeights *w);

const DtTensor *dt_weights_find(const DtWeights *w, const char *name); // or NULL

// Elements [begin, begin + n) as `to`, a real type; the tensor must be dt_stored_real.
void dt_tensor_read(const DtTensor *t, int64_t begin, int64_t n, DtType to, void *out);

// Writes the header of a file of real tensors of `type`; their data must follow in the same order,
// without gaps. The header is padded so that data begins at a multiple of 4,096.
void dt_weights_header(DtOut *o, const DtTensor *tensor, int64_t n, DtType type);

// "[2, 3]"
void dt_shape_text(char out[192], int rank, const int64_t *extent);

#endif
