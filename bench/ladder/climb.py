"""All rungs, in processes of their own, so that none inherits threads, memory or children.

They are forked from this one, which has done the imports and nothing else. Rungs of the same place
share a process and a Ray. Whatever a rung started is gone before the next one begins.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, field
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any

from stoker.demo.store import DemoError

from bench.ladder.host import host
from bench.ladder.ways import WAYS, Way
from bench.processes import end, family

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from bench.ladder.job import Job
    from bench.ladder.measure import Found

IMPORTS = "bench.processor", "bench.ladder.client", "boto3"
"""What all Python rungs need, so that they need not each take seconds for it."""
START_SECONDS = 120.0
"""How long a rung may be silent beside its measurement: Ray's start and imports, at their worst."""
END_SECONDS = 15.0
"""How long its processes may take to end."""


@dataclass
class Outcome:
    """All that was measured."""

    cores: int
    found: dict[str, Found] = field(default_factory=dict)
    """By the rung's number."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why a rung gave nothing, or nothing that counts."""
    ray: dict[str, dict[str, float]] = field(default_factory=dict)
    """What Ray counted, by the numbers of the rungs that shared it."""

    @property
    def step_seconds(self) -> float | None:
        """The stand-in trainer's step, which rung 0 sets."""
        return self.found["0"].rung.step_seconds if "0" in self.found else None


def climb(job: Job, at_most_seconds: float, tell: Callable[[str], None]) -> Outcome:
    """Runs all rungs.

    Args:
        job: What each has to do.
        at_most_seconds: How long each may be measured.
        tell: Is told what is done next.

    Raises:
        DemoError: Rung 0 failed, with which all others are compared.
    """
    outcome = Outcome(job.cores)
    for module in IMPORTS:
        import_module(module)
    processes = multiprocessing.get_context("fork")
    for _, group in groupby(WAYS, key=lambda way: way.place or way.number):
        ways = list(group)
        messages, theirs = processes.Pipe(duplex=False)
        process = processes.Process(
            target=host, args=(theirs, ways, job, outcome.step_seconds, at_most_seconds)
        )
        process.start()
        theirs.close()
        follow(process, messages, ways, outcome, at_most_seconds + START_SECONDS, tell)
        if "0" in outcome.failed:
            raise DemoError(f"rung 0, with which all others are compared: {outcome.failed['0']}")
    return outcome


def follow(
    process: Any,
    messages: Connection,
    ways: list[Way],
    outcome: Outcome,
    silence: float,
    tell: Callable[[str], None],
) -> None:
    """Hears what the process of some rungs has to say, until it and all its children are gone."""
    started, patience = {process.pid}, 0.0
    numbers = ", ".join(way.number for way in ways)
    try:
        while messages.poll(silence):
            kind, number, content = messages.recv()
            started.update(family(process.pid))
            if kind == "begins":
                tell(f"{number}: {content}")
            elif kind == "ends":
                patience = END_SECONDS
                break
            else:
                getattr(outcome, kind)[number] = content
                if kind == "failed":
                    tell(f"{number}: {content}")
        else:
            outcome.failed[numbers] = f"was silent for {silence:.0f} s, so it was ended"
    except EOFError:
        process.join(END_SECONDS)
        outcome.failed[numbers] = f"its process ended with code {process.exitcode}"
    finally:
        started.update(family(process.pid))
        if killed := end(list(started), patience):
            outcome.failed.setdefault(numbers, f"{len(killed)} of its processes had to be killed")
        process.join()
