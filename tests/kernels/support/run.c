#define _GNU_SOURCE
#include "codegen/target.h"
#include "tests/kernels/support/run.h"

#include "ir/interp/interp.h"
#include "ir/text/text.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

typedef void KernelFn(void *const *arg, int64_t begin, int64_t end);
typedef struct Run {
  Plan *p;
  Module *m;
  void *so;
  uint64_t key[2];
} Run;

Module *kernels_parse(const char *name, const char *text) {
  Arena *a = arena_new();
  Module *m = ir_parse(a, sources_new(a), str_intern(name), text, strlen(text));
  if (m) target_use(m, target_named("cpu"));
  return m;
}

int kernel_count(const Plan *p, const FnPlan *f, KernelKind kind) {
  (void)p;
  int n = 0;
  for (uint32_t i = 0; i < f->kernel.n; i++) n += f->kernel.at[i].kind == kind;
  return n;
}

static void *load(const Buf *object) {
  char dir[] = "/tmp/dtc_kernels_XXXXXX";
  if (!mkdtemp(dir)) return NULL;
  char cmd[512], so[64], o[64];
  snprintf(o, sizeof o, "%s/k.o", dir);
  snprintf(so, sizeof so, "%s/k.so", dir);
  FILE *f = fopen(o, "wb");
  fwrite(object->text, 1, object->n, f);
  fclose(f);
  snprintf(cmd, sizeof cmd, "cc -shared -o %s %s -lmvec -lm", so, o);
  void *h = system(cmd) ? NULL : dlopen(so, RTLD_NOW);
  if (!h) fprintf(stderr, "%s\n", dlerror());
  snprintf(cmd, sizeof cmd, "rm -r %s", dir);
  return system(cmd) ? NULL : h;
}

static double from_half(Dtype t, uint16_t bits) {
  if (t == DT_BF16) {
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
  }
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double v = exponent == 31 ? (mantissa ? NAN : INFINITY)
             : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                            : ldexp(mantissa, -24);
  return bits >> 15 ? -v : v;
}

// Of a value that the type holds.
static uint16_t to_half(Dtype t, double v) {
  if (t == DT_BF16) {
    float f = (float)v;
    uint32_t wide;
    memcpy(&wide, &f, sizeof wide);
    return (uint16_t)(wide >> 16);
  }
  unsigned sign = signbit(v) ? 0x8000 : 0;
  int e;
  if (isnan(v)) return 0x7e00;
  if (isinf(v)) return (uint16_t)(sign | 0x7c00);
  double f = frexp(fabs(v), &e); // 0.5 <= f < 1
  if (v == 0 || e < -13) return (uint16_t)(sign | (unsigned)ldexp(fabs(v), 24));
  return (uint16_t)(sign | ((unsigned)(e + 14) << 10) | ((unsigned)ldexp(f, 11) & 1023));
}

static double get(const Run *r, const Value *v, const void *p, int64_t i) {
  (void)r;
  switch (v->type) {
  case DT_BF16:
  case DT_F16: return from_half(v->type, ((const uint16_t *)p)[i]);
  case DT_F32: return ((const float *)p)[i];
  case DT_I32: return ((const int32_t *)p)[i];
  case DT_BOOL: return ((const uint8_t *)p)[i];
  default: return ((const double *)p)[i];
  }
}

static void put(const Value *v, void *p, int64_t i, double x) {
  switch (v->type) {
  case DT_BF16:
  case DT_F16: ((uint16_t *)p)[i] = to_half(v->type, interp_round(v->type, x)); break;
  case DT_F32: ((float *)p)[i] = (float)x; break;
  case DT_I32: ((int32_t *)p)[i] = (int32_t)x; break;
  case DT_BOOL: ((uint8_t *)p)[i] = x != 0; break;
  default: ((double *)p)[i] = x;
  }
}

