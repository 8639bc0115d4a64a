"""What should have come, and whether it did.

Three witnesses that do not know of one another: the model of the order, which says which samples a
batch has; the run that nothing happened to, which says which bytes; and counting, which says that
every row came once in each epoch.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from .jobs import NEUTRALISED, REPLACED, model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .jobs import Job

Samples = list[list[Any]]
"""Dataset and row of each sample of a batch, and whether it teaches anything."""


class WrongError(Exception):
    """What came is not what should have come."""


class Record(NamedTuple):
    """A batch in a trainer's log."""

    life: str
    world: int
    passes: int
    start: int
    step: int
    rank: int
    samples: Samples
    digest: str

    @property
    def index(self) -> int:
        """Its place in the global sequence, by the trainer's count."""
        return self.start + self.step * self.world + self.rank

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the whole run."""
        return self.passes, self.index


def expected(job: Job, batches: int) -> list[Samples]:
    """The samples of the first batches, as the model has them."""
    stream = _served(job)
    return [[next(stream) for _ in range(job.batch_size)] for _ in range(batches)]


def _served(job: Job) -> Iterator[list[Any]]:
    for dataset, place in model.places(job.order):
        row, attempt = model.row_at(job.order, dataset, place), 0
        while job.bad.get((dataset, row)) in REPLACED:
            attempt += 1
            row = model.spare(job.order, dataset, place, attempt)
        yield [dataset, row, job.bad.get((dataset, row)) not in NEUTRALISED]


def read(folder: Path) -> list[Record]:
    """What all trainers of a schedule have in their logs."""
    records = []
    for log in sorted(folder.glob("log-*.jsonl")):
        lines = log.read_text().split("\n")
        records += [Record(**json.loads(line)) for line in lines if line]
    return records


def check(job: Job, truth: list[Samples], straight: list[str], records: list[Record]) -> None:
    """Holds what a schedule's trainers were fed against the witnesses.

    Args:
        job: What was trained on.
        truth: The samples of each batch, by the model.
        straight: The digest of each batch of the run that nothing happened to.
        records: All that is in the logs.

    Raises:
        WrongError: Something is not what it should be; it says what and where.
    """
    for record in records:
        _check_batch(record, truth, straight)
    lives = defaultdict(list)
    for record in records:
        lives[record.life].append(record)
    ordered = [lives[life] for life in sorted(lives)]
    for life in ordered:
        _check_steps(life)
    committed = _committed(ordered)
    for number in range(job.passes):
        _check_pass(job, straight, number, [one for one in committed if one.passes == number])


def _check_batch(record: Record, truth: list[Samples], straight: list[str]) -> None:
    where = (
        f"life {record.life}, step {record.step} of rank {record.rank} of {record.world} "
        f"from batch {record.start} on: batch {record.index}"
    )
    if record.index >= len(truth):
        raise WrongError(f"{where} is beyond the end")
    if record.samples != truth[record.index]:
        raise WrongError(f"{where} is {truth[record.index]}, but {record.samples} came")
    if record.digest != straight[record.index]:
        raise WrongError(f"{where} has the right samples, but not the right bytes")


def _check_steps(life: list[Record]) -> None:
    """Within a life every rank takes its steps one after the other, in each pass."""
    steps = defaultdict(list)
    for record in life:
        steps[record.passes, record.start, record.rank].append(record.step)
    for (passes, start, rank), taken in steps.items():
        if taken != list(range(len(taken))):
            raise WrongError(f"rank {rank} took the steps {taken} of pass {passes} from {start} on")


def _committed(lives: list[list[Record]]) -> list[Record]:
    """The batches that counted: those of each life before where the next one began."""
    committed: list[Record] = []
    end = None
    for life in reversed(lives):
        committed += [one for one in life if end is None or one.place < end]
        end = min((one.passes, one.start) for one in life)
    return sorted(committed, key=lambda one: one.place)


def _check_pass(job: Job, straight: list[str], number: int, records: list[Record]) -> None:
    places = [one.index for one in records]
    if places != list(range(len(places))):
        twice = [place for place, count in Counter(places).items() if count > 1]
        lost = sorted(set(range(max(places, default=0))) - set(places))
        raise WrongError(f"pass {number}: batches {lost} are lost, {twice} counted twice")
    last = records[-1].world if records else 1
    if not job.total <= len(places) < job.total + last:
        raise WrongError(f"pass {number} has {len(places)} batches in place of {job.total}")
    if _chain(one.digest for one in records) != _chain(iter(straight[: len(records)])):
        raise WrongError(f"pass {number}: the chain of hashes is not that of the straight run")
    _check_epochs(job, [sample for one in records for sample in one.samples])


def _chain(digests: Iterator[str]) -> str:
    chain = b""
    for digest in digests:
        chain = hashlib.sha256(chain + bytes.fromhex(digest)).digest()
    return chain.hex()


def _check_epochs(job: Job, samples: Samples) -> None:
    """Every epoch of every dataset has each good row once; in the place of bad ones came others."""
    for dataset, one in enumerate(job.order.datasets):
        rows = [row for number, row, _ in samples if number == dataset]
        bad = {
            row for (number, row), kind in job.bad.items() if number == dataset and kind in REPLACED
        }
        good = set(range(one.rows)) - bad
        for epoch in range(len(rows) // one.rows):
            count = Counter(rows[epoch * one.rows : (epoch + 1) * one.rows])
            more = sum(count.values()) - len(good)
            if set(count) != good or more != len(bad):
                lost = sorted(good - set(count))
                raise WrongError(f"epoch {epoch} of dataset {dataset} lacks rows {lost}: {count}")
