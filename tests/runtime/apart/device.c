// A device that lies apart from the host, in the CPU's memory: its addresses fault where the host follows them, the host
// sees its memory a page at a time, and its functions are the CPU's on the bytes behind the addresses.
#define _GNU_SOURCE
#include "apart/apart.h"

#include <stdlib.h>

#define dt_device_limits cpu_limits
#define dt_device_fits cpu_fits
#define dt_device_products cpu_products
#define dt_device_open cpu_open
#define dt_device_name cpu_name
#define dt_device_name_of cpu_name_of
#define dt_device_close cpu_close
#define dt_device_work_bytes cpu_work_bytes
#define dt_device_work_open cpu_work_open
#define dt_device_memory cpu_memory
#define dt_device_alloc cpu_alloc
#define dt_device_free cpu_free
#define dt_device_overrun cpu_overrun
#define dt_device_work_overrun cpu_work_overrun
#define dt_device_used cpu_used
#define dt_device_work_used cpu_work_used
#define dt_device_map cpu_map
#define dt_device_unmap cpu_unmap
#define dt_device_put cpu_put
#define dt_device_get cpu_get
#define dt_device_zero cpu_zero
#define dt_device_copy cpu_copy
#define dt_device_copy_rows cpu_copy_rows
#define dt_device_add cpu_add
#define dt_device_divide cpu_divide
#define dt_device_squares cpu_squares
#define dt_device_narrow cpu_narrow
#define dt_device_widen cpu_widen
#define dt_device_record cpu_record
#define dt_device_links cpu_links
#define dt_device_wait cpu_wait
#define dt_device_sync cpu_sync
#define dt_device_window cpu_window
#define dt_host_alloc cpu_host_alloc
#define dt_host_free cpu_host_free
#include "runtime/device/cpu/arrays.c"
#include "runtime/device/cpu/device.c"
#undef dt_device_limits
#undef dt_device_fits
#undef dt_device_products
#undef dt_device_open
#undef dt_device_name
#undef dt_device_name_of
#undef dt_device_close
#undef dt_device_work_bytes
#undef dt_device_work_open
#undef dt_device_memory
#undef dt_device_alloc
#undef dt_device_free
#undef dt_device_overrun
#undef dt_device_work_overrun
#undef dt_device_used
#undef dt_device_work_used
#undef dt_device_map
#undef dt_device_unmap
#undef dt_device_put
#undef dt_device_get
#undef dt_device_zero
#undef dt_device_copy
#undef dt_device_copy_rows
#undef dt_device_add
#undef dt_device_divide
#undef dt_device_squares
#undef dt_device_narrow
#undef dt_device_widen
#undef dt_device_record
#undef dt_device_links
#undef dt_device_wait
#undef dt_device_sync
#undef dt_device_window
#undef dt_host_alloc
#undef dt_host_free

#define CHECK(condition) (condition ? (void)0 : abort())
#define ROOM ((size_t)1 << 30)
enum { WINDOW = 4096 };
static char *addresses, *memory; // the device's, which fault; where its bytes are
static size_t used;
static bool apart;

void apart_open(void) {
  addresses = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(addresses != MAP_FAILED && memory != MAP_FAILED);
}

void apart_use(bool yes) {
  apart = yes;
  used = 0;
}

void *apart_bytes(const void *p) {
  const char *at = p;
  return at >= addresses && at < addresses + ROOM ? memory + (at - addresses) : (char *)p;
}

const DtDeviceLimits *dt_device_limits(void) {
  static DtDeviceLimits limits;
  limits = *cpu_limits();
  limits.map_bytes = WINDOW;
  limits.in_host = false;
  return &limits;
}

