// Ranks that torchrun, Slurm, Open MPI or MPICH start on one machine find one another by the
// environment; what does not fit is refused.
#define _GNU_SOURCE
#include "support/check.h"
#include "support/worlds.h"
#include "runtime/control.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char job[32]; // another in every run of this test

static void set(const char *name, int v) {
  char text[16];
  snprintf(text, sizeof text, "%d", v);
  setenv(name, text, 1);
}

static void nothing(void) {
  static const char *const all[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "PMIX_NAMESPACE",
                                    "PMI_SIZE",
                                    "PMI_RANK",
                                    "MPI_LOCALNRANKS",
                                    "MPI_LOCALRANKID",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_NNODES",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEPID",
                                    "ENVIRONMENT"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) unsetenv(all[i]);
}

static void torchrun(int rank, int ranks) {
  set("RANK", rank);
  set("WORLD_SIZE", ranks);
  set("LOCAL_RANK", rank);
  set("LOCAL_WORLD_SIZE", ranks);
  setenv("MASTER_ADDR", "some-name.example", 1);
  setenv("MASTER_PORT", "29511", 1);
  setenv("TORCHELASTIC_RUN_ID", job, 1);
}
static void by_hand(int rank, int ranks) {
  set("RANK", rank);
  set("WORLD_SIZE", ranks);
  setenv("MASTER_PORT", job, 1);
}
// An address of this machine that is not the loopback interface's; "" where it has none.
static char outward[INET_ADDRSTRLEN];
static void find_outward(void) {
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) != 0) return;
  for (const struct ifaddrs *i = all; i && !outward[0]; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
    const struct sockaddr_in *a = (const void *)i->ifa_addr;
    if (ntohl(a->sin_addr.s_addr) >> 24 != 127)
      inet_ntop(AF_INET, &a->sin_addr, outward, sizeof outward);
  }
  freeifaddrs(all);
}
static void by_address(int rank, int ranks) {
  by_hand(rank, ranks);
  setenv("MASTER_ADDR", outward, 1);
}
static void by_far_address(int rank, int ranks) { // RFC 5737: nobody's
  by_hand(rank, ranks);
  setenv("MASTER_ADDR", "203.0.113.77", 1);
}
static void open_mpi(int rank, int ranks) {
  set("OMPI_COMM_WORLD_RANK", rank);
  set("OMPI_COMM_WORLD_SIZE", ranks);
  set("OMPI_COMM_WORLD_LOCAL_RANK", rank);
  set("OMPI_COMM_WORLD_LOCAL_SIZE", ranks);
  setenv("PMIX_NAMESPACE", job, 1);
}
static void mpich(int rank, int ranks) {
  set("PMI_RANK", rank);
  set("PMI_SIZE", ranks);
  set("MPI_LOCALRANKID", rank);
  set("MPI_LOCALNRANKS", ranks);
}
static void slurm(int rank, int ranks) {
  set("SLURM_PROCID", rank);
  set("SLURM_NTASKS", ranks);
  set("SLURM_LOCALID", rank);
  set("SLURM_NNODES", 1);
  setenv("SLURM_JOB_ID", job, 1);
  set("SLURM_STEP_ID", 0);
}
static void batch_script(int rank, int ranks) {
  (void)rank;
  set("SLURM_PROCID", 0);
  set("SLURM_NTASKS", ranks * 4);
  setenv("ENVIRONMENT", "BATCH", 1);
}

static int adds_up(void *ranks) {
  int32_t v = 1 << dt_world.rank, sum = 0, n = *(int *)ranks;
  DtNote note = {"sum", -1, NULL};
  dt_wait(dt_all_reduce(dt_group(15), DT_TYPE_I32, DT_SUM, &v, &sum, 1, note));
  return dt_world.size != n || sum != (1 << n) - 1 || dt_world.local_rank != dt_world.rank ||
         dt_world.local_size != n;
}

// One rank ends while the others wait for it.
static int lost(void *killed) {
  dt_barrier(dt_group(15));
  if (dt_world.rank == 1 && killed) raise(SIGKILL);
  if (dt_world.rank == 1) _exit(0);
  dt_barrier(dt_group(15));
  return 0;
}

