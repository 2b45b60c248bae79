// How fast a disk takes the slices of --offload: slices FOLDER MIB ARRAYS ROUNDS.
//
// A file of MIB MiB in FOLDER, in slices of ARRAYS MiB. Prints one JSON object with seconds, the medians over ROUNDS: of
// reading the file and of writing it, one request after the other; of reading and writing it at once, by a thread each, as
// an update does, which is the floor of an update's I/O; and of the runtime's slices (runtime/files/slices.h), which add
// checksums and the hand-over, with nothing computed.
#define _GNU_SOURCE
#include "runtime/files/slices.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 100 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, order);
  return v[n / 2];
}

typedef struct Job {
  int fd;
  bool writes;
  int64_t bytes, each;
  char *buffer;
} Job;

static void *transfer(void *of) {
  const Job *j = of;
  for (int64_t at = 0; at < j->bytes; at += j->each) {
    ssize_t n = j->writes ? pwrite(j->fd, j->buffer, (size_t)j->each, at) : pread(j->fd, j->buffer, (size_t)j->each, at);
    if (n != j->each) perror("slices"), exit(1);
  }
  return NULL;
}

static double both(Job *read, Job *write) {
  pthread_t thread;
  double began = now();
  if (pthread_create(&thread, NULL, transfer, read)) abort();
  transfer(write);
  pthread_join(thread, NULL);
  return now() - began;
}

static double alone(Job *j) {
  double began = now();
  transfer(j);
  return now() - began;
}

static double visit_all(DtSlices *s) {
  DtError e = {0};
  double began = now();
  for (int64_t i = 0; i < s->plan.n; i++)
    if (!dt_slices_visit(s, i, &e)) fprintf(stderr, "%s\n", e.text), exit(1);
  dt_slices_leave(s);
  return now() - began;
}

int main(int argc, char **argv) {
  if (argc != 5) return fprintf(stderr, "slices FOLDER MIB ARRAYS ROUNDS\n"), 64;
  int arrays = atoi(argv[3]), rounds = atoi(argv[4]) < MOST ? atoi(argv[4]) : MOST;
  DtSlicePlan plan = dt_slice_plan(arrays, (int64_t)atoi(argv[2]) / arrays << 20);
  double read[MOST], write[MOST], at_once[MOST], slices[MOST];
  DtSlices s;
  DtError e = {0};
  char *memory = aligned_alloc(4096, (size_t)plan.memory), *out = aligned_alloc(4096, (size_t)(arrays * plan.slice));
  char *in = aligned_alloc(4096, (size_t)(arrays * plan.slice));
  int64_t *all = calloc((size_t)plan.n, sizeof *all);
  if (!memory || !out || !in || !all) abort();
  for (int64_t i = 0; i < plan.n; i++) all[i] = i;
  memset(out, 0, (size_t)(arrays * plan.slice)); // what the checksums of a new file are of
  if (dt_slices_open(&s, plan, argv[1], 0, memory, &e)) return fprintf(stderr, "%s\n", e.text), 1;
  Job r = {s.fd, false, plan.file, arrays * plan.slice, in}, w = {s.fd, true, plan.file, arrays * plan.slice, out};
  transfer(&w); // the first time a file system writes what it has reserved takes longer
  for (int i = 0; i < rounds; i++) {
    read[i] = alone(&r);
    write[i] = alone(&w);
    at_once[i] = both(&r, &w);
  }
  if (dt_slices_start(&s, all, plan.n, &e)) return fprintf(stderr, "%s\n", e.text), 1;
  for (int i = 0; i < rounds; i++) slices[i] = visit_all(&s);
  printf("{\"bytes\":%lld,\"direct\":%s,\"read\":%.4f,\"write\":%.4f,\"both\":%.4f,\"slices\":%.4f}\n", (long long)plan.file,
         fcntl(s.fd, F_GETFL) & O_DIRECT ? "true" : "false", median(read, rounds), median(write, rounds),
         median(at_once, rounds), median(slices, rounds));
  dt_slices_close(&s);
  free(memory);
  free(in);
  free(out);
  free(all);
  return 0;
}
