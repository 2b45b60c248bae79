// The program of host C and an object file of kernels.
#include "codegen/cpu/target.h"
#include "codegen/link.h"

// --as-needed: a program names only the libraries that it uses.
static const char *const library[] = {"-Wl,--as-needed", "-lmvec", "-lm", "-lpthread", NULL};
static const LinkWith with = {"libdtc_rt.a", library};

static void print_makefile(const LinkOptions *o, Buf *b) {
  link_makefile("kernels.o", "LLC ?= llc-19\n", &with, b);
  buf_printf(b,
             "# Only after a change to kernels.ll: dtc wrote kernels.o itself.\n"
             "kernels.o: kernels.ll\n"
             "\t$(LLC) -O3 -mcpu=%s -relocation-model=pic -filetype=obj -o $@ $<\n\n"
             "clean:\n\trm -f train\n.PHONY: clean\n",
             o->arch);
}

// kernels.ll before kernels.o, so that make takes the object as up to date.
static bool write_extras(const LinkOptions *o, Str dir) {
  Buf b = {0};
  KernelOptions ko = {.arch = o->arch, .optimise = 3};
  cpu_kernels(o->plan, &ko, str_intern("llvm"), &b);
  bool ok = link_write(str_printf("%s/kernels.ll", dir), &b);
  buf_free(&b);
  print_makefile(o, &b);
  ok = ok && link_write(str_printf("%s/Makefile", dir), &b);
  buf_free(&b);
  return ok;
}

bool cpu_build(const LinkOptions *o, Str dir, const Buf *kernels) {
  const char *object[] = {str_printf("%s/kernels.o", dir), NULL};
  return (!o->save_temps || write_extras(o, dir)) && link_write(object[0], kernels) &&
         link_host(o, dir, object, &with);
}
