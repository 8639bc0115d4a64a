"""SPDL: a pipeline of threads, which the trainer's process has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import TYPE_CHECKING, Any

from spdl.pipeline import PipelineBuilder

from bench.speed.work import REQUESTS, Work, chats, image_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job

AHEAD = 2
"""Batches that wait for the trainer."""


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches in the order of the source."""
    work, samples = Work(job), chats(job)

    def fetch(chat: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        return chat, work.get(image_key(chat))

    def prepare(fetched: tuple[dict[str, Any], bytes]) -> dict[str, torch.Tensor]:
        return work.example(*fetched)

    pipeline = (
        PipelineBuilder()
        .add_source(cycle(samples))
        .pipe(
            fetch,
            concurrency=REQUESTS,
            executor=ThreadPoolExecutor(REQUESTS),
            output_order="input",
        )
        .pipe(
            prepare,
            concurrency=job.cores,
            executor=ThreadPoolExecutor(job.cores),
            output_order="input",
        )
        .aggregate(job.batch_size)
        .pipe(work.collate)
        .add_sink(AHEAD)
        .build(num_threads=job.cores, max_failures=0)
    )
    with pipeline.auto_stop():
        yield from pipeline
