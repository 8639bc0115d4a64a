"""The pages of the documentation as tests see them: their links, anchors and code blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("stoker", "make", "pip", "python", ".venv/bin/python", "cargo", "$", "hf")
"""What a block without a language begins with if it is a shell's; else it is something to read."""

NOT_OURS = {".git", ".setup", ".venv", "target", "__pycache__", ".pytest_cache", ".ruff_cache"}


def markdown() -> list[Path]:
    """All Markdown of the project."""

    def below(folder: Path):
        for path in sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink() and path.name not in NOT_OURS:
                yield from below(path)
            elif path.suffix == ".md":
                yield path

    return list(below(ROOT))


def pages() -> list[Path]:
    """The README and all of `docs`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str

    @property
    def first(self) -> str:
        return self.code.partition("\n")[0]

    @property
    def file(self) -> str | None:
        """The file that it says in its first line to be."""
        found = re.fullmatch(r"# ([\w/.-]+\.(?:toml|yaml|py|jsonl))", self.first)
        return found and found[1]

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?)^\1\2 *$", re.M | re.S)


def blocks(page: Path) -> list[Block]:
    """Its fenced blocks, in order."""
    text, found = page.read_text(), []
    for match in FENCE.finditer(text):
        indent, _, language, code = match.groups()
        code = re.sub(rf"^{indent}", "", code, flags=re.M)
        if not language.strip():
            shell = code.startswith(tuple(f"{command} " for command in COMMANDS))
            language = "sh" if shell else "text"
        found.append(Block(page, text[: match.start()].count("\n") + 1, language.strip(), code))
    return found


def prose(page: Path) -> str:
    """Its text without code, line by line where it was."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    return re.sub(r"`[^`\n]+`", "``", FENCE.sub(blank, page.read_text()))


def links(page: Path) -> list[tuple[int, str]]:
    """What it links to, with the lines."""
    text = prose(page)
    return [
        (text[: match.start()].count("\n") + 1, match[1])
        for match in re.finditer(r"\]\(<?([^)>\s]+)>?(?: \"[^\"]*\")?\)", text)
    ]


def anchors(page: Path) -> set[str]:
    """The anchors that a code host gives its headings."""
    found: set[str] = set()
    text = FENCE.sub("", page.read_text())
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        unique, number = slug, 0
        while unique in found:
            number += 1
            unique = f"{slug}-{number}"
        found.add(unique)
    return found
