#!/usr/bin/env python3
"""Golden values for the variants of decoder blocks from Hugging Face transformers: blocks/.

    python3 blocks_generate.py OUTPUT_DIR

A tiny random model of each family, in fp32: Gemma 2, OLMo, OLMo 2, GPT-NeoX, Phi, Cohere, Granite, Nemotron, GLM-4. For
each, blocks/NAME.safetensors holds the weights under mtrain's names and in its layouts, input_ids and logits;
blocks/golden.json holds mtrain's settings of the model, the mean loss of the next tokens and the norm of its gradient.
Parts that are not a matter of blocks are left out of the models: norms of queries and keys (OLMo 2), soft caps of
attention and windows (Gemma 2), biases of attention (Phi, whose are 0).
"""

import json
import math
import os
import sys

import torch
import transformers as hf
from safetensors.torch import save_file

import golden_common as common

WIDTH, HEADS, GROUPS, DIM, FFN, VOCAB, LAYERS = 16, 4, 2, 8, 24, 48, 2
SIZES = dict(
    hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=FFN, num_hidden_layers=LAYERS, vocab_size=VOCAB,
    max_position_embeddings=64, attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
GROUPED = dict(SIZES, num_key_value_heads=GROUPS)
OURS = dict(layers=LAYERS, hidden_size=WIDTH, heads=HEADS, ffn_hidden_size=FFN)


def fused(q, k, v, heads, groups):
    """Queries, keys and values group by group."""
    parts = []
    for g in range(groups):
        parts += [q.view(groups, -1, *q.shape[1:])[g], k.view(groups, -1, *k.shape[1:])[g], v.view(groups, -1, *v.shape[1:])[g]]
    return torch.cat(parts)


def block(weights, i, theirs, names, groups, mlp):
    """The parameters of a block: attention from q, k and v, and the others by (ours, theirs)."""
    out, ours = {}, f"layers.{i}."
    q, k, v = (weights[f"{theirs}self_attn.{part}_proj.weight"] for part in "qkv")
    out[ours + "attn.qkv.weight"] = fused(q, k, v, HEADS, groups)
    for mine, other in [*names, *mlp]:
        for kind in ("weight", "bias"):
            if f"{theirs}{other}.{kind}" in weights and (mine, kind) != ("attn.out", "bias"):
                out[f"{ours}{mine}.{kind}"] = weights[f"{theirs}{other}.{kind}"]
    return out


GATED = [("mlp.gate", "mlp.gate_proj"), ("mlp.up", "mlp.up_proj"), ("mlp.down", "mlp.down_proj")]
PLAIN = GATED[1:]
OUT = [("attn.out", "self_attn.o_proj")]
PRE = [("norm1", "input_layernorm"), ("norm2", "post_attention_layernorm"), *OUT]


def llama_like(weights, names, groups, mlp=GATED, last="model.norm"):
    out = {"embed.weight": weights["model.embed_tokens.weight"]}
    for kind in ("weight", "bias"):
        for mine, other in (("norm", last), ("head", "lm_head")):
            if f"{other}.{kind}" in weights:
                out[f"{mine}.{kind}"] = weights[f"{other}.{kind}"]
    for i in range(LAYERS):
        out.update(block(weights, i, f"model.layers.{i}.", names, groups, mlp))
    return out


def neox(weights):
    out = {"embed.weight": weights["gpt_neox.embed_in.weight"], "head.weight": weights["lm_head.weight"]}
    for kind in ("weight", "bias"):
        out["norm." + kind] = weights["gpt_neox.final_layer_norm." + kind]
    pairs = [
        ("norm1", "input_layernorm"), ("norm2", "post_attention_layernorm"), ("attn.qkv", "attention.query_key_value"),
        ("attn.out", "attention.dense"), ("mlp.up", "mlp.dense_h_to_4h"), ("mlp.down", "mlp.dense_4h_to_h"),
    ]
    for i in range(LAYERS):
        for mine, other in pairs:
            for kind in ("weight", "bias"):
                if f"gpt_neox.layers.{i}.{other}.{kind}" in weights:
                    out[f"layers.{i}.{mine}.{kind}"] = weights[f"gpt_neox.layers.{i}.{other}.{kind}"]
    return out


def split_gate(weights):
    """GLM-4 stores gate and up as one matrix."""
    out = dict(weights)
    for i in range(LAYERS):
        both = out.pop(f"model.layers.{i}.mlp.gate_up_proj.weight")
        out[f"model.layers.{i}.mlp.gate_proj.weight"], out[f"model.layers.{i}.mlp.up_proj.weight"] = both.chunk(2)
    return out


def rope(**more):
    return dict({"rope_type": "default", "rope_theta": 10000.0}, **more)


def families():
    """name: (model, mtrain's settings, from its weights to ours)"""
    sandwich = [
        ("norm1", "input_layernorm"), ("norm1_after", "post_attention_layernorm"),
        ("norm2", "pre_feedforward_layernorm"), ("norm2_after", "post_feedforward_layernorm"), *OUT,
    ]
    yield "gemma2", hf.Gemma2ForCausalLM(
        hf.Gemma2Config(
            **GROUPED, head_dim=DIM, query_pre_attn_scalar=DIM, attn_logit_softcapping=None, final_logit_softcapping=3.0,
            sliding_window=4096,
        )
    ), dict(
        kv_heads=GROUPS, head_dim=DIM, norm_eps=1e-6, norm_position="sandwich", norm_zero_centered=True,
        activation="gelu_new", embedding_multiplier=0, logit_cap=3.0, tie_embeddings=True,
    ), lambda w: llama_like(w, sandwich, GROUPS)

    yield "olmo", hf.OlmoForCausalLM(hf.OlmoConfig(**GROUPED, tie_word_embeddings=False)), dict(
        kv_heads=GROUPS, norm="layer", norm_weight=False,
    ), lambda w: llama_like(w, OUT, GROUPS)

    olmo2 = hf.Olmo2ForCausalLM(hf.Olmo2Config(**GROUPED, tie_word_embeddings=False))
    for layer in olmo2.model.layers:
        layer.self_attn.q_norm = layer.self_attn.k_norm = torch.nn.Identity()
    after = [("norm1_after", "post_attention_layernorm"), ("norm2_after", "post_feedforward_layernorm"), *OUT]
    yield "olmo2", olmo2, dict(kv_heads=GROUPS, norm_position="post"), lambda w: llama_like(w, after, GROUPS)

    yield "gpt_neox", hf.GPTNeoXForCausalLM(
        hf.GPTNeoXConfig(
            **SIZES, attention_bias=False, hidden_dropout=0.0, attention_dropout=0.0, use_parallel_residual=True,
            rope_parameters=rope(partial_rotary_factor=0.5),
        )
    ), dict(
        norm="layer", parallel="two_norms", mlp_gated=False, activation="gelu", mlp_bias=True, rope=dict(percent=0.5),
    ), neox

    yield "phi", hf.PhiForCausalLM(
        hf.PhiConfig(**GROUPED, resid_pdrop=0.0, rope_parameters=rope(partial_rotary_factor=0.5))
    ), dict(
        kv_heads=GROUPS, norm="layer", parallel="one_norm", mlp_gated=False, activation="gelu_new", mlp_bias=True,
        head_bias=True, rope=dict(percent=0.5),
    ), lambda w: llama_like(
        w, [("norm1", "input_layernorm"), ("attn.out", "self_attn.dense")], GROUPS,
        [("mlp.up", "mlp.fc1"), ("mlp.down", "mlp.fc2")], "model.final_layernorm",
    )

    yield "cohere", hf.CohereForCausalLM(hf.CohereConfig(**GROUPED, logit_scale=0.25, rope_parameters=rope())), dict(
        kv_heads=GROUPS, norm="layer", norm_bias=False, parallel="one_norm", logit_scale=0.25, tie_embeddings=True,
        rope=dict(interleaved=True),
    ), lambda w: llama_like(w, [("norm1", "input_layernorm"), *OUT], GROUPS)

    yield "granite", hf.GraniteForCausalLM(
        hf.GraniteConfig(
            **GROUPED, embedding_multiplier=6.0, residual_multiplier=0.22, logits_scaling=8.0,
            attention_multiplier=1 / math.sqrt(WIDTH // HEADS), tie_word_embeddings=True, rms_norm_eps=1e-5,
        )
    ), dict(
        kv_heads=GROUPS, norm_eps=1e-5, embedding_multiplier=6.0, residual_multiplier=0.22, logit_scale=0.125,
        tie_embeddings=True,
    ), lambda w: llama_like(w, PRE, GROUPS)

    yield "nemotron", hf.NemotronForCausalLM(
        hf.NemotronConfig(**GROUPED, head_dim=DIM, rope_parameters=rope(partial_rotary_factor=0.5))
    ), dict(
        kv_heads=GROUPS, head_dim=DIM, norm="layer", norm_zero_centered=True, mlp_gated=False, activation="squared_relu",
        rope=dict(percent=0.5),
    ), lambda w: llama_like(w, PRE, GROUPS, PLAIN)

    glm = [
        ("norm1", "input_layernorm"), ("norm1_after", "post_self_attn_layernorm"), ("norm2", "post_attention_layernorm"),
        ("norm2_after", "post_mlp_layernorm"), *OUT,
    ]
    yield "glm4", hf.Glm4ForCausalLM(
        hf.Glm4Config(
            **GROUPED, head_dim=DIM, attention_bias=False, rope_parameters=rope(partial_rotary_factor=0.5),
            tie_word_embeddings=False,
        )
    ), dict(
        kv_heads=GROUPS, head_dim=DIM, norm_eps=1.5625e-07, norm_position="sandwich",
        rope=dict(percent=0.5, interleaved=True),
    ), lambda w: llama_like(split_gate(w), glm, GROUPS)


def fill(model, seed, zero_centered):
    common.randomise(model, seed, matrix_std=0.3, bias_std=0.2, norm_std=0.3)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if zero_centered and "norm" in name and name.endswith("weight"):
                p.sub_(1.0)
            if "self_attn" in name and name.endswith("bias"):
                p.zero_()


def main():
    common.setup()
    directory = common.fresh(os.path.join(sys.argv[1], "blocks"))
    cases = []
    for seed, (name, model, settings, convert) in enumerate(families()):
        fill(model, 7 + seed, settings.get("norm_zero_centered", False))
        model.float().train()
        batch = common.random_batch(100 + seed, 2, 20, VOCAB).clamp(min=1)  # the row of a pad token has no gradient
        inputs, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        logits = model(inputs, use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
        loss.backward()
        grads = [p.grad for n, p in model.named_parameters() if not ("self_attn" in n and n.endswith("bias"))]
        norm = math.sqrt(sum(g.double().pow(2).sum().item() for g in grads if g is not None))
        weights = {n: p.detach().clone().contiguous() for n, p in model.named_parameters()}
        tensors = {n: t.clone().contiguous() for n, t in convert(weights).items()}
        if settings.get("tie_embeddings"):
            tensors.pop("head.weight", None)
        tensors["input_ids"], tensors["targets"], tensors["logits"] = inputs, targets, logits.detach().contiguous()
        path = os.path.join(directory, name + ".safetensors")
        save_file(tensors, path)
        os.chmod(path, 0o644)
        case = dict(name=name, settings=dict(OURS, **settings), loss=loss.item(), grad_norm=norm)
        cases.append(case)
    with open(os.path.join(directory, "golden.json"), "w") as f:
        f.write("{\n" + f' "made_with": {json.dumps(common.versions_line())},\n "cases": [\n')
        f.write(",\n".join("  " + json.dumps(c) for c in cases) + "\n ]\n}\n")


if __name__ == "__main__":
    main()
