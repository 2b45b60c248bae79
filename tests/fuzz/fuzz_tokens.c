// Token files from anywhere: whatever is accepted can be read to its last token.
#include "runtime/data/tokens.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  volatile int64_t sum = 0;
  for (int as_bytes = 0; as_bytes < 2; as_bytes++) {
    DtTokens t;
    DtError e = {0};
    if (dt_tokens_parse(&t, bytes, size, as_bytes, "fuzz", &e) == 0) {
      for (int64_t i = 0; i < t.count; i++) {
        int32_t v = dt_token(&t, i);
        if (v < 0 || v > 65535) abort();
        sum += v;
      }
    } else if (e.status == 0 || !e.text[0]) {
      abort(); // a refusal says why
    }
    dt_tokens_close(&t);
  }
  return 0;
}
