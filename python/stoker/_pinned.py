"""Pinned blocks: memory that CUDA was told of, so that a GPU reads it while the CPU goes on.

torch asks CUDA about an address to find out whether it is pinned, so tensors over a block that was
registered are (`is_pinned()`), whoever made them.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from stoker._native import Pins

if TYPE_CHECKING:
    from stoker import Batch
    from stoker._streams import Streams

PORTABLE = 1
"""`cudaHostRegisterPortable`: pinned for all devices of the process."""

UNKNOWN = 713
"""`cudaErrorHostMemoryNotRegistered`: CUDA does not have that memory, or has it no more."""


class Pinned:
    """Registers the blocks that batches lie in with CUDA, each once.

    The engine's blocks are used again and again, so after the first batches there is nothing left
    to do. A block is unregistered before it is unmapped, whoever lets go of it last: by the main
    thread, soon after. Memory of batches from other processes is left as it is: it is theirs to
    unmap, and each batch has another piece of it, which takes longer to register than to copy.

    Args:
        cudart: `torch.cuda.cudart()`.
        streams: Those of the device that batches are copied to.
    """

    def __init__(self, cudart: Any, streams: Streams) -> None:
        # Blocks hold these two, and outlive this; neither of them holds it.
        self._pins = Pins(
            partial(_register, cudart, streams), partial(_unregister, cudart, streams)
        )
        self._refused = False

    def pin(self, batch: Batch) -> None:
        """Registers the block of a batch, if it is none that was registered before.

        Where CUDA refuses one it warns, and tries no more: copies are right without, and slower.
        """
        if self._refused:
            return
        try:
            self._pins.pin(batch)
        except _RefusedError as refused:
            self._refused = True
            warnings.warn(str(refused), RuntimeWarning, stacklevel=2)


class _RefusedError(RuntimeError):
    pass


def _register(cudart: Any, streams: Streams, address: int, size: int) -> None:
    with streams.here():
        status = cudart.cudaHostRegister(address, size, PORTABLE)
    if int(status) != 0:
        _take_error(streams)
        raise _RefusedError(
            f"{size >> 20} MiB of memory for batches could not be pinned "
            f"({_words(cudart, status)}), so they are copied to the GPU by way of other memory, "
            "several times slower: lower engine.memory, or raise what this process or container "
            "may lock"
        )


def _unregister(cudart: Any, streams: Streams, address: int) -> None:
    with streams.here():
        status = cudart.cudaHostUnregister(address)
    if int(status) == 0:
        return
    _take_error(streams)
    # After Ctrl-C nobody knows whether CUDA has it, and it is asked.
    if int(status) != UNKNOWN:
        words = _words(cudart, status)
        raise RuntimeError(f"pinned memory was not given back: {words}; it stays mapped")


def _take_error(streams: Streams) -> None:
    """Takes the error that CUDA keeps of the last call of this thread that failed.

    torch would take it for one of whatever it launches next; it has no `cudaGetLastError`.
    """
    with suppress(RuntimeError):
        streams.launch()


def _words(cudart: Any, status: Any) -> str:
    return f"cudaError {int(status)}: {cudart.cudaGetErrorString(status)}"
