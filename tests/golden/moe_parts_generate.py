#!/usr/bin/env python3
"""Values and gradients of mixtures of experts with parts of Megatron-LM, by PyTorch in float64.

    python3 moe_parts_generate.py FOLDER

writes FOLDER/moe_parts/golden.json. The rules, as Megatron-LM publishes them
(megatron/core/transformer/moe/router.py, moe_utils.py and moe_layer.py):

- sinkhorn: cost = exp(logits); d1 = 1; in turns d0 = 1 / T / (cost @ d1 + 1e-8) and
  d1 = 1 / E / (d0 @ cost + 1e-8), until the mean of |change of d1| is at most 1e-4. A token takes
  the top_k experts of d1 * cost * d0. Its weights are sigmoid(logits) with top_k = 1, otherwise
  softmax(logits) over all experts, and no gradient goes through the assignment.
- latent experts: experts read l = x @ latent_in.T; the weighted sum of their results, times
  latent_out.T, is added to the stream. Router and shared expert read x.
- an expert is down(silu(gate(x)) * up(x)); weights without sinkhorn are the softmax over the
  logits of the chosen experts.
"""
import json
import sys
from pathlib import Path

import torch

TOKENS, WIDTH, EXPERTS, FFN = 12, 8, 6, 5


def sinkhorn(logits):
    cost = torch.exp(logits)
    d1 = torch.ones(EXPERTS, dtype=logits.dtype)
    error = 1e9
    while error > 1e-4:
        before = d1
        d0 = 1 / TOKENS / (cost @ d1 + 1e-8)
        d1 = 1 / EXPERTS / (d0 @ cost + 1e-8)
        error = (d1 - before).abs().mean().item()
    return d1 * cost * d0[:, None]


def gated(x, gate, up, down):
    return (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


def layer(p, x, case):
    logits = x @ p["router.weight"].T
    k = case["top_k"]
    ranks = sinkhorn(logits.detach()) if case["sinkhorn"] else logits.detach()
    chosen = ranks.topk(k, dim=1).indices
    if not case["sinkhorn"]:
        weights = torch.softmax(logits.gather(1, chosen), dim=1)
    elif k == 1:
        weights = torch.sigmoid(logits).gather(1, chosen)
    else:
        weights = torch.softmax(logits, dim=1).gather(1, chosen)
    space = x @ p["latent_in.weight"].T if case["latent"] else x
    total = torch.zeros_like(space)
    for t in range(TOKENS):
        for j in range(k):
            e = chosen[t, j]
            out = gated(space[t], *(p[f"experts.{n}.weight"][e] for n in ("gate", "up", "down")))
            total[t] = total[t] + weights[t, j] * out
    if case["latent"]:
        total = total @ p["latent_out.weight"].T
    if case["shared"]:
        total = total + gated(x, *(p[f"shared.{n}.weight"] for n in ("gate", "up", "down")))
    return x + total, chosen


def parameters(case, draw):
    space = case["latent"] or WIDTH
    p = {"router.weight": draw(EXPERTS, WIDTH),
         "experts.gate.weight": draw(EXPERTS, FFN, space),
         "experts.up.weight": draw(EXPERTS, FFN, space),
         "experts.down.weight": draw(EXPERTS, space, FFN)}
    if case["latent"]:
        p |= {"latent_in.weight": draw(space, WIDTH), "latent_out.weight": draw(WIDTH, space)}
    if case["shared"]:
        p |= {"shared.gate.weight": draw(case["shared"], WIDTH),
              "shared.up.weight": draw(case["shared"], WIDTH),
              "shared.down.weight": draw(WIDTH, case["shared"])}
    return p


def main():
    torch.manual_seed(5)

    def draw(*shape):  # numbers that float holds
        return (torch.randn(*shape) * 0.5).double()

    cases = []
    for case in ({"sinkhorn": True, "top_k": 1, "latent": 0, "shared": 0},
                 {"sinkhorn": True, "top_k": 2, "latent": 0, "shared": 0},
                 {"sinkhorn": False, "top_k": 2, "latent": 4, "shared": 3},
                 {"sinkhorn": True, "top_k": 3, "latent": 4, "shared": 3}):
        p = {name: v.requires_grad_() for name, v in parameters(case, draw).items()}
        x, dy = (2 * draw(TOKENS, WIDTH)).requires_grad_(), draw(TOKENS, WIDTH)
        y, chosen = layer(p, x, case)
        y.backward(dy)
        flat = lambda t: [float(f"{v:.9g}") for v in t.detach().flatten().tolist()]
        cases.append(case | {
            "parameters": {name: flat(v) for name, v in p.items()},
            "gradients": {name: flat(v.grad) for name, v in p.items()},
            "x": flat(x), "dy": flat(dy), "y": flat(y), "dx": flat(x.grad),
            "chosen": chosen.flatten().tolist(),
        })
    folder = Path(sys.argv[1]) / "moe_parts"
    folder.mkdir(exist_ok=True)
    sizes = {"tokens": TOKENS, "width": WIDTH, "experts": EXPERTS, "ffn": FFN}
    text = json.dumps({"torch": torch.__version__, "sizes": sizes, "cases": cases})
    (folder / "golden.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
