"""The scale experiment: what it reads of Ray, its arithmetic, its results."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bench.cluster import counters as ray_counters
from bench.cluster import faults, measure, nodes, placement, results, store, trainer
from bench.cluster.counters import Counters, CountersError, counters
from bench.cluster.driver import Arrival, Trainer, TrainerError
from bench.cluster.hosts import Host
from bench.pages import PageError

ROOT = Path(__file__).parents[2]

# What is read of Ray

METRICS = """\
# HELP ray_spill_manager_objects_bytes Bytes
# TYPE ray_spill_manager_objects_bytes gauge
ray_spill_manager_objects_bytes{Component="raylet",State="Restored",WorkerId=""} 7.0
ray_spill_manager_objects_bytes{Component="raylet",State="Spilled",WorkerId=""} 3.0000076e+08
ray_spill_manager_objects_bytes{Component="raylet",State="PendingSpill",WorkerId=""} 5.0
ray_object_store_fallback_memory{Component="raylet"} 4.0
ray_object_store_fallback_memory_more{Component="raylet"} 9.0
"""
STATE = """\
LocalObjectManager:
- num pinned objects: 8
- cumulative spill requests: 3

ObjectManager:
- num chunks received failed (all): 2
Event stats:
\tObjectManager.SendPull - 16 total (0 active), Execution time: mean = 0.14ms
PullManager:
- get request bundles: BundlePullRequestQueue{0 total, 0 active, 0 inactive, 0 unpullable}
- num pull retries: 1

