// Attention's kernels of every kind at the sizes that need most registers, for nvcc alone: attention-in-registers.sh.
#include "runtime/device/cuda/flash.h"

template <int head> struct Shape : DtAttention {
  static constexpr int batch = 2, kv_heads = 3, group = 2, tq = 1000, tk = 1000, dim = head;
  static constexpr bool causal = true;
  static constexpr double scale = 0.125;
  using Q = DtStrides<6000 * head, 6 * head, 2 * head, head, 1>;
  using K = DtStrides<3000 * head, 3 * head, head, 0, 1>;
  using V = K;
  using O = Q;
  using DO = Q;
  using DQ = Q;
  using DK = K;
  using DV = K;
};
template <int head> struct Shaped : Shape<head> {
  static constexpr int window = 300;
  static constexpr double cap = 30, bias = 1, sink = 0.5;
  static constexpr bool has_sink = true;
  static constexpr int slope_g = 2, slope_r = 1, q_turn = 500, k_turn = 500;
};

#define FLASH_FORWARD(name, type, ...)                                                                                       \
  extern "C" __global__ void __launch_bounds__(128, 1) name(const type *q, const type *k, const type *v, const float *slopes,  \
                                                            const int *rank, type *o, float *lse) {                           \
    dt_flash_forward<__VA_ARGS__>(DtPlaces{*rank, *rank, *rank}, q, k, v, slopes, slopes, o, lse);                             \
  }
#define FLASH_BACKWARD(name, type, ...)                                                                                      \
  extern "C" __global__ void __launch_bounds__(128, 1) name##_keys(const type *q, const type *k, const type *v,                \
                                                                   const float *slopes, const int *rank, const float *lse,    \
                                                                   const type *dout, const float *delta, float *dk, float *dv) { \
    dt_flash_keys<__VA_ARGS__>(DtPlaces{*rank, *rank, *rank}, q, k, v, slopes, lse, dout, delta, dk, dv);                      \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(128, 1) name##_queries(const type *q, const type *k, const type *v,             \
                                                                      const float *slopes, const int *rank, const float *lse, \
                                                                      const type *dout, const float *delta, float *dq) {      \
    dt_flash_queries<__VA_ARGS__>(DtPlaces{*rank, *rank, *rank}, q, k, v, slopes, lse, dout, delta, dq);                       \
  }
#define TILED(name, type, real, ...)                                                                                         \
  extern "C" __global__ void __launch_bounds__(256, 1) name(const type *q, const type *k, const type *v, const real *slopes,   \
                                                            const int *rank, type *o, real *lse) {                            \
    dt_attention_forward<__VA_ARGS__, real>(DtPlaces{*rank, *rank, *rank}, q, k, v, slopes, slopes, o, lse);                   \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(256, 1) name##_keys(const type *q, const type *k, const type *v,                \
                                                                   const real *slopes, const int *rank, const real *lse,      \
                                                                   const type *dout, const real *delta, real *dk, real *dv) { \
    dt_attention_keys<__VA_ARGS__, real>(DtPlaces{*rank, *rank, *rank}, q, k, v, slopes, lse, dout, delta, dk, dv);            \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(256, 1) name##_queries(const type *q, const type *k, const type *v,             \
                                                                      const real *slopes, const int *rank, const real *lse,   \
                                                                      const type *dout, const real *delta, real *dq) {        \
    dt_attention_queries<__VA_ARGS__, real>(DtPlaces{*rank, *rank, *rank}, q, k, v, slopes, lse, dout, delta, dq);             \
  }

FLASH_FORWARD(bf16_128, bf16, Shape<128>)
FLASH_FORWARD(fp16_shaped_128, fp16, Shaped<128>)
FLASH_BACKWARD(bf16_64, bf16, Shape<64>)
FLASH_BACKWARD(fp16_shaped_64, fp16, Shaped<64>)
TILED(float_128, float, float, Shape<128>)
TILED(float_shaped_128, float, float, Shaped<128>)
TILED(float_shaped_256, float, float, Shaped<256>)
TILED(bf16_shaped_256, bf16, float, Shaped<256>)
#ifndef FLOATS_ALONE
TILED(double_64, double, double, Shaped<64>)
TILED(double_256, double, double, Shaped<256>)
#endif
