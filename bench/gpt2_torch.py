"""One training step of GPT-2 124M in PyTorch on CPU, timed: the bar for bench/gpt2.py.

Prints one JSON object: seconds of every timed step, losses, and peak resident memory in MiB.
The model is what examples/gpt2.dt says: tied head, biases, tanh GELU, no dropout, AdamW on all
parameters with decay on matrices only, gradient norm clipped to 1.
"""
import argparse
import json
import math
import resource
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--warmup", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--optimizer", choices=["fused", "loop", "foreach"], default="fused")
parser.add_argument("--attention", choices=["sdpa", "plain"], default="sdpa")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()

DIM, HEADS, VOCAB, CONTEXT = 768, 12, 50257, args.length
torch.set_num_threads(args.threads)
torch.manual_seed(1)


def gelu(x):
    try:
        return F.gelu(x, approximate="tanh")
    except TypeError:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def attention(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(x).split(DIM, dim=2))
        if args.attention == "sdpa" and hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(DIM // HEADS))
            y = s.masked_fill(future[:t, :t], float("-inf")).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, t, DIM))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.down(gelu(self.up(self.ln2(x))))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, DIM), nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
        self.ln_f = nn.LayerNorm(DIM)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def optimizer(model):
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    options = dict(lr=6e-4, betas=(0.9, 0.95), eps=1e-8)
    if args.optimizer == "fused":
        return torch.optim.AdamW(groups, fused=True, **options)
    return torch.optim.AdamW(groups, foreach=args.optimizer == "foreach", **options)


future = torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), 1)
model = GPT2()
opt = optimizer(model)
step_model = torch.compile(model) if args.compile else model
seconds, losses = [], []
for step in range(args.warmup + args.steps):
    block = torch.randint(0, VOCAB, (args.batch, args.length + 1))
    start = time.perf_counter()
    opt.zero_grad(set_to_none=True)
    loss = step_model(block[:, :-1], block[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
    if step >= args.warmup:
        seconds.append(time.perf_counter() - start)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"torch": torch.__version__, "seconds": seconds, "loss": losses,
                  "peak_mib": peak}))
