"""Alternates training steps of mtrain and PyTorch and prints medians and ratios. Started by vs_pytorch. With --adapters RANK, both sides
train LoRA adapters on frozen weights, the other one with transformers and peft."""
import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys

MODELS = {  # family, layers, width, heads, MLP width, vocabulary, batch, sequence
    "gpt_tiny": dict(family="gpt", layers=6, hidden=384, heads=6, ffn=1536, vocab=320, batch=16, seq=256),
    "llama_tiny": dict(family="llama", layers=6, hidden=384, heads=6, ffn=1024, vocab=320, batch=16, seq=256),
    "gpt_124m": dict(family="gpt", layers=12, hidden=768, heads=12, ffn=3072, vocab=50304, batch=4, seq=512),
    "llama8b_slice": dict(family="llama", layers=22, hidden=4096, heads=32, groups=8, ffn=14336, vocab=128256, batch=1, seq=8192,
                          tied=False),  # for a GPU of 141 GB: recipes/bench_llama8b_slice.yaml
    "llama_124m": dict(family="llama", layers=12, hidden=768, heads=12, ffn=2048, vocab=50304, batch=4, seq=512),
    "llama_500m": dict(family="llama", layers=24, hidden=1280, heads=20, ffn=3456, vocab=32000, batch=1, seq=512),
}
VARIANTS = ["eager", "eager-tuned", "sdpa", "sdpa-tuned", "compile-tuned"]
ADAPTER_VARIANTS = ["sdpa", "sdpa-tuned", "compile-tuned", "recompute-tuned"]
# Memory is mapped once, on huge pages, instead of again in every step.
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# Environment variables that may slow down one of the two programs.
FOREIGN = ["OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND"]


def recipe(model, dtype, threads, backend, rank):
    groups = f", kv_heads: {model['groups']}" if "groups" in model else ""
    family = {"gpt": "type: gpt2, activation: gelu_new, max_positions: %d" % model["seq"], "llama": "type: llama"}
    adapters = f"peft: {{type: lora, rank: {rank}, alpha: {rank}}}\n" if rank else ""
    return f"""{adapters}
model: {{{family[model["family"]]}, layers: {model["layers"]}, hidden_size: {model["hidden"]}, heads: {model["heads"]}{groups},
  ffn_hidden_size: {model["ffn"]}, vocab_size: {model["vocab"]}, seq_length: {model["seq"]}, tie_embeddings: {str(model.get("tied", True)).lower()}}}
tokenizer: {{type: byte}}
dataset: {{type: mock}}
optimizer: {{type: adamw, lr: 3e-4, weight_decay: 0.1, clip_grad: 1.0}}
train: {{steps: 100000, micro_batch_size: {model["batch"]}, global_batch_size: {model["batch"]}}}
mixed_precision: {{dtype: {dtype}}}
run: {{threads: {threads}}}
dist: {{backend: {backend}}}
"""


def child(command, environment, text=None):
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["status %d" % done.returncode])[-1]}
    return json.loads(done.stdout[done.stdout.index("{"):])


def run_mtrain(options, model, dtype):
    environment = {k: v for k, v in os.environ.items() if k not in FOREIGN}
    command = [options.mtrain, "bench", "-", "--plain", "--json", "--steps", str(options.steps), "--warmup", "2"]
    return child(command, environment, recipe(model, dtype, options.threads, options.backend, options.adapters))


def run_torch(options, model, dtype, variant):
    environment = {k: v for k, v in os.environ.items() if k not in FOREIGN}
    if variant.endswith("-tuned"):
        environment.update(TUNED)
    step = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peft_step.py" if options.adapters else "torch_step.py")
    settings = dict(model, dtype=dtype, variant=variant, steps=options.steps, threads=options.threads, device=options.backend, rank=options.adapters)
    return child([sys.executable, step, json.dumps(settings)], environment)


def describe(results, gpu):
    """Median tokens per second over all steps of all rounds, and the largest memory of a round; None if a
    round failed."""
    if any("error" in r for r in results):
        return None
    seconds = [s for r in results for s in r["step_seconds"]]
    # On a GPU, device memory is compared instead of that of the process.
    memory = [r["tensor_memory"]["bytes"] if gpu and "tensor_memory" in r else r["memory_bytes"] for r in results]
    return results[0]["tokens_per_step"] / statistics.median(seconds), max(memory)


def compare(options, name, dtype):
    model = MODELS[name]
    contestants = ["mtrain"] + options.variants
    results = {who: [] for who in contestants}
    for round_number in range(options.rounds):
        for who in contestants:
            print(f"  {name} {dtype} round {round_number + 1}/{options.rounds}: {who}   ", end="\r", file=sys.stderr)
            ours = who == "mtrain"
            results[who].append(run_mtrain(options, model, dtype) if ours else run_torch(options, model, dtype, who))
    gpu = options.backend != "cpu"
    ours = describe(results["mtrain"], gpu)
    if ours is None:
        sys.exit(f"mtrain failed: {next(r['error'] for r in results['mtrain'] if 'error' in r)}")
    adapters = f", LoRA of rank {options.adapters}" if options.adapters else ""
    print(f"\n{name}, {dtype}{adapters}: {model['batch']} x {model['seq']} tokens per step, {options.threads} threads\n")
    print("| | tokens/s | mtrain is | memory | mtrain takes |")
    print("|---|---|---|---|---|")
    for who in contestants:
        seen = describe(results[who], gpu)
        if seen is None:
            print(f"| {who} | failed: {next(r['error'] for r in results[who] if 'error' in r)[:80]} | | | |")
            continue
        speed, memory = seen
        print(f"| {who} | {speed:.0f} | {ours[0] / speed:.2f}x | {memory / 2**20:.0f} MiB | {ours[1] / memory:.2f}x |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mtrain", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--models", default="gpt_tiny,llama_tiny,gpt_124m,llama_124m", help="of " + ", ".join(MODELS))
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--variants", help=f"default: {','.join(VARIANTS)}; with --adapters: {','.join(ADAPTER_VARIANTS)}")
    parser.add_argument("--adapters", type=int, default=0, metavar="RANK", help="train LoRA adapters of this rank on all matrices of blocks")
    parser.add_argument("--backend", default="cpu", choices=["cpu", "cuda"], help="the device of both programs")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--steps", type=int, default=4, help="measured steps per round")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    options.variants = options.variants.split(",") if options.variants else ADAPTER_VARIANTS if options.adapters else VARIANTS
    print(f"PyTorch {importlib.metadata.version('torch')}, Python {platform.python_version()}, {platform.machine()}, "
          f"{options.threads} threads")
    for name in options.models.split(","):
        for dtype in options.dtypes.split(","):
            compare(options, name, dtype)


if __name__ == "__main__":
    main()
