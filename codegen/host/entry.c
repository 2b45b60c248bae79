// Where an entry's arguments and results lie: in the regions, batches and scalars of a DtCall.
// ir/ir.h fixes their order.
#include "codegen/host/host.h"

Entry host_entry_of(const Host *h, Id fn) {
  for (int e = ENTRY_SAMPLE; e < NENTRY; e++)
    if (h->m->entry[e] == fn) return (Entry)e;
  return NENTRY;
}

static const Fn *entry(const Host *h, Entry e) {
  return h->m->entry[e] == NONE ? NULL : &h->m->fn.at[h->m->entry[e]];
}

int update_moments(const Fn *update) {
  return (arg_find(update, MEANS_PIECE, PIECE_MOMENT1) != NONE) + (arg_find(update, MEANS_PIECE, PIECE_MOMENT2) != NONE);
}

static Str in_region(const char *region, const char *type, int64_t offset) {
  return offset ? str_printf("(%s *)call->%s + %lld", type, region, (long long)offset)
                : str_printf("call->%s", region);
}

static Str param_in(const Host *h, const char *region, uint32_t param) {
  Dtype type = strcmp(region, "param") ? h->m->compute : param_type(h->m);
  return in_region(region, c_type(type), h->params->param[param].offset);
}

// Element i of an array of reals among the call's scalars.
Str host_scalar(const Host *h, const char *array, uint32_t i) {
  const char *type = h->m->compute == DT_F64 ? "f64" : "f32";
  return i ? str_printf("call->scalars->%s.%s + %u", array, type, i)
           : str_printf("call->scalars->%s.%s", array, type);
}

// update: (lr, correct1, root2, decay, scale, param, grad, moments)
static Str update_arg(const Host *h, uint32_t i) {
  if (i < NUPDATE_SCALAR) return host_scalar(h, "update", i);
  if (i < 7) return str_intern(i == 5 ? "call->param" : "call->grad");
  return str_printf("call->moment[%u]", i - 7);
}

// count, step, eval: (data, first, batch, totals, params, grads)
static Str batch_arg(const Host *h, Entry e, uint32_t i) {
  uint32_t nd = h->m->ndata, np = h->m->param.n;
  const Fn *count = entry(h, ENTRY_COUNT);
  uint32_t nt = count && e != ENTRY_COUNT ? count->result.n : 0;
  if (i < nd) return str_printf("call->data[%u]", i);
  i -= nd;
  if (i < 2) return str_intern(i == 0 ? "&call->scalars->first" : "&call->scalars->batch");
  i -= 2;
  if (i < nt) return host_scalar(h, "total", i);
  i -= nt;
  return i < np ? param_in(h, "param", i) : param_in(h, "grad", i - np);
}

// The order of an entry's arguments is what host_entry_arg takes it to be.
static void check_arg(const Host *h, Entry e, uint32_t i, Meaning k, uint32_t of) {
  const Fn *f = entry(h, e);
  if (i >= f->arg.n || !value_means(&f->value.at[f->arg.at[i]], k, of))
    BUG("%s: argument %u is %s, expected %s %u", f->name, i,
        i < f->arg.n ? f->value.at[f->arg.at[i]].name : "absent", meaning_name[k], of);
}

void host_check_entry(const Host *h, Entry e) {
  const Fn *f = entry(h, e);
  uint32_t nd = h->m->ndata, np = h->m->param.n;
  const Fn *count = entry(h, ENTRY_COUNT);
  uint32_t nt = count ? count->result.n : 0, n = 0;
  switch (e) {
  case ENTRY_SAMPLE: n = 1 + np; break;
  case ENTRY_COUNT: n = nd + 2; break;
  case ENTRY_STEP: n = nd + 2 + nt + 2 * np; break;
  case ENTRY_EVAL: n = nd + 2 + nt + np; break;
  case ENTRY_UPDATE: n = 7 + (uint32_t)update_moments(f); break;
  default: BUG("no such entry");
  }
  const FnPlan *fp = &h->p->fn[h->m->entry[e]];
  if (e == ENTRY_UPDATE && (fp->kernel.n != 1 || fp->frame_bytes))
    BUG("%s is not one kernel", f->name);
  while (n < f->arg.n && host_trailing_arg(h, &f->value.at[f->arg.at[n]])) n++;
  if (f->arg.n != n) BUG("%s has %u arguments, expected %u", f->name, f->arg.n, n);
  if (e == ENTRY_COUNT || e == ENTRY_STEP || e == ENTRY_EVAL) check_arg(h, e, nd, MEANS_FIRST, 0);
  if (e == ENTRY_UPDATE) check_arg(h, e, 0, MEANS_SCALAR, SCALAR_LR);
}

Str host_entry_arg(const Host *h, Entry e, uint32_t i) {
  const Fn *f = entry(h, e);
  Str rank = host_trailing_arg(h, &f->value.at[f->arg.at[i]]);
  if (rank) return rank;
  switch (e) {
  case ENTRY_SAMPLE: return i == 0 ? str_intern("call->data[0]") : param_in(h, "param", i - 1);
  case ENTRY_UPDATE: return update_arg(h, i);
  default: return batch_arg(h, e, i);
  }
}

Str host_entry_result(const Host *h, Entry e, uint32_t result) {
  const Fn *f = entry(h, e);
  int64_t at = 0;
  for (uint32_t i = 0; i <= result; i++) {
    const Value *v = &f->value.at[f->result.at[i]];
    if (v->type != h->m->compute)
      BUG("%s: result %s is no real of the program's type", f->name, v->name);
    if (i < result) at += value_count(v);
  }
  return in_region("out", c_type(h->m->compute), at);
}
