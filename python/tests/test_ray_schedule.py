"""The schedule against a simulated cluster: no Ray, no threads, time is a number."""

from __future__ import annotations

import heapq
import random

import pytest
from ray_simulation import DEADLINE, LARGEST, Simulation
from stoker.errors import ClusterError, FetchError
from stoker.ray.calls import Ask, Drop, Pull
from stoker.ray.schedule import WITH_TRAINER


@pytest.mark.parametrize("seed", range(60))
def test_every_batch_is_handed_over_once_and_in_order_whatever_happens_to_workers(seed):
    rng = random.Random(seed)
    remote = rng.choice([0.0, 0.5, 1.0])
    places = [rng.random() >= remote for _ in range(1000)]
    world = rng.choice([1, 3])
    room = rng.choice([400, 1000, 4000])
    simulation = Simulation(
        batches=80,
        rank=(rng.randrange(world), world),
        room=room,
        seed=seed,
        local=places.__getitem__,
    )
    simulation.step_seconds = rng.choice([0.001, 0.1, 1.0])
    simulation.link_rate = rng.choice([50.0, 1000.0, 1e6])
    for _ in range(rng.randint(1, 6)):
        simulation.start(rng.uniform(0, 3))
    for _ in range(rng.randint(0, 8)):
        what = rng.choice([simulation.kill, simulation.stop, slow, cut, retire, lose])
        when, worker = rng.uniform(0, 30), rng.randrange(8)
        arguments = (simulation, worker) if what in (slow, cut, retire, lose) else (worker,)
        simulation.at(when, what, *arguments)
    simulation.run(4000)
    assert simulation.delivered == simulation.expected(), f"seed {seed}"
    assert simulation.peak + WITH_TRAINER * LARGEST <= room, f"seed {seed}"


def test_batches_behind_an_end_that_is_found_on_the_way_are_forgotten():
    simulation = Simulation(batches=40)

    def sequence_at(steps):
        # The batches of the last window say where the end is: here those from 30 on.
        place = len(simulation.delivered) + steps
        is_known = len(simulation.delivered) > 30
        return None if is_known and place >= simulation.batches else place

    simulation.schedule._sequence_at = sequence_at
    simulation.start()
    simulation.run()
    assert simulation.delivered == list(range(40))
    simulation.schedule.step(simulation.now)
    assert not simulation.schedule.open
    assert simulation.schedule.head() is None


def slow(simulation, worker):
    simulation.seconds[worker] = 40.0


def cut(simulation, worker):
    """Neither answers nor objects come from there any more."""
    simulation.cut.add(worker)
    simulation.stopped.add(worker)


def retire(simulation, worker):
    if len(simulation.alive) > 1:
        simulation.schedule.retire(worker)


def lose(simulation, worker):
    for call in list(simulation.schedule.calls.values()):
        if call.worker == worker and call.finished is not None and call.arrived is None:
            simulation.schedule.lost(call.number, OSError("gone"), simulation.now)


@pytest.mark.parametrize("fault", ["kill", "stop", "cut", "slow"])
@pytest.mark.parametrize("local", [True, False])
def test_a_fault_delays_the_trainer_by_the_deadline_and_one_batch_at_most(fault, local):
    """The trainer uses all that is made, so nothing is in stock that could hide the fault."""
    for seed in range(20):
        simulation = Simulation(batches=120, seed=seed, local=lambda _: local)
        simulation.step_seconds = 0.001
        for _ in range(4):
            simulation.start()
        faults = {"kill": simulation.kill, "stop": simulation.stop, "cut": cut, "slow": slow}
        arguments = (simulation, 1) if fault in ("cut", "slow") else (1,)
        simulation.at(6.0 + seed / 10, faults[fault], *arguments)
        simulation.run()
        assert simulation.delivered == simulation.expected()
        # A batch takes up to 0.75 s here, a pull 0.25 s; the typical time is part of what a slow
        # worker is granted.
        assert simulation.longest_pause < DEADLINE + 2.5, f"seed {seed}"


def test_a_full_store_elsewhere_never_keeps_the_next_batch_from_being_made():
    """Seed 1006 of the test above, cut down: the first batches are lost, and made last."""
    simulation = Simulation(batches=60, local=lambda _: False)
    simulation.start()
    simulation.start()
    join = simulation.schedule.join
    simulation.schedule.join = lambda number, **known: join(number, **(known | {"room": 300}))
    simulation.at(1.0, cut, simulation, 0)
    simulation.run()
    assert simulation.delivered == simulation.expected()


def test_a_batch_that_kills_three_workers_is_an_error_that_names_it():
    simulation = Simulation(batches=40)
    simulation.deadly = {17}
    for _ in range(3):
        simulation.start()
    with pytest.raises(ClusterError, match=r"batch 17 .* 3 workers") as caught:
        simulation.run()
    assert caught.value.sequence == 17
    assert caught.value.kind == "deadly-batch"
    assert simulation.delivered == list(range(17)), "all before it were handed over"


def test_batches_beside_a_deadly_one_are_not_blamed():
    simulation = Simulation(batches=40)
    simulation.deadly = {17, 30}
    simulation.start()
    with pytest.raises(ClusterError) as caught:
        simulation.run()
    assert caught.value.sequence == 17


def test_faster_workers_make_more():
    simulation = Simulation(batches=200)
    simulation.step_seconds = 0.001
    made = {0: 0, 1: 0}
    simulation.seconds[1] = 2.0
    act = simulation.act

    def counting(action):
        if isinstance(action, Ask):
            made[action.worker] += 1
        act(action)

    simulation.act = counting
    for _ in range(2):
        simulation.start()
    simulation.run()
    assert made[0] > 2.5 * made[1]
    assert simulation.times[-1] - simulation.times[20] < 180 * 0.25 * 1.2, "4 + 1 in 2 s, nearly"


