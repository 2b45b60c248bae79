// Exit statuses of the training program, and how a failure travels up to the one place that prints
// it.
#ifndef DTC_RUNTIME_ERROR_H
#define DTC_RUNTIME_ERROR_H

// doc/training.md explains each to users; numbers follow sysexits.h where it has one.
enum {
  DT_EXIT_OK = 0,
  DT_EXIT_USAGE = 64,
  DT_EXIT_CONTENT = 65, // data, weights or checkpoint have wrong content
  DT_EXIT_MISSING = 66, // an input is not there
  DT_EXIT_PEER = 69, // a peer was lost or silent
  DT_EXIT_BUG = 70,
  DT_EXIT_OS = 71,        // the system refuses memory, threads, ...
  DT_EXIT_CREATE = 73,    // an output cannot be created
  DT_EXIT_IO = 74,        // reading or writing failed
  DT_EXIT_STOPPED = 75,   // a signal; state saved where --save says so
  DT_EXIT_DISAGREE = 76,  // ranks run other builds, layouts, options or data
  DT_EXIT_MISFIT = 78,    // the launch does not fit the program
  DT_EXIT_NOT_FINITE = 79 // loss or gradient norm
};

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
