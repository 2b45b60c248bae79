#include "driver/report.h"
#include "codegen/host/program.h"
#include "codegen/target.h"
#include "driver/schedule.h"
#include "runtime/files/save.h"
#include "runtime/train/run.h"

// Sums over the kernels that one call of function f runs.
static void add_fn(Report *r, const Plan *p, Id f, double times) {
  const FnPlan *fp = &p->fn[f];
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    const Kernel *k = &fp->kernel.at[i];
    if (k->kind == K_CALL) {
      const Call *c = p->m->fn.at[f].stmt.at[k->stmt.at[0]].call;
      add_fn(r, p, c->fn, times * (double)c->count);
      continue;
    }
    if (!kernel_is_named(k)) continue;
    *(k->kind == K_LOOPS ? &r->other_flops : &r->matrix_flops) += times * k->flops;
    r->kernels += (uint32_t)times;
  }
}

static void add_bubble(Report *r, const Plan *p, int64_t micro) {
  DtPipe *pipe = schedule_make(p, (int32_t)micro, false);
  r->bubble = dt_pipe_bubble(pipe);
  dt_pipe_free(pipe);
}

// The runtime's own account of what a rank allocates, of the tables that the program will have.
static void add_memory(Report *r, const Plan *p) {
  DtProgram t = program_make(p->m, p);
  DtStages stages;
  DtError e = {0};
  int64_t each = (r->microbatches + r->ranks - 1) / r->ranks;
  DtCut cut = dt_cut(&t, r->ranks * (t.cp > 1 ? t.cp : 1));
  DtMemory m = {0};
  if (dt_stages_make(&stages, &t, cut.owners, &e)) BUG("%s", e.text);
  int degrees = (t.tp > 1 ? t.tp : 1) * (t.cp > 1 ? t.cp : 1) * (t.pp > 1 ? t.pp : 1);
  DtDeviceLimits limits;
  DtHost host = {.limits = &limits, .exchange = dt_exchange_plan(r->ranks * degrees)};
  host.work = p->m->target->device(&limits, &t);
  for (int s = 0; s < stages.n; s++) {
    DtWalk walk = {0};
    if (t.nchunk && dt_walk_open(&walk, &t, s, each, 0, false, &e)) BUG("%s", e.text);
    DtMemory of = dt_memory(&stages, s, &t, &cut, true, &walk, host);
    int64_t least = dt_walk_least(&walk);
    dt_walk_close(&walk);
    if (of.total <= m.total) continue;
    m = of;
    r->stage = s;
    r->pipeline_bound = least;
  }
  if (!t.offload && dt_save_snapshot_bytes(&t, &stages, r->stage, &cut, r->ranks * degrees, &r->snapshot_bytes, &e)) BUG("%s", e.text);
  r->in_host = limits.in_host;
  r->stages = stages.n;
  int data_ranks = r->ranks * (t.cp > 1 ? t.cp : 1);
  r->traffic = traffic_make(p, &t, &stages, &cut, data_ranks, r->stage, each);
  if (t.nchunk) add_bubble(r, p, each);
  dt_stages_free(&stages);
  r->zero = t.zero;
  r->owners = cut.owners;
  r->param_bytes = m.params;
  r->master_bytes = m.masters;
  r->grad_bytes = m.grads;
  r->moment_bytes = m.moments;
  r->state_bytes = m.params + m.masters + m.grads + m.moments;
  r->gathered_bytes = m.gathered;
  r->reducing_bytes = m.reducing;
  r->other_bytes = m.norm + m.collected + m.tied + m.buckets;
  r->frame_bytes = m.frame;
  r->frame_bound = largest_frame(p, (uint32_t)r->stage).bound * r->in_flight;
  r->scratch_bytes = m.scratch;
  r->exchange_bytes = m.exchange;
  r->pipeline_bytes = m.pipeline;
  r->data_bytes = m.batches;
  r->staging_bytes = m.staging;
  r->host_bytes = m.host;
  r->file_bytes = m.file;
  r->total_bytes = m.total;
}

