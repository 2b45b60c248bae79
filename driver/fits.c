#include "driver/fits.h"

#include "driver/report.h"

enum { MOST_RANKS = 4096 };

// With stage `zero` in place of the plan's; 2 and 3 reduce gradients at every microbatch, as they
// do by default.
static int64_t needs(const Plan *p, int zero, int dp) {
  Plan other = *p;
  if (zero != p->zero.stage) {
    other.zero.stage = zero;
    other.zero.each = zero >= 2;
    other.zero.once = false;
  }
  return report_make(&other, dp).total_bytes;
}

// Activations and data are in proportion to the microbatch, or nearly.
static bool try_microbatch(const Plan *p, const Report *r, int64_t most, FILE *err) {
  int64_t micro = p->m->train.microbatch;
  int64_t scaled = r->frame_bytes + r->data_bytes + r->pipeline_bytes;
  int64_t fixed = r->total_bytes - scaled, each = scaled / micro;
  int64_t fit = each > 0 ? (most - fixed) / each : 0;
  if (fixed >= most || fit < 1 || fit >= micro) return false;
  fprintf(err, "  microbatch = %lld would fit (it is %lld); the result stays the same\n",
          (long long)fit, (long long)micro);
  return true;
}

static bool try_one_in_flight(const Plan *p, int dp, int64_t most, FILE *err) {
  Plan other = *p;
  other.in_flight = 1;
  int64_t n = report_make(&other, dp).total_bytes;
  if (p->in_flight < 2 || n > most) return false;
  fprintf(err, "  --in-flight 1 would fit: %lld bytes\n", (long long)n);
  return true;
}

// Two microbatches in flight do not go with the later stages' reducing at every one.
static int last_stage(const Plan *p) {
  int stage = p->zero.stage;
  return p->in_flight < 2 ? 3 : stage > 1 ? stage : 1;
}

// The first stage that is enough with as many ranks.
static bool try_stages(const Plan *p, int dp, int64_t most, FILE *err) {
  for (int zero = p->zero.stage + 1; zero <= last_stage(p); zero++) {
    int64_t n = needs(p, zero, dp);
    if (n > most) continue;
    fprintf(err, "  --zero %d would fit: %lld bytes\n", zero, (long long)n);
    return true;
  }
  return false;
}

// The least power of two of ranks that is enough, with the plan's own stage if any is, else with
// the last.
static bool try_ranks(const Plan *p, int dp, int64_t most, FILE *err) {
  for (int zero = p->zero.stage, last = last_stage(p);; zero = last) {
    for (int n = 1; n <= MOST_RANKS; n *= 2) {
      int64_t bytes;
      if (n <= dp || (p->zero.group && n % p->zero.group)) continue;
      if ((bytes = needs(p, zero, n)) > most) continue;
      fprintf(err, "  --zero %d --dp %d would fit: %lld bytes a rank\n", zero, n, (long long)bytes);
      return true;
    }
    if (zero == last) return false;
  }
}

// The optimizer's state in a file, where the target's update can run there.
static bool try_offload(const Plan *p, int dp, int64_t most, FILE *err) {
  Plan other = *p;
  if (p->zero.offload || !offload_possible(p)) return false;
  other.zero.offload = DT_OFFLOAD_OPTIMIZER;
  Report r = report_make(&other, dp);
  if (r.total_bytes > most) return false;
  fprintf(err, "  --offload optimizer would fit: %lld bytes, and %lld in a file\n", (long long)r.total_bytes,
          (long long)r.file_bytes);
  return true;
}

// A launch decides whether it saves behind its steps: the program fits without.
static void note_snapshot(const Report *r, Str input, int64_t most, FILE *err) {
  int64_t all = r->total_bytes + r->snapshot_bytes;
  if (!most || !r->in_host || all <= most) return;
  fprintf(err, "%s: note: a run with --save-every needs %lld bytes, more than --memory %lld: %lld of them for the snapshot that is "
          "written behind the steps; --save-sync needs none\n",
          input, (long long)all, (long long)most, (long long)r->snapshot_bytes);
}

bool memory_fits(const Plan *p, Str input, int dp, int64_t most, FILE *err) {
  Report r = report_make(p, dp);
  if (!most || r.total_bytes <= most) {
    note_snapshot(&r, input, most, err);
    return true;
  }
  fprintf(err, "%s: error: the program needs %lld bytes of memory", input,
          (long long)r.total_bytes);
  if (dp > 1) fprintf(err, " a rank, ZeRO %d over %d data-parallel ranks", r.zero, dp);
  fprintf(err, ", more than --memory %lld\n", (long long)most);
  bool any = try_microbatch(p, &r, most, err);
  any = try_one_in_flight(p, dp, most, err) || any;
  any = (dp > 1 && try_stages(p, dp, most, err)) || any;
  any = any || try_ranks(p, dp, most, err);
  any = try_offload(p, dp, most, err) || any;
  if (!any)
    fprintf(err, "  parameters, gradients and optimizer state alone take %lld bytes\n",
            (long long)r.state_bytes);
  return false;
}
