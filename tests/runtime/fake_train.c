// The training program of a hand-written model, for tests/fault/*.sh:
// FAKE=arrays|tokens|layers|fp32|bf16|fp16 FAKE_NAN_AT=STEP FAKE_DELAY=MICROSECONDS FAKE_ZERO=STAGE[:GROUP][each]
// FAKE_REDUCE=bf16 FAKE_OVERFLOW=FROM-TO:RANK rt_fake_train OPTIONS...
// Without options, a test that every model describes itself.
#include "support/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The same model in one of three precisions.
static DtProgram half(const char *precision) {
  DtProgram p = fake_half;
  fake_half_type = strcmp(precision, "bf16") == 0   ? DT_TYPE_BF16
                   : strcmp(precision, "fp16") == 0 ? DT_TYPE_F16
                                                    : DT_TYPE_F32;
  p.param_type = fake_half_type;
  p.loss_scaling = fake_half_type == DT_TYPE_F16;
  p.train.precision = precision;
  const char *overflow = getenv("FAKE_OVERFLOW"), *reduce = getenv("FAKE_REDUCE");
  long long from, to;
  if (overflow && sscanf(overflow, "%lld-%lld:%d", &from, &to, &fake_overflow_rank) == 3) {
    fake_overflow_from = from;
    fake_overflow_to = to;
  }
  if (reduce && strcmp(reduce, "bf16") == 0) p.reduce_type = DT_TYPE_BF16;
  return p;
}

int main(int argc, char **argv) {
  const char *model = getenv("FAKE"), *at = getenv("FAKE_NAN_AT"), *delay = getenv("FAKE_DELAY");
  fake_nan_at = at ? atoll(at) : 0;
  fake_delay = delay ? atoi(delay) : 0;
  const char *zero = getenv("FAKE_ZERO");
  fake_overrun = getenv("FAKE_OVERRUN") != NULL;
  DtProgram p = model && strcmp(model, "arrays") == 0   ? fake_arrays
                : model && strcmp(model, "layers") == 0 ? fake_layers
                : model && strchr("fb", *model)         ? half(model)
                                                        : fake_tokens;
  p.zero = zero ? atoi(zero) : 0;
  const char *group = zero ? strchr(zero, ':') : NULL;
  if (group) p.zero_group = atoi(group + 1);
  p.accumulate_each = zero && strstr(zero, "each");
  if (argc > 1) return dt_main(&p, argc, argv);
  char *info[] = {argv[0], "--info"};
  return dt_main(&fake_tokens, 2, info) || dt_main(&fake_arrays, 2, info);
}
