// The parts of --report html that draw: a run's losses and time, and the memory of a frame.
#ifndef DTC_REPORT_PARTS_H
#define DTC_REPORT_PARTS_H

#include "codegen/lower/kernel.h"
#include "driver/plot.h"

// Time of one name in a profile, of all ranks together.
typedef struct Spent {
  Str name; // of a kernel, or of what the runtime does
  int64_t count;
  double seconds; // without what is inside it
  const Kernel *kernel; // NULL: no kernel
  Id fn; // whose kernel it is
} Spent;

typedef struct RankTime {
  double seconds, waiting, communicating, beside; // beside: communication while kernels ran
} RankTime;

typedef struct Profile {
  Str path;
  VEC(Spent) spent; // the longest first
  VEC(RankTime) rank;
  int64_t dropped; // events that the program could not keep
} Profile;

// What --with-log and --with-profile name; NULL: not given.
typedef struct RunFiles {
  LogCurves *log;
  Str log_path;
  Profile *profile;
} RunFiles;

// Reads what ./train --profile wrote. False after a message: it cannot be read, or has kernels that this program has not.
bool profile_read(Arena *a, Str path, const Plan *p, Profile *to);

void report_curve_html(const LogCurves *c, Str path, FILE *out);
void report_profile_html(const Profile *r, const Plan *p, FILE *out);
// Each stage's frame: address against time. `largest`: the stage that a rank's memory is reported for.
void report_frames_html(const Plan *p, FILE *out);

#endif
