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
    """`slow-rank`: one or some wait for their data, and the others for them. `slow-trainer`: the
    ranks don't meet, and one's own step takes longest. `all-ranks`: they wait alike. None: nobody
    waits, or there is too little to compare."""
    rank: int | None
    """Which, of the first two; of several slow ones the one that waits longest."""
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
        usual = median(pace.wait for pace in others)
        if worst.wait >= MORE * usual:
            slow = [pace for pace in paces if pace.wait >= max(WAIT, MORE * usual)]
            most = max(pace.wait for pace in paces if pace not in slow)
            words = (
                f"{_named(slow)} the other {len(paces) - len(slow)}: "
                f"{'it waits' if len(slow) == 1 else 'they wait'} for {_its(slow)} data "
                f"{worst.wait:.1%} of {_its(slow)} time{' at most' if len(slow) > 1 else ''}, the "
                f"others for theirs {most:.1%} at most"
            )
            reason = f"; on rank {worst.rank}, {worst.advice}" if worst.advice else ""
            return Ranks(paces, "slow-rank", worst.rank, words + reason)
        least = min(pace.wait for pace in paces)
        words = f"all ranks wait for their data alike, {least:.1%} to {worst.wait:.1%} of the time"
        reason = f"; {worst.advice}" if worst.advice else ""
        return Ranks(paces, "all-ranks", None, words + reason)
    return _without_waits(paces)


def _named(slow: list[RankPace]) -> str:
    """The ranks that are waited for, neighbours as a range."""
    runs: list[list[int]] = []
    for pace in slow:
        if runs and runs[-1][-1] == pace.rank - 1:
            runs[-1].append(pace.rank)
        else:
            runs.append([pace.rank])
    names = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return f"rank {names[0]} holds up" if len(slow) == 1 else f"ranks {', '.join(names)} hold up"


def _its(slow: list[RankPace]) -> str:
    return "its" if len(slow) == 1 else "their"


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
