"""How `make docs` makes a site of the Markdown in this repository.

The pages are plain Markdown with relative links, to be read on a code host; the site is made of
them as they are, and nothing is written twice: the front page is the README, the menu is the list
in `docs/README.md`. A link or an anchor that leads nowhere is a warning, and warnings are errors.
Files that a page links to beside pages (examples, tests) are copied; a folder of the source, which
a site has no page for, becomes its name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
MENU = "docs/README"
"""The page whose lists are the menu: a caption from each heading, an entry from each link."""

project = "stoker"
html_title = "stoker"
author = "the stoker developers"
copyright = author  # noqa: A001 (Sphinx's name for it)
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown"}
# The tree is walked with its links, so what no page lies in is left out by name.
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md"]
exclude_patterns = [".*", "target", "crates", "python", "bench", "examples", "fuzz", "testdata"]
exclude_patterns += ["scripts", "**/__pycache__"]

myst_heading_anchors = 6  # as code hosts make them, of all headings
suppress_warnings = ["myst.header"]  # figures that a bench writes begin at ###
highlight_language = "text"  # of blocks that name none

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"footer_icons": []}


def menu(text: str) -> str:
    """The menu that those lists are, as Sphinx has it; of a folder, all pages in it."""
    parts: list[str] = []
    for heading, body in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        parts += ["```{toctree}", ":hidden:", ":glob:", f":caption: {heading}", ""]
        for title, target in re.findall(r"^- \[(.+?)\]\((.+?)\)", body, re.M):
            path = (ROOT / MENU).parent.joinpath(target).resolve().relative_to(ROOT)
            entry = f"{title} <{path.with_suffix('')}>" if path.suffix else f"{path}/*"
            parts.append(entry)
        parts += ["```", ""]
    return "\n".join(parts)


def prepare(_: Sphinx, name: str, source: list[str]) -> None:
    """Gives the front page the menu, and takes links to folders away."""
    folder = (ROOT / name).parent

    def link(found: re.Match[str]) -> str:
        return found[1] if (folder / found[2]).is_dir() else found[0]

    text = re.sub(r"\[([^\]\n]+)\]\(([^)#:\n]+)\)", link, source[0])
    if name == root_doc:
        text += "\n\n" + menu((ROOT / f"{MENU}.md").read_text())
    if name == MENU:
        text = "---\norphan: true\n---\n\n" + text
    source[0] = text


def front(app: Sphinx, failure: Exception | None) -> None:
    """Has the site begin at the README."""
    if failure is None:
        page = Path(app.outdir, f"{root_doc}.html").read_text()
        Path(app.outdir, "index.html").write_text(page)


def setup(app: Sphinx) -> dict[str, bool]:
    """Is called by Sphinx."""
    app.connect("source-read", prepare)
    app.connect("build-finished", front)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
