// The device that kernels compute on: its memory, and all that the runtime itself does there. Each target has
// these functions in its folder, runtime/device/TARGET/, and a program links those of its target.
//
// An address of the device is a pointer, for arithmetic and for the functions of this file. The host reads and
// writes the device's memory between dt_device_map and dt_device_unmap alone.
//
// Kernels and functions run on the device in the order of their calls, and may return before they have run.
// Those that hand something to the host (dt_device_get, dt_device_map for reading, dt_device_wait) wait for it.
// In a rehearsal (runtime/train/rehearse.h) nothing is copied and nothing is computed.
#ifndef DTC_RUNTIME_DEVICE_H
#define DTC_RUNTIME_DEVICE_H

#include "runtime/base/error.h"
#include "runtime/program.h"

#include <stdio.h>

// What the runtime has to know of a target.
typedef struct DtDeviceLimits {
  int64_t map_bytes;     // that dt_device_map shows the host at a time, at least
  int64_t squares_block; // elements whose squares have one partial sum
  int64_t exchange;      // bytes of the device that exchanging arrays takes, where there are several ranks
  bool in_host;          // its memory is the host's: kernels compute in memory of the host, too
  const char *reduces;   // how ranks take sums but for --reduce exact, "nccl"; NULL: always in the order of ranks
} DtDeviceLimits;
const DtDeviceLimits *dt_device_limits(void);

// 71 or 78 where this machine lacks what the program needs, as far as that is known before there are ranks. Nothing is
// started that a process started later could not use.
int dt_device_fits(const DtProgram *p, DtError *e);
// How this machine computes the program's products, for --info and for ranks to compare: other ways round
// other sums. NULL: there is one way.
const char *dt_device_products(const DtProgram *p);
// The device of rank `rank` of `ranks` on this machine. Once, before the other functions; `threads` of the host for this
// rank (0: its share of those that the machine has). 71; 78 where kernels of the program cannot run on it.
int dt_device_open(const DtProgram *p, int threads, int rank, int ranks, DtError *e);
void dt_device_close(void);

// What tells devices apart. A device that ranks of a machine share anyway (its processors) has no name.
typedef struct DtDeviceName {
  char name[108];       // "GPU 0 (NVIDIA H100)", or ""
  int32_t shown;        // devices that this rank may choose from
  unsigned char id[16]; // another for each device, on any machine
} DtDeviceName;
// Of the device that is open.
void dt_device_name(DtDeviceName *to);
// That rank `rank` of this machine would have; false where there is none. For --info: in a process that starts no ranks.
bool dt_device_name_of(int rank, DtDeviceName *to);

// ---- memory

// Bytes of memory that regions of all `ranks` on this machine may take, as far as anything says; and who says so, for
// messages: "the machine has".
int64_t dt_device_memory(int ranks, const char **who);
// Bytes that kernels need besides regions (such as the scratch of threads), with `threads` of the host.
int64_t dt_device_work_bytes(const DtProgram *p, int threads);
// Has them. 71.
int dt_device_work_open(const DtProgram *p, DtError *e);

// A region of the device, whose memory is there when it returns; NULL and 71 where there is none. Its contents
// are undefined; or, where `zeros` is not 0, numbers that are 0, of `zeros` bytes each.
void *dt_device_alloc(int64_t bytes, int zeros, DtError *e);
void dt_device_free(void *p, int64_t bytes); // of as many bytes
// Memory of the host that the device copies from and to at full speed.
void *dt_host_alloc(int64_t bytes, DtError *e);
void dt_host_free(void *p, int64_t bytes);

// Whether something was written past the end of a region, or of a host's; of what dt_device_work_open has.
bool dt_device_overrun(const void *p, int64_t bytes);
bool dt_device_work_overrun(void);
// With DT_MEMORY_CHECK (runtime/base/canary.h): bytes up to the last one that was ever written, of a region that
// was made with `zeros`; and, each after a comma and as JSON, what was used of dt_device_work_open's memory.
int64_t dt_device_used(const void *p, int64_t bytes, int zeros);
void dt_device_work_used(FILE *f);

// ---- between host and device

typedef enum DtAccess { DT_READ, DT_WRITE } DtAccess;
// Where the host reads, or writes all of, `bytes` at `p` of the device: at most map_bytes; or a microbatch of each
// data argument at once.
void *dt_device_map(void *p, size_t bytes, DtAccess access);
void dt_device_unmap(void *p, void *mapped, size_t bytes, DtAccess access);
// Elements of `size` bytes that the host sees at a time; `left` or fewer.
static inline int64_t dt_device_window(size_t size, int64_t left) {
  int64_t most = dt_device_limits()->map_bytes / (int64_t)size;
  return left < most ? left : most;
}
// A few bytes. What `from` points to may change once dt_device_put has returned; `to` is there once dt_device_get
// has.
void dt_device_put(void *to, const void *from, size_t bytes);
void dt_device_get(void *to, const void *from, size_t bytes);

// ---- on the device

void dt_device_zero(void *p, size_t bytes);
void dt_device_copy(void *to, const void *from, size_t bytes);
// `rows` of `bytes` each: the first bytes of each pitch.
void dt_device_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes,
                         int64_t rows);

// to[i] += from[i], in float or double.
void dt_device_add(DtType type, void *to, const void *from, int64_t n);
// v[i] /= by.
void dt_device_divide(DtType type, void *v, double by, int64_t n);
// *sum = the sum of the squares of n floats or doubles, in double: blocks of squares_block have a partial sum
// each, in `work`. A function of the elements and their number alone.
void dt_device_squares(DtType type, const void *v, int64_t n, double *work, double *sum);

// to[i] = from[i], rounded to a 16-bit type. The arrays lie apart, or begin at one place.
void dt_device_narrow(DtType type, void *to, const float *from, int64_t n);
// to[i] = from[i] of a 16-bit type, or with `add` to[i] += from[i]. The arrays lie apart, or, without `add`, `to`
// begins where `from` does or after it.
void dt_device_widen(DtType type, float *to, const void *from, int64_t n, bool add);

// ---- order

// A point behind all that has been called so far; and that the calling thread of the host waits until the device
// is there, for any thread.
typedef uint64_t DtMark;
DtMark dt_device_record(void);
void dt_device_wait(DtMark mark);
void dt_device_sync(void); // all that has been called has run

#endif
