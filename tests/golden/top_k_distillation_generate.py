#!/usr/bin/env python3
"""Golden values for objective.top_k of distillation: top_k_distillation/golden.json.

    python3 top_k_distillation_generate.py OUTPUT_DIR

The teacher is llama31_tiny, the student llama_tiny (next to this file). For each case: loss, divergence, cross-entropy and gradient norm of
three steps of AdamW on the same four records, and the first 64 of some weights after them. The teacher's k most likely ids have
log-probabilities as mtrain stores them: rounded to fp16, then divided by their sum with the rest. The student's k + 1 log-probabilities are
composed of log_softmax, gather and logsumexp of the other ids, and autograd gives the gradients. With all ids and without rounding, the loss
is that of GKDTrainer.generalized_jsd_loss of PyPI's trl; this is checked here. Made with trl 1.16.0, torch 2.15.0 (CPU), transformers
5.23.0, numpy 2.4.6, Python 3.11.
"""

import argparse
import json
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM
from trl.experimental.gkd import GKDTrainer

import golden_common as common

STEPS, EOS = 3, 2
RECORDS = ((5, 9), (3, 14), (8, 6), (4, 11))  # lengths of prompt and answer
KEPT = ("model.layers.0.self_attn.q_proj.weight", "lm_head.weight")
CASES = {
    "forward_kl": dict(kind="forward_kl", top_k=16),
    "one_id": dict(kind="forward_kl", top_k=1),
    "temperature": dict(kind="forward_kl", top_k=5, temperature=2.0, alpha=0.25),
    "reverse_kl": dict(kind="reverse_kl", top_k=8),
    "reverse_kl_sharp": dict(kind="reverse_kl", top_k=32, temperature=0.5, alpha=0.5),
    "jsd": dict(kind="jsd", beta=0.3, top_k=12, temperature=1.5),
    "all_ids": dict(kind="forward_kl", top_k=200),
    "all_ids_jsd": dict(kind="jsd", beta=0.6, top_k=200, alpha=0.1),
}


def records():
    rng = np.random.RandomState(31)
    ids = lambda n: [int(i) for i in rng.randint(3, 90, size=n)]  # ASCII characters of the test's tokenizer
    return [{"prompt": ids(p), "completion": ids(c)} for p, c in RECORDS]


def load(name):
    here = os.path.dirname(os.path.abspath(__file__))
    return AutoModelForCausalLM.from_pretrained(os.path.join(here, name), attn_implementation="eager", dtype=torch.float32)


def logits_of(model, record):
    """Logits and targets of the answer's tokens."""
    ids = torch.tensor([record["prompt"] + record["completion"] + [EOS]])
    first = len(record["prompt"]) - 1
    return model(ids, use_cache=False).logits[0, first:-1], ids[0, first + 1:]


def most_likely(logits, k, temperature, rounded=True):
    """Ids, their log-probabilities and that of the rest (None: there are no others)."""
    logs = F.log_softmax(logits.double() / temperature, dim=-1)
    order = torch.argsort(logs, dim=-1, descending=True, stable=True)
    ids, others = order[:, :k], order[:, k:]
    top = logs.gather(1, ids)
    top = top.half().double() if rounded else top
    parts = [top]
    if others.shape[1] > 0:
        parts.append(logs.gather(1, others).logsumexp(-1, keepdim=True))
    outcomes = torch.cat(parts, dim=1)
    return ids, others, outcomes - outcomes.logsumexp(-1, keepdim=True)


def divergence(student, ids, others, teacher, case):
    """Mean over tokens, of the k ids and the rest."""
    logs = F.log_softmax(student / case.get("temperature", 1.0), dim=-1)
    parts = [logs.gather(1, ids)]
    if others.shape[1] > 0:
        parts.append(logs.gather(1, others).logsumexp(-1, keepdim=True))
    s, t = torch.cat(parts, dim=1), teacher.to(logs.dtype)
    kl = lambda a, b: (a.exp() * (a - b)).sum(-1)
    if case["kind"] == "forward_kl":
        return kl(t, s).sum()
    if case["kind"] == "reverse_kl":
        return kl(s, t).sum()
    beta = case["beta"]
    m = torch.logsumexp(torch.stack([t + math.log(beta), s + math.log(1 - beta)]), dim=0)
    return (beta * kl(t, m) + (1 - beta) * kl(s, m)).sum()


def check_whole(student, teacher, rows):
    """All ids without rounding give trl's loss."""
    for beta, kind in ((0.0, "forward_kl"), (1.0, "reverse_kl"), (0.3, "jsd")):
        for record in rows:
            with torch.no_grad():
                (s, targets), (t, _) = logits_of(student, record), logits_of(teacher, record)
                s, t = s.double(), t.double()
                case = dict(kind=kind, beta=beta, temperature=1.7)
                mine = divergence(s, *most_likely(t, t.shape[1], 1.7, False), case) / len(targets)
                trl = GKDTrainer.generalized_jsd_loss(s[None], t[None], targets[None], beta, 1.7)
            assert abs(mine.item() - trl.item()) < 1e-9 * max(1, abs(trl.item())), (kind, mine, trl)


def of_case(rows, case):
    student, teacher = load("llama_tiny"), load("llama31_tiny")
    alpha = case.get("alpha", 0.0)
    with torch.no_grad():
        stored = [most_likely(logits_of(teacher, r)[0], case["top_k"], case.get("temperature", 1.0)) for r in rows]

    def evaluate():
        kl = ce = count = 0
        for record, known in zip(rows, stored):
            logits, targets = logits_of(student, record)
            kl = kl + divergence(logits, *known, case)
            ce = ce + F.cross_entropy(logits, targets, reduction="sum")
            count += len(targets)
        kl, ce = kl / count, ce / count
        return alpha * ce + (1 - alpha) * kl, {"kl": kl.item(), "ce_loss": ce.item()}

    return {"settings": case, **common.train_by(student, evaluate, STEPS, KEPT)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    folder = os.path.join(parser.parse_args().output, "top_k_distillation")
    os.makedirs(folder, exist_ok=True)
    common.setup()
    rows = records()
    check_whole(load("llama_tiny"), load("llama31_tiny"), rows)
    cases = {name: of_case(rows, case) for name, case in CASES.items()}
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(dict(records=rows, cases=cases), file)
        file.write("\n")


if __name__ == "__main__":
    main()
