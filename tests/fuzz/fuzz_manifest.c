// Manifests of checkpoints from anywhere, under a last line that guards them: what is accepted names no
// file outside the folder.
#include "runtime/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
  } else if (e.status == 0 || !e.text[0]) {
    abort(); // a refusal says why
  }
  dt_manifest_free(&m);
  free(text);
  return 0;
}
