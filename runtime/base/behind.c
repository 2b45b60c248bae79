#include "runtime/base/behind.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>

enum { LOOK_MS = 1000, NICE = 10 };

static void wait_for(DtCounter *c, uint64_t value) {
  for (uint64_t now; (now = dt_counter_get(c)) < value;) dt_counter_sleep(c, now, LOOK_MS);
}

static void *work(void *of) {
  DtBehind *b = of;
  setpriority(PRIO_PROCESS, 0, NICE); // of this thread; the steps' threads need all of their processors
  for (uint64_t n = 1;; n++) {
    wait_for(&b->asked, n);
    if (b->leaving) return NULL;
    b->job(b->of, &b->error);
    dt_counter_set(&b->done, n);
  }
}

int dt_behind_open(DtBehind *b, DtError *e) {
  sigset_t all, before;
  *b = (DtBehind){.open = false};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&b->thread, NULL, work, b);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  b->open = !failed;
  return failed ? dt_fail(e, DT_EXIT_OS, "cannot start the thread that writes checkpoints: %s", strerror(failed)) : 0;
}

void dt_behind_close(DtBehind *b) {
  DtError ignored = {0};
  if (!b->open) return;
  dt_behind_end(b, &ignored);
  b->leaving = true;
  dt_counter_ring(&b->asked);
  pthread_join(b->thread, NULL);
  b->open = false;
}

void dt_behind_begin(DtBehind *b, DtBehindJob *job, void *of) {
  b->job = job;
  b->of = of;
  b->error = (DtError){.status = 0};
  b->under_way = true;
  dt_counter_ring(&b->asked);
}

DtBehindState dt_behind_state(DtBehind *b) {
  if (!b->under_way) return DT_BEHIND_IDLE;
  if (dt_counter_get(&b->done) < dt_counter_get(&b->asked)) return DT_BEHIND_BUSY;
  return b->error.status ? DT_BEHIND_FAILED : DT_BEHIND_DONE;
}

int dt_behind_end(DtBehind *b, DtError *e) {
  if (!b->under_way) return 0;
  wait_for(&b->done, dt_counter_get(&b->asked));
  b->under_way = false;
  if (b->error.status && !e->status) *e = b->error;
  return e->status;
}
