"""The parent's side of the store: starts it, follows it while it fills, stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class DemoError(Exception):
    """The demo can't go on; the message says why."""


class Store(NamedTuple):
    """A filled store."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    bucket: str
    key: str
    samples: int
    images: int
    bytes: int
    pixels: int
    process: int
    """Of the server."""

    @property
    def source(self) -> str:
        """The URI of the JSONL."""
        return f"s3://{self.bucket}/{self.key}"


@contextmanager
def store(
    samples: int, profile: str, seed: int, progress: Callable[[int, int], None]
) -> Iterator[Store]:
    """A store with the made-up data set; this process's environment has its credentials.

    Args:
        samples: Number of chat samples.
        profile: How long requests take.
        seed: Chooses the data and the latencies.
        progress: Is told how many objects of how many are there.
    """
    arguments = ["--samples", str(samples), "--profile", profile, "--seed", str(seed)]
    process = subprocess.Popen(
        [sys.executable, "-m", "stoker.demo.server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        filled = follow(process, progress)
        use(filled)
        yield filled
    finally:
        process.stdin.close()
        process.wait()


def follow(process: subprocess.Popen, progress: Callable[[int, int], None]) -> Store:
    """Reads what the process says until it is ready."""
    for line in process.stdout:
        said = json.loads(line)
        if "endpoint" in said:
            return Store(**said)
        progress(said["filled"], said["of"])
    raise DemoError(f"the store's process ended with code {process.wait()} before it was filled")


def use(store: Store) -> None:
    """Lets the loaders of this process find the store, and nothing stand between."""
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        os.environ.pop(name, None)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": store.access_key_id,
        "AWS_SECRET_ACCESS_KEY": store.secret_access_key,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
