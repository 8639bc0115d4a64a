"""A trainer that trains on nothing: it keeps a log of what it was fed, and saves checkpoints.

A checkpoint says how many batches of the run were trained on, by the trainer's own count, and has a
loader's state; the two are written in one go. What it writes is not synchronised with the disk:
it is processes that die here, not machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import traceback
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import broken
from .jobs import colour, said

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import stoker

    from .schedule import Attempt

SAID = re.compile(rb"(\d+)/(\d+)/[0-9a-f]{8}")


class PlannedError(Exception):
    """What hits a trainer by an exception."""


class Left(Exception):  # noqa: N818 (it is no error)
    """The trainer saved and leaves."""


@dataclass
class Orders:
    """All that a process of an attempt is told."""

    folder: Path
    recipe: dict[str, Any]
    passes: int
    batches: int | None
    """Where to stop, if the run is endless."""
    attempt: Attempt
    number: int
    ranks: list[int]
    """Those of this process."""
    meet: Callable[[], Any]
    """Waits for the other processes."""
    broken: str | None


class Seat:
    """One rank: its loader, and the batches that it holds."""

    def __init__(self, orders: Orders, rank: int) -> None:
        attempt = orders.attempt
        self.rank, self.attempt = rank, attempt
        self.loader: Any = broken.loader(
            orders.broken, orders.recipe, rank, attempt.world, attempt.engine
        )
        self.broken = orders.broken
        self.initial = self.loader.state_dict()
        self.held: deque[stoker.Batch] = deque()
        self.trained: stoker.Batch | None = None
        self.batches: Any = None

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from a state; more than once, if it is told to."""
        for time in range(self.attempt.loads):
            if time > 0:
                next(iter(self.loader), None)
            self.loader.load_state_dict(state)
            assert self.broken or self.loader.state_dict() == state
        self.held.clear()
        self.trained, self.batches = None, None

    def begin(self) -> None:
        """Begins a pass, or goes on in one."""
        self.batches = iter(self.loader)

    def take(self) -> stoker.Batch | None:
        """The next batch, while some more are taken before they are needed."""
        while len(self.held) <= self.attempt.ahead:
            batch = next(self.batches, None)
            if batch is None:
                break
            self.held.append(batch)
        return self.held.popleft() if self.held else None

    def state(self) -> dict[str, Any]:
        """Where to go on after the last batch that was trained on."""
        if self.broken == "held-forgotten" or not (self.held or self.trained):
            return self.loader.state_dict()
        if self.attempt.by_batch and self.trained is not None:
            return self.trained.state_dict()
        return self.loader.state_dict(batches_ago=len(self.held))

    def end(self) -> None:
        """Ends a pass."""
        self.held.clear()
        self.trained = None


