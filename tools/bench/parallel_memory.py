#!/usr/bin/env python3
"""Memory of a rank in parallel layouts, measured and in theory, as a Markdown table.

usage: parallel_memory.py [--mtrain build/bin/mtrain] [--dtype bf16] [--only WORD]
Each line is a run of `mtrain bench` of two steps over threads; layouts that this build refuses are skipped."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, SEQ = 8, 256, 8, 4, 768, 4096, 128
LAYOUTS = [  # name, settings, divisors of parameters, gradients, optimizer state
    ("one rank", {}, (1, 1, 1)),
    ("dp4", {"nproc": 4}, (1, 1, 1)),
    ("dp4 zero1", {"nproc": 4, "zero": 1}, (1, 1, 4)),
    ("dp4 zero2", {"nproc": 4, "zero": 2}, (1, 4, 4)),
    ("dp4 zero3", {"nproc": 4, "zero": 3}, (4, 4, 4)),
    ("tp2", {"nproc": 2, "tp": 2}, (2, 2, 2)),
    ("tp4", {"nproc": 4, "tp": 4}, (4, 4, 4)),
    ("tp4+sp", {"nproc": 4, "tp": 4, "sp": "true"}, (4, 4, 4)),
    ("pp2", {"nproc": 2, "pp": 2}, (2, 2, 2)),
    ("pp4", {"nproc": 4, "pp": 4}, (4, 4, 4)),
    ("cp4", {"nproc": 4, "cp": 4}, (1, 1, 1)),
    ("tp2 pp2 dp2 zero1", {"nproc": 8, "tp": 2, "pp": 2, "zero": 1}, (4, 4, 8)),
]


def recipe(dtype):
    return f"""
model: {{type: llama, layers: {LAYERS}, hidden_size: {HIDDEN}, heads: {HEADS}, kv_heads: {KV_HEADS}, ffn_hidden_size: {FFN},
  vocab_size: {VOCAB}, seq_length: {SEQ}}}
tokenizer: byte
dataset: mock
train: {{steps: 100, micro_batch_size: 2, global_batch_size: 16}}
optimizer: {{type: adamw}}
mixed_precision: {{dtype: {dtype}}}
run: {{threads: 1}}
"""


def bench(mtrain, path, settings):
    words = [f"dist.{key}={value}" for key, value in settings.items()]
    done = subprocess.run([mtrain, "bench", path, *words, "--steps", "2", "--warmup", "1", "--json", "--plain"],
                          capture_output=True, text=True)
    if done.returncode:
        print(f"{' '.join(words)}: skipped: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mtrain", default="build/bin/mtrain")
    parser.add_argument("--dtype", default="bf16", choices=["fp32", "bf16"])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    # Bytes per parameter: compute copies (and, in bf16, float master weights), float gradients, two moments.
    values, masters = (2, 4) if options.dtype == "bf16" else (4, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "memory.yaml")
        with open(path, "w") as file:
            file.write(recipe(options.dtype))
        print("| layout | parameters and master weights | gradients | moments | activations | total | theory for the first three |")
        print("|---|---|---|---|---|---|---|")
        for name, settings, (shards_p, shards_g, shards_o) in LAYOUTS:
            if options.only not in name:
                continue
            seen = bench(options.mtrain, path, settings)
            if seen is None:
                continue
            n, uses = seen["parameters"], seen["tensor_memory"]["uses"]
            # Master weights of another type than the parameters are sharded with the optimizer state.
            theory = n * (values / shards_p + masters / max(shards_p, shards_o) + 4 / shards_g + 8 / shards_o)
            mib = lambda b: f"{b / 2**20:.1f}"
            rest = sum(b for use, b in uses.items() if use not in ("parameters", "gradients", "optimizer"))
            print(f"| {name} | {mib(uses['parameters'])} | {mib(uses['gradients'])} | {mib(uses['optimizer'])} | {mib(rest)} | "
                  f"{mib(seen['tensor_memory']['bytes'])} | {mib(theory)} |")


if __name__ == "__main__":
    main()
