#!/usr/bin/env python3
"""Compares every family of Hugging Face models with transformers: the same weights must compute and learn the same.

    python3 families_compare.py --mtrain build/bin/mtrain --subject build/bin/families_subject [--only qwen3,llama]
        [--variant WORDS] [--keep DIR] [--markdown] [--record]

For each configuration of families_configs.py it makes a tiny random model with transformers (fp32, eager attention, one thread), in
which no parameter is 0 or 1, saves it, and compares
  logits and loss of a batch of 3 x 33 tokens, and of documents of several lengths that mtrain packs into one sequence
  gradients of the first step, before clipping, of both
  parameters after five steps of AdamW
  logits by a config.json without the keys that have their default, and by the one that mtrain exports
  the bytes of all tensors after `mtrain import` and `mtrain export`
  logits of the exported folder in transformers, which must load it without a warning
Bounds are in BOUNDS. It prints a line for each configuration and, for what is out of bounds, the tensor, the place and both values.
--markdown prints a table; --record writes the result to `compared` in the families' files, which `mtrain families --markdown` shows.
--keep DIR leaves the folders there. Needs torch, transformers and safetensors. Several runs at a time do not disturb each other.
Exit status: 0 good, 1 not, 77 transformers or torch cannot be imported.
"""

import argparse
import copy
import datetime
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    import transformers
    from safetensors.torch import load_file
except ImportError as absent:
    print(absent)
    sys.exit(77)

import golden_common as common
from families_configs import FAMILIES
from hf_export_check import load_quietly

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROWS, LENGTH, DOCUMENTS, STEPS = 3, 33, (8, 20, 2, 6), 5
DECODER, TEXTS = 11, (22, 13, 20)  # of an encoder with a decoder: the last ids of a row; the encoder's of each row, then padding

# Largest deviations. fp32 sums in another order give a tenth of these.
BOUNDS = dict(
    logits=1e-5,     # of the largest logit
    loss=3e-6,       # relative; also the norm of the gradient, in every step
    gradients=2e-5,  # of the largest gradient of the tensor
    steps=2e-5,      # absolute, where the gradients of all steps are firm, see firm_places()
    export=1e-6,     # logits of the exported folder, of the largest logit
)
# Of the largest gradient of all tensors. The gradients of a tensor that are all smaller are rounding of 0: a bias that adds the same
# to all logits of a softmax, for example. They are compared with this instead, and AdamW's steps in their direction mean nothing.
NOTHING = 1e-6


class Failure(Exception):
    pass


class Report:
    """The largest deviations of one configuration, and what is out of bounds."""

    def __init__(self, bounds):
        self.bounds, self.largest, self.faults = bounds, dict.fromkeys(bounds, 0.0), []

    def note(self, what, value, text):
        if not value <= self.largest[what]:
            self.largest[what] = value
        if not value <= self.bounds[what]:
            self.faults.append(f"{what}: {text}")

    def fault(self, text):
        self.faults.append(text)


# --- the model of transformers --------------------------------------------------------------------------------------------------------


def make_model(family, kwargs, seed):
    kwargs = copy.deepcopy({**family.sizes, **family.base, **kwargs})  # config classes add to the dictionaries that they get
    config = getattr(transformers, family.config)(**kwargs)
    model = getattr(transformers, family.model)._from_config(config, attn_implementation="eager")
    common.randomise(model, seed, matrix_std=family.std, bias_std=0.3, norm_std=0.2)
    rng = np.random.RandomState(seed + 1)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.dim() == 2 and re.search(r"norm[^.]*\.weight$", name):
                p.add_(1.0)
        stored = model.state_dict()
        for name, b in sorted(model.named_buffers()):
            if name in stored and b.is_floating_point():
                b.copy_(torch.from_numpy(0.1 * rng.standard_normal(tuple(b.shape)).astype(np.float32)))
    if family.task == "pairs" and kwargs.get("tie_word_embeddings") is False:  # this version of transformers ties them anyway
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.flip(0).clone())
        model.config.tie_word_embeddings = False
    return model.train()  # all dropouts are 0


