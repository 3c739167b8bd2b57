"""Shared parts of the golden-value generators: weights, batch, training loop, files, float64 comparison.

Everything random comes from numpy's RandomState, whose streams are frozen by numpy's compatibility policy, so weights
and tokens do not depend on how a given release of torch or transformers initialises a model. The numbers computed
from them can still differ in the last bits between CPUs, because matrix products are summed in another order.
"""

import json
import os
import shutil

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

STEPS = 5
LR, BETAS, EPS, WEIGHT_DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0


def setup():
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float32)


def randomise(model, seed, matrix_std=0.08, bias_std=0.05, norm_std=0.1):
    """Overwrite every parameter, in name order, with normal numbers: matrices and biases around 0, norm gains around 1.

    No parameter stays at 0 or 1, so leaving any one of them out of the forward pass changes the logits.
    """
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            x = rng.standard_normal(tuple(p.shape))
            if p.dim() >= 2:
                x = matrix_std * x
            elif name.endswith(".bias"):
                x = bias_std * x
            else:
                x = 1.0 + norm_std * x
            p.copy_(torch.from_numpy(x.astype(np.float32)))


def random_batch(seed, rows, length, vocab):
    ids = np.random.RandomState(seed).randint(0, vocab, size=(rows, length), dtype=np.int64)
    return torch.from_numpy(ids)


def decays(name, p):
    return p.dim() >= 2 and not name.endswith("_norm.weight") and "relative_attention_bias" not in name


def run(params, forward, batch, masked=None, optimizer=None):
    """Forward, backward and STEPS optimizer steps; `params` (name -> leaf tensor) is updated in place.

    `forward(input_ids)` gives logits computed from `params`. Each step: inputs batch[:, :-1], targets batch[:, 1:],
    loss the mean over all B*(T-1) targets; with `masked` (targets, -1 for none) inputs are the whole batch, and the loss is
    the mean over those; then the global L2 norm over all gradients (recorded before clipping, as
    are the step-0 gradients), clipping by min(1, CLIP / (norm + 1e-6)) as torch does it, then AdamW with decoupled
    weight decay, on tensors of two dimensions only, norms of heads excepted; or `optimizer`, which has the same settings.
    """
    decay = [p for n, p in params.items() if decays(n, p)]
    keep = [p for n, p in params.items() if not decays(n, p)]
    groups = [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": keep, "weight_decay": 0.0}]
    optimizer = optimizer or torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, foreach=False)
    inputs, targets = (batch, masked) if masked is not None else (batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
    logits0, grads0, steps = None, None, []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        logits = forward(inputs)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)
        loss.backward()
        if step == 0:
            logits0 = logits.detach().clone()
            grads0 = {n: p.grad.detach().clone() for n, p in params.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(params.values()), CLIP, foreach=False)
        steps.append({"loss": loss.item(), "grad_norm": norm.item()})
        optimizer.step()
    final = {n: p.detach().clone() for n, p in params.items()}
    return {"input_ids": inputs, "logits": logits0, "grads": grads0, "steps": steps, "params": final}


def train_by(model, evaluate, steps, kept):
    """`steps` steps of AdamW as in run(), of what `evaluate()` gives: the loss, and numbers to note. Then the first 64 values of the
    parameters `kept`."""
    params = dict(model.named_parameters())
    groups = [{"params": [p for n, p in params.items() if decays(n, p)], "weight_decay": WEIGHT_DECAY},
              {"params": [p for n, p in params.items() if not decays(n, p)], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, foreach=False)
    noted = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss, metrics = evaluate()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(params.values()), CLIP, foreach=False)
        noted.append({"loss": loss.item(), "grad_norm": norm.item(), **metrics})
        optimizer.step()
    values = {n: [float(f"{v:.8g}") for v in params[n].detach().flatten()[:64].tolist()] for n in kept if n in params}
    return {"steps": noted, "weights": values}


def fresh(directory):
    """An empty directory; an earlier set of that name is deleted, so that no stale shard survives."""
    if os.path.isdir(directory):
        shutil.rmtree(directory)
    os.makedirs(directory)
    return directory


def save_hf(model, directory, max_shard_size="1GB"):
    """config.json and safetensors as transformers writes them; nothing about text generation."""
    model.save_pretrained(fresh(directory), max_shard_size=max_shard_size)
    extra = os.path.join(directory, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)
    for name in os.listdir(directory):
        os.chmod(os.path.join(directory, name), 0o644)


def put(directory, name, tensors):
    path = os.path.join(directory, name)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path)
    os.chmod(path, 0o644)  # safetensors creates files for the owner only


def save_logits(directory, result):
    put(directory, "expected_logits.safetensors", {"input_ids": result["input_ids"], "logits": result["logits"]})


def save_expected(directory, batch, result, masked=None):
    save_logits(directory, result)
    put(directory, "expected_grads_step0.safetensors", result["grads"])
    put(directory, "expected_params_after5.safetensors", result["params"])
    targets = "B*(T-1) next-token targets" if masked is None else "the masked places"
    note = (
        "lr 1e-3 const, betas .9/.95, eps 1e-8, wd 0.1 (2-D weights incl. embeddings; biases and norm weights 0), "
        f"clip 1.0 global L2; loss = mean CE over {targets}; fp32; " + versions_line()
    )
    golden = {"steps": result["steps"], "batch": batch.tolist(), "optimizer": {"AdamW": note}}
    if masked is not None:
        golden["targets"] = masked.tolist()
    with open(os.path.join(directory, "golden.json"), "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")


def versions_line():
    return f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}"


def check_reload(model_class, directory, result):
    """What was written must give the recorded logits bit for bit when transformers reads it back."""
    model = model_class.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        logits = model(result["input_ids"]).logits
    if not torch.equal(logits, result["logits"]):
        raise SystemExit(f"{directory}: reloaded model gives other logits")


def as_float64(params):
    return {n: p.detach().double().clone().requires_grad_(True) for n, p in params.items()}


def as_float32(params):
    return {n: p.detach().clone().requires_grad_(True) for n, p in params.items()}


def report(title, got, want, split=None):
    """Print how far `got` is from `want`: per quantity, the worst tensor.

    `split(name, tensor)` may split a tensor into named parts; parts with '!' in the name are listed apart.
    """
    print(f"== {title}")

    def parts(tensors):
        out = {}
        for n, t in tensors.items():
            out.update(split(n, t.double()) if split else {n: t.double()})
        return out

    def line(label, a, b):
        a, b = parts(a), parts(b)
        for special in (False, True):
            names = [n for n in b if ("!" in n) == special]
            if not names:
                continue
            rows = []
            for n in names:
                d, w = a[n] - b[n], b[n]
                top = d.abs().max().item()
                rows.append((top, top / w.abs().max().item(), (d.norm() / w.norm()).item(), n))
            text = f"  {label:8s}{' (special)' if special else '':10s}"
            for i, what in enumerate(("max abs", "max abs / max|tensor|", "L2 rel")):
                worst = max(rows, key=lambda r: r[i])
                text += f" {what} {worst[i]:.2e} [{worst[3]}];"
            print(text)

    line("logits", {"logits": got["logits"]}, {"logits": want["logits"]})
    for key in ("loss", "grad_norm"):
        rel = [abs(g[key] - w[key]) / abs(w[key]) for g, w in zip(got["steps"], want["steps"])]
        print(f"  {key:8s} rel per step " + " ".join(f"{r:.1e}" for r in rel))
    line("grads", got["grads"], want["grads"])
    line("params", got["params"], want["params"])
