#!/usr/bin/env python3
"""Golden values for combined adapters from PyPI's peft: adapter_blend/golden.json.

    python3 adapter_blend_generate.py OUTPUT_DIR

A tiny linear model with two or three adapters of random a and b; for each case the result of add_weighted_adapter(): a, b and
the scale alpha / r.
"""

import json
import os
import sys

import numpy as np
import peft
import torch
from peft import LoraConfig, get_peft_model

OUT, IN, RANK = 5, 7, 3
CASES = [
    ("cat", [0.7, 0.3], {}), ("cat", [1.0, -0.5, 0.25], {}),
    ("linear", [0.7, 0.3], {}), ("linear", [1.0, -0.5, 0.25], {}),
    ("ties", [0.7, 0.3], {"density": 0.5}), ("ties", [1.0, -0.5, 0.25], {"density": 0.6}), ("ties", [0.5, 0.5, 0.5], {"density": 1.0}),
]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(IN, OUT, bias=False)

    def forward(self, x):
        return self.proj(x)


def main():
    rng = np.random.RandomState(5)
    adapters = [{"alpha": alpha, "a": rng.randn(RANK, IN).astype(np.float32), "b": rng.randn(OUT, RANK).astype(np.float32)}
                for alpha in (6, 3, 4)]
    golden = {"made_by": f"peft {peft.__version__}, torch {torch.__version__}", "rank": RANK,
              "adapters": [{"alpha": x["alpha"], "a": x["a"].reshape(-1).tolist(), "b": x["b"].reshape(-1).tolist()} for x in adapters],
              "cases": []}
    for method, weights, more in CASES:
        names = [f"x{i}" for i in range(len(weights))]
        model = None
        for name, x in zip(names, adapters):
            config = LoraConfig(r=RANK, lora_alpha=x["alpha"], target_modules=["proj"])
            if model is None:
                model = get_peft_model(Model(), config, adapter_name=name)
            else:
                model.add_adapter(name, config)
            layer = model.base_model.model.proj
            with torch.no_grad():
                layer.lora_A[name].weight.copy_(torch.from_numpy(x["a"]))
                layer.lora_B[name].weight.copy_(torch.from_numpy(x["b"]))
        model.add_weighted_adapter(names, weights, "out", combination_type=method, **more)
        layer = model.base_model.model.proj
        golden["cases"].append({"method": method, "weights": weights, "density": more.get("density", 1.0),
                                "scale": layer.scaling["out"],
                                "a": layer.lora_A["out"].weight.detach().reshape(-1).tolist(),
                                "b": layer.lora_B["out"].weight.detach().reshape(-1).tolist()})
    os.makedirs(sys.argv[1], exist_ok=True)
    with open(os.path.join(sys.argv[1], "golden.json"), "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
