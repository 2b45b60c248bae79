// CUDA on the CPU, for tests: emitted kernels are compiled as C++ against this header and run here.
//
// A block's threads are fibers of one OS thread, and blocks run one after the other. A thread runs until it waits:
// at a barrier of the block, or at a function of its warp, which the last lane to arrive computes for all.
// Which thread runs next is the order (DT_ORDER in the environment, or dt_emulate_order):
//
//   0  ascending, in lockstep: from barrier to barrier all threads in turn
//   1  descending, in lockstep; blocks descend as well
//   2  ascending, a warp as far as it can go before the next one runs
//   3  descending, a warp as far as it can go
//
// A kernel without races gives the same bits in all four. Shared memory is NaN when a block begins. A block that
// waits at two places, or for a thread that has ended, is reported and the process aborted. Built with
// -fsanitize=address -fsanitize-sections=dt_shared, an index out of range is reported, in shared memory too.
// Compile with -ffp-contract=off and -Wno-unknown-pragmas (`unroll` is nvcc's).
#ifndef DT_EMULATE_H
#define DT_EMULATE_H

#ifndef __x86_64__
#error "CUDA is emulated on x86-64 only"
#endif

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "runtime/base/real.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// In a separate section, so that a block can begin with all of it set to NaN.
#define __shared__ __attribute__((section("dt_shared"))) static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint3 {
  unsigned x, y, z;
};

// ---- 16-bit reals, as cuda_bf16.h and cuda_fp16.h have them
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float v) : bits(dt_to_bf16(v)) {}
  explicit operator float() const { return dt_from_bf16(bits); }
};
struct __half {
  uint16_t bits;
  __half() = default;
  explicit __half(float v) : bits(dt_to_f16(v)) {}
  explicit operator float() const { return dt_from_f16(bits); }
};
struct alignas(16) float4 {
  float x, y, z, w;
};

static inline void dt_aligned(const void *p, size_t bytes) {
  if ((uintptr_t)p % bytes == 0) return;
  fprintf(stderr, "emulated CUDA: an access to %p, which is no multiple of %zu\n", p, bytes);
  abort();
}
#define DT_ALIGNED(p, bytes) dt_aligned(p, bytes)

// ---- fibers
enum { DT_SLOT = 32 }; // bytes that a lane hands over, at most
struct DtFiber;
struct DtWarp {
  unsigned lanes, alive, arrived;
  const char *at; // where its lanes wait
  // The values that lanes hand over; two generations, so that no lane need wait until the others have read.
  alignas(16) unsigned char slot[2][32][DT_SLOT];
};
struct DtFiber {
  void *sp;
  uint3 thread;
  DtWarp *warp;
  unsigned lane, generation;
  bool done, waits_for_block, waits_for_warp;
  const char *at;
};
struct DtBlock {
  DtFiber *fiber;
  DtWarp *warp;
  char *stacks;
  unsigned threads, alive, arrived, capacity;
  const char *at; // the barrier that threads wait at
  void (*body)(void *);
  void *context, *outside; // outside: the stack pointer of who launched
};
enum { DT_STACK = 512 << 10, DT_MOST_THREADS = 1024 };

static DtBlock dt_block;
static DtFiber *dt_self;
static uint3 dt_block_idx, dt_block_dim, dt_grid_dim;
static int dt_order = -1;
#define threadIdx (dt_self->thread)
#define blockIdx dt_block_idx
#define blockDim dt_block_dim
#define gridDim dt_grid_dim

