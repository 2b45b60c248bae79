#include <signal.h>

#include "commit.h" // made by commit.cmake
#include "driver/command.h"
#include "driver/compile.h"
#include "runtime/files/file.h"

int main(int argc, char **argv) {
  dt_standard_files();
  signal(SIGXFSZ, SIG_IGN); // a file that grows too large is an error of write()
  Arena *a = arena_new();
  Options o;
  const Command *command = argc > 1 ? command_find(argv[1]) : NULL;
  int status = command ? command->run(a, argc - 1, argv + 1) : options_parse(&o, a, argc, argv);
  if (command)
    ;
  else if (!status && o.help)
    options_help(stdout);
  else if (!status && o.version)
    puts("dtc " DTC_VERSION " (commit " DTC_COMMIT ", LLVM " DTC_LLVM ")");
  else if (!status)
    status = compile(&o, a);
  if (fflush(stdout) || ferror(stdout)) {
    perror("dtc: standard output");
    status = status ? status : EXIT_TOOL;
  }
  arena_free(a);
  return status;
}
