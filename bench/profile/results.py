"""What was measured, as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.demo.results import percent

from bench.page import table

if TYPE_CHECKING:
    from bench.profile.rooms import Works

NAME = "profile"
PIXELS = ("f32", "bf16", "u8")
STEPS = {
    "plan": "plan",
    "dataset": "dataset",
    "text": "text",
    "image: header": "image: header",
    "image: decode": "image: decode",
    "vision": "vision: {pixels}, resized",
    "pack: layout": "pack: layout",
    "pack: text": "pack: text",
}
"""What an image goes through, and the work that it is. Most photographs are resized."""


def figures(counted: Works, timed: dict[str, Any], machine: str) -> str:
    """All of it."""
    return "\n\n".join(
        [
            image_table(timed),
            text_share(timed),
            works_table(counted, timed["works"]),
            f"{machine}.",
        ]
    )


def image_table(timed: dict[str, Any]) -> str:
    """Where the time of an image goes, by the type of its pixels."""
    chain = timed["chain"]
    times = {pixels: steps(timed["works"], pixels) for pixels in PIXELS}
    for pixels, of_steps in times.items():
        of_steps["engine, files, memory"] = chain[pixels] - sum(of_steps.values())
        of_steps["all"] = chain[pixels]
    rows = [
        [step, *(cell for p in PIXELS for cell in of_all(times[p][step], chain[p]))]
        for step in times[PIXELS[0]]
    ]
    return table(["an image", *(word for p in PIXELS for word in (f"`{p}`", "of it"))], rows)


def steps(works: Works, pixels: str) -> dict[str, float]:
    """Nanoseconds of each step of an image."""
    return {step: works[name.format(pixels=pixels)]["nanoseconds"] for step, name in STEPS.items()}


def of_all(nanoseconds: float, all_nanoseconds: float) -> tuple[str, str]:
    """A time, and how much of an image's that is."""
    return readable(nanoseconds), percent(nanoseconds / all_nanoseconds)


def text_share(timed: dict[str, Any]) -> str:
    """How much of the cheapest image's time its text takes."""
    cheapest = min(timed["chain"], key=timed["chain"].__getitem__)
    share = timed["works"]["text"]["nanoseconds"] / timed["chain"][cheapest]
    return f"Text takes {share:.2%} of the processor time of an image as `{cheapest}`."


def works_table(counted: Works, timed: Works) -> str:
    """What an item of each work takes."""
    head = ["an item of", "time", "instructions", "a nanosecond", "allocations", "bytes of them"]
    rows = [
        [
            name,
            readable(timed[name]["nanoseconds"]),
            f"{work['instructions']:,.0f}",
            f"{work['instructions'] / timed[name]['nanoseconds']:.1f}",
            f"{timed[name]['allocations']:,.1f}",
            f"{timed[name]['allocated_bytes']:,.0f}",
        ]
        for name, work in counted.items()
    ]
    return table(head, rows)


def readable(nanoseconds: float) -> str:
    """A time in a unit that suits it."""
    if nanoseconds < 1e3:
        return f"{nanoseconds:.0f} ns"
    return f"{nanoseconds / 1e3:.1f} µs" if nanoseconds < 1e5 else f"{nanoseconds / 1e6:.2f} ms"
