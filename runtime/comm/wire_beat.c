// Signs of life between ranks on several machines. Every rank sends every other one a short message
// now and then, by the thread that communicates: while it waits, and while it has nothing to do.
// A rank that sends no more messages does not run. A rank's last message says that it leaves.
//
// Time is counted in looks of this process, none longer than a few hundred milliseconds, not by the
// clock: when all ranks are stopped and continued together none of them has been silent.
#define _GNU_SOURCE
#include "runtime/comm/wire.h"

#include "runtime/base/trace.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  TAG = 32767,      // operations use those below
  BEAT_MS = 400,    // between two signs of life in a world of up to FEW ranks
  FEW = 64,         // in larger ones they are rarer, so that each rank sends as many a second
  BACKLOG = 16,     // most signs of one rank that are taken at one look
  GOODBYE_MS = 5000 // after its last message, what a rank had sent before has come
};

typedef struct {
  int32_t leaves, unused;
  DtDoing doing;
} Sign;

static struct {
  const DtMpi *mpi;
  int n, first; // ranks; the first request
  Sign *in;     // [n], where the next one of each rank goes
  Sign *out;    // [n], under way
  Sign *last;   // [n], that came
  bool *sending, *receiving, *informed; // informed: that this rank leaves
  double *still; // [n], seconds since the last one
  double *gone;  // [n], seconds since the last message, which said that it leaves
  int64_t looked, sent;
  Sign mine;
} beat;

static int request_in(int rank) { return beat.first + rank; }
static int request_out(int rank) { return beat.first + beat.n + rank; }

static _Noreturn void broken(void) {
  dt_comm_end(DT_EXIT_PEER, "%s: %s", beat.mpi->name, beat.mpi->error());
}

static void expect(int rank) {
  if (beat.mpi->receive(request_in(rank), rank, &beat.in[rank], sizeof(Sign), TAG)) broken();
  beat.receiving[rank] = true;
}

// Sends to all ranks that still listen, unless the message before is still on its way.
static void send_all(void) {
  for (int r = 0; r < beat.n; r++) {
    if (r == dt_world.rank || beat.sending[r] || beat.informed[r]) continue;
    beat.out[r] = beat.mine;
    beat.informed[r] = beat.mine.leaves;
    if (beat.mpi->send(request_out(r), r, &beat.out[r], sizeof(Sign), TAG)) broken();
    beat.sending[r] = true;
  }
}

static bool complete(int request) {
  int done = beat.mpi->test(request);
  if (done < 0) broken();
  return done > 0;
}

// Takes what came from a rank, and lets go of what has left for it.
static void take(int r) {
  if (beat.sending[r] && complete(request_out(r))) beat.sending[r] = false;
  for (int i = 0; i < BACKLOG && beat.receiving[r] && complete(request_in(r)); i++) {
    beat.receiving[r] = false;
    beat.last[r] = beat.in[r];
    beat.still[r] = 0;
    if (!beat.last[r].leaves) expect(r);
  }
}

static double interval_ms(void) {
  double ms = BEAT_MS * (beat.n > FEW ? (double)beat.n / FEW : 1), most = dt_comm_limit() * 250;
  return ms < most ? ms : most;
}

double dt_beat_rare(void) { return (interval_ms() + 2 * DT_LOOK_MS) * 2e-3; }

void dt_beat_doing(const DtOp *op) { dt_doing_operation(&beat.mine.doing, op); }

bool dt_beat_due(int64_t now) { return now - beat.looked >= DT_LOOK_MS * (int64_t)1000000; }

static void feel(void) {
  int64_t t = dt_nanoseconds(), most = 2 * DT_LOOK_MS * (int64_t)1000000;
  double passed = (double)dt_least(t - beat.looked, most) * 1e-9;
  beat.looked = t;
  for (int r = 0; r < beat.n; r++) {
    if (r == dt_world.rank) continue;
    beat.still[r] += passed;
    if (beat.last[r].leaves) beat.gone[r] += passed;
    take(r);
  }
}

void dt_beat_look(void) {
  feel();
  if ((double)(beat.looked - beat.sent) * 1e-6 < interval_ms()) return;
  beat.sent = beat.looked;
  dt_doing_activity(&beat.mine.doing);
  send_all();
}

int dt_beat_silent(double seconds) {
  int worst = -1;
  for (int r = 0; r < beat.n; r++)
    if (r != dt_world.rank && !beat.last[r].leaves && beat.still[r] > seconds &&
        (worst < 0 || beat.still[r] > beat.still[worst]))
      worst = r;
  return worst;
}

double dt_beat_still(int rank) { return beat.still[rank]; }
bool dt_beat_files(void) {
  bool any = false;
  for (int r = 0; r < beat.n; r++) {
    const DtDoing *d = &beat.last[r].doing;
    any |= r != dt_world.rank && !beat.last[r].leaves && d->kind < 0 && d->files;
  }
  return any;
}

bool dt_beat_left(int rank) { return beat.gone[rank] * 1e3 > GOODBYE_MS; }

void dt_beat_text(char *text, size_t n, int rank) {
  dt_doing_text(text, n, &beat.last[rank].doing);
}

int dt_beat_open(const DtMpi *mpi, int first_request, DtError *e) {
  size_t n = (size_t)dt_world.size;
  beat.mpi = mpi;
  beat.first = first_request;
  beat.n = dt_world.size;
  beat.in = calloc(n, sizeof *beat.in);
  beat.out = calloc(n, sizeof *beat.out);
  beat.last = calloc(n, sizeof *beat.last);
  beat.sending = calloc(n, sizeof *beat.sending);
  beat.receiving = calloc(n, sizeof *beat.receiving);
  beat.informed = calloc(n, sizeof *beat.informed);
  beat.still = calloc(n, sizeof *beat.still);
  beat.gone = calloc(n, sizeof *beat.gone);
  if (!beat.in || !beat.out || !beat.last || !beat.sending || !beat.receiving || !beat.informed ||
      !beat.still || !beat.gone)
    return dt_fail(e, DT_EXIT_OS, "no memory to watch %d ranks", beat.n);
  beat.mine.doing.kind = -1;
  for (int r = 0; r < beat.n; r++) {
    beat.last[r].doing = (DtDoing){.kind = -1, .activity = "starting"};
    if (r != dt_world.rank) expect(r);
  }
  beat.looked = beat.sent = dt_nanoseconds();
  return 0;
}

// Whether some rank does not know that this one leaves, or has not left itself.
static bool unfinished(void) {
  for (int r = 0; r < beat.n; r++)
    if (r != dt_world.rank && (!beat.informed[r] || beat.sending[r] || !beat.last[r].leaves))
      return true;
  return false;
}

int dt_beat_close(void) {
  beat.mine.leaves = 1;
  while (unfinished()) {
    send_all();
    feel();
    if (dt_beat_silent(dt_comm_limit()) >= 0) return -1;
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  free(beat.in);
  free(beat.out);
  free(beat.last);
  free(beat.sending);
  free(beat.receiving);
  free(beat.informed);
  free(beat.still);
  free(beat.gone);
  return 0;
}