def make_batch(family, seed, vocab):
    """BATCH.json of families_subject; ids are above the special ones, whose rows of the embedding may have no gradient."""
    rng = np.random.RandomState(seed)

    def ids(length):
        return rng.randint(5, vocab, size=length).tolist()

    batch = {"rows": [ids(LENGTH) for _ in range(ROWS)], "documents": [ids(n) for n in DOCUMENTS], "steps": STEPS}
    if family.task == "masked":
        for rows, targets in (("rows", "targets"), ("documents", "document_targets")):
            batch[targets] = [[-1] * len(row) for row in batch[rows]]
            for row, wanted in zip(batch[rows], batch[targets]):
                for at in rng.permutation(len(row))[: max(1, len(row) // 6)]:
                    wanted[at], row[at] = row[at], 4
    if family.task == "pairs":
        del batch["documents"]
        none = [-1] * (LENGTH - DECODER)
        for row, text in zip(batch["rows"], TEXTS):
            row[text : LENGTH - DECODER] = [0] * (LENGTH - DECODER - text)
        batch.update(decoder=DECODER, targets=[none + ids(DECODER) for _ in range(ROWS)])
    return batch


def pairs(batch, rows, targets):
    if targets in batch:
        return batch[rows], batch[targets]
    return [row[:-1] for row in batch[rows]], [row[1:] for row in batch[rows]]


def forward(model, rows):
    """[tokens, vocabulary]; rows of different lengths one by one, since they do not see each other. An encoder with a decoder has
    logits of the decoder's tokens."""
    if model.config.is_encoder_decoder:
        ids, encoder = torch.tensor(rows), LENGTH - DECODER
        logits = model(
            input_ids=ids[:, :encoder], attention_mask=(ids[:, :encoder] != 0).long(), decoder_input_ids=ids[:, encoder:],
            use_cache=False).logits
        return logits.reshape(-1, logits.shape[-1])
    if len({len(row) for row in rows}) > 1:
        return torch.cat([forward(model, [row]) for row in rows])
    options = {} if getattr(model.config, "use_cache", None) is None else {"use_cache": False}
    logits = model(torch.tensor(rows), **options).logits
    return logits.reshape(-1, logits.shape[-1])


def backward(model, rows, targets):
    model.zero_grad(set_to_none=True)
    logits = forward(model, rows)
    wanted = torch.tensor([t for row in targets for t in row[-DECODER if model.config.is_encoder_decoder else 0 :]])
    loss = F.cross_entropy(logits, wanted, ignore_index=-1)
    loss.backward()
    return logits.detach(), loss.item()


def parameters_of(model):
    return {n: p for n, p in model.named_parameters() if p.requires_grad}


def gradients_of(model):
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for n, p in parameters_of(model).items()}


def firm_places(gradients):
    """Places where AdamW's step is as exact as the gradient: it divides the gradient by its own size, so what rounding does to a
    gradient of a thousandth of the largest moves a parameter a thousand times as far. A gradient that is exactly 0 is firm."""
    return {n: (g.abs() >= 1e-3 * g.abs().max()) | (g == 0) for n, g in gradients.items()}


def train(model, family, rows, targets):
    """STEPS steps of AdamW as golden_common.run() documents them; gives the first step's values, losses, and firm places."""
    params = parameters_of(model)
    decay = [p for n, p in params.items() if p.dim() >= 2 and not re.search(family.no_decay, n)]
    keep = [p for n, p in params.items() if p.dim() < 2 or re.search(family.no_decay, n)]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": common.WEIGHT_DECAY}, {"params": keep, "weight_decay": 0.0}],
        lr=common.LR, betas=common.BETAS, eps=common.EPS, foreach=False)
    steps, first, firm = [], None, None
    for _ in range(STEPS):
        logits, loss = backward(model, rows, targets)
        for p in params.values():  # without a gradient AdamW would not decay
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        gradients = gradients_of(model)
        if first is None:
            first = logits, gradients
        here = firm_places(gradients)
        firm = here if firm is None else {n: firm[n] & here[n] for n in firm}
        norm = torch.nn.utils.clip_grad_norm_(list(params.values()), common.CLIP, foreach=False)
        steps.append({"loss": loss, "grad_norm": norm.item()})
        optimizer.step()
    return first, steps, {n: p.detach().clone() for n, p in params.items()}, firm


def as_in_file(model, tensors, scratch):
    """Tensors of parameters under the names and in the layouts of a file: saved as if they were the weights."""
    with torch.no_grad():
        for name, p in parameters_of(model).items():
            p.copy_(tensors[name].to(p.dtype))
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        model.save_pretrained(folder)
        return read_folder(folder)


def read_folder(folder):
    out = {}
    for file in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        out.update(load_file(file))
    return out


