// One C function for each function of the program: straight calls, a loop for each repeat.
#include "codegen/host/host.h"
#include "codegen/target.h"

static const Fn *callee_of(const HostFn *x, const Call *c) { return &x->h->m->fn.at[c->fn]; }

bool call_passes_result(const Plan *p, const Call *c, uint32_t result) {
  ResultKind kind = result_place(p, c->fn, result).kind;
  if (kind == RESULT_ALIAS)
    BUG("%s is called, but takes over an argument's storage", p->m->fn.at[c->fn].name);
  return kind == RESULT_OWN;
}

Str host_buffer(HostFn *x, Id buffer) {
  Id v = x->storage[buffer];
  if (!x->name[v]) BUG("%s: %s has no storage", x->f->name, x->f->value.at[v].name);
  x->used[v] = true;
  return x->name[v];
}

Str host_plus(Str p, int64_t offset) {
  return offset ? str_printf("%s + %lld", p, (long long)offset) : p;
}

Str host_start(HostFn *x, Id value) {
  const Layout *l = &x->fp->layout[value];
  return host_plus(host_buffer(x, l->buffer), l->offset);
}

// The pointer to a value's first element. A value that is passed to a function or copied must have no gaps.
Str host_pointer(HostFn *x, Id value) {
  const Layout *l = &x->fp->layout[value];
  if (!layout_is_dense(&x->f->value.at[value], l))
    BUG("%s: %s is passed on, but is a view with gaps", x->f->name, x->f->value.at[value].name);
  return host_plus(host_buffer(x, l->buffer), l->offset);
}

Str host_frame(HostFn *x, int64_t bytes) {
  x->frame_used = true;
  return host_plus(str_intern("frame"), bytes);
}

static int64_t bytes_of(const Value *v) { return value_count(v) * dtype_size(v->type); }

// "x + i * 768": slice i of a stacked value.
static Str slice_pointer(HostFn *x, Id value, Str iter) {
  const Value *v = &x->f->value.at[value];
  int64_t slice = value_count(v) / v->extent[0];
  Str p = host_pointer(x, value);
  return slice == 1 ? str_printf("%s + %s", p, iter)
                    : str_printf("%s + %s * %lld", p, iter, (long long)slice);
}

static void put_copy(HostFn *x, int indent, Str to, Str from, int64_t bytes) {
  if (to == from) return;
  Str arg[] = {to, from, str_printf("%lld", (long long)bytes)};
  put_call(&x->body, indent, "dt_device_copy", arg, 3, ";\n");
}

// A call being printed: where its arguments and results lie.
typedef struct CallPrint {
  HostFn *x;
  Names loop; // names inside the loop of a repeat
  const Call *c;
  uint32_t stmt; // of the call
  int64_t frame; // bytes in our frame to the callee's
  int indent;
  Str iter; // name of the loop's variable, or NULL
  Str *arg; // for each argument
  Str *result; // for each result; NULL: dropped, and not passed either
  Str *turn; // for each carried argument that alternates: the pointer's name
  LayerPtrs layer; // of a repeat
} CallPrint;

static Str scratch_pointer(CallPrint *q, uint32_t result) {
  const Fn *callee = callee_of(q->x, q->c);
  int64_t at = call_scratch(q->x->h->p, q->c, result);
  if (at < 0) return NULL;
  Dtype t = callee->value.at[callee->result.at[result]].type;
  return str_printf("(%s *)(%s)", c_type(t), host_frame(q->x, q->frame + at));
}

