"""Which samples share a batch, written from `docs/rooms/pack.md` alone and without looking at the
engine.

As plain as can be. `python model.py` writes the golden batches to `batches.json`, and those of runs that
end to `passes.json`, which the engine's tests compare with; `python/tests/test_order.py` checks that the
files are what this program writes, and loaders against it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Sample:
    """What is known of a sample: its tokens, and the patches of each of its images."""

    tokens: int
    images: list[int]

    @cached_property
    def sums(self) -> list[int]:
        """Tokens, images and patches."""
        return [self.tokens, len(self.images), sum(self.images)]

    @cached_property
    def cost(self) -> int:
        seen = sum(661651 * p + 98 * p * p for p in self.images)
        return 8044544 * self.tokens + 294 * self.tokens * self.tokens + seen


@dataclass
class Limits:
    """The keys of `[pack]`."""

    max_tokens: int
    max_images: int | None = None
    max_patches: int | None = None
    min_images_per_batch: int = 0
    pad_to_multiple: int = 1

    @cached_property
    def most(self) -> list[float]:
        """Of tokens, images and patches."""
        tokens = self.max_tokens // self.pad_to_multiple * self.pad_to_multiple
        no_limit = float("inf")
        return [tokens, self.max_images or no_limit, self.max_patches or no_limit]

    def allow(self, sums: list[int]) -> bool:
        lacking = max(0, self.min_images_per_batch - sums[1])
        needed = [sums[0] + 3 * lacking, sums[1] + lacking, sums[2] + 4 * lacking]
        return all(have <= most for have, most in zip(needed, self.most, strict=True))


def plus(some: list[int], more: list[int]) -> list[int]:
    return [one + other for one, other in zip(some, more, strict=True)]


@dataclass
class Batch:
    numbers: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=lambda: [0, 0, 0])
    cost: int = 0


def place(samples: list[Sample], count: int, limits: Limits) -> list[Batch] | None:
    """The samples in so many batches; None if one finds no room."""
    batches = [Batch() for _ in range(count)]

    def put(number: int, *, lacking: bool) -> bool:
        sample = samples[number]
        least = limits.min_images_per_batch
        may = [
            (batch.cost, index)
            for index, batch in enumerate(batches)
            if (not lacking or batch.sums[1] < least)
            and limits.allow(plus(batch.sums, sample.sums))
        ]
        if not may:
            return False
        batch = batches[min(may)[1]]
        batch.numbers.append(number)
        batch.sums = plus(batch.sums, sample.sums)
        batch.cost += sample.cost
        return True

    falling = sorted(range(len(samples)), key=lambda number: (-samples[number].tokens, number))
    waiting = [n for n in falling if not (samples[n].images and put(n, lacking=True))]
    return batches if all(put(number, lacking=False) for number in waiting) else None


def rounds_of(lanes: int) -> int:
    rounds = 1
    while rounds < 8 or rounds * lanes < 64:
        rounds *= 2
    return rounds


def in_turn(placed: list[Batch], lanes: int) -> list[list[int]]:
    """The batches in the order that they come."""
    ranked = sorted(placed, key=lambda batch: (-batch.cost, min(batch.numbers)))
    whole = len(ranked) // lanes
    bits = 0
    while 2**bits < whole:
        bits += 1
    order = [int(f"{number:0{bits}b}"[::-1], 2) for number in range(2**bits)] if bits else [0]
    rounds = [ranked[number * lanes :][:lanes] for number in order if number < whole]
    return [sorted(batch.numbers) for batch in sum(rounds, []) + ranked[whole * lanes :]]


def window(
    stream: list[Sample],
    lanes: int,
    limits: Limits,
    rounds: int,
    left: int | None = None,
) -> tuple[list[list[int]], bool]:
    """The batches of the window that the stream begins with, and whether a run that has so many
    samples left ends with it."""
    count = lanes * rounds
    length, sums = 0, [0, 0, 0]
    while length != left and all(
        have <= most * count for have, most in zip(sums, limits.most, strict=True)
    ):
        sums = plus(sums, stream[length].sums)
        length += 1
    while (placed := place(stream[:length], count, limits)) is None:
        length -= 1
    if length != left:
        return in_turn(placed, lanes), False
    least = 1
    while least < count:
        middle = (least + count) // 2
        fewer = place(stream[:length], middle, limits)
        if fewer is None:
            least = middle + 1
        else:
            placed, count = fewer, middle
    return in_turn(placed, lanes), True


def run(
    stream: list[Sample], samples: int, lanes: int, limits: Limits
) -> tuple[list[list[int]], list[list[int]]]:
    """The positions in each batch of a run over so many samples, and in each behind its end."""
    batches: list[list[int]] = []
    start, ends = 0, False

    def moved(some: list[list[int]]) -> list[list[int]]:
        return [[start + number for number in batch] for batch in some]

    while not ends:
        some, ends = window(stream[start:], lanes, limits, rounds_of(lanes), samples - start)
        batches += moved(some)
        start += sum(map(len, some))
    return batches, moved(window(stream[start:], lanes, limits, 1)[0])


def samples_of(seed: int, longest: int) -> list[Sample]:
    """Texts, photos and albums."""
    draw = random.Random(seed)
    samples = []
    for _ in range(900):
        sides = [2 * draw.randint(1, 12) for _ in range(draw.choice([0, 0, 1, 1, 1, 3]))]
        images = [side * side for side in sides]
        tokens = draw.randint(10, 200) + sum(patches // 4 + 2 for patches in images)
        samples.append(Sample(min(tokens, longest), images))
    return samples


CASES = [
    (6, {"max_tokens": 1000}),
    (6, {"max_tokens": 1000, "min_images_per_batch": 1, "pad_to_multiple": 64}),
    (8, {"max_tokens": 600, "min_images_per_batch": 3, "max_images": 5}),
    (1, {"max_tokens": 1200, "max_patches": 1728}),
]


PASSES = [
    (6, 700, {"max_tokens": 1000}),
    (4, 431, {"max_tokens": 1000, "min_images_per_batch": 1, "pad_to_multiple": 64}),
    (16, 37, {"max_tokens": 600, "max_images": 5}),
    (8, 1, {"max_tokens": 600, "max_patches": 1728}),
    (1, 500, {"max_tokens": 800, "max_patches": 1728}),
]


def of_case(lanes: int, limits: dict, used: list[Sample], **more: object) -> dict:
    samples = [[sample.tokens, sample.images] for sample in used]
    return {"lanes": lanes, **limits, "samples": samples, **more}


def as_text(cases: list[dict]) -> str:
    return "[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n"


def passes_written() -> str:
    """The golden file of runs that end."""
    cases = []
    for seed, (lanes, length, limits) in enumerate(PASSES):
        stream = samples_of(100 + seed, 590)
        batches, behind = run(stream, length, lanes, Limits(**limits))
        used = stream[: length + sum(map(len, behind)) + 40]
        cases.append(of_case(lanes, limits, used, length=length, batches=batches, behind=behind))
    return as_text(cases)


def written() -> str:
    """The golden file."""
    cases = []
    for seed, (lanes, limits) in enumerate(CASES):
        stream = samples_of(seed, 590)
        batches, _ = window(stream, lanes, Limits(**limits), rounds_of(lanes))
        used = stream[: sum(map(len, batches)) + 40]
        cases.append(of_case(lanes, limits, used, batches=batches))
    return as_text(cases)


if __name__ == "__main__":
    (HERE / "batches.json").write_text(written())
    (HERE / "passes.json").write_text(passes_written())
