# No file of passes/ or codegen/lower/ names a target, its instructions or its libraries, comments included: they read
# Module.limits and call the functions of codegen/target.h. What a vector's length is, they do not know either.
. "$(dirname "$0")/../support/lib.sh"
cd "$SRC"
python3 - <<'PY' || fail "see above: what differs between targets is a limit or a function of codegen/target.h"
import pathlib, re, sys
targets = [path.parent.name for path in pathlib.Path("codegen").glob("*/target.c")]
words = targets + ["cpu", "cuda", "gpu", "llvm", "avx", "sse", "amx", "x86", "simd", "libmvec", "dnnl", "mkl", "blas",
                   "nvcc", "ptx", "nccl", "warp", "warps"]
# cpu, cpu_kernels, cublas; CpuOptions; CPU, LLVMBuildAdd
named = re.compile("|".join(rf"(?<![a-z])(cu)?{w}(?![a-z])|{w.capitalize()}(?![a-z])|(?<![A-Z]){w.upper()}" for w in words))
below = re.compile(r'^#include "(runtime/device/|codegen/(?:%s)/)' % "|".join(targets))
fixed = re.compile(r"\b(lanes|width)\w*\s*=\s*[0-9]", re.I)
found = seen = 0
for folder in ("passes", "codegen/lower"):
    for path in sorted(pathlib.Path(folder).rglob("*.[ch]")):
        seen += 1
        for n, line in enumerate(path.read_text().split("\n"), 1):
            if named.search(line) or below.search(line) or fixed.search(line):
                print(f"{path}:{n}: {line.strip()}")
                found += 1
if not targets:
    print("no target is found")
sys.exit(bool(found or seen < 50 or not targets))
PY
