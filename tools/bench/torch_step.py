"""Some training steps of a GPT or Llama in PyTorch, as JSON. Argument: the settings as JSON (see compare.py)."""
import json
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

from torch_loop import measure

S = json.loads(sys.argv[1])
KIND = S["variant"].split("-")[0]
LLAMA = S["family"] == "llama"
D, H = S["hidden"], S["heads"]
G = S.get("groups", H)  # of keys and values
DEVICE = S.get("device", "cpu")
TIED = S.get("tied", True)
E = D // H


def norm():
    return nn.RMSNorm(D, eps=1e-5) if LLAMA else nn.LayerNorm(D)


def rope_tables():
    angles = torch.outer(torch.arange(S["seq"]).float(), 10000.0 ** (-torch.arange(0, E, 2).float() / E))
    return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat([-high, low], -1) * sin.to(x.dtype)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        bias = not LLAMA
        self.norm1, self.norm2 = norm(), norm()
        self.qkv, self.out = nn.Linear(D, D + 2 * G * E, bias=bias), nn.Linear(D, D, bias=bias)
        self.up, self.down = nn.Linear(D, S["ffn"], bias=bias), nn.Linear(S["ffn"], D, bias=bias)
        if LLAMA:
            self.gate = nn.Linear(D, S["ffn"], bias=False)
            cos, sin = rope_tables()
            self.register_buffer("cos", cos, persistent=False)
            self.register_buffer("sin", sin, persistent=False)
        if KIND == "eager":
            mask = torch.ones(S["seq"], S["seq"], dtype=torch.bool).triu(1)
            self.register_buffer("mask", mask, persistent=False)

    def attention(self, x):
        b, t, _ = x.shape
        q, k, v = (p.view(b, t, -1, E).transpose(1, 2) for p in self.qkv(x).split([D, G * E, G * E], -1))
        if LLAMA:
            q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
        if KIND == "eager":
            if G != H:
                k, v = (p.repeat_interleave(H // G, 1) for p in (k, v))
            scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(E))
            y = F.softmax(scores.masked_fill(self.mask, float("-inf")), -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, **({"enable_gqa": True} if G != H else {}))
        return self.out(y.transpose(1, 2).reshape(b, t, D))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        y = F.silu(self.gate(y)) * self.up(y) if LLAMA else F.gelu(self.up(y), approximate="tanh")
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(S["vocab"], D)
        self.positions = None if LLAMA else nn.Embedding(S["seq"], D)
        self.blocks = nn.ModuleList(Block() for _ in range(S["layers"]))
        self.norm = norm()
        self.head = None if TIED else nn.Linear(D, S["vocab"], bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.embed.weight) if TIED else self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, S["vocab"]), targets.view(-1))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(S["threads"])
    with torch.device(DEVICE):  # random numbers of billions of parameters take minutes on a CPU
        model = Model()
    measure(S, model, lambda call, tokens: call(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()))


if __name__ == "__main__":
    main()
