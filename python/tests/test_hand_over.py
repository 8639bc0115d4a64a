"""That the bench of the hand-over measures views of shared memory, and says so if they are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import stoker
import torch
from stoker.demo.store import DemoError

from bench import device, hand_over

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


def test_without_a_gpu_the_bench_of_copies_says_that_it_measured_nothing(
    capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.main(["--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "no CUDA device" in said.err
    assert "Nothing was measured" in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("waited", [0.0, 0.3])
def test_the_table_of_copies_tells_what_they_cost_and_whether_the_loader_was_too_slow(waited):
    rows = [
        {
            "pixels": "u8",
            "way": way,
            "bytes": 50_000_000,
            "step_seconds": seconds,
            "next_seconds": 0.001,
            "loader_wait_ratio": waited,
        }
        for way, seconds in zip(device.WAYS, (0.070, 0.065, 0.061, 0.060), strict=True)
    ]
    found = {"device": "A GPU", "torch": "2", "step_seconds": 0.06, "rows": rows}
    table = device.table(found)
    assert "| u8 | 50 MB | batch.to | 70.00 | +10.00 | 1.00 |" in table
    assert "| u8 | 50 MB | no copy | 60.00 | +0.00 | 1.00 |" in table
    assert ("too slow" in table) == (waited > 0)
