"""The limit: libjpeg-turbo decodes the images, from memory into memory, and that is all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING

import numpy as np
import simplejpeg
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.speed.job import Job


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches with nothing in them but the number of images."""
    images = [file.read_bytes() for file in sorted(Path(job.folder).glob("objects/images/*"))]
    sizes = [simplejpeg.decode_jpeg_header(image)[:2] for image in images]
    most = max(height * width * 3 for height, width in sizes)
    threads = ThreadPoolExecutor(job.cores)
    thread = local()

    def decode(image: bytes) -> None:
        if not hasattr(thread, "pixels"):
            thread.pixels = np.empty(most, np.uint8)
        simplejpeg.decode_jpeg(image, "RGB", buffer=thread.pixels)

    # Whole batches ahead of the one that is waited for: no thread idles at the end of one.
    endless = cycle(images)
    ahead = [
        [threads.submit(decode, image) for image in islice(endless, job.batch_size)]
        for _ in range(4)
    ]
    counted = {"image_grid_thw": torch.ones(job.batch_size, 3, dtype=torch.int64)}
    try:
        while True:
            for image in ahead.pop(0):
                image.result()
            ahead.append(
                [threads.submit(decode, image) for image in islice(endless, job.batch_size)]
            )
            yield counted
    finally:
        threads.shutdown(cancel_futures=True)
