"""Which rank the others wait for, from the reports of all.

In data parallel training the ranks meet in every step, so one that waits for its data makes all
others as slow as itself, and their loaders have nothing to tell: their batches were there in time.
Beside each other the reports show it.

    from stoker import ranks

    reports = ranks.gathered(loader.report())     # with torch.distributed, on all ranks
    print(ranks.compare(reports))
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.distributed import ProcessGroup

    from stoker.report import Report

WAIT = 0.02
"""Share of its time that a rank may wait for data before a reason is looked for, as in reports."""

MORE = 2.0
"""How many times as long as the others' median a rank must take to be the slow one."""

APART = 1.1
"""How many times as long as the shortest step the longest must be for ranks to go by themselves."""


@dataclass(frozen=True)
class RankPace:
    """What one rank's time goes to, in the mean over the steps that its report is about."""

    rank: int
    step_seconds: float
    """From batch to batch."""
    blocked_seconds: float
    """Of a step: it waited for its batch."""
    advice: str | None
    """Why it did, and what would help: `Report.advice.words`."""

    @property
    def trainer_seconds(self) -> float:
        """Of a step: all else, waiting for other ranks included."""
        return self.step_seconds - self.blocked_seconds

    @property
    def wait(self) -> float:
        """Share of its time that it waited for its batches."""
        return self.blocked_seconds / self.step_seconds if self.step_seconds else 0.0


@dataclass(frozen=True)
class Ranks:
    """What the reports of all ranks tell together; `str()` says it in words."""

    paces: tuple[RankPace, ...]
    """Of each rank, in order; without those that had no two batches."""
    limit: Literal["slow-rank", "slow-trainer", "all-ranks"] | None
    """`slow-rank`: one waits for its data, and the others for it. `slow-trainer`: the ranks don't
    meet, and one's own step takes longest. `all-ranks`: they wait alike. None: nobody waits, or
    there is too little to compare."""
    rank: int | None
    """Which, of the first two."""
    words: str

    def __str__(self) -> str:
        return self.words


def compare(reports: Sequence[Report | Mapping[str, Any]]) -> Ranks:
    """Names the rank that holds up the others, and why.

    Args:
        reports: Those of all ranks, in order: `loader.report()`, or its `as_dict()`.
    """
    paces = tuple(pace for rank, report in enumerate(reports) if (pace := _pace(rank, report)))
    if len(paces) < 2:
        return Ranks(paces, None, None, "fewer than two ranks have had two batches")
    worst = max(paces, key=lambda pace: pace.wait)
    others = [pace for pace in paces if pace is not worst]
    if worst.wait >= WAIT:
        if worst.wait >= MORE * median(pace.wait for pace in others):
            most = max(pace.wait for pace in others)
            words = (
                f"rank {worst.rank} holds up the other {len(others)}: it waits for its data "
                f"{worst.wait:.1%} of its time, the others for theirs {most:.1%} at most"
            )
            reason = f"; on rank {worst.rank}, {worst.advice}" if worst.advice else ""
            return Ranks(paces, "slow-rank", worst.rank, words + reason)
        least = min(pace.wait for pace in paces)
        words = f"all ranks wait for their data alike, {least:.1%} to {worst.wait:.1%} of the time"
        reason = f"; {worst.advice}" if worst.advice else ""
        return Ranks(paces, "all-ranks", None, words + reason)
    return _without_waits(paces)


def _without_waits(paces: tuple[RankPace, ...]) -> Ranks:
    slowest = max(paces, key=lambda pace: pace.step_seconds)
    fastest = min(paces, key=lambda pace: pace.step_seconds)
    if slowest.step_seconds > APART * fastest.step_seconds:
        words = (
            f"no rank waits for its data; the trainer of rank {slowest.rank} takes "
            f"{slowest.trainer_seconds:.3f} s a step, that of rank {fastest.rank} "
            f"{fastest.trainer_seconds:.3f} s"
        )
        return Ranks(paces, "slow-trainer", slowest.rank, words)
    words = (
        f"no rank waits for its data; all take {slowest.step_seconds:.3f} s a step. If one of them "
        "is slower by itself, the others wait for it within the step, where a loader can't see it"
    )
    return Ranks(paces, None, None, words)


def gathered(report: Report, group: ProcessGroup | None = None) -> list[dict[str, Any]]:
    """The numbers of all ranks' reports, in order; all ranks of the group have to call it.

    Args:
        report: This rank's.
        group: Of torch.distributed; by default all processes.
    """
    from torch import distributed

    numbers: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(numbers, report.as_dict(), group)
    return numbers


def _pace(rank: int, report: Report | Mapping[str, Any]) -> RankPace | None:
    numbers = report if isinstance(report, dict) else report.as_dict()
    wait, stages, advice = numbers["wait"], numbers.get("stages"), numbers.get("advice")
    words = advice["words"] if advice else None
    if stages:
        batches, wall = stages["batches"], stages["seconds"]
        return RankPace(rank, wall / batches, wall / batches * wait["window_ratio"], words)
    batches = wait["batches"]
    if not batches:
        return None
    return RankPace(rank, wait["wall_seconds"] / batches, wait["blocked_seconds"] / batches, words)
