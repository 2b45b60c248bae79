// A deterministic pool of threads within one rank.
//
// Work is a range [0, n) cut into chunks by size alone, so what a kernel computes, and in which
// order it adds, never depends on how many threads there are or on which of them takes a chunk. The
// calling thread works too: a pool of one thread starts no other and adds no cost.
#ifndef DTC_RUNTIME_PARALLEL_H
#define DTC_RUNTIME_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A kernel computes elements [begin, end) of its range. `arg` is what the caller of dt_parallel
// gave.
typedef void DtKernel(void *const *arg, int64_t begin, int64_t end);

// Starts a pool of `threads` threads, the caller included (0: one for each processor that this
// process may run on). Calling it again replaces the pool. Where a thread cannot be started, the
// pool is smaller. Call it, dt_parallel_done and dt_parallel from one thread of the process at a
// time.
void dt_parallel_init(int threads);

// As dt_parallel_init, for one of `ranks` processes of this machine: 0 threads are its share of the processors, and with
// more threads than processors idle ones sleep at once.
void dt_parallel_open(int threads, int ranks);

// Stops the threads and frees their scratch memory. Without a pool everything runs on the caller.
void dt_parallel_done(void);

// Number of threads that work, the caller included; 1 without a pool.
int dt_threads(void);

// 0 on the thread that calls dt_parallel, 1 .. dt_threads()-1 on the others.
int dt_thread(void);

// How many times an idle thread looks for work, with a pause of 40 ns or so between, before it
// sleeps. The default suits threads that have a processor each; 0 suits more threads than
// processors.
void dt_parallel_spin(int looks);

// A rehearsal (runtime/train/rehearse.h): nothing is computed.
extern bool dt_rehearsing;

// Runs k over [0, n): chunk i is [i*chunk, min(n, (i+1)*chunk)). Returns when all of it is done.
// Threads begin with neighbouring chunks (thread t takes the t-th share, the same from call to
// call, so that data stays in a thread's cache and memory) and then take over chunks of threads
// that are behind. From inside a kernel it runs on the calling thread alone.
void dt_parallel(DtKernel *k, void *const *arg, int64_t n, int64_t chunk);

// Scratch memory (runtime/base/scratch.c). dt_scratch_plan has `bytes` of it for each thread of the
// pool, touched by that thread, in place of what there was: -1, with errno, where the system
// refuses. Call it from no kernel. dt_parallel_init and dt_parallel_done free it.
int dt_scratch_plan(size_t bytes);

// `bytes` of it for the calling thread, aligned to 64 bytes, contents undefined. It stays valid
// until the next call by the same thread: one user at a time, never held across dt_parallel.
// Nothing is allocated: to ask for more than was planned is a bug, which ends the process with
// status 70.
void *dt_scratch(size_t bytes);

// The bytes that a plan of this size maps for each thread: whole huge pages, with slack after them
// in which no thread writes.
enum { DT_SCRATCH_SLACK = 64 };
size_t dt_scratch_mapped(size_t bytes);
// A thread's, or NULL, and the most that it has asked for; while no region is open.
void *dt_scratch_of(int thread);
size_t dt_scratch_asked(int thread);
void dt_scratch_free(void);

// Asks for huge pages where a region has room for them and touches every page from the thread that
// will work on that share of it. Contents are kept. First touch is slow on virtual machines: do it
// once.
void dt_touch(void *p, size_t bytes);

#endif
