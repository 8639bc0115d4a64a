"""A device that is none: its streams and copies do what a test says, on the CPU.

Batches are copied at once, so that what is checked is what would be awaited. Its cudart keeps books
of the memory that it was told of, and refuses what CUDA would refuse.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import stoker._prefetch
import torch
from stoker._pinned import Pinned
from stoker._streams import Streams
from stoker.torch import move

if TYPE_CHECKING:
    from stoker import Loader


class AlwaysReady:
    """A loader whose batches are always ready when they are asked for."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str):
        return getattr(self._loader, name)

    def __iter__(self):
        iter(self._loader)
        return self

    def __next__(self):
        return next(self._loader)

    def _next_if_ready(self):
        return next(self._loader)


class Event:
    """Comes when the test says so, or when the host waits for it."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.come = False
        self.waited = False

    def query(self) -> bool:
        return self.come

    def synchronize(self) -> None:
        self.waited = self.come = True


class DoubleStreams(Streams):
    """Streams by name, and what was done with them."""

    asynchronous = True

    def __init__(self, cudart: Cudart | None = None) -> None:
        self.cudart = cudart or Cudart()
        self.current = "trainer"
        self.events: list[Event] = []
        self.followed: list[tuple[Event, str, list[torch.Tensor]]] = []

    def new(self) -> str:
        return "side"

    @contextmanager
    def on(self, stream: str):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def here(self):
        before, self.cudart.current_device = self.cudart.current_device, DEVICE
        try:
            yield
        finally:
            self.cudart.current_device = before

    def launch(self) -> None:
        status, self.cudart.last_error = self.cudart.last_error, 0
        if status != 0:
            raise RuntimeError(f"CUDA error: {self.cudart.cudaGetErrorString(status)}")

    def mark(self, stream: str) -> Event:
        self.events.append(Event(stream))
        return self.events[-1]

    def follow(self, event: Event, tensors: list[torch.Tensor]) -> None:
        self.followed.append((event, self.current, tensors))


def copied(monkeypatch, streams: DoubleStreams) -> list[str]:
    """Has batches really copied, and gives the names of the streams on which they are."""
    used = []

    def move_away(batch, device, non_blocking, dtype):
        assert non_blocking
        used.append(streams.current)
        streams.launch()
        moved = move(batch, device, non_blocking, dtype)
        return {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in moved.items()
        }

    monkeypatch.setattr(stoker._prefetch, "move", move_away)
    return used


def mapped(address: int) -> bool:
    """Whether memory lies at an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return True
    return False


DEVICE = 3
"""Where batches go. What asks CUDA with another device being current makes a context there too."""


class Cudart:
    """`torch.cuda.cudart()`, as far as it is used."""

    def __init__(self, register_status: int = 0, unregister_status: int = 0) -> None:
        self.current_device = 0
        self.last_error = 0
        self.unknown: list[int] = []
        self.known: dict[int, int] = {}
        self.registered: list[int] = []
        self.unregistered: list[int] = []
        self.threads: set[threading.Thread] = set()
        self._statuses = register_status, unregister_status

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        assert flags == 1
        assert self.current_device == DEVICE
        assert address % 4096 == size % 4096 == 0
        assert mapped(address)
        assert mapped(address + size - 1)
        for other, length in self.known.items():
            assert address + size <= other or other + length <= address, "registered twice"
        self.registered.append(address)
        if self._statuses[0] == 0:
            self.known[address] = size
        return self._told(self._statuses[0])

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        assert self.current_device == DEVICE
        if address not in self.known:
            self.unknown.append(address)
            return self._told(713)
        size = self.known.pop(address)
        assert mapped(address), "unregistered before it is unmapped"
        assert mapped(address + size - 1), "unregistered before it is unmapped"
        self.unregistered.append(address)
        self.threads.add(threading.current_thread())
        return self._told(self._statuses[1])

    def _told(self, status: int) -> int:
        self.last_error = status or self.last_error
        return status

    def cudaGetErrorString(self, status: int) -> str:  # noqa: N802
        return f"error {status} of a double"


def pinned(cudart: Cudart) -> Pinned:
    """What registers blocks with it."""
    return Pinned(cudart, DoubleStreams(cudart))
