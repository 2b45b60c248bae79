# A run of many steps asks the system and the allocator for memory exactly as often as one of few: all there is was
# allocated before, in every stage of ZeRO.
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
# counts STEPS: of each process, in order of size
counts() {
  rm -f counts.txt
  COUNTS=$PWD/counts.txt LD_PRELOAD=$PWD/count.so ./train --quiet --eval-every 0 --ranks 2 --threads 1 --steps "$1" --log log.jsonl
  sort -n counts.txt
}
for stage in 0 1 2 3; do
  "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" --zero $stage -o train
  ldd train | grep -q libasan && exit 0 # it has an allocator of its own
  counts 3 >few.txt
  counts 30 >many.txt
  [ "$(wc -l <few.txt)" -ge 2 ] || fail "nothing was counted"
  diff few.txt many.txt || fail "ZeRO $stage: 27 more steps allocate"
done
