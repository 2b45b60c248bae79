// What the runtime asks of an MPI: to move bytes, and nothing else.
//
// Programs are compiled without any MPI. plugin.c, the one file that includes mpi.h, is built once
// for each implementation, since their binary interfaces differ, and is loaded by runtime/comm/wire.c
// when ranks are on several machines. All functions are called by one thread.
#ifndef DTC_RUNTIME_MPI_PLUGIN_H
#define DTC_RUNTIME_MPI_PLUGIN_H

#include <stddef.h>

enum { DT_MPI_INTERFACE = 1 };

typedef struct DtMpi {
  int interface;    // DT_MPI_INTERFACE
  const char *name; // "Open MPI 4.1.4"
  // 0; or -1, and error() says why. `requests`: how many sends and receives may be under way.
  int (*start)(int *rank, int *size, int requests);
  // Begin a transfer of at most INT_MAX bytes as request number `request`, which is free; 0 or -1.
  // Those with one partner and tag (0 to 32767) arrive in the order of sending.
  int (*send)(int request, int to, const void *data, size_t bytes, int tag);
  int (*receive)(int request, int from, void *data, size_t bytes, int tag);
  int (*test)(int request); // 1: complete, and free; 0: not yet; -1
  int (*finish)(void);
  const char *(*error)(void);
} DtMpi;

// The one symbol of a plug-in.
typedef const DtMpi *DtMpiPlugin(void);
#define DT_MPI_SYMBOL "dt_mpi_plugin"

#endif
