"""torch's DataLoader: a worker for each core makes whole batches, two ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from bench.speed.work import Worker, chats, data_loader, endless, image_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job


class Chats(Dataset):
    """The samples; those of a batch are brought at once."""

    def __init__(self, job: Job) -> None:
        self.chats = chats(job)
        self.work = Worker(job)
        self.decoder = job.options["decoder"]

    def __len__(self) -> int:
        return len(self.chats)

    def __getitems__(self, rows: list[int]) -> list[dict[str, torch.Tensor]]:
        work, wanted = self.work(), [self.chats[row] for row in rows]
        make: Any = work.example if self.decoder == "pillow" else work.torchvision_example
        return list(map(make, wanted, work.get_all(list(map(image_key, wanted)))))


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches in the order of the source."""
    dataset = Chats(job)
    yield from endless(data_loader(dataset, job, collate_fn=dataset.work.collate))
