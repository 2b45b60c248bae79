#!/usr/bin/env python3
"""Makes the arrays that examples/mlp.dt and examples/classifier.dt train on; needs no packages.

    make_arrays.py mlp|classifier FOLDER [SAMPLES]

mlp: points around 10 random centres in 100 dimensions (x float32 [n, 100], y int32 [n]).
classifier: 64 tokens below 1000, most of them noise; the class is the one whose 40 marker words occur most (tokens
int32 [n, 64], labels int32 [n]). A tenth of the samples goes to *_val.npy.
"""
import array
import os
import random
import struct
import sys


def save(path, kind, shape, values):
    descr = {"f": "<f4", "i": "<i4"}[kind]
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % (descr, tuple(shape))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        array.array(kind, values).tofile(f)


def mlp(r, n):
    centre = [[r.gauss(0, 1) for _ in range(100)] for _ in range(10)]
    y = [r.randrange(10) for _ in range(n)]
    x = [[c + r.gauss(0, 2) for c in centre[k]] for k in y]
    return {"x": ("f", x), "y": ("i", y)}


def classifier(r, n):
    words = [range(100 + 40 * c, 140 + 40 * c) for c in range(5)]
    labels = [r.randrange(5) for _ in range(n)]
    tokens = []
    for k in labels:
        row = [r.randrange(1000) for _ in range(64)]
        for t in r.sample(range(64), 12):
            row[t] = r.choice(words[k])
        tokens.append(row)
    return {"tokens": ("i", tokens), "labels": ("i", labels)}


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in ("mlp", "classifier"):
        sys.exit(__doc__)
    n = int(sys.argv[3]) if len(sys.argv) == 4 else 4000
    os.makedirs(sys.argv[2], exist_ok=True)
    made = {"mlp": mlp, "classifier": classifier}[sys.argv[1]](random.Random(1), n)
    cut = n - n // 10
    for name, (kind, rows) in made.items():
        for part, some in (("", rows[:cut]), ("_val", rows[cut:])):
            width = [len(some[0])] if isinstance(some[0], list) else []
            flat = [v for row in some for v in row] if width else some
            save(os.path.join(sys.argv[2], name + part + ".npy"), kind, [len(some)] + width, flat)


main()
