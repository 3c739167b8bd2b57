#!/usr/bin/env python3
"""Compares every family that has a head of scores (`classification` in its file) with transformers.

    python3 scores_compare.py --mtrain build/bin/mtrain [--tokens] [--only qwen3,llama]

For the first configuration of families_configs.py it makes a tiny random …ForSequenceClassification (fp32, eager attention, three labels), saves
it, and compares the loss over classes of four texts by `mtrain eval`, the bytes of all tensors after `mtrain import` and `mtrain
export`, and the scores of the exported folder, which transformers must load without a warning. With --tokens, the same of families with
`token_classification`, …ForTokenClassification and a class for each token. Exit status: 0 good, 1 not, 77 transformers or torch cannot be
imported.
"""

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    import transformers
    from safetensors.torch import load_file
except ImportError as absent:
    print(absent)
    sys.exit(77)

import golden_common as common
from families_compare import make_model
from families_configs import FAMILIES
from hf_export_check import load_quietly

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LENGTHS, LABELS = (9, 30, 17, 4), (2, 0, 1, 2)
LOSS, EXPORTED = 3e-6, 1e-6  # relative; of the largest score


def families(key):
    for file in sorted(glob.glob(os.path.join(ROOT, "plugins/model/*/families/*.yaml"))):
        found = re.search(rf"^{key}: (\w+)$", open(file).read(), re.M)
        name = os.path.splitext(os.path.basename(file))[0]
        if found and name not in FAMILIES:
            print(f"{name}: not in families_configs.py")
        elif found:
            yield name, found.group(1)


def compare(name, model_class, tokens, mtrain, work):
    family = FAMILIES[name]
    family.model, (_, variant) = model_class, next(iter(family.variants.items()))
    kwargs = {k: v for k, v in variant.items() if k != "documents"}
    model = make_model(family, dict(kwargs, num_labels=3), 7).eval()
    there, out = os.path.join(work, "there"), os.path.join(work, "out")
    common.save_hf(model, there)
    rng = np.random.RandomState(8)
    texts = [rng.randint(5, model.config.vocab_size - 1, size=n).tolist() for n in LENGTHS]
    with open(os.path.join(work, "t.jsonl"), "w") as f:
        for text, label in zip(texts, LABELS):
            words = {"tokens": [str(i) for i in text], "labels": [(i + label) % 3 for i in text]}
            f.write(json.dumps(words if tokens else {"text": " ".join(map(str, text)), "label": label}) + "\n")

    def run(*words):
        done = subprocess.run([mtrain, "-q", *words], cwd=work, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr[-1500:]}")
        return done.stdout

    def scores(of):
        with torch.no_grad():
            return torch.cat([of(torch.tensor([text])).logits.reshape(-1, 3) for text in texts])

    tokenizer = "tokenizer={type: 'null', vocab_size: %d}" % (model.config.vocab_size - 1)
    task = "token_classification" if tokens else "classification"
    ours = json.loads(run("eval", "--from", there, "--json", "--split", "train", "--batches", "all", f"dataset={task}",
                          "dataset.path=t.jsonl", "dataset.split='1'", tokenizer,
                          f"objective={task}", "mixed_precision.dtype=fp32", "model.seq_length=32"))
    want = scores(model)
    labels = [(i + label) % 3 for text, label in zip(texts, LABELS) for i in text] if tokens else LABELS
    theirs = F.cross_entropy(want, torch.tensor(labels)).item()
    faults = [] if abs(ours["loss"] - theirs) <= LOSS * abs(theirs) else [f"loss {ours['loss']}, wanted {theirs}"]
    run("import", there, "run", tokenizer)
    run("export", "run", "out")
    before, after = load_file(os.path.join(there, "model.safetensors")), load_file(os.path.join(out, "model.safetensors"))
    if before.keys() != after.keys():
        faults.append(f"tensors {sorted(before.keys() ^ after.keys())}")
    faults += [f"bytes of {n}" for n in before.keys() & after.keys() if not torch.equal(before[n], after[n])]
    exported, lines = load_quietly(out)
    difference = ((scores(exported) - want).abs().max() / want.abs().max()).item()
    faults += lines + ([] if difference <= EXPORTED else [f"scores of the exported folder differ by {difference:.2e}"])
    print(f"{name}: loss {theirs:.6f}, differs by {abs(ours['loss'] - theirs) / abs(theirs):.1e}; exported scores by {difference:.1e}",
          "".join(f"\n  {fault}" for fault in faults))
    return not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mtrain", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--tokens", action="store_true")
    args = parser.parse_args()
    common.setup()
    torch.use_deterministic_algorithms(False)
    good, mtrain = True, os.path.abspath(args.mtrain)
    for name, model_class in families("token_classification" if args.tokens else "classification"):
        if args.only and name not in args.only.split(","):
            continue
        with tempfile.TemporaryDirectory() as work:
            try:
                good &= compare(name, model_class, args.tokens, mtrain, work)
            except Exception as error:  # the other families are compared all the same
                good = False
                print(f"{name}: {error}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
