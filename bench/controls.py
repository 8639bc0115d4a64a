"""No loaders: what `bench.neighbour` finds beside them is the method's doing, and the machine's."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.speed.job import Job

SECONDS = 0.05
"""From one batch to the next: of the loaders, stoker takes 25 ms for one, DataLoader over 200."""
SPIN = "while True: pass"


def open(job: Job) -> Iterator[dict[str, tuple[()]]]:  # noqa: A001 (the adapters' word)
    """Batches with nothing in them; with the option `spins`, a process counts while one is made.

    It shares no lock, no memory and no cache to speak of with who takes them.
    """
    if not job.options.get("spins"):
        while True:
            time.sleep(SECONDS)
            yield {"image_grid_thw": ()}
    spinning = subprocess.Popen([sys.executable, "-c", SPIN], preexec_fn=die_with_parent)
    try:
        while True:
            spinning.send_signal(signal.SIGCONT)
            time.sleep(SECONDS)
            spinning.send_signal(signal.SIGSTOP)
            yield {"image_grid_thw": ()}
    finally:
        spinning.kill()
        spinning.wait()
