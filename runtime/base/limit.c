#include "runtime/base/limit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The number in a file; INT64_MAX where there is none ("max", no such file).
static int64_t number_in(const char *path) {
  long long v = 0;
  FILE *f = fopen(path, "r");
  if (!f) return INT64_MAX;
  if (fscanf(f, "%lld", &v) != 1 || v <= 0) v = INT64_MAX;
  fclose(f);
  return v;
}

// The least limit of the group `path` below `mount` and of those around it.
static int64_t least_up(const char *mount, const char *path, const char *file) {
  char group[PATH_MAX], name[2 * PATH_MAX + 64];
  int64_t least = INT64_MAX;
  snprintf(group, sizeof group, "%s", path);
  for (;;) {
    snprintf(name, sizeof name, "%s%s/%s", mount, group, file);
    int64_t n = number_in(name);
    if (n < least) least = n;
    char *slash = strrchr(group, '/');
    if (!slash) return least;
    *slash = 0;
  }
}

// The limit that one line of /proc/self/cgroup leads to: "0::/path" of version 2,
// "4:memory,other:/path" of version 1.
static int64_t limit_of_line(const char *root, char *line) {
  char mount[PATH_MAX];
  char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!path) return INT64_MAX;
  *path++ = 0;
  path[strcspn(path, "\n")] = 0;
  controllers++;
  if (!*controllers) {
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
    return least_up(mount, path, "memory.max");
  }
  for (char *c = strtok(controllers, ","); c; c = strtok(NULL, ",")) {
    if (strcmp(c, "memory")) continue;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/memory", root);
    return least_up(mount, path, "memory.limit_in_bytes");
  }
  return INT64_MAX;
}

int64_t dt_memory_limit(const char *root, bool *group) {
  char name[PATH_MAX], line[PATH_MAX];
  int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), least = machine;
  snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
  FILE *f = fopen(name, "r");
  while (f && fgets(line, sizeof line, f)) {
    int64_t n = limit_of_line(root, line);
    if (n < least) least = n;
  }
  if (f) fclose(f);
  *group = least < machine;
  return least;
}
