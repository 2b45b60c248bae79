#define _GNU_SOURCE
#include "runtime/base/signals.h"

#include "runtime/comm/comm_op.h"
#include "runtime/base/error.h"
#include "runtime/base/trace.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

// A launcher and a terminal may both send the first signal to all processes: a signal within this
// time counts as the same request.
enum { SAME_REQUEST_SECONDS = 2 };

static volatile sig_atomic_t stop;
static volatile int64_t stopped_at; // nanoseconds
static volatile int64_t progress_step, progress_steps;

// Only what POSIX allows in a handler: no printf.
typedef struct {
  char text[400];
  size_t n;
} Line;

static void add(Line *l, const char *s) {
  while (*s && l->n < sizeof l->text - 1) l->text[l->n++] = *s++;
}

static void add_number(Line *l, int64_t v) {
  char digits[24];
  int i = sizeof digits - 1;
  digits[i] = 0;
  do digits[--i] = (char)('0' + v % 10);
  while ((v /= 10) > 0 && i > 0);
  add(l, digits + i);
}

static void send(Line *l) {
  add(l, "\n");
  ssize_t done = write(STDERR_FILENO, l->text, l->n);
  (void)done;
}

static void on_stop(int number) {
  int saved = errno;
  int64_t t = dt_nanoseconds();
  if (!stop) {
    stop = number;
    stopped_at = t;
  } else if (t - stopped_at >= (int64_t)SAME_REQUEST_SECONDS * 1000000000) {
    signal(number, SIG_DFL);
    raise(number);
  }
  errno = saved;
}

// The current operation of the communication thread, as far as it can be printed without printf.
static void add_operation(Line *l) {
  const DtOp *op = dt_comm_current();
  if (!op) return;
  add(l, ", in ");
  add(l, dt_op_name[op->kind]);
  if (op->note.what) add(l, " of "), add(l, op->note.what);
  if (op->note.layer >= 0) add(l, ", layer "), add_number(l, op->note.layer);
  add(l, " over "), add(l, op->g->axes);
  if (op->micro >= 0) add(l, ", microbatch "), add_number(l, op->micro);
  if (op->note.source) add(l, ", "), add(l, op->note.source);
}

static void on_report(int number) {
  int saved = errno;
  (void)number;
  Line l = {.n = 0};
  add(&l, "train: rank ");
  add_number(&l, dt_world.rank);
  add(&l, ": step ");
  add_number(&l, progress_step);
  add(&l, " of ");
  add_number(&l, progress_steps);
  add(&l, ", ");
  add(&l, dt_activity_now());
  add_operation(&l);
  if (stop) add(&l, ", asked to stop");
  send(&l);
  errno = saved;
}

static void on_bus(int number) {
  (void)number;
  Line l = {.n = 0};
  add(&l, "train: error: a mapped file became shorter or could not be read while ");
  add(&l, dt_activity_now());
  send(&l);
  _exit(DT_EXIT_IO);
}

bool dt_hangup_ignored(void) {
  struct sigaction a;
  return sigaction(SIGHUP, NULL, &a) == 0 && a.sa_handler == SIG_IGN;
}

void dt_signals_install(void) {
  static const struct {
    int number;
    void (*handler)(int);
  } table[] = {{SIGTERM, on_stop}, {SIGINT, on_stop}, {SIGHUP, on_stop}, {SIGUSR2, on_report}, {SIGBUS, on_bus},
               {SIGXFSZ, SIG_IGN}, {SIGPIPE, SIG_IGN}}; // these two: write() says it
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    struct sigaction a;
    if (table[i].number == SIGHUP && dt_hangup_ignored()) continue;
    memset(&a, 0, sizeof a);
    a.sa_handler = table[i].handler;
    a.sa_flags = SA_RESTART;
    sigemptyset(&a.sa_mask);
    sigaction(table[i].number, &a, NULL);
  }
}

int dt_stop_signal(void) { return stop ? stop : dt_comm_stop_request(); }
const char *dt_signal_name(int number) {
  return number == SIGINT ? "SIGINT" : number == SIGHUP ? "SIGHUP" : "SIGTERM";
}

void dt_signals_progress(int64_t step, int64_t steps) {
  progress_step = step;
  progress_steps = steps;
}
