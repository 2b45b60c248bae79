# Ranks with other settings, data or state end with 76 before the first step, and say what differs.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
mkdir other
cp y.npy other
python3 -c 'b = bytearray(open("x.npy", "rb").read()); b[-1] ^= 1; open("other/x.npy", "wb").write(b)'
ranks() { "$TRAIN" --quiet --threads 1 --steps 3 $([ "$RANK" -eq 0 ] || echo "$@"); } # options: of rank 1
# differ WHAT OPTIONS...
differ() {
  two_ranks 76 ranks "${@:2}"
  for rank in 0 1; do
    says "rank 0 has .*$1.*, rank 1 has .*$1" err$rank.txt
  done
}
differ lr --lr 0.25
differ seed --seed 7
differ "training data" --data other
differ resume --resume ck
differ save --save out

# Another copy of the data, of the same size and with the same ends, is not the same data. The file is named.
export FAKE=tokens
tokens train.bin 400001 16
mkdir copy
python3 -c 'b = bytearray(open("train.bin", "rb").read())
for i in range(400000, 402000, 2): b[i] = (b[i] + 1) % 16
open("copy/train.bin", "wb").write(b)'
differ "training data" --data copy/train.bin
says "rank 0 has .* of train.bin\", rank 1 has .* of copy/train.bin\"" err1.txt
# The same bytes under another name are.
cp train.bin copy/train.bin
two_ranks 0 ranks --data copy/train.bin

# Products of bf16 that ranks would round in two ways.
grep -qw avx512_bf16 /proc/cpuinfo || exit 0
python3 "$SRC/examples/data/make_arrays.py" mlp . 100
"$DTC" "$SRC/examples/mlp.dt" --precision bf16 -o train
bf16() { DT_GEMM_BF16=$([ "$RANK" -eq 0 ] && echo vector || echo float) ./train --quiet --threads 1 --steps 3; }
two_ranks 76 bf16
for rank in 0 1; do
  says 'rank 0 has .*DT_GEMM_BF16.: vector.*, rank 1 has .*DT_GEMM_BF16.: float' err$rank.txt
done
