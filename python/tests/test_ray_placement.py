"""Where workers belong: pure functions of a list of nodes."""

from __future__ import annotations

import random

import pytest
from stoker.ray.adapt import Auto, Measured
from stoker.ray.placement import Node, Place, Wish, check, elsewhere, matches, seats

GIB = 1 << 30


def node(name, *, cpus=16, gpus=0, labels=None):
    return Node(name, f"ip-{name}", cpus, cpus, gpus, 64 * GIB, 20 * GIB, labels or {})


def place(rank=0, of=1, *, on=("t0",), cpus=0):
    """Ranks in turn on the nodes named."""
    hosts = {number: on[number * len(on) // of] for number in range(of)}
    return Place(rank, of, hosts[rank], cpus, hosts)


def where(found):
    return [(seat.node, seat.cpus) for seat in found]


TRAINERS = [node("t0", gpus=8, cpus=96), node("t1", gpus=8, cpus=96)]
DATA = [node("d0"), node("d1"), node("d2")]


def test_a_rank_is_served_by_its_own_node_first():
    for placement in ("auto", "local", "spread"):
        found = seats(TRAINERS + DATA, Wish(placement), place(9, 16, on=("t0", "t1"), cpus=1), 3)
        assert found[0].node == "t1"
        assert found[0].cpus == 11, "(96 - 8) / 8"


def test_local_uses_no_other_node():
    assert where(seats(TRAINERS + DATA, Wish("local"), place(), 3)) == [("t0", 96)]
    found = seats(TRAINERS + DATA, Wish("local", workers=3), place(), 3)
    assert where(found) == [("t0", 32)] * 3
    assert [seat.number for seat in found] == [0, 1, 2]
    found = seats(TRAINERS + DATA, Wish("local", cpus_per_worker=40), place(), 3)
    assert where(found) == [("t0", 40)] * 2


def test_spread_is_one_worker_on_every_node_without_ranks_and_the_own():
    found = seats([*TRAINERS, *DATA], Wish("spread"), place(on=("t0",)), 0)
    assert where(found) == [("t0", 96), ("d0", 16), ("d1", 16), ("d2", 16)]
    found = seats([*TRAINERS, *DATA], Wish("spread", workers=6), place(on=("t0",)), 0)
    assert [seat.node for seat in found] == ["t0", "t0", "d0", "d0", "d1", "d2"]


def test_nodes_of_other_ranks_serve_those():
    nodes = [node("a"), node("b"), node("c")]
    for rank, name in enumerate("abc"):
        found = seats(nodes, Wish("spread"), place(rank, 3, on=("a", "b", "c")), 3)
        assert where(found) == [(name, 16)]


def test_auto_takes_as_many_other_nodes_as_it_is_told():
    for remote in range(4):
        found = seats(TRAINERS + DATA, Wish(), place(), remote)
        assert [seat.node for seat in found] == ["t0", "d0", "d1", "d2"][: 1 + remote]
    found = seats(TRAINERS + DATA, Wish(workers=2), place(), 3)
    assert [seat.node for seat in found] == ["t0", "d0"], "workers is the most"


def test_where_the_trainers_have_reserved_all_cores_those_serve_their_data_too():
    nodes = [node("t0", cpus=8), *DATA]
    assert where(seats(nodes, Wish("local"), place(0, 8, cpus=1), 0)) == [("t0", 1)]
    assert where(seats(nodes, Wish("local"), place(0, 1, cpus=8), 0)) == [("t0", 8)]


def test_auto_goes_elsewhere_at_once_where_its_own_node_may_not_be_used():
    nodes = [node("t0", labels={"role": "trainer"}), *DATA]
    wish = Wish(node_labels={"role": "!trainer"})
    assert [s.node for s in seats(nodes, wish, place(), 0)] == ["d0"]


def test_packed_is_the_same_node_for_all_ranks():
    found = [
        seats(DATA, Wish("packed"), place(rank, 3, on=("d0", "d1", "d2")), 0) for rank in (0, 1, 2)
    ]
    assert where(found[0]) == where(found[1]) == where(found[2]) == [("d0", 5)]
    wish = Wish("packed", node_labels={"role": "data"})
    nodes = [node("a", cpus=64), node("b", labels={"role": "data"})]
    assert where(seats(nodes, wish, place(on=("a",)), 0)) == [("b", 16)]


@pytest.mark.parametrize("seed", range(100))
def test_no_node_is_promised_twice_however_many_ranks_and_nodes_there_are(seed):
    rng = random.Random(seed)
    trainers = [node(f"t{n}", cpus=rng.randint(8, 64), gpus=8) for n in range(rng.randint(1, 3))]
    data = [node(f"d{n}", cpus=rng.randint(1, 64)) for n in range(rng.randint(0, 7))]
    nodes = trainers + data
    rng.shuffle(nodes)
    of = len(trainers) * rng.choice([1, 2, 4])
    on = tuple(n.id for n in trainers)
    wish = Wish(
        rng.choice(["spread", "auto", "local"]), cpus_per_worker=rng.choice([None, None, 2])
    )
    cpus, room = dict.fromkeys([n.id for n in nodes], 0), dict.fromkeys([n.id for n in nodes], 0)
    memory = dict(cpus)
    for rank in range(of):
        found = seats(nodes, wish, place(rank, of, on=on, cpus=1), 100)
        assert found or not data, f"seed {seed}: rank {rank} has nobody"
        for seat in found:
            cpus[seat.node] += seat.cpus
            room[seat.node] += seat.room
            memory[seat.node] += seat.memory
    for n in nodes:
        ranks = of // len(trainers) if n.id in on else 0
        few = n.cpus < 2 * of or ranks == n.cpus  # somebody has to be served
        assert few or cpus[n.id] + ranks <= n.cpus, f"seed {seed}: {n.id}"
        assert room[n.id] <= 0.6 * n.store
        assert few or memory[n.id] <= n.memory / 2


def test_a_node_with_accelerators_and_no_ranks_is_somebody_elses_unless_asked_for():
    nodes = [node("t0"), node("other", gpus=8), node("d0")]
    assert [s.node for s in seats(nodes, Wish("spread"), place(), 0)] == ["t0", "d0"]
    nodes = [node("t0"), node("mine", gpus=8, labels={"role": "data"}), node("d0")]
    wish = Wish("spread", node_labels={"role": "data"})
    assert [s.node for s in seats(nodes, wish, place(), 0)] == ["mine"]
    assert elsewhere(nodes, wish, place()) == 1


def test_a_label_selector_is_hard():
    nodes = [node("t0", labels={"role": "trainer"})]
    for placement in ("auto", "local", "spread", "packed"):
        assert seats(nodes, Wish(placement, node_labels={"role": "data"}), place(), 3) == []


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("data", {"data"}),
        ("!data", {"spare", "other", None}),
        ("in(data, spare)", {"data", "spare"}),
        ("!in(data,spare)", {"other", None}),
    ],
)
def test_labels_are_read_as_ray_reads_them(condition, fits):
    for value in ("data", "spare", "other", None):
        labels = {} if value is None else {"role": value}
        assert matches(labels, {"role": condition}) == (value in fits)


