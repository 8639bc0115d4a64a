"""Rung 1b: processes, as torch's DataLoader has them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader, Dataset

from bench.ladder.rungs import one_at_a_time
from bench.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.ladder.job import Job


class Chats(Dataset):
    """The samples, made on demand; client and tokenizer are those of the worker that asks."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.here: one_at_a_time.Loader | None = None

    @property
    def loader(self) -> one_at_a_time.Loader:
        """Made in the worker: neither clients nor tokenizers like to be forked."""
        if self.here is None:
            self.here = one_at_a_time.Loader(self.job)
        return self.here

    def __len__(self) -> int:
        return self.job.batches * self.job.batch_size

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return self.loader.example(self.loader.samples[row])

    def collate(self, examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """One batch of them."""
        return self.loader.processor.collate(examples)


class Loader:
    """A worker for each core; torch lets each prepare two batches ahead."""

    def __init__(self, job: Job) -> None:
        chats = Chats(job)
        self.loader = DataLoader(
            chats,
            batch_size=job.batch_size,
            num_workers=job.cores,
            collate_fn=chats.collate,
            worker_init_fn=die_with_parent,
            persistent_workers=True,
        )

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The first batches of the data."""
        yield from islice(self.loader, count)

    def close(self) -> None:
        """Ends the workers, which live as long as the loader."""
        del self.loader
