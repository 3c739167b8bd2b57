#!/usr/bin/env python3
"""Golden values for low-rank adapters from PyPI's peft: adapters/.

    python3 adapter_generate.py OUTPUT_DIR

For each case: `start/` is a folder of adapters as peft saves it, with random a and b, and magnitudes around the norms, for the weights of llama_tiny (next to
this file); `end/` is the same after five steps of AdamW on three records. `pissa` starts from singular vectors, and its `end/` is
converted to adapters of the original weights. golden.json has the token ids of the records, the
targets (-1: none), and loss and gradient norm of each step. The records are pairs of prompt and completion: the targets are
the completion's tokens and the end token that follows them.
"""

import argparse
import json
import os
import shutil

import numpy as np
import peft
import torch
from peft import IA3Config, LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from transformers import AutoModelForCausalLM

import golden_common as common

CASES = {
    # name: (base, settings of the adapters, seed[, ratio of the learning rates of b and a])
    "qv": ("llama_tiny", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]), 11),
    "all": ("llama_tiny", dict(r=3, lora_alpha=6, use_rslora=True,
                               target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]), 12),
    "dora": ("llama_tiny", dict(r=4, lora_alpha=6, use_dora=True,
                                target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]), 13),
    "plus": ("llama_tiny", dict(r=4, lora_alpha=8, use_dora=True, target_modules=["q_proj", "down_proj"],
                                modules_to_save=["lm_head", "embed_tokens"]), 14, 8.0),
    "pissa": ("llama_tiny", dict(r=4, lora_alpha=6, init_lora_weights="pissa",
                                 target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]), 15),
    "sizes": ("llama_tiny", dict(r=4, lora_alpha=8, use_dora=True, rank_pattern={"v_proj": 2, "down_proj": 6},
                                 alpha_pattern={"v_proj": 10, "o_proj": 3},
                                 target_modules=["q_proj", "v_proj", "o_proj", "down_proj"]), 17),
    "ia3": ("llama_tiny", dict(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]), 16),
}
BOS, EOS = 1, 2
RECORDS = ((7, 12), (3, 20), (15, 9))  # lengths of prompt and completion


def records(seed):
    rng = np.random.RandomState(seed)
    out = []
    for prompt, completion in RECORDS:
        ids = [int(i) for i in rng.randint(3, 90, size=prompt + completion)]  # ASCII characters of the test's tokenizer
        out.append({"prompt": ids[:prompt], "completion": ids[prompt:]})
    return out


def rows(all_records, before):
    """Inputs and targets, padded to one length."""
    inputs, targets = [], []
    for record in all_records:
        ids = before + record["prompt"] + record["completion"] + [EOS]
        first = len(before) + len(record["prompt"])
        inputs.append(ids[:-1])
        targets.append([i if at + 1 >= first else -1 for at, i in enumerate(ids[1:])])
    width = max(map(len, inputs))
    pad = lambda lists, value: torch.tensor([row + [value] * (width - len(row)) for row in lists])
    return pad(inputs, 0), pad(targets, -1)


def randomise(model, seed):
    rng = np.random.RandomState(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.requires_grad:
                x = torch.from_numpy((0.1 * rng.standard_normal(tuple(p.shape))).astype(np.float32))
                p.copy_(p * (1 + x) if "lora_magnitude_vector" in name or "ia3_l" in name else x)


def loraplus(model, ratio):
    """peft's optimizer of LoRA+, with the settings of golden_common. It decays vectors, too: not here."""
    optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, lr=common.LR, loraplus_lr_ratio=ratio,
                                          loraplus_weight_decay=common.WEIGHT_DECAY, betas=common.BETAS, eps=common.EPS,
                                          foreach=False)
    vectors = {id(p) for group in optimizer.param_groups for p in group["params"] if p.dim() == 1}
    for group in list(optimizer.param_groups):
        own = [p for p in group["params"] if id(p) in vectors]
        group["params"] = [p for p in group["params"] if id(p) not in vectors]
        if own:
            optimizer.add_param_group({**group, "params": own, "weight_decay": 0.0})
    return optimizer


def undecayed(model):
    """The optimizer of golden_common without weight decay, which would pull vectors to 0 instead of to 1."""
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=common.LR, betas=common.BETAS, eps=common.EPS,
                             weight_decay=0.0, foreach=False)


def save(model, directory, **how):
    model.save_pretrained(common.fresh(directory), **how)
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        os.remove(path) if name == "README.md" else os.chmod(path, 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    args = parser.parse_args()
    common.setup()
    here = os.path.dirname(os.path.abspath(__file__))
    root = common.fresh(os.path.join(args.output_dir, "adapters"))
    for name, (base, settings, seed, *ratio) in CASES.items():
        model = AutoModelForCausalLM.from_pretrained(os.path.join(here, base), attn_implementation="eager",
                                                     dtype=torch.float32)
        kind = IA3Config if "feedforward_modules" in settings else LoraConfig
        model = get_peft_model(model, kind(task_type="CAUSAL_LM", base_model_name_or_path=base, **settings))
        pissa = settings.get("init_lora_weights") == "pissa"
        if pissa:
            model.peft_config["default"].init_lora_weights = True  # as peft's conversion wants it
        else:
            randomise(model, seed)
        directory = os.path.join(root, name)
        os.makedirs(directory)
        save(model, os.path.join(directory, "start"))
        made = records(seed)
        inputs, targets = rows(made, [])
        params = {n: p for n, p in model.named_parameters() if p.requires_grad}
        result = common.run(params, lambda ids: model(ids, use_cache=False).logits, inputs, masked=targets,
                            optimizer=loraplus(model, *ratio) if ratio else undecayed(model) if kind is IA3Config else None)
        start = os.path.join(directory, "start")
        save(model, os.path.join(directory, "end"), **({"path_initial_model_for_weight_conversion": start} if pissa else {}))
        golden = {"base": base, "records": made, "steps": result["steps"],
                  "note": f"peft {peft.__version__}, {common.versions_line()}"}
        with open(os.path.join(directory, "golden.json"), "w") as f:
            json.dump(golden, f, indent=1)
            f.write("\n")
        for folder in ("start", "end"):
            path = os.path.join(directory, folder, "adapter_config.json")
            with open(path) as f:
                config = json.load(f)
            config["base_model_name_or_path"] = base
            with open(path, "w") as f:
                json.dump(config, f, indent=1, sort_keys=True)
                f.write("\n")


if __name__ == "__main__":
    main()
