# No file of passes/ or codegen/ knows what an intrinsic computes but those that print calls of its kernels: outside of
# comments, messages and names of headers, none says `attention`. They ask ir/intrinsic.h.
. "$(dirname "$0")/../support/lib.sh"
cd "$SRC"
python3 - <<'PY' || fail "see above: what a pass must know of an intrinsic is a question for ir/intrinsic.h"
import pathlib, re, sys
printers = {f"codegen/cpu/{name}" for name in ("attention.c", "launch.c", "library.c", "target.c", "target.h")}
printers |= {f"codegen/cuda/{name}" for name in ("attention.c", "cuda.h", "emit.h", "launch.c", "module.c", "target.c", "target.h")}
bare = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^#include[^\n]*', re.S | re.M)
found = seen = 0
for folder in ("passes", "codegen"):
    for path in sorted(pathlib.Path(folder).rglob("*.[ch]")):
        seen += 1
        code = bare.sub(lambda m: "\n" * m.group().count("\n"), path.read_text())
        for n, line in enumerate(code.split("\n"), 1):
            if re.search("attention", line, re.I) and str(path) not in printers:
                print(f"{path}:{n}: {line.strip()}")
                found += 1
sys.exit(found or seen < 50)
PY
