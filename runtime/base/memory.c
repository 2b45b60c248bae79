#define _GNU_SOURCE
#include "runtime/base/canary.h"
#include "runtime/base/limit.h"
#include "runtime/base/parallel.h"
#include "runtime/device.h"
#include "runtime/train/run.h"
#include "runtime/files/save.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
  RESULTS_BYTES = DT_MOST_RESULTS * sizeof(double), // of a call
  SCALARS_BYTES = DT_MOST_IN_FLIGHT * sizeof(DtScalars)
};

// Whole gradients are the model's state where they are summed in place, and else on their way to
// it.
DtMemory dt_memory(const DtStages *s, int stage, const DtProgram *p, const DtCut *cut, bool saves,
                   const DtWalk *walk, DtHost host) {
  int64_t size = (int64_t)dt_type_size(p->type), param_size = (int64_t)dt_type_size(p->param_type);
  const DtUnits *u = &s->units[stage];
  DtSizes n = dt_sizes(u, &s->view[stage], cut);
  DtSlicePlan slices = dt_offload_plan(p, &n);
  bool away = slices.arrays > 0;
  DtMemory m = {.params = param_size * n.params,
                .masters = away ? 0 : size * n.masters,
                .grads = size * (cut->each ? n.sums : n.grads),
                .moments = away ? 0 : size * n.moment * p->nmoment,
                .staging = slices.memory,
                .file = slices.file,
                .gathered = param_size * n.gathered,
                .reducing = size * (cut->each ? n.grads : 0),
                .buckets = size * n.packed,
                .frame = s->view[stage].frame_bytes * dt_in_flight(p)};
  for (int k = 0; k < p->ndata; k++) m.batches += (int64_t)dt_data_bytes(&p->data[k]) * dt_in_flight(p);
  m.batches += RESULTS_BYTES * dt_in_flight(p) + SCALARS_BYTES;
  m.norm = (int64_t)sizeof(double) * (dt_norm_count(u, cut, host.limits) + dt_shared_count(u, p, cut));
  int64_t gathered = saves ? dt_save_collected(p) : 0;
  if (saves) m.collected = gathered + dt_save_received(p, cut) + dt_save_sending(p, cut);
  if (walk) m.pipeline = dt_walk_bytes(walk);
  m.tied = size * dt_tie_count(s, stage, cut->grads ? cut->owners : 1);
  m.snapshot = host.snapshot;
  m.scratch = host.work;
  m.exchange = host.exchange ? host.exchange + host.limits->exchange : 0;
  m.total = m.params + m.masters + m.grads + m.moments + m.gathered + m.reducing + m.buckets + m.frame +
            m.batches + m.norm + m.collected + m.pipeline + m.tied + m.snapshot + m.scratch +
            m.exchange + m.staging;
  int64_t shared = (int64_t)sizeof(double) * dt_shared_count(u, p, cut);
  m.host = host.limits->in_host ? m.total : m.staging + m.snapshot + gathered + shared + host.exchange;
  return m;
}

// A region of a run: where its pointer is, and its bytes.
typedef struct Region {
  void *at; // a pointer to any type
  int64_t bytes;
  bool training; // only a run that takes steps needs it (masters: or one that exports them)
  const char *name;
  int zeros; // bytes of each number, all of which are 0 at the start; 0: nothing of it is read before it is written
  bool host; // memory of the host
} Region;
enum { MOST_REGIONS = 23 + DT_MOST_IN_FLIGHT * (1 + DT_MAX_DATA) };

static void *address(const Region *g) {
  void *p;
  memcpy(&p, g->at, sizeof p);
  return p;
}

static int allocate(const Region *g, DtError *e) {
  void *p = g->host ? dt_host_alloc(g->bytes, e) : dt_device_alloc(g->bytes, g->zeros, e);
  memcpy(g->at, &p, sizeof p);
  return p ? 0 : e->status;
}

DtMemory dt_memory_of(const DtRun *r) {
  return dt_memory(&r->zero.stages, dt_world.coord[DT_AXIS_PP], r->p, &r->zero.cut,
                   r->o.save || r->o.export_to || r->o.export_gradient, &r->walk,
                   (DtHost){dt_device_limits(), dt_device_work_bytes(r->p, dt_threads()), dt_exchange_bytes(), r->snapshot_bytes});
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
    list[n++] = (Region){&z->moment[i], m.moments / p->nmoment, true, "moments", (int)size, false};
  bool files = dt_has_masters(p) && r->o.export_to; // they hold masters, which a run of no steps has too
  list[n++] = (Region){.at = &r->offload.staging, .bytes = m.staging, .training = !files, .name = "staging", .host = true};
  list[n++] = (Region){.at = &z->packed, .bytes = m.buckets, .name = "buckets"};
  for (int i = 0; i < dt_in_flight(p); i++) {
    void **buffer = i ? r->other_buffer : r->buffer;
    list[n++] = (Region){.at = i ? &r->other_frame : &r->frame, .bytes = m.frame / dt_in_flight(p),
                         .name = "frame"};
    for (int k = 0; k < p->ndata; k++)
      list[n++] = (Region){.at = &buffer[k], .bytes = (int64_t)dt_data_bytes(&p->data[k]), .name = p->data[k].name};
  }
  list[n++] = (Region){.at = &r->results, .bytes = RESULTS_BYTES * dt_in_flight(p), .name = "results"};
  list[n++] = (Region){.at = &r->scalars, .bytes = SCALARS_BYTES, .name = "scalars"};
  int64_t norm = (int64_t)sizeof(double) * dt_norm_count(&z->units, &z->cut, dt_device_limits());
  list[n++] = (Region){.at = &r->norm, .bytes = norm, .name = "norm"};
  list[n++] = (Region){.at = &r->shared, .bytes = m.norm - norm, .name = "shared", .host = true};
  int64_t collected = m.collected ? dt_save_collected(r->p) : 0;
  list[n++] = (Region){.at = &r->collected, .bytes = collected, .name = "collected", .host = true};
  int64_t sending = m.collected ? dt_save_sending(r->p, &z->cut) : 0;
  list[n++] = (Region){.at = &r->received, .bytes = m.collected - collected - sending, .name = "collected"};
  list[n++] = (Region){.at = &r->sending, .bytes = sending, .name = "collected"};
  list[n++] = (Region){.at = &r->snapshot, .bytes = m.snapshot, .training = true, .name = "snapshot", .host = true};
  list[n++] = (Region){.at = &r->walk.memory, .bytes = m.pipeline, .name = "pipeline"};
  list[n++] = (Region){.at = &r->walk.tied, .bytes = m.tied, .training = true, .name = "tied"};
  return n;
}

