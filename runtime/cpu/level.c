// Which instruction set the runtime's vector code uses.
#include "runtime/cpu/level.h"

#include <stdatomic.h>
#include <stdlib.h>

static atomic_int chosen; // 0: not chosen yet
static atomic_bool fixed;

static int processor(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
    return 1;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return 4;
  return 3;
#else
  return 1;
#endif
}

static int best(void) {
  int have = processor();
  const char *most = getenv("DTC_CPU_LEVEL");
  int limit = most ? atoi(most) : 0;
  return limit >= 1 && limit < have ? limit : have;
}

int dt_cpu_level(int level) {
  int have = best();
  int use = level <= 0 || level > have ? have : level;
  if (use == 2) use = 1; // there is no code of its own for SSE4
  atomic_store(&chosen, use);
  atomic_store(&fixed, level > 0);
  return use;
}

int dt_cpu_level_now(void) {
  int level = atomic_load_explicit(&chosen, memory_order_relaxed);
  return level ? level : dt_cpu_level(0);
}

bool dt_cpu_level_fixed(void) {
  return atomic_load_explicit(&fixed, memory_order_relaxed);
}

bool dt_cpu_amd(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}
