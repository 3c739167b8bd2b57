#!/usr/bin/env python3
"""Golden values for BERT from Hugging Face transformers: bert_tiny/.

    python3 bert_generate.py OUTPUT_DIR [--fp64-report]

Writes OUTPUT_DIR/bert_tiny (config, weights, expected logits, step-0 gradients, parameters after five AdamW steps), replacing it.
Some tokens of the batch are hidden as masked language modelling hides them; `targets` in golden.json has their ids, and -1
elsewhere. With --fp64-report the same files are written, and the fp32 numbers are compared with a float64 run of the forward pass
written out below.
"""

import argparse
import math
import os

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

import golden_common as common

CONFIG = dict(
    num_hidden_layers=3, hidden_size=32, num_attention_heads=4, intermediate_size=80, vocab_size=192,
    max_position_embeddings=64, type_vocab_size=2, hidden_act="gelu", hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0, initializer_range=0.08, layer_norm_eps=1e-12, pad_token_id=0,
)
WEIGHT_SEED, BATCH_SEED, ROWS, LENGTH, MASK = 20240611, 9241, 3, 33, 4


def masked_batch():
    """Ids above the special ones, and targets: 15 % of the places, of which 80 % hold the mask, 10 % another id, 10 % their own."""
    rng = np.random.RandomState(BATCH_SEED)
    ids = rng.randint(5, CONFIG["vocab_size"], size=(ROWS, LENGTH)).astype(np.int64)  # not 0: its row is no input's
    targets = np.full_like(ids, -1)
    for row in range(ROWS):
        chosen = rng.permutation(LENGTH)[: max(1, round(0.15 * LENGTH))]
        targets[row, chosen] = ids[row, chosen]
        draw, other = rng.random_sample(len(chosen)), rng.randint(5, CONFIG["vocab_size"], size=len(chosen))
        ids[row, chosen] = np.where(draw < 0.8, MASK, np.where(draw < 0.9, other, ids[row, chosen]))
    return torch.from_numpy(ids), torch.from_numpy(targets)


def plain_forward(p, ids):
    """BERT from its definition, in the precision of `p`."""
    c = CONFIG
    width, heads = c["hidden_size"], c["num_attention_heads"]
    rows, length = ids.shape

    def norm(v, name):
        centred = v - v.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + c["layer_norm_eps"])
        return scaled * p[name + ".weight"] + p[name + ".bias"]

    def linear(v, name):
        return v @ p[name + ".weight"].T + p[name + ".bias"]

    def gelu(v):
        return 0.5 * v * (1.0 + torch.erf(v / math.sqrt(2.0)))

    e = "bert.embeddings."
    x = p[e + "word_embeddings.weight"][ids] + p[e + "position_embeddings.weight"][:length]
    x = norm(x + p[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
    for i in range(c["num_hidden_layers"]):
        b = f"bert.encoder.layer.{i}."
        q, k, v = (
            linear(x, b + "attention.self." + part).reshape(rows, length, heads, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        weights = ((q @ k.transpose(-1, -2)) / math.sqrt(width // heads)).softmax(-1)
        seen = (weights @ v).transpose(1, 2).reshape(rows, length, width)
        x = norm(x + linear(seen, b + "attention.output.dense"), b + "attention.output.LayerNorm")
        u = linear(gelu(linear(x, b + "intermediate.dense")), b + "output.dense")
        x = norm(x + u, b + "output.LayerNorm")
    t = "cls.predictions.transform."
    x = norm(gelu(linear(x, t + "dense")), t + "LayerNorm")
    return x @ p[e + "word_embeddings.weight"].T + p["cls.predictions.bias"]


def split_key_bias(name, t):
    """A key bias shifts all scores of a query alike; softmax removes that: the true gradient is 0."""
    return {name + "!" if name.endswith("attention.self.key.bias") else name: t}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    parser.add_argument("--fp64-report", action="store_true")
    args = parser.parse_args()
    common.setup()

    model = BertForMaskedLM._from_config(BertConfig(**CONFIG), attn_implementation="eager")
    assert model.config._attn_implementation == "eager"
    common.randomise(model, WEIGHT_SEED)
    model.train()  # all dropouts are 0
    ids, targets = masked_batch()

    folder = os.path.join(args.output_dir, "bert_tiny")
    common.save_hf(model, folder)
    params = dict(model.named_parameters())  # the tied head and its bias appear once
    plain64, plain32 = common.as_float64(params), common.as_float32(params)
    result = common.run(params, lambda x: model(x).logits, ids, targets)
    common.save_expected(folder, ids, result, targets)
    common.check_reload(BertForMaskedLM, folder, result)

    if args.fp64_report:
        want = common.run(plain64, lambda x: plain_forward(plain64, x), ids, targets)
        common.report("transformers fp32 against plain float64", result, want, split_key_bias)
        other = common.run(plain32, lambda x: plain_forward(plain32, x), ids, targets)
        common.report("plain fp32 against transformers fp32", other, result, split_key_bias)


if __name__ == "__main__":
    main()
