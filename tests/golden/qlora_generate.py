#!/usr/bin/env python3
"""Golden values for quantized weights from PyPI's bitsandbytes, and for adapters on them from peft: qlora/.

    python3 qlora_generate.py OUTPUT_DIR

`codes.json` has digests of the codes and scales of 10,000 blocks of 64 values, which numbers() makes from integers, so that
the test can make them, too: NF4 with float scales and with scales as codes, and the row-wise INT8 of Linear8bitLt.
`base/` is a Llama with widths of whole blocks, in bf16. The other folders are as those of adapters/ (adapter_generate.py), for
that base in fp32: in `nf4` and `nf4_dora` its layers are bitsandbytes' Linear4bit with double quantization, and the adapters of
`nf4_dora` have magnitudes (DoRA). Linear8bitLt quantizes activations, too, so in `int8` the layers are plain ones with the
values of the dequantized weights.
"""

import argparse
import hashlib
import json
import os

import bitsandbytes
import bitsandbytes.functional as bnb
import numpy as np
import peft
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

import adapter_generate as adapters
import golden_common as common

BLOCKS, BLOCK, ROW = 10000, 64, 640
BASE = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    vocab_size=200, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False, attention_bias=False, mlp_bias=False,
    attention_dropout=0.0, initializer_range=0.08, bos_token_id=1, eos_token_id=2, max_position_embeddings=128,
)
ADAPTERS = dict(r=4, lora_alpha=8,
                target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])


def mixed(x):
    """splitmix64 of each number."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def numbers():
    """Sums of four uniform 16-bit integers, times a power of two for each block. Block 3 is zero; block 4 has 1 and the
    midpoints of NF4's values, which are as near to one code as to the next."""
    u = mixed(np.arange(BLOCKS * BLOCK, dtype=np.uint64))
    total = sum(((u >> np.uint64(s)) & np.uint64(0xFFFF)).astype(np.int64) for s in (0, 16, 32, 48)) - 131070
    exponent = (mixed(np.arange(BLOCKS, dtype=np.uint64) + np.uint64(1 << 40)) % np.uint64(8)).astype(np.int64) - 21
    x = np.ldexp(total.astype(np.float32).reshape(BLOCKS, BLOCK), exponent[:, None]).astype(np.float32)
    code = bnb.get_4bit_type("nf4", device="cpu")
    x[3] = 0
    x[4, 0] = 1
    x[4, 1:16] = ((code[:-1] + code[1:]) / 2).numpy()
    return torch.from_numpy(x)


def digest(tensor):
    return hashlib.sha256(np.ascontiguousarray(tensor.numpy()).tobytes()).hexdigest()


def codes():
    x = numbers()
    packed, state = bnb.quantize_4bit(x, blocksize=BLOCK, quant_type="nf4", compress_statistics=False)
    again, nested = bnb.quantize_4bit(x, blocksize=BLOCK, quant_type="nf4", compress_statistics=True)
    assert torch.equal(packed, again) and nested.state2.blocksize == 256
    scales = bnb.dequantize_blockwise(nested.absmax, nested.state2) + nested.offset
    rows = x.reshape(-1, ROW)
    int8, row_scales, _ = bnb.int8_vectorwise_quant(rows.clone())
    assert torch.equal(x.reshape(-1, ROW), rows)
    return {
        "values": digest(x),
        "nf4": {"codes": digest(packed), "scales": digest(state.absmax), "first": bytes(packed[:64].flatten().tolist()).hex(),
                "values": digest(bnb.dequantize_4bit(packed, state))},
        "nested": {"offset": float(nested.offset), "codes": digest(nested.absmax), "factors": digest(nested.state2.absmax),
                   "scales": digest(scales), "values": digest(bnb.dequantize_4bit(again, nested))},
        "int8": {"codes": digest(int8), "scales": digest(row_scales), "values": digest(bnb.int8_vectorwise_dequant(int8, row_scales))},
        "note": f"bitsandbytes {bitsandbytes.__version__}, torch {torch.__version__}, on a CPU",
    }


def write_base(directory):
    config = LlamaConfig(**BASE, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager")
    common.randomise(model, 20230523)
    os.makedirs(directory)
    save_file({n: p.detach().to(torch.bfloat16).contiguous() for n, p in model.named_parameters()},
              os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
    written = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **BASE, "rope_theta": 10000.0, "rope_scaling": None,
               "torch_dtype": "bfloat16"}
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(written, f, indent=1)
        f.write("\n")
    os.chmod(os.path.join(directory, "model.safetensors"), 0o644)


def model_of(base, name):
    settings = dict(attn_implementation="eager", dtype=torch.float32)
    if name.startswith("nf4"):
        how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                 bnb_4bit_compute_dtype=torch.float32)
        model = AutoModelForCausalLM.from_pretrained(base, quantization_config=how, device_map="cpu", **settings)
        kinds = {type(m).__name__ for n, m in model.named_modules() if n.endswith("_proj")}
        assert kinds == {"Linear4bit"}, kinds
        for p in model.parameters():
            p.requires_grad_(False)
        return model
    model = AutoModelForCausalLM.from_pretrained(base, **settings)
    with torch.no_grad():
        for n, m in model.named_modules():
            if n.endswith("_proj"):
                int8, scales, _ = bnb.int8_vectorwise_quant(m.weight.clone())
                m.weight.copy_(bnb.int8_vectorwise_dequant(int8, scales))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    args = parser.parse_args()
    common.setup()
    root = common.fresh(os.path.join(args.output_dir, "qlora"))
    with open(os.path.join(root, "codes.json"), "w") as f:
        json.dump(codes(), f, indent=1)
        f.write("\n")
    base = os.path.join(root, "base")
    write_base(base)
    for name, seed in (("nf4", 21), ("int8", 22), ("nf4_dora", 23)):
        config = LoraConfig(task_type="CAUSAL_LM", base_model_name_or_path="base", use_dora=name.endswith("_dora"), **ADAPTERS)
        model = get_peft_model(model_of(base, name), config)
        adapters.randomise(model, seed)
        model.train()  # in evaluation, bitsandbytes computes the first products in bf16 where the CPU multiplies that
        directory = os.path.join(root, name)
        os.makedirs(directory)
        adapters.save(model, os.path.join(directory, "start"))
        made = adapters.records(seed)
        inputs, targets = adapters.rows(made, [])
        params = {n: p for n, p in model.named_parameters() if p.requires_grad}
        result = common.run(params, lambda ids: model(ids, use_cache=False).logits, inputs, masked=targets)
        adapters.save(model, os.path.join(directory, "end"))
        golden = {"base": "base", "records": made, "steps": result["steps"],
                  "note": f"peft {peft.__version__}, bitsandbytes {bitsandbytes.__version__}, {common.versions_line()}"}
        with open(os.path.join(directory, "golden.json"), "w") as f:
            json.dump(golden, f, indent=1)
            f.write("\n")
        for folder in ("start", "end"):
            path = os.path.join(directory, folder, "adapter_config.json")
            with open(path) as f:
                config = json.load(f)
            config["base_model_name_or_path"] = "base"
            with open(path, "w") as f:
                json.dump(config, f, indent=1, sort_keys=True)
                f.write("\n")


if __name__ == "__main__":
    main()
