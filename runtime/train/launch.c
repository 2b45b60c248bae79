#include "runtime/launch.h"

#include <string.h>

static void copy_part(void *const *arg, int64_t begin, int64_t end) {
  memcpy((char *)arg[0] + begin, (const char *)arg[1] + begin, (size_t)(end - begin));
}

void dt_copy(void *to, const void *from, size_t bytes) {
  void *arg[] = {to, (void *)from};
  dt_parallel(copy_part, arg, (int64_t)bytes, 1 << 20);
}