class Trainer:
    """The ranks of one process, from a checkpoint on."""

    def __init__(self, orders: Orders, life: int, seats: list[Seat] | None = None) -> None:
        self.orders, self.attempt = orders, orders.attempt
        self.life = f"{orders.number:03}-{life:03}"
        self.asked_to_leave = False
        self.steps = 0
        checkpoint = read(orders.folder)
        self.over, self.start = checkpoint["passes"], checkpoint["batches"]
        name = f"{self.life}-{orders.ranks[0]}"
        self.log = self.open(f"log-{name}.jsonl")
        self.notes = self.open(f"notes-{name}.txt")
        self.seats = seats or [Seat(orders, rank) for rank in orders.ranks]
        if checkpoint["state"] is not None or seats is not None:
            for seat in self.seats:
                seat.load(checkpoint["state"] or seat.initial)
        self.loaded = checkpoint["state"] is not None
        if self.loaded:
            self.note(f"resumed from a state saved {checkpoint['where']}")
            change = self.attempt.world - checkpoint["world"]
            self.note(
                f"resumed on {'more' if change > 0 else 'fewer' if change < 0 else 'as many'}"
            )

    def open(self, name: str) -> int:
        """A file that keeps what was written to it, whatever becomes of this process."""
        return os.open(self.orders.folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def note(self, what: str) -> None:
        """Notes something that happened, to be counted."""
        os.write(self.notes, f"{what}\n".encode())

    def train(self) -> None:
        """Trains to the end."""
        self.hit("loaded")
        if self.attempt.at_once:
            self.save("just after loading" if self.loaded else "before the first batch")
        while self.over < self.orders.passes:
            for seat in self.seats:
                seat.begin()
            while self.step():
                pass
            if self.steps > 0:
                self.save("on the last batch")
                self.hit("last")
            self.over, self.start, self.steps = self.over + 1, 0, 0
            for seat in self.seats:
                seat.end()
            self.save("after the end")
            self.hit("over")

    def step(self) -> bool:
        """One step of all ranks; False at the end of a pass."""
        self.hit("step")
        if self.asked_to_leave:
            self.save("on leaving")
            raise Left
        limit = self.orders.batches
        if limit is not None and self.start + self.steps * self.attempt.world >= limit:
            return False
        taken = []
        for number, seat in enumerate(self.seats):
            taken.append(seat.take())
            if number == len(self.seats) // 2:
                self.hit("taken")
        ended = [batch is None for batch in taken]
        assert all(ended) or not any(ended), f"ranks end at different steps: {ended}"
        if all(ended):
            return False
        self.hit("trained")
        for seat, batch in zip(self.seats, taken, strict=True):
            self.write(seat.rank, batch)
            seat.trained = batch
        self.hit("logged")
        self.steps += 1
        if self.steps % self.attempt.every == 0:
            self.save("after a step")
        return True

    def write(self, rank: int, batch: stoker.Batch) -> None:
        """Notes what a rank was fed."""
        place = {"passes": self.over, "start": self.start, "step": self.steps, "rank": rank}
        who = {"life": self.life, "world": self.attempt.world}
        content = {"samples": samples(batch), "digest": digest(batch)}
        os.write(self.log, (json.dumps(who | place | content) + "\n").encode())

    def save(self, where: str) -> None:
        """Saves a checkpoint, once all ranks have come so far."""
        self.orders.meet()
        states = {seat.rank: seat.state() for seat in self.seats}
        assert len({state["batches"] for state in states.values()}) == 1, "any rank's state will do"
        if self.attempt.saver in states:
            state = states[self.attempt.saver]
            assert len(json.dumps(state)) < 4096
            batches = self.start + self.steps * self.attempt.world
            checkpoint = {
                "passes": self.over,
                "batches": batches,
                "state": state,
                "world": self.attempt.world,
                "where": where + ", holding some" * any(seat.held for seat in self.seats),
            }
            new = self.orders.folder / "checkpoint.new"
            text = json.dumps(checkpoint)
            new.write_text(text[: len(text) // 2])
            self.hit("saving")
            new.write_text(text)
            new.replace(self.orders.folder / "checkpoint.json")
        self.hit("saved")
        self.orders.meet()

    def hit(self, point: str) -> None:
        """What is to happen here, if it is now."""
        hit = self.attempt.hit
        if hit is None or hit.kind == "outside" or hit.point != point:
            return
        if hit.step != self.steps and point not in ("last", "over"):
            return
        victim = self.attempt.saver if point == "saving" else hit.rank
        if self.attempt.apart and self.orders.ranks != [victim]:
            return
        if self.asked_to_leave or not self.life.endswith("-000"):
            return  # it happened
        self.note(f"{hit.kind} at {point}")
        if hit.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif hit.kind in ("term", "die"):
            os.kill(os.getpid(), signal.SIGTERM)
        elif hit.kind == "leave":
            self.asked_to_leave = True
        else:
            raise PlannedError


def read(folder: Path) -> dict[str, Any]:
    """The last checkpoint, or the beginning."""
    try:
        return json.loads((folder / "checkpoint.json").read_text())
    except FileNotFoundError:
        return {"passes": 0, "batches": 0, "state": None}


def run(orders: Orders) -> int:
    """A process of an attempt, from its first line to its exit code."""
    kind = orders.attempt.hit.kind if orders.attempt.hit else None
    with ExitStack() as stack:
        trainer = Trainer(orders, 0)
        if kind == "term":
            signal.signal(signal.SIGTERM, lambda *_: setattr(trainer, "asked_to_leave", True))
        for seat in trainer.seats:
            stack.callback(seat.loader.close)
        try:
            trainer.train()
        except Left:
            return 0
        except PlannedError:
            if kind not in ("retry", "rewind"):
                return 1
            seats = trainer.seats if kind == "rewind" else None
            trainer = Trainer(orders, 1, seats)
            trainer.train()
    return 0


def digest(batch: stoker.Batch) -> str:
    """The same for two batches if all their bytes are."""
    hashed = hashlib.sha256()
    for name, array in batch.numpy().items():
        hashed.update(f"{name} {array.dtype} {array.shape} ".encode())
        hashed.update(np.ascontiguousarray(array))
    return hashed.hexdigest()


def samples(batch: stoker.Batch) -> list[tuple[int, int, bool]]:
    """Dataset and row of each sample, and whether it teaches anything, by its tensors alone."""
    arrays = batch.numpy()
    found = []
    patches = arrays["image_grid_thw"].prod(axis=1).cumsum()
    images = np.split(arrays["pixel_values"], patches[:-1])
    rows = zip(arrays["input_ids"], arrays["labels"], images, strict=True)
    for number, (tokens, labels, pixels) in enumerate(rows):
        text = bytes(int(token) for token in tokens if token < 256)
        says = SAID.search(text)
        assert says, text
        dataset, row = int(says[1]), int(says[2])
        assert says[0].decode() == said(dataset, row), text
        learned = bytes(int(label) for label in labels if 0 <= label < 256)
        assert not learned or says[0] in learned, "what is learned is what the sample says"
        colours = pixels.reshape(len(pixels), 3, -1)
        is_its_own = (colours == np.array(colour(dataset, row))[None, :, None]).all()
        assert is_its_own == bool(learned), f"the pixels of sample {number} are not its own"
        assert batch.samples[number] == (dataset, row)
        found.append((dataset, row, bool(learned)))
    return found


def main(orders: Orders) -> None:
    """The whole life of a process: it ends here."""
    code = 3
    try:
        code = run(orders)
    except BaseException:
        trouble = orders.folder / f"trouble-{orders.number}-{orders.ranks[0]}.txt"
        trouble.write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(code)
