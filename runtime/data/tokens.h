// Files of tokens: llm.c's format, bare little-endian uint16, or any file as bytes.
#ifndef DTC_RUNTIME_TOKENS_H
#define DTC_RUNTIME_TOKENS_H

#include "runtime/files/file.h"

#include <string.h>

typedef struct DtTokens {
  DtMap map; // empty where the bytes are the caller's
  const unsigned char *at;
  int width;     // bytes a token: 1 or 2
  int64_t count; // tokens
} DtTokens;

// `bytes`: a byte a token. 65 where the header lies or a uint16 is cut off.
int dt_tokens_open(DtTokens *t, const char *path, bool bytes, DtError *e);
int dt_tokens_parse(DtTokens *t, const unsigned char *data, size_t size, bool bytes,
                    const char *path, DtError *e);
// Whether the bytes are plainly no bare uint16 tokens: another format, text, tokens of 32 bits. 65 with the
// evidence and a remedy.
int dt_tokens_suspect(const unsigned char *data, size_t size, const char *path, DtError *e);
void dt_tokens_close(DtTokens *t);

static inline int32_t dt_token(const DtTokens *t, int64_t i) {
  uint16_t v;
  if (t->width == 1) return t->at[i];
  memcpy(&v, t->at + 2 * i, 2);
  return v;
}

#endif
