"""The command line of the profile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stoker.demo.results import described, machine

from bench.page import PageError, write_between
from bench.profile import __doc__ as about
from bench.profile import expected, results, rooms


def main(argv: list[str]) -> int:
    """Measures and counts; or counts alone, and takes what it finds as what is expected.

    Returns:
        The exit code: 0, 1 if a room takes another number of instructions than expected or nothing
        could be measured, 2 for wrong arguments.
    """
    arguments = parse(argv)
    try:
        return run(arguments)
    except (rooms.RoomsError, PageError) as error:
        print(f"profile: {error}", file=sys.stderr)
        return 1


def parse(argv: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile", description=about.partition("\n")[0]
    )
    add = parser.add_argument
    add("--model", type=Path, default=Path(".setup/models/qwen3-vl"), help="folder of the model")
    add("--docs", type=Path, help="a page with markers, between which the figures are written too")
    add("--accept", action="store_true", help="only count, and expect from now on what is found")
    arguments = parser.parse_args(argv)
    if not (arguments.model / "tokenizer.json").exists():
        parser.error(f"there is no model folder at {arguments.model}: run make setup, or give one")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Builds, measures, compares, writes."""
    program = rooms.build()
    counted = rooms.count(program, arguments.model)
    if arguments.accept:
        expected.write(expected.FILE, counted)
        print(f"written: {expected.FILE}")
        return 0
    timed = rooms.time(program, arguments.model)
    figures = results.figures(counted, timed, described(machine()))
    print(figures)
    if arguments.docs:
        write_between(arguments.docs, results.NAME, figures)
        print(f"written: {arguments.docs}", file=sys.stderr)
    differences = expected.differences(expected.read(expected.FILE), counted)
    print("\n".join(differences), file=sys.stderr)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
