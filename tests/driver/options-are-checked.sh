# Wrong use ends in a message and the right exit status.
. "$(dirname "$0")/../support/lib.sh"
expect 0 "$DTC" --help
[ "$(awk '{ if (length > n) n = length } END { print n }' out.txt)" -le 80 ] || fail "--help is wider than a terminal"
expect 0 "$DTC" --version
expect 2 "$DTC"
expect 2 "$DTC" --no-such-option
expect 2 "$DTC" --precison fp32 x.dt
says "did you mean '--precision'" err.txt
(
  ulimit -f 1
  expect 3 "$DTC" "$SRC/examples/gpt2.dt" --emit ir -o large.ir
  says "large.ir: File too large" err.txt
)
DTC_LIMITS=no_such=1 expect 2 "$DTC" x.dt
says "no limit 'no_such'; there are compare_elements," err.txt
DTC_LIMITS=cut_block=4,product_side=0 expect 2 "$DTC" x.dt
says "'product_side=0': product_side .rows and columns of a .* matrix product. is a number from 1" err.txt
DTC_LIMITS=product_side=2x expect 2 "$DTC" x.dt
DTC_LIMITS=product_side expect 2 "$DTC" x.dt
expect 2 "$DTC" x.dt --tp 0
says "expected a number of ranks" err.txt
expect 2 "$DTC" x.dt --sequence-parallel
says "for --tp 2" err.txt
expect 2 "$DTC" x.dt --cp-attention alltoall
says "for --cp 2" err.txt
expect 2 "$DTC" x.dt --cp 2 --cp-attention flash
says "expected gather, ring or alltoall" err.txt
expect 2 "$DTC" x.dt --cp-attention ring
says "ring is for --cp 2 or more" err.txt
expect 2 "$DTC" x.dt --ep 2
says "has --ep 1 only" err.txt
expect 2 "$DTC" x.dt --pp 2 --schedule 2f2b
says "expected gpipe, 1f1b, interleaved, interleaved:CHUNKS or zb" err.txt
expect 2 "$DTC" x.dt --schedule zb
says "is for a pipeline" err.txt
expect 2 "$DTC" x.dt --dp 1048577
says "expected a number of ranks, 1 to 1048576" err.txt
expect 0 "$DTC" "$SRC/examples/gpt2.dt" --report --dp 16384 --zero 1
expect 1 "$DTC" "$SRC/examples/gpt2.dt" --report --pp 16 --schedule interleaved:8
says "a pipeline of 128 chunks needs as many statements or layers, " err.txt
expect 1 "$DTC" "$SRC/examples/mlp.dt" --pp 32 -o train
says "a pipeline of 32 chunks needs as many statements or layers, MLP has" err.txt
expect 0 "$DTC" "$SRC/examples/mlp.dt" --pp 2 --report
says "2 stages of one rank" out.txt
expect 2 "$DTC" x.dt --zero 4
says "expected 0, 1, 2 or 3" err.txt
expect 2 "$DTC" x.dt --zero 2 --gather once
says "for --zero 3" err.txt
expect 2 "$DTC" x.dt --accumulate twice
expect 2 "$DTC" x.dt --tp 2 --in-flight 3
says "expected 1 or 2" err.txt
expect 2 "$DTC" x.dt --in-flight 2
says "is for --tp or --cp of 2 or more" err.txt
expect 2 "$DTC" x.dt --tp 2 --pp 2 --in-flight 2
says "cannot be combined with --pp" err.txt
expect 2 "$DTC" x.dt --tp 2 --zero 2 --in-flight 2
says "needs --accumulate once, which is not the default" err.txt
expect 2 "$DTC" x.dt --tp 2 --zero 3 --accumulate once --in-flight 2
says "needs --gather once" err.txt
expect 2 "$DTC" x.dt --cp 2 --in-flight 2 --interpret
says "interpret runs one microbatch after the other" err.txt
expect 2 "$DTC" x.dt --interpret=model
says "expected ranks or source" err.txt
expect 2 "$DTC" x.dt --interpret=source --tp 2
says "runs the model on one rank" err.txt
expect 2 "$DTC" x.dt --data train.bin
says "is for --interpret and --verify-run" err.txt
expect 2 "$DTC" x.dt --verify-run --emit c
says "ask for different things" err.txt
expect 2 "$DTC" x.dt --zero-group 0
expect 2 "$DTC" x.dt --dp 4
says "a launch computes" err.txt
expect 2 "$DTC" x.dt --report --dp 4 --zero-group 3
says "does not divide" err.txt
expect 2 "$DTC" x.dt --target gpu
says "target gpu: expected cpu or cuda" err.txt
expect 2 "$DTC" x.dt --emulate
says "emulate is for --target cuda" err.txt
expect 2 "$DTC" x.dt --reduce-dtype fp16
says "reduce-dtype fp16: expected fp32 or bf16" err.txt
expect 2 "$DTC" x.dt --reduce-dtype bf16 --interpret
says "interpret computes in double precision" err.txt
expect 2 "$DTC" "$SRC/examples/mlp.dt" --precision fp64 --reduce-dtype bf16 -o train
says "a program of fp64 sums gradients in fp64" err.txt
for what in parameters activations optimizer,parameters; do
  expect 2 "$DTC" x.dt --offload $what
  says "offload $what: this version of dtc offloads the optimizer's state alone" err.txt
