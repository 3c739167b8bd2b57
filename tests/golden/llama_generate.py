#!/usr/bin/env python3
"""Golden values for Llama from Hugging Face transformers: llama_tiny/, llama31_tiny/ and llama31_smooth_tiny/.

    python3 llama_generate.py OUTPUT_DIR [--fp64-report]

All have an untied head and grouped-query attention. llama_tiny uses plain rotary embeddings, llama31_tiny the "llama3"
frequency scaling on longer sequences; files as for gpt2_tiny, and sets of those names in OUTPUT_DIR are replaced. With
llama31_tiny's settings every frequency is either kept or divided by the factor, none falls between; so
llama31_smooth_tiny runs the same weights under another original context, where one frequency of the four does
(config, weights and logits of one sequence only). config.json is written with the keys of published Llama 3.x
checkpoints (rope_theta and rope_scaling at top level); config.rope_parameters.json holds what this release of
transformers writes for the same model (both inside rope_parameters). With --fp64-report the same files are written,
and the fp32 numbers are compared with a float64 run of the forward pass written out below.
"""

import argparse
import json
import math
import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import golden_common as common

BASE = dict(
    hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=8, vocab_size=200, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False,
    attention_bias=False, mlp_bias=False, attention_dropout=0.0, initializer_range=0.08, bos_token_id=1, eos_token_id=2,
)
THETA = 500000.0
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
)
SMOOTH = dict(LLAMA3, original_max_position_embeddings=400)
SMOOTH_POSITIONS = 3200
SETS = {
    # name: (max positions, rope scaling, weight seed, batch seed, rows, length)
    "llama_tiny": (128, None, 20240418, 4096, 3, 33),
    "llama31_tiny": (256, LLAMA3, 20240723, 8192, 3, 80),
}


def inverse_frequencies(scaling, dtype):
    """One angle per pair of dimensions and position; computed in float64, then rounded to `dtype`."""
    dim = BASE["head_dim"]
    inv = THETA ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if scaling:
        wavelength = 2 * math.pi / inv
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = scaling["original_max_position_embeddings"] / wavelength  # full turns inside the original context
        smooth = ((turns - low) / (high - low)).clamp(0, 1)  # 0: slowed by factor; 1: left as it is
        inv = (1 - smooth) * inv / scaling["factor"] + smooth * inv
    return inv.to(dtype)


def plain_forward(p, ids, scaling):
    """Llama from its definition, in the precision of `p`. Linear weights are stored [out, in]."""
    heads, groups, dim = BASE["num_attention_heads"], BASE["num_key_value_heads"], BASE["head_dim"]
    rows, length = ids.shape
    x = p["model.embed_tokens.weight"][ids]
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    angle = torch.outer(torch.arange(length, dtype=x.dtype), inverse_frequencies(scaling, x.dtype))
    cos, sin = angle.cos(), angle.sin()

    def norm(v, name):
        return v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + BASE["rms_norm_eps"]) * p[name + ".weight"]

    def rotate(v):  # dimension j is paired with j + dim/2
        a, b = v[..., : dim // 2], v[..., dim // 2 :]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def split(v, n):
        return v.reshape(rows, length, n, dim).transpose(1, 2)

    for i in range(BASE["num_hidden_layers"]):
        h = f"model.layers.{i}."
        y = norm(x, h + "input_layernorm")
        q = rotate(split(y @ p[h + "self_attn.q_proj.weight"].T, heads))
        k = rotate(split(y @ p[h + "self_attn.k_proj.weight"].T, groups))
        v = split(y @ p[h + "self_attn.v_proj.weight"].T, groups)
        k, v = (t.repeat_interleave(heads // groups, dim=1) for t in (k, v))
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(dim)
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
        y = (weights @ v).transpose(1, 2).reshape(rows, length, heads * dim)
        x = x + y @ p[h + "self_attn.o_proj.weight"].T
        y = norm(x, h + "post_attention_layernorm")
        gate = y @ p[h + "mlp.gate_proj.weight"].T
        up = y @ p[h + "mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ p[h + "mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ p["lm_head.weight"].T


def build(positions, scaling, weight_seed):
    rope = dict(scaling or {"rope_type": "default"}, rope_theta=THETA)
    config = LlamaConfig(**BASE, max_position_embeddings=positions, rope_parameters=rope)
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    assert model.config._attn_implementation == "eager"
    common.randomise(model, weight_seed)
    return model.train()


def publish_config(directory, positions, scaling):
    """Set the config transformers wrote aside, and write one with the keys of published checkpoints."""
    path = os.path.join(directory, "config.json")
    os.rename(path, os.path.join(directory, "config.rope_parameters.json"))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **BASE}
    config.update(max_position_embeddings=positions, rope_theta=THETA, rope_scaling=scaling, torch_dtype="float32")
    with open(path, "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


def check_frequencies(name, model, scaling):
    """The frequencies transformers uses against those computed here."""
    ours = inverse_frequencies(scaling, torch.float64)
    worst = ((model.model.rotary_emb.inv_freq.double() - ours) / ours).abs().max().item()
    assert worst < 1e-6, (name, worst)
    return f"{name}: inverse frequencies {ours.tolist()}, transformers within {worst:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    parser.add_argument("--fp64-report", action="store_true")
    args = parser.parse_args()
    common.setup()

    for name, (positions, scaling, weight_seed, batch_seed, rows, length) in SETS.items():
        model = build(positions, scaling, weight_seed)
        frequencies = check_frequencies(name, model, scaling)
        batch = common.random_batch(batch_seed, rows, length, BASE["vocab_size"])

        directory = os.path.join(args.output_dir, name)
        common.save_hf(model, directory)
        params = dict(model.named_parameters())
        plain64, plain32 = common.as_float64(params), common.as_float32(params)
        result = common.run(params, lambda ids: model(ids, use_cache=False).logits, batch)
        common.save_expected(directory, batch, result)
        common.check_reload(LlamaForCausalLM, directory, result)
        publish_config(directory, positions, scaling)
        common.check_reload(LlamaForCausalLM, directory, result)

        if args.fp64_report:
            print(frequencies)
            want = common.run(plain64, lambda ids: plain_forward(plain64, ids, scaling), batch)
            common.report(f"{name}: transformers fp32 against plain float64", result, want)
            other = common.run(plain32, lambda ids: plain_forward(plain32, ids, scaling), batch)
            common.report(f"{name}: plain fp32 against transformers fp32", other, result)

    name, directory = "llama31_smooth_tiny", os.path.join(args.output_dir, "llama31_smooth_tiny")
    _, _, weight_seed, batch_seed, rows, length = SETS["llama31_tiny"]
    model = build(SMOOTH_POSITIONS, SMOOTH, weight_seed)
    frequencies = check_frequencies(name, model, SMOOTH)
    ids = common.random_batch(batch_seed, rows, length, BASE["vocab_size"])[:1, :-1].contiguous()
    common.save_hf(model, directory)
    with torch.no_grad():
        result = {"input_ids": ids, "logits": model(ids, use_cache=False).logits}
        want = plain_forward(common.as_float64(dict(model.named_parameters())), ids, SMOOTH)
    common.save_logits(directory, result)
    common.check_reload(LlamaForCausalLM, directory, result)
    publish_config(directory, SMOOTH_POSITIONS, SMOOTH)
    common.check_reload(LlamaForCausalLM, directory, result)
    if args.fp64_report:
        print(frequencies)
        worst = (result["logits"].double() - want).abs().max().item()
        print(f"== {name}: transformers fp32 against plain float64\n  logits   max abs {worst:.2e}")


if __name__ == "__main__":
    main()
