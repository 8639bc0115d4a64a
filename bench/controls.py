"""No loaders: what `bench.neighbour` finds beside them is the method's doing, and the machine's."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from bench.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.speed.job import Job

SECONDS = 0.05
"""For a batch: of the loaders, stoker takes 25 ms for one, DataLoader over 200."""
AHEAD = 2
WAIT = "time.sleep(seconds)"
COUNT = "while time.monotonic() < until: pass"
MAKER = """
import os, time
seconds = {seconds}
while os.read(0, 1):
    until = time.monotonic() + seconds
    {work}
    os.write(1, b".")
"""


def open(job: Job) -> Iterator[dict[str, tuple[()]]]:  # noqa: A001 (the adapters' word)
    """Batches with nothing in them, of a process that waits for each, or counts (option `spins`).

    It shares no lock, no memory and no cache to speak of with who takes them.
    """
    work = COUNT if job.options.get("spins") else WAIT
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER.format(seconds=SECONDS, work=work)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        preexec_fn=die_with_parent,
    )
    try:
        maker.stdin.write(b"." * AHEAD)
        while maker.stdout.read(1):
            maker.stdin.write(b".")
            yield {"image_grid_thw": ()}
        raise RuntimeError(f"the process that stands for a loader ended (code {maker.wait()})")
    finally:
        maker.kill()
        maker.communicate()
