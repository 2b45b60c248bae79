// Which instruction set the runtime's vector code uses.
#define _GNU_SOURCE
#include "runtime/device/cpu/level.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static atomic_int chosen; // 0: not chosen yet
static atomic_bool fixed;
static atomic_int named; // DtPairs of a fixed level

static int processor(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
    return 1;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return 4;
  return 3;
#else
  return 1;
#endif
}

// Whether AMX's tiles of bf16 are there. The kernel gives a process the registers when it asks for them.
static bool amx(void) {
#if defined(__x86_64__)
  enum { ASK = 0x1023, TILES = 18 }; // ARCH_REQ_XCOMP_PERM, the number of the tiles' state
  enum { BF16 = 1 << 22, TILE = 1 << 24 };
  static atomic_int known; // 0: not asked yet, 1: no, 2: yes
  int is = atomic_load(&known);
  if (is) return is == 2;
  unsigned a, b, c, d = 0;
  bool there = __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & BF16 && d & TILE &&
               syscall(SYS_arch_prctl, ASK, TILES) == 0;
  atomic_store(&known, there ? 2 : 1);
  return there;
#else
  return false;
#endif
}

// The level that the processor is to seem to have, at most.
static int limit(void) {
  const char *most = getenv("DTC_CPU_LEVEL");
  int level = most ? atoi(most) : 0;
  return level >= 1 ? level : DT_CPU_ANY_LEVEL;
}

static int best(void) {
  int have = processor();
  return limit() < have ? limit() : have;
}

int dt_cpu_level(int level) {
  int have = best();
  int use = level <= 0 || level > have ? have : level;
  if (use == 2) use = 1; // there is no separate code for SSE4
  atomic_store(&chosen, use);
  atomic_store(&fixed, level > 0);
  atomic_store(&named, DT_PAIRS_NONE);
  return use;
}

int dt_cpu_level_now(void) {
  int level = atomic_load_explicit(&chosen, memory_order_relaxed);
  return level ? level : dt_cpu_level(0);
}

bool dt_cpu_level_fixed(void) {
  return atomic_load_explicit(&fixed, memory_order_relaxed);
}

bool dt_cpu_has_pairs(DtPairs pairs) {
#if defined(__x86_64__)
  if (pairs == DT_PAIRS_NONE) return true;
  if (limit() <= 4 || processor() < 4) return false;
  return pairs == DT_PAIRS_BY_AMX ? amx() : __builtin_cpu_supports("avx512bf16");
#else
  return pairs == DT_PAIRS_NONE;
#endif
}

DtPairs dt_cpu_named_pairs(void) { return (DtPairs)atomic_load_explicit(&named, memory_order_relaxed); }

// What a compiler may use for plain computation, by the names that GCC and LLVM share, and the least
// level that has it; above 4: none has. Features that only intrinsics reach (aes, sha) are not here; amx-bf16 is, for
// programs that name it, and above MOST_COMPILED.
enum { MOST_COMPILED = 5 };
#define FEATURES(X)                                                                                \
  X("sse3", 2) X("ssse3", 2) X("sse4.1", 2) X("sse4.2", 2) X("popcnt", 2) X("avx", 3)              \
  X("avx2", 3) X("bmi", 3) X("bmi2", 3) X("f16c", 3) X("fma", 3) X("lzcnt", 3) X("movbe", 3)       \
  X("avx512f", 4) X("avx512bw", 4) X("avx512cd", 4) X("avx512dq", 4) X("avx512vl", 4)              \
  X("avx512ifma", 5) X("avx512vbmi", 5) X("avx512vbmi2", 5) X("avx512vnni", 5)                     \
  X("avx512bitalg", 5) X("avx512vpopcntdq", 5) X("avx512bf16", 5) X("avx512fp16", 5)               \
  X("avxvnni", 5) X("gfni", 5) X("fma4", 5) X("xop", 5)

typedef struct Feature {
  const char *name;
  int level;
  bool here;
} Feature;

enum { MOST_FEATURES = 40 };

static int features(Feature out[MOST_FEATURES]) {
  int n = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
#define TAKE(text, least) out[n++] = (Feature){text, least, __builtin_cpu_supports(text)};
  FEATURES(TAKE)
#undef TAKE
  out[n++] = (Feature){"amx-bf16", MOST_COMPILED + 1, amx()};
#endif
  return n;
}

void dt_cpu_features(char *out, size_t size) {
  Feature f[MOST_FEATURES];
  size_t at = 0;
  out[0] = 0;
  for (int i = 0, n = features(f); i < n && at < size; i++)
    if (f[i].here && f[i].level <= MOST_COMPILED)
      at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " " : "", f[i].name);
}

static bool named_in(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; (p = strstr(p, name)); p += n)
    if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
  return false;
}

void dt_cpu_name_pairs(const char *features) {
  atomic_store(&named, named_in(features, "amx-bf16")     ? DT_PAIRS_BY_AMX
                       : named_in(features, "avx512bf16") ? DT_PAIRS_BY_AVX512
                                                          : DT_PAIRS_NONE);
}

bool dt_cpu_has(const char *needed, char *missing, size_t size) {
  Feature f[MOST_FEATURES];
  size_t at = 0;
  missing[0] = 0;
  for (int i = 0, n = features(f); i < n && at < size; i++)
    if (named_in(needed, f[i].name) && (!f[i].here || f[i].level > limit()))
      at += (size_t)snprintf(missing + at, size - at, "%s%s", at ? ", " : "", f[i].name);
  return !at;
}

bool dt_cpu_amd(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}
