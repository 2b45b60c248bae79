// One NVIDIA GPU: its memory, and the order of what runs there. All of it is on one stream.
#define _GNU_SOURCE
#include "runtime/device/cuda/gpu.h"

#include "runtime/base/canary.h"
#include "runtime/comm.h"
#include "runtime/device/cuda/sizes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

DtGpu dt_gpu;

enum { WINDOW = DT_WINDOW, SLACK = 256, NUMBERS = DT_NUMBERS };

const DtDeviceLimits *dt_device_limits(void) {
  static const DtDeviceLimits limits = {.map_bytes = WINDOW, .squares_block = DT_SQUARES_BLOCK, .exchange = DT_EXCHANGE, .reduces = "nccl"};
  return &limits;
}

// ---- failures

static const char *text_of(CUresult r) {
  const char *text = NULL;
  return dt_gpu.driver->cuGetErrorString(r, &text) == CUDA_SUCCESS && text ? text : "an unknown error";
}

void dt_gpu_end(DtError *e) {
  if (dt_world.size > 1) e->teller = 1 + dt_world.rank;
  dt_report(e);
  _exit(e->status);
}

void dt_gpu_check(CUresult r, const char *doing, const char *name) {
  DtError e = {0};
  if (r == CUDA_SUCCESS) return;
  dt_fail(&e, DT_EXIT_OS, "the GPU reports an error: %s%s%s: %s (%d)", doing, name ? " " : "", name ? name : "", text_of(r),
          (int)r);
  dt_gpu_end(&e);
}

static int refused(DtError *e, CUresult r, const char *what) {
  return dt_fail(e, DT_EXIT_OS, "%s: %s (%d)", what, text_of(r), (int)r);
}

// ---- start and end

// The program's architectures, "sm_80,sm_90a": whether one runs on a GPU of this capability. Code for an architecture
// with a letter runs there alone; else also on later ones of the same generation.
static bool runs_on(const char *archs, int major, int minor) {
  for (const char *p = archs; p && *p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
    char letter[2] = "";
    int number = 0;
    if (sscanf(p, "sm_%d%1[a-z]", &number, letter) < 1) continue;
    if (number / 10 == major && (*letter ? number % 10 == minor : number % 10 <= minor)) return true;
  }
  return false;
}

static int check_arch(const DtProgram *p, DtError *e) {
  const DtDriver *d = dt_gpu.driver;
  DtDeviceName of;
  int major = 0, minor = 0;
  CUresult r = d->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dt_gpu.device);
  if (!r) r = d->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dt_gpu.device);
  if (!r) r = d->cuDeviceGetAttribute(&dt_gpu.processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dt_gpu.device);
  if (r) return refused(e, r, "cannot ask the GPU for its architecture");
  if (!p->device_features || runs_on(p->device_features, major, minor)) return 0;
  dt_device_name(&of);
  return dt_fail(e, DT_EXIT_MISFIT,
                 "the program has kernels for %s, and %s is an sm_%d%d; compile it with --arch sm_%d%d", p->device_features,
                 of.name, major, minor, major, minor);
}

// cuInit is left to each rank: a process that is started after it cannot use the GPU.
int dt_device_fits(const DtProgram *p, DtError *e) {
  int version = 0;
  dt_gpu.driver = dt_driver_open(e);
  if (!dt_gpu.driver) return e->status;
  CUresult r = dt_gpu.driver->cuDriverGetVersion(&version);
  if (r) return refused(e, r, "cannot ask NVIDIA's driver for its version");
  if (version < DT_DRIVER_VERSION)
    return dt_fail(e, DT_EXIT_OS, "NVIDIA's driver is of CUDA %d.%d; %d.%d or newer is needed", version / 1000,
                   version % 1000 / 10, DT_DRIVER_VERSION / 1000, DT_DRIVER_VERSION % 1000 / 10);
  if (p->device_products && !(dt_gpu.blas = dt_blas_open(e))) return e->status;
  return 0;
}

