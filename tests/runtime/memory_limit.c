// The least of the machine's memory and the limits of the control groups around the process, read
// from a tree of files made for it.
#include "runtime/base/limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[] = "./memory-limit-XXXXXX";
static int bad;

static void put(const char *path, const char *text) {
  char name[512], command[1024];
  snprintf(name, sizeof name, "%s/%s", root, path);
  snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", name);
  FILE *f = system(command) == 0 ? fopen(name, "w") : NULL;
  if (!f || fputs(text, f) < 0 || fclose(f)) perror(name), exit(1);
}

static void expect(const char *what, int64_t want, bool want_group) {
  bool group;
  int64_t got = dt_memory_limit(root, &group);
  if (got == want && group == want_group) return;
  printf("%s: %lld %d, should be %lld %d\n", what, (long long)got, group, (long long)want,
         want_group);
  bad++;
}

int main(void) {
  if (!mkdtemp(root)) return 1;
  int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  expect("no control groups", machine, false);
  put("proc/self/cgroup", "0::/\n");
  expect("the root group, which has no file", machine, false);
  put("proc/self/cgroup", "0::/user.slice/run.scope\n");
  put("sys/fs/cgroup/user.slice/run.scope/memory.max", "max\n");
  expect("no limit", machine, false);
  put("sys/fs/cgroup/user.slice/memory.max", "1048576\n");
  expect("a limit of the group around", 1048576, true);
  put("sys/fs/cgroup/user.slice/run.scope/memory.max", "524288\n");
  expect("the least of both", 524288, true);
  put("sys/fs/cgroup/user.slice/run.scope/memory.max", "9000000000000000000\n");
  expect("more than the group around", 1048576, true);
  put("proc/self/cgroup", "5:cpu,cpuacct:/\n4:hugetlb,memory:/box\n0::/\n");
  put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2097152\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  expect("version 1", 2097152, true);
  put("proc/self/cgroup", "nonsense\n\n::\n");
  expect("lines that say nothing", machine, false);
  char command[600];
  snprintf(command, sizeof command, "rm -r '%s'", root);
  return system(command) || bad;
}
