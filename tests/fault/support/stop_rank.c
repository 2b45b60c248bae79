// Preloaded into a training program with --ranks: stops the rank STOP_RANK before it has done anything, in the first call
// that it makes as a process of its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static int forks;

pid_t fork(void) {
  forks++;
  return ((pid_t(*)(void))dlsym(RTLD_NEXT, "fork"))();
}

int prctl(int option, ...) {
  va_list args;
  va_start(args, option);
  unsigned long a = va_arg(args, unsigned long);
  va_end(args);
  if (option == PR_SET_PDEATHSIG && forks == atoi(getenv("STOP_RANK")) + 1) raise(SIGSTOP);
  return ((int (*)(int, ...))dlsym(RTLD_NEXT, "prctl"))(option, a);
}