// Ranks of a machine take the GPUs that the driver shows (CUDA_VISIBLE_DEVICES, parts of a GPU too) in turn: where a launcher
// shows each rank its own, that is the only one.
static int choose(int rank, DtError *e) {
  CUresult r = dt_gpu.driver->cuInit(0);
  if (!r) r = dt_gpu.driver->cuDeviceGetCount(&dt_gpu.shown);
  if (r == CUDA_ERROR_NO_DEVICE || (!r && dt_gpu.shown < 1))
    return dt_fail(e, DT_EXIT_OS, "this machine has no NVIDIA GPU that the driver shows");
  if (!r) r = dt_gpu.driver->cuDeviceGet(&dt_gpu.device, dt_gpu.ordinal = rank % dt_gpu.shown);
  return r ? refused(e, r, "cannot start NVIDIA's driver") : 0;
}

void dt_device_name(DtDeviceName *to) {
  char model[64] = "unknown";
  CUuuid uuid = {{0}};
  CUresult r = dt_gpu.driver->cuDeviceGetName(model, sizeof model, dt_gpu.device);
  if (!r) r = dt_gpu.driver->cuDeviceGetUuid_v2(&uuid, dt_gpu.device);
  dt_gpu_check(r, "cannot ask the GPU for its name", NULL);
  *to = (DtDeviceName){.shown = dt_gpu.shown};
  snprintf(to->name, sizeof to->name, "GPU %d (%s)", dt_gpu.ordinal, model);
  memcpy(to->id, uuid.bytes, sizeof to->id);
}

bool dt_device_name_of(int rank, DtDeviceName *to) {
  DtError ignored = {0};
  if (!dt_gpu.driver && !(dt_gpu.driver = dt_driver_open(&ignored))) return false;
  if (choose(rank, &ignored)) return false;
  dt_device_name(to);
  return true;
}

const char *dt_device_products(const DtProgram *p) {
  (void)p;
  return "cuBLASLt";
}

static _Thread_local bool entered;

void dt_gpu_enter(void) {
  if (entered) return;
  dt_gpu_check(dt_gpu.driver->cuCtxSetCurrent(dt_gpu.context), "cannot enter the GPU's context", NULL);
  entered = true;
}

static void open_products(void) {
  if (!dt_gpu.blas || dt_gpu.blas->cublasLtCreate(&dt_gpu.products) == 0) return;
  DtError e = {0};
  dt_fail(&e, DT_EXIT_OS, "cuBLASLt cannot be started");
  dt_gpu_end(&e);
}

int dt_device_open(const DtProgram *p, int threads, int rank, int ranks, DtError *e) {
  const DtDriver *d = dt_gpu.driver;
  dt_parallel_open(threads, ranks);
  if (choose(rank, e) || check_arch(p, e)) return e->status;
  dt_gpu_check(d->cuDevicePrimaryCtxRetain(&dt_gpu.context, dt_gpu.device), "cannot make a context", NULL);
  dt_gpu_enter();
  dt_gpu_check(d->cuStreamCreate(&dt_gpu.stream, CU_STREAM_NON_BLOCKING), "cannot make a stream", NULL);
  dt_gpu_check(d->cuLibraryLoadData(&dt_gpu.kernels, dt_cuda_image, NULL, NULL, 0, NULL, NULL, 0),
               "cannot load the program's kernels", NULL);
  open_products();
  return 0;
}

// ---- memory of the host that copies go through

typedef struct Stage {
  void *p;
  size_t bytes;
  CUevent event; // after the last copy from it
  bool taken, copying;
} Stage;
enum { MOST_STAGES = 64 };
static Stage stage[MOST_STAGES];
static pthread_mutex_t stage_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_free(Stage *s) {
  if (s->taken || !s->p) return false;
  if (s->copying && dt_gpu.driver->cuEventQuery(s->event) == CUDA_ERROR_NOT_READY) return false;
  s->copying = false;
  return true;
}

static void fill_stage(Stage *s, size_t bytes) {
  size_t size = 4096;
  while (size < bytes) size *= 2;
  dt_gpu_check(dt_gpu.driver->cuMemHostAlloc(&s->p, size, 0), "cannot allocate memory for copies", NULL);
  if (!s->event)
    dt_gpu_check(dt_gpu.driver->cuEventCreate(&s->event, CU_EVENT_DISABLE_TIMING), "cannot make an event", NULL);
  s->bytes = size;
}

