#include <signal.h>

#include "driver/compile.h"
#include "runtime/file.h"

#ifndef DTC_VERSION
#define DTC_VERSION "0"
#endif

int main(int argc, char **argv) {
  dt_standard_files();
  signal(SIGXFSZ, SIG_IGN); // a file that grows too large is an error of write()
  Arena *a = arena_new();
  Options o;
  int status = options_parse(&o, a, argc, argv);
  if (!status && o.help)
    options_help(stdout);
  else if (!status && o.version)
    puts("dtc " DTC_VERSION);
  else if (!status)
    status = compile(&o, a);
  if (fflush(stdout) || ferror(stdout)) {
    perror("dtc: standard output");
    status = status ? status : EXIT_MODEL;
  }
  arena_free(a);
  return status;
}
