// Text in, text out: for every tests/passes/text/NAME.PASS.out, pass PASS run alone on NAME.ir
// prints exactly that (diagnostics first, if it fails). `passes_text_test --update` rewrites them
// all.
#include <stdlib.h>

#include "support/load.h"

// What the pass prints.
static void pass_text(const char *path, const char *pass, Buf *out) {
  Arena *a = arena_new();
  char *text = load_text(path, 0);
  Module *m = text ? load_module(a, path, text) : NULL;
  FILE *f = tmpfile();
  if (m && f) {
    m->src->out = f;
    bool ok = run_pass(m, pass, path);
    rewind(f);
    for (int c; (c = getc(f)) != EOF;) buf_write(out, &(char){(char)c}, 1);
    if (ok) ir_print(m, out);
  }
  if (f) fclose(f);
  free(text);
  arena_free(a);
}

static bool check(const char *dir, const char *name, bool update) {
  char path[4096], input[4096], pass[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  size_t stem = strcspn(name, ".");
  snprintf(input, sizeof input, "%s/%.*s.ir", dir, (int)stem, name);
  snprintf(pass, sizeof pass, "%s", name + stem + 1);
  pass[strlen(pass) - 4] = 0;
  Buf got = {0};
  buf_write(&got, "", 0);
  pass_text(input, pass, &got);
  char *want = update ? NULL : load_text(path, 0);
  bool same = want && !strcmp(want, got.text);
  if (update) {
    FILE *f = fopen(path, "wb");
    same = f && fwrite(got.text, 1, got.n, f) == got.n;
    if (f) fclose(f);
  } else if (!same) {
    printf("%s: expected\n%s\ngot\n%s\n(`passes_text_test --update` accepts what it prints now)\n",
           path, want ? want : "", got.text);
  }
  free(want);
  buf_free(&got);
  return same;
}

int main(int argc, char **argv) {
  static char name[256][256];
  const char *dir = SOURCE_DIR "/tests/passes/text";
  bool update = argc > 1 && !strcmp(argv[1], "--update");
  int n = list_files(dir, ".out", name, 256), bad = 0;
  for (int i = 0; i < n; i++) bad += !check(dir, name[i], update);
  printf("%d of %d files differ\n", bad, n);
  return bad || !n;
}
