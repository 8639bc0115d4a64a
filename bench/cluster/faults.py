"""C: what a trainer notices when a worker, a host or a cable fails while it trains.

Each fault strikes a run of its own, on another host of those that load. What arrives is compared,
batch by batch and by all bytes, with what `stoker.Loader` gives without any cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.cluster.driver import Trainer
from bench.cluster.hosts import HostsError
from bench.cluster.placement import POINTS, WORKERS, loader, spread_over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.cluster.bench import Bench
    from bench.cluster.driver import Arrival
    from bench.cluster.hosts import Host, Network

TITLE = "ray::StokerWorker"
"""How Ray names the processes of data workers, after their class and what they run."""
STRIKES_AFTER = 0.25
"""Share of the batches that have come when a fault strikes."""
STEP_SECONDS = 0.1
"""How long the trainer trains on a batch: the cards could bring several in that time."""

DELAY_SECONDS = 15
"""The longest that a trainer may wait for a batch, whatever fails."""


@dataclass(frozen=True)
class Fault:
    """Something that fails."""

    name: str
    host: str
    strike: Callable[[Network, str], None]
    heal: Callable[[Network, str], None] | None = None
    """Undoes it once the run is over."""


def kill_workers(network: Network, name: str) -> None:
    """`kill -9` of the data workers of a host."""
    signal_workers(network[name], signal.SIGKILL)


def stop_workers(network: Network, name: str) -> None:
    """`kill -STOP` of the data workers of a host: they live, and say nothing."""
    signal_workers(network[name], signal.SIGSTOP)


def wake_workers(network: Network, name: str) -> None:
    """`kill -CONT` of those that are left."""
    with contextlib.suppress(HostsError):
        signal_workers(network[name], signal.SIGCONT)


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
    Fault("link cut", "h4", lambda network, name: network.cut(name), lambda n, name: n.mend(name)),
    Fault("node killed", "h2", lambda network, name: network[name].kill()),
)
"""The last one takes its host's node away for good."""


def strike(
    bench: Bench, trainer: Trainer, faults: Sequence[Fault] = FAULTS
) -> list[dict[str, Any]]:
    """C: a run without faults, then one with each of them."""
    arguments = loader(bench, POINTS[0], spread_over(WORKERS))
    bench.tell("C: the same batches without a cluster")
    expected = [arrival.digest for arrival in alone(bench, arguments)]
    bench.tell("C: no fault")
    usual = run(bench, trainer, arguments)
    rows = [row("none", usual, usual, expected)]
    for fault in faults:
        bench.tell(f"C: {fault.name}")
        arrivals = run(bench, trainer, arguments, fault)
        rows.append(row(fault.name, arrivals, usual, expected))
    return rows


def alone(bench: Bench, arguments: dict[str, Any]) -> list[Arrival]:
    """The batches as `stoker.Loader` gives them, on the store's host, whose card is fast."""
    by_itself = {name: arguments[name] for name in ("recipe", "rank", "world_size")}
    reader = Trainer(bench.network["store"], cluster=None)
    reader.begin(loader=by_itself, batches=bench.scale.batches, step=0, digest=True)
    arrivals = reader.finish().arrivals
    reader.close()
    return arrivals


def run(
    bench: Bench, trainer: Trainer, arguments: dict[str, Any], fault: Fault | None = None
) -> list[Arrival]:
    """One run over the same batches, with or without a fault in it."""
    job = trainer.begin(
        loader=arguments, batches=bench.scale.batches, step=STEP_SECONDS, digest=True
    )
    if fault is not None:
        trainer.wait(lambda: len(job.arrivals) >= first_struck(bench.scale.batches))
        fault.strike(bench.network, fault.host)
    try:
        return trainer.finish().arrivals
    finally:
        if fault is not None and fault.heal is not None:
            fault.heal(bench.network, fault.host)


def first_struck(batches: int) -> int:
    """The first batch that comes after a fault."""
    return int(batches * STRIKES_AFTER)


def row(
    fault: str, arrivals: Sequence[Arrival], usual: Sequence[Arrival], expected: Sequence[str]
) -> dict[str, Any]:
    """What is kept of a run."""
    return {
        "fault": fault,
        "delay_seconds": longest_wait(arrivals),
        "usual_seconds": longest_wait(usual),
        "identical": [arrival.digest for arrival in arrivals] == list(expected)
        and [arrival.sequence for arrival in arrivals] == list(range(len(expected))),
        "batches": len(arrivals),
    }


def longest_wait(arrivals: Sequence[Arrival]) -> float:
    """The longest that a trainer was blocked for one batch, once faults may strike."""
    return max(arrival.waited for arrival in arrivals[first_struck(len(arrivals)) :])
