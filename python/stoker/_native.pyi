"""The compiled half of stoker: the loader and its batches."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, final, type_check_only

import numpy as np
import torch as pytorch
from typing_extensions import CapsuleType

from stoker.report import Report

__version__: str

@type_check_only
class Finish(TypedDict):
    """What finishes `u8` pixels on a device; see `Batch.finish`."""

    pixels: Literal["f32", "bf16", "u8"]
    """Element type that was written."""
    mean: list[float]
    """The model's mean per channel, times 255, as f32."""
    std: list[float]
    """The model's standard deviation per channel, times 255, as f32."""
    patch_size: int
    """Side of a patch, in pixels."""
    temporal_patch_size: int
    """Frames in a patch; a still image is repeated for each."""

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

    Waiting releases the GIL and hears Ctrl-C within 0.2 s. A loader pickles by its arguments and
    its state, so it survives spawn and forkserver; the recipe's path must be good there too. In a
    forked child every use raises RuntimeError: make the loader in the child.

    Args:
        recipe: Path of a `.toml` or `.json` file, or the same document as a dict, with one section
            per room of the engine: `dataset`, `plan`, `fetch`, `image`, `vision`, `text`, `pack`,
            `engine`.
        rank: This process in the data-parallel group, from 0. Processes that share data (tensor,
            pipeline and context parallel ranks) have the same. By default that of
            torch.distributed if it is initialised, else the environment's RANK, else 0. With
            tensor, pipeline or context parallelism give it: the defaults count all processes.
        world_size: Size of the data-parallel group; goes together with `rank`. It must divide
            `plan.lanes`.
        overrides: Values by path that replace the recipe's, such as `{"pack.batch-size": 8}`.

    Raises:
        RecipeError: The recipe has problems; all are told at once.
        DatasetError: The source or its index is not what it should be.
        FetchError: The source could not be read.
        TypeError: Only one of `rank` and `world_size` was given.
        ValueError: `rank` is not in `range(world_size)`, or the environment has half a rank.
    """

    def __new__(
        cls,
        recipe: str | PathLike[str] | dict[str, Any],
        *,
        rank: int | None = None,
        world_size: int | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Batch:
        """Waits for the next batch.

        Raises:
            StopIteration: The run is over.
            FetchError: Bytes could not be read, after all retries, or have changed since they
                were indexed.
            SampleError: A sample is unusable and `engine.on-bad-sample` is `stop`.
            DatasetError: More samples are unusable than `engine.bad-sample-limit` allows, or a
                hundred one after the other.
            BudgetError: One batch needs more than its part of `engine.memory`, or the trainer
                holds so many earlier ones that no memory came free for 20 seconds.
            StoppedError: The loader was closed, perhaps meanwhile and by another thread.
            RuntimeError: The loader was made before a fork.
        """

    def __len__(self) -> int:
        """Batches of this rank in the whole run.

        Raises:
            TypeError: The run is endless, as it is without `plan.epochs`.
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

    def state_dict(self) -> dict[str, Any]:
        """Where to go on after the last batch that was handed over.

        Returns:
            A small dict of numbers, strings and lists. It is exact: a loader that loads it gives
            the same remaining batches, byte for byte, on any number of ranks that divides
            `plan.lanes`.
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

    @property
    def rank(self) -> int:
        """Which rank this loader feeds, from 0."""

    @property
    def world_size(self) -> int:
        """Of how many ranks."""

@final
class Batch(Mapping[str, Tensor]):
    """One finished batch: a mapping of names to tensors, as the model's `forward` takes them.

    With B samples of at most L tokens, N patches in n images:

    | name | dtype | shape |
    |---|---|---|
    | `input_ids` | int64 | `[B, L]`, right-padded |
    | `attention_mask` | int64 | `[B, L]`, 0 on padding |
    | `labels` | int64 | `[B, L]`, -100 where nothing is learned |
    | `mm_token_type_ids` | int64 | `[B, L]`, 1 on image placeholders |
    | `position_ids` | int64 | `[3, B, L]`: temporal, height, width |
    | `pixel_values` | float32 or bfloat16 | `[N, 3 * temporal_patch_size * patch_size**2]` |
    | | uint8 (`vision.pixels = "u8"`) | `[N, 3 * patch_size**2]`, to be finished by `to` |
    | `image_grid_thw` | int64 | `[n, 3]`: frames, rows and columns of patches |

    A batch without images has neither `pixel_values` nor `image_grid_thw`.

    All tensors lie in one piece of CPU memory that the engine's threads wrote. `numpy()`, `torch()`
    and DLPack give views of it. It is yours to write to, and stays valid while the batch, a tensor
    or any view lives, also after the loader is closed; when the last of them goes it is used for
    another batch.
    """

    def __getitem__(self, name: str, /) -> Tensor:
        """The tensor of that name.

        Raises:
            KeyError: There is none; for keys that are no names too.
        """

    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: object, /) -> bool: ...
    def keys(self) -> list[str]: ...  # type: ignore[override]
    def values(self) -> list[Tensor]: ...  # type: ignore[override]
    def items(self) -> list[tuple[str, Tensor]]: ...  # type: ignore[override]
    def get(self, name: str, default: Any = None) -> Tensor | Any: ...  # type: ignore[override]
    def numpy(self) -> dict[str, np.ndarray]:
        """The tensors as writable NumPy arrays over the same memory.

        NumPy has no bfloat16: such pixels come as their bits, in uint16
        (`(bits.astype("uint32") << 16).view("float32")` are their values).
        """

    def torch(self) -> dict[str, pytorch.Tensor]:
        """The tensors as torch tensors on the CPU, over the same memory."""

    def to(
        self,
        device: pytorch.device | str | int,
        *,
        non_blocking: bool = False,
        dtype: pytorch.dtype | None = None,
    ) -> dict[str, pytorch.Tensor]:
        """The tensors on a device, finished: ready for `model(**batch.to(device))`.

        `f32` and `bf16` pixels are moved. `u8` pixels are moved as bytes and finished on the
        device: `(u - mean) / std` in f32, then the temporal copies; the result equals that of
        `vision.pixels = "f32"` bit for bit. On the CPU, what need not be finished is not copied.

        Args:
            device: Where to.
            non_blocking: As in `torch.Tensor.to`.
            dtype: Element type of `pixel_values`; by default float32 for `f32` and `u8`, bfloat16
                for `bf16`. `torch.bfloat16` gives of `f32` and `u8` what `bf16` gives.

        Returns:
            A dict of torch tensors.
        """

    def state_dict(self) -> dict[str, Any]:
        """Where to go on after this batch; see `Loader.state_dict`."""

    @property
    def name(self) -> tuple[int, int]:
        """The name of the batch: its lane and its number in the lane, both from 0."""

    @property
    def samples(self) -> list[tuple[int, int]]:
        """The samples in it, in order, as pairs of dataset and row, both from 0."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""

    @property
    def finish(self) -> Finish:
        """The constants that finish `u8` pixels, for those who do it without `to`."""

