#!/usr/bin/env python3
"""Writes fp8_tiny and mxfp4_tiny: small folders with quantized weights, and what PyTorch and transformers
dequantize them to. Usage: quantized_generate.py FOLDER (pip install torch transformers safetensors)

fp8_tiny    Llama; matrices of the blocks in e4m3 with a scale for each block of 16 by 16 elements, some cut off at the end
mxfp4_tiny  gpt-oss; matrices of the experts in e2m1 with an e8m0 scale for each 32 elements
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

BLOCK = 16
FP8_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 192, "hidden_size": 32,
    "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                            "weight_block_size": [BLOCK, BLOCK]},
}
MXFP4_CONFIG = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 192, "hidden_size": 64,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "num_local_experts": 3, "num_experts_per_tok": 2, "attention_bias": True, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "sliding_window": 128, "layer_types": ["full_attention"], "max_position_embeddings": 64, "swiglu_limit": 7.0,
    "rope_theta": 150000.0, "tie_word_embeddings": False, "router_aux_loss_coef": 0.9,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                     "original_max_position_embeddings": 4096},
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
}


def fp8_product(codes, scales):
    """DeepSeek's weight_dequant: each code times the scale of its block, in fp32."""
    rows, columns = codes.shape
    spread = scales.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:rows, :columns]
    return codes.float() * spread


def fp8(generator):
    def random(*shape):
        return torch.randn(*shape, generator=generator) * 0.1

    files, wanted = {}, {}

    def plain(name, value):
        files[name] = value.to(torch.bfloat16)
        wanted[name] = files[name].float()

    def quantized(name, rows, columns, scale_type):
        codes = (random(rows, columns) * 1000).clamp(-448, 448).to(torch.float8_e4m3fn)
        down, across = -(-rows // BLOCK), -(-columns // BLOCK)
        scales = (torch.rand(down, across, generator=generator) * 1e-3 + 1e-5).to(scale_type)
        files[name], files[name + "_scale_inv"] = codes, scales
        wanted[name] = fp8_product(codes, scales)
        if rows % BLOCK == 0 and columns % BLOCK == 0:
            theirs = Fp8Dequantize(None)._dequantize_one(codes, scales, torch.bfloat16)
            assert torch.equal(theirs, wanted[name].to(torch.bfloat16)), name

    plain("model.embed_tokens.weight", random(192, 32))
    plain("lm_head.weight", random(192, 32))
    plain("model.norm.weight", random(32) + 1)
    at = "model.layers.0."
    for norm in "input_layernorm", "post_attention_layernorm":
        plain(at + norm + ".weight", random(32) + 1)
    quantized(at + "self_attn.q_proj.weight", 32, 32, torch.float32)
    quantized(at + "self_attn.k_proj.weight", 8, 32, torch.float32)
    quantized(at + "self_attn.v_proj.weight", 8, 32, torch.bfloat16)
    quantized(at + "self_attn.o_proj.weight", 32, 32, torch.bfloat16)
    quantized(at + "mlp.gate_proj.weight", 40, 32, torch.float32)
    quantized(at + "mlp.up_proj.weight", 40, 32, torch.float32)
    quantized(at + "mlp.down_proj.weight", 32, 40, torch.float32)
    return files, wanted


def mxfp4(generator):
    def random(*shape):
        return torch.randn(*shape, generator=generator) * 0.1

    files, wanted = {}, {}

    def plain(name, value):
        files[name] = value.to(torch.bfloat16)
        wanted[name] = files[name].float()

    def quantized(name, rows, columns):
        shape = (MXFP4_CONFIG["num_local_experts"], rows, columns // 32)
        blocks = torch.randint(0, 256, (*shape, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(110, 124, shape, generator=generator, dtype=torch.uint8)
        files[name + "_blocks"], files[name + "_scales"] = blocks, scales
        wanted[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
        theirs = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
        assert torch.equal(theirs.float(), wanted[name]), name

    width, inner, experts, heads = 64, 32, 3, 4 * 16
    plain("model.embed_tokens.weight", random(192, width))
    plain("lm_head.weight", random(192, width))
    plain("model.norm.weight", random(width) + 1)
    at = "model.layers.0."
    for norm in "input_layernorm", "post_attention_layernorm":
        plain(at + norm + ".weight", random(width) + 1)
    for part, rows in ("q", heads), ("k", heads // 2), ("v", heads // 2):
        plain(f"{at}self_attn.{part}_proj.weight", random(rows, width))
        plain(f"{at}self_attn.{part}_proj.bias", random(rows))
    plain(at + "self_attn.o_proj.weight", random(width, heads))
    plain(at + "self_attn.o_proj.bias", random(width))
    plain(at + "self_attn.sinks", random(4))
    plain(at + "mlp.router.weight", random(experts, width))
    plain(at + "mlp.router.bias", random(experts))
    quantized(at + "mlp.experts.gate_up_proj", 2 * inner, width)
    plain(at + "mlp.experts.gate_up_proj_bias", random(experts, 2 * inner))
    quantized(at + "mlp.experts.down_proj", width, inner)
    plain(at + "mlp.experts.down_proj_bias", random(experts, width))
    return files, wanted


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, config, make in ("fp8_tiny", FP8_CONFIG, fp8), ("mxfp4_tiny", MXFP4_CONFIG, mxfp4):
        out = folder / name
        out.mkdir(exist_ok=True)
        files, wanted = make(torch.Generator().manual_seed(23))
        (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        save_file(files, out / "model.safetensors", {"format": "pt"})
        save_file(wanted, out / "expected_fp32.safetensors", {"format": "pt"})
        save_file({k: v.to(torch.bfloat16) for k, v in wanted.items()}, out / "expected_bf16.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