// The smallest that is free and large enough; or a new one; or, with all in use, the first whose copies end.
static Stage *take_stage(size_t bytes) {
  Stage *best = NULL, *empty = NULL;
  dt_gpu_enter();
  pthread_mutex_lock(&stage_lock);
  for (int i = 0; i < MOST_STAGES; i++) {
    Stage *s = &stage[i];
    if (!s->p && !empty) empty = s;
    if (is_free(s) && s->bytes >= bytes && (!best || s->bytes < best->bytes)) best = s;
  }
  if (!best && !empty) { // all copies end, and the first that nobody holds is made anew
    dt_device_sync();
    for (int i = 0; i < MOST_STAGES && !empty; i++)
      if (is_free(&stage[i])) empty = &stage[i];
    if (empty) dt_gpu_check(dt_gpu.driver->cuMemFreeHost(empty->p), "cannot free memory for copies", NULL);
  }
  if (!best && empty) fill_stage(best = empty, bytes);
  if (best) best->taken = true;
  pthread_mutex_unlock(&stage_lock);
  if (!best) dt_gpu_check(CUDA_ERROR_OUT_OF_MEMORY, "too many copies at once", NULL);
  return best;
}

static void drop_stage(Stage *s, bool copying) {
  pthread_mutex_lock(&stage_lock);
  if (copying) dt_gpu_check(dt_gpu.driver->cuEventRecord(s->event, dt_gpu.stream), "cannot record an event", NULL);
  s->copying = copying;
  s->taken = false;
  pthread_mutex_unlock(&stage_lock);
}

static void copy_in(void *to, const void *from, size_t bytes) {
  dt_gpu_check(dt_gpu.driver->cuMemcpyHtoDAsync_v2(dt_gpu_address(to), from, bytes, dt_gpu.stream),
               "cannot copy to the GPU", NULL);
}

static void copy_out(void *to, const void *from, size_t bytes) {
  dt_gpu_check(dt_gpu.driver->cuMemcpyDtoHAsync_v2(to, dt_gpu_address(from), bytes, dt_gpu.stream),
               "cannot copy from the GPU", NULL);
  dt_device_sync();
}

static Stage *stage_at(const void *mapped) {
  for (int i = 0; i < MOST_STAGES; i++)
    if (stage[i].p == mapped) return &stage[i];
  abort(); // what dt_device_map never gave
}

void *dt_device_map(void *p, size_t bytes, DtAccess access) {
  Stage *s = take_stage(bytes);
  if (access == DT_READ && !dt_rehearsing && bytes) copy_out(s->p, p, bytes);
  return s->p;
}

void dt_device_unmap(void *p, void *mapped, size_t bytes, DtAccess access) {
  bool write = access == DT_WRITE && !dt_rehearsing && bytes;
  dt_gpu_enter();
  if (write) copy_in(p, mapped, bytes);
  drop_stage(stage_at(mapped), write);
}

void dt_device_put(void *to, const void *from, size_t bytes) {
  if (dt_rehearsing || !bytes) return;
  Stage *s = take_stage(bytes);
  memcpy(s->p, from, bytes);
  copy_in(to, s->p, bytes);
  drop_stage(s, true);
}

void dt_device_get(void *to, const void *from, size_t bytes) {
  if (dt_rehearsing) memset(to, 0, bytes);
  if (dt_rehearsing || !bytes) return;
  Stage *s = take_stage(bytes);
  copy_out(s->p, from, bytes);
  memcpy(to, s->p, bytes);
  drop_stage(s, false);
}

// ---- regions

// WINDOW is a multiple of `zeros`.
static void fill_pattern(void *p, int64_t bytes, int zeros) {
  for (int64_t first = 0; first < bytes; first += WINDOW) {
    int64_t n = bytes - first < WINDOW ? bytes - first : WINDOW;
    void *m = dt_device_map((char *)p + first, (size_t)n, DT_WRITE);
    dt_fill_pattern(m, n, zeros);
    dt_device_unmap((char *)p + first, m, (size_t)n, DT_WRITE);
  }
}