static void actual_pointers(CallPrint *q) {
  HostFn *x = q->x;
  for (uint32_t i = 0; i < q->c->narg; i++) {
    const Actual *a = &q->c->arg[i];
    uint32_t stack = carry_stack(x->h->p, q->c, i);
    switch (a->mode) {
    case ACT_WHOLE: q->arg[i] = host_pointer(x, a->value); break;
    case ACT_SLICE:
      q->arg[i] = host_layer_slice(x, &q->layer, a->value);
      if (!q->arg[i]) q->arg[i] = slice_pointer(x, a->value, q->iter);
      break;
    case ACT_ITER: q->arg[i] = str_printf("%s_number", q->iter); break;
    case ACT_CARRY:
      if (stack != NONE)
        q->arg[i] = slice_pointer(x, q->c->result[stack].value, q->iter);
      else
        q->arg[i] = q->c->count > 1 ? q->turn[i] : host_pointer(x, a->value);
      break;
    }
  }
}

static Str last_iteration(const CallPrint *q) {
  return q->c->reverse ? str_printf("%s == 0", q->iter)
                       : str_printf("%s == %lld", q->iter, (long long)q->c->count - 1);
}

// Where a carried result goes: the last one to the value that the repeat defines.
static Str carried_pointer(CallPrint *q, uint32_t result) {
  HostFn *x = q->x;
  Str final = host_pointer(x, q->c->result[result].value);
  uint32_t stack = carry_stack(x->h->p, q->c, carry_arg(q->c, result));
  if (q->c->count == 1) return final;
  if (stack != NONE) {
    const char *next = q->c->reverse ? "-" : "+";
    Str slot = slice_pointer(x, q->c->result[stack].value, str_printf("(%s %s 1)", q->iter, next));
    return str_printf("%s ? %s : %s", last_iteration(q), final, slot);
  }
  int64_t last = q->c->reverse ? 0 : q->c->count - 1;
  return str_printf("%s %% 2 == %lld ? %s : %s", q->iter, (long long)(last % 2), final,
                    scratch_pointer(q, result));
}

static void result_pointers(CallPrint *q) {
  HostFn *x = q->x;
  for (uint32_t i = 0; i < q->c->nresult; i++) {
    const Result *r = &q->c->result[i];
    switch (r->mode) {
    case RES_WHOLE: q->result[i] = host_pointer(x, r->value); break;
    case RES_SLICE: q->result[i] = slice_pointer(x, r->value, q->iter); break;
    case RES_CARRY: q->result[i] = carried_pointer(q, i); break;
    case RES_DROP: q->result[i] = scratch_pointer(q, i); break;
    }
  }
}

// Results that the callee leaves to its caller: an argument handed back, or one result twice.
static void copy_shared_results(CallPrint *q) {
  HostFn *x = q->x;
  const Fn *callee = callee_of(x, q->c);
  for (uint32_t i = 0; i < q->c->nresult; i++) {
    ResultPlace place = result_place(x->h->p, q->c->fn, i);
    bool stacked = place.kind == RESULT_ARG && carry_stack(x->h->p, q->c, place.arg) == i;
    if (q->c->result[i].mode == RES_DROP || stacked) continue;
    int64_t bytes = bytes_of(&callee->value.at[callee->result.at[i]]);
    if (place.kind == RESULT_ARG) put_copy(x, q->indent, q->result[i], q->arg[place.arg], bytes);
    if (place.kind == RESULT_SAME)
      put_copy(x, q->indent, q->result[i], q->result[place.arg], bytes);
  }
}

static void print_one_call(CallPrint *q) {
  HostFn *x = q->x;
  uint32_t n = 0;
  Str *arg = NEWN(x->h->a, Str, q->c->narg + q->c->nresult + 3);
  for (uint32_t i = 0; i < q->c->narg; i++) arg[n++] = q->arg[i];
  for (uint32_t i = 0; i < q->c->nresult; i++)
    if (call_passes_result(x->h->p, q->c, i)) arg[n++] = q->result[i];
  if (x->h->p->fn[q->c->fn].frame_bytes) arg[n++] = host_frame(x, q->frame);
  if (x->h->random[q->c->fn]) {
    x->key_used = true;
    arg[n++] = str_intern("key");
  }
  if (host_takes_beta(x->h, q->c->fn)) {
    x->beta_used = true;
    arg[n++] = str_intern("beta");
  }
  put_call(&x->body, q->indent, x->h->fn[q->c->fn], arg, n, ";\n");
  copy_shared_results(q);
}

