// The program of host C and CUDA kernels: nvcc makes a fat binary, which an assembler file takes into the program. Or, to
// run on the CPU, a C++ compiler makes an object file.
#include "codegen/cuda/target.h"
#include "codegen/link.h"

#include <stdlib.h>
#include <unistd.h>

static const char *const library[] = {"-Wl,--as-needed", "-lm", "-lpthread", NULL};
static const LinkWith on_gpu = {"libdtc_rt_cuda.a", library}, on_cpu = {"libdtc_rt_emulate.a", library};

static const char image[] = "// The kernels, as nvcc made them.\n"
                            "    .section .rodata\n"
                            "    .globl dt_cuda_image\n"
                            "    .hidden dt_cuda_image\n"
                            "    .balign 64\n"
                            "dt_cuda_image:\n"
                            "    .incbin \"kernels.fatbin\"\n"
                            "    .section .note.GNU-stack, \"\"\n";

// nvcc's flags but for architectures and paths: contraction is off, since rounding is part of the program.
static const char nvcc_flags[] = "-std=c++17 -O3 -fmad=false -fatbin --threads 0";
static const char cxx_flags[] = "-std=c++17 -ffp-contract=off -fno-exceptions -fno-rtti -fno-threadsafe-statics -Wall -Wextra -Wno-unknown-pragmas";

// The words of a line after those that are there; they live as long as the program runs.
enum { MOST_WORDS = 64 };
static int words(const char **arg, int n, const char *line) {
  for (const char *p = line; *(p += strspn(p, " ")) && n < MOST_WORDS - 8;) {
    size_t length = strcspn(p, " ");
    arg[n++] = str_internn(p, length);
    p += length;
  }
  return n;
}

// In PATH, else where toolkits are installed, or where scripts/install-cuda puts one.
static Str find_nvcc(void) {
  const char *home = getenv("CUDA_HOME");
  const Str place[] = {home && *home ? str_printf("%s/bin/nvcc", home) : "", "/usr/local/cuda/bin/nvcc",
                       str_printf("%s/cuda/bin/nvcc", install_dir())};
  const char *path = getenv("PATH");
  for (const char *p = path ? path : ""; *p; p += strspn(p, ":")) {
    size_t n = strcspn(p, ":");
    Str at = str_printf("%.*s/nvcc", (int)n, p);
    if (!access(at, X_OK)) return at;
    p += n;
  }
  for (size_t i = 0; i < sizeof place / sizeof *place; i++)
    if (*place[i] && !access(place[i], X_OK)) return place[i];
  return "nvcc";
}

static bool compile_for_gpu(const LinkOptions *o, Str dir) {
  const char *arg[MOST_WORDS];
  Buf gencode = {0};
  cuda_gencode(o->arch, &gencode);
  int n = words(arg, 0, find_nvcc());
  n = words(arg, n, nvcc_flags);
  n = words(arg, n, gencode.text);
  arg[n++] = str_printf("-I%s/include/dtc", install_dir());
  arg[n++] = "-o";
  arg[n++] = str_printf("%s/kernels.fatbin", dir);
  arg[n++] = str_printf("%s/kernels.cu", dir);
  arg[n] = NULL;
  buf_free(&gencode);
  return link_run(arg, "CUDA's compiler", "install a toolkit, 12.4 or newer, or run scripts/install-cuda");
}

static bool compile_for_cpu(const LinkOptions *o, Str dir) {
  const char *arg[MOST_WORDS], *cxx = getenv("CXX");
  int n = words(arg, 0, cxx && *cxx ? cxx : "c++");
  n = words(arg, n, cxx_flags);
  arg[n++] = o->quick ? "-O0" : "-O2";
  if (o->shared) arg[n++] = "-fPIC";
  arg[n++] = str_printf("-I%s/include/dtc", install_dir());
  const char *more = getenv("DT_EMULATE_FLAGS"); // for tests: sanitizers
  n = words(arg, n, more ? more : "");
  n = words(arg, n, "-x c++ -c -o");
  arg[n++] = str_printf("%s/kernels.o", dir);
  arg[n++] = str_printf("%s/kernels.cu", dir);
  arg[n] = NULL;
  return link_run(arg, "the C++ compiler", "install one, or name it in CXX");
}

static void print_makefile(const LinkOptions *o, Buf *b) {
  Buf gencode = {0};
  cuda_gencode(o->arch, &gencode);
  if (o->emulate) {
    link_makefile("kernels.o", "CXX ?= c++\n", &on_cpu, b);
    buf_printf(b, "kernels.o: kernels.cu\n\t$(CXX) %s -O2 -I$(DTC)/include/dtc -x c++ -c -o $@ $<\n\n", cxx_flags);
  } else {
    link_makefile("image.o", "NVCC ?= nvcc\n", &on_gpu, b);
    buf_printf(b, "image.o: image.S kernels.fatbin\n\t$(CC) -c -o $@ image.S\n\n"
                  "kernels.fatbin: kernels.cu\n\t$(NVCC) %s%s -I$(DTC)/include/dtc -o $@ $<\n\n", nvcc_flags, gencode.text);
  }
  buf_printf(b, "clean:\n\trm -f train *.o *.fatbin\n.PHONY: clean\n");
  buf_free(&gencode);
}

static bool write_makefile(const LinkOptions *o, Str dir) {
  Buf b = {0};
  print_makefile(o, &b);
  bool ok = link_write(str_printf("%s/Makefile", dir), &b);
  buf_free(&b);
  return ok;
}

bool cuda_build(const LinkOptions *o, Str dir, const Buf *kernels) {
  Buf text = {0};
  buf_printf(&text, "%s", image);
  bool ok = link_write(str_printf("%s/kernels.cu", dir), kernels) && (!o->save_temps || write_makefile(o, dir));
  if (o->emulate) {
    const char *object[] = {str_printf("%s/kernels.o", dir), NULL};
    ok = ok && compile_for_cpu(o, dir) && link_host(o, dir, object, &on_cpu);
  } else {
    const char *object[] = {str_printf("-Wa,-I,%s", dir), str_printf("%s/image.S", dir), NULL};
    ok = ok && link_write(object[1], &text) && compile_for_gpu(o, dir) && link_host(o, dir, object, &on_gpu);
  }
  buf_free(&text);
  return ok;
}
