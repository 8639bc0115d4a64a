"""WebDataset's URLs: braces mean the same in a recipe, and pipes become the store's address."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.migrate.recipe import Problems, checked_uri, literal

if TYPE_CHECKING:
    from collections.abc import Iterable

TARS = (".tar", ".tgz", ".tar.gz", ".tar.zst")


class Reader(NamedTuple):
    """A program that does nothing but bring an object, as it is called for that."""

    words: list[str]
    letters: str = ""
    """What it takes for a pattern, which may be many objects."""
    after: tuple[str, ...] = ()
    """What stands behind the object's name."""
    harmless: frozenset[str] = frozenset()
    """Options that change nothing of what is brought."""
    short: str = ""
    """Such of one letter, which may be put together."""


_QUIET = frozenset({"--quiet"})
_AWS = _QUIET | {"--no-progress", "--only-show-errors"}
_CURL = frozenset({"--silent", "--show-error", "--location", "--fail"})
READERS = (
    Reader(["aws", "s3", "cp"], after=("-",), harmless=_AWS),
    Reader(["gsutil", "cat"], "*?["),
    Reader(["gcloud", "storage", "cat"], "*?[", harmless=_QUIET, short="q"),
    Reader(["s5cmd", "cat"], "*?["),
    Reader(["curl"], "[", harmless=_CURL, short="sSLf"),
    Reader(["cat"], "*?["),
)

JOINTS = frozenset("();<>|&")
"""Between commands, and before files that take the place of their input and output."""

KEYS = {
    "--endpoint-url": "set fetch.endpoint in the recipe",
    "--no-sign-request": "set fetch.anonymous in the recipe",
    "--region": "set fetch.region in the recipe",
    "--profile": "set AWS_PROFILE",
}
"""What takes the place of an option."""


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
        return _variable(url, problems)
    if url.startswith("pipe:"):
        return _piped(url, problems)
    return checked_uri(literal(url, "*?["), url, problems)


def _variable(url: str, problems: Problems) -> str:
    problems.add(url, "a variable of the environment", "write what it stands for")
    return url


def _piped(url: str, problems: Problems) -> str:
    """What a command reads. It is a shell's, and a word that is not understood is a problem."""
    command = url.removeprefix("pipe:").strip()
    try:
        words = _words(command)
    except ValueError as error:
        problems.add(url, f"a command that no shell can read ({error})", "correct it")
        return url
    if "$" in command or any(word.startswith("~") for word in words):
        return _variable(url, problems)
    reader = next((one for one in READERS if words[: len(one.words)] == one.words), None)
    joined = any(set(word) <= JOINTS for word in words) or {"`", "\n"} & set(command)
    if reader is None or joined:
        return _more(url, problems)
    rest = words[len(reader.words) :]
    strange = [word for word in rest if _is_option(word) and not _is_harmless(word, reader)]
    for option in strange:
        name = option.partition("=")[0] if option.startswith("--") else option
        do = KEYS.get(name, "take it out if the same object is brought without it")
        problems.add(url, f"the option {name}", do)
    if strange:  # which words are their values is not known
        return url
    named = [word for word in rest if not _is_option(word)]
    if not named or tuple(named[1:]) != reader.after or not _is_object(named[0], reader):
        return _more(url, problems)
    return checked_uri(literal(named[0], "*?["), url, problems)


def _words(command: str) -> list[str]:
    """As a shell takes a command apart; what joins or redirects commands is a word of its own."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, ""
    return list(words)


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _is_harmless(option: str, reader: Reader) -> bool:
    return option in reader.harmless or (option[1] != "-" and set(option[1:]) <= set(reader.short))


def _is_object(name: str, reader: Reader) -> bool:
    """Whether it is the name of one object: an address, or for `cat` a file."""
    plain = "://" in name or (reader.words == ["cat"] and name != "-")
    return plain and not set(name) & set(reader.letters)


def _more(url: str, problems: Problems) -> str:
    problems.add(
        url,
        "a command that does more than bring one object",
        "store its output as shards; of what stoker reads no command is part",
    )
    return url
