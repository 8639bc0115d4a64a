"""That the bench of the hand-over measures views of shared memory, and says so if they are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import stoker
from stoker.demo.store import DemoError

from bench import hand_over

ROOT = Path(__file__).parents[2]


def test_batches_of_64_mb_are_views_of_the_object_store(tmp_path):
    command = [sys.executable, "-m", "bench.hand_over", "--rounds", "2", "--out", str(tmp_path)]
    path = ":".join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "ray.get" in done.stdout
    found = json.loads((tmp_path / "hand_over.json").read_text())
    assert found["batch_bytes"] >= 64e6
    assert found["ray"]["spills"] == found["ray"]["pull_retries"] == 0
    assert 0 < found["get_seconds"]["median"] <= found["get_seconds"]["p95"]
    small, large = found["in_process"]
    assert 20e6 < small["batch_bytes"] < large["batch_bytes"] / 2
    for name in hand_over.HERE:
        assert 0 < small[name]["median"] <= small[name]["p95"], name


def test_a_batch_that_was_copied_is_refused(recipe):
    batch = next(stoker.Loader(recipe))
    with pytest.raises(DemoError, match=r"has .* bytes, .*outside of shared memory.*written to"):
        hand_over.check(batch, batch)
