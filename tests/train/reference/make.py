#!/usr/bin/env python3
"""Makes the reference of matches-pytorch.sh: weights, tokens and PyTorch's losses over 20 AdamW steps.

    python3 make.py FOLDER      # needs torch; any version from 2.0 on

Writes {gpt2,llama}.safetensors, tokens.bin and {gpt2,llama}.{fp32,fp64}.txt (a loss a line). The models are written out
here from their papers, on the weights as examples/gpt2.dt and examples/llama.dt name and shape them.
"""
import json
import math
import os
import random
import struct
import sys

import torch
import torch.nn.functional as F

V, T, B, STEPS, LAYERS, HEADS, KV, DIM, HIDDEN = 97, 16, 4, 20, 2, 4, 2, 32, 48
E = DIM // HEADS
LR, WARMUP, EPS, DECAY, BETAS = 1e-2, 5, 1e-4, 0.1, (0.9, 0.95)


def shapes(model):
    if model == "gpt2":
        yield "wte.weight", (V, DIM)
        yield "wpe.weight", (T, DIM)
        for i in range(LAYERS):
            p = "blocks.%d." % i
            for ln in ("ln1", "ln2"):
                yield p + ln + ".weight", (DIM,)
                yield p + ln + ".bias", (DIM,)
            yield p + "attn.qkv.weight", (DIM, 3, HEADS, E)
            yield p + "attn.qkv.bias", (3, HEADS, E)
            yield p + "attn.proj.weight", (DIM, DIM)
            yield p + "attn.proj.bias", (DIM,)
            yield p + "mlp.fc.weight", (DIM, 4 * DIM)
            yield p + "mlp.fc.bias", (4 * DIM,)
            yield p + "mlp.proj.weight", (4 * DIM, DIM)
            yield p + "mlp.proj.bias", (DIM,)
        yield "ln_f.weight", (DIM,)
        yield "ln_f.bias", (DIM,)
    else:
        yield "embed.weight", (V, DIM)
        for i in range(LAYERS):
            p = "blocks.%d." % i
            yield p + "attention_norm.weight", (DIM,)
            yield p + "attention.wq.weight", (DIM, HEADS, E)
            yield p + "attention.wk.weight", (DIM, KV, E)
            yield p + "attention.wv.weight", (DIM, KV, E)
            yield p + "attention.wo.weight", (DIM, DIM)
            yield p + "ffn_norm.weight", (DIM,)
            yield p + "ffn.gate.weight", (DIM, HIDDEN)
            yield p + "ffn.up.weight", (DIM, HIDDEN)
            yield p + "ffn.down.weight", (HIDDEN, DIM)
        yield "norm.weight", (DIM,)
        yield "output.weight", (DIM, V)


def decayed(name):
    return name.split(".")[-2] in ("qkv", "proj", "fc", "wq", "wk", "wv", "wo", "gate", "up", "down", "output",
                                   "wte", "wpe", "embed") \
        and name.endswith("weight")


def attend(q, k, v):
    """q, k, v: [B, heads, T, E]"""
    s = q @ k.transpose(-1, -2) / math.sqrt(E)
    s = s.masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))
    return (F.softmax(s, -1) @ v).transpose(1, 2).reshape(B, T, DIM)


def gpt2(w, tokens):
    x = w["wte.weight"][tokens] + w["wpe.weight"]
    for i in range(LAYERS):
        g = lambda n: w["blocks.%d.%s" % (i, n)]
        h = F.layer_norm(x, (DIM,), g("ln1.weight"), g("ln1.bias"))
        q, k, v = (torch.einsum("btd,dche->cbhte", h, g("attn.qkv.weight"))
                   + g("attn.qkv.bias")[:, None, :, None, :]).unbind(0)
        x = x + attend(q, k, v) @ g("attn.proj.weight") + g("attn.proj.bias")
        h = F.layer_norm(x, (DIM,), g("ln2.weight"), g("ln2.bias"))
        h = F.gelu(h @ g("mlp.fc.weight") + g("mlp.fc.bias"), approximate="tanh")
        x = x + h @ g("mlp.proj.weight") + g("mlp.proj.bias")
    x = F.layer_norm(x, (DIM,), w["ln_f.weight"], w["ln_f.bias"])
    return x @ w["wte.weight"].T


