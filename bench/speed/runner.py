"""All rivals in all scenarios: interleaved, a round after the other.

A round runs each rival once, each in a process of its own; every round begins with another one.
What a machine does slowly, such as throttling, meets all of them alike.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.demo.store import DemoError

from bench.speed.data import SHARDS, limited, make
from bench.speed.job import Job
from bench.speed.store import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.speed.data import Data
    from bench.speed.job import Times
    from bench.speed.rivals import Rival
    from bench.speed.scenarios import Scenario

ROOT = Path(__file__).parents[2]
STEP_PER_TOKEN = 20e-6
"""Seconds that the demo's trainer takes for a token: its step over the tokens of its batches."""


@dataclass
class Outcome:
    """All that was found in a scenario."""

    scenario: Scenario
    data: Data
    step_seconds: float
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By rival; in the order of the rounds."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why a rival gave nothing, or nothing that counts."""


class Nursery:
    """A process of one virtual environment, from which runs are forked."""

    def __init__(self, python: Path, errors: Path) -> None:
        self.errors = errors.open("ab")
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [str(python), "-m", "bench.speed.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": ":".join(path)},
        )
        if not self.process.stdout.readline():
            code = self.process.wait()
            raise DemoError(
                f"{python} can't import what the bench needs (code {code}): see {errors}"
            )

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Has an order carried out."""
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise DemoError(f"a process that runs are forked from ended: see {self.errors.name}")
        return json.loads(line)

    def close(self) -> None:
        """Ends it."""
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()


def missing(python: Path) -> str | None:
    """Why nothing can run with this interpreter, if its environment isn't there."""
    if python.exists():
        return None
    return (
        f"the virtual environment {python.parents[1]} is missing: "
        "make bench, or make .setup/rivals/done for it alone"
    )


class Nurseries:
    """One for each virtual environment, started when it is first needed."""

    def __init__(self, pythons: dict[str, Path], errors: Path) -> None:
        self.pythons, self.errors = pythons, errors
        self.open: dict[str, Nursery] = {}
        self.stack = ExitStack()

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Has an order carried out in the environment of its rival."""
        place = order["rival"]["place"]
        python = self.pythons[place]
        if why := missing(python):
            return {"failed": why}
        if place not in self.open:
            self.open[place] = Nursery(python, self.errors)
            self.stack.callback(self.open[place].close)
        return self.open[place].obey(order)

    def close(self) -> None:
        """Ends them."""
        self.stack.close()


@dataclass(frozen=True)
class Plan:
    """How it is measured."""

    rounds: int
    times: Times
    seed: int
    model: Path
    scratch: Path
    cores: int


def run(
    scenario: Scenario,
    rivals: list[Rival],
    plan: Plan,
    nurseries: Nurseries,
    tell: Callable[[str], None],
) -> Outcome:
    """Runs rivals in a scenario.

    Args:
        scenario: What is loaded.
        rivals: Who loads.
        plan: How it is measured.
        nurseries: Where the runs are forked from.
        tell: Is told what is done next.
    """
    tell(f"{scenario.name}: {scenario.words}")
    place = plan.scratch / scenario.name
    # Scenarios of the same photos and chats share them.
    kind = f"{scenario.samples}-{scenario.pixels}-{scenario.answer_words}"
    data = make(scenario, plan.scratch / f"data-{kind}", plan.seed)
    model = limited(plan.model, place / "model", scenario.max_pixels)
    step = STEP_PER_TOKEN * data.tokens / data.samples * scenario.batch_size
    outcome = Outcome(scenario, data, step)
    with serve(data.folder, scenario.profile, plan.seed) as store:
        del store["process"]

        def order(rival: Rival, what: str, compare: bool = False) -> dict[str, Any]:
            scratch = place / "run"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            (cache := place / rival.name).mkdir(exist_ok=True)
            job = Job(
                **store,
                folder=str(data.folder),
                model=str(model),
                samples=data.samples,
                batch_size=scenario.batch_size,
                cores=plan.cores,
                shards=SHARDS,
                source=scenario.source,
                step_seconds=step,
                cache=str(cache),
                scratch=str(scratch),
                options=rival.options,
            )
            said = {"do": what, "rival": asdict(rival), "job": asdict(job), "compare": compare}
            return nurseries.obey(said | {"times": asdict(plan.times)})

        for rival in rivals:
            answer = order(rival, "prepare")
            if "failed" in answer:
                outcome.failed[rival.name] = answer["failed"]
                tell(f"  {rival.title}: {answer['failed']}")
        for number in range(plan.rounds):
            for rival in turned(rivals, number * len(rivals) // plan.rounds):
                if rival.name in outcome.failed:
                    continue
                answer = order(rival, "run", compare=number == 0)
                note(outcome, rival, answer, tell)
    return outcome


def note(
    outcome: Outcome, rival: Rival, answer: dict[str, Any], tell: Callable[[str], None]
) -> None:
    """Keeps what a run found; of a rival that failed once nothing counts."""
    if "failed" in answer:
        outcome.failed[rival.name] = answer["failed"]
        outcome.runs.pop(rival.name, None)
        tell(f"  {rival.title}: {answer['failed']}")
        return
    found = answer["found"]
    outcome.runs.setdefault(rival.name, []).append(found)
    tell(f"  {rival.title}: {found['images_per_second']:.1f} images/s")


def turned(rivals: Iterable[Rival], by: int) -> list[Rival]:
    """The same, beginning with another one."""
    listed = list(rivals)
    return listed[by:] + listed[:by]
