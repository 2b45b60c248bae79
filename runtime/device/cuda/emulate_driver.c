// A stand-in for NVIDIA's driver: kernels run on the CPU (emulate.h), and the device's memory is the host's. Streams are
// queues: of what may run next, as streams and events say, one is drawn (DT_EMULATE_SEED in the environment), so that a
// wait that is missing shows by other results.
#include "runtime/device/cuda/emulate_driver.h"

#include "runtime/base/limit.h"
#include "runtime/device/cuda/emulate_stream.h"
#include "runtime/device/cuda/gpu.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

struct CUevent_st {
  uint64_t recorded, reached; // how often
};

typedef struct Op {
  struct Op *next;
  void (*run)(void *ctx);
  CUevent records; // or NULL
  max_align_t ctx[];
} Op;

struct CUstream_st {
  Op *first, **last;
  CUstream next;
};

static CUstream streams;
static uint64_t random_state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---- queues. All of it under the lock.

static void post(CUstream s, void (*run)(void *ctx), CUevent records, const void *ctx, size_t size) {
  Op *op = malloc(sizeof *op + size);
  if (!op) abort();
  *op = (Op){.run = run, .records = records};
  if (size) memcpy(op->ctx, ctx, size);
  *s->last = op;
  s->last = &op->next;
}

void dt_emulate_post(CUstream stream, void (*run)(void *ctx), const void *ctx, size_t size) {
  pthread_mutex_lock(&lock);
  post(stream, run, NULL, ctx, size);
  pthread_mutex_unlock(&lock);
}

static uint64_t draw(void) {
  if (!random_state) {
    const char *seed = getenv("DT_EMULATE_SEED");
    random_state = (seed ? strtoull(seed, NULL, 10) : 1) * 2 + 1;
  }
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return random_state >> 33;
}

static void run_first(CUstream s) {
  Op *op = s->first;
  s->first = op->next;
  if (!s->first) s->last = &s->first;
  if (op->records) op->records->reached++;
  else op->run(op->ctx);
  free(op);
}

// Runs the first operation of some stream; false: there is none.
static bool step(void) {
  int n = 0;
  for (CUstream s = streams; s; s = s->next) n += s->first != NULL;
  if (!n) return false;
  int at = (int)(draw() % (uint64_t)n);
  for (CUstream s = streams; s; s = s->next)
    if (s->first && !at--) return run_first(s), true;
  return false;
}

// ---- the driver's functions

// The process that started the driver: one that it starts cannot use it.
static pid_t started;
static CUresult init(unsigned flags) { return (void)flags, started = getpid(), CUDA_SUCCESS; }
static CUresult driver_version(int *v) { return *v = 13000, CUDA_SUCCESS; }
static CUresult error_string(CUresult r, const char **text) {
  *text = r == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : (int)r == 3 ? "initialization error" : "invalid argument";
  return CUDA_SUCCESS;
}
// As many as ranks can be on a machine, or fewer: DT_EMULATE_GPUS.
static CUresult device_count(int *n) {
  const char *text = getenv("DT_EMULATE_GPUS");
  return *n = text && *text ? atoi(text) : 1024, CUDA_SUCCESS;
}
// The number of the device, and the name of the machine.
static CUresult device_uuid(CUuuid *uuid, CUdevice d) {
  struct utsname u = {.nodename = ""};
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  uname(&u);
  for (const char *p = u.nodename; *p; p++) h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
  memcpy(uuid->bytes, &h, 8);
  memcpy(uuid->bytes + 8, &(uint64_t){(uint64_t)d + 1}, 8);
  return CUDA_SUCCESS;
}
static CUresult device_get(CUdevice *d, int ordinal) { return *d = ordinal, CUDA_SUCCESS; }
static CUresult device_name(char *name, int size, CUdevice d) {
  (void)d;
  strncpy(name, "emulated GPU", (size_t)size);
  name[size - 1] = 0;
  return CUDA_SUCCESS;
}
static CUresult device_attribute(int *v, CUdevice_attribute a, CUdevice d) {
  (void)d;
  *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 4 : 0;
  return CUDA_SUCCESS;
}
static CUresult total_memory(size_t *bytes, CUdevice d) {
  bool group;
  (void)d;
  *bytes = (size_t)dt_memory_limit("", &group);
  return CUDA_SUCCESS;
}
static CUresult retain(CUcontext *c, CUdevice d) {
  (void)d;
  *c = (CUcontext)(void *)&lock;
  return started == getpid() ? CUDA_SUCCESS : (CUresult)3; // CUDA_ERROR_NOT_INITIALIZED
}
static CUresult release(CUdevice d) { return (void)d, CUDA_SUCCESS; }
static CUresult enter(CUcontext c) { return (void)c, CUDA_SUCCESS; }

