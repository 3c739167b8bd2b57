#!/usr/bin/env python3
"""Frequencies and attention factors of scaled rotary positions from Hugging Face transformers: rope/golden.json.

    python3 rope_generate.py OUTPUT_DIR

Each case holds mtrain's settings (model.rope), the width of a head, the length of the sequences, and what
ROPE_INIT_FUNCTIONS of transformers gives for the same model: the angle of each pair per position, and the factor of
cosines and sines. tests/unit/nn/rope_golden_test.cc compares mtrain's tables with them.
"""

import json
import os
import sys

import torch
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

KEYS = {"original_max_positions": "original_max_position_embeddings", "percent": "partial_rotary_factor"}
SHORT = [1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 2.5, 3.0]
LONG = [1.1, 1.3, 2.0, 4.5, 9.0, 17.5, 30.25, 62.0]
CASES = [
    # settings, head width, length, max_position_embeddings
    (dict(scaling="linear", factor=8.0, theta=1e6), 16, 64, 256),
    (dict(scaling="linear", factor=2.5, percent=0.25), 64, 64, 256),
    (dict(scaling="dynamic", factor=4.0, original_max_positions=128), 16, 300, 128),
    (dict(scaling="dynamic", factor=4.0, original_max_positions=128), 16, 100, 128),
    (dict(scaling="dynamic", factor=2.0, original_max_positions=128, percent=0.5), 32, 1000, 128),
    (dict(scaling="yarn", factor=40.0, original_max_positions=4096), 64, 64, 163840),
    (dict(scaling="yarn", factor=32.0, original_max_positions=4096, theta=150000.0, truncate=False), 64, 64, 131072),
    (dict(scaling="yarn", factor=40.0, original_max_positions=4096, mscale=0.707, mscale_all_dim=1.0), 64, 64, 163840),
    (dict(scaling="yarn", factor=40.0, original_max_positions=4096, mscale=0.707), 64, 64, 163840),
    (dict(scaling="yarn", factor=4.0, original_max_positions=256, beta_fast=16.0, beta_slow=2.0), 32, 64, 1024),
    (dict(scaling="yarn", factor=4.0, original_max_positions=8, attention_factor=1.25), 16, 64, 32),
    (dict(scaling="longrope", factor=32.0, original_max_positions=64, short_factor=SHORT, long_factor=LONG), 16, 64, 2048),
    (dict(scaling="longrope", factor=32.0, original_max_positions=64, short_factor=SHORT, long_factor=LONG), 16, 65, 2048),
    (
        dict(
            scaling="longrope", factor=1.0, original_max_positions=64, short_factor=SHORT, long_factor=LONG, percent=0.5,
            attention_factor=1.19,
        ),
        32, 100, 64,
    ),
    (dict(scaling="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=400), 16, 64, 3200),
]


def parameters(settings):
    out = {KEYS.get(name, name): value for name, value in settings.items() if name not in ("scaling", "theta")}
    return dict(out, rope_type=settings["scaling"], rope_theta=settings.get("theta", 10000.0))


def case(settings, head_dim, length, positions):
    config = LlamaConfig(
        hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim, max_position_embeddings=positions,
        rope_parameters=parameters(settings),
    )
    function = ROPE_INIT_FUNCTIONS[settings["scaling"]]
    frequencies, factor = function(config, "cpu", seq_len=length)
    return {
        "settings": settings, "head_dim": head_dim, "length": length,
        "frequencies": [float(f"{f:.8g}") for f in frequencies.double().tolist()], "attention_factor": float(factor),
    }


def main():
    directory = os.path.join(sys.argv[1], "rope")
    os.makedirs(directory, exist_ok=True)
    golden = {"made_with": f"torch {torch.__version__}, transformers {transformers.__version__}"}
    golden["cases"] = [case(*row) for row in CASES]
    with open(os.path.join(directory, "golden.json"), "w") as f:
        f.write("{\n" + f' "made_with": {json.dumps(golden["made_with"])},\n "cases": [\n')
        f.write(",\n".join("  " + json.dumps(c) for c in golden["cases"]) + "\n ]\n}\n")


main()
