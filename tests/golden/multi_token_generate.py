#!/usr/bin/env python3
"""Golden values for multi-token prediction: multi_token/.

    python3 multi_token_generate.py OUTPUT_DIR

A tiny random Llama of transformers in fp32 with two blocks for further tokens (DeepSeek-V3, arXiv:2412.19437, 2.2),
composed of transformers' layers as the paper's equations 21 to 25 say, with embedding and head of the model and the order
of the released weights' projection: embedding, then stream. The sequences of the batch have different lengths, and some
targets are ignored. multi_token/tiny.safetensors holds the weights under mtrain's names, ids, targets and lengths, and the
gradient of each parameter under grad.NAME; golden.json holds the settings, the loss of the next tokens, and the sum and
number of targets of each depth.
"""

import json
import os
import sys

import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import save_file
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm

import golden_common as common
from blocks_generate import GATED, PRE, block, llama_like

WIDTH, HEADS, GROUPS, FFN, VOCAB, LAYERS, DEPTHS, COEFF = 16, 4, 2, 24, 48, 2, 2, 0.3
LENGTHS = [9, 2, 14, 1, 6]


class Depth(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.enorm = LlamaRMSNorm(WIDTH, config.rms_norm_eps)
        self.hnorm = LlamaRMSNorm(WIDTH, config.rms_norm_eps)
        self.eh_proj = torch.nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.block = LlamaDecoderLayer(config, LAYERS)
        self.norm = LlamaRMSNorm(WIDTH, config.rms_norm_eps)


def through_block(layer, model, x):
    n = x.shape[1]
    mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
    positions = torch.arange(n)[None]
    out = layer(x, attention_mask=mask, position_ids=positions,
                position_embeddings=model.model.rotary_emb(x, positions))
    return out[0] if isinstance(out, tuple) else out


def losses(model, depths, ids, targets):
    """The sums of the losses of one sequence: of the next tokens, and of each depth with the number of its targets."""
    stream = model.model(ids[None]).last_hidden_state  # after the last norm
    total = F.cross_entropy(model.lm_head(stream)[0], targets, ignore_index=-1, reduction="sum")
    further = []
    for k, depth in enumerate(depths, 1):
        later = lambda values, none: torch.cat([values[k:], torch.full((min(k, len(values)),), none)])
        e = model.model.embed_tokens(later(ids, 0))[None]
        x = depth.eh_proj(torch.cat([depth.enorm(e), depth.hnorm(stream)], dim=-1))
        stream = depth.norm(through_block(depth.block, model, x))
        wanted = later(targets, -1)
        further.append((F.cross_entropy(model.lm_head(stream)[0], wanted, ignore_index=-1, reduction="sum"),
                        int((wanted >= 0).sum())))
    return total, further


def ours(model, depths):
    """The parameters under mtrain's names, of weights or of gradients."""
    out = llama_like(model, PRE, GROUPS)
    for k, depth in enumerate(depths):
        for name in ("enorm", "hnorm", "eh_proj", "norm"):
            out[f"mtp.{k}.{name}.weight"] = depth[name + ".weight"]
        for name, value in block(depth, 0, "block.", PRE, GROUPS, GATED).items():
            out[name.replace("layers.0.", f"mtp.{k}.block.")] = value
    return {name: value.detach().clone().contiguous() for name, value in out.items()}


def main():
    out = os.path.join(sys.argv[1], "multi_token")
    os.makedirs(out, exist_ok=True)
    common.setup()
    config = hf.LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=GROUPS, intermediate_size=FFN,
        num_hidden_layers=LAYERS, vocab_size=VOCAB, max_position_embeddings=64, attn_implementation="eager",
        rms_norm_eps=1e-5, tie_word_embeddings=False, pad_token_id=None, bos_token_id=1, eos_token_id=2)
    model = hf.LlamaForCausalLM(config)
    depths = [Depth(config) for _ in range(DEPTHS)]
    common.randomise(model, 51, matrix_std=0.3)
    for k, depth in enumerate(depths):
        common.randomise(depth, 52 + k, matrix_std=0.3)
    tokens = common.random_batch(54, 1, sum(LENGTHS), VOCAB)[0]
    targets = common.random_batch(55, 1, sum(LENGTHS), VOCAB)[0]
    targets[[3, 4, 20]] = -1
    count = int((targets >= 0).sum())
    objective, main_loss, sums, counts, at = 0, 0, [0.0] * DEPTHS, [0] * DEPTHS, 0
    for length in LENGTHS:
        own, further = losses(model, depths, tokens[at:at + length], targets[at:at + length])
        objective = objective + own / count
        main_loss += float(own.detach()) / count
        for k, (value, number) in enumerate(further):
            objective = objective + COEFF / DEPTHS * value / count
            sums[k] += float(value.detach())
            counts[k] += number
        at += length
    objective.backward()
    weights = ours(dict(model.named_parameters()), [dict(d.named_parameters()) for d in depths])
    grads = ours({n: p.grad for n, p in model.named_parameters()}, [{n: p.grad for n, p in d.named_parameters()} for d in depths])
    file = dict(weights, input_ids=tokens[None], targets=targets[None], lengths=torch.tensor([LENGTHS]))
    file.update({"grad." + name: value for name, value in grads.items()})
    save_file(file, os.path.join(out, "tiny.safetensors"))
    os.chmod(os.path.join(out, "tiny.safetensors"), 0o644)
    settings = dict(layers=LAYERS, hidden_size=WIDTH, heads=HEADS, kv_heads=GROUPS, ffn_hidden_size=FFN, norm_eps=1e-5,
                    rope=dict(theta=10000), mtp=dict(layers=DEPTHS, loss_coeff=COEFF))
    golden = dict(made_with=common.versions_line(), settings=settings, loss=main_loss, sums=sums, targets=counts)
    with open(os.path.join(out, "golden.json"), "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")
    print(golden)


if __name__ == "__main__":
    main()