bool offload_possible(const Plan *p) {
  DtProgram t = program_make(p->m, p);
  DtDeviceLimits limits;
  p->m->target->device(&limits, &t);
  return limits.in_host;
}

bool offload_has_state(const Plan *p) {
  DtProgram t = program_make(p->m, p);
  return t.nmoment || dt_has_masters(&t);
}

Report report_make(const Plan *p, int ranks) {
  const Module *m = p->m;
  Report r = {.ranks = ranks, .again = m->recomputed, .in_flight = p->in_flight > 1 ? p->in_flight : 1};
  for (uint32_t i = 0; i < m->param.n; i++) {
    int64_t n = 1;
    for (int d = 0; d < m->param.at[i].rank; d++) n *= m->param.at[i].extent[d];
    r.parameters += n;
  }
  r.microbatches = (m->train.batch + m->train.microbatch - 1) / m->train.microbatch;
  add_memory(&r, p);
  for (uint32_t i = 0; i < m->chunk.n * NCHUNK_PART; i++) {
    Id fn = m->chunk.at[i / NCHUNK_PART].fn[i % NCHUNK_PART];
    bool steps = i % NCHUNK_PART != CHUNK_EVAL && i % NCHUNK_PART != CHUNK_SAMPLE;
    if (fn != NONE && steps) add_fn(&r, p, fn, 1);
  }
  if (!m->chunk.n) add_fn(&r, p, m->entry[ENTRY_STEP], 1);
  return r;
}

ReportBytes report_bytes(const Report *r, int row) {
  const ReportBytes all[REPORT_MEMORY] = {
      {"parameters", "parameters", r->param_bytes, false},
      {"masters", "float masters", r->master_bytes, false},
      {"gradients", "gradients", r->grad_bytes, false},
      {"optimizer", "optimizer state", r->moment_bytes, false},
      {"state", r->master_bytes ? "these four" : "these three", r->state_bytes, true},
      {"gathered", "gathered parameters", r->gathered_bytes, false},
      {"reducing", "gradients to reduce", r->reducing_bytes, false},
      {"activations", "activations", r->frame_bytes, false},
      {"pipeline", "pipeline", r->pipeline_bytes, false},
      {"data", "data", r->data_bytes, false},
      {"other", "norm, saving, buckets", r->other_bytes, false},
      {"scratch", "scratch of a thread", r->scratch_bytes, false},
      {"exchange", "exchange of data", r->exchange_bytes, false},
      {"staging", "staging for a file", r->staging_bytes, false},
      {"total", "total", r->total_bytes, true},
      {"device", "of it, on the device", r->total_bytes - r->host_bytes, true},
      {"host", "of it, on the host", r->host_bytes, true},
      {"file", "beside it, in a file", r->file_bytes, true},
      {"snapshot", r->in_host ? "more by --save-every" : "--save-every, host", r->snapshot_bytes, true},
  };
  return all[row];
}

static void line(FILE *out, const char *what, int64_t bytes) {
  if (bytes) fprintf(out, "  %-22s %16lld bytes %12.1f MiB\n", what, (long long)bytes, (double)bytes / (1 << 20));
}

static void bound_line(FILE *out, const char *what, int64_t bytes, int64_t bound) {
  if (bytes)
    fprintf(out, "  %-22s %16lld bytes %12.1f MiB  %.1f%% less\n", what, (long long)bound, (double)bound / (1 << 20),
            100 * (1 - (double)bound / (double)bytes));
}

// The axes that the model is cut over, as the command line gave them: factors of one are one.
static Str report_axes(const Module *m) {
  Str s = "", last = "";
  for (uint32_t a = 0; a < m->axis.n; a++) {
    Str name = axis_whole_name(m, a);
    if (name != last) s = str_printf("%s%s%s", s, a ? ", " : "", name);
    last = name;
  }
  return s;
}

