# The compiler's output is the same bytes each time, and the emitted C compiles without a warning.
. "$(dirname "$0")/../support/lib.sh"
for name in mlp chargpt llama classifier gpt2; do
  rm -rf a b
  "$DTC" "$SRC/examples/$name.dt" --save-temps a -o one
  "$DTC" "$SRC/examples/$name.dt" --save-temps b -o two
  diff -r a b || fail "$name: the emitted files differ"
  same one two
  for c in a/*.c; do
    cc -std=c17 -Wall -Wextra -Werror -I"$BUILD/include/dtc" -fsyntax-only "$c"
  done
done
# Nor do they depend on where dtc is.
mkdir -p moved/bin moved/share/dtc
cp "$DTC" moved/bin
cp -r "$BUILD/share/dtc/stdlib" moved/share/dtc
for form in c kernels; do
  "$DTC" "$SRC/examples/gpt2.dt" --emit $form >here.txt
  moved/bin/dtc "$SRC/examples/gpt2.dt" --emit $form >there.txt
  same here.txt there.txt
done
make -C a CC=cc >make.txt 2>&1 || { cat make.txt; fail "the Makefile of --save-temps does not rebuild"; }