def rms(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def rotate(x):
    """x: [B, heads, T, E]; elements i and i + E/2 are a pair."""
    a = torch.arange(T, dtype=x.dtype)[:, None] * 10000.0 ** (-2 * torch.arange(E // 2, dtype=x.dtype) / E)
    c, s = torch.cos(a), torch.sin(a)
    lo, hi = x[..., :E // 2], x[..., E // 2:]
    return torch.cat((lo * c - hi * s, hi * c + lo * s), -1)


def llama(w, tokens):
    x = w["embed.weight"][tokens]
    for i in range(LAYERS):
        g = lambda n: w["blocks.%d.%s" % (i, n)]
        h = rms(x, g("attention_norm.weight"))
        q, k, v = (torch.einsum("btd,dhe->bhte", h, g("attention.w%s.weight" % n)) for n in "qkv")
        k, v = (t.repeat_interleave(HEADS // KV, 1) for t in (rotate(k), v))
        x = x + attend(rotate(q), k, v) @ g("attention.wo.weight")
        h = rms(x, g("ffn_norm.weight"))
        x = x + (F.silu(h @ g("ffn.gate.weight")) * (h @ g("ffn.up.weight"))) @ g("ffn.down.weight")
    return rms(x, w["norm.weight"]) @ w["output.weight"]


def rate(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    x = (step - WARMUP) / (STEPS - WARMUP)
    return LR * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * x)))


def train(forward, start, stream, dtype):
    w = {n: torch.nn.Parameter(t.to(dtype).clone()) for n, t in start.items()}
    opt = torch.optim.AdamW([{"params": [p for n, p in w.items() if decayed(n)], "weight_decay": DECAY},
                             {"params": [p for n, p in w.items() if not decayed(n)], "weight_decay": 0.0}],
                            betas=BETAS, eps=EPS)
    out = []
    for step in range(STEPS):
        at = [i * T for i in range(step * B, step * B + B)]
        x = torch.stack([stream[a:a + T] for a in at])
        y = torch.stack([stream[a + 1:a + T + 1] for a in at])
        loss = F.cross_entropy(forward(w, x).reshape(-1, V), y.reshape(-1))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(w.values()), 1.0)
        for group in opt.param_groups:
            group["lr"] = rate(step)
        opt.step()
        out.append(loss.item())
    return out


def save(path, tensors):
    head, at = {}, 0
    for n, t in tensors.items():
        head[n] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + 4 * t.numel()]}
        at += 4 * t.numel()
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(struct.pack("<%df" % t.numel(), *t.flatten().tolist()))


def main():
    folder = sys.argv[1]
    r, t, ids = random.Random(5), 0, []
    for _ in range(STEPS * B * T + 1):
        t = (t * 5 + r.randrange(3)) % V
        ids.append(t)
    with open(os.path.join(folder, "tokens.bin"), "wb") as f:
        f.write(struct.pack("<%dH" % len(ids), *ids))
    stream = torch.tensor(ids)
    torch.set_num_threads(1)
    for model, forward in (("gpt2", gpt2), ("llama", llama)):
        torch.manual_seed(7)
        start = {}
        for n, s in shapes(model):
            noise = 0.1 * torch.randn(s)
            start[n] = 1 + noise if n.split(".")[-2].startswith(("ln", "norm", "attention_norm", "ffn_norm")) \
                and n.endswith("weight") else noise
        save(os.path.join(folder, model + ".safetensors"), start)
        for name, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
            with open(os.path.join(folder, "%s.%s.txt" % (model, name)), "w") as f:
                f.writelines("%r\n" % v for v in train(forward, start, stream, dtype))


main()
