"""Loads a Hugging Face folder as transformers does, without a warning, and compares its logits with stored ones.

    python3 hf_export_check.py FOLDER EXPECTED.safetensors LARGEST_DIFFERENCE

EXPECTED has `input_ids` and `logits`. Prints the largest difference. Exit status: 0 good, 1 not, 77 transformers or torch cannot
be imported.
"""

import logging
import sys
import warnings

try:
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as absent:
    print(absent)
    sys.exit(77)


class Collector(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def load_quietly(folder):
    """The model, by the class that config.json names, and a line for each warning and each tensor too few or too many."""
    collector = Collector()
    logger, level = transformers.logging.get_logger("transformers"), transformers.logging.get_verbosity()
    logger.addHandler(collector)
    transformers.logging.set_verbosity_warning()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            config = transformers.AutoConfig.from_pretrained(folder)
            model_class = getattr(transformers, config.architectures[0])
            model, info = model_class.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    finally:
        logger.removeHandler(collector)
        transformers.logging.set_verbosity(level)
    lines = collector.lines + [f"{w.category.__name__}: {w.message}" for w in caught if "transformers" in str(w.filename)]
    return model.eval(), lines + [f"{what}: {names}" for what, names in info.items() if names]


def main():
    folder, expected, largest = sys.argv[1], load_file(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    model, lines = load_quietly(folder)
    for line in lines:
        print("warning:", line)
    with torch.no_grad():
        logits = model(expected["input_ids"]).logits
    difference = (logits - expected["logits"].reshape(logits.shape)).abs().max().item()
    print(f"transformers {transformers.__version__}: largest difference {difference:.3g}")
    sys.exit(1 if lines or not difference <= largest else 0)


if __name__ == "__main__":
    main()