// Bytes that nobody has written are NaN, as floats and as 16-bit numbers.
static CUresult allocate(CUdeviceptr *p, size_t bytes) {
  void *at = NULL;
  if (posix_memalign(&at, 256, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (bytes <= 1 << 24) memset(at, 0xff, bytes);
  *p = (CUdeviceptr)(uintptr_t)at;
  return CUDA_SUCCESS;
}

static CUresult release_memory(CUdeviceptr p) { return free((void *)(uintptr_t)p), CUDA_SUCCESS; }

static CUresult host_allocate(void **p, size_t bytes, unsigned flags) {
  (void)flags;
  return posix_memalign(p, 4096, bytes) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult host_release(void *p) { return free(p), CUDA_SUCCESS; }

static void run_copy(void *ctx) {
  const CUDA_MEMCPY2D *c = ctx;
  for (size_t i = 0; i < c->Height; i++)
    memmove((char *)(uintptr_t)c->dstDevice + i * c->dstPitch, (const char *)(uintptr_t)c->srcDevice + i * c->srcPitch,
            c->WidthInBytes);
}

static CUresult copy_rows(const CUDA_MEMCPY2D *c, CUstream s) { return dt_emulate_post(s, run_copy, c, sizeof *c), CUDA_SUCCESS; }
static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
  CUDA_MEMCPY2D c = {.dstDevice = to, .srcDevice = from, .WidthInBytes = bytes, .Height = 1};
  return copy_rows(&c, s);
}
static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
  return copy(to, (CUdeviceptr)(uintptr_t)from, bytes, s);
}
static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
  return copy((CUdeviceptr)(uintptr_t)to, from, bytes, s);
}

