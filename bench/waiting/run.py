"""Runs a loader in one way, with a trainer that sleeps, and hears what its report says."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import stoker
from stoker import ranks

from bench.processes import die_with_parent
from bench.waiting.store import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.waiting.scenarios import Scenario, Way

RECIPE = {"pack": {"batch-size": 4}, "engine": {"memory": "128MiB"}, "plan": {"lanes": 2}}


class Found(NamedTuple):
    """What a run says of itself."""

    wait: float
    """Share of its time that the trainer waited; of several ranks, the one that waited most."""
    limit: str | None
    words: str
    step_seconds: float
    """From batch to batch."""
    report: dict[str, Any]
    """Of the last rank."""

    @property
    def blocked_seconds(self) -> float:
        """Of a step, the trainer waited."""
        return self.wait * self.step_seconds


class Outcome(NamedTuple):
    """A scenario, before and after."""

    scenario: Scenario
    before: Found
    after: Found | None

    @property
    def holds(self) -> bool:
        """Whether the right limit was named, with the advice that was followed, and it helped."""
        named = self.before.limit == self.scenario.limit and self.scenario.says in self.before.words
        waited = self.before.blocked_seconds
        return named and (self.after is None or self.after.blocked_seconds < waited / 2)


def tried(scenario: Scenario, model: Path) -> Outcome:
    """Runs into the bottleneck, and once more with the advice followed."""
    before = measured(scenario.before, model)
    return Outcome(scenario, before, scenario.after and measured(scenario.after, model))


def measured(way: Way, model: Path) -> Found:
    """One run.

    Raises:
        DemoError: There is no store.
    """
    with tempfile.TemporaryDirectory(prefix="stoker-") as folder, serve(way) as store:
        source = Path(folder) / "train.jsonl"
        source.write_text(store["lines"])
        fetch = {"endpoint": store["endpoint"]}
        keys = {name: store[name] for name in ("access_key_id", "secret_access_key")}
        recipe = RECIPE | {"model": str(model.absolute()), "dataset": {"source": str(source)}}
        recipe |= {"fetch": fetch}
        with _credentials(keys), _beside(way.beside), _switching(way.switch_seconds):
            reports = _train(way, recipe)
    compared = ranks.compare(reports)
    last = reports[-1].as_dict()
    if len(reports) > 1:
        worst = max(compared.paces, key=lambda pace: pace.wait)
        return Found(worst.wait, compared.limit, compared.words, worst.step_seconds, last)
    wait, advice = last["wait"], last["advice"]
    step = last["stages"]["seconds"] / last["stages"]["batches"]
    return Found(wait["window_ratio"], advice["limit"], advice["words"], step, last)


def _train(way: Way, recipe: dict[str, Any]) -> list[stoker.Report]:
    """All ranks, each on a thread of its own where there are several."""
    of = len(way.ranks)
    meet, reports = threading.Barrier(of), [None] * of

    def rank(index: int) -> None:
        own = way.recipe | way.ranks[index]
        try:
            with stoker.Loader(recipe, rank=index, world_size=of, overrides=own) as loader:
                held: deque[stoker.Batch] = deque()
                for _ in range(way.batches):
                    held.append(next(loader))
                    time.sleep(way.step)
                    meet.wait()
                    if len(held) > way.kept:
                        held.popleft()
                reports[index] = loader.report()
        except BaseException:
            meet.abort()  # else the others would wait for ever
            raise

    others = [threading.Thread(target=rank, args=(index,)) for index in range(of - 1)]
    for thread in others:
        thread.start()
    rank(of - 1)
    for thread in others:
        thread.join()
    return reports


@contextmanager
def _beside(what: str) -> Iterator[None]:
    """Computes beside the trainer for the block: in a thread of Python, in processes, or not."""
    if what in ("process", "processes"):
        with ExitStack() as stack:
            for _ in range(1 if what == "process" else len(os.sched_getaffinity(0))):
                stack.enter_context(_computing())
            yield
        return
    stop = threading.Event()

    def compute() -> None:
        count = 0
        while not stop.is_set():
            count = (count * 31 + 7) % 1_000_003

    thread = threading.Thread(target=compute)
    if what == "thread":
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if what == "thread":
            thread.join()


@contextmanager
def _computing() -> Iterator[None]:
    """A process that computes for the block."""
    command = [sys.executable, "-c", "while True: pass"]
    process = subprocess.Popen(command, preexec_fn=die_with_parent)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    """Python's threads switch that often in the block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _credentials(keys: dict[str, str]) -> Iterator[None]:
    """The loaders of this process find the store, and nothing stands between."""
    names = {"AWS_ACCESS_KEY_ID": keys["access_key_id"], "AWS_REGION": "us-east-1"}
    names |= {"AWS_SECRET_ACCESS_KEY": keys["secret_access_key"], "NO_PROXY": "127.0.0.1"}
    before = {name: os.environ.get(name) for name in names}
    os.environ |= names
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
