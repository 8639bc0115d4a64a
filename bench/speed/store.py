"""The runner's side of the store: starts it over a folder, stops it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stoker.demo.store import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def serve(folder: Path, profile: str, seed: int, nice: int = 0) -> Iterator[dict[str, Any]]:
    """Serves a folder for the block.

    Args:
        folder: Its files become the objects of one bucket.
        profile: How long requests take.
        seed: Chooses the latencies.
        nice: By how much it gives way to others.

    Yields:
        `endpoint`, `access_key_id`, `secret_access_key`, `bucket`, `process`.

    Raises:
        DemoError: It did not start.
    """
    arguments = ["--root", str(folder), "--profile", profile, "--seed", str(seed)]
    process = subprocess.Popen(
        ["nice", f"--adjustment={nice}", sys.executable, "-m", "bench.speed.server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        line = process.stdout.readline()
        if not line:
            raise DemoError(f"the store did not start (code {process.wait()}): its words are above")
        yield json.loads(line)
    finally:
        process.stdin.close()
        process.wait()
