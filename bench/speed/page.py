"""What was found, for people: the tables of docs/benchmarks.md, and the plot beside it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from stoker.demo.results import described, percent

from bench.page import markers, write_between
from bench.speed.results import MAIN, Line, claims, lines
from bench.speed.rivals import RIVALS, named

if TYPE_CHECKING:
    from pathlib import Path

    from bench.speed.runner import Outcome

NAME = "bench"
MARKERS = markers(NAME)
HEAD = (
    "",
    "images/s",
    "of the limit",
    "CPU/image",
    "memory",
    "waits",
    "waits, 3x",
    "first batch",
    "copied/image",
    "pixels",
)
WIDTH, LABEL, BAR = 760, 190, 19
"""Of the plot, in pixels: all of it, the names, the height of a bar with the gap below it."""
COLOURS = {
    "limit": "#9aa0a6",
    "image step": "#7a8ba8",
    "loader": "#7a8ba8",
    "stoker": "#c2410c",
}


def write(page: Path, outcomes: list[Outcome], found: dict[str, Any]) -> None:
    """Puts the figures into a page, and the plot beside it.

    Raises:
        PageError: The page has no markers.
    """
    write_between(page, NAME, figures(page.stem, outcomes, found))
    page.with_suffix(".svg").write_text(plot(outcomes))


def figures(stem: str, outcomes: list[Outcome], found: dict[str, Any]) -> str:
    """All of it, in Markdown.

    Args:
        stem: Name of the page, and of the plot.
        outcomes: What was found, by scenario.
        found: `machine`, `settings` and `seconds` of the raw results.
    """
    parts = [f"![images per second]({stem}.svg)"]
    for outcome in outcomes:
        if outcome.scenario.name == MAIN:
            parts += [shown(outcome)]
    parts += [part for outcome in outcomes for part in section(outcome)]
    parts.append(used(outcomes))
    settings = ", ".join(f"{name} {value}" for name, value in found["settings"].items())
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    parts.append(
        f"{described(found['machine'])}; {settings}; {found['seconds'] / 60:.0f} minutes in all. "
        f"{versions}."
    )
    return "\n\n".join(parts)


def shown(outcome: Outcome) -> str:
    """What it was to show, line by line."""
    rows = [
        f"| {claim.words} | {claim.found} | {'yes' if claim.kept else '**no**'} |"
        for claim in claims(outcome)
    ]
    head = ["| to be shown, with photos | found | shown |", "| --- | ---: | --- |"]
    return "\n".join([*head, *rows])


def used(outcomes: list[Outcome]) -> str:
    """How each rival is used."""
    names = {name for outcome in outcomes for name in (*outcome.runs, *outcome.failed)}
    rows = [f"| {rival.title} | {rival.means} |" for rival in RIVALS if rival.name in names]
    return "\n".join(["| | is used as |", "| --- | --- |", *rows])


def section(outcome: Outcome) -> list[str]:
    """A scenario's table."""
    scenario, data = outcome.scenario, outcome.data
    found = lines(outcome)
    limit = {line.rival.name: line for line in found}.get("libjpeg-turbo")
    rows = [cells(line, limit) for line in found]
    rows += [
        (named(name).title, "not run: " + why.replace("|", "\\|"), *[""] * (len(HEAD) - 2))
        for name, why in outcome.failed.items()
    ]
    table = [HEAD, ("---", *["---:"] * (len(HEAD) - 2), "---"), *rows]
    limited = f", at most {scenario.max_pixels} pixels after resizing" * bool(scenario.max_pixels)
    words = (
        f"{data.samples} images, {data.pixels / data.samples / 1e6:.2f} megapixels and "
        f"{data.bytes / data.samples / 1e3:.0f} KB each in the mean{limited}; batches of "
        f"{scenario.batch_size}; the trainer's step is {outcome.step_seconds * 1000:.0f} ms."
    )
    return [
        f"### {scenario.name}: {scenario.words}",
        words,
        "\n".join(f"| {' | '.join(row)} |" for row in table),
    ]


def cells(line: Line, limit: Line | None) -> tuple[str, ...]:
    """A line of the table, under `HEAD`."""
    of_limit = f"{line.images_per_second / limit.images_per_second:.2f}" if limit else ""
    is_limit = line.rival.kind == "limit"
    return (
        line.rival.title,
        f"{line.images_per_second:.1f} ±{line.spread / 2:.0%}",
        of_limit,
        f"{line.cpu_seconds_per_image * 1000:.1f} ms",
        f"{line.peak_memory_bytes / 1e6:.0f} MB",
        "" if is_limit else percent(line.wait_ratios[0]),
        "" if is_limit else percent(line.wait_ratios[1]),
        f"{line.first_batch_seconds:.2f} s",
        f"{line.copied_bytes_per_image / 1e6:.0f} MB",
        "" if is_limit else pixels(line.same),
    )


def pixels(same: dict[str, Any] | None) -> str:
    """How they compare with the reference's."""
    if same is None:
        return "not compared"
    if not same["pixel_levels_most"]:
        return "equal"
    return f"{same['pixel_levels_most']:.2g} of 255 off at most"


def plot(outcomes: list[Outcome]) -> str:
    """Bars of images per second, a group for each scenario."""
    parts, at = [], 10
    for outcome in outcomes:
        found = lines(outcome)
        most = max((line.images_per_second for line in found), default=1.0)
        words = escape(outcome.scenario.words)
        parts.append(f'<text x="0" y="{at + 12}" font-weight="bold">{words}</text>')
        at += 22
        for line in found:
            parts.append(drawn(line, most, at))
            at += BAR
        at += 16
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {at}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="12" fill="#222">\n'
        f'<rect width="{WIDTH}" height="{at}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def drawn(line: Line, most: float, at: int) -> str:
    """A rival's bar; the longest of its scenario fills the width."""
    pace = line.images_per_second
    end = LABEL + (WIDTH - LABEL - 60) * pace / most
    return (
        f'<text x="{LABEL - 8}" y="{at + 12}" text-anchor="end">{escape(line.rival.title)}</text>'
        f'<rect x="{LABEL}" y="{at + 1}" width="{end - LABEL:.1f}" height="{BAR - 5}" '
        f'fill="{COLOURS[line.rival.kind]}"/>'
        f'<text x="{end + 6:.1f}" y="{at + 12}">{pace:.0f}</text>'
    )
