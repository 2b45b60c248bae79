// Running sums: a thread for each line, in double where the numbers are float, as runtime/device/cpu/scan.h has it.
#include "codegen/cuda/cuda.h"

// "x += line % 3 * INT64_C(4);": where the thread's line begins.
static void move(Cuda *c, Str name, Str at, int64_t by) {
  if (by) cuda_line(c, "%s += %s * INT64_C(%lld);\n", name, at, (long long)by);
}

static void place_line(Cuda *c, const ScanPlan *p, int64_t lines) {
  int64_t inner = p->column.count, last = p->along.count - 1;
  cuda_line(c, "const int line = blockIdx.x * 256 + threadIdx.x;\n");
  if (lines % 256) cuda_line(c, "if (line >= %lld) return;\n", (long long)lines);
  Str at = p->nloop ? str_printf("line %% %lld", (long long)inner) : "line";
  if (inner > 1) move(c, "x", at, p->column.x), move(c, "y", at, p->column.y);
  for (uint32_t l = p->nloop; l-- > 0; inner *= p->loop[l].count) {
    at = str_printf("line / %lld %% %lld", (long long)inner, (long long)p->loop[l].count);
    if (p->loop[l].count > 1) move(c, "x", at, p->loop[l].x), move(c, "y", at, p->loop[l].y);
  }
  if (p->reverse && last) { // from the end
    cuda_line(c, "x += %lld;\n", (long long)(last * p->along.x));
    cuda_line(c, "y += %lld;\n", (long long)(last * p->along.y));
  }
}

void cuda_scan(Cuda *c) {
  const ScanPlan *p = &c->k->scan;
  Dtype t = c->f->value.at[p->to].type;
  bool integer = t == DT_I32;
  const char *type = cuda_type(c, t), *sign = p->reverse ? "-" : "";
  int64_t lines = p->column.count;
  for (uint32_t l = 0; l < p->nloop; l++) lines *= p->loop[l].count;
  c->s = (Schedule){TEAM_THREAD, 1, 256, lines, (lines + 255) / 256, 1};
  put_kernel(c->m, c->f, c->k, c->out);
  buf_printf(c->out, "// %lld lines of %lld, a thread each", (long long)lines, (long long)p->along.count);
  cuda_put_launch(c);
  cuda_signature(c, 256, (const Str[]){"x", "y"});
  place_line(c, p, lines);
  cuda_line(c, "%s sum = 0;\n", integer ? "int" : "double");
  cuda_open(c, "for (int i = 0; i < %lld; i++)", (long long)p->along.count);
  Str x = str_printf("x[%s%s]", sign, cuda_times("(int64_t)i", p->along.x)), y = str_printf("y[%s%s]", sign, cuda_times("(int64_t)i", p->along.y));
  if (p->exclusive) cuda_line(c, "const %s before = sum;\n", integer ? "int" : "double");
  cuda_line(c, integer ? "sum = dt_add(sum, %s);\n" : "sum += %s;\n", x);
  Str v = p->exclusive ? "before" : "sum";
  if (!integer && t != DT_F64) v = str_printf("(%s)%s", type, v);
  if (p->add) v = integer ? str_printf("dt_add(%s, %s)", y, v) : str_printf("%s + %s", y, v);
  cuda_line(c, "%s = %s;\n", y, v);
  cuda_close(c);
  buf_printf(c->out, "}\n");
}
