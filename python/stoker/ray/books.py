"""What happened to the batches and workers of one rank: the half of the schedule that listens.

A batch is *open* until it is handed over. Each event changes the books and nothing else; what is to
be done about it is decided in `stoker.ray.schedule`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from stoker.errors import ClusterError
from stoker.ray.calls import Action, Call, Drop, OpenBatch, Worker
from stoker.ray.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable

DEPTH = 8
"""Batches assigned to a worker beyond those it makes: samples of a second or so of work, which
hides the slowest of the store's answers."""

WINDOW = 32
"""Fewest batches that are looked ahead: 256 samples at eight a batch, as a loader begins with."""

DEATHS = 3
"""Workers that a batch may take with it. After the second it runs alone, so that the last of them
is surely its."""

LOSSES = 3
"""How often a finished batch may be lost on its way, before that is no accident."""

SIZES = 32
"""Batches whose largest stands for those that are not made yet."""


class Books:
    """The open batches, the workers and the calls."""

    def __init__(
        self, sequence_at: Callable[[int], int | None], *, room: int, deadline: float
    ) -> None:
        self.room = room
        self.deadline = deadline
        self.workers: dict[int, Worker] = {}
        self.calls: dict[int, Call] = {}
        self.link = Link()
        self.open: deque[OpenBatch] = deque()
        self.typical = 0.0
        """Seconds from asking for a batch until it is finished."""
        self._sequence_at = sequence_at
        self._by_sequence: dict[int, OpenBatch] = {}
        self._sizes: deque[int] = deque(maxlen=SIZES)
        self._known = 0
        self._actions: list[Action] = []

    @property
    def size(self) -> int:
        """Bytes that a batch is expected to have: as many as the largest of the latest."""
        # Two are asked for before any is known, and two more for each that is: the first ones may
        # be small by chance.
        return max(self.room // (4 + 2 * self._known), *self._sizes, 1)

    def join(
        self, number: int, *, node: str, local: bool, slots: int, room: int, now: float
    ) -> None:
        """A worker is ready."""
        self.workers[number] = Worker(number, node, local, slots, room, heard=now, progress=now)

    def heard(self, number: int, now: float) -> None:
        """A worker has answered a pulse."""
        if number in self.workers:
            self.workers[number].heard = now

    def retire(self, number: int) -> None:
        """A worker is no longer needed: it ends once what it was asked for is made."""
        if number in self.workers:
            self.workers[number].retiring = True

    def leave(self, number: int, now: float, *, silent: bool = False) -> None:
        """A worker has died, or is given up as silent; what it finished may still be read."""
        worker = self.workers.pop(number, None)
        if worker is None:
            return
        for call in list(worker.running.values()):
            batch = self.forget(call)
            if batch is None:
                continue
            batch.deaths += 1
            batch.moved = True
            if batch.deaths >= DEATHS:
                batch.error = deadly(batch.sequence)
        if silent and not worker.local:
            # What a node holds that no longer answers is made again at once, and taken if it comes.
            for call in list(self.calls.values()):
                if call.worker == number and call.arrived is None:
                    self.doom(call, now)

    def finished(self, number: int, nbytes: int, now: float) -> None:
        """A batch exists, in the object store of its worker's node."""
        call = self.calls.get(number)
        if call is None or call.finished is not None:
            return
        call.finished, call.nbytes = now, nbytes
        self._sizes.append(nbytes)
        self._known += 1
        worker = self.workers.get(call.worker)
        if worker is not None:
            worker.forget_running(number)
            worker.progress = worker.heard = now
            worker.held += nbytes
            worker.waiting += 1
        seconds = now - call.asked
        self.typical = seconds if self.typical == 0 else 0.8 * self.typical + 0.2 * seconds
        self._wanted(call)

    def arrived(self, number: int, now: float) -> None:
        """A batch that was pulled lies here."""
        call = self.calls.get(number)
        if call is None or call.arrived is not None:
            return
        self._land(call, now, come=True)
        if self._wanted(call):
            self._arrive(call, now)

    def lost(self, number: int, error: Exception, now: float) -> None:
        """A batch that was finished is nowhere any more, or can't be read."""
        call = self.calls.get(number)
        if call is None:
            return
        self._land(call, now, come=False)
        batch = self.forget(call)
        if batch is not None:
            batch.moved = True
            batch.losses += 1
            if batch.losses >= LOSSES:
                batch.error = error

    def failed(self, number: int, error: Exception, *, elsewhere: bool) -> None:
        """A batch could not be made; `elsewhere` says that another worker may be luckier."""
        call = self.calls.get(number)
        batch = None if call is None else self.forget(call)
        if batch is None:
            return
        batch.refused.add(call.worker)
        batch.moved = True
        others = [worker for worker in self.workers if worker not in batch.refused]
        if not batch.calls and not (elsewhere and others and len(batch.refused) < DEATHS):
            batch.error = error

    def handed_over(self) -> None:
        """The first open batch is with the trainer."""
        batch = self.open.popleft()
        del self._by_sequence[batch.sequence]
        self._abandon(batch)

    def reset(self) -> None:
        """The next batch is another one now; what was made is kept as far as it is still needed."""
        before = self._by_sequence
        self.open, self._by_sequence = deque(), {}
        self.extend()
        for sequence, batch in before.items():
            kept = self._by_sequence.get(sequence)
            if kept is None:
                self._abandon(batch)
            else:
                kept.calls, kept.moved = batch.calls, batch.moved

    def head(self) -> OpenBatch | None:
        """The batch to be handed over next; None at the end."""
        if not self.open:
            self.extend()
        return self.open[0] if self.open else None

    def extend(self) -> None:
        """Opens batches as far ahead as the workers may look, and closes those behind the end.

        How long a run of packed samples is may not be known before its last batches are made.
        """
        while self.open and self._sequence_at(len(self.open) - 1) is None:
            batch = self.open.pop()
            del self._by_sequence[batch.sequence]
            self._abandon(batch)
        wanted = max(WINDOW, sum(worker.slots + DEPTH for worker in self.workers.values()))
        while len(self.open) < wanted:
            sequence = self._sequence_at(len(self.open))
            if sequence is None:
                return
            batch = OpenBatch(sequence)
            self.open.append(batch)
            self._by_sequence[sequence] = batch

    def doom(self, call: Call, now: float) -> None:
        """Nobody waits for a finished batch any longer; if it is being pulled it may still come."""
        if call.doomed:
            return
        batch = self._by_sequence.get(call.sequence)
        if batch is not None:
            batch.moved = True
        if call.pulling is None:
            self.forget(call)
        else:
            call.doomed = True
            self._land(call, now, come=False)

    def forget(self, call: Call) -> OpenBatch | None:
        """Takes a call out of all books; gives its batch, if that is still open."""
        del self.calls[call.number]
        self._actions.append(Drop(call.number))
        worker = self.workers.get(call.worker)
        if worker is not None:
            worker.forget_running(call.number)
            worker.held -= call.nbytes
            worker.waiting -= call.finished is not None and call.arrived is None
        batch = self._by_sequence.get(call.sequence)
        if batch is not None and call in batch.calls:
            batch.calls.remove(call)
        return batch

    def needed(self, call: Call) -> bool:
        """Whether the batch that a call asks for is still to come."""
        batch = self._by_sequence.get(call.sequence)
        return batch is not None and batch.ready is None

    def _wanted(self, call: Call) -> bool:
        """Whether what a call has given is still needed; if not, the call is forgotten."""
        if not self.needed(call):
            self.forget(call)
            return False
        batch = self._by_sequence[call.sequence]
        if call not in batch.calls:
            # It was asked for before a reset, and now is needed after all.
            batch.calls.append(call)
        return True

    def _land(self, call: Call, now: float, *, come: bool) -> None:
        """A pull is over; one from this node itself has cost the network nothing."""
        if call.pulling is None:
            return
        call.pulling = None
        if call.local:
            return
        if come:
            self.link.done(call.nbytes, call.node, now)
        else:
            self.link.lost(call.nbytes, now)

    def _arrive(self, call: Call, now: float) -> None:
        batch = self._by_sequence[call.sequence]
        call.arrived = now
        batch.error = None
        worker = self.workers.get(call.worker)
        if worker is not None:
            worker.waiting -= 1
            worker.keep_pace(now)
        for other in list(batch.calls):
            if other is not call and other.finished is not None and other.pulling is None:
                self.forget(other)

    def _abandon(self, batch: OpenBatch) -> None:
        """Lets go of what is there; what is being made or pulled is let go of when it has come."""
        for call in list(batch.calls):
            if call.finished is not None and call.pulling is None:
                self.forget(call)


def deadly(sequence: int) -> ClusterError:
    """The error for a batch that no worker survives."""
    reason = f"batch {sequence} was being made when {DEATHS} workers died, the last time alone"
    hint = (
        "look into the workers' logs (`ray logs`); mostly their node ran out of memory, and a "
        "smaller engine.memory or fewer cpus_per_worker help"
    )
    return ClusterError(
        f"{reason}; {hint}", kind="deadly-batch", sequence=sequence, reason=reason, hint=hint
    )
