"""The bench: that its rivals do the same work, that it finds out who does not, what it writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from stoker import _native

from bench.speed import data, page, results, runner, work
from bench.speed.check import CheckError, check
from bench.speed.job import Job, Times
from bench.speed.rivals import RIVALS, Rival, named
from bench.speed.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MODEL = ROOT / ".setup/models/qwen3-vl"
METRICS = {
    "images_per_second",
    "cpu_seconds_per_image",
    "peak_rss_bytes",
    "wait_ratio",
    "first_batch_seconds",
    "bytes_copied_per_image",
}
RUN = ("libjpeg-turbo", "dataloader", "stoker-f32", "stoker-bf16", "stoker-u8")
"""Of these the project's own environment has all but the first, which has to say so."""
SMALL = SCENARIOS[0].smaller(8, (40_000, 60_000), 2)


def environment() -> dict[str, str]:
    path = [str(ROOT), str(ROOT / "python/tests"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": ""}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a quick run of one scenario and few rivals writes to."""
    out = tmp_path_factory.mktemp("bench")
    (out / "page.md").write_text("Before.\n\n" + "\n".join(page.MARKERS) + "\n\nAfter.\n")
    command = [sys.executable, "-m", "bench.speed", "--quick", "--rounds", "1"]
    command += ["--scenario", "photos", "--scenario", "tar", "--rivals", sys.executable]
    command += ["--model", str(MODEL), "--out", str(out), "--docs", str(out / "page.md")]
    command += [word for name in RUN for word in ("--adapter", name)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_summary_has_the_asked_form_and_nothing_else(quick: Path):
    summary = json.loads((quick / "bench.json").read_text())
    assert list(summary) == ["photos", "tar"]
    for scenario in summary.values():
        assert set(scenario) == set(RUN[1:])
        for found in scenario.values():
            assert set(found) == METRICS
            assert all(isinstance(value, int | float) for value in found.values())
            assert found["images_per_second"] > 0
            assert found["cpu_seconds_per_image"] > 0
            assert found["peak_rss_bytes"] > 10e6
            assert 0 <= found["wait_ratio"] <= 1


def test_all_outputs_are_those_of_the_reference(quick: Path):
    raw = json.loads((quick / "bench-raw.json").read_text())
    for scenario in raw["scenarios"].values():
        for runs in scenario["runs"].values():
            same = runs[0]["same"]
            assert same["samples"] == 4
            assert set(same["equal"]) == {
                *("pixel_values", "image_grid_thw", "input_ids", "labels", "attention_mask")
            }
            assert same["pixel_levels_most"] == 0


def test_a_rival_that_is_not_there_is_a_row_with_the_reason(quick: Path):
    if find_spec("simplejpeg"):
        pytest.skip("this environment has it")
    raw = json.loads((quick / "bench-raw.json").read_text())
    assert "No module named 'simplejpeg'" in raw["scenarios"]["photos"]["failed"]["libjpeg-turbo"]
    text = (quick / "page.md").read_text()
    assert "| libjpeg-turbo alone | not run: ModuleNotFoundError: No module named" in text


def test_figures_and_plot_are_written_between_the_markers(quick: Path):
    before, _, rest = (quick / "page.md").read_text().partition(page.MARKERS[0])
    table, _, after = rest.partition(page.MARKERS[1])
    assert (before, after) == ("Before.\n\n", "\n\nAfter.\n")
    assert all(f"| {named(name).title} |" in table for name in RUN)
    assert all(f"| {named(name).means} |" in table for name in RUN)
    assert "![images per second](page.svg)" in table
    plot = (quick / "page.svg").read_text()
    assert plot.startswith("<svg ")
    assert plot.count("<rect") == 1 + 2 * len(RUN[1:])  # the ground, and a bar each


def rival(wrong: str) -> Rival:
    return Rival(wrong, wrong, "bench_rivals", "does wrong", 1, options={"wrong": wrong})


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> runner.Outcome:
    """What a run of rivals that do wrong gives, with one among them that does not."""
    scratch = tmp_path_factory.mktemp("wrong")
    rivals = list(map(rival, ("nothing", "preparation", "start", "death", "pixels", "labels")))
    plan = runner.Plan(1, Times(0.0, 0.05, 0.05), 0, MODEL, scratch, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        pythons = {"rivals": Path(sys.executable)}
        nurseries = runner.Nurseries(pythons, scratch / "stderr.txt")
        with closing(nurseries):
            return runner.run(SMALL, rivals, plan, nurseries, print)


def test_only_a_rival_that_does_the_work_counts(wrong: runner.Outcome):
    assert list(wrong.runs) == ["nothing"]
    assert set(wrong.failed) == {"preparation", "start", "death", "pixels", "labels"}


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("preparation", "OSError: there is no room"),
        ("start", "ValueError: no such option"),
        ("death", "its process ended with code 3"),
        (
            "pixels",
            r"CheckError: its pixels are 0\.\d+ levels of 255 off in the mean, 25\.\d at most",
        ),
        ("labels", r"CheckError: labels of sample \d are not the reference's"),
    ],
)
def test_a_rival_that_does_wrong_is_told_with_the_reason(
    wrong: runner.Outcome, what: str, reason: str
):
    assert re.match(reason, wrong.failed[what]), wrong.failed[what]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Data on disk; there is no store."""
    folder = tmp_path_factory.mktemp("data")
    made = data.make(SMALL, folder, seed=1)
    places = dict.fromkeys(("model", "cache", "scratch"), str(MODEL))
    store = dict.fromkeys(("endpoint", "access_key_id", "secret_access_key", "bucket"), "")
    return Job(
        **places | store,
        folder=str(folder),
        samples=made.samples,
        batch_size=2,
        cores=2,
        shards=data.SHARDS,
        source="objects",
        step_seconds=0.1,
        options={},
    )


@pytest.fixture(scope="module")
def batch(job: Job) -> dict[str, torch.Tensor]:
    """Samples 5 and 2, as the reference has them."""
    from bench.processor import Processor

    processor = Processor(MODEL)
    lines = (Path(job.folder) / "objects/train.jsonl").read_text().splitlines()
    examples = []
    for row in (5, 2):
        image = Path(job.folder) / "objects" / data.key(row)
        examples.append(processor.example(json.loads(lines[row]), [image.read_bytes()]))
    return processor.collate(examples)


def changed(batch: dict[str, torch.Tensor], **tensors: Any) -> dict[str, torch.Tensor]:
    """A copy in which functions change some tensors in place."""
    copy = {name: tensor.clone() for name, tensor in batch.items()}
    for name, change in tensors.items():
        change(copy[name])
    return copy


def test_samples_may_come_in_any_order(job: Job, batch: dict[str, torch.Tensor]):
    assert check(batch, job)["pixel_levels_most"] == 0


def test_a_small_difference_of_pixels_is_told(job: Job, batch: dict[str, torch.Tensor]):
    def off(pixels: torch.Tensor) -> None:
        pixels[7, 3] += 2 / 127.5

    same = check(changed(batch, pixel_values=off), job)
    assert same["pixel_levels_most"] == pytest.approx(2, abs=0.01)
    assert "pixel_values" not in same["equal"]


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("input_ids", lambda ids: ids[0].__setitem__(30, 9), "input_ids of sample 5"),
        ("input_ids", lambda ids: ids.zero_(), "doesn't say which it is"),
        ("image_grid_thw", lambda grid: grid[1].add_(2), "image_grid_thw of sample 2"),
        ("pixel_values", lambda pixels: pixels.mul_(0.9), "levels of 255 off"),
    ],
)
def test_other_work_is_found_out(
    job: Job, batch: dict[str, torch.Tensor], name: str, change: Any, reason: str
):
    with pytest.raises(CheckError, match=reason):
        check(changed(batch, **{name: change}), job)


def test_missing_patches_are_found_out(job: Job, batch: dict[str, torch.Tensor]):
    more = torch.cat([batch["pixel_values"], batch["pixel_values"][:4]])
    with pytest.raises(CheckError, match="patches, the reference"):
        check(batch | {"pixel_values": more}, job)


def test_data_is_a_function_of_scenario_and_seed(tmp_path: Path):
    def content(folder: str, seed: int) -> dict[str, bytes]:
        place = data.make(SMALL, tmp_path / folder, seed).folder
        files = (file for file in place.rglob("*") if file.suffix in {".jpg", ".jsonl", ".tar"})
        return {str(file.relative_to(place)): file.read_bytes() for file in sorted(files)}

    first, again, other = content("a", 1), content("b", 1), content("c", 2)
    assert len(first) == 8 + 1 + data.SHARDS
    assert first == again
    assert first.keys() == other.keys()
    assert all(first[name] != other[name] for name in first if "images" in name)


def found(pace: float, *, cpu: float = 0.01, memory: int = 10**9, wait: float = 0.5) -> dict:
    """A run, made up."""
    trained = [{"waits": [wait] * 3, "wait_ratio": wait}] * 2
    return {
        "images_per_second": pace,
        "cpu_seconds_per_image": cpu,
        "peak_memory_bytes": memory,
        "first_batch_seconds": 1.0,
        "pixel_bytes_per_image": 24e6,
        "trained": trained,
        "hand_overs": {"cold": [wait] * 3, "warm": [wait] * 6},
        "same": {"pixel_levels_most": 0.0},
    }


@pytest.fixture
def outcome(tmp_path: Path) -> runner.Outcome:
    """A run in which all is as it is to be."""
    outcome = runner.Outcome(SCENARIOS[0], data.Data(tmp_path, 256, 10**7, 2 * 10**8, 10**5), 0.1)
    fast = {"cpu": 0.002, "memory": 10**8, "wait": 20e-6}
    outcome.runs = {
        "libjpeg-turbo": [found(600)] * 3,
        "dataloader": [found(20), found(30), found(10)],
        "spdl": [found(50)] * 3,
        "stoker-f32": [found(420, **fast)] * 3,
        "stoker-bf16": [found(430, **fast)] * 3,
        "stoker-u8": [found(480, **fast)] * 3,
    }
    return outcome


def test_a_rival_has_the_medians_of_its_rounds(outcome: runner.Outcome):
    summary = results.summary([outcome])["photos"]
    assert summary["dataloader"]["images_per_second"] == 20
    assert summary["dataloader"]["bytes_copied_per_image"] == 48e6
    assert summary["stoker-f32"]["bytes_copied_per_image"] == 0


def test_what_is_to_be_shown_is_said_of_a_run_that_shows_it(outcome: runner.Outcome):
    claimed = results.claims(outcome)
    assert len(claimed) == 3 + 2 + 3 + 3 * 3
    assert [claim for claim in claimed if not claim.kept] == []


@pytest.mark.parametrize(
    ("name", "run", "missed"),
    [
        ("stoker-u8", found(440, wait=0), "u8: from the store to patches at 0.75"),
        (
            "stoker-f32",
            found(350, cpu=0, memory=1, wait=0),
            "f32: from the store to patches at 0.6",
        ),
        ("spdl", found(90), "f32: 6 times the fastest rival, SPDL"),
        ("dataloader", found(29), "u8: 18 times torch's DataLoader"),
        ("spdl", found(50, cpu=0.003), "f32: at most half of the CPU time of SPDL"),
        ("dataloader", found(20, memory=99 * 10**6), "f32: less memory than any rival"),
        (
            "stoker-bf16",
            found(430, wait=0.02),
            "stoker, bf16: the demo's trainer waits at most 1.0%",
        ),
        (
            "stoker-bf16",
            found(430, wait=60e-6),
            "stoker, bf16: a batch that is ready is handed over",
        ),
    ],
)
def test_what_is_not_shown_is_said(outcome: runner.Outcome, name: str, run: dict, missed: str):
    outcome.runs[name] = [run] * 3
    assert any(
        claim.words.startswith(missed) for claim in results.claims(outcome) if not claim.kept
    )
    where = {
        "machine": MACHINE,
        "settings": {"rounds": 3},
        "versions": {"torch": "2"},
        "seconds": 60,
    }
    text = page.figures("benchmarks", [outcome], where)
    assert re.search(rf"\| {re.escape(missed)}[^|]*\|[^|]*\| \*\*no\*\* \|", text)


MACHINE = {"cpu": "c", "cores": 2, "memory_gib": 24.0, "system": "Linux", "python": "3.11"}


def test_each_round_begins_with_another_rival():
    rivals = list(RIVALS[:6])
    orders = [[one.name for one in runner.turned(rivals, by)] for by in (0, 2, 4)]
    assert len({order[0] for order in orders}) == 3
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_scenarios_name_rivals_that_there_are():
    names = {rival.name for rival in RIVALS}
    assert len(names) == len(RIVALS)
    assert all(set(scenario.adapters) <= names for scenario in SCENARIOS)
    for rival in RIVALS:
        assert (ROOT / f"{rival.module.replace('.', '/')}.py").exists()


def test_rivals_get_the_versions_that_the_project_has():
    def pins(file: str) -> Iterator[tuple[str, str]]:
        for line in (ROOT / file).read_text().splitlines():
            match = re.match(r"([\w.-]+)==([\w.]+)", line)
            if match and "sys_platform" not in line:  # the rivals are for this system only
                yield match[1], match[2]

    ours: dict[str, set[str]] = {}  # some differ by the version of Python
    for name, version in pins("python/requirements.txt"):
        ours.setdefault(name, set()).add(version)
    theirs = dict(pins("bench/speed/rivals.txt"))
    shared = ours.keys() & theirs.keys()
    assert {"torch", "transformers", "pillow", "numpy", "boto3"} <= shared
    assert {name for name in shared if theirs[name] not in ours[name]} == set()


def test_a_client_that_hung_up_opens_a_new_connection():
    server = _native.S3Server(profile="none")
    server.put("bucket", "key", b"content")
    job = SimpleNamespace(endpoint=server.endpoint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        patch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        client = work.client(job)

        def get() -> bytes:
            return client.get_object(Bucket="bucket", Key="key")["Body"].read()

        assert get() == b"content"
        pools = client._endpoint.http_session._manager.pools
        assert len(pools) == 1
        work.hang_up()
        assert len(pools) == 0
        assert get() == b"content"
    server.close()


def test_the_page_of_the_bench_has_a_place_for_its_figures():
    text = (ROOT / "docs/benchmarks.md").read_text()
    assert [text.count(marker) for marker in page.MARKERS] == [1, 1]


def test_a_missing_environment_is_a_reason_not_an_end(tmp_path: Path):
    nurseries = runner.Nurseries({"rivals": tmp_path / "bin/python"}, tmp_path / "stderr.txt")
    answer = nurseries.obey({"rival": {"place": "rivals"}})
    assert "is missing: make bench" in answer["failed"]
