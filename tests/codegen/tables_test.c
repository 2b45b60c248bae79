// A program's tables, printed as C, compiled and loaded, are those that were printed: printed again, they are the same text.
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/host/host.h"
#include "runtime/comm.h"

static const DtParam params[] = {
    {.name = "blocks.*.w", .rank = 3, .nstack = 1, .extent = {3, 0, 7}, .count = 21, .offset = 16, .init = DT_UNIFORM,
     .init_a = -0.1, .init_b = 1.0 / 3, .decay = true, .stack = 1,
     .shard = {[DT_AXIS_TP] = {0, 5}, [DT_AXIS_CP] = {2, 1}}, .local = 11,
     .partial = 1u << DT_AXIS_CP | 1u << DT_AXIS_TP_OUTER, .source = "a \"quoted\" name?\?/.dt:3"},
    {.name = "scale", .count = 1, .init = DT_CONST, .init_a = -0.0},
};
static const DtStack stacks[] = {
    {.name = "blocks", .count = 3, .offset = 64, .stride = 32, .first = 2, .source = "m.dt:8"}};
static const DtHeld helds[] = {{0, 1}, {1, 0}};
static const DtStage stages[] = {
    {.nparam = 2, .nstack = 1, .param = params, .held = helds, .stack = stacks, .param_count = 96, .frame_bytes = 128},
    {.nparam = 0, .param_count = 0, .frame_bytes = (int64_t)1 << 40}};
static const DtPipeChunk chunks[] = {
    {.reads_data = {true, false, true}, .slot_bytes = {5, 0, 7}, .sent_bytes = {1, 2, 3, 4, 5}, .cost = {0, 9}, .param = 1,
     .nparam = 2, .message = {NULL, "gradients of a, b"}, .source = {NULL, "m.dt:9"}},
    {.sent_bytes = {0, 0, 0, 0, INT64_MAX}}};
static const DtData datas[] = {
    {.name = "tokens", .type = DT_TYPE_I32, .rank = 2, .extent = {4, 16}, .checked = true, .lo = INT32_MIN, .hi = 97,
     .path = "x.npy", .val_path = "v.npy"}};
static const char *const metrics[] = {"accuracy", "top5"};
static const DtKernelInfo kernels[] = {{"ln_fwd", "m.dt:4", 1.5e6, 3}, {"update", "", 0, 0}};

static const DtProgram full = {
    .model = "Model\n", .build = "0123", .type = DT_TYPE_F32, .param_type = DT_TYPE_BF16, .reduce_type = DT_TYPE_F16,
    .loss_scaling = true, .device_level = 4,
    .device_features = "many words that do not fit on one line, so that they are printed as several literals, one "
                       "below the other, each with the space that follows it",
    .ndata = 1, .nparam = 2, .ntotal = 3, .nmetric = 2, .nmoment = 2, .nkernel = 2, .data = datas, .param = params,
    .metric = metrics, .kernel = kernels,
    .train = {.data = DT_DATA_ARRAYS, .val = DT_DATA_BYTES, .data_path = "d", .val_path = "", .length = 1, .batch = 2,
              .microbatch = 3, .steps = 4, .eval_every = 5, .seed = -6, .optimizer = DT_ADAMW, .lr = 1e-300,
              .beta1 = 0.9, .beta2 = 0.1 + 0.2, .eps = 1e-8, .weight_decay = 1e22, .momentum = 0.5, .nesterov = true,
              .schedule = DT_INVSQRT, .warmup = 7, .final = 0.25, .clip = 1, .precision = "bf16"},
    .param_count = 8, .frame_bytes = 9, .stores_grad = true, .random_totals = true, .sample_length = 10,
    .sample_vocab = 11, .listing = "row one\nrow two\n", .tp = 4, .cp = 2, .pp = 2, .tp_outer = 2, .nstack = 1,
    .stack = stacks, .zero = 3, .zero_group = 2, .accumulate_each = true, .gather_once = true, .nchunk = 2,
    .schedule = DT_PIPE_ZB, .chunk = chunks, .stage = stages, .source = "m.dt:1", .in_flight = 2, .scratch_bytes = 12};
static const DtProgram empty = {.model = "", .build = "", .listing = ""};

static const ProgramNames names = {
    .entry = {[ENTRY_COUNT] = "f0", [ENTRY_UPDATE] = "f1", [ENTRY_SAMPLE] = "f2"},
    .run = (const Str[][NCHUNK_PART]){{"f3", NULL, "f4"}, {NULL, "f5"}}};
enum { FUNCTIONS = 6 };

static void print(const DtProgram *p, Arena *a, Buf *out) {
  buf_printf(out, "#include \"runtime/comm.h\"\n#include \"runtime/program.h\"\nstatic const char listing[] = ");
  put_text(out, 4, p->listing);
  buf_printf(out, ";\n");
  for (int i = 0; i < FUNCTIONS; i++) buf_printf(out, "static void f%d(const DtCall *call) { (void)call; }\n", i);
  program_print(p, p == &empty ? &(ProgramNames){0} : &names, a, out);
}

// The text's dt_program; NULL after a message.
static const DtProgram *load(const Buf *text) {
  char folder[] = "/tmp/dtc-tables-XXXXXX";
  if (!mkdtemp(folder)) return NULL;
  Str c = str_printf("%s/t.c", folder), so = str_printf("%s/t.so", folder);
  FILE *f = fopen(c, "w");
  CHECK(f && fwrite(text->text, 1, text->n, f) == text->n && !fclose(f));
  int status = system(str_printf("cc -std=c17 -Wall -Wextra -Werror -Wno-unused-function -Wno-unused-const-variable "
                                 "-shared -fPIC -I%s -o %s %s", SOURCE_DIR, so, c));
  void *lib = status ? NULL : dlopen(so, RTLD_NOW | RTLD_LOCAL);
  remove(c), remove(so), remove(folder);
  return lib ? dlsym(lib, "dt_program") : NULL;
}

static bool check(const char *what, const DtProgram *p) {
  Arena *a = arena_new();
  Buf one = {0}, two = {0};
  print(p, a, &one);
  const DtProgram *loaded = load(&one);
  if (loaded && p == &empty) program_print(loaded, &(ProgramNames){0}, a, &two);
  else if (loaded) program_print(loaded, &names, a, &two);
  bool same = two.n && two.n <= one.n && !memcmp(one.text + one.n - two.n, two.text, two.n);
  bool functions = loaded && !loaded->count == (p == &empty) && !loaded->step && !loaded->eval;
  if (loaded && p == &full) functions &= loaded->chunk[0].run[2] && !loaded->chunk[1].run[0] && loaded->chunk[1].run[1];
  bool text = loaded && !strcmp(loaded->listing, p->listing);
  printf("%-4s %s\n", same && functions && text ? "ok" : "FAIL", what);
  if (!same) printf("%s\n%s\n", one.text, two.n ? two.text : "(not loaded)");
  buf_free(&one);
  buf_free(&two);
  arena_free(a);
  return same && functions && text;
}

int main(void) { return !check("all fields", &full) + !check("no field", &empty); }
