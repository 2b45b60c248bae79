// A stand-in for NVIDIA's driver: kernels run on the CPU (emulate.h), and the device's memory is the host's. Streams are
// queues: of what may run next, as streams and events say, one is drawn (DT_EMULATE_SEED in the environment), so that a
// wait that is missing shows by other results.
#include "runtime/device/cuda/emulate_driver.h"

#include "runtime/base/limit.h"
#include "runtime/device/cuda/emulate_stream.h"
#include "runtime/device/cuda/gpu.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

// One record of an event: whether its stream has come to it. Held by the event, by the record and by those who wait.
typedef struct Point {
  int holders;
  bool reached;
  int64_t at; // nanoseconds: when
} Point;

struct CUevent_st {
  Point *last; // or NULL
};

typedef struct Op {
  struct Op *next;
  void (*run)(void *ctx);
  bool (*try)(void *ctx);  // in its place: does what it can, and says whether that was all
  Point *records, *awaits; // or NULL
  max_align_t ctx[];
} Op;

struct CUstream_st {
  Op *first, **last;
  CUstream next;
};

static CUstream streams;
static uint64_t random_state;
static int tries; // operations in streams that need other processes
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t tried = PTHREAD_COND_INITIALIZER;

// ---- queues. All of it under the lock.

static void drop(Point *p) {
  if (p && !--p->holders) free(p);
}

static Point *hold(Point *p) {
  p->holders++;
  return p;
}

static void post(CUstream s, const Op *kind, const void *ctx, size_t size) {
  Op *op = malloc(sizeof *op + size);
  if (!op) abort();
  *op = *kind;
  if (size) memcpy(op->ctx, ctx, size);
  *s->last = op;
  s->last = &op->next;
}

void dt_emulate_post(CUstream stream, void (*run)(void *ctx), const void *ctx, size_t size) {
  pthread_mutex_lock(&lock);
  post(stream, &(Op){.run = run}, ctx, size);
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

static int64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Runs the first operation of a stream, where it may run. False: it may not yet.
static bool run_first(CUstream s) {
  Op *op = s->first;
  if (op->awaits && !op->awaits->reached) return false;
  if (op->try && !op->try(op->ctx)) return false;
  s->first = op->next;
  if (!s->first) s->last = &s->first;
  if (op->try) tries--;
  if (op->run) op->run(op->ctx);
  if (op->records) {
    op->records->reached = true;
    op->records->at = nanoseconds();
  }
  drop(op->records);
  drop(op->awaits);
  free(op);
  return true;
}

// Runs the first operation of some stream; false: there is none that may run.
static bool step(void) {
  int n = 0;
  for (CUstream s = streams; s; s = s->next) n += s->first != NULL;
  if (!n) return false;
  int from = (int)(draw() % (uint64_t)n), at = 0;
  for (CUstream s = streams; s; s = s->next)
    if (s->first && at++ >= from && run_first(s)) return true;
  for (CUstream s = streams; s; s = s->next)
    if (s->first && run_first(s)) return true;
  return false;
}

// Lets other threads and processes go on.
static void let_others(void) {
  pthread_mutex_unlock(&lock);
  nanosleep(&(struct timespec){0, 50000}, NULL);
  pthread_mutex_lock(&lock);
}

// A GPU goes on by itself: where other processes need it for what they wait for, so does this one.
static void *go_on(void *unused) {
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!tries) pthread_cond_wait(&tried, &lock);
    if (!step()) let_others();
  }
  return unused;
}

void dt_emulate_try(CUstream stream, bool (*try)(void *ctx), const void *ctx, size_t size) {
  static bool started;
  pthread_mutex_lock(&lock);
  post(stream, &(Op){.try = try}, ctx, size);
  tries++;
  if (!started) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, go_on, NULL)) abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(thread);
    started = true;
  }
  pthread_cond_signal(&tried);
  pthread_mutex_unlock(&lock);
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

static CUresult stream_create_with(CUstream *to, unsigned flags, int priority) { return (void)priority, stream_create(to, flags); }
static CUresult priority_range(int *least, int *greatest) { return *least = 0, *greatest = -5, CUDA_SUCCESS; }

static CUresult stream_wait(CUstream s) {
  pthread_mutex_lock(&lock);
  while (s->first)
    if (!step()) let_others();
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
static CUresult event_destroy(CUevent e) {
  pthread_mutex_lock(&lock);
  drop(e->last);
  pthread_mutex_unlock(&lock);
  free(e);
  return CUDA_SUCCESS;
}
static CUresult event_record(CUevent e, CUstream s) {
  Point *p = calloc(1, sizeof *p);
  if (!p) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  drop(e->last);
  e->last = hold(p);
  post(s, &(Op){.records = hold(p)}, NULL, 0);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}
static bool reached(CUevent e) { return !e->last || e->last->reached; }
static CUresult event_query(CUevent e) { // who asks again and again waits, too
  pthread_mutex_lock(&lock);
  if (!reached(e)) step();
  bool done = reached(e);
  pthread_mutex_unlock(&lock);
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
static CUresult event_wait(CUevent e) {
  pthread_mutex_lock(&lock);
  while (!reached(e))
    if (!step()) let_others();
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent begin, CUevent end) {
  pthread_mutex_lock(&lock);
  bool both = begin->last && end->last && begin->last->reached && end->last->reached;
  if (both) *ms = (float)((double)(end->last->at - begin->last->at) * 1e-6);
  pthread_mutex_unlock(&lock);
  return both ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// For tests that a wait which is missing is noticed: the process leaves out its wait number DT_EMULATE_DROP_WAIT, from 1;
// 0: all of them.
static bool left_out(void) {
  static long number;
  const char *which = getenv("DT_EMULATE_DROP_WAIT");
  number++;
  return which && (strtol(which, NULL, 10) == number || strcmp(which, "0") == 0);
}

static CUresult stream_wait_event(CUstream s, CUevent e, unsigned flags) {
  (void)flags;
  pthread_mutex_lock(&lock);
  if (e->last && !left_out()) post(s, &(Op){.awaits = hold(e->last)}, NULL, 0);
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
      .cuStreamCreateWithPriority = stream_create_with,
      .cuStreamWaitEvent = stream_wait_event,
      .cuCtxGetStreamPriorityRange = priority_range,
      .cuStreamDestroy_v2 = stream_destroy,
      .cuStreamSynchronize = stream_wait,
      .cuEventCreate = event_create,
      .cuEventDestroy_v2 = event_destroy,
      .cuEventRecord = event_record,
      .cuEventQuery = event_query,
      .cuEventElapsedTime = event_elapsed,
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
