// Prints a program's tables (codegen/host/program.h) as the C that defines them. The structs of runtime/program.h are
// described below field by field. A field that is 0 is left out, as C fills it with 0.
#include "codegen/host/host.h"
#include "codegen/target.h"

typedef enum FieldKind {
  FIELD_INT,
  FIELD_BOOL,
  FIELD_REAL,
  FIELD_TEXT,
  FIELD_ENUM, // `more`: the names of its values; named where it is 0, too
  FIELD_OPTION, // an enum that is left out where it is 0
  FIELD_AXES, // a set of axes, 1 << DT_AXIS_TP; `more`: their names
  FIELD_STRUCT, // `more`: a Struct
  FIELD_TABLE, // a pointer to an array of C that goes by the name in `more`
  FIELD_FN // a function
} FieldKind;

typedef struct Field {
  const char *name; // NULL: of a struct that is written without names
  FieldKind kind;
  size_t offset, bytes, align;
  uint32_t n; // elements of an array; 1 where it is none
  bool line; // begins a line
  const char *const *index; // names of an array's elements, or NULL
  const void *more;
} Field;

typedef struct Struct {
  size_t bytes;
  uint32_t n;
  const Field *field;
} Struct;

#define AT(type, name) offsetof(type, name), sizeof(((type *)0)->name), _Alignof(__typeof__(((type *)0)->name))
#define FIELD(type, name, kind, more) {#name, kind, AT(type, name), 1, false, NULL, more}
#define FIRST(type, name, kind, more) {#name, kind, AT(type, name), 1, true, NULL, more} // of a line
#define PLAIN(type, name, kind) {NULL, kind, AT(type, name), 1, false, NULL, NULL} // without its name
#define ARRAY(type, name, kind, index, more)                                                       \
  {#name, kind, AT(type, name), sizeof(((type *)0)->name) / sizeof(((type *)0)->name[0]), false, index, more}
#define STRUCT(type, fields) {sizeof(type), sizeof(fields) / sizeof *(fields), fields}

static const char *const type_name[] = {[DT_TYPE_F32] = "DT_TYPE_F32",   [DT_TYPE_F64] = "DT_TYPE_F64",
                                        [DT_TYPE_I32] = "DT_TYPE_I32",   [DT_TYPE_BOOL] = "DT_TYPE_BOOL",
                                        [DT_TYPE_BF16] = "DT_TYPE_BF16", [DT_TYPE_F16] = "DT_TYPE_F16"};
static const char *const initial_name[] = {"DT_ZEROS", "DT_ONES", "DT_NORMAL", "DT_UNIFORM", "DT_CONST"};
static const char *const data_name[] = {"DT_DATA_NONE", "DT_DATA_TOKENS", "DT_DATA_BYTES", "DT_DATA_ARRAYS"};
static const char *const optimizer_name[] = {"DT_SGD", "DT_ADAM", "DT_ADAMW"};
static const char *const schedule_name[] = {"DT_CONSTANT", "DT_LINEAR", "DT_COSINE", "DT_INVSQRT"};
static const char *const pipe_name[] = {"DT_PIPE_GPIPE", "DT_PIPE_1F1B", "DT_PIPE_INTERLEAVED", "DT_PIPE_ZB"};
static const char *const axis_name[] = {"DT_AXIS_TP", "DT_AXIS_TP_OUTER", "DT_AXIS_CP"};

static const Field shard_field[] = {PLAIN(DtShard, dim, FIELD_INT), PLAIN(DtShard, block, FIELD_INT)};
static const Struct shard_row = STRUCT(DtShard, shard_field);

static const Field param_field[] = {
    FIELD(DtParam, name, FIELD_TEXT, NULL),
    FIELD(DtParam, rank, FIELD_INT, NULL),
    FIELD(DtParam, nstack, FIELD_INT, NULL),
    ARRAY(DtParam, extent, FIELD_INT, NULL, NULL),
    FIELD(DtParam, count, FIELD_INT, NULL),
    FIELD(DtParam, offset, FIELD_INT, NULL),
    FIELD(DtParam, init, FIELD_ENUM, initial_name),
    FIELD(DtParam, init_a, FIELD_REAL, NULL),
    FIELD(DtParam, init_b, FIELD_REAL, NULL),
    FIELD(DtParam, decay, FIELD_BOOL, NULL),
    FIELD(DtParam, stack, FIELD_INT, NULL),
    ARRAY(DtParam, shard, FIELD_STRUCT, axis_name, &shard_row),
    FIELD(DtParam, local, FIELD_INT, NULL),
    FIELD(DtParam, partial, FIELD_AXES, axis_name),
    FIELD(DtParam, source, FIELD_TEXT, NULL),
};
static const Struct param_struct = STRUCT(DtParam, param_field);

static const Field stack_field[] = {
    FIELD(DtStack, name, FIELD_TEXT, NULL),
    FIELD(DtStack, count, FIELD_INT, NULL),
    FIELD(DtStack, offset, FIELD_INT, NULL),
    FIELD(DtStack, stride, FIELD_INT, NULL),
    FIELD(DtStack, first, FIELD_INT, NULL),
    FIELD(DtStack, source, FIELD_TEXT, NULL),
};
static const Struct stack_struct = STRUCT(DtStack, stack_field);

static const Field data_field[] = {
    FIELD(DtData, name, FIELD_TEXT, NULL),
    FIELD(DtData, type, FIELD_ENUM, type_name),
    FIELD(DtData, rank, FIELD_INT, NULL),
    ARRAY(DtData, extent, FIELD_INT, NULL, NULL),
    FIELD(DtData, checked, FIELD_BOOL, NULL),
    FIELD(DtData, lo, FIELD_INT, NULL),
    FIELD(DtData, hi, FIELD_INT, NULL),
    FIELD(DtData, path, FIELD_TEXT, NULL),
    FIELD(DtData, val_path, FIELD_TEXT, NULL),
};
static const Struct data_struct = STRUCT(DtData, data_field);

static const Field train_field[] = {
    FIELD(DtTrain, data, FIELD_ENUM, data_name),
    FIELD(DtTrain, val, FIELD_ENUM, data_name),
    FIELD(DtTrain, data_path, FIELD_TEXT, NULL),
    FIELD(DtTrain, val_path, FIELD_TEXT, NULL),
    FIRST(DtTrain, length, FIELD_INT, NULL),
    FIELD(DtTrain, batch, FIELD_INT, NULL),
    FIELD(DtTrain, microbatch, FIELD_INT, NULL),
    FIELD(DtTrain, steps, FIELD_INT, NULL),
    FIELD(DtTrain, eval_every, FIELD_INT, NULL),
    FIELD(DtTrain, seed, FIELD_INT, NULL),
    FIRST(DtTrain, optimizer, FIELD_ENUM, optimizer_name),
    FIELD(DtTrain, lr, FIELD_REAL, NULL),
    FIELD(DtTrain, beta1, FIELD_REAL, NULL),
    FIELD(DtTrain, beta2, FIELD_REAL, NULL),
    FIELD(DtTrain, eps, FIELD_REAL, NULL),
    FIELD(DtTrain, weight_decay, FIELD_REAL, NULL),
    FIELD(DtTrain, momentum, FIELD_REAL, NULL),
    FIELD(DtTrain, nesterov, FIELD_BOOL, NULL),
    FIRST(DtTrain, schedule, FIELD_ENUM, schedule_name),
    FIELD(DtTrain, warmup, FIELD_INT, NULL),
    FIELD(DtTrain, final, FIELD_REAL, NULL),
    FIELD(DtTrain, clip, FIELD_REAL, NULL),
    FIELD(DtTrain, precision, FIELD_TEXT, NULL),
};
static const Struct train_struct = STRUCT(DtTrain, train_field);

static const Field kernel_field[] = {
    PLAIN(DtKernelInfo, name, FIELD_TEXT),
    PLAIN(DtKernelInfo, source, FIELD_TEXT),
    PLAIN(DtKernelInfo, bytes, FIELD_REAL),
    PLAIN(DtKernelInfo, flops, FIELD_REAL),
};
static const Struct kernel_struct = STRUCT(DtKernelInfo, kernel_field);

static const Field held_field[] = {
    PLAIN(DtHeld, param, FIELD_INT),
    PLAIN(DtHeld, first, FIELD_INT),
};
static const Struct held_struct = STRUCT(DtHeld, held_field);

static const Field stage_field[] = {
    FIELD(DtStage, nparam, FIELD_INT, NULL),
    FIELD(DtStage, nstack, FIELD_INT, NULL),
    FIELD(DtStage, param, FIELD_TABLE, "param"),
    FIELD(DtStage, held, FIELD_TABLE, "held"),
    FIELD(DtStage, stack, FIELD_TABLE, "stack"),
    FIELD(DtStage, param_count, FIELD_INT, NULL),
    FIELD(DtStage, frame_bytes, FIELD_INT, NULL),
};
static const Struct stage_struct = STRUCT(DtStage, stage_field);

static const Field chunk_field[] = {
    ARRAY(DtPipeChunk, run, FIELD_FN, NULL, NULL),
    ARRAY(DtPipeChunk, reads_data, FIELD_BOOL, NULL, NULL),
    ARRAY(DtPipeChunk, slot_bytes, FIELD_INT, NULL, NULL),
    ARRAY(DtPipeChunk, sent_bytes, FIELD_INT, NULL, NULL),
    ARRAY(DtPipeChunk, cost, FIELD_INT, NULL, NULL),
    FIELD(DtPipeChunk, param, FIELD_INT, NULL),
    FIELD(DtPipeChunk, nparam, FIELD_INT, NULL),
    ARRAY(DtPipeChunk, message, FIELD_TEXT, NULL, NULL),
    ARRAY(DtPipeChunk, source, FIELD_TEXT, NULL, NULL),
};
static const Struct chunk_struct = STRUCT(DtPipeChunk, chunk_field);

static const Field program_field[] = {
    FIELD(DtProgram, model, FIELD_TEXT, NULL),
    FIELD(DtProgram, build, FIELD_TEXT, NULL),
    FIRST(DtProgram, type, FIELD_ENUM, type_name),
    FIELD(DtProgram, param_type, FIELD_ENUM, type_name),
    FIELD(DtProgram, reduce_type, FIELD_ENUM, type_name),
    FIELD(DtProgram, loss_scaling, FIELD_BOOL, NULL),
    FIRST(DtProgram, device_level, FIELD_INT, NULL),
    FIELD(DtProgram, device_features, FIELD_TEXT, NULL),
    FIELD(DtProgram, device_products, FIELD_BOOL, NULL),
    FIRST(DtProgram, ndata, FIELD_INT, NULL),
    FIELD(DtProgram, nparam, FIELD_INT, NULL),
    FIELD(DtProgram, ntotal, FIELD_INT, NULL),
    FIELD(DtProgram, nmetric, FIELD_INT, NULL),
    FIELD(DtProgram, nmoment, FIELD_INT, NULL),
    FIELD(DtProgram, nkernel, FIELD_INT, NULL),
    FIRST(DtProgram, data, FIELD_TABLE, "data"),
    FIELD(DtProgram, param, FIELD_TABLE, "param"),
    FIELD(DtProgram, metric, FIELD_TABLE, "metric"),
    FIELD(DtProgram, kernel, FIELD_TABLE, "kernel"),
    FIRST(DtProgram, train, FIELD_STRUCT, &train_struct),
    FIRST(DtProgram, param_count, FIELD_INT, NULL),
    FIELD(DtProgram, frame_bytes, FIELD_INT, NULL),
    FIELD(DtProgram, stores_grad, FIELD_BOOL, NULL),
    FIRST(DtProgram, count, FIELD_FN, NULL),
    FIELD(DtProgram, step, FIELD_FN, NULL),
    FIELD(DtProgram, eval, FIELD_FN, NULL),
    FIELD(DtProgram, update, FIELD_FN, NULL),
    FIELD(DtProgram, sample, FIELD_FN, NULL),
    FIRST(DtProgram, random_totals, FIELD_BOOL, NULL),
    FIELD(DtProgram, sample_length, FIELD_INT, NULL),
    FIELD(DtProgram, sample_vocab, FIELD_INT, NULL),
    FIRST(DtProgram, listing, FIELD_TABLE, "listing"),
    FIRST(DtProgram, tp, FIELD_INT, NULL),
    FIELD(DtProgram, cp, FIELD_INT, NULL),
    FIELD(DtProgram, pp, FIELD_INT, NULL),
    FIELD(DtProgram, tp_outer, FIELD_INT, NULL),
    FIELD(DtProgram, nstack, FIELD_INT, NULL),
    FIELD(DtProgram, stack, FIELD_TABLE, "stack"),
    FIELD(DtProgram, zero, FIELD_INT, NULL),
    FIELD(DtProgram, zero_group, FIELD_INT, NULL),
    FIELD(DtProgram, accumulate_each, FIELD_BOOL, NULL),
    FIELD(DtProgram, gather_once, FIELD_BOOL, NULL),
    FIELD(DtProgram, offload, FIELD_INT, NULL),
    FIRST(DtProgram, nchunk, FIELD_INT, NULL),
    FIELD(DtProgram, schedule, FIELD_OPTION, pipe_name),
    FIELD(DtProgram, chunk, FIELD_TABLE, "chunk"),
    FIELD(DtProgram, stage, FIELD_TABLE, "stage"),
    FIRST(DtProgram, source, FIELD_TEXT, NULL),
    FIELD(DtProgram, in_flight, FIELD_INT, NULL),
    FIELD(DtProgram, scratch_bytes, FIELD_INT, NULL),
};
static const Struct program_struct = STRUCT(DtProgram, program_field);

// Every byte of a struct belongs to a field, or is padding before one.
static void check_struct(const Struct *s) {
  size_t at = 0, most = 1;
  for (uint32_t i = 0; i < s->n; i++) {
    const Field *f = &s->field[i];
    at = (at + f->align - 1) / f->align * f->align;
    if (f->offset != at) BUG("a field before .%s is not printed", f->name ? f->name : "");
    at += f->bytes;
    if (f->align > most) most = f->align;
  }
  if ((at + most - 1) / most * most != s->bytes) BUG("a last field is not printed");
}

// ---- a row

// The text between two braces: pieces with commas between them.
typedef struct Row {
  Arena *a;
  VEC(Str) piece;
  const Str *fn; // names of the functions in its fields, in their order; NULL: none is there
  Str prefix; // of the tables that it points to
} Row;

static bool is_zero(const char *at, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (at[i]) return false;
  return true;
}

static int64_t integer_at(const char *at, size_t bytes) {
  int32_t small;
  int64_t large;
  if (bytes == sizeof small) return memcpy(&small, at, sizeof small), small;
  CHECK(bytes == sizeof large);
  return memcpy(&large, at, sizeof large), large;
}

static void put_axes(Buf *b, const char *const *name, unsigned set) {
  for (const char *gap = ""; set; set &= set - 1, gap = " | ")
    buf_printf(b, "%s1u << %s", gap, name[__builtin_ctz(set)]);
}

// Pieces from `first` on are between braces behind `lead`, and one piece where they are short.
static void embrace(Row *r, uint32_t first, Str lead) {
  enum { SHORT = 60 };
  Buf b = {0};
  CHECK(r->piece.n > first);
  r->piece.at[first] = str_printf("%s{%s", lead, r->piece.at[first]);
  r->piece.at[r->piece.n - 1] = str_printf("%s}", r->piece.at[r->piece.n - 1]);
  for (uint32_t i = first; i < r->piece.n; i++) buf_printf(&b, "%s%s", i > first ? ", " : "", r->piece.at[i]);
  if (b.n <= SHORT && !memchr(b.text, LINE_BREAK, b.n)) {
    r->piece.n = first;
    PUSH(r->a, r->piece, str_internn(b.text, b.n));
  }
  buf_free(&b);
}

static void add_struct(Row *r, const Struct *s, const char *at);

// A value of one element, behind `lead`.
static void add_value(Row *r, const Field *f, const char *at, Str lead) {
  size_t bytes = f->bytes / f->n;
  const char *text;
  double real;
  Buf b = {0};
  if (f->kind == FIELD_STRUCT) {
    uint32_t first = r->piece.n;
    add_struct(r, f->more, at);
    embrace(r, first, lead);
    return;
  }
  buf_printf(&b, "%s", lead);
  switch (f->kind) {
  case FIELD_INT: buf_printf(&b, "%lld", (long long)integer_at(at, bytes)); break;
  case FIELD_BOOL: buf_printf(&b, "%s", *(const bool *)at ? "true" : "false"); break;
  case FIELD_ENUM:
  case FIELD_OPTION: buf_printf(&b, "%s", ((const char *const *)f->more)[integer_at(at, bytes)]); break;
  case FIELD_AXES: put_axes(&b, f->more, (unsigned)integer_at(at, bytes)); break;
  case FIELD_TABLE: buf_printf(&b, "%s%s", r->prefix, (const char *)f->more); break;
  case FIELD_FN: buf_printf(&b, "%s", *r->fn ? *r->fn : "NULL"); break;
  case FIELD_REAL:
    memcpy(&real, at, sizeof real);
    if (f->name) put_real(&b, real);
    else buf_printf(&b, "%.6g", real); // a cost
    break;
  case FIELD_TEXT:
    memcpy(&text, at, sizeof text);
    if (text) put_text(&b, 8, text);
    else buf_printf(&b, "NULL");
    break;
  case FIELD_STRUCT: BUG("a struct is no single piece");
  }
  PUSH(r->a, r->piece, str_internn(b.text, b.n));
  buf_free(&b);
}

// Elements up to the last that is not 0; those with names, where they are not 0.
static void add_array(Row *r, const Field *f, const char *at) {
  size_t bytes = f->bytes / f->n;
  uint32_t n = f->n, first = r->piece.n;
  bool fn = f->kind == FIELD_FN;
  while (n && !fn && is_zero(at + (n - 1) * bytes, bytes)) n--;
  for (uint32_t i = 0; i < n; i++) {
    const char *element = at + i * bytes;
    if (f->index && is_zero(element, bytes)) continue;
    add_value(r, f, element, f->index ? str_printf("[%s] = ", f->index[i]) : "");
    r->fn += fn;
  }
  if (r->piece.n > first) embrace(r, first, str_printf(".%s = ", f->name));
}

static void add_struct(Row *r, const Struct *s, const char *struct_at) {
  static const char first[] = {LINE_BREAK, 0};
  const char *line = "";
  check_struct(s);
  for (uint32_t i = 0; i < s->n; i++) {
    const Field *f = &s->field[i];
    const char *at = struct_at + f->offset;
    bool fn = f->kind == FIELD_FN;
    if (f->line) line = first;
    bool absent = fn ? !*r->fn : f->kind != FIELD_ENUM && is_zero(at, f->bytes);
    if (f->n > 1) add_array(r, f, at);
    else if (!f->name || !absent) add_value(r, f, at, f->name ? str_printf("%s.%s = ", line, f->name) : "");
    if (f->n > 1 || (f->name && !absent)) line = "";
    r->fn += f->n == 1 && fn;
  }
}

// ---- the program

typedef struct Tables {
  const DtProgram *p;
  const ProgramNames *names;
  Arena *a;
  Buf *out;
} Tables;

static void put_row(const Tables *t, const Struct *s, const void *at, const Str *fn, Str prefix, int indent) {
  Row r = {.a = t->a, .fn = fn, .prefix = prefix};
  add_struct(&r, s, at);
  put_pieces(t->out, indent, r.piece.at, r.piece.n);
}

// An array, which C wants to have an element.
static void put_table(const Tables *t, const char *type, Str name, const Struct *s, const void *at, int n) {
  buf_printf(t->out, "static const %s %s[] = {\n", type, name);
  for (int i = 0; i < n; i++) {
    buf_printf(t->out, "    {");
    put_row(t, s, (const char *)at + (size_t)i * s->bytes, NULL, "", 5);
    buf_printf(t->out, "},\n");
  }
  if (!n) buf_printf(t->out, "    {0},\n");
  buf_printf(t->out, "};\n\n");
}

static void print_params(const Tables *t, const DtParam *param, int n, const DtStack *stack, int nstack, Str prefix) {
  put_table(t, "DtParam", str_printf("%sparam", prefix), &param_struct, param, n);
  if (nstack) put_table(t, "DtStack", str_printf("%sstack", prefix), &stack_struct, stack, nstack);
}

static void print_pipeline(const Tables *t) {
  const DtProgram *p = t->p;
  if (!p->nchunk) return;
  for (int s = 0; s < p->pp; s++) {
    const DtStage *stage = &p->stage[s];
    Str prefix = str_printf("stage%d_", s);
    buf_printf(t->out, "// Stage %d of %d.\n", s, p->pp);
    print_params(t, stage->param, stage->nparam, stage->stack, stage->nstack, prefix);
    put_table(t, "DtHeld", str_printf("%sheld", prefix), &held_struct, stage->held, stage->nparam);
  }
  buf_printf(t->out, "static const DtStage stage[] = {\n");
  for (int s = 0; s < p->pp; s++) {
    buf_printf(t->out, "    {");
    put_row(t, &stage_struct, &p->stage[s], NULL, str_printf("stage%d_", s), 5);
    buf_printf(t->out, "},\n");
  }
  buf_printf(t->out, "};\n\nstatic const DtPipeChunk chunk[] = {\n");
  for (int c = 0; c < p->nchunk; c++) {
    buf_printf(t->out, "    {");
    put_row(t, &chunk_struct, &p->chunk[c], t->names->run[c], "", 5);
    buf_printf(t->out, "},\n");
  }
  buf_printf(t->out, "};\n\n");
}

static void print_metrics(const Tables *t) {
  Str *name = NEWN(t->a, Str, t->p->nmetric + 1);
  if (!t->p->nmetric) return;
  for (int i = 0; i < t->p->nmetric; i++) {
    Buf b = {0};
    put_string(&b, t->p->metric[i]);
    name[i] = str_internn(b.text, b.n);
    buf_free(&b);
  }
  buf_printf(t->out, "static const char *const metric[] = {");
  put_pieces(t->out, 4, name, (uint32_t)t->p->nmetric);
  buf_printf(t->out, "};\n\n");
}

void program_print(const DtProgram *p, const ProgramNames *names, Arena *a, Buf *out) {
  const Str *entry = names->entry;
  const Str fn[] = {entry[ENTRY_COUNT], entry[ENTRY_STEP], entry[ENTRY_EVAL], entry[ENTRY_UPDATE],
                    entry[ENTRY_SAMPLE]}; // as DtProgram has them
  Tables t = {p, names, a, out};
  print_params(&t, p->param, p->nparam, p->stack, p->nstack, "");
  print_pipeline(&t);
  put_table(&t, "DtData", "data", &data_struct, p->data, p->ndata);
  print_metrics(&t);
  put_table(&t, "DtKernelInfo", "kernel", &kernel_struct, p->kernel, p->nkernel);
  buf_printf(out, "const DtProgram dt_program = {\n    ");
  put_row(&t, &program_struct, p, fn, "", 4);
  buf_printf(out, ",\n};\n\n");
}

void host_listing(Host *h) {
  buf_printf(h->out,
             "// Every buffer in a frame: shape, type, bytes, place, and the kernels of its function between which\n"
             "// it lives. Printed by --info.\nstatic const char listing[] = ");
  put_text(h->out, 4, h->program.listing);
  buf_printf(h->out, ";\n\n");
}

void host_tables(Host *h, Str arch, Str build_hash) {
  const Module *m = h->m;
  Str(*run)[NCHUNK_PART] = (Str(*)[NCHUNK_PART])NEWN(h->a, Str, (m->chunk.n + 1) * NCHUNK_PART);
  ProgramNames names = {.run = (const Str(*)[NCHUNK_PART])run};
  for (uint32_t i = 0; i < m->chunk.n * NCHUNK_PART; i++) {
    Id fn = m->chunk.at[i / NCHUNK_PART].fn[i % NCHUNK_PART];
    if (fn != NONE) run[i / NCHUNK_PART][i % NCHUNK_PART] = h->fn[fn];
  }
  for (int e = ENTRY_SAMPLE; e < NENTRY; e++)
    if (m->entry[e] != NONE) names.entry[e] = h->fn[m->entry[e]];
  host_check_messages(h);
  h->program.build = build_hash;
  m->target->program(&h->program, h->p, arch);
  program_print(&h->program, &names, h->a, h->out);
  buf_printf(h->out, "int main(int argc, char **argv) {\n  return dt_main(&dt_program, argc, argv);\n}\n");
}
