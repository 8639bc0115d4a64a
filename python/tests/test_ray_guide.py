"""What the guide to Ray shows runs."""

from __future__ import annotations

import json

import pytest
from pages import ROOT, blocks
from sandbox import Model

GUIDE = ROOT / "docs/guides/ray.md"


@pytest.mark.usefixtures("cluster")
def test_what_the_guide_to_ray_shows_runs(quick, tmp_path, monkeypatch, capsys):
    (shown,) = [block.code for block in blocks(GUIDE) if block.language == "python"]
    (tmp_path / "recipe.json").write_text(json.dumps(quick))
    monkeypatch.chdir(tmp_path)
    code = shown.replace("ray.init()", "assert ray.is_initialized()").replace('"cuda"', '"cpu"')
    code = code.replace("recipe.toml", "recipe.json")
    assert "is_initialized" in code
    exec(code, {"model": Model(), "rank": 0, "world_size": 1})
    assert "24 samples" in capsys.readouterr().out
