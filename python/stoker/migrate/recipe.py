"""What all translations share: problems, names, and recipes as TOML."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

STORES = ("s3://", "gs://", "az://", "http://", "https://")


class MigrationError(ValueError):
    """Something has no translation."""

    problems: list[str]
    """Every place, what is there, and what to do about it."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        count = "1 thing has" if len(problems) == 1 else f"{len(problems)} things have"
        super().__init__("\n  ".join([f"{count} no translation:", *problems]))


class Problems:
    """Collects what has no translation, so that all of it is told at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, where: str, what: str, do: str) -> None:
        """Notes a place, what is there, and what to do."""
        self.found.append(f"{where}: {what}; {do}")

    def end(self) -> None:
        """Raises MigrationError if there were any."""
        if self.found:
            raise MigrationError(self.found)


def checked_uri(uri: str, where: str, problems: Problems) -> str:
    """A URI that recipes take, or a path."""
    if "://" in uri and not uri.startswith((*STORES, "file://")):
        scheme = uri.split("://", maxsplit=1)[0]
        problems.add(
            where,
            f"`{scheme}://` is no store that stoker reads",
            "name it by s3://, gs://, az:// or a path",
        )
    return uri.removeprefix("file://")


def literal(name: str, letters: str = "*?[{") -> str:
    """A name whose letters have no meaning: a recipe would take them for patterns else."""
    return "".join(f"[{letter}]" if letter in letters else letter for letter in name)


def mixture(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """`[dataset]` of one entry without a share, else `[[datasets]]` with names that differ.

    Args:
        entries: Keys of a dataset; `name` is what it would be called.
    """
    if len(entries) == 1 and not {"weight", "epochs"} & entries[0].keys():
        return {"dataset": {key: value for key, value in entries[0].items() if key != "name"}}
    taken: set[str] = set()
    datasets = []
    for entry in entries:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", entry["name"]).strip("-")[:56] or "data"
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name)
        datasets.append(entry | {"name": name})
    return {"datasets": datasets}


def last_of(uri: str) -> str:
    """The last part of a path or URI."""
    return PurePosixPath(uri.rstrip("/")).name


def to_toml(recipe: dict[str, Any]) -> str:
    """A recipe as TOML.

    Args:
        recipe: A document as the translations give it: values, sections of values, and `datasets`.
    """
    lines = [f"{key} = {_value(value)}" for key, value in recipe.items() if not _is_section(value)]
    for section, value in recipe.items():
        if _is_section(value):
            tables = value if isinstance(value, list) else [value]
            title = f"[[{section}]]" if isinstance(value, list) else f"[{section}]"
            for table in tables:
                lines += ["", title, *(f"{key} = {_value(one)}" for key, one in table.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _is_section(value: object) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(one, dict) for one in value)
    )


def _value(value: object) -> str:
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{json.dumps(key)} = {_value(one)}" for key, one in value.items())
            + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    # JSON's strings, booleans and numbers are TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
