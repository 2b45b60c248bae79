// The host reads and writes the device's memory by the functions of runtime/device.h alone: on a device whose addresses
// the host cannot follow, which shows it a page at a time, runs give the same bits as on the CPU.
#define _GNU_SOURCE
#define dt_device_limits cpu_limits
#define dt_device_fits cpu_fits
#define dt_device_open cpu_open
#define dt_device_close cpu_close
#define dt_device_work_bytes cpu_work_bytes
#define dt_device_work_open cpu_work_open
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
#define dt_device_wait cpu_wait
#define dt_device_sync cpu_sync
#define dt_device_window cpu_window
#define dt_host_alloc cpu_host_alloc
#define dt_host_free cpu_host_free
#include "runtime/device/cpu/arrays.c"
#include "runtime/device/cpu/device.c"
#undef dt_device_limits
#undef dt_device_fits
#undef dt_device_open
#undef dt_device_close
#undef dt_device_work_bytes
#undef dt_device_work_open
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
#undef dt_device_wait
#undef dt_device_sync
#undef dt_device_window
#undef dt_host_alloc
#undef dt_host_free

#include "support/check.h"
#include "support/fake.h"

#include <stdlib.h>

enum { ROOM = 64 << 20, WINDOW = 4096 };
static char *addresses, *memory; // the device's, which fault; where its bytes are
static size_t used;
static bool apart;

// Where the bytes of an address of the device are.
static void *here(const void *p) {
  const char *at = p;
  return at >= addresses && at < addresses + ROOM ? memory + (at - addresses) : (char *)p;
}

const DtDeviceLimits *dt_device_limits(void) {
  static DtDeviceLimits limits;
  limits = *cpu_limits();
  limits.map_bytes = WINDOW;
  return &limits;
}

int dt_device_fits(const DtProgram *p, DtError *e) { return cpu_fits(p, e); }
void dt_device_open(int threads, int ranks) { cpu_open(threads, ranks); }
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
bool dt_device_overrun(const void *p, int64_t bytes) { return cpu_overrun(here(p), bytes); }
int64_t dt_device_used(const void *p, int64_t bytes, int zeros) { return cpu_used(here(p), bytes, zeros); }

// What the host does not write is garbage.
void *dt_device_map(void *p, size_t bytes, DtAccess access) {
  CHECK(bytes <= WINDOW && (!apart || p != here(p)));
  char *shown = malloc(bytes + 1);
  memset(shown, 0x77, bytes);
  if (access == DT_READ) memcpy(shown, here(p), bytes);
  return shown;
}

void dt_device_unmap(void *p, void *mapped, size_t bytes, DtAccess access) {
  if (access == DT_WRITE) memcpy(here(p), mapped, bytes);
  free(mapped);
}

void dt_device_put(void *to, const void *from, size_t bytes) { cpu_put(here(to), from, bytes); }
void dt_device_get(void *to, const void *from, size_t bytes) { cpu_get(to, here(from), bytes); }
void dt_device_zero(void *p, size_t bytes) { cpu_zero(here(p), bytes); }
void dt_device_copy(void *to, const void *from, size_t bytes) { cpu_copy(here(to), here(from), bytes); }
void dt_device_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, int64_t rows) {
  cpu_copy_rows(here(to), to_pitch, here(from), from_pitch, bytes, rows);
}
void dt_device_add(DtType type, void *to, const void *from, int64_t n) { cpu_add(type, here(to), here(from), n); }
void dt_device_divide(DtType type, void *v, double by, int64_t n) { cpu_divide(type, here(v), by, n); }
void dt_device_squares(DtType type, const void *v, int64_t n, double *work, double *sum) {
  cpu_squares(type, here(v), n, here(work), here(sum));
}
void dt_device_narrow(DtType type, void *to, const float *from, int64_t n) {
  cpu_narrow(type, here(to), here(from), n);
}
void dt_device_widen(DtType type, float *to, const void *from, int64_t n, bool add) {
  cpu_widen(type, here(to), here(from), n, add);
}
DtMark dt_device_record(void) { return 0; }
void dt_device_wait(DtMark mark) { (void)mark; }
void dt_device_sync(void) {}

// ---- the runs

static bool same_files(const char *a, const char *b) {
  size_t n, m;
  char *x = read_whole(a, &n), *y = read_whole(b, &m);
  bool same = x && y && n == m && memcmp(x, y, n) == 0;
  free(x);
  free(y);
  return same;
}

static void check_model(const char *model) {
  apart = false;
  CHECK(run(model, "--export", "cpu.st", "--export-gradient", "cpu.grad", NULL) == 0);
  apart = true;
  used = 0;
  CHECK(run(model, "--export", "apart.st", "--export-gradient", "apart.grad", NULL) == 0);
  CHECK(same_files("cpu.st", "apart.st") && same_files("cpu.grad", "apart.grad"));
  CHECK(run(model, "--steps", "7", "--save", model, NULL) == 0);
  CHECK(run(model, "--resume", model, "--export", "resumed.st", NULL) == 0);
  CHECK(same_files("cpu.st", "resumed.st"));
  CHECK(run(model, "--init", "cpu.st", "--steps", "0", "--export", "init.st", NULL) == 0);
  CHECK(same_files("cpu.st", "init.st"));
}

int main(void) {
  addresses = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  memory = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(addresses != MAP_FAILED && memory != MAP_FAILED);
  fake_at = here;
  check_folder();
  write_fake_data(40);
  check_model("arrays");
  check_model("tokens");
  CHECK(run("tokens", "--steps", "2", "--sample", "5", "--temperature", "1", NULL) == 0);
  return check_done();
}
