// Matrix products as one plain tiled kernel: right for all strides and types, and far from a library's speed.
#include "codegen/cuda/cuda.h"

typedef struct Product {
  const GemmPlan *g;
  Str name[4]; // of a, b, bias, c
  int64_t rows, columns; // tiles
} Product;

static bool is_wide(const GemmPlan *g) {
  int64_t most = 0, strides[] = {g->a_row, g->a_col, g->b_row, g->b_col, g->c_row},
          counts[] = {g->m, g->k, g->k, g->n, g->m};
  for (int i = 0; i < 5; i++) most += (strides[i] < 0 ? -strides[i] : strides[i]) * counts[i];
  return most > INT32_MAX;
}

// Products that are added up come one after the other within a block; each of the others is a block.
static bool is_added(const GemmPlan *g, uint32_t loop) { return g->batch[loop].c == 0 && g->batch[loop].count > 1; }

static int64_t blocks_of(const GemmPlan *g) {
  int64_t n = ((g->m + TILE - 1) / TILE) * ((g->n + TILE - 1) / TILE);
  for (uint32_t i = 0; i < g->nbatch; i++)
    if (!is_added(g, i)) n *= g->batch[i].count;
  return n;
}

static void move_pointers(Cuda *c, const Product *p, Str index, int64_t a, int64_t b, int64_t to) {
  if (a) cuda_line(c, "%s += %s;\n", p->name[0], cuda_times(index, a));
  if (b) cuda_line(c, "%s += %s;\n", p->name[1], cuda_times(index, b));
  if (to) cuda_line(c, "%s += %s;\n", p->name[3], cuda_times(index, to));
}

static void place_operands(Cuda *c, const Product *p) {
  const GemmPlan *g = p->g;
  int64_t tiles = p->rows * p->columns;
  cuda_line(c, "const int x = threadIdx.x, y = threadIdx.y;\n");
  cuda_line(c, "const int i = blockIdx.x / %lld %% %lld * %d + y, j = blockIdx.x %% %lld * %d + x;\n", (long long)p->columns,
            (long long)p->rows, TILE, (long long)p->columns, TILE);
  int64_t inner = tiles;
  for (uint32_t l = g->nbatch; l-- > 0;) {
    if (is_added(g, l)) continue;
    cuda_line(c, "const int64_t at_%u = blockIdx.x / %lld %% %lld;\n", l, (long long)inner, (long long)g->batch[l].count);
    move_pointers(c, p, str_printf("at_%u", l), g->batch[l].a, g->batch[l].b, g->batch[l].c);
    inner *= g->batch[l].count;
  }
}

static Str along(int64_t stride, const char *wide, Str k) {
  return stride == 1 ? k : str_printf("%s(%s) * %lld", wide, k, (long long)stride);
}

// 0 past the ends; no check where tiles divide the extents.
static Str inside(const Cuda *c, Str i, int64_t m, Str k, int64_t n, Str element) {
  const char *zero = c->m->compute == DT_F64 ? "0.0" : "0.0f";
  Str a = m % TILE ? str_printf("%s < %lld", i, (long long)m) : "", b = n % TILE ? str_printf("%s < %lld", k, (long long)n) : "";
  if (!*a && !*b) return element;
  return str_printf("%s%s%s ? %s : %s", a, *a && *b ? " && " : "", b, element, zero);
}

static void multiply_tiles(Cuda *c, const Product *p, Str offset_a, Str offset_b) {
  const GemmPlan *g = p->g;
  const char *wide = is_wide(g) ? "(int64_t)" : "", *zero = c->m->compute == DT_F64 ? "0.0" : "0.0f";
  cuda_open(c, "for (int from = 0; from < %lld; from += %d)", (long long)g->k, TILE);
  Str a = str_printf("a[%s%s%s + %s]", offset_a, wide, cuda_times("i", g->a_row), along(g->a_col, wide, "from + x"));
  Str b = str_printf("b[%s%s + %s%s]", offset_b, along(g->b_row, wide, "from + y"), wide, cuda_times("j", g->b_col));
  cuda_line(c, "tile_a[y][x] = %s;\n", inside(c, "i", g->m, "from + x", g->k, cuda_load(c, g->a, a)));
  cuda_line(c, "tile_b[y][x] = %s;\n", inside(c, "j", g->n, "from + y", g->k, cuda_load(c, g->b, b)));
  cuda_line(c, "__syncthreads(); // the tiles are complete\n");
  cuda_line(c, "%s part = %s;\n", c->real, zero);
  cuda_line(c, "#pragma unroll\n");
  cuda_line(c, "for (int k = 0; k < %d; k++) part = %s(tile_a[y][k], tile_b[k][x], part);\n", TILE,
            c->m->compute == DT_F64 ? "fma" : "fmaf");
  cuda_line(c, "sum += part;\n");
  cuda_line(c, "__syncthreads(); // the tiles have been read\n");
  cuda_close(c);
}

