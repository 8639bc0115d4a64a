"""WebDataset: tar archives, a process with curl for each, as its documentation has it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import webdataset

from bench.processes import die_with_parent
from bench.speed.work import Worker, client

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job

HOUR = 3600


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches of one worker and the other in turn; archives are split among them."""
    work = Worker(job)
    dataset = (
        webdataset.WebDataset(urls(job), shardshuffle=False)
        .to_tuple("json", "jpg")
        .map(partial(example, work))
        .batched(job.batch_size, collation_fn=work.collate, partial=False)
        .repeat()
    )
    yield from webdataset.WebLoader(
        dataset, batch_size=None, num_workers=job.cores, worker_init_fn=die_with_parent
    )


def example(work: Worker, sample: tuple[bytes, bytes]) -> dict[str, Any]:
    """A sample becomes tensors."""
    chat, image = sample
    return work.example(json.loads(chat), image)


def urls(job: Job) -> list[str]:
    """The archives; curl doesn't sign requests, so their addresses are signed."""
    store = client(job)
    keys = [f"tar/{shard:04}.tar" for shard in range(job.shards)]
    signed = [
        store.generate_presigned_url(
            "get_object", Params={"Bucket": job.bucket, "Key": key}, ExpiresIn=HOUR
        )
        for key in keys
    ]
    return [f"pipe:curl --silent --fail --location '{url}'" for url in signed]
