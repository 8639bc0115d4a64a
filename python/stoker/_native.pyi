"""The compiled half of stoker: the loader, its halves, and what the demo needs."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Never, Self, final

from torch.distributed import DeviceMesh, ProcessGroup

from stoker._batch import Batch as Batch
from stoker._batch import Tensor as Tensor
from stoker._halves import Front as Front
from stoker._halves import Maker as Maker
from stoker._halves import Window as Window
from stoker._practice import DemoDataset as DemoDataset
from stoker._practice import S3Server as S3Server
from stoker.report import Report

__version__: str

@final
class Loader:
    """Finished batches of one rank, in order: an iterator.

    The order is a pure function of the recipe and the data. It depends neither on threads nor on
    the number of ranks: step by step, all ranks together get the same batches whatever their
    number.

    A loader is its own iterator. Breaking out of a loop and looping again goes on where the first
    loop stopped; looping again after the end of a finite run (`plan.epochs`) starts that run from
    its beginning. Batches are made ahead on threads of the engine, as far as `engine.memory` and
    `engine.prefetch` allow.

    Waiting releases the GIL and hears Ctrl-C within 0.2 s; the loader is then as it was before. A
    loader pickles by its arguments and
    its state, so it survives spawn and forkserver; the recipe's path must be good there too. In a
    forked child every use raises RuntimeError: make the loader in the child.

    Args:
        recipe: Path of a `.toml` or `.json` file, or the same document as a dict, with one section
            per room of the engine: `dataset`, `plan`, `fetch`, `image`, `vision`, `text`, `pack`,
            `engine`.
        rank: This process in the data-parallel group, from 0. Processes that share data (tensor,
            pipeline and context parallel ranks) have the same. By default that of
            torch.distributed if it is initialised, else Ray Train's, else the environment's RANK,
            else 0. With tensor, pipeline or context parallelism give it or `group`: the defaults
            count all processes.
        world_size: Size of the data-parallel group; goes together with `rank`. It must divide
            `plan.lanes`.
        group: The data-parallel group, in place of the two: a process group, or a device mesh,
            whose dimensions say by their names along which of them the data differ (`dp`,
            `dp_replicate`, `dp_shard`, `batch`, …) and along which they are the same (`tp`, `pp`,
            `cp`, `sp`, …). Of several of the first kind the first is the outermost, as torch
            flattens them.
        overrides: Values by path that replace the recipe's, such as `{"pack.batch-size": 8}`.

    Raises:
        RecipeError: The recipe has problems; all are told at once.
        DatasetError: The source or its index is not what it should be.
        FetchError: The source could not be read.
        MachineError: The machine refuses a thread or a file; the limit is named.
        TypeError: Only one of `rank` and `world_size` was given, or `group` is no group, or not
            alone.
        ValueError: `rank` is not in `range(world_size)`, the environment has half a rank or none
            where a launcher started several processes, this is one of several workers of a
            DataLoader, which would all give the same batches, or `group` does not say for certain
            which rank this process has: it then says what to give.
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
    def __iter__(self) -> Self:
        """Goes on where the last loop stopped; begins anew after the end.

        Raises:
            RuntimeError: The loader was made before a fork, or handed to several workers of a
                DataLoader, which would all give the same batches.
        """

    def __next__(self) -> Batch:
        """Waits for the next batch.

        Raises:
            StopIteration: The run is over.
            FetchError: Bytes could not be read, after all retries, or have changed since they
                were indexed.
            SampleError: A sample is unusable and `engine.on-bad-sample` is `stop`.
            DatasetError: More samples are unusable than `engine.bad-sample-limit` allows, or a
                hundred one after the other; or the ledger can't be written.
            BudgetError: One batch needs more than its part of `engine.memory`, or the trainer
                holds so many earlier ones that no memory came free for 20 seconds.
            MachineError: The machine refuses a thread or memory; the limit is named.
            StoppedError: The loader was closed, perhaps meanwhile and by another thread.
            RuntimeError: The loader was made before a fork.
        """

    def _next_if_ready(self) -> Batch | None:
        """The next batch if it is ready, else None; no wait is counted. Raises as `__next__`."""

    def __getitem__(self, key: object, /) -> Never:
        """Says that batches come in order and by no index.

        Raises:
            TypeError: Always.
        """

    def __len__(self) -> int:
        """Batches of this rank in the whole run.

        With `pack.max-tokens` it is known once the last batch was had, or where all samples were
        measured (`stoker index --sizes`): then all are packed once to count, which takes seconds
        for a million.

        Raises:
            TypeError: The run is endless, as it is without `plan.epochs`, or the number is not
                known yet.
        """

    def __bool__(self) -> Literal[True]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Closes the loader."""

    def close(self) -> None:
        """Ends all threads of the loader, within a second; from any thread, as often as you like.

        Batches that are already out stay valid. `report()` and `state_dict()` still answer.
        """

    def state_dict(self, *, batches_ago: int | None = None) -> dict[str, Any]:
        """Where to go on after the last batch that was handed over.

        After the end of a finite run was seen (StopIteration) the state says that too, and a loader
        that loads it begins anew when it is gone through, as this one does; the state after the
        last batch has the end yet to come.

        Args:
            batches_ago: As it was before the last so many batches were handed over, and before the
                end was seen, for a trainer that takes batches before it trains on them: how many it
                holds, 0 included. Where the batch that was trained on last is at hand, its own
                `state_dict()` is the same.

        Returns:
            A small dict of numbers, strings and lists. It is exact: a loader that loads it gives
            the same remaining batches, byte for byte, on any number of ranks that divides
            `plan.lanes`.

        Raises:
            ValueError: So many were not handed over since the loader was made or its state was
                loaded, or they are more than the 1024 that are remembered.
        """

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was taken: before iterating, in the middle or after the end.

        It may be of a run on another number of ranks, and of another length (`plan.epochs`).

        Raises:
            CursorError: The state was taken with another recipe or other data, or is damaged.
            StoppedError: The loader was closed.
        """

    def report(self) -> Report:
        """What has been done so far, and who waited for whom; costs no more than a few copies."""

    def stats(self, prefix: str = "stoker/") -> dict[str, float]:
        """The numbers of the report as a flat dict, for W&B and TensorBoard.

        Names are those of the report's attributes, such as `stoker/wait/ratio`; what is not known
        yet is left out. See `stoker.Report.stats`.
        """

    def left(self) -> int:
        """Batches of this rank that are still to come, after a state was loaded too.

        Raises:
            TypeError: The run is endless, or how long it is is not known yet, as for `len`.
        """

    @property
    def metrics_address(self) -> str | None:
        """Where it is read over HTTP, such as `127.0.0.1:9464`; None without `engine.metrics`."""

    def trace(self, path: str | PathLike[str], *, steps: int | None = None) -> Trace:
        """Records what the loader does from now on, and writes it to a file.

        Perfetto opens it, alone or merged with one of torch's profiler by `stoker.trace.merge`. It
        is written on a thread of its own when the recording ends: after `steps` batches, with the
        `with` block, by `Trace.stop()` or with the loader. What it takes is bounded: 64 MiB.

        Args:
            path: The file, compressed if its name ends in `.gz`.
            steps: After how many batches it ends by itself; without it, when it is stopped.

        Raises:
            OSError: The file can't be made.
            RuntimeError: Another trace is being recorded or written; or the loader was made before
                a fork.
            ValueError: `steps` is not 1 or more.
            MachineError: The machine refuses a thread; the limit is named.
        """

    @property
    def rank(self) -> int:
        """Which rank this loader feeds, from 0."""

    @property
    def world_size(self) -> int:
        """Of how many ranks."""

