"""The two halves of a loader, for batches that are made elsewhere.

They are compiled and live in `stoker._native`; this file only describes them, for type checkers and
readers.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeAlias, final

from torch.distributed import DeviceMesh, ProcessGroup

from stoker._batch import Batch
from stoker.report import Report

Window: TypeAlias = tuple[int, int]
"""Number and first position of a window of packed samples; only to be passed on."""

@final
class Maker:
    """Makes any batch of a recipe's global sequence, on demand: what a data worker runs.

    Thread-safe: many calls may wait at once, each with the GIL released; the lowest number has
    precedence for memory and threads. A batch is a function of the recipe and its number, so any
    maker makes the same.

    Args:
        recipe: As for `Loader`.
        overrides: As for `Loader`.

    Raises:
        RecipeError, DatasetError, FetchError: As for `Loader`.
    """

    def __new__(
        cls,
        recipe: str | PathLike[str] | dict[str, Any],
        *,
        overrides: Mapping[str, Any] | None = None,
    ) -> Self: ...
    def make(self, sequence: int, ahead: Sequence[int] = (), window: Window | None = None) -> Batch:
        """Waits until a batch is made.

        Args:
            sequence: Its place in the global sequence, all ranks together, from 0.
            ahead: The batches that will be asked for next: their samples are brought in as far as a
                quarter of `engine.memory` holds them. It replaces what an earlier call said; what
                nobody waits for and nobody announces is given up.
            window: What `Front.window` says. With `pack.max-tokens` a maker that is not told has to
                measure all samples from the first one on.

        Returns:
            The batch. Where samples are packed, one that the run ends before has nothing in it but
            where that is, for `Front.hand_over`.

        Raises:
            FetchError, SampleError, DatasetError, BudgetError, StoppedError: As `next(loader)`.
        """

    def sizes_known(self) -> list[int]:
        """Of each dataset, how many sizes of samples are known on this host; see `Front.sizes`."""

    def add_sizes(self, dataset: int, sizes: bytes) -> None:
        """Takes sizes of a dataset's samples that are known elsewhere; see `Front.sizes`.

        Raises:
            BugError: There is no such dataset.
        """

    def evidence(self) -> dict[str, float]:
        """What an advice is made of, since the beginning: numbers to be added to those of others.

        `blocked_seconds` and `wall_seconds` are the consumer's to know, and 0; the other
        `*_blocked_seconds` are what batches were at while they were asked for.
        """

    def report(self) -> Report:
        """What it has done so far; the waits are those of its consumers, and not in it."""

    def close(self) -> None:
        """Ends all threads, within a second; waiting calls raise StoppedError."""

@final
class Front:
    """What remains of a `Loader` without the making, for batches that are made elsewhere.

    It knows what comes next and counts what is handed over: state, length, report, the judgement on
    bad samples are those of a `Loader`, and the states of both are interchangeable.

    Args:
        recipe, rank, world_size, group, overrides: As for `Loader`.

    Raises:
        RecipeError, DatasetError, FetchError, TypeError, ValueError: As for `Loader`.
    """

    def __new__(
        cls,
        recipe: str | PathLike[str] | dict[str, Any],
        *,
        rank: int | None = None,
        world_size: int | None = None,
        group: DeviceMesh | ProcessGroup | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Self: ...
    def sequence_at(self, steps: int) -> int | None:
        """The place in the global sequence of the batch that comes `steps` after the next one.

        None after the end of a finite run. Where samples are packed the end may not be known yet;
        then a batch that `hand_over` finds to be behind it has a place too.
        """

    def window(self) -> Window | None:
        """Where the window of packed samples begins that the next batch belongs to: for a maker.

        None where batches go by `pack.batch-size`.
        """

    def hand_over(self, batch: Batch, blocked: float) -> Batch | None:
        """Counts the next batch, for which the trainer was blocked so many seconds.

        Returns:
            The batch with its state, over the same memory; None if it shows that the run has ended
            before it, so that it goes to nobody.

        Raises:
            BugError: It is not the one that comes next.
            DatasetError: More samples are unusable than `engine.bad-sample-limit` allows, or the
                ledger can't be written.
        """

    def state_dict(self, *, batches_ago: int | None = None) -> dict[str, Any]:
        """Where to go on after the last batch that was handed over; see `Loader.state_dict`."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was taken.

        Raises:
            CursorError: The state was taken with another recipe or other data, or is damaged.
        """

    def rewind(self) -> None:
        """Goes back to the beginning."""

    def end(self) -> None:
        """Takes note that the trainer sees the end of the run."""

    @property
    def ended(self) -> bool:
        """Whether the end was seen, after which `rewind` is next."""

    def __len__(self) -> int:
        """Batches of this rank in the whole run.

        With `pack.max-tokens` it is known once the last batch was had, or where all samples were
        measured (`stoker index --sizes`): then all are packed once to count, which takes seconds
        for a million.

        Raises:
            TypeError: The run is endless, as it is without `plan.epochs`, or the number is not
                known yet.
        """

    def left(self) -> int:
        """Batches of this rank that are still to come; see `Loader.left`."""

    @property
    def metrics_address(self) -> str | None:
        """Where it is read over HTTP; see `Loader.metrics_address`."""

    def report(self) -> Report:
        """What was handed over so far, and how long the trainer waited."""

    def close(self) -> None:
        """Ends its requests, and nobody sees it from outside any more; the rest still answers."""

    def index_files(self) -> list[list[Path]]:
        """The files of each dataset's index; in another `dataset.index-dir` they serve as well.

        None for a dataset whose index lies beside its shards, or more than 1 GiB of whose rows were
        copied: each host had better index that itself.
        """

    def sizes_known(self) -> list[int]:
        """Of each dataset, how many sizes of samples are known here, for packing.

        0 where they are more than 1 GiB, and without `pack.max-tokens`.
        """

    def sizes(self, dataset: int, row: int, most: int) -> tuple[bytes, int | None]:
        """The sizes that are known of a dataset's samples, from a row on, for a maker elsewhere.

        Args:
            dataset: Its number in the recipe.
            row: The first that is asked for.
            most: Bytes, at least 32: those of one sample.

        Returns:
            What `Maker.add_sizes` takes, and the row from which on there are more, if there are.

        Raises:
            ValueError: There is no such dataset.
        """

    @property
    def rank(self) -> int:
        """Which rank is fed, from 0."""

    @property
    def world_size(self) -> int:
        """Of how many ranks."""
