"""The types of a finished batch.

They are compiled and live in `stoker._native`; this file only describes them, for type checkers and
readers.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypedDict, final, type_check_only

import numpy as np
import torch as pytorch
from typing_extensions import CapsuleType

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

    Those are the names with `pack.layout = "padded"`. With `"packed"` all samples are segments of
    one row of T tokens, and there are, beside the two of the images:

    | name | dtype | shape |
    |---|---|---|
    | `input_ids` | int64 | `[1, T]` |
    | `labels` | int64 | `[1, T]`, -100 too on the first token of each segment |
    | `position_ids` | int64 | `[4, 1, T]`: place in the segment, temporal, height, width |
    | `cu_seq_lens_q`, `cu_seq_lens_k` | int32 | `[segments + 1]`: where they begin, then T |
    | `max_length_q`, `max_length_k` | int | a scalar: tokens of the longest segment |
    | `use_cache` | bool | a scalar: False |

    With `"official-finetune"` they are `input_ids`, `labels`, `position_ids` `[3, 1, T]`, and
    `attention_mask`, int32 `[segments + 1]`: where segments begin.

    All tensors lie in one piece of CPU memory that the engine's threads wrote. `numpy()`, `torch()`
    and DLPack give views of it. It is yours to write to, and stays valid while the batch, a tensor
    or any view lives, also after the loader is closed; when the last of them goes it is used for
    another batch.

    A batch pickles; with protocol 5 and a `buffer_callback` its tensors are handed over without a
    copy. One that was unpickled is `shared`: it lies over the memory that it was given, which
    others may be reading (an object in Ray's store), so it refuses to be written to.
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
        """The tensors as NumPy arrays over the same memory, read-only if it is `shared`.

        NumPy has no bfloat16: such pixels come as their bits, in uint16
        (`(bits.astype("uint32") << 16).view("float32")` are their values).
        """

    def torch(self) -> dict[str, Any]:
        """The tensors as torch tensors on the CPU, over the same memory, and the `scalars`.

        Those of a `shared` batch are inference tensors (`torch.inference_mode`): writing to them in
        place raises RuntimeError, though only once it has written; saving them for a backward pass
        raises one too. `to` gives ordinary ones.
        """

    def to(
        self,
        device: pytorch.device | str | int,
        *,
        non_blocking: bool = False,
        dtype: pytorch.dtype | None = None,
    ) -> dict[str, Any]:
        """The tensors on a device, finished, and the `scalars`: ready for `model(**…)`.

        `f32` and `bf16` pixels are moved. `u8` pixels are moved as bytes and finished on the
        device: `(u - mean) / std` in f32, then the temporal copies; the result equals that of
        `vision.pixels = "f32"` bit for bit. On the CPU, what need not be finished is not copied,
        unless the batch is `shared`: then it is, so that the result is yours to write to.

        Args:
            device: Where to.
            non_blocking: As in `torch.Tensor.to`; where `stoker.torch.prefetch` pinned the memory
                it waits all the same, as the batch may be let go of.
            dtype: Element type of `pixel_values`; by default float32 for `f32` and `u8`, bfloat16
                for `bf16`. `torch.bfloat16` gives of `f32` and `u8` what `bf16` gives.

        Returns:
            A dict of torch tensors and plain values: all that the model's `forward` takes.
        """

    def state_dict(self) -> dict[str, Any]:
        """Where to go on after this batch; see `Loader.state_dict`.

        Raises:
            ValueError: No loader has delivered it yet (it came straight from a `Maker`).
        """

    def __reduce_ex__(self, protocol: int, /) -> tuple[Any, ...]: ...  # type: ignore[override]
    @property
    def sequence(self) -> int:
        """Its place in the global sequence of batches, all ranks together, from 0."""

    @property
    def shared(self) -> bool:
        """Whether others may be reading its memory: that of a batch that was unpickled."""

    @property
    def name(self) -> tuple[int, int]:
        """The name of the batch: its lane and its number in the lane, both from 0."""

    @property
    def samples(self) -> list[tuple[int, int]]:
        """The samples in it, in order, as pairs of dataset and row, both from 0.

        What pads the last batches of a pass (`plan.remainder = "pad"`) is no sample: it stands
        behind them, so that `zip(batch.samples, outputs)` leaves it out.
        """

    @property
    def sample_mask(self) -> list[bool]:
        """For each of the B places whether it is a sample to reckon with.

        False where one was neutralised (its labels are -100, its images of one colour), on padding,
        and for the rows (packed: segments) of neutral images.
        """

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""

    @property
    def scalars(self) -> dict[str, int | bool]:
        """What `forward` takes beside the tensors; empty, but for packed batches."""

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
