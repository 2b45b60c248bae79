// What tests of pass shard share: examples in the global form on a mesh.
#ifndef DTC_TEST_MESH_H
#define DTC_TEST_MESH_H

#include "load.h"

// Under the sanitizers, which take many times as long, one case in so many is run.
#ifdef __SANITIZE_ADDRESS__
enum { SPARSE = 3 };
#else
enum { SPARSE = 1 };
#endif

enum { MAX_DEFINES = 12 };

typedef struct Mesh {
  const char *name;
  int64_t tp, cp;
  bool sequence, heads, ring; // of tp; of cp
} Mesh;

// The model of PATH.dt in the sources, up to pass simplify, in float64; define ends with NULL, or
// is NULL. NULL after a message.
Module *mesh_compile(Arena *a, const char *path, const char *const *define);
// The same in the global form on a mesh, verified. *exact (may be NULL): its plans were proved to
// be least ones. *refused (may be NULL): rightly so, as it has no products or no
// sequence, or an odd one.
Module *mesh_shard(Arena *a, const char *path, const char *const *define, const Mesh *k,
                   bool *exact, bool *refused);
double mesh_now(void); // seconds

#endif
