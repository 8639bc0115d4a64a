"""What was found, for programs: medians over the rounds, and what the bench is to show."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.demo.results import Claim, percent

from bench.speed.rivals import RIVALS, Rival

if TYPE_CHECKING:
    from bench.speed.runner import Outcome

MAIN = "photos"
"""The scenario that the ratios are asked for in."""
OF_LIMIT = {"u8": 0.75, "bf16": 0.65, "f32": 0.60}
OF_FASTEST = 6.0
OF_DATA_LOADER = {"f32": 14.0, "u8": 18.0}
CPU_OF_FASTEST = 0.5
WAITS = (("the demo's trainer", 0.01), ("a trainer three times as fast", 0.10))
HAND_OVER_SECONDS = 50e-6


class Line(NamedTuple):
    """A rival's medians in a scenario."""

    rival: Rival
    images_per_second: float
    cpu_seconds_per_image: float
    peak_memory_bytes: float
    wait_ratios: tuple[float, float]
    """With the demo's trainer, and with the faster one."""
    hand_over_seconds: float
    """Of a batch that is ready, right after another."""
    cold_hand_over_seconds: float
    """Of a batch that is ready, after a sleep."""
    first_batch_seconds: float
    copied_bytes_per_image: float
    same: dict[str, Any] | None
    spread: float
    """Largest less smallest pace of the rounds, by the median."""


def lines(outcome: Outcome) -> list[Line]:
    """Those that were measured, the fastest first."""
    found = [line(rival, runs) for rival in RIVALS if (runs := outcome.runs.get(rival.name))]
    return sorted(found, key=lambda line: -line.images_per_second)


def line(rival: Rival, runs: list[dict[str, Any]]) -> Line:
    """Medians of the runs of a rival."""

    def middle(name: str) -> float:
        return median(run[name] for run in runs)

    paces = [run["images_per_second"] for run in runs]
    first, second = (median(run["trained"][n]["wait_ratio"] for run in runs) for n in range(2))
    return Line(
        rival=rival,
        images_per_second=middle("images_per_second"),
        cpu_seconds_per_image=middle("cpu_seconds_per_image"),
        peak_memory_bytes=middle("peak_memory_bytes"),
        wait_ratios=(first, second),
        hand_over_seconds=median(median(run["hand_overs"]["warm"]) for run in runs),
        cold_hand_over_seconds=median(median(run["hand_overs"]["cold"]) for run in runs),
        first_batch_seconds=middle("first_batch_seconds"),
        copied_bytes_per_image=rival.copies * middle("pixel_bytes_per_image"),
        same=runs[0]["same"],
        spread=(max(paces) - min(paces)) / median(paces),
    )


def summary(outcomes: list[Outcome]) -> dict[str, dict[str, dict[str, float]]]:
    """What `bench.json` holds. Memory and bytes in bytes, times in seconds."""
    return {
        outcome.scenario.name: {
            line.rival.name: {
                "images_per_second": line.images_per_second,
                "cpu_seconds_per_image": line.cpu_seconds_per_image,
                "peak_rss_bytes": line.peak_memory_bytes,
                "wait_ratio": line.wait_ratios[0],
                "first_batch_seconds": line.first_batch_seconds,
                "bytes_copied_per_image": line.copied_bytes_per_image,
            }
            for line in lines(outcome)
        }
        for outcome in outcomes
    }


def claims(outcome: Outcome) -> list[Claim]:
    """What the bench is to show in its main scenario, as far as it was measured."""
    found = {line.rival.name: line for line in lines(outcome)}
    ours = {pixels: found.get(f"stoker-{pixels}") for pixels in OF_LIMIT}
    ours = {pixels: line for pixels, line in ours.items() if line}
    rivals = [line for line in found.values() if line.rival.kind in {"loader", "image step"}]
    limit, plain = found.get("libjpeg-turbo"), found.get("dataloader")
    claimed = []
    for pixels, line in ours.items():
        pace = line.images_per_second
        if limit:
            least = OF_LIMIT[pixels]
            words = f"{pixels}: from the store to patches at {least} of libjpeg-turbo alone"
            claimed.append(at_least(words, pace / limit.images_per_second, least))
        if plain and pixels in OF_DATA_LOADER:
            least = OF_DATA_LOADER[pixels]
            words = f"{pixels}: {least:g} times torch's DataLoader"
            claimed.append(at_least(words, pace / plain.images_per_second, least, "x"))
    if rivals and "f32" in ours:
        claimed += against(ours["f32"], rivals)
    for line in ours.values():
        name = line.rival.title
        for (trainer, most), ratio in zip(WAITS, line.wait_ratios, strict=True):
            words = f"{name}: {trainer} waits at most {percent(most)}"
            claimed.append(Claim(words, percent(ratio), ratio <= most))
        words = f"{name}: a batch that is ready is handed over in {HAND_OVER_SECONDS * 1e6:.0f} µs"
        cold = f"{line.cold_hand_over_seconds * 1e6:.0f} µs after a sleep"
        told = f"{line.hand_over_seconds * 1e6:.0f} µs ({cold})"
        claimed.append(Claim(words, told, line.hand_over_seconds <= HAND_OVER_SECONDS))
    return claimed


def against(ours: Line, rivals: list[Line]) -> list[Claim]:
    """Stoker with the rivals' own output against the fastest of them."""
    fastest = max(rivals, key=lambda line: line.images_per_second)
    name = fastest.rival.title
    pace = ours.images_per_second / fastest.images_per_second
    cpu = ours.cpu_seconds_per_image / fastest.cpu_seconds_per_image
    leanest = min(rivals, key=lambda line: line.peak_memory_bytes)
    memory = ours.peak_memory_bytes / leanest.peak_memory_bytes
    return [
        at_least(f"f32: {OF_FASTEST:g} times the fastest rival, {name}", pace, OF_FASTEST, "x"),
        Claim(
            f"f32: at most half of the CPU time of {name} for an image",
            f"{cpu:.2f}",
            cpu <= CPU_OF_FASTEST,
        ),
        Claim(
            f"f32: less memory than any rival, which is {leanest.rival.title}",
            f"{memory:.2f}x",
            memory < 1,
        ),
    ]


def at_least(words: str, ratio: float, least: float, unit: str = "") -> Claim:
    """A ratio that is to be reached."""
    return Claim(words, f"{ratio:.2f}{unit}", ratio >= least)