static void *allocate(int64_t bytes, const char *what, DtError *e) {
  CUdeviceptr p = 0;
  dt_gpu_enter();
  CUresult r = dt_gpu.driver->cuMemAlloc_v2(&p, (size_t)bytes + SLACK);
  if (r) dt_fail(e, DT_EXIT_OS, "the GPU has no memory for %s (%.2f GiB): %s", what, (double)bytes / (1 << 30), text_of(r));
  else dt_gpu_check(dt_gpu.driver->cuMemsetD8Async(p + (CUdeviceptr)bytes, DT_CANARY, SLACK, dt_gpu.stream), "cannot fill memory", NULL);
  return r ? NULL : (void *)(uintptr_t)p;
}

void *dt_device_alloc(int64_t bytes, int zeros, DtError *e) {
  void *p = allocate(bytes, "the model's regions", e);
  if (p && dt_watching()) fill_pattern(p, bytes, zeros);
  else if (p && zeros) dt_device_zero(p, (size_t)bytes);
  return p;
}

void dt_device_free(void *p, int64_t bytes) {
  (void)bytes;
  if (!p) return;
  dt_device_sync();
  dt_gpu_check(dt_gpu.driver->cuMemFree_v2(dt_gpu_address(p)), "cannot free memory", NULL);
}

void *dt_host_alloc(int64_t bytes, DtError *e) {
  void *p = NULL;
  dt_gpu_enter();
  CUresult r = dt_gpu.driver->cuMemHostAlloc(&p, (size_t)bytes + SLACK, 0);
  if (r) return dt_fail(e, DT_EXIT_OS, "no memory for the host's buffers: %s", text_of(r)), NULL;
  if (dt_watching()) memset(p, DT_CANARY, (size_t)bytes);
  memset((char *)p + bytes, DT_CANARY, SLACK);
  return p;
}

void dt_host_free(void *p, int64_t bytes) {
  (void)bytes;
  if (p) dt_gpu_check(dt_gpu.driver->cuMemFreeHost(p), "cannot free the host's memory", NULL);
}

bool dt_device_overrun(const void *p, int64_t bytes) {
  unsigned char end[SLACK];
  dt_device_get(end, (const char *)p + bytes, SLACK);
  for (int k = 0; k < SLACK && !dt_rehearsing; k++)
    if (end[k] != DT_CANARY) return true;
  return false;
}

int64_t dt_device_used(const void *p, int64_t bytes, int zeros) {
  int64_t used = 0;
  for (int64_t first = (bytes - 1) / WINDOW * WINDOW; first >= 0 && !used; first -= WINDOW) {
    int64_t n = bytes - first < WINDOW ? bytes - first : WINDOW;
    void *at = (char *)p + first, *m = dt_device_map(at, (size_t)n, DT_READ);
    used = dt_pattern_used(m, n, zeros);
    dt_device_unmap(at, m, (size_t)n, DT_READ);
    if (used) used += first;
  }
  return used;
}

int64_t dt_device_memory(int ranks, const char **who) {
  size_t bytes = 0;
  dt_gpu_check(dt_gpu.driver->cuDeviceTotalMem_v2(&bytes, dt_gpu.device), "cannot ask for the memory's size", NULL);
  *who = dt_driver_on_host ? "the machine has" : ranks > 1 ? "the GPUs have" : "the GPU has";
  // Ranks that share GPUs do so evenly.
  bool shared = getenv("DT_DEVICE_SHARE") && dt_gpu.shown < ranks;
  return (int64_t)bytes * (dt_driver_on_host ? 1 : shared ? dt_gpu.shown : ranks);
}

// ---- scratch memory; numbers of layers

static int32_t *numbers; // number i at [i]

int64_t dt_device_work_bytes(const DtProgram *p, int threads) {
  (void)threads;
  return p->scratch_bytes + DT_NUMBERS_BYTES;
}

