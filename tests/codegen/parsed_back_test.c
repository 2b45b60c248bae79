// Kernels that were printed and parsed back are the kernels that were printed: host C and LLVM IR made of them are the
// same to the byte.
#include "codegen/target.h"
#include "codegen/lower/text.h"
#include "driver/passes.h"
#include "frontend/frontend.h"

enum { MOST = 8 };

typedef struct Case {
  const char *example;
  const char *define[MOST];
  const char *axis; // of two ranks, or NULL
  bool pipeline;
} Case;

#define SMALL {"vocab=97", "context=16", "layers=2", "heads=2", "dim=32", "length=16", "batch=4", "microbatch=2"}
static const Case cases[] = {
    {"mlp", {NULL}, NULL, false},
    {"gpt2", SMALL, NULL, false},
    {"gpt2", SMALL, "tp", false},
    {"gpt2", SMALL, "cp", false},
    {"gpt2", SMALL, NULL, true},
};

static Module *lowered(Arena *a, Sources *s, const Case *c) {
  Str d[MOST];
  uint32_t n = 0;
  for (; n < MOST && c->define[n]; n++) d[n] = str_intern(c->define[n]);
  FrontendOptions o = {.path = str_printf(SOURCE_DIR "/examples/%s.dt", c->example),
                       .stdlib = str_intern(SOURCE_DIR "/stdlib"), .define = d, .ndefine = n};
  Module *m = frontend_compile(a, s, &o);
  if (!m) return NULL;
  target_use(m, target_named("cpu"));
  if (c->axis) PUSH(a, m->axis, axis_new(str_intern(c->axis), 2));
  if (c->pipeline) {
    m->stages = 2;
    m->chunks = 1;
    m->schedule = str_intern("1f1b");
  }
  return pipeline_run(m, &(PipelineOptions){.verify = true}) ? m : NULL;
}

// All that is emitted.
static void emit(const Module *m, Buf *out) {
  KernelOptions ko = {.arch = str_intern("x86-64-v3"), .optimise = 0};
  host_c(m->lowered, ko.arch, str_intern("test"), out);
  m->target->kernels(m->lowered, &ko, str_intern("llvm"), out);
}

static bool check(const Case *c) {
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  s->out = stdout;
  Buf text = {0}, one = {0}, two = {0};
  Module *m = lowered(a, s, c);
  if (m) level_print(m, true, &text);
  Module *again = m ? level_parse(a, s, str_intern("printed.ir"), text.text, text.n) : NULL;
  if (again) target_use(again, m->target);
  if (again) emit(m, &one), emit(again, &two);
  bool same = again && one.n == two.n && !memcmp(one.text, two.text, one.n);
  for (size_t i = 0; again && !same; i++) {
    if (i < one.n && i < two.n && one.text[i] == two.text[i]) continue;
    printf("at byte %zu: `%.60s` and `%.60s`\n", i, one.text + i, two.text + i);
    break;
  }
  printf("%-4s %s%s%s%s\n", same ? "ok" : "FAIL", c->example, c->axis ? " over " : "", c->axis ? c->axis : "",
         c->pipeline ? " in two stages" : "");
  buf_free(&text);
  buf_free(&one);
  buf_free(&two);
  arena_free(a);
  return same;
}

int main(void) {
  int bad = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) bad += !check(&cases[i]);
  return bad;
}
