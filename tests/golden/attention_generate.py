#!/usr/bin/env python3
"""Golden values for variants of attention from Hugging Face transformers.

    python3 attention_generate.py OUTPUT_DIR

Files as for llama_tiny; sets of these names in OUTPUT_DIR are replaced. Heads are wider than hidden_size / heads. Models
of transformers:
  qwen2_tiny    biases of queries, keys and values; one key/value head
  qwen3_tiny    RMSNorm of each query and key head; as many key/value heads as query heads
  smollm3_tiny  the second block has no rotary positions
Llama with parts of other families, as the families of the same names in families/ describe it:
  olmo2_attention_tiny  attention of OLMo 2: RMSNorm over all heads of a token, biases of all four projections
  attention_parts_tiny  Cohere's norm of each head with weights of its own; queries, keys and values limited as in OLMoE
                        (after the norm); AFMoE's gate of the output, a projection of the block's input
"""

import argparse
import json
import os

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers import SmolLM3Config, SmolLM3ForCausalLM
from transformers.models.cohere.modeling_cohere import CohereLayerNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2Attention

import golden_common as common

HEADS, DIM, CLIP = 4, 8, 0.5
BASE = dict(
    hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=HEADS, head_dim=DIM, vocab_size=48,
    max_position_embeddings=32, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False, attention_dropout=0.0,
    initializer_range=0.08, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
ROWS, LENGTH = 2, 17


def rename_family(directory, family):
    path = os.path.join(directory, "config.json")
    with open(path) as f:
        config = json.load(f)
    config["model_type"] = family
    del config["architectures"]
    with open(path, "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


def with_olmo2_attention(model):
    for i, layer in enumerate(model.model.layers):
        layer.self_attn = Olmo2Attention(model.config, i)


def with_parts(model):
    """Cohere's norms, limits and a gate, by hooks around the projections of Llama's attention."""
    for layer in model.model.layers:
        attn, groups, gates = layer.self_attn, model.config.num_key_value_heads, []
        attn.gate_proj = torch.nn.Linear(model.config.hidden_size, HEADS * DIM, bias=False)
        attn.q_norm = CohereLayerNorm((HEADS, DIM), eps=model.config.rms_norm_eps)
        attn.k_norm = CohereLayerNorm((groups, DIM), eps=model.config.rms_norm_eps)

        def queries(_, args, out, attn=attn, gates=gates):
            gates[:] = [attn.gate_proj(args[0])]
            return attn.q_norm(out.view(*out.shape[:-1], HEADS, DIM)).flatten(-2).clamp(-CLIP, CLIP)

        def keys(_, __, out, attn=attn, groups=groups):
            return attn.k_norm(out.view(*out.shape[:-1], groups, DIM)).flatten(-2).clamp(-CLIP, CLIP)

        attn.q_proj.register_forward_hook(queries)
        attn.k_proj.register_forward_hook(keys)
        attn.v_proj.register_forward_hook(lambda _, __, out: out.clamp(-CLIP, CLIP))
        attn.o_proj.register_forward_pre_hook(lambda _, args, gates=gates: (args[0] * torch.sigmoid(gates[0]),))


SETS = {
    # name: (config class, model class, kv heads, further config, change, seeds of weights and batch)
    "qwen2_tiny": (Qwen2Config, Qwen2ForCausalLM, 1, {}, None, 501, 601),
    "qwen3_tiny": (Qwen3Config, Qwen3ForCausalLM, HEADS, {"attention_bias": False}, None, 502, 602),
    "smollm3_tiny": (SmolLM3Config, SmolLM3ForCausalLM, 2, {"no_rope_layers": [1, 0], "use_sliding_window": False}, None,
                     503, 603),
    "olmo2_attention_tiny": (LlamaConfig, LlamaForCausalLM, 2, {"attention_bias": True}, with_olmo2_attention, 504, 604),
    "attention_parts_tiny": (LlamaConfig, LlamaForCausalLM, 2, {}, with_parts, 505, 605),
}


def randomise(model, seed):
    """As the other sets, but norms of heads around 1 also where their weights are a matrix, and not for all heads alike."""
    common.randomise(model, seed, matrix_std=0.25, bias_std=0.3, norm_std=0.2)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("_norm.weight") and p.dim() == 2:
                p.add_(1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    args = parser.parse_args()
    common.setup()
    for name, (make_config, make_model, groups, further, change, seed, batch_seed) in SETS.items():
        config = make_config(**BASE, num_key_value_heads=groups, **further)
        model = make_model._from_config(config, attn_implementation="eager")
        if change:
            change(model)
        assert model.config._attn_implementation == "eager"
        randomise(model, seed)
        model.train()
        batch = common.random_batch(batch_seed, ROWS, LENGTH, BASE["vocab_size"])
        directory = os.path.join(args.output_dir, name)
        common.save_hf(model, directory)
        result = common.run(dict(model.named_parameters()), lambda ids: model(ids, use_cache=False).logits, batch)
        common.save_expected(directory, batch, result)
        if change:
            rename_family(directory, name.removesuffix("_tiny"))
        else:
            common.check_reload(make_model, directory, result)


if __name__ == "__main__":
    main()
