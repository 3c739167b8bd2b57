#!/usr/bin/env python3
"""Golden values for GPT-2 from Hugging Face transformers: gpt2_tiny/ and gpt2_tiny_sharded/.

    python3 gpt2_generate.py OUTPUT_DIR [--fp64-report]

Writes OUTPUT_DIR/gpt2_tiny (config, weights, expected logits, step-0 gradients, parameters after five AdamW steps) and
OUTPUT_DIR/gpt2_tiny_sharded (the same weights in several shards with an index), replacing both. With --fp64-report
the same files are written, and the fp32 numbers are compared with a float64 run of the forward pass written out below.
"""

import argparse
import math
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import golden_common as common

CONFIG = dict(
    n_layer=3, n_embd=32, n_head=4, vocab_size=192, n_positions=64, activation_function="gelu_new",
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, summary_first_dropout=0.0,
    initializer_range=0.08, bos_token_id=0, eos_token_id=0,
)
WEIGHT_SEED, BATCH_SEED, ROWS, LENGTH = 20240117, 7331, 3, 33


def plain_forward(p, ids):
    """GPT-2 from its definition, in the precision of `p`. Linear weights are stored [in, out]."""
    c = CONFIG
    width, heads = c["n_embd"], c["n_head"]
    rows, length = ids.shape
    x = p["transformer.wte.weight"][ids] + p["transformer.wpe.weight"][:length]
    mask = torch.ones(length, length, dtype=torch.bool).tril()

    def norm(v, name):
        centred = v - v.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)
        return scaled * p[name + ".weight"] + p[name + ".bias"]

    def linear(v, name):
        return v @ p[name + ".weight"] + p[name + ".bias"]

    for i in range(c["n_layer"]):
        h = f"transformer.h.{i}."
        q, k, v = linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(width, dim=-1)
        q, k, v = (t.reshape(rows, length, heads, -1).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(width // heads)
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
        x = x + linear((weights @ v).transpose(1, 2).reshape(rows, length, width), h + "attn.c_proj")
        u = linear(norm(x, h + "ln_2"), h + "mlp.c_fc")
        u = 0.5 * u * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (u + 0.044715 * u**3)))
        x = x + linear(u, h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ p["transformer.wte.weight"].T


def split_key_bias(name, t):
    """A key bias shifts all scores of a query alike; softmax removes that: the true gradient is 0."""
    if not name.endswith("attn.c_attn.bias"):
        return {name: t}
    q, k, v = t.chunk(3)
    return {name + "[q]": q, name + "[k]!": k, name + "[v]": v}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    parser.add_argument("--fp64-report", action="store_true")
    args = parser.parse_args()
    common.setup()

    model = GPT2LMHeadModel._from_config(GPT2Config(**CONFIG), attn_implementation="eager")
    assert model.config._attn_implementation == "eager"
    common.randomise(model, WEIGHT_SEED)
    model.train()  # all dropouts are 0
    batch = common.random_batch(BATCH_SEED, ROWS, LENGTH, CONFIG["vocab_size"])

    single = os.path.join(args.output_dir, "gpt2_tiny")
    sharded = os.path.join(args.output_dir, "gpt2_tiny_sharded")
    common.save_hf(model, single)
    common.save_hf(model, sharded, max_shard_size="80KB")

    params = dict(model.named_parameters())  # the tied head appears once, as transformer.wte.weight
    plain64, plain32 = common.as_float64(params), common.as_float32(params)
    result = common.run(params, lambda ids: model(ids, use_cache=False).logits, batch)
    common.save_expected(single, batch, result)
    for directory in (single, sharded):
        common.check_reload(GPT2LMHeadModel, directory, result)

    if args.fp64_report:
        want = common.run(plain64, lambda ids: plain_forward(plain64, ids), batch)
        common.report("transformers fp32 against plain float64", result, want, split_key_bias)
        other = common.run(plain32, lambda ids: plain_forward(plain32, ids), batch)
        common.report("plain fp32 against transformers fp32", other, result, split_key_bias)


if __name__ == "__main__":
    main()
