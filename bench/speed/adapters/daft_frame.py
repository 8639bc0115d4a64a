"""Daft: `download` in its own runtime, then a class of the user's in processes."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import daft
from daft import DataType, Series
from daft.io import IOConfig, S3Config

from bench.speed.work import Worker, chats, image_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job

PASSES = 8
"""Over the data, in one go: a new pass would start its processes anew."""


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches in the order of the source."""
    samples = chats(job)

    @daft.cls(max_concurrency=job.cores, use_process=True)
    class Examples:
        def __init__(self) -> None:
            self.work = Worker(job)

        @daft.method.batch(return_dtype=DataType.python(), batch_size=job.batch_size)
        def make(self, rows: Series, images: Series) -> Series:
            pairs = zip(rows.to_pylist(), images.to_pylist(), strict=True)
            made = [self.work.example(samples[row], image) for row, image in pairs]
            return Series.from_pylist(made, dtype=DataType.python())

    store = S3Config(
        endpoint_url=job.endpoint,
        key_id=job.access_key_id,
        access_key=job.secret_access_key,
        region_name="us-east-1",
        use_ssl=False,
    )
    uris = [f"s3://{job.bucket}/{image_key(chat)}" for chat in samples]
    frame = daft.from_pydict(
        {"row": list(range(len(samples))) * PASSES, "uri": uris * PASSES}
    ).into_batches(job.batch_size)
    image = daft.col("uri").download(io_config=IOConfig(s3=store))
    frame = frame.with_column("image", image)
    frame = frame.select(Examples().make(daft.col("row"), daft.col("image")).alias("made"))
    collate, examples = Worker(job).collate, []
    for _ in count():
        for row in frame.iter_rows(results_buffer_size=2):
            examples.append(row["made"])
            if len(examples) == job.batch_size:
                yield collate(examples)
                examples = []
