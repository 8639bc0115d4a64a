"""What the adapters of Python rivals share: the store's client, the chats, the work on a sample."""

from __future__ import annotations

import gc
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import torch
from botocore.config import Config
from botocore.httpsession import URLLib3Session
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg

from bench.processes import die_with_parent
from bench.processor import Processor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench.speed.job import Job

REQUESTS = 8
"""Images that a worker brings at once: those of a batch."""


class Work:
    """The work, and what is needed for it; made in the process that does it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.client = boto3.client(
            "s3", endpoint_url=job.endpoint, config=Config(max_pool_connections=REQUESTS)
        )
        self.threads = ThreadPoolExecutor(REQUESTS)
        self.processor = Processor(Path(job.model))

    def get(self, key: str) -> bytes:
        """An object's bytes."""
        return self.client.get_object(Bucket=self.job.bucket, Key=key)["Body"].read()

    def get_all(self, keys: list[str]) -> list[bytes]:
        """The bytes of several at the same time, in their order."""
        return list(self.threads.map(self.get, keys))

    def example(self, chat: dict[str, Any], image: bytes) -> dict[str, torch.Tensor]:
        """A sample becomes tensors; Pillow decodes."""
        return self.processor.example(chat, [image])

    def torchvision_example(self, chat: dict[str, Any], image: bytes) -> dict[str, torch.Tensor]:
        """The same; torchvision decodes."""
        encoded = torch.frombuffer(bytearray(image), dtype=torch.uint8)
        return self.processor.prepare(chat, [decode_jpeg(encoded, mode=ImageReadMode.RGB)])

    def collate(self, examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Samples become a batch."""
        return self.processor.collate(examples)


class Worker:
    """The work of this process, made when it is first asked for: no client likes to be forked."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.here: Work | None = None

    def __call__(self) -> Work:
        """The work."""
        if self.here is None:
            self.here = Work(self.job)
        return self.here

    def __reduce__(self) -> tuple[type[Worker], tuple[Job]]:
        return Worker, (self.job,)

    def example(self, chat: dict[str, Any], image: bytes) -> dict[str, torch.Tensor]:
        """See `Work`."""
        return self().example(chat, image)

    def collate(self, examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """See `Work`."""
        return self().collate(examples)


def client(job: Job) -> Any:
    """A client for a few requests."""
    return boto3.client("s3", endpoint_url=job.endpoint)


def chats(job: Job) -> list[dict[str, Any]]:
    """The samples, from the store."""
    answer = client(job).get_object(Bucket=job.bucket, Key="objects/train.jsonl")
    return [json.loads(line) for line in answer["Body"].read().splitlines()]


def image_key(chat: dict[str, Any]) -> str:
    """Where the image of a sample is."""
    return f"objects/{chat['messages'][0]['content'][0]['image']}"


def hang_up() -> None:
    """Closes the connections of all of boto3's clients in this process; they open new ones.

    For rivals that read an index before they fork their workers: these would share the socket, and
    read each other's answers.
    """
    for thing in gc.get_objects():
        if type(thing) is URLLib3Session:  # others may not like to be looked at
            thing.close()


def upload(job: Job, folder: Path, prefix: str) -> None:
    """Puts the files of a folder into the store."""
    to = client(job)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            key = f"{prefix}/{file.relative_to(folder)}"
            to.put_object(Bucket=job.bucket, Key=key, Body=file.read_bytes())


def data_loader(dataset: Dataset, job: Job, **settings: Any) -> DataLoader:
    """Torch's DataLoader with a worker for each core."""
    settings = {"batch_size": job.batch_size, "drop_last": True} | settings
    return DataLoader(
        dataset,
        num_workers=job.cores,
        worker_init_fn=die_with_parent,
        persistent_workers=True,
        **settings,
    )


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """One pass after the other.

    Raises:
        ValueError: A pass has nothing in it.
    """
    for _ in count():
        empty = True
        for batch in loader:
            empty = False
            yield batch
            del batch
        if empty:
            raise ValueError("a pass over the data gave no batch")
