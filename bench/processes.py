"""Processes of what is measured: what they cost, and that none is left."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(*_: object) -> None:
    """Ends this process when its parent dies, in whatever way."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def adopt_orphans(adopt: bool = True) -> None:
    """Becomes the parent of descendants whose own has died, so that `family` still has them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt))


def family(root: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if fields := stat(int(process.name)):
            children.setdefault(int(fields[1]), []).append(int(process.name))
    found = [root]
    for parent in found:
        found += children.get(parent, [])
    return found


class CpuMeter:
    """The processor time that a process and all that descend from it use from now on.

    Of a process that ends, the rest of its time is its parent's, if that waits for it. Some do not
    (Ray's raylet): then it is nobody's, and what it used before may not count against others.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self.began = cpu_ticks(family(root))

    def seconds(self) -> float:
        """Used since the meter was made."""
        now = cpu_ticks(family(self.root))
        own = ended = 0
        for process, (its, of_children) in now.items():
            its_before, of_children_before = self.began.get(process, (0, 0))
            own += its - its_before
            ended += of_children - of_children_before
        gone = self.began.keys() - now.keys()
        known = sum(sum(self.began[process]) for process in gone)
        return (own + max(ended - known, 0)) / TICKS


def cpu_ticks(processes: list[int]) -> dict[int, tuple[int, int]]:
    """By process: what it has used so far, and what its children that ended and were waited for."""
    told = ((process, stat(process)) for process in processes)
    return {
        process: (int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14]))
        for process, fields in told
        if fields
    }


def stat(process: int) -> list[str] | None:
    """The fields of `/proc/PID/stat` from the third on, the state; None when it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def running(process: int) -> bool:
    """Whether it is there and not merely unburied."""
    fields = stat(process)
    return fields is not None and fields[0] not in {"Z", "X"}


def end(processes: list[int], patience: float) -> list[int]:
    """Waits for processes to end, then kills those that did not; they are given back."""
    deadline = time.monotonic() + patience
    while (left := list(filter(running, processes))) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return left


def pss_bytes(processes: list[int]) -> int:
    """The memory they hold: pages that several share are divided among them (PSS)."""
    return sum(map(pss, processes))


def pss(process: int) -> int:
    """Of one process; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
