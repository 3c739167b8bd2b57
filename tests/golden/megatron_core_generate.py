#!/usr/bin/env python3
"""Writes megatron_core/golden.json: what the samples of Megatron-core's GPTDataset and BlendedDataset are for random
configurations of files, sequence length, seed, split, sizes, blend and end-of-document settings.

    python3 megatron_core_generate.py FOLDER      the folder that holds megatron/core of the PyPI package megatron-core

Made with megatron-core 0.16.1, torch 1.13.1 (CPU; Debian's python3-torch) and numpy 1.24. Only the package's dataset code
runs; two modules that it names but that want newer libraries and GPUs are stood in for: `core.utils` (a logger) and
`core.tokenizers` (a base class).

A file has sequences of lengths (i * step + start) % modulus + least, one a document; token p of file f is
(7 p + 9973 f) % 65213, and the last of each document is 65213, the end of document. For each split the golden file
keeps the number of samples, the SHA-256 of all of them in order (tokens, labels, positions as little-endian int32, with
-1 for a label outside the loss), and the first tokens of the first and last samples.
"""
import hashlib
import json
import pathlib
import random
import sys
import tempfile
import types

import numpy

EOD = 65213


def load_megatron(folder):
    root = pathlib.Path(folder) / "megatron"
    for name, path in [("megatron", root), ("megatron.core", root / "core")]:
        module = types.ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module
    utils = types.ModuleType("megatron.core.utils")
    utils.log_single_rank = lambda *a, **k: None
    sys.modules["megatron.core.utils"] = utils
    tokenizers = types.ModuleType("megatron.core.tokenizers")
    tokenizers.MegatronTokenizerBase = object
    sys.modules["megatron.core.tokenizers"] = tokenizers


class Tokenizer:
    vocab_size = EOD + 1
    eod = EOD
    unique_identifiers = {"name": "numbers"}


def lengths_of(rule):
    i = numpy.arange(rule["count"], dtype=numpy.int64)
    return ((i * rule["step"] + rule["start"]) % rule["modulus"] + rule["least"]).astype(numpy.int32)


def write(prefix, number, rule):
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    import torch

    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
    lengths = lengths_of(rule)
    tokens = ((numpy.arange(lengths.sum(), dtype=numpy.int64) * 7 + 9973 * number) % EOD).astype(numpy.int64)
    tokens[numpy.cumsum(lengths.astype(numpy.int64)) - 1] = EOD
    at = 0
    for length in lengths:
        builder.add_document(torch.from_numpy(tokens[at:at + length]), [int(length)])
        at += int(length)
    builder.finalize(prefix + ".idx")


def samples(dataset):
    if dataset is None:
        return None
    digest, rows = hashlib.sha256(), []
    for i in range(len(dataset)):
        item = dataset[i]
        labels = numpy.where(item["loss_mask"].numpy() > 0, item["labels"].numpy(), -1)
        row = numpy.stack([item["tokens"].numpy(), labels, item["position_ids"].numpy()]).astype("<i4")
        digest.update(row.tobytes())
        rows.append([int(x) for x in row[0][:3]])
    return {"size": len(dataset), "sha256": digest.hexdigest(), "first": rows[:3], "last": rows[-1]}


def random_file(rng):
    return {"count": rng.choice([3, 17, 100, 400]), "step": rng.choice([7919, 104729, 1]), "start": rng.randrange(50),
            "modulus": rng.choice([61, 199, 509]), "least": rng.choice([1, 1, 5, 40])}


