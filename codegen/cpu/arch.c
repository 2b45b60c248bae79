// Processors that kernels can be compiled for, and what a program needs of the one that it runs on.
#include "codegen/cpu/target.h"
#include "runtime/device/cpu/level.h"
#include "runtime/program.h"

bool cpu_known(Str arch) {
  static const char *const name[] = {
      "native",         "x86-64",         "x86-64-v2",     "x86-64-v3",     "x86-64-v4",
      "nehalem",        "sandybridge",    "ivybridge",     "haswell",       "broadwell",
      "skylake",        "skylake-avx512", "cascadelake",   "cooperlake",    "icelake-client",
      "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids", "alderlake",
      "znver1",         "znver2",         "znver3",        "znver4",        "znver5"};
  for (unsigned i = 0; i < sizeof name / sizeof *name; i++)
    if (!strcmp(arch, name[i])) return true;
  return false;
}

int cpu_vector_bits(Str arch) {
  static const char *const none[] = {"x86-64", "x86-64-v2", "nehalem", "sandybridge", "ivybridge"};
  static const char *const avx2[] = {"x86-64-v3", "haswell", "broadwell", "skylake",
                                     "alderlake", "znver1",  "znver2",    "znver3"};
  if (!strcmp(arch, "native")) {
    __builtin_cpu_init();
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return v4 ? 512 : __builtin_cpu_supports("avx2") ? 256 : 128;
  }
  for (unsigned i = 0; i < sizeof none / sizeof *none; i++)
    if (!strcmp(arch, none[i])) return 128;
  for (unsigned i = 0; i < sizeof avx2 / sizeof *avx2; i++)
    if (!strcmp(arch, avx2[i])) return 256;
  return 512;
}

// The level of a named processor (runtime/device/cpu/level.h); 0 for native, or what is no x86-64.
static int level_of(Str arch) {
#if defined(__x86_64__)
  if (strcmp(arch, "native") != 0) {
    int bits = cpu_vector_bits(arch);
    return bits == 512 ? 4 : bits == 256 ? 3 : 1;
  }
#endif
  (void)arch;
  return 0;
}

#define SSE4    "sse3 ssse3 sse4.1 sse4.2 popcnt"
#define ICELAKE "avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq gfni"

#define RAPIDS  " avx512bf16 avx512fp16 avxvnni"

static bool multiplies_bf16(const Plan *p) {
  for (uint32_t f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; i < p->fn[f].kernel.n; i++) {
      const Kernel *k = &p->fn[f].kernel.at[i];
      if (k->kind == K_GEMM && p->m->fn.at[f].value.at[k->gemm.a].type == DT_BF16) return true;
    }
  return false;
}

// Features beyond the processor's level, for dt_cpu_has; of native all that this machine has. AMX only where products use
// it: not every virtual machine of such a processor has it.
static void features_of(Str arch, bool bf16, char *out, size_t size) {
  static const struct {
    const char *arch, *needs;
  } more[] = {{"x86-64-v2", SSE4},
              {"nehalem", SSE4},
              {"sandybridge", SSE4 " avx"},
              {"ivybridge", SSE4 " avx f16c"},
              {"alderlake", "avxvnni gfni"},
              {"cascadelake", "avx512vnni"},
              {"cooperlake", "avx512vnni avx512bf16"},
              {"icelake-client", ICELAKE},
              {"icelake-server", ICELAKE},
              {"sapphirerapids", ICELAKE RAPIDS},
              {"emeraldrapids", ICELAKE RAPIDS},
              {"graniterapids", ICELAKE RAPIDS},
              {"znver4", ICELAKE " avx512bf16"},
              {"znver5", ICELAKE " avx512bf16 avxvnni"}};
  out[0] = 0;
  if (!strcmp(arch, "native")) dt_cpu_features(out, size);
  for (unsigned i = 0; i < sizeof more / sizeof *more; i++)
    if (!strcmp(arch, more[i].arch))
      snprintf(out, size, "%s%s", more[i].needs, bf16 && strstr(more[i].needs, RAPIDS) ? " amx-bf16" : "");
}

// What the kernels may use of the processor.
void cpu_program(DtProgram *p, const Plan *plan, Str arch) {
  char features[512] = "";
  p->device_level = level_of(arch);
  features_of(arch, multiplies_bf16(plan), features, sizeof features);
  if (features[0]) p->device_features = str_intern(features);
}
