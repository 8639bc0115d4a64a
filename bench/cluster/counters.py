"""Ray's own counters of what must not happen: spilling, and objects that are sent twice.

Each node says them twice: as metrics, and in the dump of its state among its logs. Pull retries
are read from the dump: Ray 2.60 overwrites the metric that is called so,
`ray_pull_manager_retries_total`, with the number of all pulls.
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SETTLED_SECONDS = 0.2
"""A dump that is older has been written to its end."""
METRIC = re.compile(r"(?P<name>\w+)(\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class CountersError(Exception):
    """Ray does not say what it should; the message names it."""


@dataclass(frozen=True)
class Counters:
    """What happened on one node since it was started; all of it should be 0."""

    spilled_bytes: int
    """Written to disk because the object store was full."""
    spill_requests: int
    fallback_bytes: int
    """Objects that found no place in shared memory."""
    pull_retries: int
    """Objects that were asked for again because they had not come in 10 seconds."""
    chunks_failed: int
    """Pieces of objects that came and could not be used."""

    @property
    def clean(self) -> bool:
        """Whether nothing happened."""
        return not any(asdict(self).values())

    def __add__(self, other: Counters) -> Counters:
        names = [field.name for field in fields(self)]
        return Counters(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def __sub__(self, other: Counters) -> Counters:
        names = [field.name for field in fields(self)]
        return Counters(**{name: getattr(self, name) - getattr(other, name) for name in names})


NONE = Counters(0, 0, 0, 0, 0)


def counters(metrics: str, state: str) -> Counters:
    """Reads the counters of one node.

    Args:
        metrics: What the node's agent exports, as Prometheus text.
        state: The raylet's `debug_state.txt`.

    Raises:
        CountersError: One is missing, as when another Ray calls it otherwise.
    """
    spilled = [
        metric(metrics, "ray_spill_manager_objects_bytes", State=state_of)
        for state_of in ("Spilled", "PendingSpill")
    ]
    return Counters(
        spilled_bytes=sum(spilled),
        spill_requests=stated(state, "LocalObjectManager", "cumulative spill requests"),
        fallback_bytes=metric(metrics, "ray_object_store_fallback_memory"),
        pull_retries=stated(state, "PullManager", "num pull retries"),
        chunks_failed=stated(state, "ObjectManager", "num chunks received failed (all)"),
    )


def metric(text: str, name: str, **labels: str) -> int:
    """The value of one metric in Prometheus text."""
    for line in text.splitlines():
        found = METRIC.fullmatch(line) if line.startswith(name) else None
        if found and found["name"] == name:
            has = dict(LABEL.findall(found["labels"] or ""))
            if labels.items() <= has.items():
                return int(float(found["value"]))
    raise CountersError(f"Ray exports no metric {name} with {labels}")


def stated(text: str, section: str, name: str) -> int:
    """The value of one line of a section of a raylet's state."""
    _, found, rest = f"\n{text}".partition(f"\n{section}:\n")
    for line in rest.splitlines() if found else []:
        key, colon, value = line.removeprefix("- ").rpartition(": ")
        if colon and key == name:
            return int(value)
        if line.endswith(":") and not line.startswith("-"):
            break
    raise CountersError(f"a raylet's state has no {name!r} in {section}")


def latest_state(folder: Path) -> str:
    """The latest state that a node wrote below its folder."""
    dumps = sorted(folder.glob("session_2*/logs/debug_state.txt"), key=lambda p: p.stat().st_mtime)
    if not dumps:
        raise CountersError(f"no raylet wrote its state below {folder}")
    while True:
        # Every second a raylet writes it anew, in place: half of one would lack lines, or digits.
        written = dumps[-1].stat().st_mtime_ns
        text = dumps[-1].read_text()
        settled = time.time() - written / 1e9 > SETTLED_SECONDS
        if settled and dumps[-1].stat().st_mtime_ns == written:
            return text
        time.sleep(SETTLED_SECONDS / 4)
