"""The order of samples, written from `docs/rooms/plan.md` alone and without looking at the engine.

As plain as can be: it draws the mixture position by position. `python model.py` writes the golden
orders to `orders.json` and runs that end to `ends.json`, which the engine's tests compare with;
`python/tests/test_order.py` checks that the files are what this program writes.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import struct
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WORD = (1 << 64) - 1
HERE = Path(__file__).parent


def mix(x: int) -> int:
    """SplitMix64's finaliser."""
    z = (x + 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def permute(n: int, key: list[int], i: int) -> int:
    """Where `i` goes in the keyed permutation of `0..n`."""
    half = max(1, -(-(n - 1).bit_length() // 2))
    mask = (1 << half) - 1
    base = 0
    for word in key:
        base = mix(base ^ word)
    rounds = [mix((base + number) & WORD) for number in range(1, 7)]
    v = i
    while True:
        left, right = v >> half, v & mask
        for k in rounds:
            left, right = right, left ^ (mix(right ^ k) & mask)
        v = (left << half) | right
        if v < n:
            return v


@dataclass(frozen=True)
class Dataset:
    """A dataset as the order knows it; at most one of weight and epochs."""

    shards: tuple[int, ...]
    weight: str | None = None
    epochs: str | None = None

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(self.shards)


@dataclass(frozen=True)
class Recipe:
    """What decides the order."""

    datasets: tuple[Dataset, ...]
    seed: int = 0
    shuffle: str = "full"
    window: int = 16
    temperature: float | None = None
    # First position and the weights of all datasets.
    stages: tuple[tuple[int, tuple[str, ...]], ...] = field(default=())


def nearest(number: Fraction) -> int:
    """The nearest whole number, halves up."""
    return math.floor(number + Fraction(1, 2))


def billionths(decimal: str) -> int:
    """A decimal as a whole number."""
    return nearest(Fraction(decimal) * 10**9)


def weights_at_first(recipe: Recipe) -> list[int]:
    """The whole-numbered weights of the first stage."""
    if recipe.temperature not in (None, 1):
        sizes = [float(one.rows) ** (1.0 / recipe.temperature) for one in recipe.datasets]
        whole = sum(sizes)
        return [max(1, math.floor(size / whole * 2.0**32 + 0.5)) for size in sizes]
    weights = []
    for one in recipe.datasets:
        if one.weight is not None:
            weights.append(billionths(one.weight))
        elif one.epochs is not None:
            samples = nearest(Fraction(billionths(one.epochs) * one.rows, 10**9))
            weights.append(max(1, samples))
        else:
            weights.append(one.rows)
    return weights


def cycle(weights: dict[int, int]) -> Iterator[int]:
    """The datasets that are drawn, without end, for a small sum."""
    whole, m = sum(weights.values()), 2 * len(weights) - 2
    drawn = dict.fromkeys(weights, 0)
    if m == 0:
        while True:
            yield from weights
    period = []
    for n in range(1, whole + 1):
        ready = []
        for dataset, a in weights.items():
            x = drawn[dataset]
            if n >= -(-(x * m + 1) * whole // (m * a)):
                ready.append((-(-(x * m + m - 1) * whole // (m * a)), dataset))
        _, dataset = min(ready)
        drawn[dataset] += 1
        period.append(dataset)
    while True:
        yield from period


@dataclass
class Node:
    """A joined node; `n` counts the positions that came to it."""

    weight: int
    left: Node | int
    right: Node | int
    left_weight: int
    n: int = 0

    def left_of(self, n: int) -> int:
        """How many of the first `n` positions go to the left."""
        return (2 * n * self.left_weight + self.weight) // (2 * self.weight)

    def draw(self) -> int:
        """The dataset of the next position."""
        goes_left = self.left_of(self.n + 1) > self.left_of(self.n)
        self.n += 1
        child = self.left if goes_left else self.right
        return child.draw() if isinstance(child, Node) else child


def tree(weights: dict[int, int]) -> Iterator[int]:
    """The datasets that are drawn, without end, for a large sum."""
    loose: list = [(weight, 0, dataset, dataset) for dataset, weight in weights.items()]
    heapq.heapify(loose)
    age = 0
    while len(loose) > 1:
        (a, *_, left), (b, *_, right) = heapq.heappop(loose), heapq.heappop(loose)
        heapq.heappush(loose, (a + b, 1, age, Node(a + b, left, right, a)))
        age += 1
    root = loose[0][-1]
    while True:
        yield root.draw() if isinstance(root, Node) else root


def mixture(weights: list[int]) -> Iterator[int]:
    """The datasets that are drawn, without end."""
    divisor = math.gcd(*weights)
    drawn = {dataset: weight // divisor for dataset, weight in enumerate(weights) if weight}
    return cycle(drawn) if sum(drawn.values()) <= 65536 else tree(drawn)


@cache
def blocks_in_order(recipe: Recipe, d: int, e: int) -> list[range]:
    """The blocks of a dataset in the order of an epoch."""
    blocks, first = [], 0
    for r in recipe.datasets[d].shards:
        c = -(-r // 1024)
        for block in range(c):
            size = r // c + (block < r % c)
            blocks.append(range(first, first + size))
            first += size
    key = [recipe.seed, d, 2, e]
    return [blocks[permute(len(blocks), key, j)] for j in range(len(blocks))]


@cache
def rows_of_window(recipe: Recipe, d: int, e: int, w: int) -> list[int]:
    """The rows of a window as they are drawn."""
    blocks = blocks_in_order(recipe, d, e)[w * recipe.window : (w + 1) * recipe.window]
    rows = [row for block in blocks for row in block]
    key = [recipe.seed, d, 3, mix(e ^ mix(w))]
    return [rows[permute(len(rows), key, i)] for i in range(len(rows))]


def row_at(recipe: Recipe, d: int, q: int) -> int:
    """The row at a place of a dataset's stream."""
    rows = recipe.datasets[d].rows
    e, i = divmod(q, rows)
    if recipe.shuffle == "none":
        return i
    if recipe.shuffle == "full":
        return permute(rows, [recipe.seed, d, 0, e], i)
    w = 0
    while i >= len(rows_of_window(recipe, d, e, w)):
        i -= len(rows_of_window(recipe, d, e, w))
        w += 1
    return rows_of_window(recipe, d, e, w)[i]


def spare(recipe: Recipe, d: int, q: int, attempt: int) -> int:
    """The row that stands in at a place."""
    rows = recipe.datasets[d].rows
    e, i = divmod(q, rows)
    return permute(rows, [recipe.seed, d, 1, mix(e ^ mix(attempt))], i)


def places(recipe: Recipe) -> Iterator[tuple[int, int]]:
    """Dataset and place of each position, without end."""
    stages = [(0, weights_at_first(recipe))]
    stages += [(start, [billionths(w) for w in weights]) for start, weights in recipe.stages]
    ends = [start for start, _ in stages[1:]] + [None]
    drawn = [0] * len(recipe.datasets)
    for (start, weights), end in zip(stages, ends, strict=True):
        draws = mixture(weights)
        position = start
        while end is None or position < end:
            dataset = next(draws)
            yield dataset, drawn[dataset]
            drawn[dataset] += 1
            position += 1


def samples(recipe: Recipe, count: int) -> Iterator[tuple[int, int]]:
    """Dataset and row of the first positions."""
    for (dataset, place), _ in zip(places(recipe), range(count), strict=False):
        yield dataset, row_at(recipe, dataset, place)


def order_hash(recipe: Recipe, count: int) -> str:
    """SHA-256 over the first samples: dataset as u32, row as u64, little-endian."""
    digest = hashlib.sha256()
    for sample in samples(recipe, count):
        digest.update(struct.pack("<IQ", *sample))
    return digest.hexdigest()


def epoch(recipe: Recipe) -> int:
    """Samples of one epoch of the recipe."""
    if any(one.epochs is not None for one in recipe.datasets):
        return sum(weights_at_first(recipe))
    return sum(one.rows for one in recipe.datasets)


@dataclass(frozen=True)
class End:
    """A run that ends, and where it goes on."""

    recipe: Recipe
    batch_size: int
    epochs: int
    remainder: str
    ranks: int
    start: int

    def by_rank(self) -> list[list[list[tuple[int, int] | None]]]:
        """The batches of each rank; None is padding."""
        end = self.epochs * epoch(self.recipe)

        def wholes(parts: int, size: int) -> int:
            return parts // size if self.remainder == "drop" else -(-parts // size)

        left = max(0, wholes(end, self.batch_size) - self.start)
        steps = wholes(left, self.ranks)
        count = (self.start + steps * self.ranks) * self.batch_size
        stream: list[tuple[int, int] | None] = list(samples(self.recipe, count))
        if self.remainder == "pad":
            stream[end:] = [None] * max(0, count - end)
        batches = [stream[at : at + self.batch_size] for at in range(0, count, self.batch_size)]
        return [batches[self.start + rank :: self.ranks] for rank in range(self.ranks)]


def cases() -> dict[str, Recipe]:
    """Recipes that between them take every path of the page."""

    def by(shares: dict[str, tuple[int, ...]], key: str) -> tuple[Dataset, ...]:
        return tuple(Dataset(shards, **{key: share}) for share, shards in shares.items())

    weights = {"3": (500,), "1": (70, 0, 41), "0.5": (1,), "0": (10,)}
    odd = {"0.123456789": (900,), "7.5": (333,), "1000000": (4096,), "0.000001": (5,), "2": (77,)}
    blocks = (Dataset((3000, 1, 0, 5000, 1024), "2"), Dataset((1025,), "1"))
    sized = (Dataset((100_000,)), Dataset((7,)), Dataset((33_333, 1)))
    changing = ((700, ("0", "1", "0.25", "2")), (1500, ("0.123456789", "1", "0", "9.1")))
    return {
        "one": Recipe((Dataset((1000,)),)),
        "one-unshuffled": Recipe((Dataset((9,)),), shuffle="none"),
        "weights": Recipe(by(weights, "weight"), seed=7),
        "many-equal": Recipe(tuple(Dataset((50 + i,), "1") for i in range(100)), seed=1),
        "odd-weights": Recipe(by(odd, "weight"), seed=(1 << 63) - 1),
        "epochs": Recipe(by({"2": (100_003,), "0.25": (4001,), "12.5": (13,)}, "epochs")),
        "rows": Recipe(sized, seed=3),
        "temperature": Recipe(sized, temperature=3.0),
        "stages": Recipe(by(weights, "weight"), seed=11, stages=changing),
        "blocks": Recipe(blocks, seed=5, shuffle="block", window=3),
        "blocks-in-one-window": Recipe((Dataset((10, 20)),), shuffle="block"),
    }


def ends() -> list[End]:
    """Runs that end in all ways."""
    one = Recipe((Dataset((10,)),), seed=6)
    rows = Recipe((Dataset((13,)), Dataset((4,)), Dataset((1,))), shuffle="none")
    epochs = Recipe(
        (Dataset((9,), epochs="1"), Dataset((7,), epochs="2"), Dataset((6,), epochs="0.5"))
    )
    return [
        End(recipe, batch_size, times, remainder, ranks, start)
        for recipe, batch_size, times in [(one, 4, 1), (rows, 3, 2), (epochs, 5, 1)]
        for remainder in ["fill", "pad", "drop"]
        for ranks in [1, 2, 4, 8]
        for start in [0, 1, 3, 99]
    ]


# Enough for several epochs of most datasets and several periods of most mixtures.
COUNT = 20_000


def described(recipe: Recipe) -> dict:
    """What decides the order, as the golden files have it."""
    return {
        "seed": recipe.seed,
        "shuffle": recipe.shuffle,
        "window": recipe.window if recipe.shuffle == "block" else None,
        "temperature": recipe.temperature,
        "datasets": [
            {"shards": one.shards, "weight": one.weight, "epochs": one.epochs}
            for one in recipe.datasets
        ],
        "stages": [{"from": start, "weights": w} for start, w in recipe.stages],
    }


def golden() -> list[dict]:
    """What `orders.json` holds: the first samples, a spare for each of them, and an order hash."""
    entries = []
    for name, recipe in cases().items():
        first = [list(sample) for sample in samples(recipe, 12)]
        start = list(zip(places(recipe), range(12), strict=False))
        spares = [spare(recipe, d, q, 1 + n % 3) for n, ((d, q), _) in enumerate(start)]
        entries.append(
            {
                "name": name,
                **described(recipe),
                "first": first,
                "spares": spares,
                "count": COUNT,
                "sha256": order_hash(recipe, COUNT),
            }
        )
    return entries


def golden_ends() -> list[dict]:
    """What `ends.json` holds: the batches of each rank."""
    return [
        {
            **described(end.recipe),
            "batch_size": end.batch_size,
            "epochs": end.epochs,
            "remainder": end.remainder,
            "ranks": end.ranks,
            "start": end.start,
            "by_rank": end.by_rank(),
        }
        for end in ends()
    ]


def written(entries: list[dict]) -> str:
    """A golden file as it should be."""
    return "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n"


def files() -> dict[str, str]:
    """All golden files."""
    return {"orders.json": written(golden()), "ends.json": written(golden_ends())}


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).write_text(text)
