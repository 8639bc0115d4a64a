"""`demo.html`: one page that explains itself, with nothing loaded from elsewhere."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from statistics import median
from string import Template
from typing import TYPE_CHECKING, Any

from stoker._native import _page_style
from stoker.demo.results import claims, described, machine, percent
from stoker.demo.rungs import WAYS

if TYPE_CHECKING:
    from stoker.demo.measure import Rung
    from stoker.demo.results import Claim
    from stoker.demo.rungs import Outcome
    from stoker.demo.store import Store

PROFILES = {
    "standard": "the first byte after 29 ms at the median and 273 ms at the 99th percentile, then "
    "about 58 MiB/s for each response (the profile “standard”, fitted to published measurements of "
    "S3)",
}


def page(outcome: Outcome, store: Store, settings: dict[str, Any]) -> str:
    """The whole page."""
    first, last = outcome.rungs[0], outcome.rungs[-1]
    window = min(rung.steady_seconds for rung in outcome.rungs)
    top = max(max(rung.waits[1:]) for rung in outcome.rungs)
    template = Template(files("stoker.demo").joinpath("page.html").read_text())
    return template.substitute(
        style=style(),
        headline=f"The same trainer, from {percent(first.device_busy)} busy to "
        f"{percent(last.device_busy)}",
        lead=lead(outcome),
        window=f"{window:.1f} s",
        step=seconds(outcome.step_seconds),
        strips="\n".join(strip(rung, window) for rung in outcome.rungs),
        panels="\n".join(panel(rung, top) for rung in outcome.rungs),
        rows="\n".join(row(rung, first) for rung in outcome.rungs),
        footnote=footnote(outcome),
        claims="\n".join(map(claimed, claims(outcome))),
        meanings="\n".join(
            f"<div><dt>{escape(way.name)}</dt>\n<dd>{sentence(way.means)}</dd></div>"
            for way in WAYS
        ),
        same=same(outcome.same),
        profile=profile(settings["profile"]),
        data=data(store),
        machine=escape(described(machine())),
        settings=escape(", ".join(f"{name} {value}" for name, value in settings.items())),
    )


def style() -> str:
    """How it looks: light and dark, wide and narrow, as the page of a run does."""
    return _page_style() + files("stoker.demo").joinpath("style.css").read_text()


def lead(outcome: Outcome) -> str:
    """The story in two sentences."""
    first, last = outcome.rungs[0], outcome.rungs[-1]
    return (
        f"With the hand-written loader that people start with, the trainer waits "
        f"{percent(first.wait_ratio)} of the time for its data. Fed by stoker, on the same machine "
        f"and from the same store, it waits {percent(last.wait_ratio)}, and gets through "
        f"{last.images_per_second / first.images_per_second:.1f} times as many images."
    )


def strip(rung: Rung, window: float) -> str:
    """What the device did in the first `window` seconds after the first step."""
    busy, images = worked(rung, window)
    name = f"<div><b>{escape(rung.name)}</b><em>{images} images</em></div>"
    return f'<div class="strip">{name}{busy}</div>'


def worked(rung: Rung, window: float) -> tuple[str, int]:
    """When the device worked in that window, as a picture, and the images that it saw."""
    start, busy, images = rung.ended[0], [], 0
    steps = zip(rung.ended, rung.ended[1:], rung.waits[1:], rung.images[1:], strict=False)
    for before, after, wait, count in steps:
        begin, end = before - start + wait, min(after - start, window)
        if begin < end:
            busy.append(f'<rect x="{begin:.4f}" width="{end - begin:.4f}" height="1"/>')
            images += count
    picture = (
        f'<svg viewBox="0 0 {window:.4f} 1" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(rung.name)}: device busy {percent(rung.device_busy)}">'
        f"{''.join(busy)}</svg>"
    )
    return picture, images


def panel(rung: Rung, top: float) -> str:
    """Wait per step, as bars from 0 to `top` seconds."""
    left, width, height = 34.0, 386.0, 120.0
    waits = rung.waits[1:]
    pitch = width / len(waits)
    unit = next(u for u in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60) if top / u <= 4)
    ticks = [unit * count for count in range(int(top / unit) + 1)]

    def y(value: float) -> float:
        return 8 + height * (1 - value / top)

    grid = "".join(
        f'<line class="grid" x1="{left}" x2="{left + width}" y1="{y(t):.1f}" y2="{y(t):.1f}"/>'
        f'<text x="{left - 6}" y="{y(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in ticks
    )
    bars = "".join(
        f'<rect class="bar" x="{left + pitch * (i + 0.12):.2f}" width="{pitch * 0.76:.2f}" '
        f'y="{y(wait):.2f}" height="{height + 8 - y(wait):.2f}"/>'
        for i, wait in enumerate(waits)
    )
    step = y(rung.step_seconds)
    name = escape(rung.name)
    return (
        f'<div class="panel"><h3>{name}</h3><p>median {seconds(median(waits))}, '
        f"longest {seconds(max(waits))}</p>"
        f'<svg viewBox="0 0 420 152" role="img" aria-label="Wait per step, {name}: median '
        f'{seconds(median(waits))}">{grid}{bars}'
        f'<line class="step" x1="{left}" x2="{left + width}" y1="{step:.1f}" y2="{step:.1f}"/>'
        f'<text x="{left}" y="146">step 2</text>'
        f'<text x="{left + width}" y="146" text-anchor="end">{len(waits) + 1}</text></svg></div>'
    )


def row(rung: Rung, first: Rung) -> str:
    """A line of the table."""
    cells = (
        (str(len(rung.ended)), ' class="wide"'),
        (f"{rung.images_per_second:.1f}", ""),
        (percent(rung.wait_ratio), ""),
        (percent(rung.device_busy), ""),
        (f"{rung.images_per_second / first.images_per_second:.1f}x", ' class="wide"'),
        (seconds(rung.waits[0]), ' class="wide"'),
    )
    name = escape(rung.name) + ("" if rung.complete else " *")
    return f"<tr><th>{name}</th>{''.join(f'<td{kind}>{cell}</td>' for cell, kind in cells)}</tr>"


def claimed(claim: Claim) -> str:
    """A line of what the run had to show."""
    kind, aside = ("kept", "") if claim.kept else ("missed", " (missed in this run)")
    return (
        f'<li class="{kind}"><b>{claim.found}</b><span>{sentence(claim.words)}{aside}</span></li>'
    )


def footnote(outcome: Outcome) -> str:
    """What the table does not say."""
    words = (
        "Rates and ratios are of all steps after the first. Without a trainer, stoker gives "
        f"{outcome.drained.images_per_second:.1f} images/s and the hand-written loader "
        f"{outcome.python_images_per_second:.1f}: {outcome.drained_speed_up:.1f} times as many."
    )
    if all(rung.complete for rung in outcome.rungs):
        return words
    return words + " * Stopped before the end of the data, to keep the demo short."


def same(found: dict[str, Any]) -> str:
    """That the rungs do the same work."""
    names = ", ".join(f"<code>{escape(name)}</code>" for name in found["equal"])
    return (
        f"On the first {found['samples']} samples {names} of the two are equal, and the pixels are "
        f"{found['pixel_levels_mean']:.3f} of 255 levels apart in the mean, since Pillow and "
        "torchvision, whose resize stoker reproduces, round differently."
    )


def profile(name: str) -> str:
    """How slow the store is."""
    return PROFILES.get(name, f"the profile “{escape(name)}”")


def data(store: Store) -> str:
    """What the data is."""
    return (
        f"{store.samples} chat samples with {store.images} JPEGs of "
        f"{store.pixels / store.images / 1e6:.2f} megapixels on average, made from a seed with the "
        "edges, textures and noise of photographs: "
        f"{store.bytes * 8 / store.pixels:.1f} bits per pixel."
    )


def seconds(value: float) -> str:
    """A time as people read it."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.{0 if value >= 0.01 else 1}f} ms"


def sentence(words: str) -> str:
    """With a capital and a full stop."""
    return escape(words[0].upper() + words[1:] + ".")
