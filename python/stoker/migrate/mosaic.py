"""Mosaic Streaming's streams: MDS is read as it is, proportions are weights, repeats are epochs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.migrate.recipe import Problems, checked_uri, last_of, literal, mixture

if TYPE_CHECKING:
    from collections.abc import Iterable

KEYS = ("remote", "local", "split", "proportion", "repeat", "choose")


def from_mosaic(
    streams: Mapping[str, Any] | Iterable[Any],
    *,
    batch_size: int | None = None,
    shuffle: bool | None = None,
    shuffle_seed: int | None = None,
    epoch_size: int | None = None,
) -> dict[str, Any]:
    """The recipe over these streams.

    Args:
        streams: `streaming.Stream` objects or dicts with their arguments: a list, or by name; or
            one dict with `remote` or `local`.
        batch_size: Of a rank, as `StreamingDataset` takes it.
        shuffle: As `StreamingDataset` takes it; None, which it takes for no, is warned of. Orders
            are not the same: in a recipe every epoch is a permutation of all rows.
        shuffle_seed: Becomes `plan.seed`.
        epoch_size: Samples of an epoch; has no translation.

    Returns:
        A recipe with `dataset` or `datasets`; `model` is yet to be added.

    Raises:
        MigrationError: A stream says what a recipe can't.
    """
    problems = Problems()
    if shuffle is None:
        text = "shuffle is not given, for which Mosaic keeps the data's order; a recipe shuffles"
        warnings.warn(text, stacklevel=2)
    if isinstance(streams, Mapping) and {"remote", "local"} & streams.keys():
        streams = [streams]
    if isinstance(streams, Mapping):
        named = [(str(name), _arguments(stream)) for name, stream in streams.items()]
    else:
        named = [("", _arguments(stream)) for stream in streams]
    entries = [_entry(name, stream, problems) for name, stream in named]
    by_epochs = any("epochs" in entry for entry in entries)
    if by_epochs and any("weight" in entry for entry in entries):
        problems.add("streams", "some have a proportion and some are repeated", "give all the same")
    elif by_epochs:  # as with Mosaic, what says nothing is seen once
        entries = [{**entry, "epochs": entry.get("epochs", 1.0)} for entry in entries]
    if epoch_size is not None:
        problems.add("epoch_size", "an epoch of another size than the data", "count steps instead")
    problems.end()
    recipe = mixture(entries)
    plan = {"seed": shuffle_seed, "shuffle": "none" if shuffle is False else None}
    recipe["plan"] = {key: value for key, value in plan.items() if value is not None}
    recipe["pack"] = {} if batch_size is None else {"batch-size": batch_size}
    return {key: value for key, value in recipe.items() if value}


def _arguments(stream: object) -> dict[str, Any]:
    if isinstance(stream, Mapping):
        return {key: stream[key] for key in KEYS if stream.get(key) is not None}
    # As they were given: what a dataset derives of them stands under names without a line before.
    names = {key: f"_{key}" for key in ("local", "proportion", "repeat", "choose")}
    found = {key: getattr(stream, names.get(key, key), None) for key in KEYS}
    return {key: value for key, value in found.items() if value not in (None, "")}


def _entry(name: str, stream: dict[str, Any], problems: Problems) -> dict[str, Any]:
    root = stream.get("remote") or stream.get("local")
    if not root:
        problems.add(name or "a stream", "neither remote nor local", "name where the shards are")
        return {}
    where = f"stream {name or root}"
    split = stream.get("split") or ""
    folder = "/".join(part for part in (str(root).rstrip("/"), split.strip("/")) if part)
    index = checked_uri(f"{folder}/index.json", where, problems)
    entry: dict[str, Any] = {"name": name or last_of(str(root)), "source": literal(index)}
    if "proportion" in stream:
        entry["weight"] = float(stream["proportion"])
    if "repeat" in stream:
        entry["epochs"] = float(stream["repeat"])
    if "choose" in stream:
        rows = _rows(index)
        if rows is None:
            do = "give repeat instead: choose divided by the samples in its index.json"
            problems.add(where, "choose, of an index that is not on this machine", do)
        else:
            entry["epochs"] = stream["choose"] / rows
    return entry


def _rows(index: str) -> int | None:
    """Samples in an index, if it is a file."""
    path = Path(index)
    if "://" in index or not path.is_file():
        return None
    return sum(shard["samples"] for shard in json.loads(path.read_text())["shards"]) or None
