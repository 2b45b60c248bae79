// The plug-in: runtime/comm/mpi/plugin.h in terms of MPI.
#include "runtime/comm/mpi/plugin.h"

#include <mpi.h>

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static MPI_Comm world; // our own: messages of other libraries in the process do not meet ours
static MPI_Request *request;
static char text[MPI_MAX_ERROR_STRING + 64], name[MPI_MAX_LIBRARY_VERSION_STRING];

static int check(const char *what, int code) {
  if (code == MPI_SUCCESS) return 0;
  char why[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(code, why, &n);
  snprintf(text, sizeof text, "%s: %s", what, why);
  return -1;
}

static int start(int *rank, int *size, int requests) {
  int given;
  if (check("MPI_Init_thread", MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given))) return -1;
  if (given < MPI_THREAD_FUNNELED) {
    snprintf(text, sizeof text,
             "MPI_Init_thread: this MPI cannot be used in a process with threads");
    return -1;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (check("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &world))) return -1;
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world, rank);
  MPI_Comm_size(world, size);
  request = calloc((size_t)requests, sizeof *request);
  if (request) return 0;
  snprintf(text, sizeof text, "no memory for %d requests", requests);
  return -1;
}

static int send_to(int r, int to, const void *data, size_t bytes, int tag) {
  return check("MPI_Isend", MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, world, &request[r]));
}

static int receive_from(int r, int from, void *data, size_t bytes, int tag) {
  return check("MPI_Irecv", MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, world, &request[r]));
}

static int test(int r) {
  int done = 0;
  return check("MPI_Test", MPI_Test(&request[r], &done, MPI_STATUS_IGNORE)) ? -1 : done != 0;
}

// MPI_Finalize of MPICH over UCX closes connections, and then waits in its process manager, where
// it no longer looks at them: a rank whose connection a peer has closed first may wait without end
// (seen with MPICH 4.0.2, UCX 1.13 over TCP). All messages have been received when this is called,
// so there is nothing to close: this process tells Hydra that it ends well, in the words that
// MPI_Finalize uses in the end, and the system closes the rest. Returns 0 under other process
// managers.
__attribute__((unused)) static int leave_hydra(void) {
  static const char word[] = "cmd=finalize\n";
  const char *number = getenv("MPI_LOCALNRANKS") ? getenv("PMI_FD") : NULL; // both are Hydra's
  char answer[256], *end = NULL;
  long fd = number && *number ? strtol(number, &end, 10) : -1;
  if (fd < 0 || fd > INT_MAX || *end || write((int)fd, word, sizeof word - 1) != (ssize_t)sizeof word - 1) return 0;
  struct pollfd p = {.fd = (int)fd, .events = POLLIN};
  return poll(&p, 1, 10000) == 1 && read((int)fd, answer, sizeof answer) > 0;
}

static int finish(void) {
  free(request);
#ifdef MPICH_VERSION
  if (leave_hydra()) return 0;
#endif
  MPI_Comm_free(&world);
  return check("MPI_Finalize", MPI_Finalize());
}

static const char *error(void) { return text; }

static DtMpi plugin = {DT_MPI_INTERFACE, name, start, send_to, receive_from, test, finish, error};

__attribute__((visibility("default"))) const DtMpi *dt_mpi_plugin(void) {
  int n = 0;
  MPI_Get_library_version(name, &n);
  name[strcspn(name, ",\n\t")] = 0;
  return &plugin;
}
