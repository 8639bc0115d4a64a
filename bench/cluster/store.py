"""The photos and their store: stoker's own S3 server, on a host of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker import _native

from bench.cluster.hosts import HostsError
from bench.cluster.nodes import environment

if TYPE_CHECKING:
    from pathlib import Path

    from bench.cluster.hosts import Host

BUCKET = "photos"
PORT = 9000
SEED = 0


@dataclass(frozen=True)
class Photos:
    """A data set in a folder, as a store serves it."""

    folder: Path
    key: str
    images: int
    pixels: int
    """Of all images."""
    row_bytes: list[int]
    """What is fetched for each sample: its line and its images."""

    @property
    def source(self) -> str:
        """The URI of the JSONL."""
        return f"s3://{BUCKET}/{self.key}"


def write(folder: Path, samples: int, pixels: tuple[int, int]) -> Photos:
    """Writes chats about photos of that many pixels, as telephones take them."""
    data = _native.DemoDataset(seed=SEED, samples=samples, pixels=pixels)
    bucket = folder / BUCKET

    def put(number: int) -> tuple[str, int]:
        key, content = data.object(number)
        (bucket / key).parent.mkdir(parents=True, exist_ok=True)
        (bucket / key).write_bytes(content)
        return key, len(content)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = dict(pool.map(put, range(len(data))))
    lines = (bucket / data.key).read_text().splitlines()
    return Photos(
        folder=folder,
        key=data.key,
        images=len(data) - 1,
        pixels=sum(data.pixels(number) for number in range(1, len(data))),
        row_bytes=[bytes_of_row(line, sizes) for line in lines],
    )


def bytes_of_row(line: str, sizes: dict[str, int]) -> int:
    """What is fetched for the sample on this line of the JSONL."""
    contents = [message["content"] for message in json.loads(line)["messages"]]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    images = [part["image"] for part in parts if part["type"] == "image"]
    return len(line.encode()) + sum(sizes[image] for image in images)


def serve(host: Host, photos: Photos) -> str:
    """Serves the photos from a host until that host ends.

    Returns:
        The endpoint.
    """
    address = f"{host.address}:{PORT}"
    arguments = ["s3", "--root", photos.folder, "--address", address]
    server = host.start(
        *(sys.executable, "-m", "stoker", *arguments),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    endpoint = server.stdout.readline().strip()
    if not endpoint:
        raise HostsError(f"the store did not start on {address} (code {server.wait()})")
    return endpoint
