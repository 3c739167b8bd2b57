#!/usr/bin/env python3
"""Golden values for the optimizers sgd, lion and muon from other implementations: optimizers/golden.json.

    python3 optimizers_generate.py OUTPUT_DIR

Weights, random gradients of five steps, and the weights after the first and the last step by torch.optim.SGD, PyPI's lion-pytorch and torch.optim.Muon, in
fp32 on the CPU. Muon computes its iterations in bf16; for `newton_schulz_dtype: fp32` the type to which it converts is replaced by fp32. `decoupled_decay` of
sgd is torch.optim.SGD without decay after a multiplication of the weights by 1 - lr x decay. Made with torch 2.15.0, lion-pytorch 0.2.5,
Python 3.11.
"""

import argparse
import json
import os

import torch
from lion_pytorch import Lion

SHAPES = dict(wide=(5, 12), tall=(14, 6), square=(8, 8))
STEPS, LR = 5, 0.02
SGD = [
    dict(momentum=0.0),
    dict(momentum=0.9),
    dict(momentum=0.9, nesterov=True, weight_decay=0.1),
    dict(momentum=0.5, weight_decay=0.1, decoupled_decay=True),
]
LION = [dict(beta1=0.9, beta2=0.99), dict(beta1=0.95, beta2=0.98, weight_decay=0.3)]
MUON = [
    dict(newton_schulz_dtype="fp32", scale="rms", weight_decay=0.1),
    dict(newton_schulz_dtype="fp32", scale="spectral", nesterov=False, momentum=0.9),
    dict(newton_schulz_dtype="fp32", scale="rms", newton_schulz_steps=3),
    dict(newton_schulz_dtype="bf16", scale="rms", weight_decay=0.1),
    dict(newton_schulz_dtype="bf16", scale="spectral"),
]
SCALES = dict(rms="match_rms_adamw", spectral="original")


def optimizer_of(name, weights, case):
    decay = case.get("weight_decay", 0.0)
    if name == "sgd":
        decay = 0.0 if case.get("decoupled_decay") else decay
        return torch.optim.SGD(weights, LR, momentum=case["momentum"], nesterov=case.get("nesterov", False), weight_decay=decay)
    if name == "lion":
        return Lion(weights, LR, (case["beta1"], case["beta2"]), decay)
    return torch.optim.Muon(weights, LR, decay, momentum=case.get("momentum", 0.95), nesterov=case.get("nesterov", True),
                            ns_steps=case.get("newton_schulz_steps", 5), adjust_lr_fn=SCALES[case["scale"]])


def steps_of(name, case, start, gradients):
    weights = [torch.nn.Parameter(w.clone()) for w in start]
    optimizer = optimizer_of(name, weights, case)
    bf16 = torch.bfloat16
    if case.get("newton_schulz_dtype") == "fp32":
        torch.bfloat16 = torch.float32
    out = []
    for number, step in enumerate(gradients):
        for weight, gradient in zip(weights, step):
            weight.grad = gradient.clone()
            if case.get("decoupled_decay"):
                weight.data.mul_(1 - LR * case["weight_decay"])
        optimizer.step()
        if number in (0, STEPS - 1):
            out.append([w.detach().flatten().tolist() for w in weights])
    torch.bfloat16 = bf16
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    folder = os.path.join(parser.parse_args().output, "optimizers")
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    draws = torch.Generator().manual_seed(23)
    start = [torch.randn(shape, generator=draws) for shape in SHAPES.values()]
    gradients = [[torch.randn(w.shape, generator=draws) for w in start] for _ in range(STEPS)]
    cases = [dict(optimizer=name, settings={k: v for k, v in case.items() if k != "weight_decay"},
                  weight_decay=case.get("weight_decay", 0.0), weights=steps_of(name, case, start, gradients))
             for name, all_cases in (("sgd", SGD), ("lion", LION), ("muon", MUON)) for case in all_cases]
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(dict(lr=LR, shapes=list(SHAPES.values()), start=[w.flatten().tolist() for w in start],
                       gradients=[[g.flatten().tolist() for g in step] for step in gradients], cases=cases), file)
        file.write("\n")


if __name__ == "__main__":
    main()