typedef struct Fill {
  CUdeviceptr p;
  unsigned char value;
  size_t bytes;
} Fill;
static void run_fill(void *ctx) {
  const Fill *f = ctx;
  memset((void *)(uintptr_t)f->p, f->value, f->bytes);
}
static CUresult fill(CUdeviceptr p, unsigned char value, size_t bytes, CUstream s) {
  Fill f = {p, value, bytes};
  return dt_emulate_post(s, run_fill, &f, sizeof f), CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *to, unsigned flags) {
  (void)flags;
  CUstream s = calloc(1, sizeof *s);
  if (!s) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  s->last = &s->first;
  s->next = streams;
  *to = streams = s;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

static CUresult stream_wait(CUstream s) {
  pthread_mutex_lock(&lock);
  while (s->first) step();
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream s) {
  stream_wait(s);
  pthread_mutex_lock(&lock);
  CUstream *at = &streams;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  pthread_mutex_unlock(&lock);
  free(s);
  return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *to, unsigned flags) {
  (void)flags;
  *to = calloc(1, sizeof **to);
  return *to ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult event_destroy(CUevent e) { return free(e), CUDA_SUCCESS; }
static CUresult event_record(CUevent e, CUstream s) {
  pthread_mutex_lock(&lock);
  e->recorded++;
  post(s, NULL, e, NULL, 0);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}
static CUresult event_query(CUevent e) {
  pthread_mutex_lock(&lock);
  bool done = e->reached == e->recorded;
  pthread_mutex_unlock(&lock);
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult event_wait(CUevent e) {
  pthread_mutex_lock(&lock);
  while (e->reached != e->recorded && step()) continue;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

static CUresult load(CUlibrary *to, const void *code, CUjit_option *jit, void **jit_values, unsigned njit,
                     CUlibraryOption *option, void **values, unsigned noption) {
  (void)jit, (void)jit_values, (void)njit, (void)option, (void)values, (void)noption;
  *to = (CUlibrary)(uintptr_t)code;
  return CUDA_SUCCESS;
}
static CUresult unload(CUlibrary l) { return (void)l, CUDA_SUCCESS; }

static CUresult kernel_get(CUkernel *to, CUlibrary l, const char *name) {
  const DtEmulatedKernel *k = (const void *)l;
  while (k->name && strcmp(k->name, name)) k++;
  *to = (CUkernel)(uintptr_t)k;
  return k->name ? CUDA_SUCCESS : (CUresult)500; // CUDA_ERROR_NOT_FOUND
}
static CUresult function_get(CUfunction *to, CUkernel k) { return *to = (CUfunction)(void *)k, CUDA_SUCCESS; }

enum { MOST_ARGS = 521 };
typedef struct Launch {
  const DtEmulatedKernel *kernel;
  unsigned grid[2], block[2];
  uint64_t arg[]; // each in 8 bytes
} Launch;

static void run_launch(void *ctx) {
  Launch *l = ctx;
  void *at[MOST_ARGS];
  for (int i = 0; i < l->kernel->nargs; i++) at[i] = &l->arg[i];
  l->kernel->run(at, l->grid, l->block);
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, CUstream s, void **arg, void **extra) {
  (void)shared, (void)extra;
  const DtEmulatedKernel *k = (const void *)f;
  size_t size = sizeof(Launch) + (size_t)k->nargs * sizeof(uint64_t);
  if (gz != 1 || bz != 1 || !gx || !gy || bx * by > 1024 || gy > 65535 || k->nargs > MOST_ARGS) return (CUresult)1; // CUDA_ERROR_INVALID_VALUE
  Launch *l = calloc(1, size);
  if (!l) return CUDA_ERROR_OUT_OF_MEMORY;
  *l = (Launch){k, {gx, gy}, {bx, by}};
  for (int i = 0; i < k->nargs; i++) memcpy(&l->arg[i], arg[i], i + 1 < k->nargs ? 8 : k->last);
  dt_emulate_post(s, run_launch, l, size);
  free(l);
  return CUDA_SUCCESS;
}

void dt_emulate_open(int64_t scratch) {
  const DtProgram program = {.scratch_bytes = scratch, .device_products = true};
  DtError e = {0};
  if (dt_device_fits(&program, &e) || dt_device_open(&program, 1, 0, 1, &e)) dt_report(&e), exit(e.status);
  if (dt_device_work_open(&program, &e)) dt_report(&e), exit(e.status);
}

const int dt_driver_ranks = INT32_MAX;
const bool dt_driver_on_host = true;

const DtDriver *dt_driver_open(DtError *e) {
  static const DtDriver driver = {
      .cuInit = init,
      .cuDriverGetVersion = driver_version,
      .cuGetErrorString = error_string,
      .cuDeviceGetCount = device_count,
      .cuDeviceGet = device_get,
      .cuDeviceGetName = device_name,
      .cuDeviceGetUuid_v2 = device_uuid,
      .cuDeviceGetAttribute = device_attribute,
      .cuDeviceTotalMem_v2 = total_memory,
      .cuDevicePrimaryCtxRetain = retain,
      .cuDevicePrimaryCtxRelease_v2 = release,
      .cuCtxSetCurrent = enter,
      .cuMemAlloc_v2 = allocate,
      .cuMemFree_v2 = release_memory,
      .cuMemHostAlloc = host_allocate,
      .cuMemFreeHost = host_release,
      .cuMemcpyHtoDAsync_v2 = copy_in,
      .cuMemcpyDtoHAsync_v2 = copy_out,
      .cuMemcpyDtoDAsync_v2 = copy,
      .cuMemcpy2DAsync_v2 = copy_rows,
      .cuMemsetD8Async = fill,
      .cuStreamCreate = stream_create,
      .cuStreamDestroy_v2 = stream_destroy,
      .cuStreamSynchronize = stream_wait,
      .cuEventCreate = event_create,
      .cuEventDestroy_v2 = event_destroy,
      .cuEventRecord = event_record,
      .cuEventQuery = event_query,
      .cuEventSynchronize = event_wait,
      .cuLibraryLoadData = load,
      .cuLibraryUnload = unload,
      .cuLibraryGetKernel = kernel_get,
      .cuKernelGetFunction = function_get,
      .cuLaunchKernel = launch,
  };
  (void)e;
  return &driver;
}
