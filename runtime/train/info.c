// What a training program is: --info as JSON, --dry-run as text.
#include "runtime/files/json.h"
#include "runtime/base/parallel.h"
#include "runtime/train/run.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/save.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const type_name[] = {
    [DT_TYPE_F32] = "f32", [DT_TYPE_F64] = "f64", [DT_TYPE_I32] = "i32", [DT_TYPE_BOOL] = "bool",
    [DT_TYPE_BF16] = "bf16", [DT_TYPE_F16] = "f16"};
static const char *const init_name[] = {[DT_ZEROS] = "zeros",
                                        [DT_ONES] = "ones",
                                        [DT_NORMAL] = "normal",
                                        [DT_UNIFORM] = "uniform",
                                        [DT_CONST] = "const"};
static const char *const data_name[] = {[DT_DATA_NONE] = "none",
                                        [DT_DATA_TOKENS] = "tokens",
                                        [DT_DATA_BYTES] = "bytes",
                                        [DT_DATA_ARRAYS] = "arrays"};
static const char *const optimizer_name[] = {
    [DT_SGD] = "sgd", [DT_ADAM] = "adam", [DT_ADAMW] = "adamw"};
static const char *const schedule_name[] = {[DT_CONSTANT] = "constant",
                                            [DT_LINEAR] = "linear",
                                            [DT_COSINE] = "cosine",
                                            [DT_INVSQRT] = "invsqrt"};

static void text(const char *key, const char *value) {
  char *quoted = value ? dt_json_quote(value) : NULL;
  printf("\"%s\":%s", key, quoted ? quoted : "null");
  free(quoted);
}

static void real(const char *key, double v) {
  char number[32];
  dt_json_real(number, v);
  printf(",\"%s\":%s", key, number);
}

static void integer(const char *key, int64_t v) { printf(",\"%s\":%lld", key, (long long)v); }

static int64_t parameters(const DtProgram *p) {
  int64_t n = 0;
  for (int i = 0; i < p->nparam; i++) n += p->param[i].count;
  return n;
}

static void print_train(const DtProgram *p, const DtOptions *o) {
  const DtTrain *t = &p->train;
  printf("\"train\":{\"data\":\"%s\",\"val\":\"%s\",", data_name[t->data], data_name[t->val]);
  text("data_path", o->data ? o->data : t->data_path);
  putchar(',');
  text("val_path", o->val ? o->val : t->val_path);
  integer("length", t->length);
  integer("batch", o->batch);
  integer("microbatch", t->microbatch);
  integer("steps", o->steps);
  integer("eval_every", o->eval_every);
  integer("seed", o->seed);
  printf(",\n\"optimizer\":{\"name\":\"%s\"", optimizer_name[t->optimizer]);
  real("lr", o->lr);
  if (t->optimizer == DT_SGD) {
    real("momentum", t->momentum);
    printf(",\"nesterov\":%s", t->nesterov ? "true" : "false");
  } else {
    real("beta1", t->beta1);
    real("beta2", t->beta2);
    real("eps", t->eps);
  }
  real("weight_decay", t->weight_decay);
  printf("},\"schedule\":{\"name\":\"%s\"", schedule_name[t->schedule]);
  integer("warmup", t->warmup);
  integer("steps", o->schedule_steps);
  real("final", t->final);
  printf("}");
  real("clip", t->clip);
  printf("},\n");
}

static void print_tensors(const DtProgram *p) {
  char shape[192];
  printf("\"parameters\":%lld,\n\"tensors\":[", (long long)parameters(p));
  for (int i = 0; i < p->nparam; i++) {
    const DtParam *a = &p->param[i];
    dt_shape_text(shape, a->rank, a->extent);
    printf("%s\n{", i ? "," : "");
    text("name", a->name);
    printf(",\"shape\":%s,\"init\":\"%s\",\"decay\":%s}", shape, init_name[a->init],
           a->decay ? "true" : "false");
  }
  printf("],\n\"data\":[");
  for (int k = 0; k < p->ndata; k++) {
    const DtData *a = &p->data[k];
    dt_shape_text(shape, a->rank, a->extent);
    printf("%s\n{", k ? "," : "");
    text("name", a->name);
    printf(",\"type\":\"%s\",\"shape\":%s", type_name[a->type], shape);
    if (a->checked) printf(",\"least\":%lld,\"most\":%lld", (long long)a->lo, (long long)a->hi - 1);
    putchar('}');
  }
  printf("],\n");
}

// The layout of a launch with `ranks` ranks.
typedef struct Layout {
  int ranks, tp, cp, dp, pp;
  DtCut cut;
  DtStages stages;
} Layout;

