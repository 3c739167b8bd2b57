#!/usr/bin/env python3
"""Golden values for objectives over answers from PyPI's trl: objectives/golden.json.

    python3 objectives_generate.py OUTPUT_DIR

The model is llama_tiny (next to this file), and its initial weights are the reference. For each case: loss, gradient norm and the values
that trl reports, of three steps of AdamW on the same four records, and the first 64 of some weights after them. Pairs go through trl's DPOTrainer,
labels through its KTOTrainer, and so do pairs as two labels each (kto_pairs) and good answers alone (kto_good); its collator gets the answers for the
estimate of the divergence as its dataset has them, rotated by one within the batch. cpo, simpo and orpo through the loss functions of CPOTrainer and ORPOTrainer, with the negative
log-likelihood of each record's chosen answer per token. The cases with label_smoothing and loss sigmoid, which DPOTrainer no longer has,
are CPOTrainer's function of log-ratios.
"""

import argparse
import json
import os
import tempfile
import types
import warnings

import numpy as np
import torch
import torch.nn.functional as F
import trl
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

import golden_common as common

STEPS = 3
BOS, EOS = 1, 2
RECORDS = ((5, 6, 9), (3, 12, 4), (8, 5, 5), (4, 9, 14))  # lengths of prompt, chosen and rejected answer
LABELS = ((5, 6, True), (3, 12, False), (8, 5, True), (4, 9, True))
KEPT = ("model.layers.0.self_attn.q_proj.weight", "model.norm.weight")
CASES = {
    # name: (mtrain's settings, trl's)
    "dpo": (dict(type="dpo"), dict(loss_type="sigmoid")),
    "dpo_beta": (dict(type="dpo", beta=0.5), dict(loss_type="sigmoid", beta=0.5)),
    "dpo_conservative": (dict(type="dpo", beta=0.3, label_smoothing=0.2), dict(smooth=0.2, beta=0.3)),
    "robust": (dict(type="dpo", loss="robust", label_smoothing=0.1), dict(loss_type="robust", label_smoothing=0.1)),
    "hinge": (dict(type="dpo", loss="hinge", beta=0.4), dict(loss_type="hinge", beta=0.4)),
    "ipo": (dict(type="dpo", loss="ipo", beta=0.5), dict(loss_type="ipo", beta=0.5)),
    "sigmoid_norm": (dict(type="dpo", loss="sigmoid_norm", beta=2), dict(loss_type="sigmoid_norm", beta=2.0)),
    "exo_pair": (dict(type="dpo", loss="exo_pair", label_smoothing=0.05), dict(loss_type="exo_pair", label_smoothing=0.05)),
    "nca_pair": (dict(type="dpo", loss="nca_pair"), dict(loss_type="nca_pair")),
    "bco_pair": (dict(type="dpo", loss="bco_pair"), dict(loss_type="bco_pair")),
    "sppo_hard": (dict(type="dpo", loss="sppo_hard", beta=0.5), dict(loss_type="sppo_hard", beta=0.5)),
    "apo_zero": (dict(type="dpo", loss="apo_zero"), dict(loss_type="apo_zero")),
    "apo_down": (dict(type="dpo", loss="apo_down"), dict(loss_type="apo_down")),
    "mpo": (dict(type="dpo", losses=["sigmoid:0.8", "bco_pair:0.2"], beta=0.2),
            dict(loss_type=["sigmoid", "bco_pair"], loss_weights=[0.8, 0.2], beta=0.2)),
    "cpo": (dict(type="cpo"), dict(cpo="sigmoid", cpo_alpha=1.0)),
    "cpo_hinge": (dict(type="cpo", loss="hinge", beta=0.2, sft_weight=0.5), dict(cpo="hinge", beta=0.2, cpo_alpha=0.5)),
    "cpo_ipo": (dict(type="cpo", loss="ipo", beta=0.5, sft_weight=0.5), dict(cpo="ipo", beta=0.5, cpo_alpha=0.5)),
    "simpo": (dict(type="simpo"), dict(cpo="simpo", beta=2.0, cpo_alpha=0.0, simpo_gamma=0.5)),
    "orpo": (dict(type="orpo"), dict(orpo=True)),
    "apo_zero_unpaired": (dict(type="kto", loss="apo_zero_unpaired", desirable_weight=1.5, undesirable_weight=0.5),
                          dict(kto="labels", loss_type="apo_zero_unpaired", desirable_weight=1.5, undesirable_weight=0.5)),
    "kto": (dict(type="kto"), dict(kto="labels")),
    "kto_weights": (dict(type="kto", beta=0.5, desirable_weight=0.2, undesirable_weight=2.5),
                    dict(kto="labels", beta=0.5, desirable_weight=0.2, undesirable_weight=2.5)),
    "kto_good": (dict(type="kto", beta=0.3), dict(kto="good", beta=0.3)),
    "kto_pairs": (dict(type="kto", beta=0.4, desirable_weight=1.5, undesirable_weight=0.75),
                  dict(kto="pairs", beta=0.4, desirable_weight=1.5, undesirable_weight=0.75)),
}


