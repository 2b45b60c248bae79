// Variables of launchers in the environment.
#define _GNU_SOURCE
#include "runtime/comm/world_start.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// The number in a variable, or -1 where it is not set. Any other text than a number is an error.
static int number(const char *name, DtError *e) {
  const char *text = getenv(name);
  if (!text || !*text) return -1;
  char *end;
  errno = 0;
  long v = strtol(text, &end, 10);
  if (*end || errno || v < 0 || v > INT_MAX) {
    dt_fail(e, DT_EXIT_MISFIT, "%s=%s is not a number of ranks", name, text);
    return -1;
  }
  return (int)v;
}

static int first_number(const char *a, const char *b, DtError *e) {
  int v = number(a, e);
  return v >= 0 || e->status ? v : number(b, e);
}

static const char *text_or(const char *name, const char *otherwise) {
  const char *t = getenv(name);
  return t && *t ? t : otherwise;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b) {
  if (!a || !b || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr,
                  &((const struct sockaddr_in *)(const void *)b)->sin_addr,
                  sizeof(struct in_addr)) == 0;
  return a->sa_family == AF_INET6 &&
         memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
                sizeof(struct in6_addr)) == 0;
}

// Whether an interface of this machine has an address of `host`, a number or a name.
static bool own_address(const char *host) {
  struct addrinfo *named = NULL, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  struct ifaddrs *own = NULL;
  bool found = false;
  if (getaddrinfo(host, NULL, &hints, &named) != 0) return false;
  if (getifaddrs(&own) != 0) own = NULL;
  for (const struct addrinfo *n = named; n && !found; n = n->ai_next)
    for (const struct ifaddrs *i = own; i && !found; i = i->ifa_next)
      found = same_address(n->ai_addr, i->ifa_addr);
  if (own) freeifaddrs(own);
  freeaddrinfo(named);
  return found;
}

static bool here(const char *host) {
  char own[256] = "";
  gethostname(own, sizeof own - 1);
  return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
         strcmp(host, "::1") == 0 || strcmp(host, own) == 0 || own_address(host);
}

// torchrun's, and what people set by hand for it. Without LOCAL_WORLD_SIZE all ranks are here where
// the master is.
static int torchrun(DtLaunch *l, DtError *e) {
  l->rank = number("RANK", e);
  l->size = number("WORLD_SIZE", e);
  l->local_rank = number("LOCAL_RANK", e);
  l->local_size = number("LOCAL_WORLD_SIZE", e);
  if (e->status || (l->rank < 0 && l->size < 0)) return e->status;
  l->launcher = "torchrun";
  const char *master = text_or("MASTER_ADDR", "localhost");
  if (l->local_size < 0) l->local_size = here(master) ? l->size : 0;
  if (l->local_rank < 0) l->local_rank = l->rank;
  snprintf(l->job, sizeof l->job, "torchrun %.60s %.8s %.40s %.8s", master,
           text_or("MASTER_PORT", "29500"), text_or("TORCHELASTIC_RUN_ID", ""),
           text_or("TORCHELASTIC_RESTART_COUNT", ""));
  if (getenv("TORCHELASTIC_RUN_ID")) l->parent = (int)getppid();
  return 0;
}

static int open_mpi(DtLaunch *l, DtError *e) {
  l->size = number("OMPI_COMM_WORLD_SIZE", e);
  l->rank = number("OMPI_COMM_WORLD_RANK", e);
  l->local_size = number("OMPI_COMM_WORLD_LOCAL_SIZE", e);
  l->local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK", e);
  if (e->status || l->size < 0) return e->status;
  l->launcher = "Open MPI";
  l->parent = (int)getppid();
  char parent[24];
  snprintf(parent, sizeof parent, "%d", (int)getppid());
  snprintf(l->job, sizeof l->job, "ompi %.100s %.40s", text_or("PMIX_NAMESPACE", ""),
           getenv("PMIX_NAMESPACE") ? text_or("PMIX_HOSTNAME", "") : parent);
  return 0;
}

