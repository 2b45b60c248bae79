// The command line of a training program.
#ifndef DTC_RUNTIME_OPTIONS_H
#define DTC_RUNTIME_OPTIONS_H

#include "runtime/base/error.h"
#include "runtime/program.h"

// What was asked for; where nothing was, the program's train block, or the default named here.
typedef struct DtOptions {
  const char *data, *val, *init, *save, *resume, *export_to, *export_gradient, *log, *profile, *tensorboard,
      *prompt, *reduce, *offload_dir; // NULL: not given
  int64_t steps, batch, seed, eval_every;
  int64_t schedule_steps; // where the rate's schedule ends
  int64_t save_every;     // 0: only at the end
  int64_t keep;           // 0: all
  int64_t eval_samples;   // 0: all
  int64_t sample;         // tokens to generate
  int64_t threads;        // of a rank; 0: its share of the processors
  int64_t ranks;          // 0: the environment says
  double lr, temperature, timeout;
  bool no_shuffle, eval_only, save_sync, info, dry_run, quiet, help, version;
  bool seed_given, eval_given;
} DtOptions;

// Reads argv over the program's own settings. 64 with a message, and a did-you-mean, for what is
// not understood.
int dt_options_parse(DtOptions *o, const DtProgram *p, int argc, char **argv, DtError *e);
void dt_options_help(const DtProgram *p);

#endif
