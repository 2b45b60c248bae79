// Weight files from anywhere (and with them the JSON parser): whatever is accepted can be read to
// its last element.
#include "runtime/files/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  DtWeights w;
  DtError e = {0};
  if (dt_weights_parse(&w, bytes, size, "fuzz", &e) == 0) {
    for (int64_t i = 0; i < w.n; i++) {
      const DtTensor *t = &w.tensor[i];
      if (dt_weights_find(&w, t->name) != t) abort();
      double last;
      float first;
      if (!dt_stored_real(t->type) || t->count == 0) continue;
      dt_tensor_read(t, t->count - 1, 1, DT_TYPE_F64, &last);
      dt_tensor_read(t, 0, 1, DT_TYPE_F32, &first);
    }
  } else if (e.status == 0 || !e.text[0]) {
    abort(); // a refusal says why
  }
  dt_weights_close(&w);
  return 0;
}
