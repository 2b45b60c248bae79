// Reads tensors from files into this rank's pieces of them.
#ifndef DTC_RUNTIME_LOAD_H
#define DTC_RUNTIME_LOAD_H

#include "runtime/model/weights.h"

// Files whose tensors belong together: one that was exported, or the parts of a checkpoint.
typedef struct DtFiles {
  DtWeights *file;
  const char **path; // of each; the strings are `paths`
  char *paths;
  DtTensor *tensor; // of all files, by name
  int64_t nfile, n;
  const char *what; // names all of it in messages: the caller's
} DtFiles;

// Opens the files name[0 .. n) of a folder (NULL: they are paths). 65 where one holds what it should
// not, or two the same tensor; 66, 74. dt_files_close in either case.
int dt_files_open(DtFiles *f, const char *folder, const char *const *name, int64_t n,
                  const char *what, DtError *e);
void dt_files_close(DtFiles *f);

// Whether the files hold exactly these tensors, in their shapes, as real numbers of any precision. 65
// names the tensors that are missing, unknown or of another shape.
int dt_files_check(const DtFiles *f, const DtTensor *tensor, int64_t n, DtError *e);

// Fills what this rank holds of a region from tensors of these names, one for each instance, which
// are there. Padding becomes 0. With DT_MASTER also the parameters, which are the masters rounded. Fails where offloaded
// state does.
int dt_files_fill(const DtFiles *f, const DtTensor *tensor, DtRun *r, DtRegion region, DtError *e);

#endif
