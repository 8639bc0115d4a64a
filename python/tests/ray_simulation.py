"""A simulated cluster around a schedule: workers, a link, a trainer, and what may go wrong."""

from __future__ import annotations

import heapq
import itertools
import random

from stoker.ray.calls import Ask, Drop, GiveUp, Pull
from stoker.ray.schedule import Schedule

DEADLINE = 5.0
LARGEST = 100


class Simulation:
    """Workers that make batches, a link, and a trainer; what may go wrong is told by the test."""

    def __init__(self, *, batches, room=4000, rank=(0, 1), seed=0, local=lambda _: True):
        self.random = random.Random(seed)
        self.now = 100.0
        self.begin, self.stride = rank
        self.batches = batches
        self.delivered = []
        self.times = []
        self.schedule = Schedule(self.sequence_at, room=room, deadline=DEADLINE)
        self.schedule.begun = True
        self.events, self.order = [], itertools.count()
        self.local = local
        self.seconds = dict.fromkeys(range(1000), 0.5)
        self.step_seconds = 0.05
        self.link_rate, self.link_free = 400.0, 0.0
        self.alive, self.stopped, self.asked, self.kept = set(), set(), {}, {}
        self.cut = set()
        self.deadly = set()
        self.given_up = []
        self.peak = 0
        self.hedged = 0
        self.next_worker = itertools.count()
        self.taking = False

    def sequence_at(self, steps):
        place = len(self.delivered) + steps
        return self.begin + place * self.stride if place < self.batches else None

    def nbytes(self, sequence):
        return (
            LARGEST
            if sequence < 9 or sequence % 8 < 3
            else random.Random(sequence).randint(1, LARGEST)
        )

    def at(self, delay, what, *arguments):
        heapq.heappush(self.events, (self.now + delay, next(self.order), what, arguments))

    def start(self, delay=0.0):
        number = next(self.next_worker)
        self.at(delay, self.join, number)
        return number

    def join(self, number):
        self.alive.add(number)
        local = self.local(number)
        node = "here" if local else f"node-{number}"
        self.schedule.join(number, node=node, local=local, slots=2, room=2000, now=self.now)
        self.pulse(number)

    def pulse(self, number):
        if number in self.alive:
            if number not in self.stopped:
                self.schedule.heard(number, self.now)
            self.at(1.0, self.pulse, number)

    def kill(self, number, notice=0.0):
        """The process dies; Ray says so after a while."""
        if number in self.alive:
            self.stopped.add(number)
            self.at(notice, self.dead, number)

    def dead(self, number):
        if number in self.alive:
            self.alive.discard(number)
            self.schedule.leave(number, self.now)
            self.start(2.0)

    def stop(self, number):
        self.stopped.add(number)

    def finish(self, call, worker, sequence):
        if worker in self.alive and worker not in self.stopped:
            self.kept[call] = sequence
            self.schedule.finished(call, self.nbytes(sequence), self.now)

    def arrive(self, call, worker):
        if worker not in self.cut:
            self.schedule.arrived(call, self.now)

    def take(self):
        self.taking = False
        head = self.schedule.head()
        if head is None:
            return
        if head.error:
            raise head.error
        if head.ready is None:
            return
        assert head.ready.number in self.kept, "what is handed over was not dropped"
        self.delivered.append(head.sequence)
        self.times.append(self.now)
        self.schedule.handed_over()
        self.wake()

    def wake(self):
        head = self.schedule.head()
        if not self.taking and head is not None and (head.ready or head.error):
            self.taking = True
            self.at(self.step_seconds, self.take)

    def act(self, action):
        match action:
            case Ask(call, worker, sequence, ahead):
                assert sequence not in ahead
                self.asked[call] = sequence
                if sequence in self.deadly:
                    self.at(0.1, self.kill, worker)
                seconds = self.seconds[worker] * self.random.uniform(0.5, 1.5)
                self.at(seconds, self.finish, call, worker, sequence)
            case Pull(call):
                worker = self.schedule.calls[call].worker
                if self.schedule.calls[call].local:
                    self.at(0.0, self.schedule.arrived, call, self.now)
                    return
                seconds = self.nbytes(self.asked[call]) / self.link_rate
                self.link_free = max(self.link_free, self.now) + seconds
                self.at(self.link_free - self.now, self.arrive, call, worker)
            case Drop(call):
                self.asked.pop(call, None)
                self.kept.pop(call, None)
            case GiveUp(worker, silent):
                self.given_up.append((worker, silent))
                self.alive.discard(worker)
                if silent:
                    self.start(2.0)

    def measure(self):
        waiting = set(self.asked.values()) - set(self.delivered)
        total = sum(self.nbytes(sequence) for sequence in waiting)
        if len(waiting) > 1:
            self.peak = max(self.peak, total)

    def run(self, seconds=1000.0):
        """Until all is delivered; fails if that takes longer."""
        end = self.now + seconds
        self.at(0.0, self.tick)
        while len(self.delivered) < self.batches:
            self.now, _, what, arguments = heapq.heappop(self.events)
            assert self.now < end, f"{len(self.delivered)} of {self.batches} in time"
            what(*arguments)
            for action in self.schedule.step(self.now):
                self.act(action)
            self.measure()
            self.wake()
        return self

    def tick(self):
        self.at(0.25, self.tick)

    def expected(self):
        return [self.begin + place * self.stride for place in range(self.batches)]

    @property
    def longest_pause(self):
        return max(late - early for early, late in itertools.pairwise(self.times))
