"""Mosaic Streaming: MDS shards, which it brings to a local cache and reads from there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from bench.speed.work import Worker, chats, data_loader, endless, hang_up, image_key, upload

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job

SHARD_BYTES = 4 << 20
"""As large as the tar archives of the other rivals."""


class Chats(StreamingDataset):
    """Its samples as tensors."""

    def __init__(self, job: Job) -> None:
        self.work = Worker(job)
        super().__init__(
            remote=f"s3://{job.bucket}/mds",
            local=f"{job.scratch}/mds",
            batch_size=job.batch_size,
            num_canonical_nodes=1,
        )

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        sample = super().__getitem__(row)
        return self.work().example(json.loads(sample["chat"]), sample["image"])


def prepare(job: Job) -> None:
    """Writes the shards with Mosaic's own writer."""
    folder = Path(job.scratch) / "made"
    columns = {"chat": "str", "image": "bytes"}
    with MDSWriter(out=str(folder), columns=columns, size_limit=SHARD_BYTES) as writer:
        for chat in chats(job):
            image = (Path(job.folder) / image_key(chat)).read_bytes()
            writer.write({"chat": json.dumps(chat), "image": image})
    upload(job, folder, "mds")


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches of one worker and the other in turn."""
    os.environ["S3_ENDPOINT_URL"] = job.endpoint
    clean_stale_shared_memory()
    dataset = Chats(job)
    hang_up()
    yield from endless(data_loader(dataset, job, collate_fn=dataset.work.collate))