// Carried values before the first iteration: copied into their stack, or the first of two places in
// turn.
static void start_carries(CallPrint *q) {
  HostFn *x = q->x;
  for (uint32_t i = 0; i < q->c->narg; i++) {
    const Actual *a = &q->c->arg[i];
    if (a->mode != ACT_CARRY) continue;
    const Value *v = &x->f->value.at[a->value];
    uint32_t stack = carry_stack(x->h->p, q->c, i);
    if (stack != NONE) {
      int64_t first = q->c->reverse ? q->c->count - 1 : 0;
      Str slot = host_plus(host_pointer(x, q->c->result[stack].value), first * value_count(v));
      put_copy(x, 2, slot, host_pointer(x, a->value), bytes_of(v));
    } else if (q->c->count > 1) {
      const Fn *callee = callee_of(x, q->c);
      Str name = callee->value.at[callee->arg.at[i]].name;
      q->turn[i] = names_new(&x->names, str_printf("%s_in", name));
      buf_printf(&x->body, "  const %s *%s = %s;\n", c_type(v->type), q->turn[i],
                 host_pointer(x, a->value));
    }
  }
}

// In the loop, a carried result's place is chosen once and named: the call and the next iteration
// use it.
static void name_carried_results(CallPrint *q) {
  HostFn *x = q->x;
  const Fn *callee = callee_of(x, q->c);
  for (uint32_t i = 0; i < q->c->nresult; i++) {
    if (q->c->result[i].mode != RES_CARRY || q->c->count == 1) continue;
    const Value *v = &callee->value.at[callee->result.at[i]];
    Str name = names_new(&q->loop, str_printf("%s_out", v->name));
    buf_printf(&x->body, "    %s *%s = %s;\n", c_type(v->type), name, q->result[i]);
    q->result[i] = name;
  }
}

static void finish_carries(CallPrint *q) {
  for (uint32_t i = 0; i < q->c->nresult; i++) {
    if (q->c->result[i].mode != RES_CARRY || q->c->count == 1) continue;
    uint32_t arg = carry_arg(q->c, i);
    if (q->turn[arg]) buf_printf(&q->x->body, "    %s = %s;\n", q->turn[arg], q->result[i]);
  }
}

static bool takes_iteration(const Call *c) {
  for (uint32_t i = 0; i < c->narg; i++)
    if (c->arg[i].mode == ACT_ITER) return true;
  return false;
}

// Messages name the layer for operations that ranks post in the call.
static Str enter_layer(CallPrint *q) {
  HostFn *x = q->x;
  if (x->h->test || !x->h->exchanges[q->c->fn]) return NULL;
  Str outside = names_new(&q->loop, str_intern("outside"));
  Str arg[] = {host_plus(q->iter, host_first_layer(x, q->c)), str_printf("%lld", (long long)q->c->count)};
  put_call(&x->body, 4, str_printf("const int64_t %s = dt_layer_enter", outside), arg, 2, ";\n");
  return outside;
}

static void print_repeat(CallPrint *q) {
  HostFn *x = q->x;
  Buf *b = &x->body;
  const Call *c = q->c;
  start_carries(q);
  names_init(&q->loop, x->h->a, &x->names);
  q->iter = names_new(&q->loop, c->iter && *c->iter ? c->iter : str_intern("i"));
  q->indent = 4;
  if (c->reverse)
    buf_printf(b, "  for (int64_t %s = %lld; %s >= 0; %s--) {\n", q->iter, (long long)c->count - 1,
               q->iter, q->iter);
  else
    buf_printf(b, "  for (int64_t %s = 0; %s < %lld; %s++) {\n", q->iter, q->iter,
               (long long)c->count, q->iter);
  if (takes_iteration(c))
    buf_printf(b, "    DT_LAYER_NUMBER(%s_number, %s);\n", q->iter, q->iter);
  q->layer = host_layer_begin(x, &q->loop, q->stmt, q->iter);
  actual_pointers(q);
  result_pointers(q);
  name_carried_results(q);
  Str outside = enter_layer(q);
  print_one_call(q);
  if (outside) put_call(b, 4, "dt_layer_leave", &outside, 1, ";\n");
  host_layer_end(x, &q->layer, q->iter);
  finish_carries(q);
  buf_printf(b, "  }\n");
}

