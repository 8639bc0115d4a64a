"""What was measured, for people (tables) and for programs (`ladder.json`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.demo.results import Claim, columns, described, machine, percent
from stoker.demo.rungs import MEMORY

from bench.ladder.local_ray import COUNTERS
from bench.ladder.ways import WAYS, Way
from bench.pages import put

if TYPE_CHECKING:
    from pathlib import Path

    from stoker.demo.store import Store

    from bench.ladder.climb import Outcome
    from bench.ladder.measure import Found

HEAD = (
    "rung",
    "images/s",
    "of rung 0",
    "waits",
    "device busy",
    "cores busy",
    "CPU/image",
    "copied/image",
    "first batch",
)
MARKERS = "<!-- ladder: figures -->", "<!-- ladder: end of figures -->"


def climbed(outcome: Outcome) -> list[tuple[Way, Found]]:
    """The rungs that were measured, from the lowest."""
    return [(way, outcome.found[way.number]) for way in WAYS if way.number in outcome.found]


def speed_up(outcome: Outcome, found: Found) -> float:
    """How many times as many images as rung 0."""
    return found.rung.images_per_second / outcome.found["0"].rung.images_per_second


def cores_busy(outcome: Outcome, found: Found) -> float:
    """Share of the cores' time that the rung and its store used."""
    used = found.cpu_seconds_per_image + found.store_cpu_seconds_per_image
    return used * found.rung.images_per_second / outcome.cores


def copied(way: Way, found: Found) -> float:
    """Bytes that were copied for an image after its pixels were finished."""
    return way.copies * found.pixel_bytes_per_image


def document(outcome: Outcome, store: Store, settings: dict[str, Any]) -> dict[str, Any]:
    """What `ladder.json` holds. Times in seconds; rates and ratios without the first batch."""
    return {
        "rungs": [
            found.rung.as_dict()
            | {
                "rung": way.number,
                "means": way.means,
                "cause": way.cause,
                "first_batch_seconds": found.first_batch_seconds,
                "speed_up": speed_up(outcome, found),
                "cpu_seconds_per_image": found.cpu_seconds_per_image,
                "store_cpu_seconds_per_image": found.store_cpu_seconds_per_image,
                "cores_busy": cores_busy(outcome, found),
                "copies": way.copies,
                "copied_bytes_per_image": copied(way, found),
                "same_work": found.same,
            }
            for way, found in climbed(outcome)
        ],
        "failed": outcome.failed,
        "ray": outcome.ray,
        "claims": [vars(claim) for claim in claims(outcome)],
        "trainer": {"kind": "stand-in: sleeps", "step_seconds": outcome.step_seconds},
        "data": {name: getattr(store, name) for name in ("samples", "images", "bytes", "pixels")},
        "settings": settings | {"memory": MEMORY},
        "machine": machine(),
    }


def claims(outcome: Outcome) -> list[Claim]:
    """What the ladder is to show, as far as its rungs were measured."""
    waits = {way.number: found.rung.wait_ratio for way, found in climbed(outcome)}
    found = [
        Claim(
            "rung 0 keeps the trainer waiting 80 to 90% of the time",
            percent(waits["0"]),
            0.80 <= waits["0"] <= 0.90,
        )
    ]
    found += [
        Claim(
            f"rung {way.number}, {way.name}, keeps the same trainer waiting at most 5% of the time",
            percent(waits[way.number]),
            waits[way.number] <= 0.05,
        )
        for way in WAYS
        if way.number in waits and way.module.startswith("stoker")
    ]
    if outcome.ray:
        counted = [counts[name] for counts in outcome.ray.values() for name in COUNTERS]
        words = "Ray spilled nothing to disk and asked for nothing twice"
        found.append(Claim(words, f"{sum(counted):.0f}", not any(counted)))
    return found


def cells(way: Way, found: Found, outcome: Outcome) -> tuple[str, ...]:
    """A rung's line in a table, under `HEAD`."""
    rung = found.rung
    return (
        f"{way.number}: {way.name}" + ("" if rung.complete else " *"),
        f"{rung.images_per_second:.1f}",
        f"{speed_up(outcome, found):.1f}x",
        percent(rung.wait_ratio),
        percent(rung.device_busy),
        percent(cores_busy(outcome, found)),
        f"{found.cpu_seconds_per_image * 1000:.1f} ms",
        f"{copied(way, found) / 1e6:.0f} MB",
        first_batch(way, found),
    )


def first_batch(way: Way, found: Found) -> str:
    """Seconds to the first batch, where the rung had to start what it uses."""
    sharing = [other for other in WAYS if way.place and other.place == way.place] or [way]
    if way is sharing[0]:
        return f"{found.first_batch_seconds:.1f} s"
    return f"as {sharing[0].number}"


def table(outcome: Outcome) -> str:
    """The rungs, one a line, and what they show."""
    rows = [HEAD, *(cells(way, found, outcome) for way, found in climbed(outcome))]
    lines = [*columns(rows), "", *notes(outcome), ""]
    return "\n".join(lines + list(map(str, claims(outcome))))


def notes(outcome: Outcome) -> list[str]:
    """What the table does not say, a sentence each."""
    found = outcome.found.values()
    names = ", ".join(min((f.same["equal"] for f in found), key=len))
    levels = max(f.same["pixel_levels_most"] for f in found)
    words = [
        f"The trainer's step is {outcome.step_seconds * 1000:.0f} ms. Rates and ratios are of all "
        "steps after the first. Where waiting and busy do not add up to all, the rest is the "
        "trainer's process giving back the memory of a batch.",
        f"Same work: {names} of the first {outcome.found['0'].same['batches']} batches are equal "
        f"in all rungs; pixels differ by {levels:.2f} of 255 levels at most.",
    ]
    if not all(f.rung.complete for f in found):
        words.append("* stopped before the end of the data, to keep the ladder short.")
    words += [f"Rung {number} failed: {why}" for number, why in outcome.failed.items()]
    return words


def write_figures(page: Path, outcome: Outcome, settings: dict[str, Any]) -> None:
    """Puts the table into a Markdown page, between its markers.

    Raises:
        PageError: The page has no markers.
    """
    put(page, MARKERS, figures(outcome, settings))


def figures(outcome: Outcome, settings: dict[str, Any]) -> str:
    """The table, in Markdown, and what it was measured on."""
    rows = [HEAD, ("---", *["---:"] * (len(HEAD) - 1))]
    for way, found in climbed(outcome):
        rows.append(tuple(cell.replace("*", "\\*") for cell in cells(way, found, outcome)))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    asked = ", ".join(f"{name} {value}" for name, value in settings.items())
    words = [*notes(outcome), f"{described(machine())}; {asked}."]
    return "\n\n".join(["\n".join(lines), *(word.replace("*", "\\*") for word in words)])
