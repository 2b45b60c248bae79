// The variables of the environment that choose how a run computes: a value that is none of the choices is
// refused, not taken for the default.
#include "runtime/files/json.h"
#include "runtime/train/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 5 };
static const struct {
  const char *name, *value[CHOICES];
} variables[] = {
    {"DT_GEMM", {"own", "dnnl"}},
    {"DT_GEMM_BF16", {"float", "vector", "tile"}},
    {"DT_COMM", {"mpi"}},
    {"DT_ORDER", {"0", "1", "2", "3"}}, // of a block's threads, in an emulated GPU
    {"DT_DEVICE_SHARE", {"1"}},
    {"DTC_CPU_LEVEL", {"1", "2", "3", "4"}},
};

static bool is_choice(const char *const *value, const char *text) {
  for (int i = 0; i < CHOICES && value[i]; i++)
    if (strcmp(value[i], text) == 0) return true;
  return false;
}

static int read_slice(DtError *e) {
  const char *text = getenv("DT_OFFLOAD_SLICE");
  char *end = NULL;
  if (!text || !*text) return 0;
  dt_slice_bytes = strtoll(text, &end, 10);
  if (!*end && dt_slice_bytes > 0 && dt_slice_bytes % 4096 == 0 && dt_slice_bytes <= 1 << 30) return 0;
  return dt_fail(e, DT_EXIT_USAGE, "DT_OFFLOAD_SLICE=%s is not a number of bytes, a multiple of 4096", text);
}

int dt_environment_check(DtError *e) {
  for (size_t k = 0; k < sizeof variables / sizeof *variables; k++) {
    const char *text = getenv(variables[k].name), *const *value = variables[k].value;
    if (!text || !*text || is_choice(value, text)) continue;
    char list[64], shown[64];
    size_t n = 0;
    dt_json_escape(shown, sizeof shown, text);
    for (int i = 0; i < CHOICES && value[i]; i++)
      n += (size_t)snprintf(list + n, sizeof list - n, "%s'%s'", i ? ", " : "", value[i]);
    return dt_fail(e, DT_EXIT_USAGE, "%s=%s: it may be %s, or not be set", variables[k].name, shown,
                   list);
  }
  return read_slice(e);
}
