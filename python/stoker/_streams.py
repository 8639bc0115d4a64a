"""The streams of a device, as torch has them; for one without any, torch's that do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Streams:
    """What is asked of the streams of a device.

    Args:
        device: One with an index, where its kind has several.
    """

    def __init__(self, device: torch.device) -> None:
        module = torch.get_device_module(device)
        needed = ("Stream", "Event", "stream", "current_stream")
        if not all(hasattr(module, name) for name in needed):
            module = torch.cpu
        self.asynchronous = module is not torch.cpu
        self._module: Any = module
        self._device = device

    def new(self) -> Any:
        """A stream beside those of the trainer."""
        return self._module.Stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """What is launched within it goes to that stream."""
        return self._module.stream(stream)

    def mark(self, stream: Any) -> Any:
        """An event behind what the stream was given so far."""
        event = self._module.Event()
        event.record(stream)
        return event

    def follow(self, event: Any, tensors: list[torch.Tensor]) -> None:
        """Has the stream of this thread go on behind the event only, and use these tensors.

        The host does not wait. Their memory is not used for others before that stream is done with
        them.
        """
        if not self.asynchronous:  # before torch 2.7 such streams have no `wait_event`
            return
        stream = self._module.current_stream(self._device)
        stream.wait_event(event)
        for tensor in tensors:
            tensor.record_stream(stream)

    def here(self) -> AbstractContextManager[Any]:
        """What asks a driver within it asks about this device, not the first of all."""
        return self._module.device(self._device)

    def launch(self) -> None:
        """Launches next to nothing.

        Raises:
            RuntimeError: A call before it failed, and nobody has taken its error.
        """
        torch.empty(1, device=self._device).fill_(1)


def resolve(device: torch.device | str | int) -> torch.device:
    """The device with its index: the current one, where none is said."""
    device = torch.device(device)
    if device.type == "cpu" or device.index is not None:
        return device
    current = getattr(torch.get_device_module(device), "current_device", None)
    return device if current is None else torch.device(device.type, current())
