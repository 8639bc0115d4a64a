"""WebDataset's URLs: braces mean the same in a recipe, and pipes become the store's address."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from stoker.migrate.recipe import Problems, checked_uri, literal

if TYPE_CHECKING:
    from collections.abc import Iterable

TARS = (".tar", ".tgz", ".tar.gz", ".tar.zst")
READERS = ("aws s3 cp", "gsutil cat", "gcloud storage cat", "s5cmd cat", "curl", "cat")
"""Programs that do nothing but bring an object."""


def from_webdataset(urls: str | Iterable[str]) -> dict[str, Any]:
    """The recipe over these shards.

    Args:
        urls: As `webdataset.WebDataset` takes them: a URL, several with `::` between them, or a
            list; with braces; `pipe:` before a command that brings an object.

    Returns:
        A recipe with a `dataset`; `model` is yet to be added.

    Raises:
        MigrationError: A URL says what a recipe can't.
    """
    problems = Problems()
    given = [urls] if isinstance(urls, str) else list(urls)
    parts = [part for one in given for part in one.split("::")]
    source = [_shards(part, problems) for part in parts]
    problems.end()
    dataset: dict[str, Any] = {"source": source[0] if len(source) == 1 else source}
    if not all(one.endswith(TARS) for one in source):
        dataset["format"] = "webdataset"
    return {"dataset": dataset}


def _shards(url: str, problems: Problems) -> str:
    if re.search(r"\$\{\w+\}", url):
        problems.add(url, "a variable of the environment", "write what it stands for")
        return url
    if url.startswith("pipe:"):
        return _piped(url, problems)
    return checked_uri(literal(url, "*?["), url, problems)


def _piped(url: str, problems: Problems) -> str:
    """What a command reads."""
    command = url.removeprefix("pipe:").strip()
    words = shlex.split(command)
    named = [word for word in words if "://" in word]
    if not named and words[:1] == ["cat"]:
        named = words[1:]
    plain = command.startswith(READERS) and not {"|", ">", ";", "&&"} & set(words)
    if not plain or len(named) != 1:
        problems.add(
            url,
            "a command that does more than bring one object",
            "store its output as shards; of what stoker reads no command is part",
        )
        return url
    for option, key in {"--endpoint-url": "endpoint", "--no-sign-request": "anonymous"}.items():
        if option in words:
            problems.add(
                url, f"the option {option}", f"take it out, and set fetch.{key} in the recipe"
            )
    return checked_uri(literal(named[0], "*?["), url, problems)