int dt_device_fits(const DtProgram *p, DtError *e) { return cpu_fits(p, e); }
const char *dt_device_products(const DtProgram *p) { return cpu_products(p); }
int64_t dt_device_memory(int ranks, const char **who) { return cpu_memory(ranks, who); }
int dt_device_open(const DtProgram *p, int threads, int rank, int ranks, DtError *e) {
  return cpu_open(p, threads, rank, ranks, e);
}
void dt_device_name(DtDeviceName *to) { cpu_name(to); }
bool dt_device_name_of(int rank, DtDeviceName *to) { return cpu_name_of(rank, to); }
void dt_device_close(void) { cpu_close(); }
int64_t dt_device_work_bytes(const DtProgram *p, int threads) { return cpu_work_bytes(p, threads); }
int dt_device_work_open(const DtProgram *p, DtError *e) { return cpu_work_open(p, e); }
bool dt_device_work_overrun(void) { return cpu_work_overrun(); }
void dt_device_work_used(FILE *f) { cpu_work_used(f); }

void *dt_device_alloc(int64_t bytes, int zeros, DtError *e) {
  if (!apart) return cpu_alloc(bytes, zeros, e);
  size_t at = used;
  used += rounded(bytes);
  CHECK(used <= ROOM);
  memset(memory + at, 0, rounded(bytes));
  guard(memory + at + bytes);
  return addresses + at;
}

void dt_device_free(void *p, int64_t bytes) {
  if (!apart) cpu_free(p, bytes);
}

void *dt_host_alloc(int64_t bytes, DtError *e) { return cpu_alloc(bytes, 0, e); }
void dt_host_free(void *p, int64_t bytes) { cpu_free(p, bytes); }
bool dt_device_overrun(const void *p, int64_t bytes) { return cpu_overrun(apart_bytes(p), bytes); }
int64_t dt_device_used(const void *p, int64_t bytes, int zeros) { return cpu_used(apart_bytes(p), bytes, zeros); }

// Bytes that the host does not write are garbage.
void *dt_device_map(void *p, size_t bytes, DtAccess access) {
  CHECK(bytes <= WINDOW && (!apart || p != apart_bytes(p)));
  char *shown = malloc(bytes + 1);
  memset(shown, 0x77, bytes);
  if (access == DT_READ) memcpy(shown, apart_bytes(p), bytes);
  return shown;
}

void dt_device_unmap(void *p, void *mapped, size_t bytes, DtAccess access) {
  if (access == DT_WRITE) memcpy(apart_bytes(p), mapped, bytes);
  free(mapped);
}

void dt_device_put(void *to, const void *from, size_t bytes) { cpu_put(apart_bytes(to), from, bytes); }
void dt_device_get(void *to, const void *from, size_t bytes) { cpu_get(to, apart_bytes(from), bytes); }
void dt_device_zero(void *p, size_t bytes) { cpu_zero(apart_bytes(p), bytes); }
void dt_device_copy(void *to, const void *from, size_t bytes) { cpu_copy(apart_bytes(to), apart_bytes(from), bytes); }
void dt_device_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, int64_t rows) {
  cpu_copy_rows(apart_bytes(to), to_pitch, apart_bytes(from), from_pitch, bytes, rows);
}
void dt_device_add(DtType type, void *to, const void *from, int64_t n) { cpu_add(type, apart_bytes(to), apart_bytes(from), n); }
void dt_device_divide(DtType type, void *v, double by, int64_t n) { cpu_divide(type, apart_bytes(v), by, n); }
void dt_device_squares(DtType type, const void *v, int64_t n, double *work, double *sum) {
  cpu_squares(type, apart_bytes(v), n, apart_bytes(work), apart_bytes(sum));
}
void dt_device_narrow(DtType type, void *to, const float *from, int64_t n) {
  cpu_narrow(type, apart_bytes(to), apart_bytes(from), n);
}
void dt_device_widen(DtType type, float *to, const void *from, int64_t n, bool add) {
  cpu_widen(type, apart_bytes(to), apart_bytes(from), n, add);
}
const DtLinks *dt_device_links(void) { return NULL; }
DtMark dt_device_record(void) { return 0; }
void dt_device_wait(DtMark mark) { (void)mark; }
void dt_device_sync(void) {}
