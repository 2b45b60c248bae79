// Which device each rank has, and which machine it is on: asked of all ranks when they start.
#define _GNU_SOURCE
#include "runtime/control.h"
#include "runtime/train/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

// FNV-1a.
static uint64_t hash(uint64_t h, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
  return h;
}

// Of this machine: its name, and that of the system that was booted, which containers share.
static uint64_t machine(void) {
  struct utsname u;
  char boot[64];
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  if (!uname(&u)) h = hash(h, u.nodename, strlen(u.nodename));
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (f) h = hash(h, boot, fread(boot, 1, sizeof boot, f));
  if (f) fclose(f);
  return h;
}

static bool is_shared(const DtRankDevice *a, const DtRankDevice *b) {
  return a->device.name[0] && memcmp(a->device.id, b->device.id, sizeof a->device.id) == 0;
}

// 78 on all ranks, and the first one reports the reason.
static int check_shared(const DtRankDevice *of, DtError *e) {
  const char *share = getenv("DT_DEVICE_SHARE");
  for (int b = 1; b < dt_world.size && !(share && *share); b++)
    for (int a = 0; a < b; a++) {
      if (!is_shared(&of[a], &of[b])) continue;
      e->status = DT_EXIT_MISFIT;
      if (dt_world.rank == 0)
        dt_fail(e, DT_EXIT_MISFIT,
                "ranks %d and %d would share %s: their machine has %d ranks and shows them %d device%s. Start no more ranks "
                "than devices, or set DT_DEVICE_SHARE=1 for a test", a, b, of[b].device.name, of[b].local_size,
                of[b].device.shown, of[b].device.shown == 1 ? "" : "s");
      return e->status;
    }
  return 0;
}

// Ranks of a tensor-parallel group are consecutive, and exchange most.
static void note_crossing(const DtRankDevice *of) {
  int tp = dt_tp_degree();
  for (int r = 0; dt_world.rank == 0 && r < dt_world.size; r++) {
    if (r % tp == 0 || of[r].machine == of[r - 1].machine) continue;
    dt_note("ranks %d and %d share the products of each layer (tp %d) and are on different machines: what they exchange goes "
            "over the network. Start a multiple of %d ranks on each machine, in the order of machines", r - 1, r, tp, tp);
    return;
  }
}

int dt_devices_compare(DtRun *r, DtError *e) {
  DtRankDevice mine = {.machine = machine(), .local_size = dt_world.local_size};
  dt_device_name(&mine.device);
  r->device = calloc((size_t)dt_world.size, sizeof *r->device);
  if (dt_agree(r->device ? 0 : DT_EXIT_OS)) return dt_fail(e, DT_EXIT_OS, "no memory for the names of devices");
  r->device[dt_world.rank] = mine;
  if (dt_world.size > 1)
    dt_control_gather(dt_group(DT_ALL_AXES), DT_TYPE_I32, &mine, r->device, sizeof mine / 4, (DtNote){"devices", -1, NULL});
  if (check_shared(r->device, e)) return e->status;
  note_crossing(r->device);
  return 0;
}
