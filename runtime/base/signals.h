// Signals: TERM, INT and HUP ask for a stop (runtime/train/step.c says when), a second one two seconds later ends
// the process, USR2 prints its activity, BUS (a mapped file became shorter) ends it with a
// message.
#ifndef DTC_RUNTIME_SIGNALS_H
#define DTC_RUNTIME_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

void dt_signals_install(void);
bool dt_hangup_ignored(void); // from the start, by nohup: the run is to outlive its terminal
int dt_stop_signal(void); // the signal that asked this process, or the parent of ranks, for a stop, or 0
const char *dt_signal_name(int number);
// For USR2: the progress of the run, beside dt_activity (runtime/base/trace.h).
void dt_signals_progress(int64_t step, int64_t steps);

#endif
