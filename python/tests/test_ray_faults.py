"""Whatever happens to workers, nodes and objects, the batches and their order stay the same."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")

import ray
import ray_double
from stoker.errors import ClusterError, RecipeError, SampleError, StoppedError
from stoker.ray import trouble

ray.cloudpickle.register_pickle_by_value(ray_double)
pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def recipe(tmp_path):
    return {"batches": 40, "folder": str(tmp_path)}


@pytest.fixture
def open_loader():
    """Opens loaders, and closes them after the test."""
    opened = []

    def start(recipe, **arguments):
        defaults = {"cpus_per_worker": 1, "workers": 2, "placement": "local", "deadline": 2.0}
        opened.append(ray_double.Loader(recipe, **(defaults | arguments)))
        return opened[-1]

    yield start
    for loader in opened:
        loader.close()


def sequences(loader):
    found = []
    for batch in loader:
        assert (batch.content == batch.sequence % 251).all()
        found.append(batch.sequence)
    return found


@pytest.mark.parametrize("fault", ["kill", "stop", "hang"])
def test_a_worker_that_is_lost_loses_no_batch(open_loader, recipe, fault):
    loader = open_loader(recipe | {"faults": {"7": (fault, 1), "20": (fault, 1)}})
    assert sequences(loader) == list(range(40))
    assert loader.report().ray.moved >= 2
    for marker in ("fault-7-0", "fault-20-0"):
        assert Path(recipe["folder"], marker).exists(), "it has happened"


def test_the_only_worker_is_replaced(open_loader, recipe):
    loader = open_loader(recipe | {"faults": {"3": ("kill", 2), "9": ("stop", 1)}}, workers=1)
    assert sequences(loader) == list(range(40))


def test_a_batch_that_kills_three_workers_is_an_error_that_names_it(open_loader, recipe):
    loader = open_loader(recipe | {"faults": {"5": ("kill", 9)}})
    found = []
    with pytest.raises(ClusterError, match=r"batch 5 .* 3 workers") as caught:
        found.extend(batch.sequence for batch in loader)
    assert found == [0, 1, 2, 3, 4], "all before it were handed over"
    assert caught.value.sequence == 5
    with pytest.raises(ClusterError, match="batch 5 "):
        next(loader)


def test_an_error_of_the_data_comes_in_its_turn_and_as_what_it_is(open_loader, recipe):
    loader = open_loader(recipe | {"faults": {"6": ("bad", 9)}})
    found = []
    with pytest.raises(SampleError, match="sample of batch 6") as caught:
        found.extend(batch.sequence for batch in loader)
    assert found == [0, 1, 2, 3, 4, 5]
    assert caught.value.sample == (0, 6)


def test_a_node_that_dies_takes_no_batch_with_it(open_loader, recipe, cluster, node):
    """Batches that lie there, finished and not yet pulled, are made again."""
    other = node(labels={"role": "data"})
    loader = open_loader(
        recipe | {"bytes": 4 << 20, "seconds": 0.05},
        placement="spread",
        node_labels={"role": "data"},
        deadline=1.0,
    )
    found = [next(loader).sequence for _ in range(5)]
    assert {place.node for place in loader.report().ray.nodes} == {other.node_id}
    cluster.remove_node(other, allow_graceful=False)
    node(labels={"role": "data"})
    assert found + sequences(loader) == list(range(40))


def test_a_node_that_joins_gets_workers_and_one_that_goes_loses_them(
    open_loader, recipe, cluster, node
):
    loader = open_loader(
        recipe | {"batches": 100_000}, placement="spread", workers=None, deadline=1.0
    )
    here = next(loader) and loader.report().ray.nodes[0].node
    other = node()
    until(loader, lambda nodes: nodes.get(other.node_id, 0) == 1 and nodes[here] == 1)
    cluster.remove_node(other, allow_graceful=False)
    until(loader, lambda nodes: nodes.get(other.node_id, 0) == 0 and nodes[here] == 1)


def until(loader, condition):
    """Goes on until the workers by node are as wanted."""
    for batch in loader:
        nodes = {place.node: place.workers for place in loader.report().ray.nodes}
        if condition(nodes):
            return
        assert batch.sequence < 90_000, nodes
        time.sleep(0.01)


def test_workers_that_hang_hold_nobody_up(open_loader, recipe):
    """Each batch hangs once, for an hour, in the first worker that is asked for it."""
    slow = {str(number): ("hang", 1) for number in range(40)}
    loader = open_loader(recipe | {"batches": 12, "faults": slow}, deadline=1.0, workers=3)
    found = []
    for batch in loader:
        found.append(batch.sequence)
    assert found == list(range(12))


def test_workers_that_can_not_open_the_data_say_so_in_their_own_words(open_loader, recipe):
    loader = open_loader(recipe | {"opens": "never"})
    with pytest.raises(RecipeError, match="model: there is none on this host") as caught:
        next(loader)
    assert caught.value.problems == []


def test_workers_that_die_while_they_open_are_not_tried_for_ever(open_loader, recipe):
    loader = open_loader(recipe | {"opens": "dying"})
    with pytest.raises(ClusterError, match=r"no data worker could be started in . tries") as caught:
        next(loader)
    assert caught.value.kind == "no-workers"


def test_without_a_place_for_workers_it_is_said_what_was_asked_and_what_there_is(
    open_loader, recipe, monkeypatch
):
    next(open_loader(recipe, workers=1, cpus_per_worker=4))
    monkeypatch.setattr(trouble, "PATIENCE", 1.0)
    loader = open_loader(recipe, workers=1, cpus_per_worker=2)
    with pytest.raises(ClusterError) as caught:
        next(loader)
    assert "asked for: 2 CPUs on" in str(caught.value)
    assert "0 of 4 CPUs free" in str(caught.value)
    loader = open_loader(recipe, node_labels={"role": "nobody"})
    with pytest.raises(
        ClusterError, match=r"node_labels=\{'role': 'nobody'\}.*4 CPUs free, labels"
    ):
        next(loader)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids):
    """Whether processes end; they are given half a minute."""
    for _ in range(300):
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def test_closing_ends_the_workers_and_whoever_waits(open_loader, recipe):
    loader = open_loader(recipe)
    pids = {next(loader).pid for _ in range(10)}
    loader.close()
    loader.close()
    with pytest.raises(StoppedError):
        next(loader)
    with pytest.raises(StoppedError):
        loader.load_state_dict({})
    assert gone(pids)


def test_a_loader_that_nobody_has_any_more_ends_its_workers(recipe):
    loader = ray_double.Loader(recipe, placement="local", cpus_per_worker=1)
    pids = {next(loader).pid}
    del loader
    assert gone(pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_rank_however_it_ends(recipe, how):
    @ray.remote(num_cpus=1)
    class Rank:
        def begin(self, recipe):
            self.loader = ray_double.Loader(recipe, placement="local", cpus_per_worker=1)
            return os.getpid(), next(self.loader).pid

    rank = Rank.remote()
    pids = ray.get(rank.begin.remote(recipe))
    os.kill(pids[0], how)
    assert gone(pids)


def test_workers_do_not_join_the_placement_group_of_their_rank(recipe):
    """It has one CPU, which the rank itself takes: in there they would wait for ever."""
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @ray.remote(num_cpus=1)
    def rank(recipe):
        with ray_double.Loader(recipe, placement="local") as loader:
            return sequences(loader)

    group = placement_group([{"CPU": 1}])
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    found = ray.get(rank.options(scheduling_strategy=strategy).remote(recipe))
    remove_placement_group(group)
    assert found == list(range(40))


def test_ctrl_c_is_heard_while_a_batch_is_made(open_loader, recipe):
    import threading

    loader = open_loader(recipe | {"seconds": 30.0}, deadline=60.0)
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(loader)
