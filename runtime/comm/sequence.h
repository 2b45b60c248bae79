// Operations of ranks in the order in which they post them, and whether those of all ranks fit
// together.
#ifndef DTC_RUNTIME_SEQUENCE_H
#define DTC_RUNTIME_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum DtTurnKind {
  DT_TURN_ALL,  // an operation of all ranks of the simulation
  DT_TURN_SEND, // goes on once its receive is posted
  DT_TURN_RECV, // is posted, and waited for later
  DT_TURN_WAIT  // for a receive
} DtTurnKind;

typedef struct DtTurn {
  uint64_t hash;   // of the fields on which its members must agree (dt_op_hash)
  int64_t receive; // RECV, WAIT: which of the rank's receives, from 1
  int32_t kind;    // DtTurnKind
  int32_t peer;    // SEND, RECV, WAIT: number of the other rank
} DtTurn;

// Two ranks that cannot go on, each with its turn: turn `at` of rank `who`; -1: it has finished.
typedef struct DtStuck {
  const char *what; // "two ranks differ in their next operation"
  int who[2];
  int64_t at[2];
} DtStuck;

// Runs n[r] turns of each of `ranks` ranks, all of them blocking but for receives: sends and
// receives of a pair match in their order, and no rank waits for ever. False, with the reason: the
// ranks differ, wait in a circle, wait for one that has finished, or there is no memory (both
// ranks -1).
bool dt_turns_run(const DtTurn *const *turn, const int64_t *n, int ranks, DtStuck *stuck);

// A hash of the first n of a list of hashes; 0 of none.
uint64_t dt_turns_hash(const uint64_t *hash, int64_t n);

#endif
