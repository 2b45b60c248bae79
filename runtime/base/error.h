// Exit statuses of the training program, and how a failure travels up to the one place that prints
// it.
#ifndef DTC_RUNTIME_ERROR_H
#define DTC_RUNTIME_ERROR_H

// Exit statuses: name, number, meaning. Numbers follow sysexits.h where it has one. --help prints the
// meanings, doc/training.md has them, and `dtc explain` adds causes and remedies.
#define DT_EXITS(X) \
  X(OK, 0, "done") \
  X(USAGE, 64, "the command line is wrong") \
  X(CONTENT, 65, "data, weights, a checkpoint or offloaded state are wrong") \
  X(MISSING, 66, "an input is missing") \
  X(PEER, 69, "a peer was lost or silent") \
  X(BUG, 70, "a bug in dtc") \
  X(OS, 71, "the system or a device refuses memory, threads or a library") \
  X(CREATE, 73, "an output cannot be created") \
  X(IO, 74, "reading or writing failed") \
  X(STOPPED, 75, "stopped by a signal; start it again with --resume") \
  X(DISAGREE, 76, "ranks disagree about build, layout, options, data or operations") \
  X(MISFIT, 78, "the launch does not fit the program: ranks, processor or GPU") \
  X(NOT_FINITE, 79, "the loss or the gradient norm is not finite")

#define DT_EXIT_ENUM(name, number, meaning) DT_EXIT_##name = number,
enum { DT_EXITS(DT_EXIT_ENUM) };

// A failure: the message for the user, naming file and cause. status 0: none.
typedef struct DtError {
  int status;
  int teller; // 1 + the rank whose failure it is, once ranks have agreed on that; or 0
  char text[1400];
} DtError;

// Fills *e and returns `status`, so that a function can `return dt_fail(e, ...)`.
int dt_fail(DtError *e, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

// As dt_fail, for a system call that failed on `path`: adds what errno says.
int dt_fail_errno(DtError *e, int status, const char *what, const char *path);

// "train: ..." lines on stderr: a failure, with the rank that it happened to where that is known,
// and a remark that stops nothing.
void dt_report(const DtError *e);
void dt_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
