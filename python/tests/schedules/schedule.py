"""What happens to a run: a function of a seed."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

WORLDS = (1, 2, 4, 8)

POINTS = (
    "loaded",  # the state was loaded, and nothing asked for
    "step",  # between two steps
    "taken",  # some ranks have their batch, others don't
    "trained",  # all have it, and it is in no log
    "logged",  # it is, and not saved
    "saving",  # the checkpoint is half written
    "saved",
    "last",  # the last batch of a pass was trained on and saved
    "over",  # the end of a pass was seen, and saved
)
"""Where a trainer can be hit."""

KINDS = (
    "kill",  # SIGKILL
    "term",  # SIGTERM, which the trainer makes good use of: it saves and leaves
    "die",  # SIGTERM, which it does not expect
    "raise",  # an exception in the loop: the process ends
    "retry",  # the same, but it makes new loaders and goes on
    "rewind",  # the same, but it loads the state into the loaders that it has
    "leave",  # its time is over
    "outside",  # SIGKILL at whatever moment
)
"""What hits it."""

ALONE = ("term", "retry", "rewind", "leave")
"""What all ranks of a job must agree on, so that it happens to ranks of one process alone."""


@dataclass(frozen=True)
class Hit:
    """What ends an attempt."""

    kind: str
    point: str
    step: int
    """Steps of the attempt in this pass before it; 0 at points that come once."""
    rank: int
    """Who is hit, where each rank has a process."""
    seconds: float
    """When, if it comes from outside."""


@dataclass(frozen=True)
class Attempt:
    """One start of a trainer."""

    world: int
    apart: bool
    """Whether each rank has a process of its own, or one has them all."""
    ahead: int
    """Batches that are taken before they are needed."""
    by_batch: bool
    """Whether the state that is saved is that of the last batch trained on, or the loader's of some
    batches ago."""
    every: int
    """Steps between two checkpoints."""
    saver: int
    """The rank whose state is saved: any will do."""
    at_once: bool
    """Whether it saves before its first batch: just after loading, if it loads."""
    loads: int
    """How often it loads the state, with a batch in between."""
    engine: dict[str, Any]
    """Overrides that must change nothing."""
    hit: Hit | None


@dataclass(frozen=True)
class Schedule:
    """A row of attempts; the last one is hit by nothing."""

    seed: int
    job: str
    attempts: tuple[Attempt, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.job}"]
        for number, attempt in enumerate(self.attempts):
            facts = ", ".join(f"{key}={value}" for key, value in asdict(attempt).items())
            lines.append(f"  attempt {number}: {facts}")
        return "\n".join(lines)


def of_seed(seed: int, jobs: list[str]) -> Schedule:
    """The schedule of a seed."""
    rng = random.Random(seed)
    job = jobs[seed % len(jobs)]
    attempts = [_attempt(rng, hit=True) for _ in range(rng.randint(2, 6))]
    return Schedule(seed, job, (*attempts, _attempt(rng, hit=False)))


def _attempt(rng: random.Random, *, hit: bool) -> Attempt:
    world = rng.choice(WORLDS)
    apart = world > 1 and rng.random() < 0.3
    kinds = [kind for kind in KINDS if not (apart and kind in ALONE)]
    point = rng.choice(POINTS)
    step = rng.choice((0, 1, rng.randint(2, 6), rng.randint(0, 24 // world)))
    return Attempt(
        world=world,
        apart=apart,
        ahead=rng.choice((0, 1, 3)),
        by_batch=rng.random() < 0.5,
        every=rng.randint(1, 4),
        saver=rng.randrange(world),
        at_once=rng.random() < 0.4,
        loads=rng.choice((1, 1, 2, 3)),
        engine={
            "engine.workers": rng.randint(1, 3),
            "engine.prefetch": rng.choice((0, 1, 5)),
            "engine.memory": rng.choice(("24MiB", "48MiB")),
        },
        hit=Hit(
            kind=rng.choice(kinds),
            point=point,
            step=step if point in POINTS[1:-2] else 0,
            rank=rng.randrange(world),
            seconds=rng.uniform(0.0, 0.25),
        )
        if hit
        else None,
    )
