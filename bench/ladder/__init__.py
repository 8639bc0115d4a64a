"""The ladder: one job, loaded in all the ways that people climb through, rung by rung.

From a Python loader that does one thing at a time, over threads, processes, asyncio and Ray, to
stoker in the trainer's process and on Ray. All rungs have the same data, the same store (stoker's
own S3 server with the latency of a real one), the same stand-in trainer and the same two cores, and
are run one after the other by one command. Writes a table to stdout, `ladder.json` and
`ladder.html`.

    .venv/bin/python -m bench.ladder
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.demo.store import Store

    from bench.ladder.climb import Outcome

CORES = 2
"""What the trainer, a loader with all its processes, and the store have together."""
AT_MOST_SECONDS = 25.0
"""How long a rung is measured: the ladder shall take under 6 minutes."""


def main(argv: list[str]) -> int:
    """Climbs the ladder.

    Returns:
        The exit code: 0, 1 if a rung failed, 2 for wrong arguments, 130 after Ctrl-C.
    """
    arguments = parse(argv)
    from stoker.demo.store import DemoError

    from bench.pages import PageError

    settle()
    try:
        return run(arguments)
    except (DemoError, PageError) as error:
        print(f"ladder: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nladder: interrupted", file=sys.stderr)
        return 130


def parse(argv: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    from stoker.demo import at_least

    parser = argparse.ArgumentParser(
        prog="python -m bench.ladder",
        description="One job, loaded in nine ways, on the same trainer and the same two cores.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, default=Path(".setup/models/qwen3-vl"), help="folder of the model")
    add("--out", type=Path, default=Path("target"), help="where ladder.json and ladder.html go")
    add("--samples", type=at_least(16), default=520, help="chat samples")
    add("--batch-size", type=at_least(1), default=8, help="samples per batch")
    add("--profile", default="standard", help="latency of the store: hot, standard, cold, express")
    add("--seed", type=int, default=0, help="chooses the data and the latencies")
    add("--docs", type=Path, help="a page with markers, between which the table is written too")
    arguments = parser.parse_args(argv)
    if arguments.samples < 8 * arguments.batch_size:
        parser.error("at least 8 batches are needed: raise --samples or lower --batch-size")
    return arguments


def settle() -> None:
    """Gives all rungs the same two cores, compiled imports, and a process to fork from.

    One without threads: NumPy's BLAS would start some, the tokenizers warn of theirs.
    """
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1"}


def run(arguments: argparse.Namespace) -> int:
    """Fills the store, climbs, writes what was found."""
    from stoker.demo import check_model, progress, tell
    from stoker.demo.store import store

    from bench.ladder.climb import climb
    from bench.ladder.job import Job
    from bench.ladder.results import table

    check_model(arguments.model)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="ladder-") as scratch,
        store(arguments.samples, arguments.profile, arguments.seed, progress) as filled,
    ):
        tell(f"{filled.images} images, {filled.bytes / 2**20:.0f} MiB in {filled.source}")
        cores = len(os.sched_getaffinity(0))
        job = Job(filled, arguments.model.resolve(), arguments.batch_size, cores, Path(scratch))
        outcome = climb(job, AT_MOST_SECONDS, tell)
    tell("")
    print(table(outcome))
    write(arguments, outcome, filled)
    return 1 if outcome.failed else 0


def write(arguments: argparse.Namespace, outcome: Outcome, filled: Store) -> None:
    """Writes the files."""
    from stoker.demo import tell

    from bench.ladder.page import page
    from bench.ladder.results import document, write_figures

    settings = {
        name: getattr(arguments, name) for name in ("samples", "batch_size", "profile", "seed")
    }
    json_file, html_file = arguments.out / "ladder.json", arguments.out / "ladder.html"
    json_file.write_text(json.dumps(document(outcome, filled, settings), indent=2) + "\n")
    html_file.write_text(page(outcome, filled, settings))
    tell(f"\nwritten: {json_file} and {html_file} (open it in a browser)")
    if arguments.docs:
        write_figures(arguments.docs, outcome, settings)
        tell(f"written: {arguments.docs}")
