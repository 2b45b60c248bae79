#define _GNU_SOURCE
#include "runtime/parallel.h"
#include "runtime/run.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t data_bytes(const DtProgram *p, int k) {
  const DtData *a = &p->data[k];
  return a->extent[0] * dt_data_row(a) * (int64_t)(a->type == DT_TYPE_F64 ? 8 : 4);
}

DtMemory dt_memory(const DtProgram *p) {
  int64_t region = p->param_count * (int64_t)dt_type_size(p->type);
  DtMemory m = {.params = region,
                .grads = region,
                .moments = region * p->nmoment,
                .frame = p->frame_bytes};
  for (int k = 0; k < p->ndata; k++) m.batches += data_bytes(p, k);
  m.total = m.params + m.grads + m.moments + m.frame + m.batches;
  return m;
}

// Rounded up so that kernels may read a vector past the end.
static size_t rounded(int64_t bytes) { return ((size_t)bytes + 64 + 4095) / 4096 * 4096; }

static int allocate(void **out, int64_t bytes, DtError *e) {
  void *p = mmap(NULL, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return dt_fail_errno(e, DT_EXIT_OS, "no memory for", "the model's regions");
  dt_touch(p, rounded(bytes));
  *out = p;
  return 0;
}

int dt_memory_allocate(DtRun *r, bool training, DtError *e) {
  const DtProgram *p = r->p;
  DtMemory m = dt_memory(p);
  int64_t need = training ? m.total : m.total - m.grads - m.moments;
  int64_t have = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  if (need > have)
    return dt_fail(e, DT_EXIT_OS, "%s needs %.2f GiB of memory, the machine has %.2f", p->model,
                   (double)need / (1 << 30), (double)have / (1 << 30));
  if (allocate(&r->param, m.params, e) || allocate(&r->frame, m.frame, e)) return e->status;
  for (int k = 0; k < p->ndata; k++)
    if (allocate(&r->buffer[k], data_bytes(p, k), e)) return e->status;
  if (!training) return 0;
  if (allocate(&r->grad, m.grads, e)) return e->status;
  for (int i = 0; i < p->nmoment; i++)
    if (allocate(&r->moment[i], m.params, e)) return e->status;
  return 0;
}

static void drop(void **p, int64_t bytes) {
  if (*p) munmap(*p, rounded(bytes));
  *p = NULL;
}

void dt_memory_free(DtRun *r) {
  DtMemory m = dt_memory(r->p);
  drop(&r->param, m.params);
  drop(&r->grad, m.grads);
  for (int i = 0; i < DT_MAX_MOMENTS; i++) drop(&r->moment[i], m.params);
  drop(&r->frame, m.frame);
  for (int k = 0; k < r->p->ndata; k++) drop(&r->buffer[k], data_bytes(r->p, k));
}

int64_t dt_memory_resident(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (int64_t)u.ru_maxrss * 1024;
}

// Stores that bypass the caches: nobody reads the zeros soon, and a plain store would first fetch
// what it overwrites. begin is a multiple of the chunk, so lines are whole and aligned but for the
// region's end.
static void zero_part(void *const *arg, int64_t begin, int64_t end) {
  char *p = (char *)arg[0] + begin;
  size_t n = (size_t)(end - begin);
#if defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128();
  for (; n >= 64; p += 64, n -= 64)
    for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)(void *)p + i, zero);
  _mm_sfence();
#endif
  memset(p, 0, n);
}

void dt_fill_zero(void *p, size_t bytes) {
  void *arg[] = {p};
  dt_parallel(zero_part, arg, (int64_t)bytes, 1 << 20);
}
