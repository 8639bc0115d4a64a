"""What was measured, for people (Markdown) and for programs (`cluster.json`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.demo.results import Claim

from bench.cluster.faults import DELAY_SECONDS
from bench.cluster.placement import A_RATIO, B_TOLERANCE, WORKERS
from bench.pages import put

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MARKERS = "<!-- cluster: figures -->", "<!-- cluster: end of figures -->"

RETRIES = ("pull_retries", "chunks_failed")
"""What Ray counts of objects that it sends again."""


def claims(found: dict[str, Any]) -> list[Claim]:
    """What the experiments are to show, as far as they were run.

    Args:
        found: What `cluster.json` holds. In a short run speeds are not asked for.
    """
    claimed = []
    speeds = not found["settings"]["short"]
    if speeds and "A" in found and not limited(found["A"]):
        ratio = found["A"]["ratio"]
        words = f"three ranks served from their own hosts get at least {A_RATIO} times as much"
        claimed.append(Claim(f"A: {words}", f"{ratio:.2f}x", ratio >= A_RATIO))
    for row in found.get("B", []) if speeds else []:
        off = row["ratio"] / row["model"] - 1
        words = f"{described(row)} is worth what the model says, to {B_TOLERANCE:.0%}"
        if not limited(row):
            claimed.append(Claim(f"B: {words}", f"{off:+.0%}", abs(off) <= B_TOLERANCE))
            claimed += named(row)
    for row in found.get("C", []):
        same = "same" if row["identical"] else "DIFFER"
        words = f"{row['fault']}: all {row['batches']} batches are those of a run without a cluster"
        claimed.append(Claim(f"C: {words}", same, row["identical"]))
        if speeds:
            delay = row["delay_seconds"]
            words = f"{row['fault']}: the trainer waits no longer than {DELAY_SECONDS} s"
            claimed.append(Claim(f"C: {words}", f"{delay:.1f} s", delay <= DELAY_SECONDS))
    if "A" in found:
        claimed.append(clean("A", found["A"]["ray"]))
    for row in found.get("B", []):
        claimed.append(clean(f"B: {described(row)}", row["ray"]))
    for row in found.get("C", []):
        excused = RETRIES if row["makes_retries"] else ()
        claimed.append(clean(f"C: {row['fault']}", row["ray"], excused))
    return claimed


def named(row: dict[str, Any]) -> list[Claim]:
    """That the loader says so where the trainer's card is what limits it."""
    if row["model"] >= len(WORKERS):
        return []
    says = "network card" in row["spread"]["report"]
    words = f"B: {described(row)}: the loader's report names the network card"
    return [Claim(words, "named" if says else "not", says)]


def clean(name: str, counted: dict[str, int], excused: Sequence[str] = ()) -> Claim:
    """That Ray counted nothing that must not happen."""
    unclean = {what: n for what, n in counted.items() if n and what not in excused}
    words = "Ray spilled nothing" if excused else "Ray spilled nothing, and sent nothing twice"
    return Claim(f"{name}: {words}", str(unclean or 0), not unclean)


def limited(row: dict[str, Any]) -> bool:
    """Whether the cores, and not the cards, may have been the limit of one of the two runs."""
    return row["packed"]["cores_limit"] or row["spread"]["cores_limit"]


def described(row: dict[str, Any]) -> str:
    """One of B's points."""
    return f"{row['pixels']} of {row['max_pixels'] // 1000}k pixels"


def figures(found: dict[str, Any]) -> str:
    """All that was measured, as Markdown."""
    lines = []
    if "A" in found:
        lines += [
            "| three ranks | fetched | of packed | cores busy |",
            "|---|---:|---:|---:|",
            *(rate_row(name, found["A"][name], found["A"]) for name in ("packed", "spread")),
            "",
        ]
    if "B" in found:
        lines += [
            "| shipped | bytes shipped per byte fetched | on the trainer's host | on three others "
            "| ratio | model | cores busy |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *map(point_row, found["B"]),
            "",
        ]
    if "C" in found:
        lines += [
            "| fault | longest wait | all waits after it | batches | sent again by Ray |",
            "|---|---:|---:|---|---:|",
            *map(fault_row, found["C"]),
            "",
        ]
    return "\n".join([*lines, *notes(found)])


def rate_row(name: str, run: dict[str, Any], found: dict[str, Any]) -> str:
    """One of A's two runs."""
    ratio = run["fetched_bytes_per_second"] / found["packed_bytes_per_second"]
    return cells(
        name,
        megabytes(run["fetched_bytes_per_second"]),
        f"{ratio:.2f}x",
        cores(run),
    )


def point_row(row: dict[str, Any]) -> str:
    """One of B's points."""
    return cells(
        described(row),
        f"{row['shipped_per_fetched']:.2f}",
        megabytes(row["packed"]["fetched_bytes_per_second"]),
        megabytes(row["spread"]["fetched_bytes_per_second"]),
        f"{row['ratio']:.2f}x",
        f"{row['model']:.2f}x",
        f"{cores(row['packed'])}, {cores(row['spread'])}",
    )


def fault_row(row: dict[str, Any]) -> str:
    """One of C's runs."""
    same = "the same" if row["identical"] else "**differ**"
    return cells(
        row["fault"],
        f"{row['delay_seconds']:.1f} s",
        f"{row['waited_seconds']:.1f} s",
        same,
        str(row["ray"]["pull_retries"]),
    )


def notes(found: dict[str, Any]) -> list[str]:
    """What the tables do not say."""
    settings, machine = found["settings"], found["machine"]
    words = [
        f"Cards of {settings['mbit']:g} Mbit/s; {settings['images']} photos, "
        f"{settings['bytes'] / settings['images'] / 1e3:.0f} KB and "
        f"{settings['pixels'] / settings['images'] / 1e6:.1f} megapixels each; batches of "
        f"{settings['batch_size']}; {machine['cores']} cores ({machine['cpu']}) for all hosts, Ray "
        f"{settings['ray']}; {found['seconds']:.0f} s in all."
    ]
    if any("\\*" in cores(run) for run in runs(found)):
        words.append("\\* The cores were busy: they, and not the cards, may have been the limit.")
    return words


def runs(found: dict[str, Any]) -> list[dict[str, Any]]:
    """All runs whose speed was measured."""
    rows = [found["A"]] if "A" in found else []
    return [row[name] for row in rows + found.get("B", []) for name in ("packed", "spread")]


def cores(run: dict[str, Any]) -> str:
    """How busy they were, marked where they may have been the limit."""
    return f"{run['cores_busy']:.0%}" + ("\\*" if run["cores_limit"] else "")


def megabytes(rate: float) -> str:
    """A rate."""
    return f"{rate / 1e6:.1f} MB/s"


def cells(*words: str) -> str:
    """A line of a table."""
    return f"| {' | '.join(words)} |"


def told(found: dict[str, Any], claimed: Sequence[Claim]) -> str:
    """All of it, for a terminal."""
    said = [f"{'shown ' if c.kept else 'MISSED'}  {c.found:>6}  {c.words}" for c in claimed]
    return "\n".join([figures(found), "", *said])


def write_figures(page: Path, found: dict[str, Any]) -> None:
    """Puts the figures into a Markdown page, between its markers.

    Raises:
        PageError: The page has no markers.
    """
    put(page, MARKERS, figures(found))
