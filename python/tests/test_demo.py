"""The demo: its measuring, its pages, its processes, and that its hand-written loader is right."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from stoker import demo
from stoker.demo import measure, page, python_loader, results
from stoker.demo.rungs import WAYS, Outcome
from stoker.demo.store import Store, store
from transformers import AutoTokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

MODEL = Path(__file__).parents[2] / ".setup/models/qwen3-vl"
SETTINGS = {"samples": 40, "batch_size": 8, "profile": "standard", "seed": 0}
STORE = Store(
    "http://127.0.0.1:1", "a", "b", "demo", "train.jsonl", 40, 42, 9_000_000, 36_000_000, 1
)


def rung(name: str, first: float, wait: float, step: float, steps: int = 5) -> measure.Rung:
    """A made-up rung: `first` and then always `wait` seconds for 8 images."""
    waits = [first] + [wait] * (steps - 1)
    ended = [float(end) for end in np.cumsum(np.array(waits) + step)]
    return measure.Rung(name, step, waits, ended, [8] * steps)


@pytest.fixture
def outcome() -> Outcome:
    waits = {"python": 0.85, "one": 0.5, "many": 0.2, "ahead": 0.001}
    names = [way.name for way in WAYS]
    rungs = [rung(name, 2.0, w, 0.15) for name, w in zip(names, waits.values(), strict=True)]
    same = {
        "samples": 8,
        "equal": ["input_ids", "labels"],
        "pixel_levels_most": 2.0,
        "pixel_levels_mean": 0.004,
    }
    return Outcome(rungs, 0.15, rung("drained", 1.0, 0.04, 0.0), 9.4, same)


def test_ratios_and_rates_leave_the_first_batch_out():
    found = rung("any", first=10.0, wait=0.85, step=0.15)
    assert found.wait_ratio == pytest.approx(0.85)
    assert found.device_busy == pytest.approx(0.15)
    assert found.images_per_second == pytest.approx(8.0)
    assert found.seconds == pytest.approx(10.0 + 4 * 0.85 + 5 * 0.15)


class Clock:
    """Time that passes only by sleeping, so that other processes' load does not count."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def batches(self, count: int, seconds: float):
        for _ in range(count):
            self.sleep(seconds)
            yield {"image_grid_thw": torch.ones(3, 3)}


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    return clock


def test_the_clock_tells_waiting_from_training(clock):
    trainer = measure.StandInTrainer(0.05)
    began = clock.perf_counter()
    found = measure.run("any", clock.batches(6, 0.02), trainer, began=began)
    assert found.complete
    assert found.images == [3] * 6
    assert found.waits == pytest.approx([0.02] * 6)
    assert found.seconds == pytest.approx(6 * 0.07)
    assert found.wait_ratio == pytest.approx(0.02 / 0.07)
    assert found.device_busy == pytest.approx(0.05 / 0.07)


def test_a_slow_loader_is_stopped_and_said_to_be_incomplete(clock):
    trainer = measure.StandInTrainer(0.0)
    began = clock.perf_counter()
    batches = clock.batches(100, 0.0201)
    found = measure.run("any", batches, trainer, began=began, at_most_seconds=0.1)
    assert not found.complete
    assert len(found.waits) == 5


def test_the_document_has_the_rungs_in_order_beside_machine_and_settings(outcome: Outcome):
    document = json.loads(json.dumps(results.document(outcome, SETTINGS)))
    assert [rung["name"] for rung in document["rungs"]] == [way.name for way in WAYS]
    asked_for = {"name", "images_per_second", "wait_ratio", "device_busy", "seconds"}
    assert all(asked_for <= rung.keys() for rung in document["rungs"])
    assert SETTINGS.items() <= document["settings"].items()
    assert document["machine"]["cores"] >= 1
    assert document["drained"]["speed_up"] == pytest.approx(200 / 9.4)
    assert document["trainer"] == {"kind": "stand-in: sleeps", "step_seconds": 0.15}


def test_a_claim_that_a_run_does_not_keep_is_said_to_be_missed(outcome: Outcome):
    assert all(claim.kept for claim in results.claims(outcome))
    outcome.rungs[-1] = rung(WAYS[-1].name, 1.0, 0.1, 0.15)
    assert [claim.kept for claim in results.claims(outcome)] == [True, False, False, True]
    assert "missed in this run" in page.page(outcome, STORE, SETTINGS)


def test_the_table_has_a_line_for_each_rung(outcome: Outcome):
    lines = results.table(outcome).splitlines()
    assert [line.split("  ")[0] for line in lines[2:6]] == [way.name for way in WAYS]
    assert len({len(line) for line in lines[:6]}) == 1
    assert "85%" in lines[2]
    assert "15%" in lines[2]


class Reader(HTMLParser):
    """Checks that tags close as they opened, and collects what a page loads and shows."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in {"meta", "line", "rect"}:
            self.open.append(tag)
        assert not {"src", "href"} & {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, _):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words += data


def test_the_page_is_whole_loads_nothing_and_says_what_is_not_real(outcome: Outcome):
    html = page.page(outcome, STORE, SETTINGS | {"profile": "<cold>"})
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    assert "script" not in reader.tags
    assert "@import" not in html
    assert "url(" not in html
    assert reader.tags.count("svg") == 2 * len(WAYS)
    for words in ("The trainer is a stand-in", "The store is an emulation", "“<cold>”"):
        assert words in reader.words
    assert all(way.name in reader.words for way in WAYS)


class Folder:
    """What the hand-written loader uses of S3's client, over made-up objects."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects

    def get_object(self, Bucket: str, Key: str) -> dict:  # noqa: N803
        return {"Body": io.BytesIO(self.objects[f"{Bucket}/{Key}"])}


