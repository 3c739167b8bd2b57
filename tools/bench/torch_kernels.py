"""PyTorch on the shapes that bench_kernels measured: eager and compiled, in the same table.
torch_kernels.py KERNELS.json [--json FILE] [--device cuda|cpu] [--no-compile]"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def seconds(call, device, budget=0.1):
    """Median time of a call. On a GPU many calls are queued, so that the time of launching and waiting is negligible."""
    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    def timed(calls):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        return (time.perf_counter() - start) / calls

    for _ in range(3):
        timed(1)
    calls = max(1, int(2e-3 / max(timed(1), 1e-7))) if device == "cuda" else 1
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < budget:
        times.append(timed(calls))
    return statistics.median(times)


def made(device, dtype, *shape, grad=False):
    return (torch.rand(*shape, device=device, dtype=torch.float32) - 0.5).to(dtype).requires_grad_(grad)


def product(t, device, dtype):
    """As in a training step: the weight's gradient accumulates in float, for which PyTorch needs a product and an addition."""
    m, n, k = t["m"], t["n"], t["k"]
    if t["op"] == "nt":
        a, b = made(device, dtype, m, k), made(device, dtype, n, k)
        return lambda: a @ b.t()
    if t["op"] == "nn":
        a, b = made(device, dtype, m, k), made(device, dtype, k, n)
        return lambda: a @ b
    a, b, c = made(device, dtype, k, m), made(device, dtype, k, n), made(device, torch.float32, m, n)
    return lambda: c.add_(a.t() @ b)


def attention(t, device, dtype):
    shape = (t["batch"], t["heads"], t["seq"], t["head_dim"]), (t["batch"], t["groups"], t["seq"], t["head_dim"])
    grad = t["op"] == "attention_backward"
    q, k, v = (made(device, dtype, *s, grad=grad) for s in (shape[0], shape[1], shape[1]))

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=t["groups"] != t["heads"])
    if not grad:
        return forward
    y, dy = forward(), made(device, dtype, *shape[0])
    return lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)


def norm(t, device, dtype):
    grad = t["op"] == "rms_norm_backward"
    x, w = made(device, dtype, t["rows"], t["cols"], grad=grad), made(device, dtype, t["cols"], grad=grad)

    def forward():
        if t["op"] == "layer_norm":
            return F.layer_norm(x, (t["cols"],), w, w, 1e-5)
        return F.rms_norm(x, (t["cols"],), w, 1e-5)
    if not grad:
        return forward
    y, dy = forward(), made(device, dtype, t["rows"], t["cols"])
    return lambda: torch.autograd.grad(y, (x, w), dy, retain_graph=True)


def cross_entropy(t, device, dtype):
    x, ids = made(device, dtype, t["rows"], t["cols"]), torch.arange(t["rows"], device=device) * 31 % (t["cols"] - 3)
    return lambda: F.cross_entropy(x, ids, reduction="none")


def elements(t, device, dtype):
    a, b = made(device, dtype, t["count"]), made(device, dtype, t["count"])
    return (lambda: F.silu(a) * b) if t["op"] == "silu_mul" else (lambda: a + b)


def adamw(t, device, _):
    p = torch.nn.Parameter(made(device, torch.float32, t["count"]))
    p.grad = made(device, torch.float32, t["count"])
    optimizer = torch.optim.AdamW([p], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=device == "cuda")
    return optimizer.step


OPS = {"nt": product, "nn": product, "tn": product, "attention": attention, "attention_backward": attention, "rms_norm": norm,
       "rms_norm_backward": norm, "layer_norm": norm, "cross_entropy": cross_entropy, "silu_mul": elements, "add": elements,
       "adamw": adamw}
COMPILED = {"attention", "rms_norm", "layer_norm", "cross_entropy", "silu_mul", "add"}  # ops that the compiler can improve


def measure(t, device, dtype, compiled):
    with torch.enable_grad() if t["op"].endswith("backward") else torch.no_grad():
        call = OPS[t["op"]](t, device, dtype)
        eager = seconds(call, device)
        faster = seconds(torch.compile(call), device) if compiled and t["op"] in COMPILED else None
    return eager, faster


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels")
    parser.add_argument("--json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    rows, ratios = [], []
    with open(options.kernels) as file:
        suites = json.load(file)
    for suite in suites:
        dtype = DTYPES[suite["dtype"]]
        print(f"{suite['dtype']}, PyTorch {torch.__version__} on {options.device}")
        print(f"{'kernel':24} {'mtrain us':>10} {'eager us':>10} {'compiled':>10} {'eager/mtrain':>13}")
        for row in suite["kernels"]:
            if not row["torch"]:
                continue
            try:
                eager, faster = measure(row["torch"], options.device, dtype, not options.no_compile)
            except (RuntimeError, AttributeError, TypeError) as error:  # out of memory, or an older PyTorch
                print(f"{row['kernel']:24} {row['us']:10.1f} failed: {str(error).splitlines()[0][:80]}")
                continue
            rows.append({"kernel": row["kernel"], "dtype": suite["dtype"], "mtrain_us": row["us"], "eager_us": 1e6 * eager,
                         "compiled_us": 1e6 * faster if faster else None})
            ratios.append(1e6 * eager / row["us"])
            print(f"{row['kernel']:24} {row['us']:10.1f} {1e6 * eager:10.1f} "
                  f"{f'{1e6 * faster:10.1f}' if faster else '         -'} {ratios[-1]:12.2f}x")
            sys.stdout.flush()
            if options.device == "cuda":
                torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"torch": torch.__version__, "device": options.device, "rows": rows}, file, indent=1)
    if not ratios:
        sys.exit("nothing was measured")
    print(f"eager PyTorch takes {statistics.median(ratios):.2f}x of mtrain's time (median of {len(ratios)} kernels)")


if __name__ == "__main__":
    main()
