#include "ir/util.h"

#include <stdlib.h>

#if defined __has_feature
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined __SANITIZE_ADDRESS__ || HAS_FEATURE(address_sanitizer)
#define ALLOCATE_ALONE 1
#else
#define ALLOCATE_ALONE 0
#endif

// Under the address sanitizer each allocation is a block, of exactly its size: an overflow inside a
// block that several share is not seen, and a freed arena's memory could be used again unnoticed.
enum { BLOCK_BYTES = ALLOCATE_ALONE ? 0 : 1 << 16, ALIGN = 16 };

typedef struct Block {
  struct Block *next;
  size_t used, cap;
  _Alignas(ALIGN) char data[];
} Block;

struct Arena {
  Block *block;
};

void (*bug_hook)(const char *message);

void bug(const char *file, int line, const char *fmt, ...) {
  char text[4096];
  va_list ap;
  va_start(ap, fmt);
  int n = snprintf(text, sizeof text, "%s:%d: ", file, line);
  vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
  va_end(ap);
  fprintf(stderr, "dtc: bug in dtc: %s\n", text);
  void (*hook)(const char *) = bug_hook;
  bug_hook = NULL; // a bug inside the hook must not come back here
  if (hook) hook(text);
  exit(70);
}

void too_large(const char *fmt, ...) {
  va_list ap;
  fputs("dtc: error: ", stderr);
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fputs("\n", stderr);
  exit(1);
}

void out_of_memory(void) {
  fputs("dtc: out of memory\n", stderr);
  exit(3); // the machine's lack, as a missing tool is
}

static void *must(void *p) {
  ALLOCATED(p);
  return p;
}

static Block *block_new(size_t bytes) {
  Block *b = must(malloc(sizeof(Block) + bytes));
  b->next = NULL;
  b->used = 0;
  b->cap = bytes;
  return b;
}

Arena *arena_new(void) {
  Arena *a = must(malloc(sizeof *a));
  a->block = block_new(BLOCK_BYTES);
  return a;
}

void arena_free(Arena *a) {
  if (!a) return;
  for (Block *b = a->block, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  free(a);
}

void *arena_alloc(Arena *a, size_t bytes) {
  if (bytes > SIZE_MAX - 2 * ALIGN) must(NULL);
  if (!ALLOCATE_ALONE) bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
  if (ALLOCATE_ALONE || a->block->cap - a->block->used < bytes) {
    Block *b = block_new(bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES);
    if (bytes == b->cap) { // allocated alone; keep filling the old block
      b->next = a->block->next;
      a->block->next = b;
      b->used = bytes;
      return memset(b->data, 0, bytes);
    }
    b->next = a->block;
    a->block = b;
  }
  void *p = a->block->data + a->block->used;
  a->block->used += bytes;
  return memset(p, 0, bytes);
}

void *arena_copy(Arena *a, const void *src, size_t bytes) {
  void *p = arena_alloc(a, bytes ? bytes : 1);
  if (bytes) memcpy(p, src, bytes);
  return p;
}

char *arena_vprintf(Arena *a, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  char *p = arena_alloc(a, (size_t)n + 1);
  vsnprintf(p, (size_t)n + 1, fmt, again);
  va_end(again);
  return p;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  char *p = arena_vprintf(a, fmt, ap);
  va_end(ap);
  return p;
}

void vec_room(Arena *a, void **at, uint32_t *cap, uint32_t n, size_t size) {
  if (n < *cap) return;
  if (*cap > UINT32_MAX / 2) must(NULL);
  uint32_t more = *cap ? *cap * 2 : 8;
  void *p = arena_alloc(a, more * size);
  if (n) memcpy(p, *at, n * size);
  *at = p;
  *cap = more;
}

// Interned strings: an open-addressing table that lives as long as the process.
static struct {
  Arena *arena;
  Str *slot;
  size_t n, cap; // cap a power of two
} names;

static uint64_t hash_bytes(const char *text, size_t n) {
  uint64_t h = 0xcbf29ce484222325u; // FNV-1a
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
  return h;
}

static void names_grow(void) {
  size_t cap = names.cap ? names.cap * 2 : 1024;
  Str *slot = must(calloc(cap, sizeof *slot));
  for (size_t i = 0; i < names.cap; i++) {
    if (!names.slot[i]) continue;
    size_t h = hash_bytes(names.slot[i], strlen(names.slot[i])) & (cap - 1);
    while (slot[h]) h = (h + 1) & (cap - 1);
    slot[h] = names.slot[i];
  }
  free(names.slot);
  names.slot = slot;
  names.cap = cap;
}

Str str_internn(const char *text, size_t n) {
  if (!names.arena) names.arena = arena_new();
  if (names.n * 2 >= names.cap) names_grow();
  size_t h = hash_bytes(text, n) & (names.cap - 1);
  for (; names.slot[h]; h = (h + 1) & (names.cap - 1))
    if (!strncmp(names.slot[h], text, n) && !names.slot[h][n]) return names.slot[h];
  char *copy = arena_alloc(names.arena, n + 1);
  memcpy(copy, text, n);
  names.n++;
  return names.slot[h] = copy;
}

Str str_intern(const char *text) { return str_internn(text, strlen(text)); }

bool str_begins(Str s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

Str str_printf(const char *fmt, ...) {
  char small[256], *big = NULL;
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  va_end(ap);
  if ((size_t)n >= sizeof small) {
    big = must(malloc((size_t)n + 1));
    va_start(ap, fmt);
    vsnprintf(big, (size_t)n + 1, fmt, ap);
    va_end(ap);
  }
  Str s = str_internn(big ? big : small, (size_t)n);
  free(big);
  return s;
}

static void buf_room(Buf *b, size_t more) {
  if (b->cap - b->n > more) return;
  size_t cap = b->cap ? b->cap * 2 : 256;
  while (cap - b->n <= more) cap *= 2;
  b->text = must(realloc(b->text, cap));
  b->cap = cap;
}

void buf_write(Buf *b, const char *text, size_t n) {
  buf_room(b, n);
  memcpy(b->text + b->n, text, n);
  b->n += n;
  b->text[b->n] = 0;
}

void buf_printf(Buf *b, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  buf_room(b, (size_t)n);
  va_start(ap, fmt);
  vsnprintf(b->text + b->n, (size_t)n + 1, fmt, ap);
  va_end(ap);
  b->n += (size_t)n;
}

void buf_free(Buf *b) {
  free(b->text);
  *b = (Buf){0};
}
