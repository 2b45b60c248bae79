# fp16: a step in which one rank's gradient overflows is skipped by all; the loss scale is halved, and training goes on.
# The scale, and how many steps were skipped, are part of a checkpoint. Where nothing but skipping is left, the run ends.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE=fp16
# The records' fields of a log, without spaces.
fields() {
  records "$1" | python3 -c 'import json, sys
for line in sys.stdin:
  r = json.loads(line)
  print(*[str(r.get(k)).lower() for k in ("step", "skipped", "loss_scale", "skipped_steps")], sep=",")'
}
for stage in 0 3; do
  export FAKE_ZERO=$stage
  train --ranks 3 --steps 2 --export two.st
  FAKE_OVERFLOW=3-3:1 train --ranks 3 --steps 3 --export three.st
  same two.st three.st
  FAKE_OVERFLOW=3-3:1 train --ranks 3 --log log.jsonl --export whole.st
  cat >want <<END
1,false,65536,0
2,false,65536,0
3,true,65536,1
4,false,32768,1
5,false,32768,1
6,false,32768,1
7,false,32768,1
8,false,32768,1
END
  fields log.jsonl | sed 's/\.0//g' >got
  same want got
  cmp -s two.st whole.st && fail "nothing was learnt after the skipped step"
  # The scale is a power of two, so that nothing but the skipped step is seen in the weights: Adam counts updates.
  rm -rf ck
  FAKE_OVERFLOW=3-3:1 FAKE_ZERO=2 train --ranks 3 --steps 4 --save ck --log part.jsonl
  train --ranks 3 --resume ck --export resumed.st --log part.jsonl
  same whole.st resumed.st
  fields part.jsonl | sed 's/\.0//g' >got
  same want got
done
says '"loss_scale":32768,"clean_steps":1,"skipped_steps":1,"skipped_at_1":0' ck/step-00000004/manifest.json

# A checkpoint saved at a skipped step; and one of another precision, which begins with the first scale.
rm -rf ck
FAKE_OVERFLOW=2-3:0 train --ranks 2 --steps 3 --save ck
FAKE_OVERFLOW=2-3:0 train --ranks 2 --export whole.st
train --ranks 2 --resume ck --export resumed.st
same whole.st resumed.st
FAKE=fp32 train --steps 1 --save ck32
train --resume ck32 --steps 2 --log second.jsonl 2>err.txt
says "saved in fp32, and this program trains in fp16" err.txt
[ "$(fields second.jsonl | sed 's/\.0//g')" = 2,false,65536,0 ] || fail "the scale after another precision"

# 16 skips lead from 2^16 to 1, and 10 at 1 are too many.
FAKE_OVERFLOW=1-99:0 expect 79 "$TRAIN" --quiet --ranks 2 --steps 99 --log log.jsonl
says "step 26: the gradient norm is inf with loss scale 1, as in the 9 steps before" err.txt
[ "$(fields log.jsonl | sed 's/\.0//g' | tail -1)" = 26,true,1,26 ] || fail "the last record"
FAKE_OVERFLOW=1-25:0 train --ranks 2 --steps 30 --log log.jsonl
[ "$(fields log.jsonl | sed 's/\.0//g' | tail -1)" = 30,false,1,25 ] || fail "training at scale 1"
# Counted across a resume too.
rm -rf ck
FAKE_OVERFLOW=1-99:0 train --ranks 2 --steps 20 --save ck
FAKE_OVERFLOW=1-99:0 expect 79 "$TRAIN" --quiet --ranks 2 --steps 99 --resume ck
says "step 26: " err.txt
# Without loss scaling there is nothing to try.
FAKE=bf16 FAKE_OVERFLOW=2-2:1 expect 79 "$TRAIN" --quiet --ranks 2
says "step 2: the gradient norm is inf; " err.txt

# Gradients in a file are those without the scale.
train --ranks 2 --steps 1 --export-gradient half.st
FAKE=fp32 train --ranks 2 --steps 1 --export-gradient float.st
python3 - <<'END'
import json, struct
def read(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    return {k: struct.unpack("<%df" % ((v["data_offsets"][1] - v["data_offsets"][0]) // 4),
                             raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in head.items()}
half, full = read("half.st"), read("float.st")
assert half.keys() == full.keys() and half
for name in full:
    for a, b in zip(half[name], full[name]):
        assert abs(a - b) <= 2e-3 * abs(b) + 1e-3, (name, a, b)
END
