"""Speed of `mtrain generate` and of transformers' generate() with the same Llama-shaped model of random weights, in paired rounds.

    generate_compare.py --mtrain build/bin/mtrain --tokenizer tokenizer.json [--size 124m|500m] [--prompt 512] [--tokens 64] [--rounds 5]

Prefill is the time to the first token of the prompt; decode the time per further token. --batch 8 compares eight prompts: mtrain
generates them together (--chat --prompts), transformers as a batch of equal lengths. Prints the median of each and of the ratios.
Needs PyPI's torch and transformers.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"124m": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=2048),
         "500m": dict(hidden_size=1280, num_hidden_layers=22, num_attention_heads=20, num_key_value_heads=5, intermediate_size=3456)}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mtrain", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--size", choices=SIZES, default="124m")
    p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    p.add_argument("--tokens", type=int, default=64, help="generated tokens")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=5)
    return p.parse_args()


def make_folder(a, folder):
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=50304, max_position_embeddings=2048, tie_word_embeddings=True, eos_token_id=50256, bos_token_id=50256,
                         **SIZES[a.size])
    model = LlamaForCausalLM(config).to(torch.bfloat16 if a.dtype == "bf16" else torch.float32).eval()
    model.save_pretrained(folder)
    shutil.copy(a.tokenizer, os.path.join(folder, "tokenizer.json"))
    return model


def run_mtrain(a, folder, tokens, scratch):
    """Seconds of the commands' own work, without loading."""
    common = [a.mtrain, "generate", "--from", folder, "--temperature", "0", "--max-tokens", str(tokens), f"run.threads={a.threads}",
              f"mixed_precision.dtype={a.dtype}", "model.seq_length=2048"]
    text = " the" * a.prompt  # one token each in GPT-2's vocabulary
    if a.batch == 1:
        out = subprocess.run([*common, "--no-add-special", "--prompt", text, "--json"], capture_output=True, text=True, check=True)
        line = json.loads(out.stdout.splitlines()[-1])
        assert abs(line["prompt_tokens"] - a.prompt) <= 1 and line["tokens"] == tokens, line
        return line["seconds"]
    prompts, answers = os.path.join(scratch, "prompts.jsonl"), os.path.join(scratch, "answers.jsonl")
    with open(prompts, "w") as f:
        for _ in range(a.batch):
            f.write(json.dumps({"prompt": text}) + "\n")
    if os.path.exists(answers):
        os.remove(answers)
    template = os.path.join(scratch, "plain.jinja")
    with open(template, "w") as f:
        f.write("{% for m in messages %}{{ m.content }}{% endfor %}")
    start = time.perf_counter()
    subprocess.run([*common, "--chat", "--template", template, "--prompts", prompts, "--output", answers], capture_output=True, check=True)
    return time.perf_counter() - start


def run_torch(a, model, tokens):
    ids = torch.randint(0, 50000, (a.batch, a.prompt))
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=50256)
    assert out.shape[1] == a.prompt + tokens
    return time.perf_counter() - start


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "model")
        model = make_folder(a, folder)
        rows = []
        for round_ in range(a.rounds + 1):
            one = [run_mtrain(a, folder, 1, scratch), run_torch(a, model, 1)]
            many = [run_mtrain(a, folder, 1 + a.tokens, scratch), run_torch(a, model, 1 + a.tokens)]
            if round_ > 0:  # the first one warms up
                rows.append([one[0], one[1], (many[0] - one[0]) / a.tokens / a.batch, (many[1] - one[1]) / a.tokens / a.batch])
    median = [statistics.median(column) for column in zip(*rows)]
    prefill = statistics.median(r[1] / r[0] for r in rows)
    decode = statistics.median(r[3] / r[2] for r in rows)
    weights = sum(p.numel() for p in model.parameters()) * (2 if a.dtype == "bf16" else 4)
    if a.batch == 1:
        print(f"prefill of {a.prompt} tokens: mtrain {median[0] * 1e3:.0f} ms, transformers {median[1] * 1e3:.0f} ms, ratio {prefill:.2f}")
    print(f"decode, batch {a.batch}: mtrain {median[2] * 1e3:.2f} ms per token, transformers {median[3] * 1e3:.2f}, ratio {decode:.2f}; "
          f"weights {weights / 1e6:.0f} MB, so mtrain reads {weights / median[2] / 1e9 / a.batch:.1f} GB/s")


if __name__ == "__main__":
    main()
