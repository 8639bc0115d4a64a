"""`ladder.html`: one page that explains itself, in the demo's clothes, with nothing loaded."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from stoker.demo import page as demo
from stoker.demo.results import described, machine, percent

from bench.ladder.results import HEAD, cells, claims, climbed, notes

if TYPE_CHECKING:
    from stoker.demo.store import Store

    from bench.ladder.climb import Outcome
    from bench.ladder.measure import Found
    from bench.ladder.ways import Way


def page(outcome: Outcome, store: Store, settings: dict[str, Any]) -> str:
    """The whole page."""
    rungs = climbed(outcome)
    first = outcome.found["0"].rung
    least = min(found.rung.wait_ratio for _, found in rungs)
    window = min(found.rung.steady_seconds for _, found in rungs)
    template = Template(files("bench.ladder").joinpath("page.html").read_text())
    return template.substitute(
        style=demo.style(),
        headline=f"From {percent(first.wait_ratio)} waiting to {percent(least)}, rung by rung",
        lead=lead(outcome),
        window=f"{window:.1f} s",
        count=COUNTS.get(len(rungs), str(len(rungs))),
        strips="\n".join(strip(way, found, window) for way, found in rungs),
        head="".join(f"<th{wide(name)}>{name}</th>" for name in HEAD),
        rows="\n".join(row(way, found, outcome) for way, found in rungs),
        notes="\n".join(f"<p>{escape(note)}</p>" for note in notes(outcome)),
        claims="\n".join(map(demo.claimed, claims(outcome))),
        step=demo.seconds(first.step_seconds),
        profile=demo.profile(settings["profile"]),
        data=demo.data(store),
        machine=escape(described(machine())),
        settings=escape(", ".join(f"{name} {value}" for name, value in settings.items())),
    )


COUNTS = {8: "eight", 9: "nine"}


def lead(outcome: Outcome) -> str:
    """The story, as far as it was measured."""
    waits = {way.number: percent(found.rung.wait_ratio) for way, found in climbed(outcome)}
    words = {
        "0": "A trainer that is fed by a plain Python loader from S3 waits {} of the time.",
        "3": "Concurrency, prefetching and zero-copy through Ray's object store bring that to {}.",
        "4": "stoker brings it to {}, on the same cores, with the same batches;",
        "5": "spread by Ray, to {}.",
    }
    told = " ".join(said.format(waits[n]) for n, said in words.items() if n in waits)
    return told.rstrip(";.") + "."


def strip(way: Way, found: Found, window: float) -> str:
    """A rung of the picture: when the device worked, and why it did not."""
    picture, images = demo.worked(found.rung, window)
    return (
        f'<div class="strip"><div><b><i>{way.number}</i>{escape(way.name)}</b>'
        f"<em>waits {percent(found.rung.wait_ratio)}<span> · {images} images</span></em></div>"
        f"{picture}<p>{demo.sentence(way.means)}</p>"
        f"<p><strong>It waits for</strong> {escape(way.cause)}.</p></div>"
    )


def row(way: Way, found: Found, outcome: Outcome) -> str:
    """A line of the table."""
    name, *numbers = map(escape, cells(way, found, outcome))
    columns = zip(HEAD[1:], numbers, strict=True)
    return (
        f"<tr><th>{name}</th>"
        f"{''.join(f'<td{wide(head)}>{number}</td>' for head, number in columns)}</tr>"
    )


def wide(head: str) -> str:
    """Marks a column that a telephone does not show."""
    shown = {"rung", "of rung 0", "waits", "device busy"}
    return "" if head in shown else ' class="wide"'
