# A run of many steps, validations and checkpoints asks the system and the allocator for memory exactly as often as
# one of few: all there is was allocated before, in every stage of ZeRO and on every axis.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 3000 97
cat >count.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
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
void *aligned_alloc(size_t a, size_t n) { return calls++, __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { return calls++, (*p = __libc_memalign(a, n)) ? 0 : 12; }
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
  static void *(*next)(void *, size_t, int, int, int, off_t);
  if (!next) next = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
  return calls++, next(at, n, protection, flags, file, offset);
}
__attribute__((destructor)) static void tell(void) {
  FILE *f = fopen(getenv("COUNTS"), "a");
  if (f) fprintf(f, "%ld\n", (long)calls - 2); // but for this file's own
  if (f) fclose(f);
}
C
cc -shared -fPIC -O1 -o count.so count.c -ldl
# counts RANKS STEPS EVERY: of each process, in order of size; a validation and a checkpoint every EVERY steps
counts() {
  rm -rf counts.txt ck
  COUNTS=$PWD/counts.txt LD_PRELOAD=$PWD/count.so ./train --quiet --eval-every "$3" --val train.bin --ranks "$1" \
    --threads 1 --steps "$2" --save ck --save-every "$3" --keep 2 --log log.jsonl
  sort -n counts.txt
}
# layout RANKS OPTIONS...: with as many steps and validations more
layout() {
  "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" "${@:2}" -o train
  if ldd train | grep -q libasan; then exit 0; fi # it has an allocator of its own
  counts "$1" 3 2 >few.txt
  counts "$1" 18 4 >many.txt
  [ "$(wc -l <few.txt)" -ge "$1" ] || fail "nothing was counted"
  diff few.txt many.txt || fail "${*:2}: 15 more steps, with 3 more validations and checkpoints, allocate"
}
for stage in 0 1 2 3; do layout 2 --zero $stage; done
layout 4 --zero 2 --zero-group 2
layout 2 --tp 2
layout 4 --tp 2 --in-flight 2 --zero 1 -D microbatch=1
layout 2 --cp 2 --zero 3
layout 4 --pp 2 --zero 3 -D microbatch=1
layout 2 --pp 2 --schedule zb -D microbatch=1
layout 2 --pp 2 --schedule interleaved:2 -D layers=4 -D microbatch=1
