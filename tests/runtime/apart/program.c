// A compiled program whose regions are on the device of device.c. What its emitted C hands addresses to (ld --wrap)
// gets the bytes behind them; so does the transport, which moves the host's memory. All else that follows one faults.
#include "apart/apart.h"
#include "runtime/comm.h"
#include "runtime/device/cpu/launch.h"

__attribute__((constructor)) static void open_apart(void) {
  apart_open();
  apart_use(true);
}

void *const *apart_args(const void **arg, int n) {
  for (int i = 0; i < n; i++) arg[i] = apart_bytes(arg[i]);
  return (void *const *)arg;
}

#define H(p) apart_bytes(p)

// The function called `name` gets `args`, which name the parameters `params`.
#define WRAP(result, name, params, args)                                                           \
  result __real_##name params;                                                                     \
  result __wrap_##name params;                                                                     \
  result __wrap_##name params { return __real_##name args; }

#define GEMM(name, type)                                                                           \
  WRAP(void, name, (const DtGemm *g, const type *a, const type *b, type *c, type beta), (g, H(a), H(b), H(c), beta))
static DtEpilogue here_of(const DtEpilogue *e) {
  return (DtEpilogue){.bias = H(e->bias), .plus = H(e->plus), .kept = H(e->kept), .act = e->act};
}

#define GEMM_THEN(name, type)                                                                      \
  WRAP(void, name, (const DtGemm *g, const type *a, const type *b, type *c, const DtEpilogue *e),  \
       (g, H(a), H(b), H(c), (DtEpilogue[]){here_of(e)}))
#define SCAN(name, type) WRAP(void, name, (const DtScan *s, const type *x, type *y), (s, H(x), H(y)))
#define ATTENTION(type)                                                                            \
  (const DtAttention *x, const type *q, const type *k, const type *v, type *o, type *lse),         \
      (x, H(q), H(k), H(v), H(o), H(lse))
#define ATTENTION_BWD(type)                                                                        \
  (const DtAttention *x, const type *q, const type *k, const type *v, const type *o, const type *lse, \
   const type *dout, type *dq, type *dk, type *dv),                                                \
      (x, H(q), H(k), H(v), H(o), H(lse), H(dout), H(dq), H(dk), H(dv))
#define WRAP_AS(result, name, ...) WRAP(result, name, __VA_ARGS__)

GEMM(dt_gemm_f32, float)
GEMM(dt_gemm_f64, double)
GEMM_THEN(dt_gemm_then_f32, float)
GEMM_THEN(dt_gemm_then_f64, double)
SCAN(dt_scan_f32, float)
SCAN(dt_scan_f64, double)
SCAN(dt_scan_i32, int32_t)
WRAP_AS(void, dt_attention_fwd_f32, ATTENTION(float))
WRAP_AS(void, dt_attention_fwd_f64, ATTENTION(double))
WRAP_AS(void, dt_attention_bwd_f32, ATTENTION_BWD(float))
WRAP_AS(void, dt_attention_bwd_f64, ATTENTION_BWD(double))
WRAP(void, dt_attention_fwd_half,
     (const DtAttention *x, const uint16_t *q, const uint16_t *k, const uint16_t *v, void *o, float *lse),
     (x, H(q), H(k), H(v), H(o), H(lse)))
WRAP(void, dt_attention_bwd_half,
     (const DtAttention *x, const uint16_t *q, const uint16_t *k, const uint16_t *v, const uint16_t *o,
      const float *lse, const uint16_t *dout, float *dq, float *dk, float *dv),
     (x, H(q), H(k), H(v), H(o), H(lse), H(dout), H(dq), H(dk), H(dv)))
WRAP(void, dt_attention_place, (DtAttention *x, const int32_t *q, const int32_t *k), (x, H(q), H(k)))
WRAP(void, dt_gemm_half, (const DtGemm *g, const void *a, const void *b, void *c, float beta),
     (g, H(a), H(b), H(c), beta))
WRAP(void, dt_gemm_then_half, (const DtGemm *g, const void *a, const void *b, void *c, const DtEpilogue *e),
     (g, H(a), H(b), H(c), (DtEpilogue[]){here_of(e)}))

void __real_dt_extent(DtKernel *kernel, int64_t grid, int64_t tile, DtType type, DtType rounds, const DtCall *call,
                      const void *const *arg, int narg);
void __wrap_dt_extent(DtKernel *kernel, int64_t grid, int64_t tile, DtType type, DtType rounds, const DtCall *call,
                      const void *const *arg, int narg);
void __wrap_dt_extent(DtKernel *kernel, int64_t grid, int64_t tile, DtType type, DtType rounds, const DtCall *call,
                      const void *const *arg, int narg) {
  DtCall here = *call;
  const void *at[32];
  for (int i = 0; i < narg && i < 32; i++) at[i] = H(arg[i]);
  here.param = H(here.param), here.grad = H(here.grad), here.rounded = H(here.rounded);
  for (int i = 0; i < DT_MAX_MOMENTS; i++) here.moment[i] = H(here.moment[i]);
  __real_dt_extent(kernel, grid, tile, type, rounds, &here, at, narg);
}

WRAP(DtTicket, dt_all_reduce,
     (const DtGroup *g, DtType t, DtReduce op, const void *in, void *out, int64_t n, DtNote note),
     (g, t, op, H(in), H(out), n, note))
WRAP(DtTicket, dt_reduce_scatter,
     (const DtGroup *g, DtType t, DtReduce op, const void *in, void *out, int64_t n, DtNote note),
     (g, t, op, H(in), H(out), n, note))
WRAP(DtTicket, dt_all_gather, (const DtGroup *g, DtType t, const void *in, void *out, int64_t n, DtNote note),
     (g, t, H(in), H(out), n, note))
WRAP(DtTicket, dt_all_to_all, (const DtGroup *g, DtType t, const void *in, void *out, int64_t n, DtNote note),
     (g, t, H(in), H(out), n, note))
WRAP(DtTicket, dt_shift, (const DtGroup *g, DtType t, const void *in, void *out, int64_t n, DtNote note),
     (g, t, H(in), H(out), n, note))
WRAP(DtTicket, dt_broadcast, (const DtGroup *g, DtType t, int root, void *data, int64_t n, DtNote note),
     (g, t, root, H(data), n, note))
WRAP(DtTicket, dt_send, (const DtGroup *g, int to, DtType t, const void *data, int64_t n, DtNote note),
     (g, to, t, H(data), n, note))
WRAP(DtTicket, dt_recv, (const DtGroup *g, int from, DtType t, void *data, int64_t n, DtNote note),
     (g, from, t, H(data), n, note))
