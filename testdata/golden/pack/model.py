"""Which samples share a batch, written from `docs/rooms/pack.md` alone and without looking at the
engine.

As plain as can be. `python model.py` writes the golden batches to `batches.json`, which the engine's
tests compare with; `python/tests/test_order.py` checks that the file is what this program writes.
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
            if (not lacking or batch.sums[1] < least) and limits.allow(plus(batch.sums, sample.sums))
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


def window(stream: list[Sample], lanes: int, limits: Limits) -> list[list[int]]:
    """The batches of the window that the stream begins with, in the order that they come."""
    rounds = rounds_of(lanes)
    count = lanes * rounds
    length, sums = 0, [0, 0, 0]
    while all(have <= most * count for have, most in zip(sums, limits.most, strict=True)):
        sums = plus(sums, stream[length].sums)
        length += 1
    placed = None
    while placed is None:
        length -= 1
        placed = place(stream[:length], count, limits)
    ranked = sorted(placed, key=lambda batch: (-batch.cost, min(batch.numbers)))
    bits = rounds.bit_length() - 1

    def reverse(number: int) -> int:
        return int(f"{number:0{bits}b}"[::-1], 2)

    turns = range(count)
    return [sorted(ranked[reverse(n // lanes) * lanes + n % lanes].numbers) for n in turns]


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


def written() -> str:
    """The golden file."""
    cases = []
    for seed, (lanes, limits) in enumerate(CASES):
        stream = samples_of(seed, 590)
        batches = window(stream, lanes, Limits(**limits))
        used = stream[: sum(map(len, batches)) + 40]
        cases.append(
            {
                "lanes": lanes,
                **limits,
                "samples": [[sample.tokens, sample.images] for sample in used],
                "batches": batches,
            }
        )
    return "[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n"


if __name__ == "__main__":
    (HERE / "batches.json").write_text(written())