def pairs():
    rng = np.random.RandomState(21)
    ids = lambda n: [int(i) for i in rng.randint(3, 90, size=n)]  # ASCII characters of the test's tokenizer
    return [{"prompt": ids(p), "chosen": ids(c), "rejected": ids(r)} for p, c, r in RECORDS]


def labels():
    rng = np.random.RandomState(22)
    ids = lambda n: [int(i) for i in rng.randint(3, 90, size=n)]
    return [{"prompt": ids(p), "completion": ids(c), "label": good} for p, c, good in LABELS]


def rotated(rows):
    """With the answer of the row before: what KTOTrainer adds to its dataset."""
    return [{**row, "KL_completion_ids": rows[i - 1]["completion_ids"]} for i, row in enumerate(rows)]


def base():
    here = os.path.dirname(os.path.abspath(__file__))
    return AutoModelForCausalLM.from_pretrained(os.path.join(here, "llama_tiny"), attn_implementation="eager", dtype=torch.float32)


def tokenizer():
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2}, unk_token="<unk>")))
    made.eos_token, made.pad_token = "</s>", "</s>"
    return made


def of_trainer(config, trainer_class, config_class, rows):
    """Loss and metrics of the whole batch by one of trl's trainers."""
    args = config_class(output_dir=tempfile.mkdtemp(), use_cpu=True, report_to=[], per_device_train_batch_size=len(rows),
                        gradient_checkpointing=False, disable_dropout=True, bf16=False, **config)
    model = base()
    text = {k.removesuffix("_ids"): "a" if k.endswith("_ids") else v for k, v in rows[0].items()}  # only to construct it
    trainer = trainer_class(model=model, ref_model=base(), args=args, processing_class=tokenizer(), train_dataset=Dataset.from_list([text] * 4))
    batch = trainer.data_collator(rows)
    kl = "kl" if getattr(trainer, "calculate_KL", False) else None

    def evaluate():
        trainer._metrics["train"].clear()
        model.train()
        loss = trainer._compute_loss(model, batch, False)
        return loss, {k: v[-1] for k, v in sorted(trainer._metrics["train"].items()) if k.startswith(("rewards/", "logps/")) or k == kl}

    return model, evaluate


def answer_logps(model, prompt, answer):
    ids = torch.tensor([prompt + answer])
    logp = F.log_softmax(model(ids, use_cache=False).logits[0, :-1], dim=-1)
    return logp.gather(1, ids[0, 1:, None])[len(prompt) - 1:].sum()