// MPICH's Hydra, and what speaks its protocol.
static int hydra(DtLaunch *l, DtError *e) {
  l->size = number("PMI_SIZE", e);
  l->rank = number("PMI_RANK", e);
  l->local_size = number("MPI_LOCALNRANKS", e);
  l->local_rank = number("MPI_LOCALRANKID", e);
  if (e->status || l->size < 0) return e->status;
  if (l->local_size < 0 && getenv("SLURM_PROCID")) { // srun --mpi=pmi2: Slurm says where we are
    l->size = -1;
    return 0;
  }
  l->launcher = "MPICH";
  // All ranks here have inherited one connection to the proxy that started them; without it, they
  // are its children.
  char path[64], same[100] = "";
  snprintf(path, sizeof path, "/proc/self/fd/%.10s", text_or("HYDI_CONTROL_FD", "none"));
  if (readlink(path, same, sizeof same - 1) < 0) snprintf(same, sizeof same, "%d", (int)getppid());
  snprintf(l->job, sizeof l->job, "mpich %s", same);
  return 0;
}

// Entry `node` of "4(x2),3": tasks on each node, equal ones counted.
static int tasks_on_node(const char *text, int node, DtError *e) {
  const char *all = text;
  for (long at = 0; text && *text;) {
    char *end;
    long tasks = strtol(text, &end, 10), times = 1;
    bool bad = end == text || tasks < 0 || tasks > INT_MAX;
    if (strncmp(end, "(x", 2) == 0) {
      times = strtol(end + 2, &end, 10);
      bad |= *end != ')' || times < 1 || times > INT_MAX;
      end += *end == ')';
    }
    if (bad || (*end && *end != ','))
      return dt_fail(e, DT_EXIT_MISFIT, "SLURM_TASKS_PER_NODE=%s is not a list of numbers", all);
    if (node < at + times) return (int)tasks;
    at += times;
    text = *end ? end + 1 : NULL;
  }
  return -1;
}

// Under srun. A batch script has most of its variables too, and is one process.
static int slurm(DtLaunch *l, DtError *e) {
  bool step = getenv("SLURM_STEP_ID") || getenv("SLURM_STEPID");
  if (!step && strcmp(text_or("ENVIRONMENT", ""), "BATCH") == 0) return 0;
  int rank = number("SLURM_PROCID", e);
  int size = first_number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", e);
  int nodes = first_number("SLURM_STEP_NUM_NODES", "SLURM_NNODES", e);
  int node = number("SLURM_NODEID", e);
  if (e->status || rank < 0 || size < 0) return e->status;
  const char *tasks = text_or("SLURM_STEP_TASKS_PER_NODE", getenv("SLURM_TASKS_PER_NODE"));
  *l = (DtLaunch){.launcher = "Slurm", .rank = rank, .size = size};
  l->local_rank = number("SLURM_LOCALID", e);
  l->local_size = nodes <= 1 ? size : tasks_on_node(tasks, node < 0 ? 0 : node, e);
  snprintf(l->job, sizeof l->job, "slurm %.60s %.60s", text_or("SLURM_JOB_ID", ""),
           text_or("SLURM_STEP_ID", text_or("SLURM_STEPID", "")));
  return e->status;
}

int dt_launch_read(DtLaunch *l, DtError *e) {
  static int (*const launchers[])(DtLaunch *, DtError *) = {torchrun, open_mpi, hydra, slurm};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    *l = (DtLaunch){.size = -1, .rank = -1};
    if (launchers[i](l, e)) return e->status;
    if (l->launcher) break;
  }
  if (!l->launcher) {
    *l = (DtLaunch){.size = 1, .local_size = 1};
    return 0;
  }
  if (l->size < 1 || l->rank < 0 || l->rank >= l->size)
    return dt_fail(e, DT_EXIT_MISFIT,
                   "%s's variables say rank %d of %d; both have to be there and fit (RANK and "
                   "WORLD_SIZE, OMPI_COMM_WORLD_RANK and _SIZE, PMI_RANK and PMI_SIZE, "
                   "SLURM_PROCID and SLURM_NTASKS)",
                   l->launcher, l->rank, l->size);
  if (l->local_size < 0) l->local_size = l->size;
  if (l->local_size > l->size)
    return dt_fail(e, DT_EXIT_MISFIT, "%s's variables say that %d of %d ranks are on this machine",
                   l->launcher, l->local_size, l->size);
  if (l->local_rank < 0) l->local_rank = l->local_size > 0 ? l->rank % l->local_size : 0;
  return 0;
}
