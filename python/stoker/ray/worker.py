"""The data worker: an actor with threads, around one engine that makes any batch it is asked for.

Its calls wait in the engine without the GIL. A finished batch is returned as one buffer, which Ray
copies into shared memory once. Beside it goes a small answer that Ray sends along with the reply,
so that the size is known, and what went wrong, before anything is pulled. Pulses have a thread of
their own: they are answered however much is being made.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from stoker.errors import StokerError
from stoker.ray.schedule import URGENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoker import Batch
    from stoker._native import Maker, Window


SLOTS = 8
"""Most batches that a worker makes at once, those apart that others failed to make."""

THREADS = {"make": SLOTS + URGENT, "pulse": 1}
"""Those of the actor, by what they do."""


class Answer(NamedTuple):
    """What comes back beside a batch."""

    nbytes: int
    error: Exception | None = None
    sizes_known: Sequence[int] = ()
    """Of each dataset, how many sizes of samples this host knows."""


class Piece(NamedTuple):
    """A part of one of the index's files."""

    path: str
    offset: int
    size: int
    """Bytes of the whole file."""
    content: bytes


class StokerWorker:
    """Makes batches for one rank.

    Args:
        open_maker: Makes the engine, of a recipe and its overrides: `stoker._native.Maker`.
    """

    def __init__(self, open_maker: Callable[..., Maker]) -> None:
        self._open_maker = open_maker
        self._maker: Maker | None = None
        self._shipped: list[bool] = []

    def lacks(self, files: Sequence[Sequence[tuple[str, int]]]) -> list[str]:
        """Those files of each dataset's index, given with their sizes, that this host lacks."""
        self._shipped = [not all(_lies_at(Path(path), size) for path, size in of) for of in files]
        of_shipped = [of for of, shipped in zip(files, self._shipped, strict=True) if shipped]
        return [
            path for of in of_shipped for path, size in of if not _lies_at(self._kept(path), size)
        ]

    def keep(self, pieces: Sequence[Piece]) -> None:
        """Takes pieces of the index's files."""
        for piece in pieces:
            kept = self._kept(piece.path)
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Other ranks' workers on this host may be at it too; whole files alone get their name.
            growing = kept.with_name(f"{kept.name}.{os.getpid()}")
            with growing.open("r+b" if piece.offset else "wb") as file:
                file.seek(piece.offset)
                file.write(piece.content)
            if piece.offset + len(piece.content) >= piece.size:
                growing.replace(kept)

    def open(self, recipe: dict[str, Any], overrides: dict[str, Any]) -> Answer:
        """Opens the data, and says what is known of it.

        Errors are answers, so that they arrive as what they are.
        """
        recipe = indexed_in(_folder(), recipe, self._shipped)
        try:
            self._maker = self._open_maker(recipe, overrides=overrides)
        except StokerError as error:
            return Answer(0, error)
        return Answer(0, sizes_known=self._maker.sizes_known())

    def add_sizes(self, dataset: int, sizes: bytes) -> None:
        """Takes sizes that the rank knows; see `stoker._native.Maker.add_sizes`."""
        self._maker.add_sizes(dataset, sizes)

    @ray.method(concurrency_group="make", num_returns=2)
    def make(
        self, sequence: int, ahead: Sequence[int], window: Window | None
    ) -> tuple[Answer, Batch | None]:
        """Makes a batch; see `stoker._native.Maker.make`."""
        try:
            batch = self._maker.make(sequence, ahead, window)
        except StokerError as error:
            return Answer(0, error), None
        return Answer(batch.nbytes), batch

    @ray.method(concurrency_group="pulse")
    def pulse(self) -> dict[str, Any] | None:
        """Says that it lives, and what it has done so far."""
        if self._maker is None:
            return None
        return self._maker.report().as_dict() | {"evidence": self._maker.evidence()}

    @staticmethod
    def _kept(path: str) -> Path:
        return _folder() / Path(path).name


def indexed_in(folder: Path, recipe: dict[str, Any], which: Sequence[bool]) -> dict[str, Any]:
    """The recipe, those of whose datasets have their indexes in that folder."""
    if not any(which):
        return recipe
    there = {"index-dir": str(folder)}
    if "datasets" not in recipe:
        return recipe | {"dataset": recipe.get("dataset", {}) | there}
    both = zip(recipe["datasets"], which, strict=True)
    return recipe | {"datasets": [dataset | there if it else dataset for dataset, it in both]}


def _folder() -> Path:
    """Where shipped indexes lie; each user has one, for nobody else may write what is read here."""
    return Path(tempfile.gettempdir()) / f"stoker-index-{os.getuid()}"


def _lies_at(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size
