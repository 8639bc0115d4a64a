"""Ray Data: its `download`, then a pool of actors that make whole batches."""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs
import ray
import torch
from ray.data.expressions import download

from bench.speed.work import Worker, chats, image_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from bench.speed.job import Job

STORE_BYTES = 2 << 30
PASSES = 8
"""Over the data, in one go: a new pass would start its actors anew."""
DOWNLOADS = 2
"""What `download` asks for of Ray's processors: it hardly uses them, and waits for ever without."""
ADDRESS = "127.0.0.2"
"""Loopback; Ray takes 127.0.0.1 to mean the machine's outer address."""


class Batches:
    """An actor's work: a block of rows becomes one row, the batch."""

    def __init__(self, job: Job, samples: list[dict[str, Any]]) -> None:
        self.work, self.samples = Worker(job), samples

    def __call__(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Tensors get a dimension in front: a row of the table."""
        made = [
            self.work.example(self.samples[row], image)
            for row, image in zip(rows["row"], rows["image"], strict=True)
        ]
        return {name: part.numpy()[None] for name, part in self.work.collate(made).items()}


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches in whatever order they are ready."""
    os.environ |= {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    files = tempfile.mkdtemp(prefix="ray-bench-", dir="/tmp")  # paths of sockets have to be short
    ray.init(
        address="local",
        num_cpus=job.cores + DOWNLOADS,
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="warning",
        _node_ip_address=ADDRESS,
        _temp_dir=files,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    samples = chats(job)
    rows = [
        {"row": row, "uri": f"{job.bucket}/{image_key(chat)}"} for row, chat in enumerate(samples)
    ]
    store = pyarrow.fs.S3FileSystem(
        endpoint_override=job.endpoint.partition("//")[2],
        scheme="http",
        access_key=job.access_key_id,
        secret_key=job.secret_access_key,
        region="us-east-1",
    )
    dataset = (
        ray.data.from_items(rows * PASSES)
        .with_column("image", download("uri", filesystem=store))
        .map_batches(
            Batches,
            fn_constructor_args=(job, samples),
            batch_size=job.batch_size,
            compute=ray.data.ActorPoolStrategy(size=job.cores),
        )
    )
    try:
        for _ in count():
            for batch in dataset.iter_batches(batch_size=1, batch_format="numpy"):
                yield {name: torch.from_numpy(part[0]) for name, part in batch.items()}
    finally:
        ray.shutdown()
        shutil.rmtree(files, ignore_errors=True)
