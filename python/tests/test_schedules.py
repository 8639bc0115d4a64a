"""No sample is lost or comes twice, whatever happens to the trainers: see `schedules`.

`STOKER_SCHEDULES` says how many schedules are run, 200 by default, and `STOKER_SEED` from which
seed on. What fails names its seed, and how to run it alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from schedules.broken import KINDS

COUNT = int(os.environ.get("STOKER_SCHEDULES", "200"))
FIRST = int(os.environ.get("STOKER_SEED", "0"))
TESTS = Path(__file__).parent


def run(first: int, count: int, *more: str) -> dict:
    """How a row of schedules went."""
    command = [sys.executable, "-m", "schedules", f"--first={first}", f"--count={count}", *more]
    # Forks are cheaper, and safer, of a process that has no threads.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=TESTS, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_whatever_happens_to_the_trainers_every_batch_comes_once_and_is_the_same():
    half = -(-COUNT // 2)
    with ThreadPoolExecutor(2) as two:
        parts = list(two.map(run, (FIRST, FIRST + half), (half, COUNT - half)))
    counts = {key: sum(part["counts"][key] for part in parts) for key in parts[0]["counts"]}
    print(f"{COUNT} schedules: {counts}")
    wrong = parts[0]["wrong"] | parts[1]["wrong"]
    alone = "to run one alone: cd python/tests; python -m schedules --show --first SEED\n"
    assert not wrong, alone + "\n".join(wrong.values())
    assert counts["attempts"] > 2 * COUNT
    assert counts["killed"] > COUNT // 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_broken_is_noticed(kind):
    """Of ten schedules most have what it takes: several ranks, or a state that is loaded."""
    wrong = run(0, 10, f"--broken={kind}")["wrong"]
    assert len(wrong) >= 5, f"{KINDS[kind]}: noticed with seeds {list(wrong)} alone"
