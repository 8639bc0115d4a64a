"""The command line of the scale experiment."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from stoker.demo.results import machine

from bench.cluster import __doc__ as about
from bench.cluster import faults, placement
from bench.cluster.bench import FULL, SHORT, Bench, bench
from bench.cluster.counters import CountersError
from bench.cluster.driver import TrainerError
from bench.cluster.hosts import HostsError
from bench.cluster.results import claims, told, write_figures
from bench.pages import PageError

if TYPE_CHECKING:
    from types import FrameType

EXPERIMENTS = ("A", "B", "C")


def main(argv: list[str]) -> int:
    """Runs the experiments.

    Returns:
        The exit code: 0, 1 if one could not be run or did not show what it is to show, 2 for wrong
        arguments, 130 after Ctrl-C, 143 after SIGTERM.
    """
    arguments = parse(argv)
    signal.signal(signal.SIGTERM, terminated)
    try:
        return run(arguments)
    except (HostsError, TrainerError, CountersError, PageError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncluster: interrupted", file=sys.stderr)
        return 130


def parse(argv: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster",
        description=about.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("which", nargs="?", choices=[*EXPERIMENTS, "all"], default="all", help="experiments")
    add("--short", action="store_true", help="A and a killed worker, small and without a speed")
    add("--model", type=Path, default=Path(".setup/models/qwen3-vl"), help="folder of the model")
    add("--out", type=Path, default=Path("target"), help="where cluster.json goes")
    add("--docs", type=Path, help="a page with markers, between which the figures are written too")
    arguments = parser.parse_args(argv)
    if not (arguments.model / "tokenizer.json").exists():
        parser.error(f"there is no model folder at {arguments.model}: run make setup, or give one")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Brings the cluster up, runs, writes what was found."""
    began = time.monotonic()
    scale = SHORT if arguments.short else FULL
    found: dict[str, Any] = {}
    with bench(scale, arguments.model, tell) as cluster:
        first = cluster.trainer(placement.TRAINERS[0])
        for name in chosen(arguments):
            found[name] = experiment(name, cluster, first, short=arguments.short)
        found["settings"] = settings(cluster, short=arguments.short)
    found |= {"machine": machine(), "seconds": time.monotonic() - began}
    claimed = claims(found)
    found["claims"] = [vars(claim) for claim in claimed]
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "cluster.json"
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(told(found, claimed))
    tell(f"written: {path}")
    if arguments.docs:
        write_figures(arguments.docs, found)
        tell(f"written: {arguments.docs}")
    return 0 if all(claim.kept for claim in claimed) else 1


def chosen(arguments: argparse.Namespace) -> list[str]:
    """The experiments to run; C is the last, as it takes a node away."""
    if arguments.which != "all":
        return [arguments.which]
    return [name for name in EXPERIMENTS if not (arguments.short and name == "B")]


def experiment(name: str, cluster: Bench, first: Any, *, short: bool) -> Any:
    """Runs one experiment; a trainer's host has its trainer already."""
    if name == "A":
        others = {host: cluster.trainer(host) for host in placement.TRAINERS[1:]}
        found = placement.ranks(cluster, {placement.TRAINERS[0]: first} | others)
        for trainer in others.values():
            trainer.close()
        return found
    if name == "B":
        return placement.sweep(cluster, first)
    return faults.strike(cluster, first, faults.FAULTS[:1] if short else faults.FAULTS)


def settings(cluster: Bench, *, short: bool) -> dict[str, Any]:
    """What was run."""
    photos = cluster.photos
    return asdict(cluster.scale) | {
        "short": short,
        "images": photos.images,
        "pixels": photos.pixels,
        "bytes": sum(photos.row_bytes),
        "ray": ray.__version__,
    }


def tell(words: str) -> None:
    """Says what is being done."""
    print(words, file=sys.stderr, flush=True)


def terminated(_signal: int, _frame: FrameType | None) -> None:
    """Ends the run by way of its `with` statements."""
    raise SystemExit(143)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
