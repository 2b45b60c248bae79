// The instruction set that the runtime's own vector code uses.
#ifndef DTC_RUNTIME_CPU_LEVEL_H
#define DTC_RUNTIME_CPU_LEVEL_H

#include <stdbool.h>
#include <stddef.h>

enum { DT_CPU_ANY_LEVEL = 9 };

// Levels as in the x86-64 psABI: 1 baseline (SSE2), 3 (AVX2 and FMA), 4 (AVX-512 F, BW, CD, DQ,
// VL). Levels differ in the rounding of sums, so a program compiled for a named processor fixes its
// level and gives the same bits on every machine that has it.
//
// Chooses `level` (0: the best that this processor has); returns the level chosen, which is lower
// only where the processor lacks the one asked for. Call before the first kernel; without a call,
// the best. The environment's DTC_CPU_LEVEL makes a processor seem a lesser one: for tests.
int dt_cpu_level(int level);

// The level in use.
int dt_cpu_level_now(void);

// Whether it was asked for, and is not just the best.
bool dt_cpu_level_fixed(void);

// Instructions that multiply pairs of bf16 and add up in float: AVX512_BF16, on level 4, and AMX, of which the
// kernel must allow the use.
typedef enum { DT_PAIRS_NONE, DT_PAIRS_BY_AVX512, DT_PAIRS_BY_AMX } DtPairs;
// Whether they can be used here.
bool dt_cpu_has_pairs(DtPairs pairs);

// Of a fixed level: the processor's name stands for these features, and products of bf16 use the best of their
// instructions, and no others. After dt_cpu_level, until its next call; without a call, none.
void dt_cpu_name_pairs(const char *features);
DtPairs dt_cpu_named_pairs(void);

// The instruction sets of this processor that a compiler for it may use, with spaces between: "avx avx2 fma".
void dt_cpu_features(char *out, size_t size);

// Whether the processor has all of such a list; else those that it lacks, with commas.
bool dt_cpu_has(const char *needed, char *missing, size_t size);

// Whether the processor is AMD's: tuned tables may differ by maker.
bool dt_cpu_amd(void);

#endif
