// A repeat over the layers of a stack asks the runtime where the layer's parameters and gradients
// are, as other ranks may hold them, and says when its gradients are made.
#include "codegen/host/host.h"

void host_find_layered(HostFn *x) {
  x->params = NEWN(x->h->a, uint32_t, x->f->value.n + 1);
  x->grads = NEWN(x->h->a, uint32_t, x->f->value.n + 1);
  if (x->entry != ENTRY_STEP && x->entry != ENTRY_EVAL && x->entry != ENTRY_SAMPLE) return;
  for (uint32_t i = 0; x->chunk && i < x->f->arg.n; i++) {
    bool grad;
    uint32_t p = host_chunk_piece(x, i, &grad);
    if (p != NONE && x->h->params->param[p].stack != NONE)
      (grad ? x->grads : x->params)[x->f->arg.at[i]] = p + 1;
  }
  if (x->chunk) return;
  for (uint32_t i = 0; i < x->h->m->param.n; i++) {
    if (x->h->params->param[i].stack == NONE) continue;
    Id v = arg_find(x->f, MEANS_PARAM, i), g = arg_find(x->f, MEANS_GRAD, i);
    if (v != NONE) x->params[v] = i + 1;
    if (g != NONE) x->grads[g] = i + 1;
  }
}

static bool is_outside_gradient(const HostFn *x, Id v) {
  return x->f->value.at[v].role == ROLE_INOUT && !x->grads[v];
}

typedef struct Touch {
  const HostFn *x;
  bool found;
} Touch;

static void touch(Id buffer, bool written, void *ctx) {
  Touch *t = ctx;
  (void)written;
  t->found = t->found || is_outside_gradient(t->x, buffer);
}

uint32_t host_first_gradient(const HostFn *x) {
  uint32_t n = x->fp->kernel.n;
  if (x->entry != ENTRY_STEP) return NONE;
  for (uint32_t i = 0; i < n; i++) {
    Touch t = {x, false};
    kernel_touch(x->h->p, x->id, &x->fp->kernel.at[i], touch, &t);
    if (t.found) return i;
  }
  return n;
}

// Until here gradients of the microbatch before may be on their way. In the first one those that no
// product stores start as zeros.
void host_gradients_begin(HostFn *x) {
  bool any = false;
  Str call = str_intern("call");
  buf_printf(&x->body, "\n");
  put_call(&x->body, 2, "dt_outside_grads", &call, 1, ";\n");
  for (uint32_t i = 0; i < x->f->arg.n; i++) {
    Id v = x->f->arg.at[i];
    if (!is_outside_gradient(x, v) || x->h->stores[x->id][i]) continue;
    if (!any) buf_printf(&x->body, "  if (call->fresh) {\n");
    any = true;
    int64_t bytes = value_count(&x->f->value.at[v]) * dtype_size(x->f->value.at[v].type);
    Str arg[] = {host_pointer(x, v), str_printf("%lld", (long long)bytes)};
    put_call(&x->body, 4, "dt_device_zero", arg, 2, ";\n");
  }
  if (any) buf_printf(&x->body, "  }\n");
}

static uint32_t stack_of(const HostFn *x, uint32_t param) {
  return x->h->params->param[param - 1].stack;
}

Str host_layer_slice(const HostFn *x, const LayerPtrs *l, Id value) {
  uint32_t param = x->params[value] ? x->params[value] : x->grads[value];
  if (!param) return NULL;
  const ParamPlace *q = &x->h->params->param[param - 1];
  Str base = (x->params[value] ? l->param : l->grad)[q->stack];
  return q->offset ? str_printf("%s + %lld", base, (long long)q->offset) : base;
}

static void print_pointer(HostFn *x, uint32_t stack, Str name, bool grad, const Call *c, Str iter) {
  const char *type = c_type(grad ? x->h->m->compute : param_type(x->h->m));
  Str next = str_printf("%s %c 1", iter, c->reverse ? '-' : '+');
  Str arg[] = {str_intern("call"), str_printf("%u", stack), iter, next};
  Str head = grad ? str_printf("%s *%s = dt_layer_grads", type, name)
                  : str_printf("const %s *%s = dt_layer_params", type, name);
  put_call(&x->body, 4, head, arg, grad ? 3 : 4, ";\n");
}

// In the first microbatch, gradients that no product stores start as zeros: runs of parameters that
// lie together at once.
static void zero_gradients(HostFn *x, uint32_t stack, Str base) {
  const ParamLayout *l = x->h->params;
  int64_t from = 0, to = 0;
  bool any = false;
  Buf fill = {0};
  for (uint32_t i = 0; i <= l->n; i++) {
    bool last = i == l->n;
    if (!last && l->param[i].stack != stack) continue;
    bool stored = false;
    for (uint32_t k = 0; !last && k < x->f->arg.n; k++)
      if (x->grads[x->f->arg.at[k]] == i + 1) stored = x->h->stores[x->id][k];
    if (!last && !stored) {
      if (from == to) from = l->param[i].offset;
      to = l->param[i].offset + l->param[i].count / l->stack.at[stack].count;
      continue;
    }
    if (to > from) {
      Str at = from ? str_printf("%s + %lld", base, (long long)from) : base;
      Str arg[] = {at, str_printf("%lld", (long long)((to - from) * dtype_size(x->h->m->compute)))};
      put_call(&fill, 6, "dt_device_zero", arg, 2, ";\n");
      any = true;
    }
    from = to = 0;
  }
  if (any) buf_printf(&x->body, "    if (call->fresh) {\n%s    }\n", fill.text);
  buf_free(&fill);
}

int64_t host_first_layer(const HostFn *x, const Call *c) {
  for (uint32_t i = 0; x->chunk && i < c->narg; i++) {
    if (c->arg[i].mode != ACT_SLICE) continue;
    for (uint32_t k = 0; k < x->f->arg.n; k++) {
      bool grad;
      uint32_t p = x->f->arg.at[k] == c->arg[i].value ? host_chunk_piece(x, k, &grad) : NONE;
      if (p != NONE) return x->h->params->piece[p].first;
    }
  }
  return 0;
}

LayerPtrs host_layer_begin(HostFn *x, Names *loop, uint32_t stmt, Str iter) {
  const Call *c = x->f->stmt.at[stmt].call;
  uint32_t n = x->h->params ? x->h->params->stack.n : 0;
  LayerPtrs l = {NEWN(x->h->a, Str, n + 1), NEWN(x->h->a, Str, n + 1)};
  for (uint32_t i = 0; i < c->narg; i++) {
    if (c->arg[i].mode == ACT_ITER) continue;
    Id v = c->arg[i].value;
    bool grad = x->grads[v];
    if (!grad && !x->params[v]) continue;
    uint32_t s = stack_of(x, grad ? x->grads[v] : x->params[v]);
    Str *name = &(grad ? l.grad : l.param)[s], stack = x->h->params->stack.at[s].name;
    if (*name) continue;
    *name = names_new(loop, str_printf(grad ? "%s_grads" : "%s_params", stack));
    print_pointer(x, s, *name, grad, c, iter);
    if (grad) zero_gradients(x, s, *name);
  }
  return l;
}

void host_layer_end(HostFn *x, const LayerPtrs *l, Str iter) {
  for (uint32_t s = 0; x->h->params && s < x->h->params->stack.n; s++) {
    if (!l->grad[s]) continue;
    Str arg[] = {str_intern("call"), str_printf("%u", s), iter};
    put_call(&x->body, 4, "dt_layer_reduce", arg, 3, ";\n");
  }
}
