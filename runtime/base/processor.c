#include "runtime/base/processor.h"

#include "runtime/device/cpu/level.h"

#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

int dt_vector_bits(void) {
  int level = dt_cpu_level_now();
  return level >= 4 ? 512 : level >= 3 ? 256 : 128;
}

// Of three leaves of cpuid.
void dt_processor_name(char name[DT_PROCESSOR_NAME]) {
  memset(name, 0, DT_PROCESSOR_NAME);
#ifdef __x86_64__
  unsigned v[12] = {0};
  if (__get_cpuid_max(0x80000000, NULL) < 0x80000004) return;
  for (unsigned i = 0; i < 3; i++)
    __cpuid(0x80000002 + i, v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
  memcpy(name, v, DT_PROCESSOR_NAME - 1);
#endif
}
