"""The parts of `stoker.ray` that need no cluster."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("ray")

from stoker._native import _advice
from stoker.errors import ClusterError, DatasetError
from stoker.ray import counts, report, watch
from stoker.ray.counts import Counts
from stoker.ray.fleet import fits
from stoker.ray.link import AHEAD, Link
from stoker.ray.placement import Node, Seat, Wish
from stoker.ray.trouble import FAILURES, LONGEST, PATIENCE, Trouble


def numbers(items=1, read=100, busy=0.5, workers=2):
    room = {"busy_seconds": busy, "items": items, "bytes": read}
    return {
        "rooms": [{"room": "fetch", **room}, {"room": "image", **room}],
        "fetch": {"requests": items, "retries": 0, "peak_in_flight": 3},
        "memory": {"compressed_bytes": read},
        "workers": workers,
        "worker_seconds": busy,
        "worker_delay_seconds": busy / 4,
        "process_seconds": busy * 2,
        "first_byte_histogram": {
            "bounds_seconds": [0.1],
            "counts": [items, 1],
            "sum_seconds": busy,
        },
    }


def test_the_numbers_of_engines_are_added_and_those_of_the_dead_are_kept():
    known = Counts()
    known.joined(1, "a", "10.0.0.1", local=True)
    known.joined(2, "b", "10.0.0.2", local=False)
    known.said(1, numbers(items=4, read=1000))
    known.said(2, numbers(items=6, read=500))
    for sequence in range(3):
        known.made(1 + sequence % 2, 200)
    known.pulled(2, 200)
    assert known.ratio == 600 / 1500
    for _ in range(3):
        known.left(2)
        known.joined(3, "b", "10.0.0.2", local=False)
        known.said(3, numbers(items=1, read=10))
        known.left(3)
    total = counts.merged(known.reports())
    assert [room["room"] for room in total["rooms"]] == ["fetch", "image"]
    assert total["rooms"][0] == {"room": "fetch", "busy_seconds": 2.5, "items": 13, "bytes": 1530}
    assert total["fetch"] == {"requests": 13, "retries": 0, "peak_in_flight": 15}
    steps = {"bounds_seconds": [0.1], "counts": [13, 5], "sum_seconds": 2.5}
    assert total["first_byte_histogram"] == steps
    assert total["worker_seconds"] == total["rooms"][0]["busy_seconds"]
    assert total["worker_delay_seconds"] == total["worker_seconds"] / 4
    assert total["process_seconds"] == total["worker_seconds"] * 2
    assert counts.fetched(known.reports("b")) == 530
    assert (known.made_bytes, known.pulled_bytes) == (600, 200)


def test_workers_that_are_gone_hold_nothing():
    known = Counts()
    said = numbers() | {
        "fetch": {"requests": 1, "limit": 64},
        "memory": {"arena_bytes": 500, "peak_arena_bytes": 900},
    }
    for worker in range(1, 5):
        known.joined(worker, "a", "10.0.0.1", local=True)
        known.said(worker, said)
        if worker < 4:
            known.left(worker)
    total = counts.merged(known.reports())
    assert (total["workers"], total["fetch"]) == (2, {"requests": 4, "limit": 64})
    assert total["memory"] == {"arena_bytes": 500, "peak_arena_bytes": 3600}


def test_of_percentiles_the_largest_is_told_and_none_where_there_is_none():
    def fetched(p99):
        return numbers() | {"fetch": {"requests": 1, "first_byte_p99_seconds": p99}}

    for parts, total in [((0.1, 0.3, None), 0.3), ((None, 0.2), 0.2), ((None, None), None)]:
        merged = counts.merged([fetched(p99) for p99 in parts])
        assert merged["fetch"] == {"requests": len(parts), "first_byte_p99_seconds": total}


def on_ray(**known):
    node = {"address": "10.0.0.1", "here": False, "workers": 3, "batches": 7}
    node |= {"made_bytes": 5 << 30, "fetched_bytes": 3 << 20, "pulled_bytes": 1 << 30}
    base = {"placement": "auto", "workers": 3, "starting": 1, "moved": 0, "nodes": [node]}
    base |= {"shipped_per_fetched": 0.5, "network_seconds": 0.0, "link_bytes_per_second": 12e6}
    return base | known


WAIT = {"ratio": 0.41, "blocked_seconds": 10.0}


def test_the_network_card_is_named_where_most_of_the_wait_is_for_it():
    words = report._words(on_ray(network_seconds=9.0), WAIT)
    assert "the trainer waits 41 %: the network card of this node is the limit" in words
    assert "11.4 MiB/s arrive from other nodes" in words
    assert 'vision.pixels = "u8"' in words
    assert "5.0 GiB made of 3.0 MiB fetched, 1.0 GiB pulled" in words


@pytest.mark.parametrize(
    ("known", "wait"),
    [
        ({"network_seconds": 4.0}, WAIT),
        ({"network_seconds": 9.0}, WAIT | {"ratio": 0.04}),
        ({"network_seconds": 0.0}, {"ratio": None, "blocked_seconds": 0.0}),
    ],
)
def test_the_network_card_is_not_named_otherwise(known, wait):
    assert "network card" not in report._words(on_ray(**known), wait)


def evidence(workers=2.0, **known):
    """What the engine of a worker tells."""
    names = [
        *("batches", "wall_seconds", "blocked_seconds", "bytes_blocked_seconds"),
        *("memory_blocked_seconds", "pixels_blocked_seconds", "hand_over_blocked_seconds"),
        *("network_blocked_seconds", "cpu_seconds", "image_seconds", "vision_seconds"),
        *("other_seconds", "request_seconds", "first_byte_seconds", "answers", "requests"),
        *("throttled", "fetched_bytes", "bringing_seconds", "held_back_seconds"),
        *("memory_idle_seconds", "others_idle_seconds"),
        *("on_core_seconds", "delayed_seconds", "process_seconds", "usable_cores"),
        *("compressed_limit_bytes", "batch_limit_bytes", "u8_workers"),
    ]
    limits = {"data_workers": 1.0, "workers": workers, "most_requests": 64.0, "requests_now": 16.0}
    return dict.fromkeys(names, 0.0) | limits | known


def advised(before, after, blocked, network=0.0):
    """The advice of ten seconds in which two workers went from the one to the other."""
    known = Counts(batches=1)
    for worker in (1, 2):
        known.joined(worker, "a", "10.0.0.1", local=True)
        known.said(worker, numbers() | {"evidence": before})
    known.note(100.0)
    for worker in (1, 2):
        known.said(worker, numbers() | {"evidence": after})
    known.batches, known.blocked_seconds, known.network_seconds = 101, blocked, network
    return _advice(known.evidence(110.0))


def test_the_advice_of_a_rank_is_made_of_what_its_workers_did_of_late():
    long_ago = evidence(cpu_seconds=1000.0, pixels_blocked_seconds=99.0)
    busy = long_ago | {"cpu_seconds": 1019.0, "image_seconds": 15.0, "vision_seconds": 3.0}
    advice = advised(long_ago, busy, blocked=5.0)
    assert (advice["limit"], advice["workers_busy"]) == ("cores", pytest.approx(0.95))
    assert "4 of 4 workers are busy, 83 % of it with decoding" in advice["words"]
    assert "4 more cores end it: 2 data workers of 2 cores" in advice["words"]
    crowded = busy | {"on_core_seconds": 4.0, "delayed_seconds": 14.0, "process_seconds": 5.0}
    crowded = advised(long_ago | {"usable_cores": 2.0}, crowded | {"usable_cores": 2.0}, 5.0)
    assert crowded["limit"] == "busy-machine"
    assert "has work for 3.8 and gets 0.8, 1.6 would end the wait" in crowded["words"]
    assert "have more of these elsewhere" in crowded["words"]
    slow = long_ago | {"cpu_seconds": 1004.0, "bytes_blocked_seconds": 30.0, "requests": 100.0}
    slow |= {"request_seconds": 20.0, "first_byte_seconds": 18.0, "answers": 100.0}
    advice = advised(long_ago, slow, blocked=5.0)
    assert advice["limit"] == "latency"
    assert "have more data workers, or raise prefetch_bytes" in advice["words"]
    # Each of them was held back for 3 of the 10 seconds, and not together for 6.
    assert advised(long_ago, slow | {"held_back_seconds": 3.0}, blocked=5.0)["limit"] == "latency"
    assert advised(long_ago, slow | {"held_back_seconds": 6.0}, blocked=5.0)["limit"] == "memory"
    assert advice["bytes_blocked_seconds"] == pytest.approx(5.0)
    assert advised(long_ago, slow, blocked=5.0, network=4.0)["limit"] == "network"
    assert advised(long_ago, slow, blocked=0.1)["limit"] == "trainer"


def test_an_advice_is_about_the_last_minute_and_knows_of_workers_that_are_gone():
    known = Counts(batches=1)
    assert known.evidence(1.0) is None
    known.joined(1, "a", "10.0.0.1", local=True)
    for second in range(100):
        known.said(1, numbers() | {"evidence": evidence(cpu_seconds=float(second))})
        known.batches = 1 + second
        known.note(float(second))
    found = known.evidence(99.0)
    assert (found["wall_seconds"], found["cpu_seconds"], found["workers"]) == (60.0, 60.0, 2.0)
    known.left(1)
    found = known.evidence(99.0)
    assert found["cpu_seconds"] == 60.0
    assert found.get("workers", 0.0) == 0.0


def test_an_advice_about_slow_steps_is_about_more_than_a_minute():
    known = Counts(batches=0)
    known.joined(1, "a", "10.0.0.1", local=True)
    for second in range(600):
        known.said(1, numbers() | {"evidence": evidence(cpu_seconds=float(second))})
        known.batches = second // 30
        known.note(float(second))
    found = known.evidence(599.0)
    assert found["batches"] >= 8
    assert 240 <= found["wall_seconds"] <= 300


NODE = Node("a", "10.0.0.1", 8, 0, 0, 1 << 30, 1 << 30, {"role": "data"})
SEAT = Seat("a", 0, 4, 1 << 28, 1 << 28)


def test_a_node_where_workers_keep_failing_is_tried_ever_more_rarely():
    trouble = Trouble(Wish(), now=0.0)
    now, waits = 0.0, []
    for _ in range(9):
        trouble.failed("a", "it died", None, 0.0, now)
        begun = now
        while not trouble.may_start("a", now):
            now += 0.25
        waits.append(now - begun)
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == LONGEST
    assert trouble.may_start("b", 0.0)
    trouble.failed("a", "it died", None, 3600.0, now)
    assert trouble.may_start("a", now), "one that worked for an hour is replaced at once"


def test_failures_are_told_in_the_workers_own_words_when_nobody_is_left():
    own = DatasetError("s3://b/x.jsonl: not there", uri="s3://b/x.jsonl")
    trouble = Trouble(Wish(), now=0.0)
    trouble.saw([NODE], [SEAT], True, 1.0)
    for _ in range(FAILURES):
        trouble.failed("a", "not there", own, 0.0, 2.0)
    assert trouble.error(2.0) is None, "others work"
    trouble.saw([NODE], [SEAT], False, 3.0)
    for _ in range(FAILURES):
        trouble.failed("a", "no answer for 5 s", None, 1.0, 3.0)
    assert trouble.error(3.0) is own, "those that had started say nothing about starting"
    trouble.failed("a", "it died while it started: no module named stoker", None, 0.0, 4.0)
    with pytest.raises(ClusterError, match=r"4 tries.*no module named stoker.*ray logs") as caught:
        raise trouble.error(4.0)
    assert caught.value.kind == "no-workers"
    trouble.saw([NODE], [SEAT], True, 5.0)
    assert trouble.error(5.0) is None


def test_after_a_minute_without_workers_it_is_said_what_was_asked_and_what_there_is():
    trouble = Trouble(Wish(node_labels={"role": "data"}), now=0.0)
    trouble.saw([NODE], [SEAT], False, 0.0)
    assert trouble.error(PATIENCE - 1) is None
    said = str(trouble.error(PATIENCE + 1))
    assert "asked for: 4 CPUs on 10.0.0.1" in said
    assert "10.0.0.1: 0 of 8 CPUs free, labels {'role': 'data'}" in said
    trouble.saw([NODE], [], False, 1.0)
    assert "no node may be used" in str(trouble.error(PATIENCE + 1))


def test_the_link_allows_one_pull_until_it_is_measured_and_then_two_seconds():
    link = Link()
    assert link.allows(10**9)
    link.start(100, now=0.0)
    assert not link.allows(1), "nothing is known yet"
    link.done(100, "b", now=1.0)
    assert link.rate == pytest.approx(100)
    link.start(150, now=5.0)
    assert link.allows(int(AHEAD * 100) - 150)
    assert not link.allows(int(AHEAD * 100) - 149)
    link.lost(150, now=6.0)
    assert link.rate == pytest.approx(100), "what was lost says nothing"


def test_a_pull_is_overdue_where_nothing_comes_rather_than_slowly():
    link = Link()
    link.start(1000, now=0.0)
    link.done(1000, "b", now=1.0)
    link.start(1000, now=1.0)
    assert not link.overdue(1000, "b", since=1.0, deadline=5.0, now=6.9)
    assert link.overdue(1000, "b", since=1.0, deadline=5.0, now=7.1)
    link.start(500, now=2.0)
    link.done(500, "b", now=6.0)
    assert not link.overdue(1000, "b", since=1.0, deadline=5.0, now=7.1), "others come from there"


def test_a_worker_is_replaced_where_its_share_of_the_node_has_changed_for_good():
    seat = Seat("a", 0, 8, 1, 1)
    for cpus, stays in ((7, False), (8, True), (11, True), (12, False)):
        assert fits(seat, seat._replace(cpus=cpus)) == stays
    assert fits(seat._replace(cpus=1), seat._replace(cpus=1))
    assert not fits(seat, seat._replace(node="b"))
    assert not fits(seat, seat._replace(number=1))


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def watched(monkeypatch):
    """A watch on a dispatcher whose counts the test writes, and the clock."""
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    monkeypatch.setattr(watch, "Meters", lambda _: SimpleNamespace(tell=lambda _: None))
    known = Counts()
    known.joined(1, "a", "10.0.0.1", local=True)
    workers = {1: SimpleNamespace(local=True)}
    dispatcher = SimpleNamespace(
        counts=known, changed=threading.Condition(), schedule=SimpleNamespace(workers=workers)
    )
    return watch.Watch(dispatcher, 0), known, clock


def test_auto_goes_elsewhere_when_the_trainer_waits_and_all_threads_are_busy(watched):
    look, known, clock = watched
    known.batches = 10
    busy, remotes = 0.0, []
    for _ in range(4):
        clock.now += 5.0
        busy += 9.0  # of two threads, in five seconds
        known.blocked_seconds += 2.0
        known.said(1, numbers(busy=busy))
        remotes.append(look.remote(possible=3))
    assert remotes == [1, 2, 3, 3]
    known.network_seconds += 1e3
    known.made(1, 1 << 30)
    clock.now += 5.0
    known.blocked_seconds += 2.0
    assert look.remote(possible=3) == 2, "the network is what it waits for"


def test_auto_sees_a_trainer_that_still_waits_for_its_first_batch(watched):
    look, known, clock = watched
    look._dispatcher.schedule.workers.clear()
    known.waiting_since = clock.now
    clock.now += 10.0
    assert look.remote(possible=3) == 0, "a start takes its time"
    clock.now += 15.0
    assert look.remote(possible=3) == 1, "nobody works here"
