"""Loads a folder of adapters with PyPI's peft and compares its logits with those of the merged folder.

    python3 adapter_check.py BASE ADAPTERS MERGED LARGEST_DIFFERENCE

BASE and MERGED are folders of Hugging Face models. Prints the largest difference and what peft warns of. Exit status: 0 good, 1 not,
77 peft, transformers or torch cannot be imported.
"""

import sys
import warnings

try:
    import torch
    import transformers
    from peft import PeftModel
except ImportError as absent:
    print(absent)
    sys.exit(77)


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    model_class = getattr(transformers, config.architectures[0])
    return model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def main():
    base, adapters, merged, largest = *sys.argv[1:4], float(sys.argv[4])
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(load(base), adapters).eval()
    of_peft = [str(w.message) for w in caught if not issubclass(w.category, FutureWarning)]
    for line in of_peft:
        print("warning:", line)
    ids = torch.arange(3, 40).unsqueeze(0)
    with torch.no_grad():
        got, want = model(ids).logits, load(merged)(ids).logits
        unchanged = load(base)(ids).logits
    difference, change = (got - want).abs().max().item(), (unchanged - want).abs().max().item()
    print(f"largest difference {difference:.3g}; the adapters change logits by up to {change:.3g}")
    sys.exit(0 if difference <= largest and change > 100 * largest and not of_peft else 1)


if __name__ == "__main__":
    main()
