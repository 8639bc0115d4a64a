"""No sample is lost or comes twice, whatever happens to the trainers: see `schedules`.

`STOKER_SCHEDULES` says how many schedules are run, 200 by default, and `STOKER_SEED` from which
seed on. What fails names its seed, and how to run it alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from schedules.broken import KINDS
from schedules.schedule import KINDS as HITS
from schedules.schedule import POINTS

COUNT = int(os.environ.get("STOKER_SCHEDULES", "200"))
FIRST = int(os.environ.get("STOKER_SEED", "0"))
TESTS = Path(__file__).parent
PLACES = [
    *(f"{kind} at " for kind in HITS if kind != "outside"),
    *(f" at {point}" for point in POINTS),
    *(f"resumed on {ranks}" for ranks in ("more", "fewer", "as many")),
    "saved before the first batch",
    "saved just after loading",
    "saved after a step, holding some",
    "saved on the last batch",
    "saved after the end",
    "saved on leaving, holding some",
]
"""What has to happen, and does: from where runs were resumed, and where they were hit."""


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
    counts = Counter(parts[0]["counts"]) + Counter(parts[1]["counts"])
    print(
        f"{COUNT} schedules:", *(f"  {n:5} {what}" for what, n in sorted(counts.items())), sep="\n"
    )
    wrong = parts[0]["wrong"] | parts[1]["wrong"]
    alone = "to run one alone: cd python/tests; python -m schedules --show --first SEED\n"
    assert not wrong, alone + "\n".join(wrong.values())
    if COUNT >= 200:
        assert counts["attempts"] > 2 * COUNT
        # With a single place in hundreds of runs a test of that place would be luck.
        for what in PLACES:
            assert sum(n for name, n in counts.items() if what in name) > 5, what


@pytest.fixture(scope="module")
def noticed() -> dict[str, list[str]]:
    """The seeds, of sixteen, with which each kind was noticed; two kinds are tried at a time."""

    def wrong(kind: str) -> list[str]:
        return list(run(0, 16, f"--broken={kind}")["wrong"])

    with ThreadPoolExecutor(2) as two:
        return dict(zip(KINDS, two.map(wrong, KINDS), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_broken_is_noticed(noticed, kind):
    """Some schedules have what it takes: several ranks, or batches that are held."""
    seeds = noticed[kind]
    assert len(seeds) >= 3, f"{KINDS[kind]}: noticed with seeds {seeds} alone"