static void gemm_run(const Run *r, const Fn *f, const GemmPlan *g, void **base, const Layout *l) {
  const Value *v = &f->value.at[g->c], *va = &f->value.at[g->a], *vb = &f->value.at[g->b];
  int64_t n[4] = {1, 1, 1, 1}, sa[4] = {0}, sb[4] = {0}, sc[4] = {0};
  for (uint32_t i = 0; i < g->nbatch; i++) {
    n[i] = g->batch[i].count, sa[i] = g->batch[i].a, sb[i] = g->batch[i].b, sc[i] = g->batch[i].c;
  }
  for (int64_t x = 0; x < n[0] * n[1] * n[2] * n[3]; x++) {
    int64_t i[4] = {x / (n[1] * n[2] * n[3]), x / (n[2] * n[3]) % n[1], x / n[3] % n[2], x % n[3]};
    int64_t a = g->a_offset, b = g->b_offset, c = g->c_offset;
    for (int k = 0; k < 4; k++) a += i[k] * sa[k], b += i[k] * sb[k], c += i[k] * sc[k];
    for (int64_t row = 0; row < g->m; row++)
      for (int64_t col = 0; col < g->n; col++) {
        double sum = 0;
        for (int64_t k = 0; k < g->k; k++)
          sum += get(r, va, base[l[g->a].buffer], a + row * g->a_row + k * g->a_col) *
                 get(r, vb, base[l[g->b].buffer], b + k * g->b_row + col * g->b_col);
        int64_t at = c + row * g->c_row + col;
        if (g->accumulate) sum += get(r, v, base[l[g->c].buffer], at);
        if (g->bias != NONE) sum += get(r, &f->value.at[g->bias], base[l[g->bias].buffer], g->bias_offset + col);
        put(v, base[l[g->c].buffer], at, sum);
      }
  }
}

static void scan_run(const Run *r, const Fn *f, const ScanPlan *p, void **base) {
  const Value *v = &f->value.at[p->to];
  int64_t points = p->column.count;
  for (uint32_t k = 0; k < p->nloop; k++) points *= p->loop[k].count;
  for (int64_t t = 0; t < points; t++) {
    int64_t rest = t / p->column.count, c = t % p->column.count;
    int64_t x = p->from_offset + c * p->column.x, y = p->to_offset + c * p->column.y;
    for (uint32_t k = 0; k < p->nloop; rest /= p->loop[k++].count) {
      x += rest % p->loop[k].count * p->loop[k].x;
      y += rest % p->loop[k].count * p->loop[k].y;
    }
    double sum = 0;
    for (int64_t i = 0; i < p->along.count; i++) {
      int64_t at = p->reverse ? p->along.count - 1 - i : i, to = y + at * p->along.y;
      double before = sum;
      sum += get(r, v, base[p->from], x + at * p->along.x);
      put(v, base[p->to], to,
          (p->exclusive ? before : sum) + (p->add ? get(r, v, base[p->to], to) : 0));
    }
  }
}

// Tasks from the last to the first: their order must not matter.
static bool loops_run(const Run *r, const Kernel *k, void **base) {
  KernelFn *fn = (KernelFn *)dlsym(r->so, str_printf("kernel.%s", k->name));
  if (!fn) return fprintf(stderr, "no kernel %s\n", k->name), false;
  void *arg[64];
  for (uint32_t i = 0; i < k->arg.n; i++) arg[i] = base[k->arg.at[i]];
  arg[k->arg.n] = (void *)r->key;
  for (int64_t c = (k->grid + k->chunk - 1) / k->chunk; c-- > 0;) {
    int64_t end = (c + 1) * k->chunk;
    fn(arg, c * k->chunk, end < k->grid ? end : k->grid);
  }
  return true;
}

static void *room(const Value *v) {
  size_t n = (size_t)value_count(v) * (size_t)dtype_size(v->type);
  void *p = aligned_alloc(64, (n + 127) / 64 * 64);
  memset(p, 0xff, n); // NaN: nothing may rely on memory being zero
  return p;
}

static bool fn_run(const Run *r, Id fn, void **arg, void **result);

