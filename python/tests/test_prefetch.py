"""Batches ahead on a device: the loader's, in order, its state; memory is held until copied."""

from __future__ import annotations

import gc
import time
from itertools import islice

import device_double
import pytest
import stoker
import stoker._prefetch
import torch
from stoker._prefetch import Prefetcher
from stoker.torch import move, prefetch
from trainer_runs import digests

BATCHES = 6


@pytest.fixture
def recipe(quick):
    """A pass of 6 batches."""
    return quick


@pytest.fixture
def straight(recipe):
    """All batches of two passes, and the state after each, by the loader alone."""
    with stoker.Loader(recipe) as loader:
        found = [(digests(b.to("cpu")), b.state_dict()) for _ in range(2) for b in loader]
    assert len(found) == 2 * BATCHES
    return found


def ahead(recipe, depth: int) -> Prefetcher:
    """Batches that are always taken ahead as far as they may be."""
    return prefetch(device_double.AlwaysReady(stoker.Loader(recipe)), "cpu", depth=depth)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_it_gives_the_loaders_batches_in_order_pass_after_pass(recipe, straight, depth):
    with prefetch(stoker.Loader(recipe), "cpu", depth=depth) as batches:
        found = [(digests(batch), batch.state_dict()) for _ in range(2) for batch in batches]
    assert found == straight


def test_a_batch_knows_what_the_loaders_batch_knew(recipe):
    with stoker.Loader(recipe) as loader, prefetch(stoker.Loader(recipe), "cpu") as batches:
        for plain, moved in zip(loader, batches, strict=True):
            assert isinstance(moved, dict)
            for name in ("sequence", "name", "samples", "sample_mask"):
                assert getattr(moved, name) == getattr(plain, name)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("taken", range(BATCHES + 1))
def test_a_state_is_that_of_the_batch_that_was_given_last(recipe, straight, depth, taken):
    with ahead(recipe, depth) as batches:
        for _ in islice(batches, taken):
            pass
        state = batches.state_dict()
        if taken:
            assert state == straight[taken - 1][1]
        remaining = [digest for digest, _ in straight[taken:BATCHES]]
        with stoker.Loader(recipe) as other:
            other.load_state_dict(state)
            assert [digests(batch.to("cpu")) for batch in other] == remaining
        # Its own rest, after what it had copied ahead is thrown away.
        batches.load_state_dict(state)
        assert batches.state_dict() == state
        assert [digests(batch) for batch in batches] == remaining


@pytest.mark.parametrize("depth", [1, 2, 9])
@pytest.mark.parametrize("taken", range(BATCHES + 1))
def test_another_over_the_same_loader_goes_on_where_the_first_stopped(
    recipe, straight, depth, taken
):
    """Also where the first had seen the end ahead, and where both are asked in turns."""
    with stoker.Loader(recipe) as plain:
        loader = device_double.AlwaysReady(plain)
        first, second = (prefetch(loader, "cpu", depth=depth) for _ in range(2))
        found = [digests(batch) for batch in islice(first, taken)]
        found += [digests(batch) for batch in islice(second, 1)]
        if taken < BATCHES:
            assert second.state_dict() == straight[taken][1]
        found += [digests(batch) for batch in islice(first, 1)]
        del first
        gc.collect()
        third = prefetch(loader, "cpu", depth=depth)
        while len(found) < 2 * BATCHES:
            found += [digests(batch) for batch in third]
    assert found == [digest for digest, _ in straight]


def test_a_loader_that_was_sent_elsewhere_stays_there(recipe, straight):
    with stoker.Loader(recipe) as plain:
        loader = device_double.AlwaysReady(plain)
        for _ in islice(prefetch(loader, "cpu"), 2):
            pass
        loader.load_state_dict(straight[0][1])
        remaining = [digests(batch) for batch in prefetch(loader, "cpu")]
    assert remaining == [digest for digest, _ in straight[1:BATCHES]]


@pytest.mark.parametrize("done", range(BATCHES))
def test_a_state_that_another_loads_holds_wherever_the_first_was(recipe, straight, done):
    """Also where that had taken just as much ahead."""
    with stoker.Loader(recipe) as plain:
        loader = device_double.AlwaysReady(plain)
        for _ in islice(prefetch(loader, "cpu"), 2):
            pass
        second = prefetch(loader, "cpu")
        second.load_state_dict(straight[done][1])
        remaining = [digests(batch) for batch in second]
    assert remaining == [digest for digest, _ in straight[done + 1 : BATCHES]]