def last_words(names):
    return {name.rsplit(".", 1)[-1] for name in names}


def reference(family, model, batch, folder):
    """What transformers computes, under the names of its files; the folder gets the model before training."""
    common.save_hf(model, folder)
    short_config(model, folder)
    rows, targets = pairs(batch, "rows", "targets")
    out = {}
    if "documents" in batch:
        out["documents"], loss = backward(model, *pairs(batch, "documents", "document_targets"))
        packed = gradients_of(model)
        norm = torch.sqrt(sum((g.double() ** 2).sum() for g in packed.values())).item()
        out["packed"] = {"loss": loss, "grad_norm": norm}
    (first, gradients), steps, trained, firm = train(model, family, rows, targets)
    scratch = os.path.dirname(folder)
    named = {"gradients": gradients, "parameters": trained, "firm": firm}
    if "documents" in batch:
        named["packed_gradients"] = packed
    # By the last word: a file may have the module that holds a buffer under another name.
    stored = model.state_dict().keys() - parameters_of(model).keys()
    constant = (last_words(stored) - last_words(parameters_of(model))) | set(family.constant)
    for what, tensors in named.items():
        out[what] = {n: t for n, t in as_in_file(model, tensors, scratch).items() if not last_words([n]) & constant}
    return {"rows": first, "steps": steps, **out}


