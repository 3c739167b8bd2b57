"""The JSON Schema of recipes against an independent validator: every recipe and every option of every group is
valid, and a misspelt key, a value of another kind and a word that is no choice are not.

    schema_check.py SOURCE_FOLDER        needs jsonschema and PyYAML; leaves with 77 where they are missing
"""
import copy
import json
import pathlib
import re
import sys

try:
    import yaml
    from jsonschema import Draft7Validator
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)


class Yaml12(yaml.SafeLoader):
    """PyYAML reads YAML 1.1; editors read 1.2, where 3e-4 is a number and `off` a text."""


Yaml12.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag.rsplit(":", 1)[1] not in ("float", "int", "bool")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for tag, pattern, first in (
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("int", r"[-+]?[0-9]+$", "-+0123456789"),
    ("bool", r"(true|false)$", "tf"),
):
    for character in first:
        found = Yaml12.yaml_implicit_resolvers.setdefault(character, [])
        found.insert(0, ("tag:yaml.org,2002:" + tag, re.compile(pattern)))


def leaves(tree, path=()):
    """The paths of all scalars and lists."""
    if not isinstance(tree, dict):
        yield path
        return
    for key, value in tree.items():
        yield from leaves(value, path + (key,))


def changed(tree, path, change):
    """A copy of `tree` whose parent of `path` went through change(parent, key)."""
    out = copy.deepcopy(tree)
    at = out
    for key in path[:-1]:
        at = at[key]
    change(at, path[-1])
    return out


def misspell(parent, key):
    parent[key + "x"] = parent.pop(key)


def another_kind(parent, key):
    parent[key] = {"a": {"b": 1}}


def no_choice(parent, key):
    parent[key] = "no such choice"


def as_recipe(file):
    """An option of a group as the part of a recipe that it becomes."""
    text = file.read_text()
    tree = yaml.load(text, Yaml12) or {}
    tree.pop("defaults", None)
    return tree if "# @package _global_" in text else {file.parent.name: tree}


def main(source):
    schema = json.loads((source / "schemas/recipe.schema.json").read_text())
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema)
    recipes = sorted((source / "recipes").glob("*.yaml"))
    trees = {file: yaml.load(file.read_text(), Yaml12) for file in recipes}
    trees |= {file: as_recipe(file) for file in sorted((source / "recipes").glob("*/*.yaml"))}
    faults = [f"{file}: {error.json_path}: {error.message[:200]}"
              for file, tree in trees.items() for error in validator.iter_errors(tree)]
    spoilt = 0
    for file, tree in trees.items():
        for path in leaves({key: value for key, value in tree.items() if key != "defaults"}):
            if not path:
                continue
            changes = [misspell, another_kind]
            if isinstance(tree.get(path[0]), dict) and path[1:] in (("type",), ("dtype",), ("schedule",)):
                changes.append(no_choice)
            for change in changes:
                spoilt += 1
                if validator.is_valid(changed(tree, path, change)):
                    faults.append(f"{file}: {'.'.join(path)}: {change.__name__} goes unnoticed")
    for section in ("model", "optimizer", "tokenizer", "dataset", "objective"):  # plugins that this schema has never seen
        own = copy.deepcopy(trees[source / "recipes/quickstart.yaml"])
        own[section] = {"type": "my_own", "a_setting": 1}
        faults += [f"a plugin of one's own: {section}: {error.message[:200]}" for error in validator.iter_errors(own)]
        own[section] = {"type": "My own"}
        if validator.is_valid(own):
            faults.append(f"{section}: a name that no plugin can have goes unnoticed")
    print(f"{len(trees)} files, {spoilt} spoilt copies, {len(faults)} faults")
    print("\n".join(faults[:40]))
    return 1 if faults or not trees or not spoilt else 0


sys.exit(main(pathlib.Path(sys.argv[1])))
