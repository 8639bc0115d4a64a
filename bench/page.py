"""Figures in a Markdown page: each bench keeps a part of its page, between two markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class PageError(Exception):
    """The figures can't be put into a page; the message says why."""


def markers(bench: str) -> tuple[str, str]:
    """What a bench's figures stand between."""
    return f"<!-- {bench}: figures -->", f"<!-- {bench}: end of figures -->"


def write_between(page: Path, bench: str, figures: str) -> None:
    """Puts a bench's figures in place of those that stand there.

    Raises:
        PageError: The page has no place for them.
    """
    begin, end = markers(bench)
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise PageError(f"the figures need a place: put {begin} and {end} into {page}")
    before, after = text[: text.index(begin)], text[text.index(end) :]
    page.write_text(f"{before}{begin}\n{figures}\n{after}")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose first column are words, and all others numbers."""
    head = tuple(head)
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
