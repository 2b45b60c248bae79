// The host's own processors and memory. Everything has run when a function returns, and the host sees the device's
// memory as it is.
#define _GNU_SOURCE
#include "runtime/device/links.h"

#include "runtime/base/canary.h"
#include "runtime/base/limit.h"
#include "runtime/base/parallel.h"
#include "runtime/device/cpu/dnnl.h"
#include "runtime/device/cpu/level.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { SLACK = DT_SCRATCH_SLACK, CANARY = DT_CANARY, PAGE = 4096, PART = 1 << 20 };

const DtDeviceLimits *dt_device_limits(void) {
  static const DtDeviceLimits limits = {.map_bytes = INT64_MAX, .squares_block = 4096, .in_host = true};
  return &limits;
}

// Returns the level taken.
static int take_level(const DtProgram *p) {
  int level = dt_cpu_level(p->device_level);
  if (p->device_level && p->device_features) dt_cpu_name_pairs(p->device_features);
  return level;
}

// Without this check the first instruction that is not there would end the program.
int dt_device_fits(const DtProgram *p, DtError *e) {
  char missing[512];
  const char *library = getenv("DT_GEMM"), *asked = getenv("DT_GEMM_BF16"), *why;
  if (take_level(p) < p->device_level)
    return dt_fail(e, DT_EXIT_MISFIT,
                   "this processor is not an x86-64-v%d, for which the program was compiled; compile it with --arch "
                   "x86-64 for any%s",
                   p->device_level, p->device_level > 3 ? ", or with --arch x86-64-v3 for those with avx2" : "");
  if (library && !strcmp(library, "dnnl") && !dt_dnnl_tile(&why))
    return dt_fail(e, DT_EXIT_OS, "DT_GEMM=dnnl: %s", why);
  if (asked && *asked && strcmp(asked, dt_gemm_bf16_name()) != 0)
    return dt_fail(e, DT_EXIT_MISFIT, "DT_GEMM_BF16=%s: this processor has no such instructions, or its kernel does "
                   "not allow them", asked);
  if (!p->device_features || dt_cpu_has(p->device_features, missing, sizeof missing)) return 0;
  return dt_fail(e, DT_EXIT_MISFIT,
                 "the program was compiled for another processor, and this one lacks %s; compile it "
                 "with --arch x86-64 for any, or with --arch x86-64-v3 for those with avx2",
                 missing);
}

const char *dt_device_products(const DtProgram *p) {
  take_level(p); // --info asks without dt_device_fits
  return p->param_type == DT_TYPE_BF16 ? dt_gemm_bf16_name() : p->param_type == DT_TYPE_F32 ? dt_gemm_name() : NULL;
}

int dt_device_open(const DtProgram *p, int threads, int rank, int ranks, DtError *e) {
  (void)p, (void)rank, (void)e;
  dt_parallel_open(threads, ranks);
  return 0;
}

void dt_device_name(DtDeviceName *to) { *to = (DtDeviceName){.name = ""}; }
bool dt_device_name_of(int rank, DtDeviceName *to) { return (void)rank, dt_device_name(to), false; }

void dt_device_close(void) { dt_parallel_done(); }

// ---- memory

// Rounded up so that kernels may read a vector past the end; to write there is a fault of theirs, or of the plan,
// that shows by what stood there before.
static size_t rounded(int64_t bytes) { return ((size_t)bytes + SLACK + PAGE - 1) / PAGE * PAGE; }

static void guard(char *end) { memset(end, CANARY, SLACK); }

int64_t dt_device_used(const void *p, int64_t bytes, int zeros) { return dt_pattern_used(p, bytes, zeros); }

bool dt_device_overrun(const void *p, int64_t bytes) {
  const unsigned char *end = (const unsigned char *)p + bytes;
  for (int k = 0; k < SLACK; k++)
    if (end[k] != CANARY) return true;
  return false;
}

void *dt_device_alloc(int64_t bytes, int zeros, DtError *e) {
  void *p = mmap(NULL, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    dt_fail_errno(e, DT_EXIT_OS, "no memory for", "the model's regions");
    return NULL;
  }
  dt_touch(p, rounded(bytes));
  if (dt_watching()) dt_fill_pattern(p, bytes, zeros);
  guard((char *)p + bytes);
  return p;
}

void dt_device_free(void *p, int64_t bytes) {
  if (p) munmap(p, rounded(bytes));
}

