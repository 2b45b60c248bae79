// Private to the verifier of the lowered level: a function whose kernels are checked. Every rule returns false after it
// said which is broken.
#ifndef DTC_VERIFIER_H
#define DTC_VERIFIER_H

#include "codegen/lower/fuse.h"
#include "codegen/lower/plan.h"

// Where a statement runs. Nothing runs twice, so that all that orders two statements is their `key`: one below the
// other's runs before it.
typedef struct When {
  bool runs;
  uint32_t kernel, nest, at; // positions: of the kernel, of its nest, in the nest
  const NestStmt *ns; // in a kernel of loops
} When;

// What a kernel touches.
typedef struct Access {
  Id value, buffer;
  uint32_t stmt; // NONE: a fill
  Id read; // the READ node in a comprehension, or NONE
  bool written;
} Access;
typedef VEC(Access) Accesses;

typedef struct Verifier {
  const Plan *p;
  const Module *m;
  Id fn;
  const Fn *f;
  const FnPlan *fp;
  Fuse u; // what codegen/lower/fuse.h asks for: m, f, fp
  Buf *why;
  When *when; // for each statement
  Accesses *access; // for each kernel; a collective's are at its post and at its wait
  int64_t *ready; // for each value: the key after which it is whole; see value_ready
} Verifier;

// Says what is wrong with the kernel, or the function where that is NULL, and with the statement, if it is not NONE.
bool v_fail(Verifier *v, const Kernel *k, uint32_t stmt, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static inline int64_t when_key(const When *w) {
  return (int64_t)w->kernel << 32 | (int64_t)w->nest << 16 | w->at;
}
static inline Str value_name(const Verifier *v, Id value) { return v->f->value.at[value].name; }

// Calls visit for each READ node of a comprehension, in its body and in the subscripts of its left side.
typedef void ReadVisit(const Module *m, Id read, void *ctx);
void v_reads(const Verifier *v, const Stmt *s, ReadVisit *visit, void *ctx);

// An element's address in row-major storage of the value's own.
Affine v_element(const Verifier *v, const Stmt *s, Id value, const Id *sub);
// Whether two such addresses, of two statements of one nest, are the same at every point of the nest.
bool v_same_point(const NestStmt *x, const Affine *a, const NestStmt *y, const Affine *b);
// Whether s reads or writes, at `sub` of a value, elements of the same point of the grid that w writes at its left
// side's subscripts: of the value itself, or of one of equal shape.
bool v_same_grid_point(const Verifier *v, const Kernel *k, const When *w, const Stmt *writer, const When *r,
                       const Stmt *reader, const Id *sub, uint32_t rank);

// compute.c: every statement is computed exactly once, by what computes it
bool verify_computes(Verifier *v);
// order.c: what is read was written; accumulators start; collectives are waited for. Requires verify_computes.
bool verify_order(Verifier *v);
// storage.c: where values lie (layouts: of one function; addresses: after pass plan)
bool verify_layouts(Verifier *v);
bool verify_addresses(Verifier *v);
bool verify_inplace(Verifier *v);

#endif