static bool call_run(const Run *r, const Fn *f, const Stmt *s, void **base, const Layout *l) {
  const Call *c = s->call;
  const Fn *callee = &r->m->fn.at[c->fn];
  void *carry[64] = {0}, *arg[64], *result[64];
  int32_t iter;
  for (int64_t n = 0; n < c->count; n++) {
    iter = (int32_t)(c->reverse ? c->count - 1 - n : n);
    uint32_t nth = 0;
    for (uint32_t i = 0; i < c->narg; i++) {
      const Value *v = &callee->value.at[callee->arg.at[i]];
      int64_t bytes = value_count(v) * dtype_size(v->type);
      char *p = c->arg[i].value == NONE ? NULL : base[l[c->arg[i].value].buffer];
      if (p) p += l[c->arg[i].value].offset * dtype_size(v->type);
      if (c->arg[i].mode == ACT_ITER) arg[i] = &iter;
      else if (c->arg[i].mode == ACT_SLICE) arg[i] = p + iter * bytes;
      else if (c->arg[i].mode == ACT_CARRY) arg[i] = n ? carry[nth++] : (nth++, p);
      else arg[i] = p;
    }
    nth = 0;
    for (uint32_t i = 0; i < c->nresult; i++) {
      const Value *v = &callee->value.at[callee->result.at[i]];
      int64_t bytes = value_count(v) * dtype_size(v->type);
      char *p = c->result[i].value == NONE ? NULL : base[l[c->result[i].value].buffer];
      if (c->result[i].mode == RES_SLICE) result[i] = p + iter * bytes;
      else if (c->result[i].mode == RES_WHOLE) result[i] = p;
      else if (c->result[i].mode == RES_CARRY && n == c->count - 1) result[i] = p;
      else result[i] = room(v);
    }
    if (!fn_run(r, c->fn, arg, result)) return false;
    for (uint32_t i = 0; i < c->nresult; i++)
      if (c->result[i].mode == RES_CARRY) carry[nth++] = result[i];
  }
  (void)f;
  return true;
}

static bool fn_run(const Run *r, Id fn, void **arg, void **result) {
  const FnPlan *fp = &r->p->fn[fn];
  const Fn *f = &r->m->fn.at[fn];
  void **base = calloc(f->value.n, sizeof *base);
  for (uint32_t i = 0; i < f->arg.n; i++) base[f->arg.at[i]] = arg[i];
  for (uint32_t i = 0; i < f->result.n; i++) {
    Id v = f->result.at[i], over = f->alias.n ? f->alias.at[i] : NONE;
    if (fp->layout[v].buffer != v || f->value.at[v].role != ROLE_LOCAL) continue;
    base[v] = over == NONE ? result[i] : base[over];
  }
  for (Id v = 0; v < f->value.n; v++)
    if (!base[v] && fp->layout[v].buffer == v && !fp->layout[v].internal)
      base[v] = room(&f->value.at[v]);
  bool ok = true;
  for (uint32_t i = 0; i < fp->kernel.n && ok; i++) {
    const Kernel *k = &fp->kernel.at[i];
    if (k->kind == K_LOOPS) ok = loops_run(r, k, base);
    else if (k->kind == K_GEMM) gemm_run(r, f, &k->gemm, base, fp->layout);
    else if (k->kind == K_SCAN) scan_run(r, f, &k->scan, base);
    else if (k->kind == K_CALL) ok = call_run(r, f, &f->stmt.at[k->stmt.at[0]], base, fp->layout);
    else ok = false;
  }
  for (uint32_t i = 0; i < f->result.n; i++) { // results that are arguments, or over one
    Id v = fp->layout[f->result.at[i]].buffer;
    if (base[v] != result[i])
      memcpy(result[i], base[v],
             (size_t)(value_count(&f->value.at[v]) * dtype_size(f->value.at[v].type)));
  }
  return ok;
}

static uint64_t next(uint64_t *s) {
  *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
  return *s;
}

// Integers lie within 0 .. 3, so that they may be used as subscripts of extent 4 and more.
static double sample(const Value *v, uint64_t *s, bool small) {
  double u = (double)(next(s) >> 11) * 0x1p-53;
  if (v->type == DT_BOOL) return u < 0.5;
  if (v->type == DT_I32) return floor(u * 4);
  return small ? floor(u * 7) - 3 : interp_round(v->type, u * 4 - 2);
}

