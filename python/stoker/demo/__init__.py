"""`stoker demo`: the loader that people start with against stoker, rung by rung.

One training loop over one data set, four ways to load: a hand-written Python loader, stoker held
back to one thing at a time, stoker concurrent, stoker as it comes. The store is stoker's own S3
server with the latency of a real one, in a process of its own; the trainer is a stand-in that holds
its "device" for a fixed time per batch. Writes a table to stdout, `demo.json` and `demo.html`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path


def main(argv: list[str]) -> int:
    """Runs the demo.

    Returns:
        The exit code: 0, 1 if the demo can't go on, 2 for wrong arguments, 130 after Ctrl-C.
    """
    arguments = parse(argv)
    from stoker.demo.store import DemoError

    try:
        run(arguments)
    except DemoError as error:
        print(f"stoker demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstoker demo: interrupted", file=sys.stderr)
        return 130
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="stoker demo",
        description="A hand-written Python loader against stoker, on the same data and trainer.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, default=Path(".setup/models/qwen3-vl"), help="folder of the model")
    add("--out", type=Path, default=Path("target"), help="where demo.json and demo.html go")
    add("--samples", type=at_least(16), default=256, help="chat samples")
    add("--batch-size", type=at_least(1), default=8, help="samples per batch")
    add("--profile", default="standard", help="latency of the store: hot, standard, cold, express")
    add("--seed", type=int, default=0, help="chooses the data and the latencies")
    arguments = parser.parse_args(argv)
    if arguments.samples < 8 * arguments.batch_size:
        parser.error("at least 8 batches are needed: raise --samples or lower --batch-size")
    return arguments


def at_least(least: int) -> type:
    """A number on the command line."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def run(arguments: argparse.Namespace) -> None:
    """Fills the store, climbs the rungs, writes what was found."""
    from stoker.demo.page import page
    from stoker.demo.results import document, table
    from stoker.demo.rungs import Settings, climb
    from stoker.demo.store import store

    check_model(arguments.model)
    arguments.out.mkdir(parents=True, exist_ok=True)
    settings = {
        name: getattr(arguments, name) for name in ("samples", "batch_size", "profile", "seed")
    }
    with (
        tempfile.TemporaryDirectory(prefix="stoker-demo-") as scratch,
        store(arguments.samples, arguments.profile, arguments.seed, progress) as filled,
    ):
        tell(f"{filled.images} images, {filled.bytes / 2**20:.0f} MiB in {filled.source}")
        outcome = climb(
            filled, Settings(arguments.model, arguments.batch_size, Path(scratch)), tell
        )
    tell("")
    print(table(outcome))
    json_file, html_file = arguments.out / "demo.json", arguments.out / "demo.html"
    json_file.write_text(json.dumps(document(outcome, settings), indent=2) + "\n")
    html_file.write_text(page(outcome, filled, settings))
    tell(f"\nwritten: {json_file} and {html_file} (open it in a browser)")


def check_model(folder: Path) -> None:
    """Says what to do where there is no model folder."""
    from stoker.demo.store import DemoError

    if not (folder / "tokenizer.json").exists():
        raise DemoError(
            f"there is no model folder at {folder}: run `make setup` in a clone of stoker, or name "
            "one with --model (a folder with tokenizer.json, chat_template.jinja and "
            "preprocessor_config.json, as the Hugging Face hub has it)"
        )


def tell(words: str) -> None:
    """Says what is being done."""
    print(words, file=sys.stderr, flush=True)


def progress(done: int, of: int) -> None:
    """Shows how far the store is filled."""
    if sys.stderr.isatty() or done == of:
        end = "\n" if done == of else ""
        print(f"\rfilling the store: {done} of {of} objects", end=end, file=sys.stderr, flush=True)