@final
class Trace:
    """A trace that is recorded or was written: a context manager that stops it."""

    def stop(self) -> tuple[int, int]:
        """Ends the recording, if it goes on, and waits until the file is written.

        Returns:
            Batches that were handed over meanwhile, and events that were left out, as there was no
            room for more.

        Raises:
            OSError: It could not be written.
        """

    @property
    def ended(self) -> bool:
        """Whether the file is written, or will never be."""

    @property
    def path(self) -> Path:
        """Its file."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Stops it."""

@final
class Pins:
    """Tells the driver of a device of the blocks that batches lie in, each once.

    Args:
        register: Called with address and length in bytes of a block, by the thread that pins.
        unregister: Called with the address of each block that was registered, before it is
            unmapped: by the main thread between two of its bytecodes, or within `pin`. Where it
            raises, `sys.unraisablehook` is told and the block stays mapped.
    """

    def __new__(
        cls, register: Callable[[int, int], object], unregister: Callable[[int], object]
    ) -> Self: ...
    def pin(self, batch: Batch) -> None:
        """Registers the block of a batch, unless that was done; memory from elsewhere it is not.

        Raises:
            Exception: What `register` raises; the block is not tried again.
        """

def _document(
    recipe: str | PathLike[str] | dict[str, Any], overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A recipe with its overrides, for another process or host.

    Its keys are kebab-case, and no path in it is relative.

    Raises:
        RecipeError: It can't be read; what is wrong with its values is told where it is opened.
    """

def _report_words(numbers: Mapping[str, Any]) -> str:
    """What a report with these numbers says; see `stoker.Report`."""

def _advice(evidence: Mapping[str, float]) -> dict[str, Any] | None:
    """What evidence tells, as `stoker.Report.advice`; see `Maker.evidence`."""

def _families(numbers: Mapping[str, Any], rank: int, world_size: int) -> list[dict[str, Any]]:
    """The metrics of a report with these numbers, by the conventions of Prometheus.

    Each has `name`, `kind` (`counter`, `gauge` or `histogram`), `help`, and `points`: a list of
    `labels` (pairs of name and value) and `value`.
    """

def _report_page(numbers: Mapping[str, Any], title: str | None) -> str:
    """A report with these numbers as a page of HTML; see `stoker.Report.to_html`."""

def _page_style() -> str:
    """How all pages of stoker look, in light and in dark, wide and narrow: CSS."""

def cli(argv: Sequence[str]) -> int:
    """Runs the `stoker` command (`argv[0]` is its name) and gives its exit code back."""
