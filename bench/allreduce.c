// Times an all-reduce (sum of floats, in place and not) on local ranks: allreduce RANKS MEGABYTES
// ROUNDS. Over dtc's shared memory, or, compiled with -DBENCH_MPI, over MPI_Allreduce (then mpirun
// starts the ranks). bench/allreduce.sh builds and runs both.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef BENCH_MPI
#include <mpi.h>
#else
#include "runtime/control.h"
#endif

enum { MOST_ROUNDS = 1001 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#ifdef BENCH_MPI
static int start(int ranks) {
  int rank;
  (void)ranks;
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void all_reduce(float *in, float *out, long n) {
  MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void stop(void) { MPI_Finalize(); }
static const char *name = "MPI";
#else
static int start(int ranks) {
  static const DtProgram p;
  DtError e = {0};
  if (dt_comm_start(&p, ranks, 0, &e)) {
    dt_report(&e);
    exit(e.status);
  }
  return dt_world.rank;
}
static void barrier(void) { dt_barrier(dt_group(15)); }
static void all_reduce(float *in, float *out, long n) {
  DtNote note = {"bench", -1, NULL};
  dt_wait(dt_all_reduce(dt_group(15), DT_TYPE_F32, DT_SUM, in, out, n, note));
}
static void stop(void) { dt_comm_stop(); }
static const char *name = "dtc";
#endif

static int by_size(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void measure(int rank, float *in, float *out, long n, int rounds) {
  static double took[MOST_ROUNDS];
  for (int i = -2; i < rounds; i++) {
    barrier();
    double t = now();
    all_reduce(in, out, n);
    barrier(); // the slowest rank counts
    if (i >= 0) took[i] = now() - t;
  }
  qsort(took, (size_t)rounds, sizeof *took, by_size);
  if (rank == 0)
    printf("%s %s: median %.2f ms, least %.2f ms\n", name, in == out ? "in place" : "out of place",
           took[rounds / 2] * 1e3, took[0] * 1e3);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: allreduce RANKS MEGABYTES ROUNDS\n");
    return 64;
  }
  long n = (long)(atof(argv[2]) * (1 << 20) / sizeof(float));
  int rounds = atoi(argv[3]), rank = start(atoi(argv[1]));
  if (rounds < 1 || rounds > MOST_ROUNDS || n < 1) return 64;
  float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
  float *y = aligned_alloc(64, ((size_t)n * sizeof *y + 63) / 64 * 64);
  for (long i = 0; i < n; i++) x[i] = (float)(i % 7 + rank), y[i] = 0;
  measure(rank, x, y, n, rounds);
  memset(x, 0, (size_t)n * sizeof *x);
  measure(rank, x, x, n, rounds);
  fflush(stdout);
  stop();
  return 0;
}
