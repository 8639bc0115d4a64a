"""What is loaded: photos of some sizes, chats about them, and a store of some latency."""

from __future__ import annotations

from dataclasses import dataclass, replace

NEAREST = ("libjpeg-turbo", "dataloader", "spdl", "stoker-f32", "stoker-u8")
"""In each scenario: the limit, what people have, what comes nearest, and stoker."""
EVERY = ()
"""All adapters."""


@dataclass(frozen=True)
class Scenario:
    """One job."""

    name: str
    words: str
    pixels: tuple[int, int]
    """Fewest and most of a photo; small ones are more frequent."""
    samples: int
    batch_size: int
    profile: str = "hot"
    """Latency of the store."""
    max_pixels: int | None = None
    """Most pixels after resizing; None for the model's own limit, which none of them meets."""
    answer_words: int = 30
    source: str = "objects"
    """Where stoker reads: objects of their own, or `tar` archives."""
    adapters: tuple[str, ...] = NEAREST
    """Which are run where all scenarios are, to keep it short; `EVERY` is all of them."""

    def smaller(self, samples: int, pixels: tuple[int, int], batch_size: int) -> Scenario:
        """The same of less data."""
        return replace(self, samples=samples, pixels=pixels, batch_size=batch_size)


MEGAPIXEL = (950_000, 1_050_000)

SCENARIOS = (
    Scenario(
        name="photos",
        words="photos of 1 megapixel, as objects, hot",
        pixels=MEGAPIXEL,
        samples=192,
        batch_size=8,
        adapters=EVERY,
    ),
    Scenario(
        name="standard",
        words="the same photos, from a store as slow as S3 Standard",
        pixels=MEGAPIXEL,
        samples=192,
        batch_size=8,
        profile="standard",
    ),
    Scenario(
        name="tar",
        words="the same photos, in tar archives, hot",
        pixels=MEGAPIXEL,
        samples=192,
        batch_size=8,
        source="tar",
        adapters=("libjpeg-turbo", "webdataset", "megatron-energon", "stoker-f32", "stoker-u8"),
    ),
    Scenario(
        name="mixed",
        words="photos of 0.2 to 12 megapixels",
        pixels=(200_000, 12_000_000),
        samples=64,
        batch_size=2,
    ),
    Scenario(
        name="limited",
        words="photos of 1 to 2 megapixels, resized to at most 400 visual tokens",
        pixels=(1_000_000, 2_000_000),
        samples=192,
        batch_size=8,
        max_pixels=400 * 32 * 32,
    ),
    Scenario(
        name="text",
        words="photos of 0.2 megapixels, with answers of 900 words",
        pixels=(190_000, 210_000),
        samples=192,
        batch_size=8,
        answer_words=900,
    ),
)