def test_ranks_that_are_not_known_yet_are_taken_to_be_like_the_known():
    assert Place(0, 8, "a", 1, {0: "a"}).here == 8
    assert Place(0, 8, "a", 1, {0: "a", 1: "b"}).here == 4
    assert Place(0, 2, "a", 1, {0: "a", 1: "b"}).here == 1
    assert Place(0, 1, "a", 1, {}).here == 1


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (Wish("everywhere"), "'auto', 'local', 'spread', 'packed'"),
        (Wish(workers=0), "workers=0"),
        (Wish(workers=True), "workers=True"),
        (Wish(cpus_per_worker=0.5), "cpus_per_worker=0.5"),
        (Wish(node_labels={"role": 1}), "node_labels"),
    ],
)
def test_wishes_that_can_not_be_meant_are_refused(wish, says):
    with pytest.raises(ValueError, match=says):
        check(wish)


def measured(**known):
    return Measured(**({"wait": 0.5, "network": 0.0, "busy": 0.9, "ratio": 2.0, "near": 1} | known))


def test_auto_grows_while_cores_are_short_and_stops_when_nobody_waits():
    auto = Auto()
    assert [auto.adapt(measured(), 5, now) for now in (0, 5, 10, 15)] == [1, 2, 4, 5]
    assert auto.adapt(measured(wait=0.01), 5, 20) == 5
    assert auto.adapt(measured(wait=0.01), 3, 25) == 3, "nodes have gone"


def test_auto_stays_at_home_where_another_node_would_not_help():
    assert Auto().adapt(measured(busy=0.2), 5, 0) == 0, "the card is short, and batches are larger"
    assert Auto().adapt(measured(busy=0.2, ratio=0.5), 5, 0) == 1, "the card is short; they aren't"
    assert Auto().adapt(measured(near=0, busy=None), 5, 0) == 1, "there is nobody"


def test_auto_comes_back_where_the_network_is_what_is_waited_for():
    auto = Auto(remote=4)
    assert auto.adapt(measured(network=0.9), 5, 0) == 3
    assert auto.adapt(measured(), 5, 30) == 3, "no swinging"
    assert auto.adapt(measured(), 5, 61) == 5
    assert Auto(remote=4).adapt(measured(network=0.9, ratio=0.5), 5, 0) == 4, "fetching costs more"
    assert Auto(remote=1).adapt(measured(network=0.9, near=0), 5, 0) == 1, "the last one"
