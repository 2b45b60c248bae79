#include "runtime/data/tokens.h"

enum { MAGIC = 20240520, HEADER = 1024 };

static int32_t header_word(const unsigned char *data, int i) {
  int32_t v;
  memcpy(&v, data + 4 * i, 4);
  return v;
}

int dt_tokens_parse(DtTokens *t, const unsigned char *data, size_t size, bool bytes,
                    const char *path, DtError *e) {
  *t = (DtTokens){.at = data, .width = bytes ? 1 : 2, .count = (int64_t)size};
  if (bytes) return 0;
  // As two uint16 the magic number is the tokens 55432 and 308: bare files of GPT-2's tokens never
  // begin so.
  if (size >= 4 && header_word(data, 0) == MAGIC) {
    if (size < HEADER)
      return dt_fail(e, DT_EXIT_CONTENT, "%s: its token header is cut off after %zu of 1024 bytes",
                     path, size);
    if (header_word(data, 1) != 1)
      return dt_fail(e, DT_EXIT_CONTENT, "%s: token files of version %d are not read, only 1", path,
                     header_word(data, 1));
    int64_t count = header_word(data, 2), have = (int64_t)size - HEADER;
    if (count < 0 || count * 2 != have)
      return dt_fail(e, DT_EXIT_CONTENT,
                     "%s: its header announces %lld tokens, %lld bytes; it has %lld: %s", path,
                     (long long)count, (long long)count * 2, (long long)have,
                     count * 2 > have ? "the file is truncated" : "the header is wrong");
    t->at = data + HEADER;
    t->count = count;
    return 0;
  }
  if (dt_tokens_suspect(data, size, path, e)) return e->status;
  if (size % 2)
    return dt_fail(e, DT_EXIT_CONTENT,
                   "%s: %zu bytes are not a whole number of uint16 tokens: the file is truncated",
                   path, size);
  t->count = (int64_t)(size / 2);
  return 0;
}

int dt_tokens_open(DtTokens *t, const char *path, bool bytes, DtError *e) {
  DtMap map;
  *t = (DtTokens){0};
  if (dt_map_open(&map, path, e)) return e->status;
  int status = dt_tokens_parse(t, map.bytes, map.size, bytes, path, e);
  t->map = map;
  return status;
}

void dt_tokens_close(DtTokens *t) {
  dt_map_close(&t->map);
  *t = (DtTokens){0};
}
