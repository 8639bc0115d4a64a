"""For transformers' `Trainer` and what is made of it, such as TRL's `SFTTrainer`.

`class Trainer(TrainerMixin, transformers.Trainer)` takes a loader as its `train_dataset`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from stoker.trainers.data_loader import Batches, DataLoader
from stoker.trainers.passes import check_loader, is_loader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import TrainerControl, TrainerState, TrainingArguments

    from stoker.trainers.passes import Loader


class LoaderState(TrainerCallback, ExportableState):
    """Keeps the loader's state in each checkpoint (`trainer_state.json`), and loads it from there.

    `TrainerMixin` brings it along. By itself it is for a trainer whose `get_train_dataloader` gives
    a `stoker.trainers.DataLoader`, the same each time.
    """

    def __init__(self) -> None:
        self._data_loader: DataLoader | None = None

    def state(self) -> dict[str, Any]:
        """What the trainer stores in a checkpoint."""
        state = None if self._data_loader is None else self._data_loader.state_dict()
        return {"args": {}, "attributes": {"loader": state}}

    def on_train_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        train_dataloader: Any = None,
        **_: Any,
    ) -> None:
        """Goes on from the checkpoint that training is resumed from, if it is.

        Raises:
            TypeError: The trainer has another data loader.
            ValueError: The checkpoint has no state of a loader.
            CursorError: It is that of another recipe or other data.
        """
        if not isinstance(train_dataloader, DataLoader):
            raise TypeError(
                "LoaderState needs a trainer whose get_train_dataloader gives a "
                f"stoker.trainers.DataLoader, not {type(train_dataloader).__qualname__}: put "
                "TrainerMixin before it"
            )
        self._data_loader = train_dataloader
        if state.global_step == 0:
            return
        stored = state.stateful_callbacks.get(type(self).__name__)
        loader = _last(stored).get("attributes", {}).get("loader")
        if loader is None:
            raise ValueError(
                f"the checkpoint of step {state.global_step} has no state of a loader in "
                "trainer_state.json, so which samples were trained on is not known: resume from "
                "one that was saved with TrainerMixin, or start from its weights without "
                "resume_from_checkpoint"
            )
        train_dataloader.load_state_dict(loader)


def _last(stored: Any) -> Mapping[str, Any]:
    """What a callback stored; trainers make a list of it where there are several of a kind."""
    if isinstance(stored, list):
        stored = stored[-1] if stored else None
    return stored or {}


class TrainerMixin:
    """Put before a `Trainer`, it takes a loader as `train_dataset`, and as `eval_dataset`.

    Batches come as they are, on `args.device`; `per_device_train_batch_size`, the collator and
    `dataloader_*` of the arguments have no effect. The loader's state is in each checkpoint, and
    `train(resume_from_checkpoint=…)` goes on from it: nothing that was trained on is read again,
    with `ignore_data_skip` or without.

    An epoch of the trainer is one pass of the loader (`plan.epochs`). Of an endless loader set
    `max_steps`.

    Raises:
        ValueError: The loader feeds another number of ranks than the trainer has.
        RuntimeError: One process is to train on several GPUs.
    """

    args: Any
    eval_dataset: Any

    def __init__(
        self,
        *args: Any,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        callbacks: list[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._train_loader = None if train_dataset is None else check_loader(train_dataset)
        self._eval_loader = eval_dataset if is_loader(eval_dataset) else None
        self._data_loaders: dict[int, DataLoader] = {}
        super().__init__(
            *args,
            train_dataset=_stand_in(self._train_loader) if self._train_loader else None,
            eval_dataset=_stand_in(self._eval_loader) if self._eval_loader else eval_dataset,
            callbacks=[*(callbacks or ()), LoaderState()],
            **kwargs,
        )

    def get_train_dataloader(self) -> DataLoader:
        """The loader's batches, which are this rank's already: nothing deals them out to ranks."""
        if self._train_loader is None:
            raise ValueError("there is no train_dataset: give the trainer a stoker.Loader")
        return self._data_loader(self._train_loader)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The batches of a pass over `eval_dataset`, where that is a loader."""
        own = eval_dataset is None or eval_dataset is self.eval_dataset
        loader = self._eval_loader if own else eval_dataset
        if is_loader(loader):
            return self._data_loader(loader)
        return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]

    def _data_loader(self, loader: Loader) -> DataLoader:
        if self.args.n_gpu > 1:
            raise RuntimeError(
                f"one process would split each batch over {self.args.n_gpu} GPUs, and so cut "
                "images apart: start one process for each, with torchrun or accelerate launch"
            )
        ranks = self.args.world_size
        for kind in ("tp", "cp", "sp"):
            ranks //= getattr(self, f"get_{kind}_size", lambda: 1)()
        if loader.world_size != ranks:
            raise ValueError(
                f"the loader feeds {loader.world_size} data-parallel ranks, the trainer has "
                f"{ranks}, so some would train on the same batches: make it with rank and "
                f"world_size={ranks}, or after TrainingArguments, which say what they are"
            )
        found = self._data_loaders.get(id(loader))
        if found is None:
            found = DataLoader(loader, self.args.device)
            if loader is self._train_loader or loader is self._eval_loader:
                # It has batches that were copied ahead, which the next `train` is to have.
                self._data_loaders[id(loader)] = found
        return found


def _stand_in(loader: Loader) -> Any:
    """What trainers look at to find out what kind of data there is, without taking a batch of it.

    TRL's leave data as they are that have images, and want them in a `datasets.Dataset`.
    """
    datasets = sys.modules.get("datasets")
    if datasets is None:
        return Batches(loader)
    return datasets.Dataset.from_dict({"messages": [[]], "images": [[]]})