static int too_little(const DtRun *r, int ranks, int64_t need, int64_t have, const char *who, DtError *e) {
  const double GIB = 1 << 30;
  char more[160] = "";
  if (r->snapshot_bytes)
    snprintf(more, sizeof more, "; %.2f GiB of it are the snapshot that --save-every writes behind the steps: --save-sync "
             "needs none", (double)r->snapshot_bytes / GIB);
  if (ranks == 1)
    return dt_fail(e, DT_EXIT_OS, "%s needs %.2f GiB of memory, %s %.2f%s", r->p->model, (double)need / GIB, who,
                   (double)have / GIB, more);
  return dt_fail(e, DT_EXIT_OS, "%s needs %.2f GiB of memory a rank, %s %.2f for %d%s", r->p->model, (double)need / GIB, who,
                 (double)have / GIB, ranks, more);
}

// The memory that all ranks of this machine need, or will soon, must fit: none is to be killed hours later.
static int check_fits(const DtRun *r, int64_t need, DtError *e) {
  const char *who;
  int ranks = dt_world.local_size > 1 ? dt_world.local_size : 1;
  int64_t have = dt_device_memory(ranks, &who), snapshot = r->snapshot_bytes;
  bool apart = !dt_device_limits()->in_host, group;
  if (apart) need -= snapshot;
  if (need > have / ranks) return too_little(r, ranks, need, have, who, e);
  have = apart && snapshot ? dt_memory_limit("", &group) : 0;
  return have && snapshot > have / ranks ? too_little(r, ranks, snapshot, have, "the machine has", e) : 0;
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
  if (check_fits(r, need, e) || dt_device_work_open(r->p, e)) return e->status;
  for (int i = 0; i < n; i++)
    if (list[i].bytes > 0 && (training || !list[i].training) &&
        allocate(&list[i], e))
      return e->status;
  if (dt_offload_open(r, training, e)) return e->status;
  r->nshared = dt_shared_count(&r->zero.units, r->zero.p, &r->zero.cut);
  r->zero.grad_bytes = (size_t)(dt_sizes(&r->zero.units, r->zero.p, &r->zero.cut).grads *
                                (int64_t)dt_type_size(r->p->type));
  return 0;
}

static void tell_exchange(FILE *f) {
  if (dt_exchange_bytes())
    fprintf(f, ",\n{\"name\":\"exchange\",\"planned\":%lld,\"used\":%lld}",
            (long long)(dt_exchange_bytes() + dt_device_limits()->exchange),
            (long long)(dt_exchange_used() + dt_device_limits()->exchange));
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
    const void *p = address(&list[i]);
    if (!p) continue;
    fprintf(f, "%s\n{\"name\":\"%s\",\"planned\":%lld,\"used\":%lld}", comma, list[i].name,
            (long long)list[i].bytes, (long long)dt_device_used(p, list[i].bytes, list[i].zeros));
    comma = ",";
  }
  dt_device_work_used(f);
  tell_exchange(f);
  fprintf(f, "]}\n");
  return fclose(f) ? dt_fail_errno(e, DT_EXIT_IO, "cannot write", path) : 0;
}

int dt_memory_check(DtRun *r, DtError *e) {
  Region list[MOST_REGIONS];
  for (int i = r->zero.p ? list_regions(r, list) - 1 : -1; i >= 0; i--) {
    const void *p = address(&list[i]);
    if (p && dt_device_overrun(p, list[i].bytes))
      return dt_fail(e, DT_EXIT_BUG, "a bug: something was written past the end of the %s",
                     list[i].name);
  }
  if (r->zero.p && dt_device_work_overrun())
    return dt_fail(e, DT_EXIT_BUG, "a bug: something was written past the end of the scratch");
  const char *prefix = r->zero.p ? dt_watching() : NULL;
  return prefix ? tell_used(r, list, list_regions(r, list), prefix, e) : 0;
}

void dt_memory_free(DtRun *r) {
  Region list[MOST_REGIONS];
  if (!r->zero.p) return;
  for (int i = list_regions(r, list) - 1; i >= 0; i--) {
    void *p = address(&list[i]), *none = NULL;
    if (list[i].host) dt_host_free(p, list[i].bytes);
    else dt_device_free(p, list[i].bytes);
    memcpy(list[i].at, &none, sizeof none);
  }
}

int64_t dt_memory_resident(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (int64_t)u.ru_maxrss * 1024;
}
