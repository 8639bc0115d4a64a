"""What each room is expected to take, in `instructions.json`, and how what it takes differs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.profile.rooms import Works

FILE = Path(__file__).with_name("instructions.json")
TOLERANCE = 0.05
"""Both ways. What moves of itself is under half of it: seeds of hash tables, the allocator."""
COUNTS = {
    "instructions": "instructions",
    "allocations": "allocations",
    "allocated_bytes": "bytes of allocations",
}
"""What is compared, as people call it."""
FEW = 1.0
"""A difference of less than this in a count is none: an allocation more in a batch of eight."""


def write(path: Path, found: Works) -> None:
    """Makes what was found what is expected."""
    works = {
        name: {count: round(work[count], 1) for count in COUNTS} for name, work in found.items()
    }
    path.write_text(json.dumps({"made_with": tools(), "works": works}, indent=1) + "\n")


def read(path: Path) -> dict[str, Any]:
    """What is expected: `works`, and the tools that they were counted with."""
    return json.loads(path.read_text())


def tools() -> dict[str, str]:
    """The versions of what decides the counts beside the code."""
    return {
        name: subprocess.run(
            [name, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("rustc", "valgrind")
    }


def differences(expected: dict[str, Any], found: Works) -> list[str]:
    """What differs by more than the tolerance, and what to do; nothing if nothing does."""
    works = expected["works"]
    told = [f"{name} is not counted any more" for name in works if name not in found]
    told += [f"{name} is new" for name in found if name not in works]
    for name in filter(found.__contains__, works):
        for count, words in COUNTS.items():
            before, now = works[name][count], found[name][count]
            if abs(now - before) > max(TOLERANCE * before, FEW):
                change = f" ({now / before - 1:+.1%})" if before else ""
                told.append(f"{name}: {now:,.0f} {words} an item, expected {before:,.0f}{change}")
    if not told:
        return []
    now, before = tools(), expected["made_with"]
    other = [f"{before[name]} then, {now[name]} now" for name in now if now[name] != before[name]]
    return [
        *told,
        *(f"(counted with other tools: {words})" for words in other),
        "If the change means this, run `make profile-accept` and commit bench/profile with it. If "
        "not, `valgrind --tool=callgrind` of target/release/examples/rooms before and after shows "
        "where.",
    ]
