# From the first step's begin to the last one's end no thread of any rank asks the system or the allocator for
# memory: steps, validations and checkpoints are counted apart, in every stage of ZeRO, on every axis, on one
# thread and on several.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 3000 97
cat >count.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
static atomic_long calls;
void *malloc(size_t n) { return calls++, __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return calls++, __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return calls++, __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return calls++, __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return calls++, __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { return calls++, (*p = __libc_memalign(a, n)) ? 0 : 12; }
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
  static void *(*next)(void *, size_t, int, int, int, off_t);
  if (!next) next = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
  return calls++, next(at, n, protection, flags, file, offset);
}
// Calls since the first step began, up to the end of each of these: in them, and of the whole.
enum { STEP, VALIDATION, CHECKPOINT, KINDS };
static long first = -1, times[KINDS], in[KINDS], last;
extern bool dt_rehearsing; // at the start all is gone through once without computing
static long begin(int kind) {
  if (first < 0 && kind == STEP && !dt_rehearsing) first = calls;
  return calls;
}
static int end(int kind, long began, int status) {
  if (first < 0) return status;
  times[kind]++;
  last = calls;
  in[kind] += last - began;
  return status;
}
#define WRAP(kind, name, parameters, arguments) \
  int __real_##name parameters; \
  int __wrap_##name parameters { \
    long began = begin(kind); \
    return end(kind, began, __real_##name arguments); \
  }
WRAP(STEP, dt_step, (void *r, void *result, void *e), (r, result, e))
WRAP(VALIDATION, dt_evaluate, (void *r, void *result, void *e), (r, result, e))
WRAP(CHECKPOINT, dt_checkpoint_save, (void *s, long keep, void *e), (s, keep, e))
WRAP(CHECKPOINT, dt_checkpoint_begin, (void *s, long keep, void *e), (s, keep, e))
__attribute__((destructor)) static void tell(void) {
  FILE *f = first < 0 ? NULL : fopen(getenv("COUNTS"), "a");
  if (!f) return;
  fprintf(f, "steps %ld: %ld, validations %ld: %ld, checkpoints %ld: %ld, all: %ld\n", times[STEP], in[STEP],
          times[VALIDATION], in[VALIDATION], times[CHECKPOINT], in[CHECKPOINT], last - first);
  fclose(f);
}
C
cc -c -fPIE -O1 -o count.o count.c
export CC="cc -Wl,--wrap=dt_step,--wrap=dt_evaluate,--wrap=dt_checkpoint_save,--wrap=dt_checkpoint_begin $PWD/count.o"
# layout RANKS OPTIONS...: on one thread and on three
layout() {
  "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" "${@:2}" -o train 2>dtc.txt || { cat dtc.txt >&2; fail "dtc"; }
  if ldd train | grep -q libasan; then exit 0; fi # it has an allocator of its own
  for threads in 1 3; do
    rm -rf counts.txt ck
    COUNTS=$PWD/counts.txt ./train --quiet --eval-every 2 --val train.bin --ranks "$1" --threads $threads \
      --steps 5 --save ck --save-every 2 --keep 2 --log log.jsonl ${WHERE:-}
    [ "$(wc -l <counts.txt)" -eq "$1" ] || fail "${*:2}: not every rank was counted"
    grep -vq "^steps 5: 0, validations 3: 0, checkpoints 3: 0, all: 0$" counts.txt || continue
    cat counts.txt >&2
    fail "$*, $threads threads: something is allocated after the start"
  done
}
for stage in 0 1 2 3; do layout 2 --zero $stage; done
layout 1
WHERE="--offload-dir ." layout 2 --zero 1 --offload optimizer --precision bf16
layout 4 --zero 2 --zero-group 2
layout 2 --tp 2
layout 4 --tp 2 --in-flight 2 --zero 1 -D microbatch=1
layout 2 --cp 2 --zero 3
layout 4 --pp 2 --zero 3 -D microbatch=1
layout 2 --pp 2 --schedule zb -D microbatch=1
layout 2 --pp 2 --schedule interleaved:2 -D layers=4 -D microbatch=1
