// The processor that the runtime's own code runs on, whatever the target: its name, and functions that are compiled for
// wider vectors as well and give the same bits. No other file of the runtime outside device/ names a processor.
#ifndef DTC_RUNTIME_PROCESSOR_H
#define DTC_RUNTIME_PROCESSOR_H

// Bits of a vector that the processor has for DT_FOR_256 (256 or 512) and DT_FOR_512; else 128.
int dt_vector_bits(void);

#if defined(__x86_64__)
#define DT_VECTORS 1
#define DT_FOR_256 __attribute__((target("avx2")))
#define DT_FOR_256_ALL __attribute__((target("arch=x86-64-v3"))) // with all that comes with them
#ifdef __clang__ // which has no such name
#define DT_FOR_512 __attribute__((target("arch=x86-64-v4")))
#else
#define DT_FOR_512 __attribute__((target("arch=x86-64-v4,prefer-vector-width=512")))
#endif
#else
#define DT_VECTORS 0
#endif

// While a thread looks again and again at a word of memory.
static inline void dt_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

// What the processor calls itself, or "".
enum { DT_PROCESSOR_NAME = 49 };
void dt_processor_name(char name[DT_PROCESSOR_NAME]);

#endif