def random_case(rng, kind):
    files = [random_file(rng) for _ in range(1 if kind == "one" else rng.choice([2, 3, 5]))]
    case = {"kind": kind, "files": files, "seq_length": rng.choice([16, 33, 64, 128]), "seed": rng.randrange(2**31),
            "reset_position_ids": rng.random() < 0.4, "eod_mask_loss": rng.random() < 0.4, "drop_last": rng.random() < 0.6}
    total = sum(int(lengths_of(f).sum()) for f in files) // case["seq_length"]
    train = rng.randrange(1, min(2500, max(2, int(total * rng.choice([0.5, 1, 3.3, 7])))))
    case["sizes"] = [train, rng.randrange(1, max(2, total // 4)), rng.choice([None, rng.randrange(1, 9)])]
    weights = lambda n: [round(rng.uniform(0.05, 3), 3) for _ in range(n)]
    if kind == "per_split":
        order = list(range(len(files)))
        parts = [sorted(rng.sample(order, rng.randint(1, len(order)))) for _ in range(3)]
        case["parts"] = [{"files": p, "weights": weights(len(p)) if len(p) > 1 and rng.random() < 0.7 else None} for p in parts]
        for i in range(3):
            if case["parts"][i]["weights"] is None and len(case["parts"][i]["files"]) > 1:
                case["sizes"][i] = None
    else:
        case["split"] = rng.choice(["969,30,1", "8,1,1", "90,5,5", "1,1,1", "70,30,0"])
        case["weights"] = weights(len(files)) if kind == "weights" else None
        if kind == "sizes":
            case["sizes"] = [None, None, None]
        elif case["sizes"][2] is None and kind == "weights":
            case["sizes"][2] = 3
    return case


def fillable(case):
    """Whether each split of each file has tokens for a sample: Megatron does not end where one has none at all."""
    if case["kind"] == "per_split":
        return True
    shares = numpy.array([float(x) for x in case["split"].split(",")])
    ends = numpy.concatenate([[0], numpy.cumsum(shares / shares.sum())])
    for rule in case["files"]:
        at = [round(float(end) * rule["count"]) for end in ends]
        sums = [int(lengths_of(rule)[a:b].sum()) for a, b in zip(at, at[1:])]
        if any(share > 0 and tokens <= case["seq_length"] for share, tokens in zip(shares, sums)):
            return False
    return True


def run(case):
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    with tempfile.TemporaryDirectory() as folder:
        names = []
        for number, rule in enumerate(case["files"]):
            names.append(f"{folder}/f{number}")
            write(names[-1], number, rule)
        blend = {"split": case.get("split")}
        if case["kind"] == "per_split":
            blend = {"blend_per_split": [([names[i] for i in p["files"]], p["weights"]) for p in case["parts"]]}
        else:
            blend["blend"] = (names, case["weights"])
        config = GPTDatasetConfig(random_seed=case["seed"], sequence_length=case["seq_length"], tokenizer=Tokenizer(),
                                  reset_position_ids=case["reset_position_ids"], reset_attention_mask=False,
                                  eod_mask_loss=case["eod_mask_loss"], create_attention_mask=False,
                                  drop_last_partial_validation_sequence=case["drop_last"], **blend)
        built = BlendedMegatronDatasetBuilder(GPTDataset, case["sizes"], lambda: True, config).build()
        return [samples(dataset) for dataset in built]


def main():
    load_megatron(sys.argv[1])
    rng = random.Random(20261121)
    cases, tried = [], 0
    kinds = ["one", "one", "weights", "sizes", "per_split"]
    while len(cases) < 30:
        tried += 1
        case = random_case(rng, kinds[len(cases) % len(kinds)])
        if not fillable(case):
            continue
        try:
            case["splits"] = run(case)
        except Exception as fault:  # a split without a sample, or one that a blend overdraws
            print(f"left out: {type(fault).__name__}: {str(fault)[:90]}", file=sys.stderr)
            continue
        if sum(s is not None and s["size"] > 0 for s in case["splits"]) < 2:
            continue
        cases.append(case)
        print(len(cases), case["kind"], [s and s["size"] for s in case["splits"]], file=sys.stderr)
    path = pathlib.Path(__file__).parent / "megatron_core" / "golden.json"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({"megatron_core": "0.16.1", "cases": cases}, separators=(",", ":"))
    path.write_text(text.replace('},{"kind"', '},\n{"kind"') + "\n")
    print(f"{len(cases)} of {tried} cases kept", file=sys.stderr)


if __name__ == "__main__":
    main()
