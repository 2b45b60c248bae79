// Multiply-adds in registers, for the processor's limit: a template, see runtime/device/cpu/vector.h.
#define PEAK_CHAINS 12 // more than latency times units

DT_FN static void DT_NAME(peak)(void *const *arg, int64_t begin, int64_t end) {
  int64_t rounds = *(const int64_t *)arg[0];
  V x[PEAK_CHAINS];
  for (int64_t task = begin; task < end; task++) {
#pragma GCC unroll 12
    for (int i = 0; i < PEAK_CHAINS; i++) x[i] = v_set(i);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
      for (int i = 0; i < PEAK_CHAINS; i++) x[i] = v_fma(x[i], v_set(0.5f), v_set(0.25f));
    }
    for (int i = 1; i < PEAK_CHAINS; i++) x[0] += x[i];
    ((float *)arg[1])[task % 4096] = x[0][0];
  }
}
