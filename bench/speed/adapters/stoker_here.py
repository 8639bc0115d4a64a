"""stoker in the trainer's process, as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import stoker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job

MEMORY = "1GiB"
"""What the engine may use: as the demo's."""


def recipe(job: Job) -> dict[str, Any]:
    """The samples in the order of the source, without end."""
    folder = f"s3://{job.bucket}"
    last = job.shards - 1
    sources = {
        "objects": f"{folder}/objects/train.jsonl",
        "tar": f"{folder}/tar/{{0000..{last:04}}}.tar",
    }
    return {
        "model": job.model,
        "dataset": {"source": sources[job.source], "index-dir": job.cache},
        "plan": {"lanes": 1, "shuffle": "none"},
        "fetch": {"endpoint": job.endpoint, "region": "us-east-1"},
        "vision": {"pixels": job.options["pixels"]},
        "pack": {"batch-size": job.batch_size},
        "engine": {"memory": MEMORY} | job.options.get("engine", {}),
    }


def prepare(job: Job) -> None:
    """Indexes the source."""
    stoker.Loader(recipe(job), rank=0, world_size=1).close()


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches in the order of the source."""
    with stoker.Loader(recipe(job), rank=0, world_size=1) as loader:
        for batch in loader:
            yield batch.torch()
            del batch
