"""Energon's datasets and metadatasets: shards are read as they are, blends are weights or epochs.

Nested blends are multiplied out as Energon does it: a weight counts for its share of the weights
beside it.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from stoker.migrate.recipe import Problems, checked_uri, last_of, literal, mixture

UNTRANSLATED = {
    "subset": "write a split that names the shards of the part",
    "aux": "name images in the samples themselves, by paths or s3:// addresses",
    "join": "write the joined samples as one dataset",
}
SHARES = {"blend": "weight", "blend_epochized": "repetitions", "datasets": "weight"}
"""Lists of datasets, and the key of each one's share in them."""

OURS = {"weight": "weight", "repetitions": "epochs"}

KINDS = {
    "CaptioningSample": {"image": "images", "caption": "answer"},
    "CaptioningWebdataset": {"image": "images", "caption": "answer"},
    "VQASample": {"image": "images", "context": "question", "answers": "answer"},
    "VQAWebdataset": {"image": "images", "context": "question", "answers": "answer"},
}
"""Sample types whose fields a recipe has too."""

CRUDE = ("CrudeWebdataset", "CrudeSample")


def from_energon(path: str, *, split: str = "train") -> dict[str, Any]:
    """The recipe over a metadataset, or over a prepared dataset.

    Args:
        path: A metadataset's YAML file on this machine, or a dataset: the folder that has
            `.nv-meta` in it (on a store too), or a JSONL.
        split: Which part of the data.

    Returns:
        A recipe with `dataset` or `datasets`; `model` is yet to be added.

    Raises:
        MigrationError: Something in there is what a recipe can't say.
        ModuleNotFoundError: PyYAML is missing.
    """
    problems = Problems()
    entries = _reference({"path": path}, "", split, problems)
    shares = {key for entry in entries for key in ("weight", "epochs") if key in entry}
    if len(shares) > 1:
        problems.add(path, "blend and blend_epochized, one within the other", "use one of them")
    problems.end()
    return mixture(entries)


def _reference(node: dict, base: str, split: str, problems: Problems) -> list[dict[str, Any]]:
    """The datasets that a reference stands for."""
    for key in UNTRANSLATED.keys() & {name for name, value in node.items() if value}:
        problems.add(str(node.get("path", base)), f"`{key}`", UNTRANSLATED[key])
    if "path" not in node:
        return []
    path, split = _joined(base, str(node["path"])), node.get("split_part") or split
    if node.get("subflavors"):
        warnings.warn(
            f"{path}: subflavors are left out: stoker knows a dataset by its name", stacklevel=2
        )
    if node.get("shuffle_over_epochs_multiplier", 1) != 1:
        text = f"{path}: shuffle_over_epochs_multiplier is left out: each epoch is a permutation"
        warnings.warn(text, stacklevel=2)
    if path.endswith((".yaml", ".yml")):
        return _metadataset(path, split, problems)
    entry: dict[str, Any] = {"name": last_of(path).removesuffix(".jsonl")}
    if path.endswith(".jsonl"):
        return [entry | {"source": literal(checked_uri(path, path, problems))}]
    part = "" if split == "train" else f"#{split}"
    source = f"{path.rstrip('/')}/.nv-meta/{node.get('split_config') or 'split.yaml'}{part}"
    entry["source"] = literal(checked_uri(source, path, problems))
    config = f"{path.rstrip('/')}/.nv-meta/{node.get('dataset_config') or 'dataset.yaml'}"
    return [entry | _fields(config, problems)]


def _metadataset(path: str, split: str, problems: Problems) -> list[dict[str, Any]]:
    if "://" in path or not Path(path).is_file():
        problems.add(path, "there is no such file on this machine", "bring the metadataset here")
        return []
    document = _yaml(path)
    parts = document.get("splits") or {}
    if split not in parts:
        known = ", ".join(map(str, parts)) or "none"
        problems.add(path, f"there is no split {split!r}", f"its splits are {known}")
        return []
    return _node(parts[split], path, split, problems)


def _node(node: dict, path: str, split: str, problems: Problems) -> list[dict[str, Any]]:
    """The datasets of a reference or of a blend, with their shares."""
    for kind, key in SHARES.items():
        if kind in node:
            for lost in UNTRANSLATED.keys() & node.keys():
                problems.add(path, f"`{lost}` of a {kind}", UNTRANSLATED[lost])
            found = []
            for one in node[kind]:
                inner = _node(one, path, split, problems)
                found += _scaled(inner, float(one.get(key, 1)), OURS[key])
            return found
    if "path" not in node and "join" not in node:
        known = ", ".join(["path", *SHARES])
        problems.add(path, f"keys {sorted(node)} where one of {known} is expected", "mend the file")
        return []
    return _reference(node, path, split, problems)


def _scaled(entries: list[dict[str, Any]], share: float, ours: str) -> list[dict[str, Any]]:
    """The datasets of one part of a blend, with that part's share."""
    whole = sum(entry.get(ours, 1.0) for entry in entries) if ours == "weight" else 1.0
    return [{**entry, ours: entry.get(ours, 1.0) * share / (whole or 1.0)} for entry in entries]


def _fields(config: str, problems: Problems) -> dict[str, Any]:
    """What `dataset.yaml` says of the members of a sample."""
    if "://" in config or not Path(config).is_file():
        text = f"{config} is not on this machine: set dataset.fields where samples are no messages"
        warnings.warn(text, stacklevel=2)
        return {}
    document = _yaml(config)
    kind = document.get("sample_type") or document
    name = str(kind.get("__class__", "") if isinstance(kind, dict) else kind).rpartition(".")[2]
    if name in CRUDE:
        text = f"{config}: what its cooker does is not translated; messages and images are read"
        warnings.warn(text, stacklevel=2)
        return {}
    known = KINDS.get(name)
    if known is None:
        problems.add(config, f"samples of type {name!r}", "write them as messages with images")
        return {}
    field_map = document.get("field_map")
    if not field_map:
        problems.add(config, "a sample_loader in Python", "name its members with dataset.fields")
        return {}
    fields = {}
    for theirs, ours in known.items():
        member = str(field_map.get(theirs, ""))
        if not re.fullmatch(r"[\w.-]+", member):
            do = "only whole members can be named: write it as a member, or as messages"
            problems.add(config, f"field_map.{theirs} is {member!r}", do)
        fields[ours] = member
    return {"fields": fields}


def _joined(base: str, path: str) -> str:
    """A path relative to the file that it stands in."""
    if "://" in path or path.startswith("/") or not base:
        return path
    return str(Path(base).parent / path)


def _yaml(path: str) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Energon's files are YAML: pip install pyyaml") from error
    return yaml.safe_load(Path(path).read_text()) or {}
