"""Some training steps of a Llama with LoRA adapters in transformers and peft, as JSON. Argument: the settings as JSON (see compare.py)."""
import json
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

S = json.loads(sys.argv[1])
KIND, TUNED = S["variant"].split("-")[0], S["variant"].endswith("-tuned")
BF16 = S["dtype"] == "bf16"
DEVICE = S["device"]


def peak_memory():
    """In bytes. Not from getrusage, whose value includes the memory of the parent process before exec."""
    if DEVICE == "cuda":
        return torch.cuda.max_memory_allocated()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


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
    model = adapted_model().train()
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  **({"fused": True} if TUNED else {}))
    call = torch.compile(model) if KIND == "compile" else model
    seconds, losses, warmup = [], [], 2
    for step in range(warmup + S["steps"]):
        start = time.perf_counter()
        data = torch.randint(min(S["vocab"], 257), (S["batch"], S["seq"])).to(DEVICE)  # bytes, as the other side's tokens
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=BF16):
            loss = call(input_ids=data, labels=data).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step >= warmup:
            seconds.append(time.perf_counter() - start)
    print(json.dumps({"step_seconds": seconds, "losses": losses[warmup:], "tokens_per_step": S["batch"] * S["seq"],
                      "memory_bytes": peak_memory()}))


if __name__ == "__main__":
    main()
