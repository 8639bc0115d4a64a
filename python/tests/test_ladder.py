"""The ladder: that its rungs do the same work, that its files say so, and that it ends whole."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from stoker.demo.measure import Rung
from stoker.demo.store import DemoError, Store

from bench import ladder, processes
from bench.ladder import local_ray, measure, page, results, same
from bench.ladder.climb import Outcome
from bench.ladder.job import Job
from bench.ladder.measure import Found
from bench.ladder.ways import WAYS
from bench.page import PageError
from bench.processes import TICKS, CpuMeter, adopt_orphans, family, running
from bench.processor import Processor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
MODEL = ROOT / ".setup/models/qwen3-vl"
SETTINGS = {"samples": 520, "batch_size": 8, "profile": "standard", "seed": 0}
STORE = Store("http://127.0.0.1:1", "a", "b", "demo", "train.jsonl", 40, 42, 9_000, 36_000, 1)
TENSORS = ["input_ids", "attention_mask", "mm_token_type_ids", "pixel_values", "image_grid_thw"]
NUMBERS = [way.number for way in WAYS]


def environment() -> dict[str, str]:
    """Where the ladder and this stoker are found, with compiled imports."""
    path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": ""}


@contextmanager
def descendants() -> Iterator[Callable[[], bool]]:
    """Gives a function that waits until all processes that descend from the block's have ended."""
    before = set(family(os.getpid()))

    def gone() -> bool:
        deadline = time.monotonic() + 20
        while any(map(running, set(family(os.getpid())) - before)):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    adopt_orphans()
    try:
        yield gone
    finally:
        adopt_orphans(False)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What a small run of the whole ladder says, and whether it left a process."""
    out = tmp_path_factory.mktemp("ladder")
    (out / "page.md").write_text("Before.\n\n" + "\n".join(results.MARKERS) + "\n\nAfter.\n")
    command = [sys.executable, "-m", "bench.ladder", "--samples", "16", "--batch-size", "2"]
    command += ["--profile", "none", "--model", str(MODEL), "--out", str(out)]
    command += ["--docs", str(out / "page.md")]
    with descendants() as gone:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=500
        )
        left = not gone()
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        "left": left,
        "document": json.loads((out / "ladder.json").read_text()),
        "html": (out / "ladder.html").read_text(),
        "figures": (out / "page.md").read_text(),
    }


def test_all_rungs_give_the_batches_of_rung_0(small: dict):
    found = {rung["rung"]: rung for rung in small["document"]["rungs"]}
    assert list(found) == NUMBERS
    for rung in found.values():
        assert set(rung["same_work"]["equal"]) == {*TENSORS, "labels"}, rung["name"]
        assert rung["same_work"]["batches"] == 2
        assert rung["batches"] == 8


def test_the_rungs_without_pickling_are_read_where_others_wrote_them(small: dict):
    shared = {r["rung"] for r in small["document"]["rungs"] if r["same_work"]["in_shared_memory"]}
    assert shared == {"1b", "3", "5"}


def test_the_document_has_what_the_demo_has_and_the_ratios(small: dict):
    document = small["document"]
    asked_for = {"name", "images_per_second", "wait_ratio", "device_busy", "seconds"}
    asked_for |= {"cause", "speed_up", "cpu_seconds_per_image", "copied_bytes_per_image"}
    for rung in document["rungs"]:
        assert asked_for <= rung.keys()
        assert rung["cpu_seconds_per_image"] > 0
        assert rung["copied_bytes_per_image"] >= 0
    assert document["rungs"][0]["speed_up"] == 1
    assert document["trainer"]["step_seconds"] > 0
    assert document["settings"]["samples"] == 16


def test_rays_own_counters_are_read_and_are_zero(small: dict):
    zero = dict.fromkeys(local_ray.COUNTERS, 0)
    ray = small["document"]["ray"]
    assert list(ray) == ["1d, 2, 3", "5"]
    assert all(zero.items() <= counts.items() for counts in ray.values())


def test_a_run_leaves_no_process(small: dict):
    assert not small["left"]


def test_the_run_writes_its_table_between_the_markers_of_a_page(small: dict):
    before, _, rest = small["figures"].partition(results.MARKERS[0])
    table, _, after = rest.partition(results.MARKERS[1])
    assert (before, after) == ("Before.\n\n", "\n\nAfter.\n")
    assert all(f"| {n}: " in table for n in NUMBERS)
    assert small["html"].startswith("<!doctype html>")


def test_labels_are_what_the_assistant_says():
    processor = Processor(MODEL)
    messages = [
        {"role": "user", "content": "Say it, assistant"},
        {"role": "assistant", "content": "It."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "That, too.\n\nIndeed."},
    ]
    example = processor.example({"messages": messages}, [])
    ids, labels = example["input_ids"][0], example["labels"][0]
    learned = processor.processor.tokenizer.decode(ids[labels >= 0])
    assert learned == "It.<|im_end|>\nThat, too.\n\nIndeed.<|im_end|>\n"
    assert torch.equal(labels[labels >= 0], ids[labels >= 0])


def test_a_batch_may_have_samples_without_images():
    processor = Processor(MODEL)
    words = {"messages": [{"role": "user", "content": "Hello"}]}
    batch = processor.collate([processor.example(words, []), processor.example(words, [])])
    assert "pixel_values" not in batch
    assert batch["input_ids"].shape[0] == 2


@pytest.fixture
def outcome() -> Outcome:
    """A made-up run: rung 0 waits 85 %, the last two 1 %."""
    outcome, waits = Outcome(cores=2), dict(zip(NUMBERS, np.linspace(0.85, 0.1, 9), strict=True))
    for way in WAYS:
        wait = 0.0015 if way.module.startswith("stoker") else waits[way.number]
        ended = [float(end) for end in np.cumsum(np.full(6, wait + 0.15))]
        rung = Rung(way.name, 0.15, [wait] * 6, ended, [8] * 6)
        compared = {"batches": 2, "equal": TENSORS, "pixel_levels_most": 0.0}
        outcome.found[way.number] = Found(rung, 2.0, 0.02, 0.001, 20e6, compared)
    counts = dict.fromkeys(local_ray.COUNTERS, 0.0)
    outcome.ray = {"1d, 2, 3": counts | {"start_seconds": 3.0}}
    return outcome


def test_the_page_is_whole_loads_nothing_and_names_all_rungs(outcome: Outcome):
    html = page.page(outcome, STORE, SETTINGS | {"profile": "<cold>"})
    assert all(f"<i>{way.number}</i>" in html for way in WAYS)
    assert "“&lt;cold&gt;”" in html
    assert html.count("<svg") == html.count("</svg>") == len(WAYS)
    for foreign in ("<script", "@import", "url(", "src=", "href=", "$"):
        assert foreign not in html
    assert "From 85% waiting to 1.0%" in html


def test_a_rung_that_misses_its_claim_or_fails_is_said_to(outcome: Outcome):
    assert all(claim.kept for claim in results.claims(outcome))
    outcome.found["4"].rung.waits[1:] = [0.1] * 5
    outcome.ray["1d, 2, 3"]["spills"] = 2.0
    assert [claim.kept for claim in results.claims(outcome)] == [True, False, True, False]
    del outcome.found["5"]
    outcome.failed["5"] = "there was no time"
    assert "Rung 5 failed: there was no time" in results.table(outcome)
    assert "Rung 5 failed: there was no time" in page.page(outcome, STORE, SETTINGS)


def test_figures_without_a_place_on_the_page_are_refused(outcome: Outcome, tmp_path: Path):
    (tmp_path / "page.md").write_text("Words.\n")
    with pytest.raises(PageError, match=r"put <!-- ladder: figures --> and .*page\.md"):
        results.write_figures(tmp_path / "page.md", outcome, SETTINGS)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(STORE, MODEL, 8, 2, tmp_path)


def test_batches_that_differ_from_those_of_rung_0_are_refused(job: Job):
    def batch() -> dict[str, torch.Tensor]:
        return {"labels": torch.arange(6).view(2, 3), "pixel_values": torch.zeros(4, 6)}

    assert same.compare([batch()], job)["equal"] == ["labels", "pixel_values"]
    near = batch() | {"pixel_values": torch.full((4, 6), 1 / 255)}
    assert same.compare([near], job)["pixel_levels_most"] == pytest.approx(0.5)
    for other, words in (
        ({"labels": torch.zeros(2, 3, dtype=torch.int64)}, "labels"),
        ({"labels": torch.zeros(2, 4, dtype=torch.int64)}, "labels is .*2, 4"),
        ({"pixel_values": torch.ones(4, 6)}, "pixel_values differ .pixels by 127.50"),
    ):
        with pytest.raises(DemoError, match=words):
            same.compare([batch() | other], job)


def test_too_little_shared_memory_for_ray_is_refused(monkeypatch: pytest.MonkeyPatch, job: Job):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 << 20))
    small = pytest.raises(DemoError, match=r"64 MiB are free.*--shm-size")
    with small, local_ray.local_ray(job.cores, job.scratch, {}):
        pass


def test_a_run_in_which_ray_spilled_is_refused():
    counters = dict.fromkeys(local_ray.COUNTERS, 0.0) | {"start_seconds": 3.0}
    local_ray.check(counters)
    with pytest.raises(DemoError, match="spills 2, pull_retries 1; close"):
        local_ray.check(counters | {"spills": 2.0, "pull_retries": 1.0})


def test_a_counter_that_ray_no_longer_has_is_not_taken_for_zero():
    lines = ['ray_x_total{Type="A"} 2.0', 'ray_x_total{Type="B"} 3.0', "ray_xy_total{} 7.0"]
    assert local_ray.total(lines, "ray_x_total", "") == 5
    assert local_ray.total(lines, "ray_x_total", 'Type="B"') == 3
    with pytest.raises(DemoError, match="does not count ray_y_total"):
        local_ray.total(lines, "ray_y_total", "")


def test_without_a_model_folder_the_ladder_says_what_to_do(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    cores = os.sched_getaffinity(0)
    try:
        assert ladder.main(["--model", str(tmp_path), "--out", str(tmp_path)]) == 1
    finally:
        os.sched_setaffinity(0, cores)
    assert "make setup" in capsys.readouterr().err


# Hosts that do not do what they should, in the place of a rung's.
HOSTS = """
import multiprocessing, os, subprocess, sys, time
from bench.ladder.climb import Outcome, follow
from bench.processes import adopt_orphans, die_with_parent
from bench.ladder.ways import WAYS
import bench.ladder.climb as climb

