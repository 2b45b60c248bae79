#define _GNU_SOURCE
#include "runtime/base/canary.h"
#include "runtime/base/limit.h"
#include "runtime/base/parallel.h"
#include "runtime/train/run.h"
#include "runtime/files/save.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t data_bytes(const DtProgram *p, int k) {
  const DtData *a = &p->data[k];
  return a->extent[0] * dt_data_row(a) * (int64_t)dt_type_size(a->type);
}

// Of one thread: one user at a time.
static int64_t scratch_bytes(const DtProgram *p) {
  int64_t update = dt_update_scratch(p);
  return p->scratch_bytes > update ? p->scratch_bytes : update;
}

// Whole gradients are the model's state where they are summed in place, and else on their way to
// it.
DtMemory dt_memory(const DtStages *s, int stage, const DtProgram *p, const DtCut *cut, bool saves,
                   const DtWalk *walk, DtHost host) {
  int64_t size = (int64_t)dt_type_size(p->type), param_size = (int64_t)dt_type_size(p->param_type);
  const DtUnits *u = &s->units[stage];
  DtSizes n = dt_sizes(u, &s->view[stage], cut);
  DtMemory m = {.params = param_size * n.params,
                .masters = size * n.masters,
                .grads = size * (cut->each ? n.sums : n.grads),
                .moments = size * n.moment * p->nmoment,
                .gathered = param_size * n.gathered,
                .reducing = size * (cut->each ? n.grads : 0),
                .buckets = size * n.packed,
                .frame = s->view[stage].frame_bytes * dt_in_flight(p)};
  for (int k = 0; k < p->ndata; k++) m.batches += data_bytes(p, k) * dt_in_flight(p);
  m.norm = (int64_t)sizeof(double) * (dt_norm_blocks(u, cut) + dt_shared_count(u, p, cut));
  if (saves) m.collected = dt_save_bytes(p, cut);
  if (walk) m.pipeline = dt_walk_bytes(walk);
  m.tied = size * dt_tie_count(s, stage, cut->grads ? cut->owners : 1);
  m.scratch = host.threads * (int64_t)dt_scratch_mapped((size_t)scratch_bytes(p));
  m.exchange = host.exchange;
  m.total = m.params + m.masters + m.grads + m.moments + m.gathered + m.reducing + m.buckets + m.frame +
            m.batches + m.norm + m.collected + m.pipeline + m.tied + m.scratch + m.exchange;
  return m;
}

// Rounded up so that kernels may read a vector past the end; to write there is a fault of theirs,
// or of the plan, that shows by what stood there before.
enum { SLACK = DT_SCRATCH_SLACK, CANARY = DT_CANARY };
static size_t rounded(int64_t bytes) { return ((size_t)bytes + SLACK + 4095) / 4096 * 4096; }

// A region of a run: where its pointer is, and its bytes.
typedef struct Region {
  void *at; // a pointer to any type
  int64_t bytes;
  bool training; // only a run that takes steps needs it (masters: or one that exports them)
  const char *name;
  bool zeros; // starts as zeros; of others nothing is read before it is written
  DtType type; // of zeros
} Region;
enum { MOST_REGIONS = 17 + DT_MOST_IN_FLIGHT * (1 + DT_MAX_DATA) };

// Zeros are written as negative ones: equal to zero in all that is computed of them, and no sum
// that they enter with anything but another of them is one.
static void fill_pattern(const Region *g, unsigned char *p) {
  memset(p, g->zeros ? 0 : CANARY, (size_t)g->bytes);
  int64_t size = (int64_t)dt_type_size(g->type);
  for (int64_t i = size - 1; g->zeros && i < g->bytes; i += size) p[i] = 0x80;
}

// Bytes up to the last 4 that are not the pattern any more.
static int64_t used(const Region *g, const unsigned char *p) {
  static const unsigned char canary[8] = {CANARY, CANARY, CANARY, CANARY,
                                          CANARY, CANARY, CANARY, CANARY};
  unsigned char zero[8] = {0};
  zero[dt_type_size(g->type) - 1] = 0x80;
  int64_t unit = g->zeros ? (int64_t)dt_type_size(g->type) : 4, n = g->bytes / unit * unit;
  while (n > 0 && !memcmp(p + n - unit, g->zeros ? zero : canary, (size_t)unit)) n -= unit;
  return n;
}

