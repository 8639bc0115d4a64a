"""Traces of the loader beside traces of others: one file in which both are seen on one clock.

    with torch.profiler.profile() as profiler, loader.trace("loader.json", steps=20):
        ...
    profiler.export_chrome_trace("torch.json")
    stoker.trace.merge("torch.json", "loader.json", "both.json")

All of them are Chrome trace events in JSON, which Perfetto (ui.perfetto.dev) opens.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

NAMES = frozenset(
    {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}
)
"""What says once for a process or thread how it is shown."""


def merge(
    first: str | PathLike[str], second: str | PathLike[str], out: str | PathLike[str]
) -> None:
    """Writes the events of two traces to one file, on the clock of the first.

    Each trace says since when it counts time (`baseTimeNanoseconds`; since 1970 where it does not).
    Processes and threads that are in both are called what the first calls them, and all else that a
    file says beside its events is the first one's too. Files may be compressed (`.gz`). Both are
    read into memory.

    Args:
        first: A trace of `torch.profiler` (`export_chrome_trace`), or any other.
        second: A trace of a loader, or any other.
        out: The file to write, compressed if its name ends in `.gz`; may be one of the two.

    Raises:
        OSError: A file can't be read or written.
        ValueError: A file is no trace.
    """
    trace, more = _read(first), _read(second)
    shift = (_base(more, second) - _base(trace, first)) / 1000
    named = {_name(event) for event in trace["traceEvents"]} - {None}
    for event in more["traceEvents"]:
        if _name(event) in named:
            continue
        if shift and "ts" in event:
            event["ts"] += shift
        trace["traceEvents"].append(event)
    for key, value in more.items():
        trace.setdefault(key, value)
    with _opened(Path(out), "wt") as file:
        json.dump(trace, file)


def _read(path: str | PathLike[str]) -> dict[str, Any]:
    with _opened(Path(path), "rt") as file:
        try:
            trace = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is no trace: {error}") from error
    if isinstance(trace, list):  # the older form: nothing but events
        trace = {"traceEvents": trace}
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise ValueError(f"{path} is no trace: it has no list of traceEvents")
    return trace


def _base(trace: dict[str, Any], path: str | PathLike[str]) -> int:
    base = trace.get("baseTimeNanoseconds", 0)
    if not isinstance(base, int):
        raise ValueError(f"{path} is no trace: baseTimeNanoseconds is {base!r}")
    return base


def _name(event: Any) -> tuple[Any, ...] | None:
    """What an event names, if it does."""
    if not isinstance(event, dict) or event.get("ph") != "M" or event.get("name") not in NAMES:
        return None
    thread = event.get("tid") if event["name"].startswith("thread") else None
    return event["name"], event.get("pid"), thread


def _opened(path: Path, mode: str) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, mode, encoding="utf-8")
    return path.open(mode, encoding="utf-8")
