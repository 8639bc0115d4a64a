"""The process that runs are forked from: `python -m bench.speed.nursery`, one per environment.

It has imported what all rivals need, and started no thread, so that a run begins at once. It reads
orders on stdin and answers each on stdout, a line of JSON each; what a rival prints goes to its
stderr. Whatever a run started is gone before the answer.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bench.processes import adopt_orphans, die_with_parent, end, family, pss_bytes
from bench.speed import measure
from bench.speed.job import Job, Times
from bench.speed.rivals import Rival

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

IMPORTS = "bench.processor", "torchvision", "boto3", "torch.utils.data"
SILENCE_SECONDS = 90.0
"""How long a run may say nothing: Ray's start and imports, and its slowest batch."""
END_SECONDS = 5.0
"""How long it may take to end after its last word; it is killed then."""
MEMORY_SECONDS = 0.4
"""How often the memory is read."""
LAST_WORDS = 300
"""Letters of an error that are told."""


def main() -> None:
    """Hears orders until stdin ends."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    multiprocessing.set_start_method("fork")
    adopt_orphans()
    for module in IMPORTS:
        import_module(module)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(obey(json.loads(line))), file=answers, flush=True)


def obey(order: dict[str, Any]) -> dict[str, Any]:
    """Forks, follows and buries one run.

    Returns:
        `found`: what it said at its end; or `failed`: why it gave nothing, or nothing that counts.
    """
    messages, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=child, args=(theirs, order))
    process.start()
    theirs.close()
    patience = 0.0
    try:
        answer = follow(messages, process.pid)
        patience = END_SECONDS
    except EOFError:
        process.join(END_SECONDS)
        answer = {"failed": f"its process ended with code {process.exitcode}"}
    finally:
        _, *left = family(os.getpid())
        end(left, patience)
        process.join()
        bury()
    return answer


def follow(messages: Connection, process: int) -> dict[str, Any]:
    """Hears a run, and reads its memory in the part where it is furthest ahead."""
    peak, part, heard = 0, "", time.monotonic()
    while time.monotonic() - heard < SILENCE_SECONDS:
        if messages.poll(MEMORY_SECONDS):
            kind, content = messages.recv()
            heard = time.monotonic()
            if kind != "part":
                if content and kind == "found":
                    content["peak_memory_bytes"] = peak
                return {kind: content}
            part = content
        if part == "trainer":
            peak = max(peak, pss_bytes(family(process)))
    return {"failed": f"it said nothing for {SILENCE_SECONDS:.0f} s (in {part}), so it was ended"}


def bury() -> None:
    """Hears of the end of all that was left to us."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def child(messages: Connection, order: dict[str, Any]) -> None:
    """A run, or a rival's preparation, in a process of its own."""
    die_with_parent()
    adopt_orphans()  # what a rival's own processes leave counts as the rival's
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    rival, job = Rival(**order["rival"]), Job(**order["job"])
    settle(job)

    def say(kind: str, content: Any) -> None:
        messages.send((kind, content))

    with ExitStack() as closing:  # all is said before: some rivals can't be ended, and are killed
        try:
            if order["do"] == "prepare":
                prepare(rival, job)
                say("found", {})
            else:
                times = Times(**order["times"])
                measure.run(rival, job, times, order["compare"], say, closing)
        except BaseException as error:
            traceback.print_exception(error)
            words = " ".join(f"{type(error).__name__}: {error}".split())
            say("failed", words[:LAST_WORDS])


def prepare(rival: Rival, job: Job) -> None:
    """Makes what the rival reads, if it is of a form of its own."""
    adapter = import_module(rival.module)
    if hasattr(adapter, "prepare"):
        adapter.prepare(job)


def settle(job: Job) -> None:
    """Lets the clients of this process find the store, and nothing stand between."""
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
        os.environ.pop(name, None)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": job.access_key_id,
        "AWS_SECRET_ACCESS_KEY": job.secret_access_key,
        "AWS_ENDPOINT_URL": job.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "HF_HUB_OFFLINE": "1",
        "TMPDIR": job.scratch,
    }
    tempfile.tempdir = job.scratch
    os.chdir(job.scratch)


if __name__ == "__main__":
    main()
