#!/usr/bin/env python3
"""Learning rates by the schedulers of PyTorch and of Hugging Face transformers: schedules/golden.json.

    python3 schedules_generate.py OUTPUT_DIR

Each case holds mtrain's settings (scheduler), the peak, and the rates of the first updates. During warmup, mtrain is one
step ahead: its update 0 has 1 / warmup_steps of the peak, where these schedulers have 0; so a case with warmup stores
the rate of the next step there. tests/unit/optim/schedules_golden_test.cc compares.
"""

import json
import os
import sys
import warnings

import torch
import transformers
from torch.optim import lr_scheduler as t
from transformers import optimization as h

warnings.filterwarnings("ignore")
LR = 3e-4


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)


def rates(make, count, warmup=0):
    o = optimizer()
    scheduler = make(o)
    out = []
    for _ in range(count + 1):
        out.append(o.param_groups[0]["lr"])
        o.step()
        scheduler.step()
    return out[1 : warmup + 1] + out[warmup:count]


def case(source, settings, make, count=40):
    return {"source": source, "scheduler": settings, "lr": LR, "total": count, "rates": rates(make, count, settings.get("warmup_steps", 0))}


def restarts(first, factor, low):
    return lambda o: t.CosineAnnealingWarmRestarts(o, first, factor, low)


def staged(o):
    up = t.LinearLR(o, 0.25, 1, 10)
    down = t.CosineAnnealingLR(o, 15, 0.1 * LR)
    return t.SequentialLR(o, [up, down], [10])


def fall(o):
    return t.SequentialLR(o, [t.ConstantLR(o, 0.5, 8), t.ExponentialLR(o, 0.1 ** (1 / 16))], [8])


CASES = [
    case("PolynomialLR", dict(type="polynomial", power=2.0, decay_steps=30), lambda o: t.PolynomialLR(o, 30, 2.0)),
    case("PolynomialLR", dict(type="polynomial", power=0.5, decay_steps=30), lambda o: t.PolynomialLR(o, 30, 0.5)),
    case(
        "get_polynomial_decay_schedule_with_warmup",
        dict(type="polynomial", power=3.0, warmup_steps=5, min_lr=1e-5, decay_steps=35),
        lambda o: h.get_polynomial_decay_schedule_with_warmup(o, 5, 35, 1e-5, 3.0),
    ),
    case("ExponentialLR", dict(type="exponential", gamma=0.97), lambda o: t.ExponentialLR(o, 0.97)),
    case("MultiStepLR", dict(type="multistep", gamma=0.3, milestones=[5, 12, 13, 30]), lambda o: t.MultiStepLR(o, [5, 12, 13, 30], 0.3)),
    case("CosineAnnealingWarmRestarts", dict(type="cosine_restarts", cycle_steps=7, min_lr=1e-5), restarts(7, 1, 1e-5)),
    case("CosineAnnealingWarmRestarts", dict(type="cosine_restarts", cycle_steps=5, cycle_factor=2), restarts(5, 2, 0)),
    case("CosineAnnealingWarmRestarts", dict(type="cosine_restarts", cycle_steps=3, cycle_factor=3), restarts(3, 3, 0)),
    case(
        "get_cosine_with_hard_restarts_schedule_with_warmup",
        dict(type="cosine_restarts", cycle_steps=12, warmup_steps=4),
        lambda o: h.get_cosine_with_hard_restarts_schedule_with_warmup(o, 4, 40, 3),
    ),
    case(
        "LinearLR",
        dict(type="constant", warmup_steps=6, warmup_init_lr=0.25 * LR),
        lambda o: t.LinearLR(o, 0.25, 1, 6),
    ),
    case(
        "LinearLR, then CosineAnnealingLR",
        dict(type="stages", stages=[dict(steps=10, **{"from": 0.25, "to": 1}), dict(type="cosine", steps=15, to=0.1)]),
        staged,
        25,
    ),
    case(
        "ConstantLR, then ExponentialLR",
        dict(type="stages", stages=[dict(type="constant", steps=8, to=0.5), dict(type="exponential", steps=16, **{"from": 1, "to": 0.1})]),
        fall,
        24,
    ),
    case("get_linear_schedule_with_warmup", dict(type="linear", warmup_steps=8), lambda o: h.get_linear_schedule_with_warmup(o, 8, 40)),
    case("get_cosine_schedule_with_warmup", dict(type="cosine", warmup_steps=8), lambda o: h.get_cosine_schedule_with_warmup(o, 8, 40)),
    case(
        "get_wsd_schedule",
        dict(type="wsd", warmup_steps=6, stable_steps=20, wsd_decay="cosine"),
        lambda o: h.get_wsd_schedule(o, 6, 14, num_stable_steps=20),
    ),
]


def main():
    out = {"torch": torch.__version__, "transformers": transformers.__version__, "cases": CASES}
    folder = os.path.join(sys.argv[1], "schedules")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(out, file)
        file.write("\n")


if __name__ == "__main__":
    main()
