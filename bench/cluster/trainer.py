"""The trainer of one rank, a process on its host: `python -m bench.cluster.trainer`.

It reads jobs from stdin, one JSON document a line; a line `stop` ends the one that runs. It tells
each batch on stdout as it comes. It ends when stdin does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import ray
import stoker
from stoker.ray import RayLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker import Batch


def main() -> None:
    """Connects to the cluster and does jobs until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster", help="address of Ray; without one, the loader is stoker's own")
    parser.add_argument("--address", required=True)
    arguments = parser.parse_args()
    tell = own_stdout()
    if arguments.cluster:
        ray.init(
            address=arguments.cluster,
            _node_ip_address=arguments.address,
            log_to_driver=False,
            logging_level="warning",
        )
    load = RayLoader if arguments.cluster else stoker.Loader
    tell(ready=True)
    jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=read, args=(jobs, stop), name="jobs", daemon=True).start()
    while (job := jobs.get()) is not None:
        stop.clear()
        try:
            tell(report=run(load, job, tell, stop.is_set))
        except Exception as error:  # whatever it is, the run must hear of it
            tell(error=f"{type(error).__name__}: {error}")
    ray.shutdown()


def run(
    load: type, job: dict[str, Any], tell: Callable[..., None], stopped: Callable[[], bool]
) -> str:
    """Iterates one loader, as a training loop would.

    Args:
        load: Kind of loader.
        job: `loader` has its arguments; `batches` is how many are taken at most;
            `step` is how long each is trained on, in seconds; `digest` says whether each is to be
            told apart by all its bytes.
        tell: Is told of each batch.
        stopped: Says when it is enough.

    Returns:
        The loader's report, in words.
    """
    with load(**job["loader"]) as loader:
        for _ in range(job["batches"]):
            began = time.monotonic()
            batch = next(loader, None)
            if batch is None or stopped():
                break
            now = time.monotonic()
            tell(
                at=now,
                waited=now - began,
                sequence=batch.sequence,
                nbytes=batch.nbytes,
                rows=[row for _, row in batch.samples],
                digest=digest(batch) if job["digest"] else None,
            )
            del batch
            time.sleep(job["step"])
        return str(loader.report())


def digest(batch: Batch) -> str:
    """A hash of all tensors of a batch, with their names, types and shapes."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in sorted(batch.numpy().items()):
        found.update(f"{name} {array.dtype} {array.shape}\n".encode())
        found.update(array)
    return found.hexdigest()


def own_stdout() -> Callable[..., None]:
    """What tells the run something; stdout is its alone, what others print goes to stderr."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(**fields: object) -> None:
        out.write(json.dumps(fields) + "\n")

    return tell


def read(jobs: queue.SimpleQueue[dict[str, Any] | None], stop: threading.Event) -> None:
    """Reads stdin to its end; on a thread, as the end of a job may be asked for while it runs."""
    for line in sys.stdin:
        if line.strip() == "stop":
            stop.set()
        else:
            jobs.put(json.loads(line))
    stop.set()
    jobs.put(None)


if __name__ == "__main__":
    main()