WorkerPool:
- num idle workers: 2
"""


def test_counters_are_read_from_metrics_and_state():
    assert counters(METRICS, STATE) == Counters(
        spilled_bytes=300_000_765,
        spill_requests=3,
        fallback_bytes=4,
        pull_retries=1,
        chunks_failed=2,
    )


@pytest.mark.parametrize("name", ["spill_manager_objects_bytes", "object_store_fallback_memory"])
def test_a_metric_that_ray_does_not_export_is_missed_and_not_taken_for_zero(name: str):
    with pytest.raises(CountersError, match=name):
        counters(METRICS.replace(name, "renamed"), STATE)


@pytest.mark.parametrize(
    "name", ["PullManager:", "num pull retries", "cumulative spill requests", "(all)"]
)
def test_a_line_that_a_state_lacks_is_missed_and_not_taken_for_zero(name: str):
    with pytest.raises(CountersError, match="a raylet's state has no"):
        counters(METRICS, STATE.replace(name, "renamed"))


def test_a_line_of_another_section_is_not_taken():
    with pytest.raises(CountersError):
        ray_counters.stated(STATE, "LocalObjectManager", "num pull retries")


def test_the_latest_state_of_a_host_whose_node_was_started_twice_counts(tmp_path: Path):
    with pytest.raises(CountersError, match="no raylet wrote"):
        ray_counters.latest_state(tmp_path)
    for number, session in enumerate(("session_2026-2", "session_2026-1")):
        logs = tmp_path / session / "logs"
        logs.mkdir(parents=True)
        (logs / "debug_state.txt").write_text(session)
        os.utime(logs / "debug_state.txt", (number, number))
    assert ray_counters.latest_state(tmp_path) == "session_2026-1"


def test_a_state_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path):
    dump = tmp_path / "session_2026-1/logs/debug_state.txt"
    dump.parent.mkdir(parents=True)
    dump.write_text(STATE)
    stop = threading.Event()

    def write_slowly() -> None:
        while not stop.wait(0.4):
            with dump.open("w") as out:
                for line in STATE.splitlines(keepends=True):
                    out.write(line)
                    out.flush()
                    time.sleep(0.002)

    writer = threading.Thread(target=write_slowly)
    writer.start()
    try:
        assert [ray_counters.latest_state(tmp_path) for _ in range(5)] == [STATE] * 5
    finally:
        stop.set()
        writer.join()


def test_counters_are_clean_only_if_all_are_zero():
    assert ray_counters.NONE.clean
    some = Counters(0, 0, 0, 1, 0)
    assert not some.clean
    assert (some + some - some) == some


def test_nodes_know_neither_proxies_nor_clusters_of_the_machine(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTPS_PROXY", "no_proxy", "AWS_PROFILE", "RAY_ADDRESS", "KEPT"):
        monkeypatch.setenv(name, "machine's own")
    found = nodes.environment()
    own = {name for name, value in found.items() if value == "machine's own"}
    assert own == {"KEPT"}
    assert str(ROOT) in found["PYTHONPATH"].split(os.pathsep)


# Arithmetic


def arrival(at: float, rows: list[int], nbytes: int = 10, **fields) -> Arrival:
    return Arrival(
        at=at, rows=rows, nbytes=nbytes, **({"waited": 0, "sequence": 0, "digest": None} | fields)
    )


@pytest.mark.parametrize(
    ("ratio", "worth"), [(0.1, 3), (1 / 3, 3), (0.5, 2), (2 / 3, 1.5), (1, 1), (2, 0.5)]
)
def test_three_hosts_are_worth_what_cards_and_tensors_leave(ratio: float, worth: float):
    assert placement.model(3, ratio) == pytest.approx(worth)


def test_rates_count_what_came_within_the_window():
    came = [arrival(1.0, [0]), arrival(1.5, [0, 1]), arrival(3.0, [1]), arrival(3.1, [0])]
    assert measure.rates(came, [100, 1000], 1.0, 3.0) == (2100 / 2, 20 / 2, 2)


def test_the_bytes_of_a_row_are_its_line_and_its_images():
    content = [{"type": "image", "image": "a"}, {"type": "text", "text": "ü"}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "b"}]
    line = json.dumps({"messages": messages}, ensure_ascii=False)
    assert store.bytes_of_row(line, {"a": 1000, "b": 5}) == 1000 + len(line) + 1


def test_photos_are_of_the_size_that_is_asked_for(tmp_path: Path):
    photos = store.write(tmp_path, 12, (20_000, 40_000))
    assert 18_000 < photos.pixels / photos.images < 42_000
    on_disk = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert sum(photos.row_bytes) == on_disk - 12  # the line breaks


def test_photos_of_no_size_are_refused():
    with pytest.raises(ValueError, match="from 40 to 20 pixels"):
        store.write(Path("/nowhere"), 12, (40, 20))


def test_waits_count_from_the_strike_on():
    waits = [9.0, 9.0, 0.5, 2.0, 0.5, 0.0, 0.0, 0.0]
    row = faults.row([arrival(0, [0], waited=waited) for waited in waits], [])
    assert (row["delay_seconds"], row["waited_seconds"]) == (2.0, 3.0)


class FakeBatch:
    def __init__(self, **arrays: np.ndarray) -> None:
        self.arrays = arrays

    def numpy(self) -> dict[str, np.ndarray]:
        return self.arrays


def test_a_digest_tells_apart_bytes_types_shapes_and_names():
    zeros = np.zeros((2, 3), dtype="int64")
    one = zeros.copy()
    one[1, 2] = 1
    batches = [
        {"a": zeros},
        {"a": one},
        {"a": zeros.reshape(3, 2)},
        {"a": zeros.view("uint64")},
        {"b": zeros},
        {"a": zeros, "b": zeros},
    ]
    digests = [trainer.digest(FakeBatch(**arrays)) for arrays in batches]
    assert len(set(digests)) == len(batches)
    assert digests[0] == trainer.digest(FakeBatch(a=zeros.copy()))


def test_batches_are_identical_only_if_all_came_in_order_with_their_bytes():
    came = [arrival(n, [0], sequence=n, digest=str(n)) for n in range(4)]
    digests = ["0", "1", "2", "3"]

    def identical(arrivals: list[Arrival]) -> bool:
        return faults.row(arrivals, digests)["identical"]

    assert identical(came)
    assert not identical(came[:3])
    assert not identical([came[0], came[2], came[1], came[3]])
    assert not identical([*came[:3], arrival(3, [0], sequence=3, digest="other")])
    assert not identical([*came[:3], arrival(3, [0], sequence=4, digest="3")])


# Results


def speed(fetched: float, busy: float = 0.5) -> dict:
    run = measure.Steady(fetched, fetched / 4, 9, busy, {}, "")
    return placement.details(run)


def found(**changes) -> dict:
    """What a run may find."""
    row = {"pixels": "u8", "max_pixels": 30_000, "shipped_per_fetched": 0.25, "model": 3.0}
    clean = {"spilled_bytes": 0, "pull_retries": 0}
    row |= {"ray": clean}
    fault = {"fault": "node killed", "delay_seconds": 7.5, "waited_seconds": 9.1, "batches": 80}
    fault |= {"ray": clean.copy(), "makes_retries": False}
    return {
        "A": {"packed_bytes_per_second": 5e6, "ratio": 2.9, "model": 3, "ray": clean}
        | {"packed": speed(5e6), "spread": speed(14.5e6)},
        "B": [row | {"ratio": 2.8, "packed": speed(5e6), "spread": speed(14e6)}],
        "C": [fault | {"identical": True}],
        "settings": {
            "mbit": 40,
            "images": 100,
            "bytes": 36e6,
            "pixels": 140e6,
            "batch_size": 4,
            "ray": "2.60.0",
            "short": False,
        },
        "machine": {"cores": 2, "cpu": "a CPU"},
        "seconds": 400,
    } | changes


def missed(document: dict) -> list[str]:
    return [claim.words for claim in results.claims(document) if not claim.kept]


def test_a_run_as_it_should_be_keeps_all_claims():
    assert missed(found()) == []


def test_a_claim_that_is_not_kept_is_said_to_be_missed():
    document = found()
    document["A"]["ray"] = {"spilled_bytes": 0, "pull_retries": 2}
    document["A"]["ratio"] = 2.4
    document["B"][0]["ratio"] = 2.3
    document["C"][0] |= {"identical": False, "delay_seconds": 99.0}
    document["C"][0]["ray"]["pull_retries"] = 1
    assert [words[0] for words in missed(document)] == ["A", "B", "C", "C", "A", "C"]
    assert "MISSED  {'pull_retries': 2}" in results.told(document, results.claims(document))
    assert "**differ**" in results.figures(document)


def test_speeds_are_not_claimed_where_the_cores_were_the_limit():
    document = found()
    document["A"] |= {"ratio": 1.0, "packed": speed(5e6), "spread": speed(5e6, busy=0.95)}
    document["B"][0] |= {"ratio": 1.0, "packed": speed(5e6, busy=0.95)}
    assert missed(document) == []
    assert "95%\\*" in results.figures(document)
    assert "The cores were busy" in results.figures(document)


def test_where_the_trainers_card_is_the_limit_the_report_has_to_say_so():
    document = found()
    document["B"][0] |= {"shipped_per_fetched": 1.0, "ratio": 1.0, "model": 1.0}
    assert len(missed(document)) == 1
    document["B"][0]["spread"]["report"] = "the network card of this node is the limit"
    assert missed(document) == []


def test_a_short_run_claims_no_speed_but_the_same_batches():
    document = found()
    document["settings"]["short"] = True
    document["A"]["ratio"] = 1.0
    document["C"][0]["delay_seconds"] = 99.0
    assert missed(document) == []
    document["C"][0]["identical"] = False
    assert len(missed(document)) == 1


def test_what_a_cut_link_holds_up_may_be_sent_again_but_not_spilled():
    document = found()
    document["C"][0] |= {"makes_retries": True, "ray": {"spilled_bytes": 0, "pull_retries": 2}}
    assert missed(document) == []
    document["C"][0]["ray"]["spilled_bytes"] = 1
    assert len(missed(document)) == 1


def test_figures_replace_what_stands_between_the_markers_and_nothing_else(tmp_path: Path):
    page = tmp_path / "page.md"
    begin, end = results.MARKERS
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    results.write_figures(page, found())
    results.write_figures(page, found())
    text = page.read_text()
    assert text.startswith(f"before\n{begin}\n| three ranks")
    assert text.endswith(f"\n{end}\nafter\n")
    assert "old" not in text


def test_a_page_without_markers_is_refused(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("no place")
    with pytest.raises(PageError, match="the figures need a place"):
        results.write_figures(page, found())


def test_the_page_of_the_experiment_has_a_place_for_its_figures():
    text = (ROOT / "docs/cluster.md").read_text()
    assert [text.count(marker) for marker in results.MARKERS] == [1, 1]


def test_a_trainer_that_fails_is_told_with_its_last_words(tmp_path: Path):
    class Here:
        name, address, folder = "here", "127.0.0.1", tmp_path
        start = Host.start

        def command(self, *argv: object) -> list[str]:
            return list(map(str, argv))

    one = Trainer(Here(), cluster=None)
    try:
        job = {"batches": 1, "step": 0, "digest": False}
        one.begin(loader={"recipe": {"dataset": {"sauce": "x"}}}, **job)
        with pytest.raises(
            TrainerError, match=r"here failed after 0 batches: (?s:RecipeError: .*sauce)"
        ):
            one.finish()
    finally:
        one.close()
