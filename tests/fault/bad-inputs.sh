# Data, weights and checkpoints that are not what they should be: the exit status, and a message with file and cause.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
refused() { # STATUS PATTERN OPTIONS...
  local status=$1 pattern=$2
  shift 2
  expect "$status" train --steps 3 "$@"
  says "$pattern" err.txt
}

export FAKE=tokens
refused 66 "missing.bin: No such file" --data missing.bin
mkfifo pipe # is not waited for
refused 65 "pipe is not a file" --data pipe
refused 65 "pipe is not a file" --init pipe
refused 65 "/dev/zero is not a file" --data /dev/zero
head -c 800 train.bin | tail -c 15 >odd.bin
refused 65 "odd.bin: .*truncated" --data odd.bin
head -c 16 train.bin >short.bin
refused 65 "short.bin: 8 tokens are too few" --data short.bin
python3 -c 'import struct
t = [i % 16 for i in range(100)]
def put(name, tokens, count, version=1): open(name, "wb").write(struct.pack("<256i", 20240520, version, count, *[0] * 253) + struct.pack("<%dH" % len(tokens), *tokens))
put("good.bin", t, 100)
put("cut.bin", t[:60], 100)
put("lies.bin", t, 60)
put("new.bin", t, 100, 2)
t[77] = 50000
put("range.bin", t, 100)'
expect 0 train --steps 3 --data good.bin
refused 65 "cut.bin: .*100 tokens.*truncated" --data cut.bin
refused 65 "lies.bin: .*60 tokens.*wrong" --data lies.bin
refused 65 "new.bin: .*version 2" --data new.bin
refused 65 "range.bin: token 77 is 50000; 'tokens' takes 0 to 15" --data range.bin
refused 65 "range.bin: token 77 is 50000" --val range.bin --eval-every 2
refused 66 "no validation data" --eval-only
text 999 >text.txt # README's first corpus, given to the wrong kind of data
refused 65 "text.txt is text, not uint16 tokens: give it to bytes" --data text.txt
python3 -c 'import struct
open("wide.bin", "wb").write(struct.pack("<400I", *[i * 7 % 16 for i in range(400)]))'
refused 65 "wide.bin: each second uint16 is 0: these are tokens of 32 bits" --data wide.bin

export FAKE=arrays
expect 0 train --steps 3 --export w.safetensors
seq 1 300 | npy wide.npy "<f4" "(20, 15)" f
refused 65 "wide.npy has shape \[20, 15\]; 'x' takes rows of shape \[6\]" --data x=wide.npy
head -c 700 x.npy >cut.npy
refused 65 "cut.npy: .*truncated" --data x=cut.npy
seq 1 50 | npy far.npy "<i8" "(50,)" q
refused 65 "far.npy: element 0 of row 9 is 10; 'y' takes 0 to 9" --data y=far.npy
refused 65 "train.bin is not a .npy file" --data x=train.bin
refused 66 "gone.npy" --data x=gone.npy

refused 66 "gone.safetensors" --init gone.safetensors
refused 65 "train.bin" --init train.bin
head -c 4100 w.safetensors >cut.safetensors
refused 65 "cut.safetensors: .*truncated" --init cut.safetensors
python3 -c 'import json, struct
b = open("w.safetensors", "rb").read()
n = struct.unpack("<Q", b[:8])[0]
head, data = json.loads(b[8:8 + n]), b[8 + n:]
def put(name, change):
    h = json.loads(json.dumps(head))
    change(h)
    text = json.dumps(h).encode()
    open(name, "wb").write(struct.pack("<Q", len(text)) + text + data)
def shape(h): h["head.weight"]["shape"] = [2, 3]
def name(h): h["blocks.2.scale"] = h.pop("blocks.1.scale")
def dtype(h): h["head.weight"].update(dtype="I32")
put("shape.safetensors", shape)
put("name.safetensors", name)
put("dtype.safetensors", dtype)'
refused 65 "shape.safetensors: 'head.weight' has shape \[2, 3\], expected \[6\]" --init shape.safetensors
refused 65 "name.safetensors .*missing: 'blocks.1.scale'; unknown: 'blocks.2.scale'" --init name.safetensors
refused 65 "dtype.safetensors: 'head.weight' holds I32" --init dtype.safetensors
expect 0 train --steps 3 --save ck
FAKE=tokens refused 65 "ck/step-00000003 does not hold this model's parameters; missing: 'table'" --resume ck
FAKE_NAN_AT=2 refused 79 "step 2: the loss is nan; the parameters were not updated"
# The system's own reason. Nobody, root neither, can make anything below a file or in a process's folder of /proc.
>plain
refused 73 "cannot create folder plain: File exists" --save plain/new
refused 73 "cannot create plain/new: Not a directory" --export plain/new
why="No such file or directory|Read-only file system|Operation not permitted|Permission denied"
refused 73 "cannot create folder /proc/self/new: ($why)" --save /proc/self/new
refused 73 "cannot create /proc/self/new: ($why)" --export /proc/self/new
# A FIFO is not waited at for a reader; a pipe has one.
mkfifo fifo
for option in export profile; do
  refused 73 "cannot create fifo: it is a FIFO" --$option fifo
done
train --steps 2 --export w.safetensors
train --steps 2 --export /dev/stdout | cmp - w.safetensors || fail "what went to a pipe differs"
train --steps 2 --export >(cat >piped.safetensors)
for i in $(seq 100); do cmp -s piped.safetensors w.safetensors && break; sleep 0.1; done
same piped.safetensors w.safetensors
