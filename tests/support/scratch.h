// Scratch memory for programs that a test has loaded: no start of a training program plans it.
#ifndef DTC_TEST_SCRATCH_H
#define DTC_TEST_SCRATCH_H

#include <dlfcn.h>

#include "codegen/target.h"

// What the program asks for, by the runtime's part that is linked to it where it asks for any.
static inline void plan_scratch(void *lib, const Plan *p) {
  union {
    void *p;
    int (*f)(size_t);
  } symbol = {dlsym(lib, "dt_scratch_plan")};
  int64_t bytes = p->m->target->scratch(p);
  CHECK(!bytes || (symbol.f && symbol.f((size_t)bytes) == 0));
}

#endif