// "tp 8 x cp 2": the axes of the mesh, as the command line gave them.
static Str mesh(const Module *m, int64_t *size) {
  Str s = "", last = NULL;
  int64_t n = 1;
  *size = 1;
  for (uint32_t a = 0; a < m->axis.n; a++) {
    Str name = axis_whole_name(m, a);
    n = name == last ? n * m->axis.at[a].size : m->axis.at[a].size;
    bool more = a + 1 < m->axis.n && axis_whole_name(m, a + 1) == name;
    if (!more) s = str_printf("%s%s%s %lld", s, *s ? " x " : "", name, (long long)n);
    *size *= m->axis.at[a].size;
    last = name;
  }
  return s;
}

// How the ranks are laid out: "2 stages of 8 ranks (tp 8), in 4 data-parallel copies, ...".
static void layout_text(const Report *r, const Module *m, FILE *out) {
  int64_t size;
  Str axes = mesh(m, &size);
  if (r->stages > 1) fprintf(out, "%d stages of ", r->stages);
  if (size > 1) fprintf(out, "%lld ranks (%s) on %s", (long long)size, axes, m->target->places);
  else if (r->ranks == 1) fprintf(out, "one rank on %s", m->target->one_place);
  if (r->ranks > 1 && size > 1) fprintf(out, ", each with %d data-parallel ranks, ZeRO %d", r->ranks, r->zero);
  else if (r->ranks > 1) fprintf(out, "%d data-parallel ranks on %s, ZeRO %d", r->ranks, m->target->places, r->zero);
  if (r->ranks > 1 && r->zero) fprintf(out, " over %d owners", r->owners);
  fprintf(out, "\n\n");
}

static void traffic_text(const Report *r, FILE *out) {
  if (r->traffic.n)
    fprintf(out, "\nbytes that a rank of stage %d sends in a step\n", r->stage);
  for (int i = 0; i < r->traffic.n; i++) {
    const TrafficRow *w = &r->traffic.row[i];
    char times[32] = "";
    if (w->count > 0) snprintf(times, sizeof times, "%.0f times", w->count);
    fprintf(out, "  %-4s  %-16s %16.0f bytes %12.1f MiB  %s\n", w->axis, w->what, w->bytes,
            w->bytes / (1 << 20), times);
  }
}

// Operations of a microbatch that run again, and what they are a part of.
static double again_flops(const Report *r, double *of) {
  *of = r->plain->matrix_flops + r->plain->other_flops;
  return r->matrix_flops + r->other_flops - *of;
}

static void again_text(const Report *r, FILE *out) {
  double of, flops = again_flops(r, &of);
  fprintf(out, "FLOPs computed again     %16.4g (%.1f%% more than without%s)\n", flops, 100 * flops / of,
          r->again.proved ? "" : "; not proved least");
  fprintf(out, "layers save              %16lld bytes of a microbatch, without recomputation %lld\n",
          (long long)r->again.kept, (long long)r->again.before);
}

static int64_t activation_bytes(const Report *r) { return r->frame_bytes + r->pipeline_bytes; }

static void again_json(const Report *r, FILE *out) {
  double of, flops = again_flops(r, &of);
  fprintf(out, ",\"recomputation\":{\"flops\":%.17g,\"flops_without\":%.17g,\"cost\":%.17g,\"proved\":%s,", flops, of,
          r->again.cost, r->again.proved ? "true" : "false");
  fprintf(out, "\"saved\":%lld,\"saved_without\":%lld,\"activations\":%lld,\"activations_without\":%lld,\"total_without\":%lld}",
          (long long)r->again.kept, (long long)r->again.before, (long long)activation_bytes(r),
          (long long)activation_bytes(r->plain), (long long)r->plain->total_bytes);
}

