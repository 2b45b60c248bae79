# The command line and the launcher's environment: what is wrong is refused with the right status, before anything runs.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
expect 0 "$TRAIN" --help
[ "$(awk '{ if (length > n) n = length } END { print n }' out.txt)" -le 80 ] || fail "--help is wider than a terminal"
for name in ranks data val steps batch lr seed no-shuffle init save save-every keep resume export log eval-every eval-only \
  sample temperature profile info timeout threads dry-run quiet; do
  says "--$name" out.txt
done
refused() {
  expect 64 "$TRAIN" "${@:2}"
  says "$1" err.txt
}
refused "did you mean '--resume'" --resmue ck
refused "did you mean '--steps'" --step=3
refused "unknown option '--frobnicate'" --frobnicate
refused "unexpected 'x'" x
refused "unexpected '-q'" -q
refused "takes a value" --steps
refused "error: --steps is given twice" --steps 3 --quiet --quiet --steps=4
refused "takes an integer" --steps 3.5
refused "takes an integer, at least 1" --batch 0
refused "takes a number" --lr fast
refused "takes a number" --lr -1
refused "takes no value" --quiet=1
# No option takes what is no number, or cuts one to size; a 0 is refused where it would stand for a default.
"$TRAIN" --help >help.txt
for option in $(sed -nE 's/^ +--([a-z-]+) (N|X|SECONDS) .*/\1/p' help.txt); do
  for bad in 3x x3 1.5x 0x10 ' 3' '' 99999999999999999999999x nan inf 1e400; do
    refused "^[a-z_]+: error: --$option takes |^[a-z_]+: --$option takes " --$option "$bad"
  done
  refused "^[a-z_]+: .*--$option takes a value" --$option
  [ $option = seed ] || refused "$option takes .*; found '-1'" --$option -1
done
[ -n "${option:-}" ] || fail "no options that take numbers were found"
for option in steps batch schedule-steps seed eval-every eval-samples save-every keep sample threads ranks; do
  refused "$option takes an integer of 64 bits" --$option 99999999999999999999
done
for option in batch schedule-steps eval-samples save-every keep threads ranks; do
  refused "$option takes an integer, at least 1; found '0'" --$option 0
done
refused "takes a number of at least 0.001; found '0'" --timeout 0
refused "takes a number, not negative; found '1e-400'" --lr 1e-400
refused "needs --save" --keep 3
refused "not a model over tokens" --sample 5
refused "eval-only computes nothing else; use --export with --steps 0" --eval-only --export w.safetensors
refused "\-\-batch is 99999999999; at most 1073741823 is possible" --batch 99999999999
refused "\-\-ranks is 4294967298; at most" --ranks 4294967298
refused "\-\-steps is 9223372036854775807; at most" --steps 9223372036854775807
refused "\-\-timeout is at most" --timeout 1e300
DT_GEMM=onednn refused "DT_GEMM=onednn: it may be 'own', 'dnnl', or not be set" --quiet
DT_GEMM_BF16=fp32 refused "DT_GEMM_BF16=fp32: it may be 'float', 'vector', 'tile', or not be set" --quiet
DT_COMM=nccl refused "DT_COMM=nccl: it may be 'mpi', or not be set" --quiet
for level in 0 5 3x v3; do
  DTC_CPU_LEVEL=$level refused "DTC_CPU_LEVEL=$level: it may be '1', '2', '3', '4', or not be set" --quiet
done
DT_GEMM= DT_COMM= DTC_CPU_LEVEL= expect 0 "$TRAIN" --steps 1
expect 0 "$TRAIN" --ranks 2 --steps 2
says "2 ranks of" out.txt
expect 0 env WORLD_SIZE=1 RANK=0 "$TRAIN" --steps=2 --quiet
expect 0 "$TRAIN" --ranks 1 --timeout 60 --threads=2 --steps 2
expect 0 "$TRAIN" --dry-run
says "batch +8 samples: 3 microbatches of 3, the last with 2" out.txt
expect 0 "$TRAIN" --dry-run --ranks 3
says "ranks +3: tp 1 x cp 1 x dp 3 x pp 1, 1 microbatches each" out.txt
expect 0 "$TRAIN" --info --ranks 4
python3 -c 'import json
i = json.load(open("out.txt"))
assert i["layout"]["ranks"] == 4 and i["layout"]["dp"] == 4, i["layout"]'
expect 0 "$TRAIN" --info
python3 -c 'import json
i = json.load(open("out.txt"))
assert i["parameters"] == 19 and i["layout"]["ranks"] == 1 and i["build"] and i["precision"] == "fp32", i
m = i["memory"]
assert m["total"] == sum(m[k] for k in m["formula"].split(" + ")), m
assert i["kernels"][0]["name"] == "linear_fwd", i'

# A kernel that writes past its planned memory is reported, by any rank.
expect 70 env FAKE_OVERRUN=1 "$TRAIN" --steps 2
says "past the end of the frame" err.txt
expect 70 env FAKE_OVERRUN=1 "$TRAIN" --steps 2 --ranks 2

# A pipe gets plain lines; a terminal one that is written over.
"$TRAIN" --steps 50 >out.txt
grep -q $'\r' out.txt && fail "a live line on a pipe"
says "step 50/50  loss [0-9.]+  lr .*  norm .*  ETA 0:00" out.txt
[ "$(wc -l <out.txt)" -le 5 ] || fail "too many lines on a pipe"
script -qc "'$TRAIN' --steps 50" /dev/null >tty.txt </dev/null 2>/dev/null && { grep -q $'\r' tty.txt || fail "no live line"; }

# Two runs cannot save to one folder at a time.
FAKE_DELAY=20000 "$TRAIN" --steps 2000 --save ck --quiet 2>first.txt &
pid=$!
for i in $(seq 50); do [ -d ck ] && break; sleep 0.1; done
sleep 0.2
expect 73 "$TRAIN" --save ck
says "another run is saving to ck" err.txt
kill -TERM $pid
wait $pid || true

# Text: as long as asked, the same with the same seed, another with another.
export FAKE=tokens
expect 0 "$TRAIN" --quiet --steps 5 --sample 40 --seed 3
cp out.txt a.txt
expect 0 "$TRAIN" --quiet --steps 5 --sample 40 --seed 3
same a.txt out.txt
[ "$(wc -c <out.txt)" -eq 41 ] || fail "$(wc -c <out.txt) bytes for 40 tokens and a line's end"
expect 64 "$TRAIN" --prompt "a"
says "--prompt needs --sample N" err.txt
expect 64 "$TRAIN" --temperature 0.5
says "--temperature needs --sample N" err.txt
expect 64 "$TRAIN" --quiet --sample 5 --prompt "z"
says "not in the vocabulary" err.txt
expect 0 "$TRAIN" --quiet --steps 5 --sample 40 --temperature 0 --prompt "$(printf '\001\002')"
expect 0 "$TRAIN" --quiet --steps 2 --profile trace.json
python3 -c 'import json
t = json.load(open("trace.json"))["traceEvents"]
depth = 0
for e in t:
    depth += {"B": 1, "E": -1}.get(e["ph"], 0)
assert sum(e["name"] == "update" and e["ph"] == "B" for e in t) == 2, t'