// Leaves the registers that a function must keep on the stack, and goes on where `to` was left.
__attribute__((naked, noinline)) static void dt_switch(void **, void *) {
  __asm__("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
          "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
          "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

static void dt_go_to(DtFiber *f) {
  DtFiber *from = dt_self;
  dt_self = f;
  if (f != from) dt_switch(&from->sp, f->sp);
}

static bool dt_can_run(const DtFiber *f) { return !f->done && !f->waits_for_block && !f->waits_for_warp; }

static void dt_deadlock() {
  fprintf(stderr, "emulated CUDA: in block %u all threads wait:\n", dt_block_idx.x);
  const char *last = NULL;
  for (unsigned i = 0; i < dt_block.threads; i++) {
    const DtFiber *f = &dt_block.fiber[i];
    if (!f->done && f->at != last) fprintf(stderr, "  thread %u at %s\n", i, last = f->at);
  }
  abort();
}

// To the next thread of those in [first, first + n) that can run, counted from this one; false where none can.
static bool dt_yield_among(unsigned first, unsigned n) {
  unsigned me = (unsigned)(dt_self - dt_block.fiber);
  for (unsigned k = 1; k <= n; k++) {
    unsigned step = dt_order & 1 ? n - k : k;
    DtFiber *f = &dt_block.fiber[first + (me - first + step) % n];
    if (!dt_can_run(f)) continue;
    dt_go_to(f);
    return true;
  }
  return false;
}

__attribute__((noinline)) static void dt_yield() {
  unsigned warp = (unsigned)(dt_self->warp - dt_block.warp);
  if (dt_order & 2 && dt_yield_among(warp * 32, dt_self->warp->lanes)) return;
  if (!dt_yield_among(0, dt_block.threads)) dt_deadlock();
}

static void dt_release_block() {
  for (unsigned i = 0; i < dt_block.threads; i++) dt_block.fiber[i].waits_for_block = false;
  dt_block.arrived = 0;
}

static void dt_release_warp(DtWarp *w) {
  unsigned first = (unsigned)(w - dt_block.warp) * 32;
  for (unsigned i = 0; i < w->lanes; i++) dt_block.fiber[first + i].waits_for_warp = false;
  w->arrived = 0;
}

static void dt_same_place(const char *a, const char *b, const char *of) {
  if (a == b) return;
  fprintf(stderr, "emulated CUDA: threads of a %s wait at %s and at %s\n", of, a, b);
  abort();
}

#define DT_PLACE_TEXT(line) #line
#define DT_PLACE_LINE(line) DT_PLACE_TEXT(line)
#define DT_PLACE __FILE__ ":" DT_PLACE_LINE(__LINE__)

static inline void dt_syncthreads(const char *at) {
  dt_self->at = at;
  if (!dt_block.arrived) dt_block.at = at;
  dt_same_place(dt_block.at, at, "block");
  dt_self->waits_for_block = true;
  if (++dt_block.arrived == dt_block.alive) dt_release_block();
  if (dt_self->waits_for_block || !(dt_order & 2)) dt_yield();
}
#define __syncthreads() dt_syncthreads(DT_PLACE)

// Each lane hands over a value; returns the slots of all 32.
typedef unsigned char DtSlots[32][DT_SLOT];
static inline DtSlots *dt_meet(const void *value, size_t bytes, const char *at) {
  DtFiber *f = dt_self;
  DtWarp *w = f->warp;
  DtSlots *slots = &w->slot[f->generation++ & 1];
  memcpy((*slots)[f->lane], value, bytes);
  f->at = at;
  if (!w->arrived) w->at = at;
  dt_same_place(w->at, at, "warp");
  f->waits_for_warp = true;
  if (++w->arrived == w->alive) dt_release_warp(w);
  if (f->waits_for_warp || !(dt_order & 2)) dt_yield();
  return slots;
}

static inline void dt_syncwarp(const char *at) { dt_meet("", 0, at); }
#define __syncwarp() dt_syncwarp(DT_PLACE)

template <class T> static inline T dt_shuffle(T x, unsigned lane, const char *at) {
  static_assert(sizeof(T) <= DT_SLOT, "a shuffle moves few bytes");
  DtSlots *s = dt_meet(&x, sizeof x, at);
  T r;
  memcpy(&r, (*s)[lane & 31], sizeof r);
  return r;
}
#define __shfl_sync(mask, x, lane) dt_shuffle(x, lane, DT_PLACE)
#define __shfl_xor_sync(mask, x, by) dt_shuffle(x, dt_self->lane ^ (by), DT_PLACE)
#define __shfl_down_sync(mask, x, by) dt_shuffle(x, dt_self->lane + (by) < 32 ? dt_self->lane + (by) : dt_self->lane, DT_PLACE)

static inline unsigned dt_ballot(bool x, const char *at) {
  DtSlots *s = dt_meet(&x, sizeof x, at);
  unsigned r = 0;
  for (unsigned lane = 0; lane < dt_self->warp->lanes; lane++) r |= (unsigned)((*s)[lane][0] != 0) << lane;
  return r;
}
#define __ballot_sync(mask, x) dt_ballot(x, DT_PLACE)
static inline int __popc(unsigned x) { return __builtin_popcount(x); }

// Threads take turns, so a plain addition is atomic.
template <class T> static inline T atomicAdd(T *p, T v) {
  T old = *p;
  *p = old + v;
  return old;
}
template <class T> static inline T __ldg(const T *p) { return *p; }

// ---- blocks and grids
static void dt_fiber_main() {
  dt_block.body(dt_block.context);
  DtFiber *f = dt_self;
  f->done = true;
  f->warp->alive--;
  dt_block.alive--;
  void *unused;
  if (!dt_block.alive) dt_switch(&unused, dt_block.outside);
  if (dt_block.arrived && dt_block.arrived == dt_block.alive) dt_release_block();
  if (f->warp->arrived && f->warp->arrived == f->warp->alive) dt_release_warp(f->warp);
  dt_yield();
  __builtin_unreachable();
}

static void dt_make_room(unsigned threads) {
  DtBlock *b = &dt_block;
  if (b->capacity >= threads) return;
  b->capacity = DT_MOST_THREADS;
  b->stacks = (char *)mmap(NULL, (size_t)b->capacity * DT_STACK, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  b->fiber = (DtFiber *)calloc(b->capacity, sizeof *b->fiber);
  b->warp = (DtWarp *)calloc(b->capacity / 32, sizeof *b->warp);
  if (b->stacks == MAP_FAILED || !b->fiber || !b->warp || threads > DT_MOST_THREADS) {
    fprintf(stderr, "emulated CUDA: no room for a block of %u threads\n", threads);
    abort();
  }
}

extern "C" __attribute__((weak, visibility("hidden"))) unsigned char __start_dt_shared[], __stop_dt_shared[];
#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address")))
#endif
static void dt_forget_shared() {
  for (volatile unsigned char *p = __start_dt_shared; p < __stop_dt_shared; p++) *p = 0xff;
}

static void dt_run_block() {
  DtBlock *b = &dt_block;
  unsigned n = b->threads;
  b->alive = n;
  b->arrived = 0;
  dt_forget_shared();
#ifdef __SANITIZE_ADDRESS__
  for (unsigned i = 0; i < n; i++) // frames of the block before, which end without a return
    __asan_unpoison_memory_region(b->stacks + (size_t)(i + 1) * DT_STACK - (64 << 10), 64 << 10);
#endif
  for (unsigned i = 0; i < n; i++) {
    DtWarp *w = &b->warp[i / 32];
    if (i % 32 == 0) w->lanes = w->alive = n - i < 32 ? n - i : 32, w->arrived = 0;
    uint3 thread = {i % dt_block_dim.x, i / dt_block_dim.x % dt_block_dim.y,
                    i / dt_block_dim.x / dt_block_dim.y};
    // Tops of stacks that lie at different places in a page do not fight for one set of the cache.
    void **sp = (void **)(b->stacks + (size_t)(i + 1) * DT_STACK - i % 16 * 64);
    *--sp = NULL;
    *--sp = (void *)dt_fiber_main;
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
    b->fiber[i] = {sp, thread, w, i % 32, 0, false, false, false, "its start"};
  }
  dt_self = &b->fiber[dt_order & 1 ? n - 1 : 0];
  dt_switch(&b->outside, dt_self->sp);
}

// Sets the order of threads: 0 to 3.
extern "C" void dt_emulate_order(int order) { dt_order = order & 3; }

template <class F> static void dt_call_body(void *f) { (*(F *)f)(); }

// kernel<<<grid, block>>>(..) is dt_launch(grid, block, [&] { kernel(..); }).
template <class F> static void dt_launch(dim3 grid, dim3 block, F body) {
  if (dt_order < 0) dt_order = getenv("DT_ORDER") ? atoi(getenv("DT_ORDER")) & 3 : 0;
  dt_block.threads = block.x * block.y * block.z;
  dt_make_room(dt_block.threads);
  dt_block.body = dt_call_body<F>;
  dt_block.context = &body;
  dt_block_dim = {block.x, block.y, block.z};
  dt_grid_dim = {grid.x, grid.y, grid.z};
  size_t blocks = (size_t)grid.x * grid.y * grid.z;
  for (size_t k = 0; k < blocks; k++) {
    size_t i = dt_order & 1 ? blocks - 1 - k : k;
    dt_block_idx = {(unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y), (unsigned)(i / grid.x / grid.y)};
    dt_run_block();
  }
}

#endif
