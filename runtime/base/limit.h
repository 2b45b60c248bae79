// How much memory the program may use.
#ifndef DTC_RUNTIME_LIMIT_H
#define DTC_RUNTIME_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

// Bytes: the machine's memory, or less where a control group of this process, or one around it, says
// so (cgroup v2: memory.max; v1: memory.limit_in_bytes; mounted under /sys/fs/cgroup, as systemd and
// containers do). *group says which it was. `root` goes before the paths: "" but in tests.
int64_t dt_memory_limit(const char *root, bool *group);

#endif
