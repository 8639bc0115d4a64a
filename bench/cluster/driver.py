"""The run's side of the trainers: gives them jobs, hears what they get, and when."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.cluster.nodes import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster.hosts import Host

PATIENCE_SECONDS = 90
"""How long a trainer may say nothing before the run is given up."""

CLOSE_SECONDS = 20


class TrainerError(Exception):
    """A trainer failed or fell silent; the message has its last words."""


@dataclass(frozen=True)
class Arrival:
    """One batch, as a trainer got it."""

    at: float
    """The machine's monotonic clock, in seconds."""
    waited: float
    """How long the trainer was blocked for it."""
    sequence: int
    nbytes: int
    rows: list[int]
    digest: str | None


@dataclass
class Job:
    """What a trainer has told of one job so far."""

    arrivals: list[Arrival] = field(default_factory=list)
    report: str | None = None
    """Set when the job is over."""
    error: str | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.report is not None or self.error is not None


class Trainer:
    """The trainer on one host."""

    def __init__(self, host: Host, cluster: str | None) -> None:
        """Starts it; it ends with its host.

        Args:
            host: Where it runs.
            cluster: Address of the Ray cluster; without one it loads in its own process.
        """
        self.host = host
        self._log = host.folder / "trainer.log"
        with self._log.open("w") as log:
            self._process = host.start(
                *(sys.executable, "-m", "bench.cluster.trainer"),
                *(("--cluster", cluster) if cluster else ()),
                *("--address", host.address),
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._changed = threading.Condition()
        self._ready = self._ended = False
        self._job = Job()
        threading.Thread(target=self._hear, name=f"hear-{host.name}", daemon=True).start()
        self.wait(lambda: self._ready)

    def begin(self, **job: Any) -> Job:
        """Gives it a job; see `bench.cluster.trainer.run`."""
        self._job = Job()
        self._say(json.dumps(job))
        return self._job

    def stop(self) -> None:
        """Asks for the job's end."""
        self._say("stop")

    def finish(self) -> Job:
        """Waits for the job's end."""
        self.wait(lambda: self._job.over)
        return self._job

    def wait(self, until: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until something is so.

        Raises:
            TrainerError: The job or the trainer failed meanwhile, or it took too long.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while not until() and not self._job.error:
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise TrainerError(self._last_words())
                self._changed.wait(left)
            if self._job.error:
                raise TrainerError(self._last_words())

    def pause(self, seconds: float) -> None:
        """Lets it go on for a while.

        Raises:
            TrainerError: It failed meanwhile.
        """
        until = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= until, seconds)

    def close(self) -> None:
        """Ends it; one that does not end by itself ends with its host."""
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)

    def _say(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> None:
        for line in self._process.stdout:
            said = json.loads(line)
            with self._changed:
                if "at" in said:
                    self._job.arrivals.append(Arrival(**said))
                self._job.report = said.get("report", self._job.report)
                self._job.error = said.get("error", self._job.error)
                self._ready = self._ready or "ready" in said
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _last_words(self) -> str:
        got = len(self._job.arrivals)
        why = self._job.error or ("it ended" if self._ended else "it says nothing any more")
        log = "\n".join(self._log.read_text().splitlines()[-20:])
        return f"the trainer on {self.host.name} failed after {got} batches: {why}\n{log}".rstrip()
