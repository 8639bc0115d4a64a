"""LitData's raw mode: files are listed once, then streamed as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litdata import StreamingRawDataset
from litdata.raw.indexer import FileIndexer
from litdata.streaming import downloader

from bench.speed.work import Worker, chats, data_loader, endless, image_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job


class Chats(StreamingRawDataset):
    """Its images, joined with the chats about them."""

    def __init__(self, job: Job) -> None:
        self.chats = chats(job)
        self.work = Worker(job)
        self.prefix = f"s3://{job.bucket}/"
        super().__init__(
            f"{self.prefix}objects/images/",
            cache_dir=f"{job.scratch}/litdata",
            indexer=FileIndexer(extensions=[".jpg"]),
            storage_options={"endpoint_url": job.endpoint},
        )

    def setup(self, files: list[Any]) -> list[Any]:
        """An image for each chat."""
        places = {file.path: file for file in files}
        return [places[self.prefix + image_key(chat)] for chat in self.chats]

    def __getitems__(self, rows: list[int]) -> list[dict[str, torch.Tensor]]:
        images = super().__getitems__(rows)
        wanted = [self.chats[row] for row in rows]
        return list(map(self.work().example, wanted, images))


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches in the order of the source."""
    # obstore wants to be told that a store may have no TLS, and LitData has no setting for it.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    dataset = Chats(job)
    yield from endless(data_loader(dataset, job, collate_fn=dataset.work.collate))
