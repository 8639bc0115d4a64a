"""Figures go into Markdown pages, between two markers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class PageError(Exception):
    """The figures can't be put into a page; the message says why."""


def put(page: Path, markers: tuple[str, str], figures: str) -> None:
    """Puts figures between the markers of a page, in place of what is there.

    Raises:
        PageError: The page doesn't have each marker once, in this order.
    """
    begin, end = markers
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise PageError(f"the figures need a place: put {begin} and {end} into {page}")
    before, after = text[: text.index(begin)], text[text.index(end) :]
    page.write_text(f"{before}{begin}\n{figures}\n{after}")