void report_text(const Report *r, const Module *m, FILE *out) {
  fprintf(out, "%s, %s, ", m->name, dtype_name[param_type(m)]);
  layout_text(r, m, out);
  fprintf(out, "parameters               %16lld\n", (long long)r->parameters);
  fprintf(out, "batch                    %16lld samples in %lld microbatches of %lld", (long long)m->train.batch,
          (long long)r->microbatches, (long long)m->train.microbatch);
  if (r->in_flight > 1) fprintf(out, ", %d in flight", r->in_flight);
  fprintf(out, "\n");
  fprintf(out, "kernels a microbatch     %16u\n", r->kernels);
  fprintf(out, "FLOPs a microbatch       %16.4g (matrix products and attention %.4g, the rest %.4g)\n",
          r->matrix_flops + r->other_flops, r->matrix_flops, r->other_flops);
  if (r->plain) again_text(r, out);
  if (m->axis.n)
    fprintf(out, "plan over %-14s %16s\n", report_axes(m), m->unproved ? "not proved least" : "proved least");
  fprintf(out, "\n");
  if (r->stages > 1) fprintf(out, "memory of a rank of stage %d, which needs the most\n", r->stage);
  else fprintf(out, "memory of a rank\n");
  for (int i = 0; i < REPORT_MEMORY; i++) {
    ReportBytes b = report_bytes(r, i);
    if (!b.sum || i == REPORT_TOTAL || i >= REPORT_FILE) line(out, b.label, b.bytes);
  }
  if (r->plain) {
    fprintf(out, "\nmemory without recomputation\n");
    line(out, "activations, pipeline", activation_bytes(r->plain));
    line(out, "total", r->plain->total_bytes);
  }
  fprintf(out, "\nof memory that is used again, alive at one time at most\n");
  bound_line(out, "activations", r->frame_bytes, r->frame_bound);
  bound_line(out, "pipeline", r->pipeline_bytes, r->pipeline_bound);
  traffic_text(r, out);
  if (r->bubble.all)
    fprintf(out, "\nschedule %s: a bubble of %.2f%% (--emit schedule draws it)\n", m->schedule,
            100.0 * (double)r->bubble.idle / (double)r->bubble.all);
}

void report_json(const Report *r, const Module *m, FILE *out) {
  fprintf(out,
          "{\"model\":\"%s\",\"target\":\"%s\",\"precision\":\"%s\",\"ranks\":%d,\"stages\":%d,\"zero\":%d,\"zero_group\":%d,"
          "\"plan_proved\":%s,"
          "\"parameters\":%lld,\"batch\":%lld,\"microbatch\":%lld,\"microbatches\":%lld,\"in_flight\":%d,\"kernels\":%u,"
          "\"matrix_flops\":%.17g,\"other_flops\":%.17g,",
          m->name, m->target->name, dtype_name[param_type(m)], r->ranks, r->stages, r->zero, r->owners,
          m->unproved ? "false" : "true", (long long)r->parameters, (long long)m->train.batch, (long long)m->train.microbatch, (long long)r->microbatches, r->in_flight, r->kernels,
          r->matrix_flops, r->other_flops);
  for (int i = 0; i < REPORT_MEMORY; i++) {
    ReportBytes b = report_bytes(r, i);
    fprintf(out, "%s\"%s\":%lld", i ? "," : "\"memory\":{", b.key, (long long)b.bytes);
  }
  fprintf(out, "},\"memory_bound\":{\"activations\":%lld,\"pipeline\":%lld},\"communication\":[", (long long)r->frame_bound,
          (long long)r->pipeline_bound);
  for (int i = 0; i < r->traffic.n; i++) {
    const TrafficRow *w = &r->traffic.row[i];
    fprintf(out, "%s{\"axis\":\"%s\",\"what\":\"%s\",\"count\":%.0f,\"bytes\":%.0f}", i ? "," : "",
            w->axis, w->what, w->count, w->bytes);
  }
  fprintf(out, "],\"bubble\":%.6g", r->bubble.all ? (double)r->bubble.idle / (double)r->bubble.all : 0.0);
  if (r->plain) again_json(r, out);
  fprintf(out, "}\n");
}