def test_a_slow_link_gets_no_more_than_it_brings_in_two_seconds():
    simulation = Simulation(batches=60, local=lambda _: False)
    simulation.link_rate = 100.0
    simulation.step_seconds = 0.001
    flying, peak = set(), 0
    act, arrive = simulation.act, simulation.arrive

    def counting(action):
        nonlocal peak
        act(action)
        if isinstance(action, Pull):
            flying.add(action.call)
            peak = max(peak, sum(simulation.schedule.calls[call].nbytes for call in flying))

    def landing(call, worker):
        flying.discard(call)
        arrive(call, worker)

    simulation.act, simulation.arrive = counting, landing
    for _ in range(4):
        simulation.start()
    simulation.run()
    assert simulation.schedule.moved == 0, "a slow link is not a lost one"
    assert peak <= 2 * simulation.link_rate * 1.1


def test_a_slow_store_does_not_make_workers_do_everything_twice():
    simulation = Simulation(batches=60)
    for _ in range(4):
        simulation.start()
    for worker in range(4):
        simulation.at(3.0, slow, simulation, worker)
    simulation.run(2000)
    assert simulation.schedule.moved <= 20
    assert not simulation.given_up


def test_an_unreadable_store_is_tried_by_another_worker_and_then_is_the_error():
    simulation = Simulation(batches=4)
    simulation.start()
    simulation.start()
    simulation.seconds = dict.fromkeys(range(9), 1e9)
    asked = []
    act = simulation.act

    def failing(action):
        act(action)
        if isinstance(action, Ask) and action.sequence == 0:
            asked.append(action.worker)
            error = FetchError("no route", kind="transient")
            simulation.at(
                0.1, lambda: simulation.schedule.failed(action.call, error, elsewhere=True)
            )

    simulation.act = failing
    with pytest.raises(FetchError, match="no route"):
        simulation.run()
    assert sorted(asked) == [0, 1]


def test_what_a_bad_sample_says_is_said_in_its_turn():
    simulation = Simulation(batches=10)
    simulation.start()
    error = ValueError("sample 5")
    act = simulation.act

    def failing(action):
        if isinstance(action, Ask) and action.sequence == 5:
            simulation.schedule.failed(action.call, error, elsewhere=False)
        else:
            act(action)

    simulation.act = failing
    with pytest.raises(ValueError, match="sample 5"):
        simulation.run()
    assert simulation.delivered == list(range(5))


def test_standing_still_oneself_is_not_the_workers_silence():
    simulation = Simulation(batches=100)
    simulation.start()
    simulation.at(4.0, lambda: setattr(simulation, "now", simulation.now + 60))
    simulation.run()
    assert simulation.given_up == []


def test_a_reset_keeps_what_is_still_needed():
    simulation = Simulation(batches=100, room=1000)
    simulation.start()
    simulation.step_seconds = 1e6
    simulation.at(0.0, simulation.tick)
    for _ in range(40):
        simulation.now, _, what, arguments = heapq.heappop(simulation.events)
        what(*arguments)
        for action in simulation.schedule.step(simulation.now):
            simulation.act(action)
    there = {call.sequence for call in simulation.schedule.calls.values()}
    assert {0, 1, 2} <= there
    simulation.delivered = [0, 1]
    simulation.schedule.reset()
    dropped = [a for a in simulation.schedule.step(simulation.now) if isinstance(a, Drop)]
    assert {simulation.asked[action.call] for action in dropped} == {0, 1}
    for action in dropped:
        simulation.act(action)
    simulation.step_seconds = 0.001
    simulation.taking = False
    simulation.run()
    assert simulation.delivered == list(range(100))


def test_what_was_asked_before_a_rewind_is_used_after_it():
    simulation = Simulation(batches=3)
    simulation.start()
    simulation.seconds[0] = 10.0
    simulation.at(1.0, lambda: simulation.schedule.reset())
    simulation.run()
    assert simulation.delivered == [0, 1, 2]
    assert simulation.schedule.calls == {}


def test_workers_whose_batches_others_had_to_make_are_replaced():
    """Each batch hangs once; in the end all slots of all workers are taken by such calls."""
    simulation = Simulation(batches=40)
    for _ in range(3):
        simulation.start()
    finish, hung = simulation.finish, set()

    def hanging(call, worker, sequence):
        if sequence in hung:
            finish(call, worker, sequence)
        hung.add(sequence)

    simulation.finish = hanging
    simulation.run(600)
    assert simulation.delivered == simulation.expected()


def test_a_worker_that_answers_but_never_finishes_is_given_up():
    simulation = Simulation(batches=3)
    simulation.start()
    simulation.seconds[0] = 1e9
    simulation.run(2000)
    assert simulation.given_up == [(0, True)]


def test_a_batch_that_is_lost_three_times_on_its_way_is_an_error_and_not_a_loop():
    simulation = Simulation(batches=10, local=lambda _: False)
    simulation.start()
    act = simulation.act

    def losing(action):
        if isinstance(action, Pull) and simulation.schedule.calls[action.call].sequence == 4:
            simulation.schedule.lost(action.call, OSError("unreadable"), simulation.now)
        else:
            act(action)

    simulation.act = losing
    with pytest.raises(OSError, match="unreadable"):
        simulation.run()
    assert simulation.delivered == [0, 1, 2, 3]
