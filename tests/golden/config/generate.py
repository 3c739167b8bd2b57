#!/usr/bin/env python3
"""Writes the conformance tables next to this file: what Hydra and OmegaConf make of each input.

  python3 -m venv venv && venv/bin/pip install hydra-core==1.3.8 omegaconf==2.3.1
  venv/bin/python tests/golden/config/generate.py

cases.py holds the inputs, each under the rule it proves, and the results that are meant to differ from theirs.
"""
import json
import math
import os
import pathlib
import tempfile
import warnings

import hydra
import omegaconf
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType, QuotedString
from omegaconf import OmegaConf

import cases

HERE = pathlib.Path(__file__).parent
PARSER = OverridesParser.create()
ERROR = {"error": True}
warnings.simplefilter("ignore")


def plain(value):
    """A value of either library as JSON; a float is always distinguished from an integer, and inf and nan are words."""
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, float):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"} if not math.isfinite(value) else value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return [["map"]] + [[str(plain(key)), plain(item)] for key, item in value.items()]
    return value


def override(text):
    parsed = PARSER.parse_override(text)
    if parsed.is_sweep_override():
        return {"sweep": True}
    sign = {OverrideType.CHANGE: "", OverrideType.ADD: "+", OverrideType.FORCE_ADD: "++", OverrideType.DEL: "~"}
    out = {"key": parsed.get_key_element().lstrip("+~"), "sign": sign[parsed.type]}
    if parsed.type != OverrideType.DEL or parsed._value is not None:
        out["value"] = plain(parsed.value())
    return out


class Loader:
    """Stands for Hydra's loader where a glob asks for the options of a group."""

    def get_group_options(self, group_name, results_filter=None):
        return list(cases.GROUPS.get(group_name, []))


def sweep(texts):
    parser = OverridesParser.create(Loader())
    batches = BasicSweeper.split_arguments(parser.parse_overrides(texts), max_batch_size=None)
    out = []
    for trial in (trial for batch in batches for trial in batch):
        parsed = [PARSER.parse_override(text) for text in trial]
        out.append([[item.get_key_element().lstrip("+"), plain(item.value())] for item in parsed])
    return out


def composition(case):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**cases.LIBRARY, "config.yaml": case["recipe"]}.items():
            file = pathlib.Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        with initialize_config_dir(config_dir=folder, version_base=None):
            config = compose(config_name="config", overrides=case.get("overrides", []))
        return plain(OmegaConf.to_container(config, resolve=False))


def interpolation(text):
    config = OmegaConf.create(yaml.load(text, Loader=omegaconf._utils.get_yaml_loader()))
    return plain(OmegaConf.to_container(config, resolve=True, throw_on_missing=False))


def merge(texts):
    config = OmegaConf.merge(*[OmegaConf.create(text) for text in texts])
    return plain(OmegaConf.to_container(config, resolve=False))


def select(pair):
    value = OmegaConf.select(OmegaConf.create(pair[0]), pair[1])
    return plain(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value)


def write(name, run, groups):
    count = 0
    lines = []
    for rule, inputs in groups.items():
        for item in inputs:
            given, differs = item if isinstance(item, tuple) else (item, None)
            try:
                result = run(given)
            except Exception:  # any refusal: the tables say only that the input is refused
                result = ERROR
            line = {"rule": rule, "input": given, "result": result}
            if differs:
                line["differs"], line["ours"] = differs
            lines.append(json.dumps(line, ensure_ascii=False))
            count += 1
    head = {"hydra": hydra.__version__, "omegaconf": omegaconf.__version__}
    text = "{\n" + json.dumps(head)[1:-1] + ",\n\"cases\": [\n" + ",\n".join(lines) + "\n]}\n"
    (HERE / f"{name}.json").write_text(text)
    return count


def main():
    os.environ.update(CONFORMANCE_TEXT="text", CONFORMANCE_NUMBER="12")
    total = write("overrides", override, cases.OVERRIDES)
    total += write("sweeps", sweep, cases.SWEEPS)
    total += write("composition", composition, cases.COMPOSITION)
    total += write("interpolation", interpolation, cases.INTERPOLATION)
    total += write("merging", merge, cases.MERGING)
    total += write("paths", select, cases.PATHS)
    (HERE / "library.json").write_text(json.dumps({"files": cases.LIBRARY, "groups": cases.GROUPS}, indent=1) + "\n")
    print(total, "cases")


if __name__ == "__main__":
    main()
