"""C: what a trainer notices when a worker, a host or a cable fails while it trains.

Each fault strikes a run of its own, on another host of those that load. What arrives is compared,
batch by batch and by all bytes, with what `stoker.Loader` gives without any cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bench.cluster.driver import Trainer
from bench.cluster.hosts import HostsError
from bench.cluster.placement import POINTS, WORKERS, loader, spread_over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.cluster.bench import Bench
    from bench.cluster.driver import Arrival, Job
    from bench.cluster.hosts import Host

TITLE = "ray::StokerWorker"
"""How Ray names the processes of data workers, after their class and what they run."""
STRIKES_AFTER = 0.25
"""Share of the batches that have come when a fault strikes."""
STEP_SECONDS = 0.1
"""How long the trainer trains on a batch: the cards could bring several in that time."""

DELAY_SECONDS = 10
"""The longest that a trainer may wait for a batch, whatever fails: the loader's deadline of 5 s,
and as long again to make what is missing, over cards of this rate."""


@dataclass(frozen=True)
class Fault:
    """Something that fails."""

    name: str
    host: str
    strike: Callable[[Bench, str], None]
    heal: Callable[[Bench, str], None] = lambda *_: None
    """Undoes it once the run is over."""
    makes_retries: bool = False
    """Whether the fault itself leaves pulls that Ray has to try again."""


def kill_workers(bench: Bench, name: str) -> None:
    """`kill -9` of the data workers of a host."""
    signal_workers(bench.network[name], signal.SIGKILL)


def stop_workers(bench: Bench, name: str) -> None:
    """`kill -STOP` of the data workers of a host: they live, and say nothing."""
    signal_workers(bench.network[name], signal.SIGSTOP)


def wake_workers(bench: Bench, name: str) -> None:
    """`kill -CONT` of those that are left."""
    with contextlib.suppress(HostsError):
        signal_workers(bench.network[name], signal.SIGCONT)


def cut(bench: Bench, name: str) -> None:
    """Takes a host's cable out."""
    bench.network.cut(name)


def mend(bench: Bench, name: str) -> None:
    """Puts it back."""
    bench.network.mend(name)


def kill_node(bench: Bench, name: str) -> None:
    """`kill -9` of all of a node."""
    bench.kill_node(name)


def signal_workers(host: Host, which: signal.Signals) -> None:
    """Sends a signal to the data workers of a host.

    Raises:
        HostsError: There are none.
    """
    found = workers(host)
    if not found:
        raise HostsError(f"there are no data workers on {host.name}: {host.processes()}")
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, which)


def workers(host: Host) -> list[int]:
    """The data workers on a host."""
    return [pid for pid, line in host.processes().items() if line.startswith(TITLE)]


FAULTS = (
    Fault("worker killed", "h2", kill_workers),
    Fault("worker stopped", "h3", stop_workers, wake_workers),
    Fault("link cut", "h4", cut, mend, makes_retries=True),
    Fault("node killed", "h2", kill_node, makes_retries=True),
)
"""The last one takes its host's node away for good."""


NO_FAULT = Fault("none", "", lambda *_: None)


def strike(bench: Bench, trainer: Trainer, faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """C: a run without a fault, then one with each."""
    arguments = loader(bench, POINTS[0], spread_over(WORKERS))
    bench.tell("C: the same batches without a cluster")
    expected = [arrival.digest for arrival in alone(bench, arguments)]
    rows: list[dict[str, Any]] = []
    counted = bench.counters()
    for fault in (NO_FAULT, *faults):
        bench.tell(f"C: {fault.name}")
        job = run(bench, trainer, arguments, fault)
        before, counted = counted, bench.counters()
        rows.append(
            row(job.arrivals, expected)
            | {"fault": fault.name, "ray": asdict(counted - before), "report": job.report}
            | {"makes_retries": fault.makes_retries}
        )
    return rows


def alone(bench: Bench, arguments: dict[str, Any]) -> list[Arrival]:
    """The batches as `stoker.Loader` gives them, on the store's host, whose card is fast."""
    by_itself = {name: arguments[name] for name in ("recipe", "rank", "world_size")}
    reader = Trainer(bench.network["store"], cluster=None)
    reader.begin(loader=by_itself, batches=bench.scale.batches, step=0, digest=True)
    arrivals = reader.finish().arrivals
    reader.close()
    return arrivals


def run(bench: Bench, trainer: Trainer, arguments: dict[str, Any], fault: Fault) -> Job:
    """One run over the same batches, with a fault in it."""
    job = trainer.begin(
        loader=arguments, batches=bench.scale.batches, step=STEP_SECONDS, digest=True
    )
    trainer.wait(lambda: len(job.arrivals) >= first_struck(bench.scale.batches))
    fault.strike(bench, fault.host)
    try:
        return trainer.finish()
    finally:
        fault.heal(bench, fault.host)


def first_struck(batches: int) -> int:
    """The first batch that comes after a fault."""
    return int(batches * STRIKES_AFTER)


def row(arrivals: Sequence[Arrival], expected: Sequence[str]) -> dict[str, Any]:
    """What arrived in a run, and how late.

    Args:
        arrivals: The batches as they came.
        expected: Their digests as they should be.
    """
    came = [(arrival.sequence, arrival.digest) for arrival in arrivals]
    struck = arrivals[first_struck(len(arrivals)) :]
    return {
        "delay_seconds": max(arrival.waited for arrival in struck),
        "waited_seconds": sum(arrival.waited for arrival in struck),
        "identical": came == list(enumerate(expected)),
        "batches": len(arrivals),
    }
