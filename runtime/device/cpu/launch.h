// How emitted host code runs a kernel: each by its name, which is also its name in the trace, --info and reports.
#ifndef DTC_RUNTIME_CPU_LAUNCH_H
#define DTC_RUNTIME_CPU_LAUNCH_H

#include "runtime/device.h"
#include "runtime/device/cpu/attention.h"
#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/scan.h"
#include "runtime/device/traced.h"
#include "runtime/layers.h"

// A fused kernel in kernels.o. Its symbol there, "kernel.NAME", is no identifier of C, so it is no
// library's.
#define DT_KERNEL(name) DtKernel name __asm__("kernel." #name)

// Where kernels read the number of a layer: an int32_t, at `name`.
#define DT_LAYER_NUMBER(name, layer) const int32_t name[1] = {(int32_t)(layer)}

// A fused kernel over `grid` points, `chunk` of them to a task; then its buffers.
#define dt_launch(kernel, grid, chunk, ...)                                                        \
  DT_TRACED(kernel, dt_parallel(kernel, (void *const *)(const void *const[]){__VA_ARGS__}, grid, chunk))

// A fused kernel over `tile` elements of each array of the call, param, grad and moments, which are of `type`: run on
// all DtCall.count of them, tile by tile. DtCall.rounded gets the new param as elements of type `rounds`.
#define dt_launch_extent(kernel, grid, tile, type, rounds, call, ...)                              \
  dt_extent(kernel, grid, tile, type, rounds, call, (const void *const[]){__VA_ARGS__},            \
            (int)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)))
void dt_extent(DtKernel *kernel, int64_t grid, int64_t tile, DtType type, DtType rounds, const DtCall *call,
               const void *const *arg, int narg);

// The function for elements of p's type; 16 bits are uint16_t.
#define DT_BY_TYPE(p, f32, f64, half) _Generic(*(p), float: f32, double: f64, uint16_t: half)

// A matrix product of the shape `gemm` (a DtGemm): c = beta * c + a * b.
#define dt_matmul(gemm, a, b, c, beta)                                                             \
  DT_TRACED(gemm, DT_BY_TYPE(a, dt_gemm_f32, dt_gemm_f64, dt_gemm_half)(&gemm, a, b, c, beta))

// c = a * b + bias, one of it for each column of c; or with the fields of a DtEpilogue.
#define dt_matmul_bias(gemm, a, b, at, c) dt_matmul_then(gemm, a, b, c, .bias = at)
#define dt_matmul_then(gemm, a, b, c, ...)                                                         \
  DT_TRACED(gemm, DT_BY_TYPE(a, dt_gemm_then_f32, dt_gemm_then_f64, dt_gemm_then_half)(            \
                      &gemm, a, b, c, &(DtEpilogue){__VA_ARGS__}))

// Running sums of the shape `scan` (a DtScan): y from x.
#define dt_scan(scan, x, y)                                                                        \
  DT_TRACED(scan, _Generic((y), float *: dt_scan_f32, double *: dt_scan_f64,                       \
                           int32_t *: dt_scan_i32)(&scan, x, y))

// Attention of the shape `shape` (a DtAttention), and its derivative.
#define dt_attend(shape, q, k, v, o, lse)                                                          \
  DT_TRACED(shape, DT_BY_TYPE(q, dt_attention_fwd_f32, dt_attention_fwd_f64, dt_attention_fwd_half)(  \
                       &shape, q, k, v, o, lse))
#define dt_attend_bwd(shape, q, k, v, o, lse, dout, dq, dk, dv)                                    \
  DT_TRACED(shape, DT_BY_TYPE(q, dt_attention_bwd_f32, dt_attention_bwd_f64, dt_attention_bwd_half)( \
                       &shape, q, k, v, o, lse, dout, dq, dk, dv))

// The same where queries and keys stand as the shape's q_at and k_at say, with the numbers at q_place and k_place.
#define DT_PLACED(shape, q_place, k_place)                                                         \
  DtAttention here = shape;                                                                        \
  dt_attention_place(&here, q_place, k_place)
#define dt_attend_at(shape, q_place, k_place, q, k, v, o, lse)                              \
  DT_TRACED(shape, DT_PLACED(shape, q_place, k_place);                                      \
            DT_BY_TYPE(q, dt_attention_fwd_f32, dt_attention_fwd_f64, dt_attention_fwd_half)(       \
                &here, q, k, v, o, lse))
#define dt_attend_bwd_at(shape, q_place, k_place, q, k, v, o, lse, dout, dq, dk, dv)        \
  DT_TRACED(shape, DT_PLACED(shape, q_place, k_place);                                      \
            DT_BY_TYPE(q, dt_attention_bwd_f32, dt_attention_bwd_f64, dt_attention_bwd_half)(       \
                &here, q, k, v, o, lse, dout, dq, dk, dv))

// The same with slopes and sink logits by head, each an array or NULL, and where their gradients go.
#define DT_BY_HEAD(slope_at, logit_at, dslope_at, dlogit_at)                                       \
  here.slopes = slope_at, here.sinks = logit_at;                                                   \
  here.dslopes = dslope_at, here.dsinks = dlogit_at
#define dt_attend_with(shape, q_place, k_place, slope_at, logit_at, q, k, v, o, lse)        \
  DT_TRACED(shape, DT_PLACED(shape, q_place, k_place);                                      \
            DT_BY_HEAD(slope_at, logit_at, NULL, NULL);                                            \
            _Generic((o), float *: dt_attention_fwd_f32, double *: dt_attention_fwd_f64)(          \
                &here, q, k, v, o, lse))
#define dt_attend_bwd_with(shape, q_place, k_place, slope_at, logit_at, dslope_at,          \
                           dlogit_at, q, k, v, o, lse, dout, dq, dk, dv)                           \
  DT_TRACED(shape, DT_PLACED(shape, q_place, k_place);                                      \
            DT_BY_HEAD(slope_at, logit_at, dslope_at, dlogit_at);                                  \
            _Generic((dq), float *: dt_attention_bwd_f32, double *: dt_attention_bwd_f64)(         \
                &here, q, k, v, o, lse, dout, dq, dk, dv))

#endif
