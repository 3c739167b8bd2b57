"""Some training steps of a Llama with LoRA adapters in transformers and peft, as JSON. Argument: the settings as JSON (see compare.py)."""
import json
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from torch_loop import measure

S = json.loads(sys.argv[1])
KIND = S["variant"].split("-")[0]
BF16 = S["dtype"] == "bf16"
DEVICE = S["device"]


def adapted_model():
    """Frozen weights in the type of products, and adapters in fp32 on all matrices of blocks, as peft makes them."""
    config = LlamaConfig(hidden_size=S["hidden"], num_hidden_layers=S["layers"], num_attention_heads=S["heads"],
                         num_key_value_heads=S.get("groups", S["heads"]), intermediate_size=S["ffn"], vocab_size=S["vocab"],
                         max_position_embeddings=S["seq"], tie_word_embeddings=S.get("tied", True), use_cache=False)
    torch.set_default_dtype(torch.bfloat16 if BF16 else torch.float32)
    with torch.device(DEVICE):  # random numbers of billions of parameters take minutes on a CPU
        model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    if KIND == "recompute":
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return get_peft_model(model, LoraConfig(r=S["rank"], lora_alpha=S["rank"], target_modules=targets, task_type="CAUSAL_LM"))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(S["threads"])
    measure(S, adapted_model().train(), lambda call, tokens: call(input_ids=tokens[:, :-1], labels=tokens[:, :-1]).loss)


if __name__ == "__main__":
    main()