def short_config(model, folder):
    """config.short.json: without the keys that have the default of the config class."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        given = json.load(file)
    defaults = type(model.config)().to_dict()
    needed = ("model_type", "architectures", "vocab_size", "max_position_embeddings", "n_positions", "max_seq_len")
    absent = object()
    short = {k: v for k, v in given.items() if k in needed or defaults.get(k, absent) != v}
    with open(os.path.join(folder, "config.short.json"), "w", encoding="utf-8") as file:
        json.dump(short, file, indent=1)


# --- comparison -----------------------------------------------------------------------------------------------------------------------


def place(index, shape):
    return "[" + ", ".join(str(i) for i in np.unravel_index(index, shape)) + "]" if shape else ""


def compare(report, what, name, got, want, scale, mask=None):
    """Notes the largest difference in units of `scale`."""
    if got.numel() != want.numel():
        return report.fault(f"{what}: {name} has {got.numel()} values, transformers has {want.numel()}, {list(want.shape)}")
    difference = (got.reshape(want.shape).double() - want.double()).abs()
    if mask is not None:
        difference = torch.where(mask, difference, 0.0)
    difference = torch.where(difference.isnan(), torch.inf, difference)
    if difference.numel() == 0:
        return None
    at = int(difference.argmax())
    value = difference.reshape(-1)[at].item() / scale
    bound, many = report.bounds[what] * scale, ""
    off = int((difference > bound).sum())
    if off > 1:
        many = f"; {off} of {want.numel()} values are out of bounds"
    report.note(what, value, f"{name}{place(at, tuple(want.shape))}: mtrain {got.reshape(-1)[at].item():.8g}, transformers "
                f"{want.reshape(-1)[at].item():.8g}, {value:.2g} apart (bound {report.bounds[what]:.2g}){many}")
    return None


def largest(tensor):
    return tensor.abs().max().item() if tensor.numel() else 0.0


def same_names(report, what, got, want):
    for name in sorted(want.keys() - got.keys()):
        report.fault(f"{what}: mtrain has no {name} {list(want[name].shape)}")
    for name in sorted(got.keys() - want.keys()):
        report.fault(f"{what}: transformers has no {name} ({got[name].numel()} values)")
    return sorted(want.keys() & got.keys())


def compare_gradients(report, label, got, want):
    top = max(largest(t) for t in want.values())
    for name in same_names(report, label, got, want):
        scale = largest(want[name])
        if scale < NOTHING * top:
            scale = NOTHING * top / report.bounds["gradients"]
        compare(report, "gradients", f"{label} {name}", got[name], want[name], scale)


def compare_parameters(report, got, want, firm, gradients):
    top = max(largest(t) for t in gradients.values())
    for name in same_names(report, "parameters", got, want):
        nothing = 0 < largest(gradients[name]) < NOTHING * top
        mask = torch.zeros_like(want[name], dtype=torch.bool) if nothing else firm[name] > 0
        compare(report, "steps", f"parameters after {STEPS} steps: {name}", got[name], want[name], 1.0, mask)
        # Elsewhere no parameter moves farther than AdamW can, in either direction.
        far = (got[name].reshape(want[name].shape) - want[name]).abs().max().item() if want[name].numel() else 0
        if not far <= 2 * STEPS * common.LR * 1.05:
            report.fault(f"steps: {name} differs by {far:.3g}, farther than AdamW can move it")


def compare_numbers(report, label, got, want):
    for key in ("loss", "grad_norm"):
        value = abs(got[key] / want[key] - 1)
        report.note("loss", value, f"{label} {key}: mtrain {got[key]:.8g}, transformers {want[key]:.8g}, {value:.2g} apart")


def compare_subject(report, folder, want):
    logits = load_file(os.path.join(folder, "logits.safetensors"))
    for name in ("rows", "documents"):
        if name in want:
            compare(report, "logits", f"logits of {name}", logits[name], want[name], largest(want[name]))
    if not torch.equal(logits["short_rows"], logits["rows"]):
        report.fault("logits: config.json without the keys that have their default gives other logits: a default in the family's file "
                     f"differs from that of the config class (largest difference {largest(logits['short_rows'] - logits['rows']):.2g})")
    with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
        result = json.load(file)
    for i, (got, wanted) in enumerate(zip(result["steps"], want["steps"])):
        compare_numbers(report, f"step {i}", got, wanted)
    if "packed" in want:
        compare_numbers(report, "documents", result["documents"], want["packed"])
    for what in (name for name in ("gradients", "packed_gradients") if name in want):
        compare_gradients(report, what, load_file(os.path.join(folder, what + ".safetensors")), want[what])
    compare_parameters(report, load_file(os.path.join(folder, "parameters.safetensors")), want["parameters"], want["firm"],
                       want["gradients"])
    return logits["rows"]


def compare_bytes(report, got, want):
    for name in sorted(want.keys() | got.keys()):
        if name not in got:
            if not any(torch.equal(want[name], t) for t in got.values()):  # a copy need not be written
                report.fault(f"export: {name} is not exported")
        elif name not in want:
            report.fault(f"export: {name} is exported, and the folder did not have it")
        elif got[name].dtype != want[name].dtype or got[name].shape != want[name].shape:
            report.fault(f"export: {name} is {got[name].dtype} {list(got[name].shape)}, and was {want[name].dtype} "
                         f"{list(want[name].shape)}")
        elif got[name].numpy().tobytes() != want[name].numpy().tobytes():
            report.fault(f"export: {name} has other bytes")


# --- one configuration ----------------------------------------------------------------------------------------------------------------


def call(words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failure(f"{os.path.basename(words[0])} {words[1]} failed ({done.returncode}): {(done.stderr or done.stdout).strip()}")


def compare_export(report, args, folder, batch, want, ours):
    run, out = folder + "-run", folder + "-exported"
    call([args.mtrain, "import", folder, run, "-q", "tokenizer=byte"])
    call([args.mtrain, "export", run, out, "-q"])
    compare_bytes(report, read_folder(out), read_folder(folder))
    model, lines = load_quietly(out)
    for line in lines:
        if "we will NOT tie them" not in line:  # transformers takes every T5 for tied and warns of the published ones that are not
            report.fault(f"export: transformers warns: {line}")
    with torch.no_grad():
        logits = forward(model, pairs(batch, "rows", "targets")[0])
    compare(report, "export", "logits of the exported folder in transformers", logits, want["rows"], largest(want["rows"]))
    # config.json as mtrain writes it has other forms of some keys.
    call([args.subject, out, folder + "-logits.json", out + "-result"])
    again = load_file(os.path.join(out + "-result", "logits.safetensors"))["rows"]
    compare(report, "export", "logits of the exported folder in mtrain", again, ours, largest(ours))


def run_variant(args, family, kwargs, seed, scratch):
    report, kwargs = Report({**BOUNDS, **family.bounds}), dict(kwargs)
    with_documents = kwargs.pop("documents", True)
    folder = os.path.join(scratch, "model")
    try:
        model = make_model(family, kwargs, seed)
        batch = make_batch(family, seed + 2, model.config.vocab_size)
        if not with_documents:
            del batch["documents"]
        want = reference(family, model, batch, folder)
        with open(folder + "-batch.json", "w", encoding="utf-8") as file:
            json.dump(batch, file)
        with open(folder + "-logits.json", "w", encoding="utf-8") as file:
            json.dump({k: v for k, v in batch.items() if k in ("rows", "targets", "decoder")} | {"steps": 0}, file)
        call([args.subject, folder, folder + "-batch.json", folder + "-result"])
        ours = compare_subject(report, folder + "-result", want)
        compare_export(report, args, folder, batch, want, ours)
    except Failure as failure:
        report.fault(str(failure))
    except Exception:  # of transformers: this configuration fails, the others are compared
        report.fault(traceback.format_exc().strip())
    return report


def run_family(args, model_type):
    family, reports = FAMILIES[model_type], {}
    for i, (name, kwargs) in enumerate(family.variants.items()):
        if args.variant and args.variant not in name:
            continue
        with tempfile.TemporaryDirectory(prefix=f"families-{model_type}-") as scratch:
            if args.keep:
                scratch = os.path.join(args.keep, model_type, re.sub(r"\W+", "-", name))
                os.makedirs(scratch, exist_ok=True)
                for old in glob.glob(os.path.join(scratch, "model*")):
                    subprocess.run(["rm", "-rf", old], check=True)
            report = reports[name] = run_variant(args, family, kwargs, 1000 + 10 * i, scratch)
        figures = ", ".join(f"{what} {value:.1e}" for what, value in report.largest.items())
        print(f"{'FAIL' if report.faults else 'good'}  {model_type}: {name}: {figures}", flush=True)
        for fault in report.faults[: args.faults]:
            print("      " + fault.replace("\n", "\n      "), flush=True)
        if len(report.faults) > args.faults:
            print(f"      and {len(report.faults) - args.faults} more (--faults N)", flush=True)
    return reports


def summary(reports):
    """The largest deviation of each kind over the configurations of a family."""
    return {what: max(r.largest[what] for r in reports.values()) for what in BOUNDS}


def markdown(results):
    print(f"\ntransformers {transformers.__version__}, torch {torch.__version__}, {datetime.date.today()}\n")
    print("| model_type | class | configurations | " + " | ".join(f"{w} (bound {b:.0e})" for w, b in BOUNDS.items()) + " | |")
    print("|---|---|---|" + "---|" * (len(BOUNDS) + 1))
    for model_type, reports in results.items():
        values = " | ".join(f"{v:.1e}" for v in summary(reports).values())
        bad = [name for name, r in reports.items() if r.faults]
        print(f"| `{model_type}` | {FAMILIES[model_type].model} | {'; '.join(reports)} | {values} | "
              f"{'failed: ' + '; '.join(bad) if bad else 'passed'} |")


def record(model_type, reports):
    """Sets `compared` in the family's file."""
    files = glob.glob(os.path.join(ROOT, "plugins/model/*/families", model_type + ".yaml"))
    if len(files) != 1:
        print(f"not recorded: there is not one {model_type}.yaml: {files}")
        return
    largest_of = summary(reports)
    line = (f'compared: "transformers {transformers.__version__}, {len(reports)} configurations: logits {largest_of["logits"]:.0e}, '
            f'gradients {largest_of["gradients"]:.0e}, five AdamW steps {largest_of["steps"]:.0e}; {datetime.date.today()}"\n')
    with open(files[0], encoding="utf-8") as file:
        lines = [text for text in file if not text.startswith("compared:")]
    lines.insert(next(i for i, text in enumerate(lines) if text.startswith("architectures:")) + 1, line)
    with open(files[0], "w", encoding="utf-8") as file:
        file.writelines(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mtrain", default=os.path.join(ROOT, "build/bin/mtrain"))
    parser.add_argument("--subject", default=os.path.join(ROOT, "build/bin/families_subject"))
    parser.add_argument("--only", help="these model types, separated by commas")
    parser.add_argument("--variant", help="configurations whose name contains this")
    parser.add_argument("--faults", type=int, default=6, help="of a configuration, that are printed")
    parser.add_argument("--keep", metavar="DIR", help="keep the folders")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else list(FAMILIES)
    if unknown := [name for name in wanted if name not in FAMILIES]:
        parser.error(f"families_configs.py has no {', '.join(unknown)}; it has {', '.join(FAMILIES)}")
    common.setup()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    results = {model_type: run_family(args, model_type) for model_type in wanted}
    if args.markdown:
        markdown(results)
    for model_type, reports in results.items():
        if args.record and not args.variant and not any(r.faults for r in reports.values()):
            record(model_type, reports)
    sys.exit(any(r.faults for reports in results.values() for r in reports.values()))


if __name__ == "__main__":
    main()
