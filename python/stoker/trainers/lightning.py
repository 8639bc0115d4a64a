"""For Lightning's `Trainer`: a data module that opens loaders, and keeps their state."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

try:
    from lightning.pytorch import LightningDataModule
except ModuleNotFoundError:  # the same, by its older name
    from pytorch_lightning import LightningDataModule

from stoker.torch import prefetch
from stoker.trainers.passes import Passes, check_loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stoker._prefetch import DeviceBatch
    from stoker.trainers.passes import Loader


class DataModule(LightningDataModule):
    """Loaders as a data module; the state of the one to train with is in each checkpoint.

    `training_step` gets a dict of tensors on the module's device, all that the model's `forward`
    takes. The state is that of the batch that was trained on last, though Lightning takes one more
    where the length is not known; Lightning writes it on rank 0, and loads it on all ranks, whose
    number may be another one.

    Args:
        train: Opens the loader to train with, in each process once its rank is known.
        validate: Opens the one to validate with: a pass, `{"plan.remainder": "pad"}`.
    """

    def __init__(
        self, train: Callable[[], Loader], validate: Callable[[], Loader] | None = None
    ) -> None:
        super().__init__()
        self._open_train = train
        self._open_validate = validate
        self._train: _Loop | None = None
        self._state: dict[str, Any] | None = None
        self._opened: list[_Loop] = []

    def setup(self, stage: str) -> None:
        """Forgets what an earlier `fit` trained on."""
        if stage == "fit":
            self._train = None

    def train_dataloader(self) -> _Loop:
        """What to train with; opened again in the middle of a `fit`, it goes on."""
        state = self._state if self._train is None else self._train.state()
        self._train = self._open(_Loop, self._open_train)
        if state is not None:
            self._train.load(state)
        return self._train

    def val_dataloader(self) -> _Loop | list[Any]:
        """What to validate with."""
        if self._open_validate is None:
            return []
        return self._open(_Anew, self._open_validate)

    def _open(self, kind: type[_Loop], opener: Callable[[], Loader]) -> _Loop:
        loop = kind(check_loader(opener()), self._device())
        self._opened.append(loop)
        return loop

    def _device(self) -> torch.device:
        """Where Lightning is going to put batches."""
        return torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device

    def teardown(self, stage: str) -> None:  # noqa: ARG002
        """Closes the loaders, and lets go of what was copied ahead."""
        opened, self._opened, self._state = self._opened, [], None
        with ExitStack() as closing:
            for loop in opened:
                closing.callback(loop.close)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning stores in a checkpoint."""
        return {} if self._train is None else {"loader": self._train.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on there.

        Raises:
            ValueError: The checkpoint has no state of a loader.
            CursorError: It is that of another recipe or other data; where the loader is opened.
        """
        if "loader" not in state_dict:
            raise ValueError("the checkpoint was saved without a state of the loader")
        self._state = state_dict["loader"]
        if self._train is not None:
            self._train.load(self._state)


class _Loop:
    """A loop over a pass of batches, which remembers the one that was put on the device last.

    It is no `DataLoader`, as Lightning would take that apart, and has no `state_dict`: Lightning
    would ask for it when the next batch was taken already.
    """

    def __init__(self, loader: Loader, device: torch.device) -> None:
        self._passes = Passes(prefetch(loader, device))
        self._state: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[_Handed]:
        self._passes.begin()
        while True:
            try:
                batch = self._passes.take()
            except StopIteration:
                return
            yield _Handed(batch, self)

    def __len__(self) -> int:
        return len(self._passes.loader)

    def trained(self, batch: DeviceBatch) -> None:
        self._state = batch.state_dict()

    def state(self) -> dict[str, Any]:
        return self._passes.loader.state_dict() if self._state is None else self._state

    def load(self, state: Mapping[str, Any]) -> None:
        self._passes.loader.load_state_dict(state)
        self._state = None

    def close(self) -> None:
        self._passes.loader.close()


class _Anew(_Loop):
    """Begins at the beginning whatever became of the loop before, such as Lightning's sanity check.

    That takes some batches, and leaves the rest of the pass.
    """

    def __init__(self, loader: Loader, device: torch.device) -> None:
        super().__init__(loader, device)
        self._start = loader.state_dict()

    def __iter__(self) -> Iterator[_Handed]:
        self.load(self._start)
        return super().__iter__()


class _Handed:
    """A batch that was taken, on its device. Lightning puts it there before it trains on it."""

    def __init__(self, batch: DeviceBatch, loop: _Loop) -> None:
        self._batch = batch
        self._loop = loop

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> dict[str, Any]:  # noqa: ARG002
        self._loop.trained(self._batch)
        return self._batch
