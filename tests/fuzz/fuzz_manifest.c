// Manifests of checkpoints from anywhere, under a last line that guards them: what is accepted names no
// file outside the folder, and its numbers can be used: a run that goes on from it takes samples that there are.
#include "runtime/data/data.h"
#include "runtime/files/manifest.h"
#include "runtime/pipeline/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void use(const DtManifest *m) {
  enum { BATCH = 1 << 30, COUNT = 50 };
  DtDataset d = {.count = COUNT};
  int64_t samples = m->samples, step = m->step;
  for (int i = 0; i < 3; i++, step++, samples += BATCH)
    for (int k = 0; k < 2; k++) {
      int64_t s = dt_dataset_sample(&d, samples + k * (BATCH - 1), (uint64_t)m->seed, i & 1);
      double rate = dt_rate(DT_COSINE, 1, 10, 100, 0, step);
      if (s < 0 || s >= COUNT || !(rate >= 0 && rate <= 1)) abort();
    }
  int64_t bytes = 0;
  for (int64_t i = 0; i < m->nparts && i < 9; i++) bytes += m->part[i].bytes;
  if (bytes < 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  enum { MORE = 64 };
  char *text = malloc(size + MORE);
  if (!text) return 0;
  memcpy(text, bytes, size);
  text[size] = '\n';
  int n = snprintf(text + size + 1, MORE - 1, "\"check\":\"%016llx\"}\n",
                   (unsigned long long)dt_hash(text, size + 1));
  DtManifest m;
  DtError e = {0};
  if (dt_manifest_parse(&m, text, size + 1 + (size_t)n, "fuzz", &e) == 0) {
    if (m.step < 0 || m.samples < 0 || m.moments < 0 || m.moments > DT_MAX_MOMENTS) abort();
    for (int64_t i = 0; i < m.nparts; i++) {
      const char *file = m.file[i];
      if (!*file || strchr(file, '/') || strcmp(file, ".") == 0 || strstr(file, "..")) abort();
      if (m.part[i].bytes < 0 || m.part[i].file != file) abort();
    }
    use(&m);
  } else if (e.status == 0 || !e.text[0]) {
    abort(); // a refusal says why
  }
  dt_manifest_free(&m);
  free(text);
  return 0;
}