@final
class Tensor:
    """One tensor of a batch, in CPU memory.

    It speaks DLPack, `numpy.from_dlpack(tensor)`, `torch.from_dlpack(tensor)`,
    `jax.dlpack.from_dlpack(tensor)`, and NumPy's array protocol, `numpy.asarray(tensor)`; all over
    the same memory.
    """

    def __array__(
        self, dtype: np.typing.DTypeLike | None = None, copy: bool | None = None
    ) -> np.ndarray:
        """The tensor for `numpy.asarray`.

        Over the same memory, unless a copy or another dtype is asked for.

        Raises:
            TypeError: It is bfloat16, which NumPy does not have; see `Batch.numpy`.
            ValueError: `copy` is False and the dtype needs a copy.
        """

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """A capsule over the same memory; versioned (1.0) where `max_version` allows it.

        Raises:
            BufferError: A copy, a stream or another device was asked for.
        """

    @staticmethod
    def __dlpack_device__() -> tuple[int, int]:
        """`(1, 0)`: the CPU."""

    @property
    def dtype(self) -> str:
        """`uint8`, `int32`, `int64`, `bfloat16` or `float32`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each side; the last one is contiguous."""

    @property
    def nbytes(self) -> int:
        """Bytes."""

def cli(argv: Sequence[str]) -> int:
    """Runs the `stoker` command (`argv[0]` is its name) and gives its exit code back."""

@final
class S3Server:
    """An S3 server over objects in memory, on a free port of this machine: the demo's store.

    Args:
        profile: How long requests take: `none`, `hot`, `standard`, `cold` or `express`.
        seed: Chooses the latencies.

    Raises:
        ValueError: There is no such profile.
        OSError: No port can be listened on.
    """

    def __new__(cls, *, profile: str = "standard", seed: int = 0) -> Self: ...
    @property
    def endpoint(self) -> str:
        """Its address, such as `http://127.0.0.1:41234`."""

    @property
    def access_key_id(self) -> str:
        """Half of the key pair that requests are signed with."""

    @property
    def secret_access_key(self) -> str:
        """The other half."""

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Stores an object; its bucket is made if it is new.

        Raises:
            ValueError: The server was closed.
        """

    def stats(self) -> tuple[int, int, int]:
        """Requests, bytes of objects sent and most reads at the same time, so far.

        Raises:
            ValueError: The server was closed.
        """

    def close(self) -> None:
        """Stops it at once; open connections are cut."""

@final
class DemoDataset:
    """The demo's made-up data set: a JSONL of chat samples (object 0), then their images.

    Args:
        seed: Chooses all of it.
        samples: Number of chat samples.
        pixels: Fewest and most pixels of an image; small ones come more often.

    Raises:
        ValueError: Images can't have so many pixels.
    """

    def __new__(
        cls, *, seed: int, samples: int, pixels: tuple[int, int] = (200_000, 2_000_000)
    ) -> Self: ...
    @property
    def key(self) -> str:
        """Key of the JSONL."""

    def __len__(self) -> int:
        """Number of objects."""

    def object(self, number: int) -> tuple[str, bytes]:
        """Key and bytes of an object: a pure function of the seed and its number.

        Raises:
            IndexError: There is no such object.
        """

    def pixels(self, number: int) -> int:
        """Pixels of an object; 0 for the JSONL.

        Raises:
            IndexError: There is no such object.
        """