def of_functions(config, rows):
    """The same by the loss functions of trainers whose data path is not needed."""
    model, beta = base(), config.get("beta", 0.1)
    trainer = types.SimpleNamespace(accelerator=types.SimpleNamespace(device="cpu"), beta=beta, alpha=0.0, loss_type=config.get("cpo", "sigmoid"),
                                 label_smoothing=config.get("smooth", 0.0), simpo_gamma=config.get("simpo_gamma", 0.0))
    means = bool(config.get("orpo")) or config.get("cpo") in ("ipo", "simpo")
    lengths = torch.tensor([[len(r["chosen_ids"]), len(r["rejected_ids"])] for r in rows])

    def logps():
        return torch.stack([torch.stack([answer_logps(model, r["prompt_ids"], r[k]) for k in ("chosen_ids", "rejected_ids")]) for r in rows])

    reference = logps().detach() if "smooth" in config else 0.0

    def evaluate():
        sums = logps()
        nll = (-sums[:, 0] / lengths[:, 0]).mean()
        chosen, rejected = ((sums - reference) / (lengths if means else 1)).unbind(1)
        metrics = {}
        if config.get("orpo"):
            losses, c, r, ratio, odds = ORPOTrainer.odds_ratio_loss(trainer, chosen, rejected)
            loss = nll - losses.mean()
            metrics = {"log_odds_ratio": ratio.item(), "log_odds_chosen": odds.item()}
        else:
            losses, c, r = CPOTrainer.cpo_loss(trainer, chosen, rejected)
            loss = losses.mean() + config.get("cpo_alpha", 0.0) * nll
        if "smooth" not in config:
            metrics["nll_loss"] = nll.item()
        logp = sums.detach() / (lengths if means else 1)
        metrics.update({"rewards/chosen": c.mean().item(), "rewards/rejected": r.mean().item(),
                        "rewards/accuracies": (c > r).float().mean().item(), "rewards/margins": (c - r).mean().item(),
                        "logps/chosen": logp[:, 0].mean().item(), "logps/rejected": logp[:, 1].mean().item()})
        return loss, dict(sorted(metrics.items()))

    return model, evaluate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    common.setup()
    torch.use_deterministic_algorithms(False)
    made, judged = pairs(), labels()
    pair_rows = [{"prompt_ids": r["prompt"], "chosen_ids": r["chosen"] + [EOS], "rejected_ids": r["rejected"] + [EOS]} for r in made]
    label_rows = [{"prompt_ids": r["prompt"], "completion_ids": r["completion"] + [EOS], "label": r["label"]} for r in judged]
    as_labels = lambda key, good: [{"prompt_ids": r["prompt_ids"], "completion_ids": r[key], "label": good} for r in pair_rows]
    label_sets = {"labels": rotated(label_rows), "good": rotated([r for r in label_rows if r["label"]]),
                  "pairs": rotated(as_labels("chosen_ids", True)) + rotated(as_labels("rejected_ids", False))}
    cases = {}
    for name, (settings, config) in CASES.items():
        more = {}
        if config.get("kto"):
            more = {"records": config["kto"]}
            rows = label_sets[config["kto"]]
            config = {k: v for k, v in config.items() if k != "kto"}
            if config.get("loss_type") == "apo_zero_unpaired":
                rows = [{k: v for k, v in row.items() if k != "KL_completion_ids"} for row in rows]
            model, evaluate = of_trainer(config, trl.KTOTrainer, trl.KTOConfig, rows)
        elif "loss_type" in config:
            config = {k: [v] if k == "loss_type" and isinstance(v, str) else v for k, v in config.items()}
            model, evaluate = of_trainer(config, trl.DPOTrainer, trl.DPOConfig, pair_rows)
        else:
            model, evaluate = of_functions(config, pair_rows)
        cases[name] = {"settings": settings, **more, **common.train_by(model, evaluate, STEPS, KEPT)}
        print(name, [round(s["loss"], 6) for s in cases[name]["steps"]])
    directory = os.path.join(args.output_dir, "objectives")
    common.fresh(directory)
    with open(os.path.join(directory, "golden.json"), "w") as f:
        lines = [f' "{name}": {json.dumps(case)}' for name, case in cases.items()]
        f.write(json.dumps({"note": f"trl {trl.__version__}, {common.versions_line()}"})[:-1])
        f.write(f',\n"pairs": {json.dumps(made)},\n"labels": {json.dumps(judged)},\n"cases": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
