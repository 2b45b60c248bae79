// The training program of a hand-written model, for tests/fault/*.sh:
// FAKE=arrays|tokens|layers FAKE_NAN_AT=STEP FAKE_DELAY=MICROSECONDS FAKE_ZERO=STAGE rt_fake_train OPTIONS...
// Without options, a test that every model describes itself.
#include "support/fake.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  const char *model = getenv("FAKE"), *at = getenv("FAKE_NAN_AT"), *delay = getenv("FAKE_DELAY");
  fake_nan_at = at ? atoll(at) : 0;
  fake_delay = delay ? atoi(delay) : 0;
  const char *zero = getenv("FAKE_ZERO");
  fake_overrun = getenv("FAKE_OVERRUN") != NULL;
  DtProgram p = model && strcmp(model, "arrays") == 0   ? fake_arrays
                : model && strcmp(model, "layers") == 0 ? fake_layers
                                                        : fake_tokens;
  p.zero = zero ? atoi(zero) : 0;
  if (argc > 1) return dt_main(&p, argc, argv);
  char *info[] = {argv[0], "--info"};
  return dt_main(&fake_tokens, 2, info) || dt_main(&fake_arrays, 2, info);
}
