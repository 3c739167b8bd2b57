#!/usr/bin/env python3
"""Golden values for objective.type=distillation from PyPI's trl: distillation/golden.json.

    python3 distillation_generate.py OUTPUT_DIR

Two batches of random logits of student and teacher, some tokens without a target. For each case: the divergence, which is
GKDTrainer.generalized_jsd_loss over the tokens with a target, their mean cross-entropy, the weighted sum of both and its gradient with respect
to the student's logits, all in float64. Made with trl 1.16.0, torch 2.15.0 (CPU), Python 3.11.
"""

import argparse
import json
import os

import torch
import torch.nn.functional as F
from trl.experimental.gkd import GKDTrainer

VOCAB, SHAPES = 13, ((2, 5), (3, 4))  # sequences and tokens of the batches
CASES = (  # beta as in trl: 0 is forward_kl, 1 is reverse_kl, else jsd
    dict(beta=0.0, temperature=1.0, alpha=0.0),
    dict(beta=0.0, temperature=2.0, alpha=0.25),
    dict(beta=1.0, temperature=1.0, alpha=0.0),
    dict(beta=1.0, temperature=0.5, alpha=0.5),
    dict(beta=0.5, temperature=1.0, alpha=0.0),
    dict(beta=0.1, temperature=1.5, alpha=0.1),
    dict(beta=0.9, temperature=3.0, alpha=1.0),
)


def of_case(student, teacher, labels, case):
    student = student.clone().requires_grad_()
    divergence = GKDTrainer.generalized_jsd_loss(student, teacher, labels, case["beta"], case["temperature"])
    tokens = F.cross_entropy(student.flatten(0, 1), labels.flatten(), ignore_index=-100)
    loss = case["alpha"] * tokens + (1 - case["alpha"]) * divergence
    loss.backward()
    return dict(case, kl=divergence.item(), ce_loss=tokens.item(), loss=loss.item(), gradient=student.grad.flatten().tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    folder = os.path.join(parser.parse_args().output, "distillation")
    os.makedirs(folder, exist_ok=True)
    draws = torch.Generator().manual_seed(17)
    batches = []
    for rows, tokens in SHAPES:
        # Values that fp32 has, some of them far apart, so that probabilities of both underflow.
        student, teacher = (4 * torch.randn(rows, tokens, VOCAB, generator=draws) for _ in range(2))
        teacher[0, 0, 3] += 150
        labels = torch.randint(0, VOCAB, (rows, tokens), generator=draws)
        labels[:, 1] = -100
        cases = [of_case(student.double(), teacher.double(), labels, case) for case in CASES]
        targets = torch.where(labels < 0, -1, labels)
        batches.append(dict(vocab=VOCAB, student=student.flatten().tolist(), teacher=teacher.flatten().tolist(),
                            targets=targets.flatten().tolist(), cases=cases))
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(dict(batches=batches), file)
        file.write("\n")


if __name__ == "__main__":
    main()
