"""Which worker makes which batch: a state machine without Ray, clock or threads.

It is told what happened (`join`, `finished`, `arrived`, …) and answers with what is to be done
(`step`). Its promises, whatever happens in whatever order:

- every batch is handed over exactly once, in order;
- the batches asked for or waiting, by their size, fit into `room`; the next one to be handed over
  may always be asked for, so that nothing locks up;
- what a dead, silent or late worker was asked for is asked of another one, within the deadline.

The first open batches are *assigned* to workers, which bring in their samples; as room allows they
are *asked* for. A worker that is faster, here where the batches are used, gets more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.ray.books import DEATHS, DEPTH, Books
from stoker.ray.calls import Action, Ask, Call, GiveUp, OpenBatch, Pull, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = 3
"""Most workers that are waited for at once for the same batch."""

URGENT = 2
"""Calls beyond its slots that a worker takes for batches that others failed to make."""

STALL = 1.0
"""Seconds between two steps from which on this process itself stood still, not its workers."""

HOPELESS = 300.0
"""Seconds in which a worker that answers may finish nothing: longer than the engine itself tries to
read from a store that is away."""

WITH_TRAINER = 2
"""Batches that a training loop holds: the one it uses, and the one before."""


class Schedule(Books):
    """The schedule of one rank.

    Args:
        sequence_at: The batch that is handed over so many steps after the next; None past the end.
        room: Bytes for batches, those that the trainer holds included.
        deadline: Seconds without an answer after which nobody waits any longer.
    """

    def __init__(
        self, sequence_at: Callable[[int], int | None], *, room: int, deadline: float
    ) -> None:
        super().__init__(sequence_at, room=room, deadline=deadline)
        self.moved = 0
        """Batches that were asked of one more worker."""
        self.begun = False
        """Whether batches are asked for; before the first is wanted, none is."""
        self._numbers = 0
        self._stepped: float | None = None
        self._slow = False

    def step(self, now: float) -> list[Action]:
        """What is to be done now."""
        self._forgive(now)
        self._end_workers(now)
        self._note_late(now)
        if self.begun:
            self.extend()
            self._assign()
            self._ask(now)
            self._pull(now)
        actions, self._actions = self._actions, []
        return actions

    def _forgive(self, now: float) -> None:
        """Answers that came while this process stood still were not late."""
        stood = 0.0 if self._stepped is None else now - self._stepped
        self._stepped = now
        if stood <= STALL:
            return
        for worker in self.workers.values():
            worker.heard = min(now, worker.heard + stood)
            worker.progress = min(now, worker.progress + stood)
        for call in self.calls.values():
            call.asked = min(now, call.asked + stood)
            call.pulling = None if call.pulling is None else min(now, call.pulling + stood)
        self.link.shift(stood)

    def _end_workers(self, now: float) -> None:
        for worker in list(self.workers.values()):
            quiet = now - worker.heard > self.deadline
            hopeless = worker.running and now - worker.progress > HOPELESS
            if quiet or hopeless:
                self.leave(worker.number, now, silent=True)
                self._actions.append(GiveUp(worker.number, silent=True))
            elif worker.retiring and not worker.running:
                self.leave(worker.number, now)
                self._actions.append(GiveUp(worker.number, silent=False))

    def _note_late(self, now: float) -> None:
        """A worker is late that has an overdue call and has finished nothing meanwhile."""
        workers = self.workers.values()
        for worker in workers:
            stuck = now - worker.progress > self.deadline + self.typical
            worker.late = stuck and any(self._overdue(c, now) for c in worker.running.values())
        late = sum(worker.late for worker in workers)
        # Where most are late it is not they that are slow, but the store or the data.
        self._slow = 2 * late > len(workers)
        if late == len(workers):
            for worker in workers:
                worker.late = False
        for call in list(self.calls.values()):
            if call.pulling is not None and self._overdue(call, now):
                self.doom(call, now)

    def _overdue(self, call: Call, now: float) -> bool:
        if call.doomed or call.arrived is not None:
            return call.doomed
        if call.finished is None:
            return now - call.asked > self.deadline + self.typical
        if call.pulling is None:
            return False
        if call.local:
            return now - call.pulling > self.deadline
        return self.link.overdue(call.nbytes, call.node, call.pulling, self.deadline, now)

    def _able(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if not (worker.late or worker.retiring)]

    def _assign(self) -> None:
        able = {worker.number: worker for worker in self._able()}
        load = {number: len(w.running) + w.waiting for number, w in able.items()}
        loose = []
        for batch in self.open:
            if batch.calls or batch.error:
                batch.assigned = None
            elif batch.assigned in able:
                load[batch.assigned] += 1
            else:
                batch.assigned = None
                loose.append(batch)
        paces = [worker.pace for worker in able.values() if worker.pace is not None]
        usual = sum(paces) / len(paces) if paces else 1.0
        for batch in loose:
            free = [w for number, w in able.items() if load[number] < w.slots + DEPTH]
            if not free:
                return
            worker = min(free, key=lambda w: ((load[w.number] + 1) * (w.pace or usual), w.number))
            batch.assigned = worker.number
            load[worker.number] += 1

    def _ask(self, now: float) -> None:
        reserved: set[int] = set()
        askable = list(self._askable(now))
        owed = {batch.assigned for batch in askable}
        able = self._able()
        for batch in askable:
            if not batch.urgent and all(len(w.running) >= w.slots for w in able):
                continue
            worker = self._pick(batch, able, owed, reserved)
            if worker is None:
                continue
            if batch.deaths >= DEATHS - 1:
                if worker.running:
                    reserved.add(worker.number)
                    continue
                worker.alone = self._numbers
            self._call(batch, worker, now)

    def _askable(self, now: float) -> Iterator[OpenBatch]:
        """The open batches that need a call and have room, in order."""
        size = self.size
        total = WITH_TRAINER * size
        for place, batch in enumerate(self.open):
            total += max((call.nbytes for call in batch.calls), default=0) or size
            if place > 0 and total > self.room:
                return
            if batch.error or batch.ready or len(batch.calls) >= CALLS:
                continue
            again = place == 0 or not self._slow or not batch.calls
            if again and all(self._overdue(call, now) for call in batch.calls):
                yield batch

    def _pick(
        self, batch: OpenBatch, able: list[Worker], owed: set[int | None], reserved: set[int]
    ) -> Worker | None:
        barred = reserved | {call.worker for call in batch.calls}
        if any(number not in batch.refused for number in self.workers):
            barred |= batch.refused
        able = [
            worker
            for worker in able
            if len(worker.running) < worker.slots + (URGENT if batch.urgent else 0)
            and worker.number not in barred
            and worker.alone is None
            and (worker.held + self.size <= worker.room or batch is self.open[0])
        ]
        if not batch.urgent:
            mine = [worker for worker in able if worker.number == batch.assigned]
            # A worker that has nothing of its own to make takes over what others can't begin yet.
            able = mine or [worker for worker in able if worker.number not in owed]
        return min(able, key=lambda w: (len(w.running) + w.waiting, w.number), default=None)

    def _call(self, batch: OpenBatch, worker: Worker, now: float) -> None:
        number = self._numbers
        self._numbers += 1
        self.moved += batch.urgent
        call = Call(number, batch.sequence, worker.number, worker.node, worker.local, asked=now)
        batch.assigned = None
        batch.calls.append(call)
        self.calls[number] = call
        worker.begin(call, now)
        ahead = (other.sequence for other in self.open if other.assigned == worker.number)
        self._actions.append(Ask(number, worker.number, batch.sequence, tuple(ahead)[:DEPTH]))

    def _pull(self, now: float) -> None:
        full = False
        for batch in self.open:
            for call in batch.calls:
                if not call.pullable or batch.ready is not None:
                    continue
                if not call.local:
                    # A later one that is smaller may not overtake, or the next one would starve.
                    full = full or not self.link.allows(call.nbytes)
                    if full:
                        continue
                    self.link.start(call.nbytes, now)
                call.pulling = now
                self._actions.append(Pull(call.number))
