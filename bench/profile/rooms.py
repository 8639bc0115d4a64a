"""Drives `crates/stoker-engine/examples/rooms`, which does each room's work on fixed data."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.profile.model import small

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "target/release/examples/rooms"
BUILD = "cargo build --release --workspace --exclude stoker-python --example rooms"
"""With the packages that the tests are built with, so that no dependency is compiled anew."""
FLAGS = {"PYO3_BUILD_EXTENSION_MODULE": "1", "UV_NATIVE_TLS": "1"}
"""As in the Makefile."""
ENTRY, SAME_ENTRY = "*measured_work*", "rooms::measured_work*"
"""The function that all measured work is done in: callgrind takes one option for each pattern."""
MINUTES = 10
"""After which something is wrong: all of it takes one or two."""

Works = dict[str, dict[str, float]]
"""What was found of an item of each work, in the order of the flow."""


class RoomsError(Exception):
    """Nothing could be measured; the message says why."""


def build() -> Path:
    """Builds the program."""
    run(BUILD.split(), cwd=ROOT, env=os.environ | FLAGS)
    return PROGRAM


@contextmanager
def made(program: Path) -> Iterator[Path]:
    """A folder with what is measured on.

    Its path has the same length everywhere, as it is in what is made of the lines.
    """
    with tempfile.TemporaryDirectory(prefix="profile-", dir="/tmp") as folder:
        run([program, "make", Path(folder) / "data"])
        yield Path(folder)


def count(program: Path, model: Path) -> Works:
    """Counts instructions and allocations of each work.

    The model is cut down to what English text needs: reading all of it takes valgrind half a
    minute.

    Args:
        program: What `build` made.
        model: The model's folder.

    Raises:
        RoomsError: There is no valgrind, or it did not count each work once.
    """
    if shutil.which("valgrind") is None:
        raise RoomsError("there is no valgrind: run make setup, or install it")
    with made(program) as folder:
        counts = folder / "counts"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", "--quiet"]
        command += ["--collect-atstart=no", f"--toggle-collect={ENTRY}"]
        command += [f"--dump-after={SAME_ENTRY}"]
        command += [program, "once", folder / "data", small(model, folder / "model")]
        # The environment lies on the stack, and its length must not decide how that is aligned.
        works = works_of(run(command, env={"PATH": os.environ["PATH"]}))
        # Of each work one file, and one of what is counted after the last: nothing.
        found = [summary(folder / f"counts.{number + 1}") for number in range(len(works))]
        if (folder / f"counts.{len(works) + 1}").exists() or summary(counts):
            raise RoomsError(f"valgrind counted other work than that of {', '.join(works)}")
    for work, instructions in zip(works.values(), found, strict=True):
        work["instructions"] = instructions / work.pop("items")
    return works


def summary(counts: Path) -> int:
    """What a file of callgrind says of all in it."""
    told = re.search(r"^summary: (\d+)$", counts.read_text(), re.M) if counts.exists() else None
    if told is None:
        raise RoomsError(f"valgrind has counted nothing: {counts}")
    return int(told[1])


def time(program: Path, model: Path) -> dict[str, Any]:
    """Takes the time of each work, and of all together (`chain`), with the whole model.

    Returns:
        `works`: of each an item's `nanoseconds` and what was asked of the allocator; `chain`: an
        image's nanoseconds by the type of its pixels. All are processor time.
    """
    with made(program) as folder:
        text = run([program, "time", folder / "data", model])
    return {"works": works_of(text), "chain": json.loads(text)["chain"]}


def works_of(text: str) -> Works:
    """The works that the program tells of."""
    return {work.pop("name"): work for work in json.loads(text)["works"]}


def run(command: list[Any], **options: Any) -> str:
    """Runs a command.

    Returns:
        What it printed.

    Raises:
        RoomsError: It failed.
    """
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=60 * MINUTES, check=False, **options
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise RoomsError(f"exit code {done.returncode} of: {words}")
    return done.stdout
