# Each example as a CUDA program whose kernels run on the CPU: loss and gradients of a step are those of the model in
# float64, in fp32, bf16 and fp16; and a run gives the same bits in each order of threads, and resumed.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
cuda=(--target cuda --emulate)
text 4000 >text.txt
tokens train.bin 2000 97
python3 "$SRC/examples/data/make_arrays.py" classifier . 200
mv tokens.npy t.npy; mv labels.npy l.npy
python3 "$SRC/examples/data/make_arrays.py" mlp . 400
mv t.npy tokens.npy; mv l.npy labels.npy

right() { # example, options
  for precision in fp32 bf16 fp16; do
    expect 0 "$DTC" "$SRC/examples/$1.dt" "${@:2}" --precision $precision "${cuda[@]}" --verify-run
    says "^right: " out.txt
  done
}
right mlp
right classifier -D layers=2 -D dim=32 -D heads=2 -D batch=4
right chargpt "${SMALL_CHARGPT[@]}" --data text.txt
right gpt2 "${SMALL_GPT2[@]}" --data train.bin
right llama "${SMALL_LLAMA[@]}" --data train.bin

# Steps, clipping, accumulation, moments, checkpoints, text: as on the CPU.
expect 0 "$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -D microbatch=4 "${cuda[@]}" -o train
expect 0 "$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -D microbatch=4 -o train_cpu
run() { expect 0 "$1" --data text.txt --quiet "${@:2}"; }
for order in 0 1 2 3; do
  DT_ORDER=$order DT_EMULATE_SEED=$order run ./train --steps 6 --export $order.st --log $order.jsonl
  same $order.st 0.st
done
run ./train_cpu --steps 6 --log cpu.jsonl
losses 0.jsonl >cuda.txt
losses cpu.jsonl >cpu.txt
near cuda.txt cpu.txt 2e-5
run ./train --steps 4 --save ck --save-every 2
for from in ck ck/step-00000002; do # the second was written behind the steps
  run ./train --steps 6 --resume $from --export resumed.st
  same resumed.st 0.st
done
run ./train_cpu --steps 6 --resume ck --export other.st # checkpoints know no target
expect 0 ./train --init 0.st --data text.txt --steps 0 --sample 8 --seed 3
mv out.txt cuda.out
expect 0 ./train_cpu --init 0.st --data text.txt --steps 0 --sample 8 --seed 3
same cuda.out out.txt

DT_ORDER=4 expect 64 ./train --data text.txt --steps 1
says "DT_ORDER=4: it may be '0', '1', '2', '3'" err.txt

# Memory: what was planned is enough, and nothing is written beside it.
DT_MEMORY_CHECK=memory run ./train --steps 2
