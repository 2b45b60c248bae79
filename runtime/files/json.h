// JSON: a strict parser for headers and manifests that come from anywhere, and what writers need.
#ifndef DTC_RUNTIME_JSON_H
#define DTC_RUNTIME_JSON_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum DtJsonKind {
  DT_JSON_NULL,
  DT_JSON_BOOL,
  DT_JSON_INTEGER,
  DT_JSON_REAL,
  DT_JSON_STRING,
  DT_JSON_ARRAY,
  DT_JSON_OBJECT
} DtJsonKind;

// A value; children of arrays and objects hang in a list. Strings are UTF-8, ended by 0, and hold
// no other 0.
typedef struct DtJsonValue {
  DtJsonKind kind;
  uint32_t child, next; // positions in DtJson.value; 0: none
  uint32_t count;       // children
  const char *key;      // of a member, else NULL
  const char *string;
  int64_t integer; // BOOL, INTEGER
  double real;     // INTEGER, REAL
} DtJsonValue;

typedef struct DtJson {
  DtJsonValue *value; // [0] stands for "none", [1] is the root
  uint32_t n, capacity;
  char *text; // all strings
  size_t used;
} DtJson;

// Parses exactly one value, white space around it allowed. Refuses what the grammar does not allow,
// duplicate keys, more than 64 levels, zero bytes in strings, and integers outside int64 (65).
// `what` names the document in messages. dt_json_free in either case.
int dt_json_parse(DtJson *j, const char *bytes, size_t size, const char *what, DtError *e);
void dt_json_free(DtJson *j);

static inline const DtJsonValue *dt_json_at(const DtJson *j, uint32_t i) {
  return i ? &j->value[i] : NULL;
}
static inline const DtJsonValue *dt_json_root(const DtJson *j) { return &j->value[1]; }
static inline const DtJsonValue *dt_json_first(const DtJson *j, const DtJsonValue *v) {
  return dt_json_at(j, v->child);
}
static inline const DtJsonValue *dt_json_next(const DtJson *j, const DtJsonValue *v) {
  return dt_json_at(j, v->next);
}
// The member of that name and kind, or NULL. An INTEGER serves where a REAL is asked for.
const DtJsonValue *dt_json_member(const DtJson *j, const DtJsonValue *object, const char *key,
                                  DtJsonKind kind);

// For writers: a quoted and escaped string, bytes that are no UTF-8 replaced (free it; NULL where memory is out), and the shortest
// decimal that reads back as the same double (null where it is not finite).
char *dt_json_quote(const char *text);
void dt_json_escape(char *out, size_t size, const char *text); // without quotes, cut to fit
void dt_json_real(char out[32], double x);

#endif
