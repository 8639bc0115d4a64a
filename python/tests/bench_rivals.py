"""Rivals that do wrong, for the test of the bench: `open(job)` as its adapters have it."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench.speed.work import Worker, chats, image_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job


def prepare(job: Job) -> None:
    if job.options["wrong"] == "preparation":
        raise OSError("there is no room")


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    wrong, worker = job.options["wrong"], Worker(job)
    if wrong == "start":
        raise ValueError("no such option")
    for number in count():
        if wrong == "death" and number == 3:
            os._exit(3)
        samples = chats(job)[: job.batch_size]
        images = [(Path(job.folder) / image_key(chat)).read_bytes() for chat in samples]
        batch = worker.collate(list(map(worker.example, samples, images)))
        if wrong == "pixels":
            batch["pixel_values"][-1, :64] += 0.2  # 25 levels of 255, in one patch
        if wrong == "labels":
            batch["labels"][0, -1] = 7
        yield batch
