# DT_GEMM=dnnl: the library is loaded then and only then, its losses are the same but for rounding, ranks with different
# products do not start, and a library that cannot be used is named.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/examples/data/make_arrays.py" mlp . 2000
"$DTC" "$SRC/examples/mlp.dt" -D hidden=1500 -o train # sums of more terms than a block of them

echo 'int nothing;' | cc -x c -shared -fPIC - -o libdnnl.so.3
expect 71 env LD_LIBRARY_PATH=. DT_GEMM=dnnl ./train --steps 1
says "DT_GEMM=dnnl: libdnnl.so has no products that stay on one thread" err.txt
expect 0 env LD_LIBRARY_PATH=. ./train --steps 1 # it is not loaded

python3 -c 'import ctypes; ctypes.CDLL("libdnnl.so.3")' 2>/dev/null || python3 -c 'import ctypes; ctypes.CDLL("libdnnl.so.2")' 2>/dev/null || {
  expect 71 env DT_GEMM=dnnl ./train --steps 1
  says "neither libdnnl.so.3 nor libdnnl.so.2 can be loaded" err.txt
  echo "no oneDNN"
  exit 0
}
rm -f own.jsonl dnnl.jsonl
expect 0 ./train --steps 20 --threads 1 --log own.jsonl
expect 0 env DT_GEMM=dnnl ./train --steps 20 --threads 1 --log dnnl.jsonl
losses own.jsonl >own.txt
losses dnnl.jsonl >dnnl.txt
python3 - <<'END'
a, b = ([float(x) for x in open(f)] for f in ("own.txt", "dnnl.txt"))
assert len(a) == len(b) == 20 and all(abs(x - y) <= 1e-4 * abs(x) for x, y in zip(a, b)), (a, b)
END
! cmp -s own.txt dnnl.txt || fail "the library computed nothing"
expect 0 env DT_GEMM=dnnl ./train --info
says '"products":"oneDNN [0-9.]+"' out.txt
ranks() { DT_GEMM=$([ "$RANK" -eq 0 ] && echo own || echo dnnl) ./train --quiet --steps 1; }
two_ranks 76 ranks
for rank in 0 1; do
  says "rank 0 has .*products.*own.*, rank 1 has .*products.*oneDNN" err$rank.txt
done