// ---- What does not fit

static void not_all(int rank, int ranks) {
  torchrun(rank, ranks + 1); // the last one never comes
  set("LOCAL_WORLD_SIZE", ranks + 1);
}
static void twice(int rank, int ranks) {
  torchrun(rank ? 1 : 0, ranks); // ranks 0 1 1
}
static void other_size(int rank, int ranks) { torchrun(rank, ranks + rank); }
static void without_rank(int rank, int ranks) {
  (void)rank;
  set("WORLD_SIZE", ranks);
}
static void no_number(int rank, int ranks) {
  torchrun(rank, ranks);
  setenv("WORLD_SIZE", "two", 1);
}

static void other_way(int rank, int ranks) {
  torchrun(rank, ranks);
  setenv("DT_COMM", "pigeons", 1);
}
static void other_delay(int rank, int ranks) {
  torchrun(rank, ranks);
  setenv("DT_COMM_DELAY_MS", "20s", 1);
}
static void two_machines(int rank, int ranks) {
  torchrun(rank, ranks);
  set("LOCAL_WORLD_SIZE", 1);
}
static void two_machines_mpi(int rank, int ranks) {
  mpich(rank, ranks);
  set("MPI_LOCALNRANKS", 1);
  setenv("DT_MPI_PLUGIN", "/nowhere/dtc-mpich.so", 1);
}

static void check_refused(void (*variables)(int, int), int ranks, int status, const char *text) {
  size_t n;
  int s = in_launched(ranks, variables, adds_up, &ranks, "said");
  char *said = read_whole("said", &n);
  if (s != status) fprintf(stderr, "status %d, expected %d: %s\n", s, status, said);
  CHECK(s == status);
  CHECK_SAYS(said, text);
  free(said);
}

int main(void) {
  void (*const launcher[])(int, int) = {torchrun, by_hand, open_mpi, mpich, slurm};
  check_folder();
  nothing();
  int ranks;
  for (size_t i = 0; i < sizeof launcher / sizeof *launcher; i++)
    for (ranks = 1; ranks <= 5; ranks += 2) {
      snprintf(job, sizeof job, "%d", (int)getpid() * 10 + ranks);
      CHECK(in_launched(ranks, launcher[i], adds_up, &ranks, NULL) == 0);
    }
  find_outward();
  ranks = 3;
  CHECK(!outward[0] || in_launched(ranks, by_address, adds_up, &ranks, NULL) == 0);
  check_refused(by_far_address, 2, DT_EXIT_MISFIT, "RANK and WORLD_SIZE name 2 ranks, not all");
  ranks = 1;
  CHECK(in_launched(1, batch_script, adds_up, &ranks, NULL) == 0);
  snprintf(job, sizeof job, "faults %d", (int)getpid());
  CHECK(in_launched(3, torchrun, lost, NULL, "said") == DT_EXIT_PEER);
  CHECK(in_launched(3, torchrun, lost, "killed", "said") == -1);
  check_refused(not_all, 2, DT_EXIT_PEER, "after 6 s these ranks of 3 had not come to rank 0: 2");
  check_refused(twice, 3, DT_EXIT_MISFIT, "as rank 1 of 3, which has joined already");
  check_refused(other_size, 2, DT_EXIT_MISFIT, "a process joined rank 0 of 2 as rank 1 of 3");
  check_refused(without_rank, 1, DT_EXIT_MISFIT, "torchrun's variables say rank -1 of 1");
  check_refused(no_number, 1, DT_EXIT_MISFIT, "WORLD_SIZE=two is not a number");
  check_refused(other_way, 2, DT_EXIT_USAGE, "DT_COMM=pigeons: it may be 'mpi'");
  check_refused(other_delay, 2, DT_EXIT_USAGE, "DT_COMM_DELAY_MS=20s is not a number");
  check_refused(two_machines, 2, DT_EXIT_MISFIT,
                "ranks on several machines are started by mpirun or srun");
  check_refused(two_machines_mpi, 2, DT_EXIT_OS,
                "cannot load the MPI plug-in: /nowhere/dtc-mpich.so");
  return check_done();
}