static void print_call(HostFn *x, uint32_t kernel) {
  uint32_t stmt = x->fp->kernel.at[kernel].stmt.at[0];
  const Stmt *s = &x->f->stmt.at[stmt];
  CallPrint q = {.x = x, .c = s->call, .stmt = stmt, .frame = x->fp->callee_frame[kernel], .indent = 2};
  q.arg = NEWN(x->h->a, Str, q.c->narg + 1);
  q.turn = NEWN(x->h->a, Str, q.c->narg + 1);
  q.result = NEWN(x->h->a, Str, q.c->nresult + 1);
  if (s->kind == ST_REPEAT) {
    print_repeat(&q);
    return;
  }
  actual_pointers(&q);
  result_pointers(&q);
  print_one_call(&q);
}

static void print_coll(HostFn *x, uint32_t kernel) {
  const Stmt *s = &x->f->stmt.at[x->fp->kernel.at[kernel].stmt.at[0]];
  host_post(x, kernel, host_pointer(x, s->lhs), host_pointer(x, s->from));
}

// The line of the user's file that a kernel comes from, where it differs from the one before.
static void print_place(HostFn *x, Id loc, Str *last) {
  const Sources *s = x->h->m->src;
  Buf place = {0};
  put_source(x->h->m, loc, true, &place);
  Str now = place.n ? str_internn(place.text, place.n) : NULL;
  buf_free(&place);
  if (!now || now == *last) return;
  *last = now;
  while (s->loc.at[loc].parent) loc = s->loc.at[loc].parent;
  const SourceFile *file = &s->file.at[s->loc.at[loc].file];
  buf_printf(&x->body, "%s  // ", x->body.n ? "\n" : "");
  put_comment(&x->body, now, strlen(now));
  const char *line = file->text;
  for (uint32_t i = 1; line && i < s->loc.at[loc].line; i++)
    line = (line = strchr(line, '\n')) ? line + 1 : NULL;
  if (line) {
    line += strspn(line, " \t");
    buf_printf(&x->body, ": ");
    put_comment(&x->body, line, strcspn(line, "\r\n"));
  }
  buf_printf(&x->body, "\n");
}

static void print_body(HostFn *x) {
  Str last = NULL;
  uint32_t gradients = host_first_gradient(x);
  for (uint32_t i = 0; i < x->fp->kernel.n; i++) {
    const Kernel *k = &x->fp->kernel.at[i];
    if (i == gradients) host_gradients_begin(x);
    print_place(x, k->stmt.n ? x->f->stmt.at[k->stmt.at[0]].loc : 0, &last);
    switch (k->kind) {
    case K_LOOPS:
    case K_GEMM:
    case K_SCAN:
    case K_INTRINSIC: x->h->m->target->launch(x, i); break;
    case K_CALL: print_call(x, i); break;
    case K_COLL: print_coll(x, i); break;
    case K_WAIT: host_wait(x, i); break;
    }
  }
  if (gradients == x->fp->kernel.n) host_gradients_begin(x);
}