void *dt_host_alloc(int64_t bytes, DtError *e) { return dt_device_alloc(bytes, 0, e); }
void dt_host_free(void *p, int64_t bytes) { dt_device_free(p, bytes); }

int64_t dt_device_memory(int ranks, const char **who) {
  bool group;
  (void)ranks;
  int64_t have = dt_memory_limit("", &group);
  *who = group ? "its control group allows" : "the machine has";
  return have;
}

// ---- the threads' scratch

static int64_t scratch; // bytes for each thread

int64_t dt_device_work_bytes(const DtProgram *p, int threads) {
  return threads * (int64_t)dt_scratch_mapped((size_t)p->scratch_bytes);
}

// As of a region: the first to touch it was the thread.
int dt_device_work_open(const DtProgram *p, DtError *e) {
  scratch = p->scratch_bytes;
  if (dt_scratch_plan((size_t)scratch)) return dt_fail_errno(e, DT_EXIT_OS, "no memory for", "the threads' scratch");
  for (int t = 0; scratch && t < dt_threads(); t++) {
    if (dt_watching()) dt_fill_pattern(dt_scratch_of(t), scratch, 0);
    guard((char *)dt_scratch_of(t) + scratch);
  }
  return 0;
}

bool dt_device_work_overrun(void) {
  for (int t = 0; dt_scratch_of(t); t++)
    if (dt_device_overrun(dt_scratch_of(t), scratch)) return true;
  return false;
}

// Also the bytes asked for, which are the planned bytes or fewer.
void dt_device_work_used(FILE *f) {
  for (int t = 0; dt_scratch_of(t); t++)
    fprintf(f, ",\n{\"name\":\"scratch\",\"planned\":%lld,\"most\":%lld,\"asked\":%lld,\"used\":%lld}",
            (long long)dt_scratch_mapped((size_t)scratch), (long long)scratch, (long long)dt_scratch_asked(t),
            (long long)dt_device_used(dt_scratch_of(t), scratch, 0));
}

// ---- between host and device

void *dt_device_map(void *p, size_t bytes, DtAccess access) {
  (void)bytes, (void)access;
  return p;
}

void dt_device_unmap(void *p, void *mapped, size_t bytes, DtAccess access) {
  (void)p, (void)mapped, (void)bytes, (void)access;
}

void dt_device_put(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

void dt_device_get(void *to, const void *from, size_t bytes) {
  if (dt_rehearsing) memset(to, 0, bytes);
  else memcpy(to, from, bytes);
}

// ---- zeros and copies

// Stores that bypass the caches: the zeros are not read soon, and a plain store would first fetch
// the old data. begin is a multiple of the chunk, so lines are whole but for the region's end.
static void zero_part(void *const *arg, int64_t begin, int64_t end) {
  char *p = (char *)arg[0] + begin;
  size_t n = (size_t)(end - begin);
#if defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128();
  for (; n >= 64 && (uintptr_t)p % 16 == 0; p += 64, n -= 64)
    for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(void *)p + i, zero);
  _mm_sfence();
#endif
  memset(p, 0, n);
}

void dt_device_zero(void *p, size_t bytes) {
  void *arg[] = {p};
  dt_parallel(zero_part, arg, (int64_t)bytes, PART);
}

static void copy_part(void *const *arg, int64_t begin, int64_t end) {
  memcpy((char *)arg[0] + begin, (const char *)arg[1] + begin, (size_t)(end - begin));
}

void dt_device_copy(void *to, const void *from, size_t bytes) {
  void *arg[] = {to, (void *)from};
  dt_parallel(copy_part, arg, (int64_t)bytes, PART);
}

typedef struct Rows {
  char *to;
  const char *from;
  size_t to_pitch, from_pitch, bytes;
} Rows;

static void copy_some_rows(void *const *arg, int64_t begin, int64_t end) {
  const Rows *r = arg[0];
  for (int64_t i = begin; i < end; i++)
    memcpy(r->to + (size_t)i * r->to_pitch, r->from + (size_t)i * r->from_pitch, r->bytes);
}

void dt_device_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes,
                         int64_t rows) {
  Rows r = {to, from, to_pitch, from_pitch, bytes};
  void *arg[] = {&r};
  if (bytes) dt_parallel(copy_some_rows, arg, rows, bytes < PART ? PART / (int64_t)bytes : 1);
}

// ---- order

const DtLinks *dt_device_links(void) { return NULL; }
DtMark dt_device_record(void) { return 0; }
void dt_device_wait(DtMark mark) { (void)mark; }
void dt_device_sync(void) {}