static int allocate(const Region *g, DtError *e) {
  void *p =
      mmap(NULL, rounded(g->bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return dt_fail_errno(e, DT_EXIT_OS, "no memory for", "the model's regions");
  dt_touch(p, rounded(g->bytes));
  if (dt_watching()) fill_pattern(g, p);
  memset((char *)p + g->bytes, CANARY, SLACK);
  memcpy(g->at, &p, sizeof p);
  return 0;
}

DtMemory dt_memory_of(const DtRun *r) {
  return dt_memory(&r->zero.stages, dt_world.coord[DT_AXIS_PP], r->p, &r->zero.cut,
                   r->o.save || r->o.export_to || r->o.export_gradient, &r->walk,
                   (DtHost){dt_threads(), dt_exchange_bytes()});
}

// As of a region, of each thread's scratch: the first to touch it was the thread.
static int allocate_scratch(const DtProgram *p, DtError *e) {
  Region g = {.bytes = scratch_bytes(p)};
  if (dt_scratch_plan((size_t)g.bytes))
    return dt_fail_errno(e, DT_EXIT_OS, "no memory for", "the threads' scratch");
  for (int t = 0; g.bytes && t < dt_threads(); t++) {
    if (dt_watching()) fill_pattern(&g, dt_scratch_of(t));
    memset((char *)dt_scratch_of(t) + g.bytes, CANARY, SLACK);
  }
  return 0;
}

static int list_regions(DtRun *r, Region list[MOST_REGIONS]) {
  const DtProgram *p = r->zero.p;
  DtZero *z = &r->zero;
  int64_t size = (int64_t)dt_type_size(p->type);
  DtSizes s = dt_sizes(&z->units, p, &z->cut);
  DtMemory m = dt_memory_of(r);
  int n = 0;
  list[n++] = (Region){.at = &z->param, .bytes = m.params, .name = "parameters"};
  list[n++] = (Region){.at = &z->master, .bytes = m.masters, .training = !r->o.export_to,
                       .name = "masters"};
  list[n++] = (Region){.at = &z->gathered, .bytes = m.gathered, .name = "gathered"};
  list[n++] = (Region){.at = &z->grad, .bytes = size * s.grads, .training = true, .name = "gradients"};
  list[n++] = (Region){.at = &z->sum, .bytes = size * s.sums, .training = true, .name = "sums"};
  for (int i = 0; i < p->nmoment; i++)
    list[n++] = (Region){&z->moment[i], size * s.moment, true, "moments", true, p->type};
  list[n++] = (Region){.at = &z->packed, .bytes = m.buckets, .name = "buckets"};
  for (int i = 0; i < dt_in_flight(p); i++) {
    void **buffer = i ? r->other_buffer : r->buffer;
    list[n++] = (Region){.at = i ? &r->other_frame : &r->frame, .bytes = m.frame / dt_in_flight(p),
                         .name = "frame"};
    for (int k = 0; k < p->ndata; k++)
      list[n++] = (Region){.at = &buffer[k], .bytes = data_bytes(p, k), .name = p->data[k].name};
  }
  int64_t blocks = (int64_t)sizeof(double) * dt_norm_blocks(&z->units, &z->cut);
  list[n++] = (Region){.at = &r->partial, .bytes = blocks, .name = "norm"};
  list[n++] = (Region){.at = &r->shared, .bytes = m.norm - blocks, .name = "shared"};
  list[n++] = (Region){.at = &r->gather, .bytes = m.collected, .name = "collected"};
  list[n++] = (Region){.at = &r->walk.memory, .bytes = m.pipeline, .name = "pipeline"};
  list[n++] = (Region){.at = &r->walk.tied, .bytes = m.tied, .training = true, .name = "tied"};
  return n;
}

// What all ranks of this machine need, or will soon, must fit: none is to be killed hours later.
static int check_fits(const DtRun *r, int64_t need, DtError *e) {
  bool group;
  int64_t have = dt_memory_limit("", &group);
  const char *who = group ? "its control group allows" : "the machine has";
  int ranks = dt_world.local_size > 1 ? dt_world.local_size : 1;
  if (need <= have / ranks) return 0;
  if (ranks == 1)
    return dt_fail(e, DT_EXIT_OS, "%s needs %.2f GiB of memory, %s %.2f", r->p->model,
                   (double)need / (1 << 30), who, (double)have / (1 << 30));
  return dt_fail(e, DT_EXIT_OS, "%s needs %.2f GiB of memory a rank, %s %.2f for %d", r->p->model,
                 (double)need / (1 << 30), who, (double)have / (1 << 30), ranks);
}

int dt_memory_allocate(DtRun *r, bool training, DtError *e) {
  Region list[MOST_REGIONS];
  int n = list_regions(r, list);
  DtMemory m = dt_memory_of(r);
  int64_t need = m.scratch + m.exchange;
  for (int i = 0; i < n; i++) need += training || !list[i].training ? list[i].bytes : 0;
  if (training && need != m.total)
    return dt_fail(e, DT_EXIT_BUG, "regions of %lld bytes, not the plan's %lld", (long long)need,
                   (long long)m.total);
  if (check_fits(r, need, e) || allocate_scratch(r->p, e)) return e->status;
  for (int i = 0; i < n; i++)
    if (list[i].bytes > 0 && (training || !list[i].training) &&
        allocate(&list[i], e))
      return e->status;
  r->nshared = dt_shared_count(&r->zero.units, r->zero.p, &r->zero.cut);
  r->zero.grad_bytes = (size_t)(dt_sizes(&r->zero.units, r->zero.p, &r->zero.cut).grads *
                                (int64_t)dt_type_size(r->p->type));
  return 0;
}

// For a thread's scratch also the bytes asked for, which are the planned bytes or fewer.
static void tell_scratch(const DtRun *r, FILE *f) {
  Region g = {.bytes = scratch_bytes(r->p)};
  for (int t = 0; dt_scratch_of(t); t++)
    fprintf(f,
            ",\n{\"name\":\"scratch\",\"planned\":%lld,\"most\":%lld,\"asked\":%lld,"
            "\"used\":%lld}",
            (long long)dt_scratch_mapped((size_t)g.bytes), (long long)g.bytes,
            (long long)dt_scratch_asked(t), (long long)used(&g, dt_scratch_of(t)));
}

static void tell_exchange(FILE *f) {
  if (dt_exchange_bytes())
    fprintf(f, ",\n{\"name\":\"exchange\",\"planned\":%lld,\"used\":%lld}",
            (long long)dt_exchange_bytes(), (long long)dt_exchange_used());
}

// Planned and used bytes, as JSON.
static int tell_used(DtRun *r, const Region *list, int n, const char *prefix, DtError *e) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s.%d", prefix, dt_world.rank);
  FILE *f = fopen(path, "w");
  if (!f) return dt_fail_errno(e, DT_EXIT_CREATE, "cannot create", path);
  fprintf(f, "{\"rank\":%d,\"stage\":%d,\"owner\":%d,\"regions\":[", dt_world.rank,
          dt_world.coord[DT_AXIS_PP], r->zero.shard->me);
  const char *comma = "";
  for (int i = 0; i < n; i++) {
    const unsigned char *p;
    memcpy(&p, list[i].at, sizeof p);
    if (!p) continue;
    fprintf(f, "%s\n{\"name\":\"%s\",\"planned\":%lld,\"used\":%lld}", comma, list[i].name,
            (long long)list[i].bytes, (long long)used(&list[i], p));
    comma = ",";
  }
  tell_scratch(r, f);
  tell_exchange(f);
  fprintf(f, "]}\n");
  return fclose(f) ? dt_fail_errno(e, DT_EXIT_IO, "cannot write", path) : 0;
}

static bool overrun(const unsigned char *p, int64_t bytes) {
  for (int k = 0; k < SLACK; k++)
    if (p[bytes + k] != CANARY) return true;
  return false;
}

int dt_memory_check(DtRun *r, DtError *e) {
  Region list[MOST_REGIONS];
  for (int i = r->zero.p ? list_regions(r, list) - 1 : -1; i >= 0; i--) {
    const unsigned char *p;
    memcpy(&p, list[i].at, sizeof p);
    if (p && overrun(p, list[i].bytes))
      return dt_fail(e, DT_EXIT_BUG, "a bug: something was written past the end of the %s",
                     list[i].name);
  }
  for (int t = 0; r->zero.p && dt_scratch_of(t); t++)
    if (overrun(dt_scratch_of(t), scratch_bytes(r->p)))
      return dt_fail(e, DT_EXIT_BUG, "a bug: something was written past the end of the scratch");
  const char *prefix = r->zero.p ? dt_watching() : NULL;
  return prefix ? tell_used(r, list, list_regions(r, list), prefix, e) : 0;
}

void dt_memory_free(DtRun *r) {
  Region list[MOST_REGIONS];
  if (!r->zero.p) return;
  for (int i = list_regions(r, list) - 1; i >= 0; i--) {
    void *p, *none = NULL;
    memcpy(&p, list[i].at, sizeof p);
    if (p) munmap(p, rounded(list[i].bytes));
    memcpy(list[i].at, &none, sizeof none);
  }
}

int64_t dt_memory_resident(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (int64_t)u.ru_maxrss * 1024;
}

// Stores that bypass the caches: the zeros are not read soon, and a plain store would first fetch
// the old data. begin is a multiple of the chunk, so lines are whole and aligned but for the
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
