"""The chats that the Python rungs load."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.ladder.job import Job


class Samples:
    """The chats of the source."""

    def __init__(self, job: Job, source: bytes) -> None:
        self.folder = job.store.key.rpartition("/")[0]
        self.batch_size = job.batch_size
        self.samples = [json.loads(line) for line in source.splitlines()]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.samples[row]

    def batch(self, number: int) -> list[dict[str, Any]]:
        """The samples of a batch."""
        return self.samples[number * self.batch_size :][: self.batch_size]

    def keys(self, sample: dict[str, Any]) -> list[str]:
        """Where its images are."""
        contents = (message["content"] for message in sample["messages"])
        parts = [part for content in contents if isinstance(content, list) for part in content]
        names = [part["image"] for part in parts if part["type"] == "image"]
        return [f"{self.folder}/{name}".lstrip("/") for name in names]