static int degree(int n) { return n > 1 ? n : 1; }

static int make_layout(Layout *l, const DtProgram *p, int ranks, DtError *e) {
  *l = (Layout){.ranks = ranks, .tp = degree(p->tp), .cp = degree(p->cp), .pp = degree(p->pp)};
  l->dp = ranks / (l->tp * l->cp * l->pp);
  if (l->dp * l->tp * l->cp * l->pp != ranks)
    return dt_fail(e, DT_EXIT_MISFIT, "%d ranks are no multiple of tp %d x cp %d x pp %d", ranks,
                   l->tp, l->cp, l->pp);
  int group = l->dp * l->cp;
  if (p->zero_group && group % p->zero_group != 0)
    return dt_fail(e, DT_EXIT_MISFIT, "--zero-group %d does not divide the %d ranks that share "
                   "parameters", p->zero_group, group);
  l->cut = dt_cut(p, group);
  return dt_stages_make(&l->stages, p, l->cut.owners, e);
}

// Of the stage that needs most.
static DtMemory most_memory(const DtProgram *p, const Layout *l, const DtOptions *o, int64_t micro, DtError *e) {
  DtMemory most = {0};
  int threads = o->threads ? (int)o->threads : 1;
  for (int s = 0; s < l->pp && !e->status; s++) {
    DtWalk w = {0};
    if (l->pp > 1) dt_walk_open(&w, p, s, (micro + l->dp - 1) / l->dp, 0, false, e);
    DtHost host = {dt_device_limits(), dt_device_work_bytes(p, threads), dt_exchange_plan(l->ranks), 0};
    if (dt_save_behind(p, o)) dt_save_snapshot_bytes(p, &l->stages, s, &l->cut, l->ranks, &host.snapshot, e);
    DtMemory m = dt_memory(&l->stages, s, p, &l->cut, true, &w, host);
    dt_walk_close(&w);
    if (m.total > most.total) most = m;
  }
  return most;
}

static void print_memory(const DtMemory *of) {
  DtMemory m = *of;
  printf(
      "\"memory\":{\"formula\":\"parameters + masters + gradients + moments + gathered + reducing + buckets + frame + "
      "batches + norm + collected + pipeline + tied + snapshot + scratch + exchange + staging\"");
  integer("parameters", m.params);
  integer("masters", m.masters);
  integer("gradients", m.grads);
  integer("moments", m.moments);
  integer("gathered", m.gathered);
  integer("reducing", m.reducing);
  integer("buckets", m.buckets);
  integer("frame", m.frame);
  integer("batches", m.batches);
  integer("norm", m.norm);
  integer("collected", m.collected);
  integer("pipeline", m.pipeline);
  integer("tied", m.tied);
  integer("snapshot", m.snapshot);
  integer("scratch", m.scratch);
  integer("exchange", m.exchange);
  integer("staging", m.staging);
  integer("total", m.total);
  // Where they are; beside the total, what is in the file of --offload-dir.
  printf(",\n\"levels\":{\"device\":%lld", (long long)(m.total - m.host));
  integer("host", m.host);
  integer("file", m.file);
  printf("}},\n");
}

static void print_layout(const DtProgram *p, const Layout *l) {
  printf(",\n\"layout\":{\"ranks\":%d,\"tp\":%d,\"pp\":%d,\"cp\":%d,\"ep\":1,\"dp\":%d,\"zero\":%d",
         l->ranks, l->tp, l->pp, l->cp, l->dp, p->zero);
  printf(",\"zero_group\":%d,\"accumulate\":\"%s\",\"gather\":\"%s\",\"in_flight\":%d,\"offload\":\"%s\"},\n",
         l->cut.owners, p->accumulate_each ? "each" : "once", p->gather_once ? "once" : "each",
         dt_in_flight(p), p->offload ? "optimizer" : "none");
}

// Of a launch on this machine: the device of each rank, if it has one to itself.
static void print_devices(int ranks) {
  DtDeviceName of;
  printf("\"devices\":[");
  for (int r = 0; r < ranks && dt_device_name_of(r, &of) && r < of.shown; r++) {
    printf("%s{\"local_rank\":%d,", r ? "," : "", r);
    text("name", of.name);
    putchar('}');
  }
  printf("],\n");
}