done
expect 2 "$DTC" x.dt --offload moments
says "offload moments: expected optimizer" err.txt
expect 2 "$DTC" x.dt --offload optimizer --interpret
says "interpret has no files" err.txt
expect 2 "$DTC" "$SRC/examples/mlp.dt" --offload optimizer --target cuda --report
says "for --target cpu alone" err.txt
sed 's/sgd(lr = 0.1.*)/sgd(lr = 0.1)/' "$SRC/examples/mlp.dt" >sgd.dt
expect 2 "$DTC" sgd.dt --offload optimizer --report
says "optimizer has no state" err.txt
expect 2 "$DTC" x.dt --bundle folder
says "bundle holds CUDA libraries, and a program for the CPU needs none" err.txt
expect 2 "$DTC" x.dt --emit nothing
expect 2 "$DTC" x.dt -D novalue
expect 2 "$DTC" a.dt b.dt
expect 1 "$DTC" missing.dt
says "missing.dt" err.txt
expect 1 "$DTC" "$SRC/examples/mlp.dt" -D hiden=3 -o train
says "did you mean 'hidden'|did you mean .hidden" err.txt
expect 0 "$DTC" "$SRC/examples/mlp.dt" --check
expect 1 "$DTC" "$SRC/examples/mlp.dt" --memory 100K -o train
says "memory" err.txt
expect 0 "$DTC" "$SRC/examples/mlp.dt" --report
says "parameters" out.txt
expect 0 "$DTC" "$SRC/examples/mlp.dt" --report --dp 4 --zero 2
says "4 data-parallel ranks on the CPU, ZeRO 2" out.txt
expect 0 "$DTC" "$SRC/examples/mlp.dt" --report --tp 8 -D hidden=64
says "MLP, f32, 8 ranks .tp 8. on the CPU$" out.txt
expect 0 "$DTC" "$SRC/examples/mlp.dt" --report --tp 2 --pp 2 --dp 4 -D hidden=64
says "2 stages of 2 ranks .tp 2. on the CPU, each with 4 data-parallel ranks, ZeRO 0" out.txt
# An option that has a value stands once, but for -D and -I; a flag may be repeated.
expect 2 "$DTC" x.dt --data a.bin --data b.bin --interpret
says "option --data is given twice" err.txt
expect 2 "$DTC" x.dt -o train --output other
says "option --output is given twice" err.txt
expect 0 "$DTC" "$SRC/examples/mlp.dt" --check --check -I . -I ..
# What --run reads is no model: where it is not there, the command line is wrong.
expect 2 "$DTC" --run batch missing.ir
says "missing.ir: No such file or directory" err.txt
expect 0 "$DTC" "$SRC/examples/mlp.dt" --report=json
python3 -m json.tool out.txt >/dev/null
for what in ast ir kernels c llvm asm cuda plan; do
  expect 0 "$DTC" "$SRC/examples/mlp.dt" --emit $what
  [ -s out.txt ] || fail "--emit $what printed nothing"
done
expect 3 env PATH=/nonexistent CC= "$DTC" "$SRC/examples/mlp.dt" -o train
says "cc" err.txt
expect 2 "$DTC" "$SRC/examples/mlp.dt" --arch no-such-processor -o train
says "no-such-processor" err.txt
printf 'use nn\nmodel M(n = 3) {\n  fc = nn.Linear(n, 1)\n  loss(x[b, n], y[b, m=1]) {\n    return nn.mse(fc(x), y)\n  }\n}\n' | sed 's/, m=1/, 1/' >plain.dt
expect 0 "$DTC" plain.dt --check
expect 1 "$DTC" plain.dt -o train
says "has no data" err.txt
expect 3 "$DTC" "$SRC/examples/mlp.dt" -o missing/folder/train
says "cannot write missing/folder/train: No such file" err.txt
# A setting has two names; the last -D of either counts.
for first in microbatch train.microbatch; do
  [ $first = microbatch ] && last=train.microbatch || last=microbatch
  expect 0 "$DTC" "$SRC/examples/mlp.dt" --emit ir -D $first=2 -D $last=5 -D batch=7 -D batch=10
  says "^  microbatch = 5$" out.txt
  says "^  batch = 10$" out.txt