def jpeg(seed: int, width: int, height: int) -> bytes:
    small = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    image.save(file := io.BytesIO(), "JPEG", quality=90)
    return file.getvalue()


def chat(question: str, *answers: str, images: int = 0) -> dict:
    parts = [{"type": "image", "image": f"images/{number}.jpg"} for number in range(images)]
    messages = []
    for answer in answers:
        content = [*parts, {"type": "text", "text": question}] if parts else question
        messages.append({"role": "user", "content": content})
        messages.append({"role": "assistant", "content": answer})
        parts = []
    return {"messages": messages}


def test_the_hand_written_loader_gives_what_transformers_gives(monkeypatch: pytest.MonkeyPatch):
    samples = [
        chat("What is this?", "A café, <b>perhaps</b>.", images=1),
        chat("Which of the two?", "The first.\n\nSurely.", "No, the second.", images=2),
        chat("Say it", "It."),
    ]
    objects = {f"b/data/images/{n}.jpg": jpeg(n, 200 + 170 * n, 330) for n in range(2)}
    objects["b/data/train.jsonl"] = "\n".join(map(json.dumps, samples)).encode()
    monkeypatch.setattr(python_loader.boto3, "client", lambda *_, **__: Folder(objects))
    loader = python_loader.PythonLoader("http://x", "b", "data/train.jsonl", MODEL, 3)
    (batch,) = loader

    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessorPil.from_pretrained(MODEL),
        tokenizer=AutoTokenizer.from_pretrained(MODEL),
        video_processor=Qwen3VLVideoProcessor(),
        chat_template=(MODEL / "chat_template.jinja").read_text(),
    )
    pictures = [
        [Image.open(io.BytesIO(objects[f"b/data/images/{n}.jpg"])) for n in range(count)]
        for count in (1, 2, 0)
    ]
    expected = processor(
        text=[processor.apply_chat_template(sample["messages"]) for sample in samples],
        images=[image for images in pictures for image in images],
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    for name in ("input_ids", "attention_mask", "image_grid_thw"):
        assert torch.equal(batch[name], expected[name]), name
    # Their order of operations differs: the last bit of a float may.
    torch.testing.assert_close(batch["pixel_values"], expected["pixel_values"], atol=1e-6, rtol=0)
    learned = [
        loader.tokenizer.decode(ids[labels >= 0])
        for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True)
    ]
    assert learned == [
        "A café, <b>perhaps</b>.<|im_end|>\n",
        "The first.\n\nSurely.<|im_end|>\nNo, the second.<|im_end|>\n",
        "It.<|im_end|>\n",
    ]


def test_without_a_model_folder_the_demo_says_what_to_do(tmp_path: Path, capsys):
    assert demo.main(["--model", str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "make setup" in capsys.readouterr().err


def test_too_few_samples_for_a_measurement_are_refused(capsys):
    with pytest.raises(SystemExit) as exit_:
        demo.main(["--samples", "32", "--batch-size", "8"])
    assert exit_.value.code == 2
    assert "8 batches" in capsys.readouterr().err


def test_a_profile_that_there_is_not_ends_the_demo_with_a_reason(tmp_path: Path, capfd):
    arguments = ["--profile", "warp", "--model", str(MODEL), "--out", str(tmp_path)]
    assert demo.main(arguments) == 1
    said = capfd.readouterr().err
    assert "warp" in said
    assert "before it was filled" in said


def servers(seed: int) -> list[int]:
    """Processes that serve the data of that seed."""
    mark = b"stoker.demo.server\0--samples\0"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mark in command and f"--seed\0{seed}\0".encode() in command:
            found.append(int(process.name))
    return found


def gone(seed: int) -> bool:
    deadline = time.monotonic() + 5
    while servers(seed) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not servers(seed)


def test_the_store_serves_what_the_data_set_holds_and_ends_with_its_block(monkeypatch):
    seen = []
    monkeypatch.setattr(os, "environ", os.environ.copy())
    with store(4, "none", 4001, lambda done, of: seen.append((done, of))) as filled:
        loader = python_loader.PythonLoader(
            filled.endpoint, filled.bucket, filled.key, MODEL, batch_size=4
        )
        (batch,) = loader
        assert len(servers(4001)) == 1
    assert seen[-1] == (filled.images + 1, filled.images + 1)
    assert len(batch["input_ids"]) == 4
    assert len(batch["image_grid_thw"]) == filled.images
    assert servers(4001) == []


def test_the_store_dies_with_a_parent_that_is_killed():
    script = """
import os, signal
from stoker.demo.store import store
with store(2, "none", 4002, lambda *_: None):
    print("filled", flush=True)
    signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"filled\n"
        assert len(servers(4002)) == 1
        parent.kill()
    assert gone(4002)


def test_ctrl_c_ends_the_demo_and_its_store(tmp_path: Path):
    command = [sys.executable, "-m", "stoker", "demo", "--samples", "64", "--seed", "4003"]
    command += ["--model", str(MODEL), "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        while b"comparing" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert b"interrupted" in process.stderr.read()
        assert process.wait(timeout=10) == 130
    assert gone(4003)


def test_a_small_demo_runs_from_end_to_end(tmp_path: Path):
    command = [sys.executable, "-m", "stoker", "demo", "--samples", "32", "--batch-size", "4"]
    command += ["--profile", "express", "--model", str(MODEL), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    document = json.loads((tmp_path / "demo.json").read_text())
    assert [rung["name"] for rung in document["rungs"]] == [way.name for way in WAYS]
    assert [rung["batches"] for rung in document["rungs"]] == [8 * way.passes for way in WAYS]
    assert "stoker, prefetching" in done.stdout
    assert (tmp_path / "demo.html").read_text().startswith("<!doctype html>")
