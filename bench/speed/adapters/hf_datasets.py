"""Hugging Face datasets: Parquet files, streamed through fsspec."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from datasets import load_dataset

from bench.speed.work import Worker, data_loader, endless

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job


def collate(work: Worker, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows become a batch."""
    return work.collate([work.example(json.loads(row["chat"]), row["image"]) for row in rows])


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches of one worker and the other in turn; files are split among them."""
    work = Worker(job)
    store = {
        "key": job.access_key_id,
        "secret": job.secret_access_key,
        "client_kwargs": {"endpoint_url": job.endpoint},
    }
    dataset = load_dataset(
        "parquet",
        data_files=[f"s3://{job.bucket}/parquet/{shard:04}.parquet" for shard in range(job.shards)],
        split="train",
        streaming=True,
        storage_options=store,
        cache_dir=f"{job.scratch}/datasets",
    )
    yield from endless(data_loader(dataset, job, collate_fn=partial(collate, work)))