int dt_device_work_open(const DtProgram *p, DtError *e) {
  dt_gpu.workspace_bytes = p->scratch_bytes;
  numbers = allocate(DT_NUMBERS_BYTES, "the numbers of layers", e);
  if (numbers && p->scratch_bytes) dt_gpu.workspace = allocate(p->scratch_bytes, "scratch memory", e);
  if (e->status) return e->status;
  int32_t *m = dt_device_map(numbers, (size_t)DT_NUMBERS_BYTES, DT_WRITE);
  for (int32_t i = 0; i < NUMBERS; i++) m[i] = i;
  dt_device_unmap(numbers, m, (size_t)DT_NUMBERS_BYTES, DT_WRITE);
  return 0;
}

const int32_t *dt_cuda_number(int64_t n) {
  if (n >= 0 && n < NUMBERS) return numbers + n;
  DtError e = {0};
  dt_fail(&e, DT_EXIT_BUG, "layer %lld; there are numbers of %d", (long long)n, NUMBERS);
  dt_gpu_end(&e);
}

bool dt_device_work_overrun(void) {
  return dt_device_overrun(numbers, DT_NUMBERS_BYTES) ||
         (dt_gpu.workspace && dt_device_overrun(dt_gpu.workspace, dt_gpu.workspace_bytes));
}

void dt_device_work_used(FILE *f) {
  fprintf(f, ",\n{\"name\":\"scratch\",\"planned\":%lld,\"used\":%lld}", (long long)(dt_gpu.workspace_bytes + DT_NUMBERS_BYTES),
          (long long)(dt_gpu.workspace_bytes + DT_NUMBERS_BYTES));
}

void dt_device_close(void) {
  const DtDriver *d = dt_gpu.driver;
  if (dt_gpu.context) {
    dt_device_sync();
    if (dt_gpu.products) dt_gpu.blas->cublasLtDestroy(dt_gpu.products);
    for (int i = 0; i < MOST_STAGES; i++) {
      if (stage[i].p) d->cuMemFreeHost(stage[i].p);
      if (stage[i].event) d->cuEventDestroy_v2(stage[i].event);
    }
    dt_device_free(numbers, DT_NUMBERS_BYTES);
    dt_device_free(dt_gpu.workspace, dt_gpu.workspace_bytes);
    d->cuLibraryUnload(dt_gpu.kernels);
    d->cuStreamDestroy_v2(dt_gpu.stream);
    d->cuDevicePrimaryCtxRelease_v2(dt_gpu.device);
    dt_gpu.context = NULL;
  }
  dt_parallel_done();
}

// ---- order

enum { MARKS = 64 };
static CUevent mark_event[MARKS];
static DtMark marks;
static pthread_mutex_t mark_lock = PTHREAD_MUTEX_INITIALIZER;

// Mark n has event n % MARKS until mark n + MARKS takes it.
DtMark dt_device_record(void) {
  if (dt_rehearsing) return 0;
  dt_gpu_enter();
  pthread_mutex_lock(&mark_lock);
  DtMark n = ++marks;
  CUevent *event = &mark_event[n % MARKS];
  if (!*event) dt_gpu_check(dt_gpu.driver->cuEventCreate(event, CU_EVENT_DISABLE_TIMING), "cannot make an event", NULL);
  dt_gpu_check(dt_gpu.driver->cuEventRecord(*event, dt_gpu.stream), "cannot record an event", NULL);
  pthread_mutex_unlock(&mark_lock);
  return n;
}

// An event that a later mark has taken is past this one.
void dt_device_wait(DtMark mark) {
  if (!mark) return;
  dt_gpu_enter();
  pthread_mutex_lock(&mark_lock);
  CUevent event = mark_event[mark % MARKS];
  pthread_mutex_unlock(&mark_lock);
  dt_gpu_check(dt_gpu.driver->cuEventSynchronize(event), "an earlier kernel or copy failed", NULL);
}

void dt_device_sync(void) {
  if (!dt_gpu.stream) return;
  dt_gpu_enter();
  dt_gpu_check(dt_gpu.driver->cuStreamSynchronize(dt_gpu.stream), "an earlier kernel or copy failed", NULL);
}