done
# What would be ignored is refused, and the model is never written over.
MLP=$SRC/examples/mlp.dt
for two in "--check --emit c" "--check --interpret" "--emit ir --report" "--interpret --report"; do
  expect 2 "$DTC" "$MLP" $two
  says "ask for different things" err.txt
done
expect 2 "$DTC" "$MLP" --steps 5 -o train
says "is for --interpret" err.txt
expect 2 "$DTC" "$MLP" --global-batch 64 -o train
says "-D batch=N" err.txt
expect 2 "$DTC" "$MLP" -D =3
for bad in some auto:0 auto:x full:80G; do
  expect 2 "$DTC" "$MLP" --checkpoint $bad
  says "expected none, full, selective, auto or auto:BYTES" err.txt
done
expect 2 "$DTC" "$MLP" --checkpoint auto
says "needs the memory of a rank" err.txt
expect 2 "$DTC" "$MLP" --checkpoint full --interpret=source
says "which saves all" err.txt
expect 1 "$DTC" "$MLP" --checkpoint auto:1K --report
says "a rank needs [0-9]+ bytes of memory with as much recomputed as can be, more than --checkpoint auto:1024" err.txt
expect 3 "$DTC" "$MLP" -o .
says "cannot write .: Is a directory" err.txt
cp "$MLP" copy.dt
ln -sf copy.dt link
expect 2 "$DTC" copy.dt -o ./copy.dt
says "is the model itself" err.txt
expect 2 "$DTC" copy.dt --emit c -o link
same "$MLP" copy.dt
# An optional value stands after the option, too.
expect 0 "$DTC" "$MLP" --report json
python3 -m json.tool out.txt >/dev/null
expect 0 "$DTC" --report "$MLP"
says "parameters" out.txt
# A parameter's owners are ranks of dp and of cp.
expect 2 "$DTC" "$SRC/examples/gpt2.dt" --report --zero 3 --zero-group 2 --dp 3
says "zero-group 2 does not divide the 3 ranks of --dp and --cp" err.txt
expect 0 "$DTC" "$SRC/examples/gpt2.dt" --report --zero 3 --zero-group 2 --dp 3 --cp 2
# Every option that takes a number refuses what is none, is out of its range or is not given: no 0, negative or cut
# number stands for a default.
for option in $("$DTC" --help | sed -nE 's/^ +--([a-z-]+) (N|BYTES) .*/\1/p'); do
  for bad in 0 -1 3x x3 1.5x 0x10 ' 3' 99999999999999999999 1e400 nan; do
    expect 2 "$DTC" "$MLP" --$option "$bad"
    says "^dtc: --$option $bad: |^dtc: --$option $bad is" err.txt
  done
  expect 2 "$DTC" "$MLP" --$option ""
  says "option --$option needs a value" err.txt
  expect 2 "$DTC" "$MLP" --$option
  says "option '--$option' needs a value" err.txt
done
[ -n "${option:-}" ] || fail "no options that take numbers were found"
expect 2 "$DTC" "$MLP" --memory 0.5
for bad in interleaved: interleaved:0 interleaved:-1 interleaved:3x interleaved:99999999999999999999; do
  expect 2 "$DTC" "$MLP" --pp 2 --schedule $bad
  says "expected gpipe, 1f1b, interleaved, interleaved:CHUNKS or zb" err.txt
done
expect 2 "$DTC" "$MLP" --zero ""
expect 2 "$DTC" "$MLP" --zero 1x
expect 2 "$DTC" "$MLP" -o ""
says "option --output needs a value" err.txt
expect 2 "$DTC" "$MLP" -D ""
# Passes that know nothing of exchanges are not run on a program that has them.
expect 0 "$DTC" "$MLP" --tp 2 --dump-after shard -o train
sed -n '/^# after shard/,/^# after /p' out.txt | sed '/^# after/d' >cut.ir
expect 1 "$DTC" --run batch cut.ir
says "pass batch is for programs of one rank, and this one is cut over a mesh" err.txt
# Commands have their help, and it fits a terminal.
for command in new fmt explain plot; do
  says "^  $command " <("$DTC" --help)
  expect 0 "$DTC" $command --help
  says "^usage: dtc $command " out.txt
  [ "$(awk '{ if (length > n) n = length } END { print n }' out.txt)" -le 80 ] || fail "dtc $command --help is wider than a terminal"
done