// Arguments and the caller's results by name; locals by name with their place in the frame. A
// buffer that an alias ties to an argument goes by the argument's name.
static void name_storage(HostFn *x) {
  const Plan *p = x->h->p;
  for (Id v = 0; v < x->f->value.n; v++) x->storage[v] = v;
  for (uint32_t i = 0; i < x->f->result.n; i++) {
    ResultPlace r = result_place(p, x->id, i);
    if (r.kind == RESULT_ALIAS) x->storage[x->f->result.at[i]] = x->f->arg.at[r.arg];
  }
  for (uint32_t i = 0; i < x->f->arg.n; i++)
    x->name[x->f->arg.at[i]] = names_new(&x->names, x->f->value.at[x->f->arg.at[i]].name);
  for (uint32_t i = 0; i < x->f->result.n; i++) {
    Id v = x->f->result.at[i];
    if (result_place(p, x->id, i).kind == RESULT_OWN)
      x->name[v] = names_new(&x->names, x->f->value.at[v].name);
  }
  for (Id v = 0; v < x->f->value.n; v++)
    if (x->fp->address[v] >= 0) x->name[v] = names_new(&x->names, x->f->value.at[v].name);
}

// Whether the function writes what this argument points to.
static bool arg_is_written(const HostFn *x, uint32_t arg) {
  if (x->f->value.at[x->f->arg.at[arg]].role == ROLE_INOUT) return true;
  for (uint32_t i = 0; i < x->f->result.n; i++) {
    ResultPlace r = result_place(x->h->p, x->id, i);
    if (r.kind == RESULT_ALIAS && r.arg == arg) return true;
  }
  return false;
}

static Str arg_type(const HostFn *x, uint32_t arg) {
  const char *t = c_type(x->f->value.at[x->f->arg.at[arg]].type);
  return arg_is_written(x, arg) ? str_intern(t) : str_printf("const %s", t);
}

static void print_shape(const Value *v, Buf *b) {
  buf_printf(b, "[");
  for (uint32_t d = 0; d < v->rank; d++)
    buf_printf(b, "%s%lld", d ? ", " : "", (long long)v->extent[d]);
  buf_printf(b, "]");
}

static void print_locals(HostFn *x, Buf *b) {
  for (Id v = 0; v < x->f->value.n; v++) {
    const Value *l = &x->f->value.at[v];
    if (x->fp->address[v] < 0 || !x->used[v]) continue;
    const char *t = c_type(l->type);
    buf_printf(b, "  %s *%s = (%s *)(%s); // ", t, x->name[v], t, host_frame(x, x->fp->address[v]));
    print_shape(l, b);
    buf_printf(b, "\n");
  }
}

static Str entry_result(const HostFn *x, uint32_t result) {
  return x->chunk ? host_chunk_result(x, result) : host_entry_result(x->h, x->entry, result);
}

// An entry finds its buffers in the call.
static void print_entry(HostFn *x, const Buf *locals) {
  Buf *b = x->h->out;
  if (!x->chunk) host_check_entry(x->h, x->entry);
  buf_printf(b, "static void %s(const DtCall *call) {\n", x->h->fn[x->id]);
  for (uint32_t i = 0; i < x->f->arg.n; i++)
    if (x->used[x->f->arg.at[i]])
      buf_printf(b, "  %s *%s = %s;\n", arg_type(x, i), x->name[x->f->arg.at[i]],
                 x->chunk ? host_chunk_arg(x, i) : host_entry_arg(x->h, x->entry, i));
  for (uint32_t i = 0; i < x->f->result.n; i++) {
    Id v = x->f->result.at[i];
    if (result_place(x->h->p, x->id, i).kind == RESULT_OWN && x->used[v])
      buf_printf(b, "  %s *%s = %s;\n", c_type(x->f->value.at[v].type), x->name[v],
                 entry_result(x, i));
  }
  if (x->key_used) buf_printf(b, "  const uint64_t *key = call->scalars->key;\n");
  if (x->frame_used) buf_printf(b, "  char *frame = call->frame;\n");
  if (x->beta_used)
    buf_printf(b, "  const %s beta = call->fresh ? 0 : 1;\n", c_type(x->h->m->compute));
  if (!x->body.n) buf_printf(b, "  (void)call;\n");
  if (locals->n) buf_write(b, locals->text, locals->n);
}

