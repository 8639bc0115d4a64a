"""hf-processors-rs: the image step alone, of bytes in memory.

An image at a time is faster than a batch at a time: a batch's pixels are new memory, whose pages
the kernel has to clear first. A thread for each core calls it, as it gives up the GIL.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hf_processors_rs
import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.speed.job import Job


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches of pixels, and the numbers of the samples they belong to."""
    images = [file.read_bytes() for file in sorted(Path(job.folder).glob("objects/images/*"))]
    processor = hf_processors_rs.AutoImageProcessor.from_pretrained(job.model)
    threads = ThreadPoolExecutor(job.cores)

    def image_step(number: int) -> dict[str, Any]:
        return processor([images[number]], num_threads=1) | {"number": np.array([number])}

    endless = cycle(range(len(images)))
    ahead = [threads.submit(image_step, number) for number in islice(endless, 2 * job.batch_size)]
    try:
        while True:
            made = [ahead.pop(0).result() for _ in range(job.batch_size)]
            ahead += [threads.submit(image_step, n) for n in islice(endless, job.batch_size)]
            yield {
                name: torch.cat([torch.from_numpy(part[name]) for part in made])
                for name in ("pixel_values", "image_grid_thw", "number")
            }
            del made
    finally:
        threads.shutdown(cancel_futures=True)
