// .npy files from anywhere: whatever is accepted can be read to its last element.
#include "runtime/data/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  DtNpy a;
  DtError e = {0};
  volatile double sum = 0;
  if (dt_npy_parse(&a, bytes, size, "fuzz", &e) == 0) {
    if (a.rank < 0 || a.rank > DT_MAX_RANK || a.count < 0) abort();
    for (int64_t i = 0; i < a.count; i++) {
      sum += dt_npy_real(&a, i);
      if (!dt_npy_is_real(a.type)) sum += (double)dt_npy_integer(&a, i);
    }
  } else if (e.status == 0 || !e.text[0]) {
    abort(); // a refusal says why
  }
  dt_npy_close(&a);
  return 0;
}