static Str added_offset(const GemmPlan *g, bool of_a) {
  Buf b = {0};
  for (uint32_t l = 0; l < g->nbatch; l++) {
    int64_t by = of_a ? g->batch[l].a : g->batch[l].b;
    if (is_added(g, l) && by) buf_printf(&b, "%s + ", cuda_times(str_printf("at_%u", l), by));
  }
  Str s = str_internn(b.text ? b.text : "", b.n);
  buf_free(&b);
  return s;
}

static void store_sum(Cuda *c, const Product *p) {
  const GemmPlan *g = p->g;
  Str element = str_printf("c[%s%s + j]", is_wide(g) ? "(int64_t)" : "", cuda_times("i", g->c_row));
  Str i = g->m % TILE ? str_printf("i >= %lld", (long long)g->m) : "", j = g->n % TILE ? str_printf("j >= %lld", (long long)g->n) : "";
  if (*i || *j) cuda_line(c, "if (%s%s%s) return;\n", i, *i && *j ? " || " : "", j);
  Str sum = "sum";
  if (g->bias != NONE) sum = str_printf("sum + %s", cuda_load(c, g->bias, "bias[j]"));
  else cuda_line(c, "if (beta != 0) sum += beta * %s;\n", cuda_load(c, g->c, element));
  cuda_line(c, "%s = %s;\n", element, cuda_stored(c, sum, c->f->value.at[g->c].type));
}

// ---- by the library

// Its elements lie next to each other along one index, and rows along the other do not overlap.
static bool is_dense(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return (column == 1 && (row >= columns || rows == 1)) || (row == 1 && (column >= rows || columns == 1));
}

// The library adds C before the bias, and takes it and the kept sum in D's type; the kept sum's rows are of a multiple of
// 8 elements.
static bool takes_epilogue(const Fn *f, const GemmPlan *g, Dtype result) {
  if (g->plus != NONE && f->value.at[g->plus].type != result) return false;
  if (g->plus != NONE && g->bias != NONE && !g->plus_first) return false;
  if (g->act == ACT_NONE) return true;
  return g->act == ACT_GELU && result != DT_F64 && (g->kept == NONE || (f->value.at[g->kept].type == result && g->n % 8 == 0));
}

bool cuda_library_takes(const Fn *f, const GemmPlan *g) {
  Dtype operand = f->value.at[g->a].type, result = f->value.at[g->c].type;
  bool bias = g->bias != NONE;
  if (f->value.at[g->b].type != operand || (result != operand && !(is_half(operand) && result == DT_F32))) return false;
  if (bias && (f->value.at[g->bias].type != result || operand == DT_F64)) return false;
  if (!takes_epilogue(f, g, result)) return false;
  if (!is_dense(g->m, g->k, g->a_row, g->a_col) || !is_dense(g->k, g->n, g->b_row, g->b_col)) return false;
  if (g->m > INT32_MAX || g->n > INT32_MAX || g->k > INT32_MAX || g->c_row < g->n) return false;
  for (uint32_t i = 0; i < g->nbatch; i++) // products that are added up are rounded one by one
    if (!g->batch[i].c && g->batch[i].count > 1 && (is_half(result) || bias)) return false;
  return true;
}

bool cuda_by_library(const Fn *f, const Kernel *k) { return k->kind == K_GEMM && cuda_library_takes(f, &k->gemm); }

// ---- as a kernel

void cuda_product(Cuda *c) {
  const GemmPlan *g = &c->k->gemm;
  Product p = {.g = g, .name = {"a", "b", "bias", "c"}, .rows = (g->m + TILE - 1) / TILE, .columns = (g->n + TILE - 1) / TILE};
  c->s = (Schedule){TEAM_BLOCK, TILE * TILE, 1, g->m * g->n, blocks_of(g), 1};
  put_kernel(c->m, c->f, c->k, c->out);
  buf_printf(c->out, "// %lld x %lld x %lld, a block for %d x %d results", (long long)g->m, (long long)g->n, (long long)g->k,
             TILE, TILE);
  cuda_put_launch(c);
  const Str plain[] = {"a", "b", "c"};
  cuda_signature(c, TILE * TILE, g->bias == NONE ? plain : p.name);
  cuda_line(c, "__shared__ %s tile_a[%d][%d], tile_b[%d][%d];\n", c->real, TILE, TILE + 1, TILE, TILE + 1);
  place_operands(c, &p);
  cuda_line(c, "%s sum = %s;\n", c->real, c->m->compute == DT_F64 ? "0.0" : "0.0f");
  uint32_t opened = 0;
  for (uint32_t l = 0; l < g->nbatch; l++) {
    if (!is_added(g, l)) continue;
    cuda_open(c, "for (int64_t at_%u = 0; at_%u < %lld; at_%u++)", l, l, (long long)g->batch[l].count, l);
    opened++;
  }
  multiply_tiles(c, &p, added_offset(g, true), added_offset(g, false));
  while (opened--) cuda_close(c);
  store_sum(c, &p);
  buf_printf(c->out, "}\n");
}
