"""What was measured, for people (a table) and for programs (`demo.json`)."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.demo.rungs import DRAIN_PASSES, MEMORY

if TYPE_CHECKING:
    from stoker.demo.rungs import Outcome


@dataclass(frozen=True)
class Claim:
    """Something that the demo is to show, and whether it did."""

    words: str
    found: str
    kept: bool

    def __str__(self) -> str:
        return f"{'shown ' if self.kept else 'MISSED'}  {self.found:>6}  {self.words}"


def claims(outcome: Outcome) -> list[Claim]:
    """What the demo is to show."""
    first, last = outcome.rungs[0], outcome.rungs[-1]
    return [
        Claim(
            "the hand-written loader keeps the trainer waiting 80 to 90% of the time",
            percent(first.wait_ratio),
            0.80 <= first.wait_ratio <= 0.90,
        ),
        Claim(
            "stoker keeps the same trainer waiting at most 5% of the time",
            percent(last.wait_ratio),
            last.wait_ratio <= 0.05,
        ),
        Claim(
            "the device is busy at least 95% of the time",
            percent(last.device_busy),
            last.device_busy >= 0.95,
        ),
        Claim(
            "without a trainer, stoker is at least 15 times as fast as the hand-written loader",
            f"{outcome.drained_speed_up:.1f}x",
            outcome.drained_speed_up >= 15,
        ),
    ]


def table(outcome: Outcome) -> str:
    """The rungs, one a line."""
    head = ("rung", "steps", "images/s", "trainer waits", "device busy", "speed-up", "first batch")
    rows = [head]
    for rung in outcome.rungs:
        rows.append(
            (
                rung.name + ("" if rung.complete else " *"),
                str(len(rung.ended)),
                f"{rung.images_per_second:.1f}",
                percent(rung.wait_ratio),
                percent(rung.device_busy),
                f"{rung.images_per_second / outcome.rungs[0].images_per_second:.1f}x",
                f"{rung.waits[0]:.2f} s",
            )
        )
    lines = columns(rows)
    lines.append("")
    if not all(rung.complete for rung in outcome.rungs):
        lines.append("* stopped before the end of the data, to keep the demo short")
    lines.append(
        f"Without a trainer: stoker {outcome.drained.images_per_second:.1f} images/s, "
        f"the hand-written loader {outcome.python_images_per_second:.1f}: "
        f"{outcome.drained_speed_up:.1f}x"
    )
    same = outcome.same
    lines.append(
        f"Same work: on the first {same['samples']} samples {', '.join(same['equal'])} are equal; "
        f"pixels are {same['pixel_levels_mean']:.4f} of 255 levels apart in the mean, "
        f"{same['pixel_levels_most']:.0f} at most (Pillow's resize against torchvision's)"
    )
    lines.append("")
    return "\n".join(lines + list(map(str, claims(outcome))))


def columns(rows: list[tuple[str, ...]]) -> list[str]:
    """The lines of a table; the first row is its head, the first column words, all else numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join((name.ljust(widths[0]), *numbers)))
    lines.insert(1, "-" * len(lines[0]))
    return lines


def document(outcome: Outcome, settings: dict[str, Any]) -> dict[str, Any]:
    """What `demo.json` holds. Times in seconds; rates and ratios without the first batch."""
    return {
        "rungs": [rung.as_dict() for rung in outcome.rungs],
        "drained": {
            "stoker_images_per_second": outcome.drained.images_per_second,
            "python_images_per_second": outcome.python_images_per_second,
            "speed_up": outcome.drained_speed_up,
        },
        "same_work": outcome.same,
        "claims": [vars(claim) for claim in claims(outcome)],
        "trainer": {"kind": "stand-in: sleeps", "step_seconds": outcome.step_seconds},
        "settings": settings | {"memory": MEMORY, "drain_passes": DRAIN_PASSES},
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """What it was measured on."""
    cpu = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        models = [
            line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = models[0].partition(": ")[2] if models else cpu
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def described(machine: dict[str, Any]) -> str:
    """A machine in a line."""
    return "{cpu}, {cores} cores, {memory_gib:.0f} GiB; {system}; Python {python}".format(**machine)


def percent(ratio: float) -> str:
    """A ratio as people read it: with a decimal where it is small or nearly all."""
    return f"{ratio:.1%}" if ratio < 0.1 or ratio > 0.9 else f"{ratio:.0%}"
