// Arenas, growable arrays, interned strings and string building: what every part of the compiler uses.
#ifndef DTC_UTIL_H
#define DTC_UTIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint32_t Id;
#define NONE UINT32_MAX

// An arena owns everything allocated from it until arena_free. Allocation never fails: running out
// of memory prints a message and ends the process with status 3.
typedef struct Arena Arena;
Arena *arena_new(void);
void arena_free(Arena *a);
void *arena_alloc(Arena *a, size_t bytes); // zeroed, aligned to 16
void *arena_copy(Arena *a, const void *src, size_t bytes);
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *a, const char *fmt, va_list ap);
#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEWN(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))

// A growable array on the arena: `VEC(Stmt) v = {0}; PUSH(arena, v, stmt);`
#define VEC(T)                                                                                     \
  struct {                                                                                         \
    T *at;                                                                                         \
    uint32_t n, cap;                                                                               \
  }
#define PUSH(arena, v, ...)                                                                        \
  do {                                                                                             \
    vec_room((arena), (void **)&(v).at, &(v).cap, (v).n, sizeof *(v).at);                          \
    (v).at[(v).n++] = (__VA_ARGS__);                                                               \
  } while (0)
void vec_room(Arena *a, void **at, uint32_t *cap, uint32_t n, size_t size);

// Interned strings: equal text is the same pointer, for the life of the process.
typedef const char *Str;
Str str_intern(const char *text);
Str str_internn(const char *text, size_t n);
// Whether s begins with the text of prefix.
bool str_begins(Str s, const char *prefix);
Str str_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// A growing text buffer (malloc'd; buf_free releases it).
typedef struct Buf {
  char *text; // NUL-terminated once anything was written
  size_t n, cap;
} Buf;
void buf_printf(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_write(Buf *b, const char *text, size_t n);
void buf_free(Buf *b);

// Checked arithmetic on sizes: false where the result does not fit an int64_t.
static inline bool mul_ok(int64_t a, int64_t b, int64_t *r) { return !__builtin_mul_overflow(a, b, r); }
static inline bool add_ok(int64_t a, int64_t b, int64_t *r) { return !__builtin_add_overflow(a, b, r); }

// A bug in dtc: names the place, ends the process with status 70.
_Noreturn void bug(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define BUG(...) bug(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(cond)                                                                                \
  do {                                                                                             \
    if (!(cond)) BUG("check failed: %s", #cond);                                                   \
  } while (0)
// A limit that is met where no caller can hand on a failure: prints the message, ends with status 1.
_Noreturn void too_large(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// After an allocation that is not an arena's.
_Noreturn void out_of_memory(void);
#define ALLOCATED(cond)                                                                            \
  do {                                                                                             \
    if (!(cond)) out_of_memory();                                                                  \
  } while (0)
// Called by bug() before it ends, with the message: the driver writes a reproducer there.
extern void (*bug_hook)(const char *message);

#endif
