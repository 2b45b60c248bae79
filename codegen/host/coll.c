// Collectives: posted to the communication thread where their operand is there, waited for where
// the plan says (overlap.c).
#include "codegen/host/host.h"

Str host_axis(const Module *m, uint32_t axis) {
  const Axis *x = &m->axis.at[axis];
  if (x->id == AXIS_TP) return str_intern(x->part == AXIS_OUTER ? "DT_AXIS_TP_OUTER" : "DT_AXIS_TP");
  if (x->id == AXIS_CP && !is_factor(x)) return str_intern("DT_AXIS_CP");
  BUG("programs are not cut over axis %s", x->name);
}

Str host_trailing_arg(const Host *h, const Value *v) {
  if (v->means == MEANS_LOSS_SCALE) return host_scalar(h, "loss_scale", 0);
  return v->means == MEANS_RANK ? str_printf("&call->scalars->coord[%s]", host_axis(h->m, v->of)) : NULL;
}

static Str note(HostFn *x, const Stmt *s) {
  Buf b = {0}, place = {0};
  buf_printf(&b, "(DtNote){");
  put_string(&b, value_plain_name(&x->f->value.at[s->lhs]));
  put_source(x->h->m, s->loc, true, &place);
  buf_printf(&b, ", -1, ");
  CHECK(place.n); // a conversion has the place of the value that it converts
  put_string(&b, place.text);
  buf_printf(&b, "}");
  Str text = str_internn(b.text, b.n);
  buf_free(&b);
  buf_free(&place);
  return text;
}

// "; // 3.1 MB over tp"
static Str remark(HostFn *x, const Stmt *s, int64_t bytes) {
  Buf b = {0};
  buf_printf(&b, "; // ");
  put_bytes(&b, (double)bytes);
  buf_printf(&b, " over %s\n", coll_axis_name(x->h->m, s));
  Str text = str_internn(b.text, b.n);
  buf_free(&b);
  return text;
}

void host_post(HostFn *x, uint32_t kernel, Str to, Str from) {
  static const char *const function[NCOLL] = {"dt_all_reduce", "dt_all_gather", "dt_reduce_scatter",
                                              "dt_all_to_all", "dt_shift"};
  static const char *const op[NRED] = {
      [RED_SUM] = "DT_SUM", [RED_MAX] = "DT_MAX", [RED_MIN] = "DT_MIN"};
  const Kernel *k = &x->fp->kernel.at[kernel];
  const Stmt *s = &x->f->stmt.at[k->stmt.at[0]];
  const Value *lhs = &x->f->value.at[s->lhs], *in = &x->f->value.at[s->from];
  int64_t count = value_count(s->coll == COLL_REDUCE_SCATTER ? in : lhs);
  if (lhs->type == DT_BOOL || !host_type[lhs->type]) BUG("ranks do not exchange %s", dtype_name[lhs->type]);
  Str arg[8];
  uint32_t n = 0;
  arg[n++] = s->both ? str_intern("dt_group(DT_TP_AXES)")
                     : str_printf("dt_group(1u << %s)", host_axis(x->h->m, s->axis));
  arg[n++] = str_intern(host_type[lhs->type]);
  if (coll_reduces(s->coll)) arg[n++] = str_intern(op[s->red]);
  arg[n++] = from;
  arg[n++] = to;
  arg[n++] = str_printf("%lld", (long long)count);
  arg[n++] = note(x, s);
  Str ticket = x->ticket[k->wait] = names_new(&x->names, str_printf("%s_ticket", lhs->name));
  Str head = str_printf("const DtTicket %s = %s", ticket, function[s->coll]);
  put_call(&x->body, 2, head, arg, n, remark(x, s, count * dtype_size(lhs->type)));
}

void host_wait(HostFn *x, uint32_t kernel) {
  if (!x->ticket[kernel]) BUG("%s waits for nothing", x->f->name);
  const char *wait = x->h->p->in_flight > 1 ? "dt_wait_aside" : "dt_wait";
  buf_printf(&x->body, "  %s(%s);\n", wait, x->ticket[kernel]);
}