int dt_info(const DtProgram *p, const DtOptions *o, DtError *e) {
  Layout l;
  int ranks = o->ranks ? (int)o->ranks : degree(p->tp) * degree(p->cp) * degree(p->pp);
  if (make_layout(&l, p, ranks, e)) return e->status;
  int64_t each = p->ndata > 0 ? p->data[0].extent[0] : p->train.microbatch;
  DtMemory memory = most_memory(p, &l, o, (o->batch + each - 1) / each, e);
  if (e->status) return e->status;
  printf("{");
  text("model", p->model);
  putchar(',');
  text("build", p->build);
  putchar(',');
  text("precision", p->train.precision);
  putchar(',');
  text("products", dt_device_products(p));
  print_layout(p, &l);
  print_devices(ranks);
  print_train(p, o);
  print_tensors(p);
  print_memory(&memory);
  dt_stages_free(&l.stages);
  printf("\"kernels\":[");
  for (int i = 0; i < p->nkernel; i++) {
    printf("%s\n{", i ? "," : "");
    text("name", p->kernel[i].name);
    putchar(',');
    text("source", p->kernel[i].source);
    real("bytes", p->kernel[i].bytes);
    real("flops", p->kernel[i].flops);
    putchar('}');
  }
  printf("],\n");
  text("listing", p->listing);
  printf("}\n");
  return fflush(stdout) == 0 ? 0 : dt_fail_errno(e, DT_EXIT_IO, "cannot write", "to stdout");
}

static void size(const char *what, int64_t bytes) {
  if (bytes) printf("  %-12s %10.2f MiB\n", what, (double)bytes / (1 << 20));
}

static void plan_ranks(const DtRun *r, int64_t micro) {
  const DtZero *z = &r->zero;
  const int *n = dt_world.degree;
  if (dt_world.size == 1) return;
  int dp = n[DT_AXIS_DP];
  printf("ranks        %d: tp %d x cp %d x dp %d x pp %d, %lld microbatches each\n", dt_world.size,
         dt_tp_degree(), n[DT_AXIS_CP], dp, n[DT_AXIS_PP], (long long)((micro + dp - 1) / dp));
  if (n[DT_AXIS_PP] > 1) {
    DtPipeBubble b = dt_pipe_bubble(r->walk.route[DT_WALK_TRAIN].pipe);
    printf("pipeline     %s, %d chunks a stage, bubble %.1f%% by the compiler's estimate\n",
           dt_pipe_name[r->p->schedule], r->p->nchunk / n[DT_AXIS_PP],
           100.0 * (double)b.idle / (double)b.all);
  }
  printf("zero         %d, %d owners of each parameter, gradients reduced %s\n", r->p->zero,
         z->cut.owners, z->cut.each ? "at every microbatch" : "once a step");
}

void dt_plan(const DtRun *r) {
  const DtProgram *p = r->p;
  DtMemory m = dt_memory_of(r);
  int64_t micro = (r->o.batch + r->micro - 1) / r->micro;
  printf("model        %s, build %s, %s\n", p->model, p->build, p->train.precision);
  printf("parameters   %lld in %d tensors\n", (long long)parameters(p), p->nparam);
  printf("data         %s: %lld samples\n", r->train.path[0], (long long)r->train.count);
  if (r->has_val)
    printf("validation   %s: %lld samples\n", r->val.path[0], (long long)r->val.count);
  printf("batch        %lld samples: %lld microbatches of %lld", (long long)r->o.batch,
         (long long)micro, (long long)r->micro);
  if (r->o.batch % r->micro) printf(", the last with %lld", (long long)(r->o.batch % r->micro));
  if (dt_in_flight(p) > 1) printf(", %d in flight", dt_in_flight(p));
  printf("\nsteps        %lld to %lld\n", (long long)r->step, (long long)r->o.steps);
  plan_ranks(r, micro);
  if (dt_device_products(p)) printf("products     %s\n", dt_device_products(p));
  for (int i = 0; i < dt_world.size && r->device[i].device.name[0]; i++)
    printf("%-12s rank %d: %s\n", i ? "" : "devices", i, r->device[i].device.name);
  printf("threads      %d\nmemory%s\n", dt_threads(), dt_world.size > 1 ? " of a rank" : "");
  size("parameters", m.params);
  size("masters", m.masters);
  size("gradients", m.grads);
  size("moments", m.moments);
  size("gathered", m.gathered);
  size("reducing", m.reducing);
  size("buckets", m.buckets);
  size("frame", m.frame);
  size("batches", m.batches);
  size("norm", m.norm);
  size("collected", m.collected);
  size("pipeline", m.pipeline);
  size("tied", m.tied);
  size("snapshot", m.snapshot);
  size("scratch", m.scratch);
  size("exchange", m.exchange);
  size("staging", m.staging);
  size("total", m.total);
  if (m.file) printf("file of offloaded state, in %s\n", r->o.offload_dir);
  size("file", m.file);
}
