// Prints the help that every training program has, from which its manual page and completions are made.
#include "runtime/train/options.h"

int main(void) {
  dt_options_help(&(DtProgram){.model = "a model"});
}
