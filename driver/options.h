// dtc's command line.
#ifndef DTC_OPTIONS_H
#define DTC_OPTIONS_H

#include "ir/ir.h"

typedef enum Emit { EMIT_NONE, EMIT_AST, EMIT_IR, EMIT_KERNELS, EMIT_C, EMIT_PLAN, EMIT_SCHEDULE, EMIT_FORM } Emit;

// Exit statuses of dtc.
enum { EXIT_MODEL = 1, EXIT_USAGE = 2, EXIT_TOOL = 3, EXIT_BUG = 70 };

typedef struct Options {
  Str input; // the model, or IR text with --run
  Str output; // -o; NULL: ./train, or stdout for --emit and --report
  VEC(Str) define, include;
  const struct Target *target; // codegen/target.h
  bool emulate;
  Str arch, precision;
  Emit emit;
  Str form; // of EMIT_FORM: one of the target's
  Str dump_after, run; // comma-separated pass names; dump_after may be "all"
  bool dump_places; // --dump-places
  bool check, interpret, source; // source: --interpret=source
  bool verify_run, report, time, deterministic, help, version;
  Str report_form; // "text", "json" or "html"
  Str with_log, with_profile; // of a run, for --report html; NULL: not given
  Str save_temps;
  Str program, data; // of --verify-run: a program compiled before; --data. NULL: none
  int64_t memory; // bytes, 0: no limit
  Recompute checkpoint;
  int64_t checkpoint_memory; // auto: bytes of a rank; 0: as `memory`
  int64_t global_batch, steps; // 0: as the model says
  int64_t tp, cp; // 0: 1
  bool sequence, heads, ring; // --sequence-parallel; --cp-attention alltoall and ring
  int64_t zero, zero_group, dp; // group 0: all ranks; dp 0: not given
  int64_t pp; // 0: not given
  Str schedule; // NULL: not given
  int pipe_kind, pipe_chunks; // from `schedule`: DtPipeKind, chunks a stage
  Str accumulate, gather; // "once", "each"; NULL: not given
  Str reduce; // --reduce-dtype: "fp32", "bf16"; NULL: not given
  bool accumulate_each, gather_once; // from the two words above
  int64_t in_flight; // microbatches; 0: 1
  int offload; // DtProgram.offload
} Options;

// Parses argv. Returns 0, or EXIT_USAGE after a message on stderr.
int options_parse(Options *o, Arena *a, int argc, char **argv);
void options_help(FILE *out);

#endif
