"""Runs schedules (`python -m schedules --first 0 --count 200`); says as JSON how it went."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .broken import KINDS
from .driver import Driver
from .oracle import WrongError


def main() -> None:
    """Exit code 1 if what came was wrong in any of them."""
    parser = argparse.ArgumentParser(prog="schedules", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--broken", choices=KINDS, help="what is to be wrong")
    parser.add_argument("--show", action="store_true", help="print each schedule")
    parser.add_argument("--keep", type=Path, help="a new folder for data, logs and checkpoints")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="schedules-"))
    folder.mkdir(exist_ok=True)
    counts, wrong = Counter(), {}
    driver = Driver(folder, arguments.broken)
    try:
        for seed in range(arguments.first, arguments.first + arguments.count):
            if arguments.show:
                print(driver.schedule(seed), file=sys.stderr)
            try:
                counts.update(driver.run(seed))
            except WrongError as error:
                wrong[seed] = f"{driver.schedule(seed)}\n  {error}"
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder)
    print(json.dumps({"counts": counts, "wrong": wrong}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
