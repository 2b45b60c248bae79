#include "driver/report.h"

static int64_t moments(const Train *t) {
  return t->opt == OPT_SGD ? t->momentum != 0 : 2;
}

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
    *(k->kind == K_LOOPS ? &r->other_flops : &r->matrix_flops) += times * k->flops;
    r->kernels += (uint32_t)times;
  }
}

Report report_make(const Plan *p) {
  const Module *m = p->m;
  Report r = {0};
  int64_t size = dtype_size(m->compute);
  for (uint32_t i = 0; i < m->param.n; i++) {
    int64_t n = 1;
    for (int d = 0; d < m->param.at[i].rank; d++) n *= m->param.at[i].extent[d];
    r.parameters += n;
  }
  r.param_bytes = r.grad_bytes = r.parameters * size;
  r.moment_bytes = moments(&m->train) * r.param_bytes;
  for (Id f = 0; f < m->fn.n; f++) {
    for (int e = ENTRY_SAMPLE; e < NENTRY; e++)
      if (m->entry[e] == f && p->fn[f].frame_bytes > r.frame_bytes) r.frame_bytes = p->fn[f].frame_bytes;
  }
  const Fn *step = &m->fn.at[m->entry[ENTRY_STEP]];
  for (uint32_t i = 0; i < m->ndata; i++) {
    const Value *v = &step->value.at[step->arg.at[i]];
    r.data_bytes += value_count(v) * dtype_size(v->type);
  }
  r.total_bytes = r.param_bytes + r.grad_bytes + r.moment_bytes + r.frame_bytes + r.data_bytes;
  r.microbatches = (m->train.batch + m->train.microbatch - 1) / m->train.microbatch;
  add_fn(&r, p, m->entry[ENTRY_STEP], 1);
  return r;
}

static void line(FILE *out, const char *what, int64_t bytes) {
  fprintf(out, "  %-22s %16lld bytes %12.1f MiB\n", what, (long long)bytes, (double)bytes / (1 << 20));
}

void report_text(const Report *r, const Module *m, FILE *out) {
  fprintf(out, "%s, %s, one rank on the CPU\n\n", m->name, dtype_name[m->compute]);
  fprintf(out, "parameters               %16lld\n", (long long)r->parameters);
  fprintf(out, "batch                    %16lld samples in %lld microbatches of %lld\n", (long long)m->train.batch,
          (long long)r->microbatches, (long long)m->train.microbatch);
  fprintf(out, "kernels a microbatch     %16u\n", r->kernels);
  fprintf(out, "FLOPs a microbatch       %16.4g (matrix products and attention %.4g, the rest %.4g)\n\n",
          r->matrix_flops + r->other_flops, r->matrix_flops, r->other_flops);
  fprintf(out, "memory\n");
  line(out, "parameters", r->param_bytes);
  line(out, "gradients", r->grad_bytes);
  line(out, "optimizer state", r->moment_bytes);
  line(out, "activations, scratch", r->frame_bytes);
  line(out, "data", r->data_bytes);
  line(out, "total", r->total_bytes);
}

void report_json(const Report *r, const Module *m, FILE *out) {
  fprintf(out,
          "{\"model\":\"%s\",\"target\":\"cpu\",\"precision\":\"%s\",\"ranks\":1,\"parameters\":%lld,\"batch\":%lld,"
          "\"microbatch\":%lld,\"microbatches\":%lld,\"kernels\":%u,\"matrix_flops\":%.17g,\"other_flops\":%.17g,"
          "\"memory\":{\"parameters\":%lld,\"gradients\":%lld,\"optimizer\":%lld,\"activations\":%lld,"
          "\"data\":%lld,\"total\":%lld}}\n",
          m->name, dtype_name[m->compute], (long long)r->parameters, (long long)m->train.batch,
          (long long)m->train.microbatch, (long long)r->microbatches, r->kernels, r->matrix_flops, r->other_flops,
          (long long)r->param_bytes, (long long)r->grad_bytes, (long long)r->moment_bytes,
          (long long)r->frame_bytes, (long long)r->data_bytes, (long long)r->total_bytes);
}
