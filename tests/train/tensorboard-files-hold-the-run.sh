# --tensorboard writes event files: records whole, with right checksums, that hold what the log holds.
. "$(dirname "$0")/../support/lib.sh"
rm -rf tb ck log.jsonl
text 4000 >text.txt
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train
run() { ./train --data text.txt --val text.txt --eval-every 2 --quiet --log log.jsonl --tensorboard tb/run "$@"; }
run --steps 4 --save ck
cat >events.py <<'PY'
import glob, json, struct, sys

def crc32c(data):
    c = 0xffffffff
    for b in data:
        c ^= b
        for _ in range(8): c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    return c ^ 0xffffffff
assert crc32c(b"123456789") == 0xe3069283 # the check value of CRC-32C

def masked(data):
    c = crc32c(data)
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff

def records(data):
    at = 0
    while at < len(data):
        n, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8]), "the checksum of a length"
        body = data[at + 12:at + 12 + n]
        assert len(body) == n and struct.unpack_from("<I", data, at + 12 + n)[0] == masked(body)
        yield body
        at += 16 + n

def varint(data, at):
    v = shift = 0
    while True:
        v |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128: return v, at

def fields(data):
    at, out = 0, {}
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0: v, at = varint(data, at)
        elif key & 7 == 2:
            n, at = varint(data, at)
            v, at = data[at:at + n], at + n
        else:
            n = 8 if key & 7 == 1 else 4
            v, at = struct.unpack("<d" if n == 8 else "<f", data[at:at + n])[0], at + n
        out.setdefault(key >> 3, []).append(v)
    assert at == len(data)
    return out

events = []
for path in sorted(glob.glob("tb/run/events.out.tfevents.*")):
    file = [fields(r) for r in records(open(path, "rb").read())]
    assert file[0][3] == [b"brain.Event:2"]
    assert all(a[1] <= b[1] for a, b in zip(file, file[1:])), "times go back"
    events.append(file)
scalars, texts = {}, []
for file in events:
    for e in file:
        if 7 in e: # a session starts: what stands before, from this step on, is void
            assert fields(e[7][0]) == {1: [1]}
            scalars = {k: v for k, v in scalars.items() if k[0] < e[2][0]}
        for value in fields(e[5][0])[1] if 5 in e else []:
            v = fields(value)
            if 2 in v: scalars[e[2][0], v[1][0].decode()] = v[2][0]
            else:
                assert fields(fields(v[9][0])[1][0])[1] == [b"text"]
                tensor = fields(v[8][0])
                assert tensor[1] == [7] and fields(fields(tensor[2][0])[2][0]) == {1: [1]}
                texts.append(tensor[8][0].decode())
want = {}
for line in open("log.jsonl"):
    r = json.loads(line)
    if "step" not in r: continue
    for k in ("loss", "lr", "grad_norm", "val_loss", "tokens_per_s"):
        if k in r: want[r["step"], k] = r[k]
assert len(want) > 8
for key, v in want.items():
    assert abs(scalars[key] - v) <= 1e-6 * abs(v), (key, scalars[key], v)
extra = {k[1] for k in scalars if k not in want}
assert extra == {"seconds", "memory_bytes"}, extra
assert len(events) == int(sys.argv[1]) and len(texts) == len(events)
assert "| model | CharGPT |" in texts[0] and "| batch | 8 |" in texts[0], texts[0]
PY
python3 events.py 1
# A resumed run adds a file, and voids what the first one wrote past the step that it goes on from.
rm -rf ck/step-00000004
run --steps 2 --save two
rm -rf tb log.jsonl
run --steps 4
run --steps 6 --resume two
python3 events.py 2
# Several ranks write one file.
rm -rf tb log.jsonl
run --steps 2 --ranks 2
python3 events.py 1
# What cannot be written ends the run: at its start, or when the disk is full.
: >plain
expect 73 ./train --data text.txt --steps 1 --tensorboard plain
says 'cannot create folder plain' err.txt
(
  ulimit -f 4
  trap '' XFSZ
  expect 74 ./train --data text.txt --steps 400 --quiet --tensorboard small
  says 'cannot write small/events.out.tfevents' err.txt
)