def actions(batches) -> list:
    """What a loop sees that stops, goes on, ends and begins again."""
    seen = [batches.state_dict()]
    seen.append([batch.state_dict() for batch in islice(batches, 2)])
    seen.append(batches.state_dict())
    seen.append([batch.state_dict() for batch in islice(batches, BATCHES - 2)])
    seen.append(batches.state_dict())
    seen.append(list(batches))
    seen.append(batches.state_dict())
    seen.append([batch.state_dict() for batch in islice(batches, 3)])
    seen.append(batches.state_dict())
    seen.append([batch.state_dict() for batch in batches])
    seen.append(batches.state_dict())
    ended = batches.state_dict()
    seen.append([batch.state_dict() for batch in islice(batches, 1)])
    batches.load_state_dict(ended)
    seen.append([batch.state_dict() for batch in batches])
    return seen


@pytest.mark.parametrize("depth", [1, 2, 9])
def test_a_loop_sees_what_it_would_see_of_the_loader(recipe, depth):
    with stoker.Loader(recipe) as loader:
        expected = actions(loader)
    assert expected[5] == [], "of an end that is not seen yet the next loop is empty"
    with ahead(recipe, depth) as batches:
        assert actions(batches) == expected


def test_an_error_comes_in_the_place_of_its_batch(recipe, folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    recipe["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    recipe["engine"]["on-bad-sample"] = "stop"
    with stoker.Loader(recipe) as loader:
        row = [batch.samples for batch in loader][3][0][1]
    (tmp_path / f"{row}-0.jpg").write_bytes(b"no picture")

    def until_it_stops(batches) -> tuple[list, str, dict]:
        seen = []
        try:
            for batch in batches:
                seen.append(batch.sequence)
        except stoker.SampleError as error:
            return seen, str(error), batches.state_dict()
        raise AssertionError("it ended without an error")

    with stoker.Loader(recipe) as loader:
        expected = until_it_stops(loader)
    assert len(expected[0]) == 3
    with ahead(recipe, 9) as batches:
        assert until_it_stops(batches) == expected
        with pytest.raises(stoker.SampleError):
            next(batches)


def test_trouble_that_is_over_when_a_batch_is_due_is_not_raised(recipe, straight):
    class Troubled(device_double.AlwaysReady):
        """Each other time it is asked there is no worker, and then there is one again."""

        calls = 0

        def _next_if_ready(self):
            self.calls += 1
            if self.calls % 2 == 0:
                raise stoker.ClusterError("there is no worker")
            return super()._next_if_ready()

    loader = Troubled(stoker.Loader(recipe))
    with prefetch(loader, "cpu") as batches:
        assert [digests(batch) for batch in batches] == [d for d, _ in straight[:BATCHES]]
    assert loader.calls >= 2 * BATCHES


def test_closed_it_says_so_and_still_knows_its_state(recipe, straight):
    batches = ahead(recipe, 3)
    for _ in islice(batches, 2):
        pass
    batches.close()
    batches.close()
    assert batches.state_dict() == straight[1][1]
    assert batches.report().wait.batches >= 1
    with pytest.raises(stoker.StoppedError):
        next(batches)


@pytest.mark.parametrize("place", range(1, 5))
def test_a_copy_that_is_interrupted_is_done_again(recipe, straight, monkeypatch, place):
    calls = 0

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls == place:
            raise KeyboardInterrupt
        return move(*arguments)

    monkeypatch.setattr(stoker._prefetch, "move", interrupted)
    seen = []
    with ahead(recipe, 2) as batches:
        while len(seen) < BATCHES:
            try:
                seen += [digests(batch) for batch in islice(batches, 1)]
            except KeyboardInterrupt:
                states = [batches.state_dict()]
                if seen:
                    assert states == [straight[len(seen) - 1][1]]
    assert calls == BATCHES + 1
    assert seen == [digest for digest, _ in straight[:BATCHES]]


def test_ctrl_c_while_it_waits_loses_nothing(recipe, straight):
    class Interrupted:
        def __init__(self, loader):
            self._loader, self._due = loader, True

        def __getattr__(self, name):
            return getattr(self._loader, name)

        def __iter__(self):
            iter(self._loader)
            return self

        def _next_if_ready(self):
            return None

        def __next__(self):
            self._due = not self._due
            if not self._due:
                raise KeyboardInterrupt
            return next(self._loader)

    seen = []
    batches = prefetch(Interrupted(stoker.Loader(recipe)), "cpu")
    while len(seen) < BATCHES:
        try:
            seen.append(digests(next(batches)))
        except KeyboardInterrupt:
            batches.state_dict()
    assert seen == [digest for digest, _ in straight[:BATCHES]]


def test_memory_for_two_batches_is_enough_however_deep(recipe, straight):
    recipe["engine"] |= {"memory": "16MiB", "workers": 1}
    with prefetch(stoker.Loader(recipe), "cpu", depth=9) as batches:
        assert [digests(batch) for batch in batches] == [d for d, _ in straight[:BATCHES]]


def test_what_is_taken_ahead_is_no_wait(recipe):
    with stoker.Loader(recipe) as loader:
        for number in range(2):
            while (batch := loader._next_if_ready()) is None:
                time.sleep(0.01)
            assert batch.sequence == number
        wait = loader.report().wait
        assert (wait.batches, wait.window_seconds) == (1, [0.0])


def test_nothing_is_given_back_before_its_copy_is_done(recipe, monkeypatch):
    recipe["engine"] |= {"prefetch": 0}
    streams = device_double.DoubleStreams()
    used = device_double.copied(monkeypatch, streams)
    with Prefetcher(stoker.Loader(recipe), "cpu", _streams=streams) as batches:
        batch = next(batches)
        (event,) = streams.events
        assert used == [event.stream] == ["side"], "copied and finished beside the trainer's stream"
        followed = streams.followed[0]
        assert followed[:2] == (event, "trainer")
        names = [name for name in batch if isinstance(batch[name], torch.Tensor)]
        assert [id(t) for t in followed[2]] == [id(batch[name]) for name in names]
        del batch, followed
        streams.followed.clear()
        gc.collect()
        assert batches.report().memory.leased_bytes > 0, "the device may be reading it"
        event.come = True
        batches.load_state_dict(batches.state_dict())
        for _ in batches:
            gc.collect()
            held = sum(not event.come for event in streams.events)
            assert (batches.report().memory.leased_bytes > 0) == (held > 0)
            streams.events[-1].come = True
        gc.collect()
        assert batches.report().memory.leased_bytes == 0
        assert not any(event.waited for event in streams.events), "the host waited for none"


def test_the_host_waits_for_a_copy_only_where_memory_may_be_wanting(recipe, monkeypatch):
    recipe["engine"] |= {"prefetch": 0}
    streams = device_double.DoubleStreams()
    device_double.copied(monkeypatch, streams)
    with Prefetcher(stoker.Loader(recipe), "cpu", _streams=streams) as batches:
        for _ in range(4):
            next(batches)
        assert [event.waited for event in streams.events] == [True, True, False, False]
        batches.close()
        assert all(event.come for event in streams.events)


def test_dropped_it_waits_for_what_is_under_way(recipe, monkeypatch):
    streams = device_double.DoubleStreams()
    device_double.copied(monkeypatch, streams)
    loader = stoker.Loader(recipe)
    batches = Prefetcher(loader, "cpu", _streams=streams)
    next(batches)
    assert not streams.events[0].come
    del batches
    gc.collect()
    assert all(event.waited for event in streams.events)
    loader.close()


def test_the_next_copies_are_launched_before_a_batch_is_given(recipe, monkeypatch):
    streams = device_double.DoubleStreams()
    used = device_double.copied(monkeypatch, streams)
    loader = device_double.AlwaysReady(stoker.Loader(recipe))
    with Prefetcher(loader, "cpu", depth=3, _streams=streams) as batches:
        launched = []
        for _ in batches:
            launched.append(len(used))
    assert launched == [3, 4, 5, 6, 6, 6], "the one that is given, and two ahead of it"


def test_what_it_can_not_do_is_said(recipe):
    with pytest.raises(TypeError, match=r"stoker\.Loader or stoker\.ray\.RayLoader .* not list"):
        prefetch([], "cpu")
    with stoker.Loader(recipe) as loader:
        with pytest.raises(ValueError, match="depth=0"):
            prefetch(loader, "cpu", depth=0)
        batches = prefetch(loader, "cpu")
        with pytest.raises(TypeError, match="not Prefetcher"):
            prefetch(batches, "cpu")
        assert len(batches) == len(loader) == BATCHES
        assert (batches.rank, batches.world_size) == (0, 1)
        assert batches


@pytest.mark.parametrize("pixels", ["f32", "bf16", "u8"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_pixels_are_finished_as_by_to(recipe, pixels, dtype):
    recipe["vision"]["pixels"] = pixels
    with stoker.Loader(recipe) as loader, prefetch(stoker.Loader(recipe), "cpu", dtype=dtype) as it:
        for plain, moved in zip(loader, it, strict=True):
            assert digests(plain.to("cpu", dtype=dtype)) == digests(moved)