climb.END_SECONDS = 0.5

def silent(messages):
    die_with_parent()
    subprocess.Popen(["sleep", "600"])
    messages.send(("begins", "3", "asleep"))
    time.sleep(600)

def dies(messages):
    os._exit(7)

def leaves(messages):
    adopt_orphans()
    subprocess.Popen(["sh", "-c", "sleep 600 &"]).wait()
    messages.send(("ends", "3", None))

def run(host, silence):
    outcome = Outcome(2)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=host, args=(theirs,))
    process.start()
    theirs.close()
    follow(process, ours, [WAYS[6]], outcome, silence, lambda words: print(words, flush=True))
    print(outcome.failed, flush=True)

run(silent, 1)
run(dies, 60)
run(leaves, 60)
run(silent, 600)
"""


def test_a_rung_that_hangs_dies_or_leaves_processes_is_named_and_ended():
    command = [sys.executable, "-c", HOSTS]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        descendants() as gone,
        subprocess.Popen(command, env=environment(), cwd=ROOT, **pipes) as process,
    ):
        lines = [process.stdout.readline() for _ in range(5)]
        said = [
            "3: asleep\n",
            "{'3': 'was silent for 1 s, so it was ended'}\n",
            "{'3': 'its process ended with code 7'}\n",
            "{'3': '1 of its processes had to be killed'}\n",
            "3: asleep\n",
        ]
        assert lines == said
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert gone()


class OneBatch:
    """A loader that needs its time for a single batch."""

    def __init__(self, job: Job) -> None:
        pass

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        yield from [{"image_grid_thw": torch.ones(1, 3)}][:count]

    def close(self) -> None:
        pass


def test_a_rung_too_slow_to_be_measured_is_said_to_be(monkeypatch: pytest.MonkeyPatch, job: Job):
    monkeypatch.setattr(measure, "import_module", lambda _: SimpleNamespace(Loader=OneBatch))
    with pytest.raises(DemoError, match=r"no image after its first batch in 25 s.* quieter"):
        measure.climb(WAYS[0], job, 0.0, 25.0)


@pytest.mark.parametrize(
    ("now", "used"),
    [
        ({1: (12, 0), 2: (55, 1)}, 8),
        ({1: (12, 58)}, 10),  # 2 has ended, and its parent waited for it
        ({1: (12, 0)}, 2),  # nobody waited: what it used before does not count against 1
        ({1: (12, 0), 2: (50, 0), 3: (4, 3)}, 9),
    ],
)
def test_processes_that_end_are_counted_as_far_as_that_is_known(monkeypatch, now, used):
    ticks = [{1: (10, 0), 2: (50, 0)}, now]
    monkeypatch.setattr(processes, "family", lambda root: [root])
    monkeypatch.setattr(processes, "cpu_ticks", lambda _: ticks.pop(0))
    assert CpuMeter(1).seconds() == used / TICKS
