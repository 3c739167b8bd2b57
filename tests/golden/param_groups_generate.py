#!/usr/bin/env python3
"""AdamW of PyTorch with groups of parameters, over a few steps: param_groups/golden.json.

    python3 param_groups_generate.py OUTPUT_DIR

Holds mtrain's settings, named parameters with their initial values, the gradients of each step, the rate and weight decay
of each parameter in each step, and the values after the last one. The groups of PyTorch are built here by hand, from what
docs/schedules.md says of mtrain's settings. tests/golden/param_groups_test.cc compares.
"""

import json
import os
import sys

import torch

LR, DECAY, LAYERS, LAYER_DECAY, STEPS, LENGTH = 1e-2, 0.1, 3, 0.8, 6, 8
# name, role, decayed by default, depth (0: embedding, LAYERS + 1: after the blocks), settings of its group
PARAMETERS = [
    ("embed.weight", "embedding", True, 0, dict(lr=2e-3)),
    ("positions.weight", "embedding", True, 0, {}),
    ("layers.0.norm1.weight", "norm", False, 1, dict(decay=0.05)),
    ("layers.0.attn.out.weight", "matrix", True, 1, {}),
    ("layers.0.attn.out.bias", "bias", False, 1, {}),
    ("layers.0.mlp.up.weight", "matrix", True, 1, dict(scale=0.5)),
    ("layers.1.norm1.weight", "norm", False, 2, dict(decay=0.05)),
    ("layers.1.mlp.up.weight", "matrix", True, 2, dict(scale=0.5)),
    ("layers.2.attn.out.weight", "matrix", True, 3, {}),
    ("layers.2.mlp.up.weight", "matrix", True, 3, dict(scale=0.5)),
    ("norm.weight", "norm", False, 4, dict(decay=0.05)),
    ("head.weight", "head", True, 4, dict(lr=2e-3)),
]
SETTINGS = {
    "lr": LR,
    "weight_decay": DECAY,
    "embedding_lr": 2e-3,
    "layer_decay": LAYER_DECAY,
    "layers": LAYERS,
    "groups": [{"role": "norm", "weight_decay": 0.05}, {"match": "layers.*.mlp.*", "lr_scale": 0.5}],
    "scheduler": {"type": "cosine", "decay_steps": LENGTH},
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
}


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    values, groups = [], []
    for _, role, decayed, depth, own in PARAMETERS:
        shape = (3,) if role in ("norm", "bias") else (4, 3)
        p = torch.nn.Parameter(torch.randn(shape))
        values.append(p)
        below = max(0, LAYERS - depth)
        rate = own["lr"] if "lr" in own else LR * own.get("scale", 1) * LAYER_DECAY**below
        decay = own.get("decay", DECAY if decayed else 0)
        groups.append({"params": [p], "lr": rate, "weight_decay": decay})
    first = [p.detach().clone() for p in values]
    o = torch.optim.AdamW(groups, betas=(SETTINGS["beta1"], SETTINGS["beta2"]), eps=SETTINGS["eps"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(o, LENGTH)
    gradients, rates = [], []
    for _ in range(STEPS):
        rates.append([g["lr"] for g in o.param_groups])
        for p in values:
            p.grad = torch.randn_like(p)
        gradients.append([p.grad.flatten().tolist() for p in values])
        o.step()
        schedule.step()
    parameters = [
        {
            "name": name,
            "role": role,
            "decay": decayed,
            "shape": list(p.shape),
            "initial": start.flatten().tolist(),
            "weight_decay": group["weight_decay"],
            "final": p.detach().flatten().tolist(),
        }
        for (name, role, decayed, _, _), p, start, group in zip(PARAMETERS, values, first, o.param_groups)
    ]
    out = {"torch": torch.__version__, "settings": SETTINGS, "parameters": parameters, "gradients": gradients, "rates": rates}
    folder = os.path.join(sys.argv[1], "param_groups")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(out, file)
        file.write("\n")


if __name__ == "__main__":
    main()
