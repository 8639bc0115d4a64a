"""Starts the trainers of a schedule, kills them, starts the next ones.

It has imported all that trainers need, has no thread and opens no loader, so a trainer is a fork of
it: it starts within milliseconds, and what becomes of it touches nobody else.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

import stoker

from . import oracle, trainer
from .jobs import LANES, jobs
from .schedule import of_seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .jobs import Job
    from .oracle import Samples
    from .schedule import Attempt, Schedule

HUNG = 60
"""Seconds after which a trainer is taken to hang; they take a tenth of one."""

WRONG = 3
"""Exit code of a trainer that met something it should not have."""


class Course:
    """A job that is written down, and its run that nothing happens to."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self.recipe = job.write(folder)
        report = folder / "straight.json"
        pid = _fork(lambda: report.write_text(json.dumps(_straight(job, self.recipe))))
        if _wait({pid}) != {0}:
            raise oracle.WrongError(f"the straight run of {job.name} failed")
        samples, self.straight = json.loads(report.read_text())
        self.truth = oracle.expected(job, len(self.straight))
        if samples != self.truth:
            raise oracle.WrongError(f"the straight run of {job.name} is not the model's")


class Driver:
    """Runs schedules over jobs that it writes once.

    Args:
        folder: For data, logs and checkpoints.
        broken: What is wrong with the trainers, if anything is to be.
    """

    def __init__(self, folder: Path, broken: str | None = None) -> None:
        self.folder, self.broken = folder, broken
        self.jobs = {job.name: job for job in jobs()}
        self.courses: dict[str, Course] = {}

    def schedule(self, seed: int) -> Schedule:
        """The schedule of a seed."""
        return of_seed(seed, list(self.jobs))

    def run(self, seed: int) -> Counter[str]:
        """Runs a schedule; counts what happened.

        Raises:
            WrongError: What came is not what should have come, or a trainer hung or failed.
        """
        schedule = self.schedule(seed)
        if schedule.job not in self.courses:
            job = self.jobs[schedule.job]
            self.courses[schedule.job] = Course(job, self.folder / job.name)
        course = self.courses[schedule.job]
        folder = self.folder / f"seed-{seed}"
        folder.mkdir()
        counts: Counter[str] = Counter()
        for number, attempt in enumerate(schedule.attempts):
            counts["attempts"] += 1
            self._attempt(course, folder, number, attempt)
            if trainer.read(folder)["passes"] == course.job.passes:
                break
        else:
            raise oracle.WrongError("the run came to no end")
        records = oracle.read(folder)
        oracle.check(course.job, course.truth, course.straight, records)
        counts["batches"] += len(records)
        for notes in folder.glob("notes-*.txt"):
            counts.update(notes.read_text().splitlines())
        return counts

    def _attempt(self, course: Course, folder: Path, number: int, attempt: Attempt) -> None:
        """Runs one attempt."""
        groups = [list(range(attempt.world))]
        meet: Callable[[], Any] = _alone
        if attempt.apart:
            groups = [[rank] for rank in range(attempt.world)]
            meet = multiprocessing.get_context("fork").Barrier(attempt.world).wait
        processes = set()
        for ranks in groups:
            orders = trainer.Orders(
                folder=folder,
                recipe=course.recipe,
                passes=course.job.passes,
                batches=course.job.batches,
                attempt=attempt,
                number=number,
                ranks=ranks,
                meet=meet,
                broken=self.broken,
            )
            processes.add(_fork(lambda orders=orders: trainer.main(orders)))
        if attempt.hit and attempt.hit.kind == "outside":
            time.sleep(attempt.hit.seconds)
            victim = sorted(processes)[attempt.hit.rank % len(processes)]
            os.kill(victim, signal.SIGKILL)
        ends = _wait(processes)
        for trouble in sorted(folder.glob(f"trouble-{number}-*.txt")):
            raise oracle.WrongError(f"attempt {number} failed:\n{trouble.read_text()}")
        planned = {0, 1, -signal.SIGKILL, -signal.SIGTERM} if attempt.hit else {0}
        if not ends <= planned:
            raise oracle.WrongError(f"attempt {number} ended with {sorted(ends)}, or hung")


def _alone() -> None:
    """A process that has all ranks waits for nobody."""


def _straight(job: Job, recipe: dict[str, Any]) -> tuple[list[Samples], list[str]]:
    """Samples and digests of the run that nothing happens to.

    With those after its end, which the last step of many ranks needs.
    """
    with stoker.Loader(recipe, rank=0, world_size=1) as loader:
        if job.epochs is not None:
            assert len(loader) == job.total
        count = job.total + LANES
    seen, digests = [], []
    with stoker.Loader(recipe, rank=0, world_size=1, overrides={"plan.epochs": None}) as loader:
        for batch in loader:
            seen.append(trainer.samples(batch))
            digests.append(trainer.digest(batch))
            if len(seen) == count:
                break
    return seen, digests


def _fork(work: Callable[[], Any]) -> int:
    """Has a child do something, and end."""
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        signal.alarm(HUNG)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(WRONG)


def _wait(processes: set[int]) -> set[int]:
    """How they ended. As launchers do, it kills all once one has ended badly."""
    ends, left = set(), set(processes)
    while left:
        pid, status = os.wait()
        left.discard(pid)
        code = os.waitstatus_to_exitcode(status)
        ends.add(code)
        if code != 0:
            for other in left:
                os.kill(other, signal.SIGKILL)
    return ends
