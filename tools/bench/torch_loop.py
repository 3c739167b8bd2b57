"""Measured training steps of a PyTorch model, for torch_step.py and peft_step.py. S: the settings of compare.py."""
import json
import time

import torch


def peak_memory(device):
    """In bytes. Not from getrusage, whose value includes the memory of the parent process before exec."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def measure(S, model, loss_of):
    """Prints times, losses and memory as JSON. loss_of(call, tokens): the loss of tokens [batch, seq + 1]."""
    kind, tuned, device = S["variant"].split("-")[0], S["variant"].endswith("-tuned"), S.get("device", "cpu")
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, **({"fused": True} if tuned else {}))
    call = torch.compile(model) if kind == "compile" else model
    seconds, losses, warmup = [], [], 2
    for step in range(warmup + S["steps"]):
        start = time.perf_counter()
        tokens = torch.randint(min(S["vocab"], 257), (S["batch"], S["seq"] + 1)).to(device)  # bytes, as the other side's tokens
        with torch.autocast(device, dtype=torch.bfloat16, enabled=S["dtype"] == "bf16"):
            loss = loss_of(call, tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step >= warmup:
            seconds.append(time.perf_counter() - start)
    print(json.dumps({"step_seconds": seconds, "losses": losses[warmup:], "tokens_per_step": S["batch"] * S["seq"],
                      "memory_bytes": peak_memory(device)}))
