"""The pages hang together: links lead somewhere, and the menu has every page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pages import ROOT, anchors, blocks, links, markdown, name_of, pages

if TYPE_CHECKING:
    from pathlib import Path

MENU = ROOT / "docs/README.md"


def dead(page: Path, root: Path = ROOT) -> list[str]:
    """Links that lead nowhere."""
    found = []
    for line, link in links(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or root not in [target, *target.parents]:
            found.append(f"{page.name}:{line}: {link}: there is no such file")
        elif anchor and anchor not in anchors(target):
            found.append(f"{page.name}:{line}: {link}: {target.name} has no such heading")
    return found


@pytest.mark.parametrize("page", markdown(), ids=name_of)
def test_links_and_anchors_lead_somewhere(page):
    assert dead(page) == []


def test_dead_links_and_anchors_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# A `b` and_c!\n## Again\n## Again\n")
    page = tmp_path / "page.md"
    good = "[a](other.md#a-b-and_c) [b](other.md#again-1) [c](#here) [d](https://x.y) [e](.)\n"
    page.write_text(good + "# Here\n```\n[f](nowhere.md)\n# Not\n```\n`[g](nowhere.md)`\n")
    assert dead(page, tmp_path) == []
    page.write_text("x\n[a](nowhere.md)\n[b](other.md#gone)\n[c](#gone)\n[d](../x.md)")
    assert dead(page, tmp_path) == [
        "page.md:2: nowhere.md: there is no such file",
        "page.md:3: other.md#gone: other.md has no such heading",
        "page.md:4: #gone: page.md has no such heading",
        "page.md:5: ../x.md: there is no such file",
    ]


def test_the_menu_has_every_page_once():
    listed = [(MENU.parent / link).resolve() for _, link in links(MENU)]
    folders = [path for path in listed if path.is_dir()]
    for page in pages()[1:]:
        times = listed.count(page) + sum(folder in page.parents for folder in folders)
        assert times == (page != MENU), (
            f"{name_of(page)} is {times} times in docs/README.md, which is the menu of the site: "
            f"give it one line there, `- [Its title](path.md): what it is`"
        )


def test_every_page_begins_with_its_title():
    for page in pages():
        assert page.read_text().startswith("# "), name_of(page)


def test_blocks_are_of_languages_that_the_tests_know():
    known = {"python", "toml", "json", "yaml", "sh", "text"}
    for page in pages():
        for block in blocks(page):
            assert block.language in known, (
                f"{block} is {block.language!r}; the tests know how to run {sorted(known)}"
            )