static void print_signature(HostFn *x, const Buf *locals) {
  uint32_t n = 0;
  Str *par = NEWN(x->h->a, Str, x->f->arg.n + x->f->result.n + 3);
  Buf unused = {0}, *b = x->h->out;
  for (uint32_t i = 0; i < x->f->arg.n; i++) {
    Id v = x->f->arg.at[i];
    par[n++] = str_printf("%s *%s", arg_type(x, i), x->name[v]);
    if (!x->used[v]) buf_printf(&unused, "  (void)%s;\n", x->name[v]);
  }
  for (uint32_t i = 0; i < x->f->result.n; i++) {
    Id v = x->f->result.at[i];
    if (result_place(x->h->p, x->id, i).kind != RESULT_OWN) continue;
    par[n++] = str_printf("%s *%s", c_type(x->f->value.at[v].type), x->name[v]);
    if (!x->used[v]) buf_printf(&unused, "  (void)%s;\n", x->name[v]);
  }
  if (x->fp->frame_bytes) par[n++] = str_intern("char *frame");
  if (x->fp->frame_bytes && !x->frame_used) buf_printf(&unused, "  (void)frame;\n");
  if (x->h->random[x->id]) par[n++] = str_intern("const uint64_t *key");
  if (host_takes_beta(x->h, x->id)) par[n++] = str_printf("%s beta", c_type(x->h->m->compute));
  if (!n) par[n++] = str_intern("void");
  put_call(b, 0, str_printf("static void %s", x->h->fn[x->id]), par, n, " {\n");
  if (unused.n) buf_write(b, unused.text, unused.n);
  buf_free(&unused);
  if (locals->n) buf_write(b, locals->text, locals->n);
}

// An entry's results that are its arguments, or one another, have a separate place in the call.
static void copy_entry_results(HostFn *x) {
  for (uint32_t i = 0; x->entry != NENTRY && i < x->f->result.n; i++) {
    ResultPlace r = result_place(x->h->p, x->id, i);
    if (r.kind != RESULT_ARG && r.kind != RESULT_SAME) continue;
    Id v = x->f->result.at[i];
    put_copy(x, 2, entry_result(x, i), host_pointer(x, v),
             bytes_of(&x->f->value.at[v]));
  }
}

void host_fn(Host *h, Id fn) {
  HostFn x = {.h = h, .id = fn, .f = &h->m->fn.at[fn], .fp = &h->p->fn[fn]};
  x.entry = h->test ? NENTRY : host_entry_of(h, fn);
  if (!h->test) host_chunk_begin(&x);
  names_init(&x.names, h->a, &h->file);
  uint32_t n = x.f->value.n + 1;
  x.storage = NEWN(h->a, Id, n);
  x.name = NEWN(h->a, Str, n);
  x.used = NEWN(h->a, bool, n);
  x.ticket = NEWN(h->a, Str, x.fp->kernel.n + 1);
  name_storage(&x);
  host_find_layered(&x);
  print_body(&x);
  copy_entry_results(&x);
  Buf locals = {0};
  print_locals(&x, &locals);
  buf_printf(h->out, "// ");
  put_comment(h->out, x.f->name, strlen(x.f->name));
  buf_printf(h->out, ": %u kernels, frame of ", x.fp->kernel.n);
  put_bytes(h->out, (double)x.fp->frame_bytes);
  buf_printf(h->out, "\n");
  if (x.entry == NENTRY)
    print_signature(&x, &locals);
  else
    print_entry(&x, &locals);
  if (x.body.n) buf_printf(h->out, "%s%s", locals.n ? "\n" : "", x.body.text);
  buf_printf(h->out, "}\n\n");
  buf_free(&locals);
  buf_free(&x.body);
}