// A float at or beside a tie of bf16's or f16's last place, of any exponent, or of f16's: subnormal,
// overflowing, infinite and NaN as they come.
static double edge(uint64_t *s) {
  uint64_t r = next(s);
  uint32_t low = r & 1 ? 16 : 13, half = 1u << (low - 1), near = (uint32_t)(r >> 1 & 3);
  uint32_t bits = (uint32_t)(r >> 32) & ~(2 * half - 1);
  if (near) bits |= half + near - 2;
  if (r & 8) bits = (bits & 0x807fffff) | (96 + (uint32_t)(r >> 4 & 63) % 50) << 23;
  if (r & 8 && r & 1 && (r >> 10 & 3) == 0) bits &= 0xff800000 | 0xffffffffu << (r >> 12 & 31) % 24;
  if ((r >> 20 & 63) == 0) bits = (bits & 0x8000ffff) | 0x7f800000; // a NaN by its last bits alone
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static bool differs(const Value *v, const Tensor *t, const void *got, const char *name,
                    double tolerance, double unit) {
  for (int64_t i = 0; i < tensor_count(t); i++) {
    double want = t->real ? t->real[i] : t->integer[i], have = get(NULL, v, got, i);
    double bound = t->real && t->scale ? t->scale[i] * unit * tolerance : 0;
    if (t->scale && isinf(t->scale[i])) continue; // uncertain
    if ((isnan(want) && isnan(have)) || want == have || fabs(want - have) <= bound) continue;
    fprintf(stderr, "%s: %s[%lld] is %.9g, should be %.9g (bound %.3g)\n", name, v->name,
            (long long)i, have, want, bound);
    return true;
  }
  return false;
}

static bool has_halves(const Module *m) {
  for (Id f = 0; f < m->fn.n; f++)
    for (Id v = 0; v < m->fn.at[f].value.n; v++)
      if (is_half(m->fn.at[f].value.at[v].type)) return true;
  return false;
}

int kernels_check_module(const char *name, Module *m, const CheckOptions *o) {
  if (!pass_fuse(m)) return -1;
  Run r = {.p = m->lowered, .m = m, .key = {7, 3}};
  Buf object = {0};
  KernelOptions ko = {.arch = str_intern(o->arch ? o->arch : "native"), .optimise = 3};
  m->target->kernels(r.p, &ko, NULL, &object);
  r.so = load(&object);
  if (!r.so) return -1;
  Id fn = m->entry[ENTRY_STEP];
  const Fn *f = &m->fn.at[fn];
  Tensor *arg[64], *result[64];
  void *carg[64], *cresult[64];
  uint64_t s = 88172645463325252ull + o->seed * 1234567ull;
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    arg[i] = tensor_like(v);
    carg[i] = room(v);
    for (int64_t e = 0; e < tensor_count(arg[i]); e++) {
      double x = o->edges && v->type == DT_F32 ? edge(&s) : sample(v, &s, o->small);
      put(v, carg[i], e, x);
      if (arg[i]->real) arg[i]->real[e] = x;
      else arg[i]->integer[e] = (int32_t)x;
    }
  }
  for (uint32_t i = 0; i < f->result.n; i++) cresult[i] = room(&f->value.at[f->result.at[i]]);
  Buf error = {0};
  InterpOptions io = {.seed = 7, .step = 3, .scale = true, .round = has_halves(m),
                      .unit = m->compute == DT_F32 ? 0x1p-24 : 0x1p-53};
  if (!interp_run(m, fn, arg, result, &io, &error))
    return fprintf(stderr, "%s: %s\n", name, error.text), -1;
  if (!fn_run(&r, fn, carg, cresult)) return fprintf(stderr, "%s: did not run\n", name), -1;
  double tolerance = o->tolerance ? o->tolerance : 2;
  bool bad = false;
  for (uint32_t i = 0; i < f->result.n; i++)
    bad |= differs(&f->value.at[f->result.at[i]], result[i], cresult[i], name, tolerance, io.unit);
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (f->value.at[f->arg.at[i]].role == ROLE_INOUT)
      bad |= differs(&f->value.at[f->arg.at[i]], arg[i], carg[i], name, tolerance, io.unit);
  return bad ? -1 : kernel_count(r.p, &r.p->fn[fn], K_LOOPS);
}

int kernels_check(const char *name, const char *text, const CheckOptions *o) {
  Module *m = kernels_parse(name, text);
  return m ? kernels_check_module(name, m, o) : -1;
}
