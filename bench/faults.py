"""What faults of the store cost: the same run over a clean store and over bad ones, in turns.

The store has the latency of S3. Each kind of fault hits 5 % of the requests, and in one row all
those of whole objects together do. Photos are objects of their own, read whole; faults of ranges
are tried on a tar archive of the same photos, beside a clean run over that. The trainer is a
stand-in that sleeps for its step; `--step 0` takes batches as fast as they come, so that each wait
is felt. Credentials come from a program that gives another token each time, as they do where they
end.
Writes a table to stdout, and `faults.json`.

    .venv/bin/python -m bench.faults
"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import stoker
from stoker._native import DemoDataset, S3Server
from stoker.demo import at_least

from bench.command import Command
from bench.page import table

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "faults"
"""Of the markers in the page."""
SHARE = 0.05
ARCHIVE = "shards/000000.tar"
PROCESS = """#!/bin/sh
printf '{"Version": 1, "AccessKeyId": "%s", "SecretAccessKey": "%s", "SessionToken": "%s", ' \\
    '{key}' '{secret}' "$(date +%s%N)"
printf '"Expiration": "2100-01-01T00:00:00Z"}\\n'
"""
"""Gives credentials as AWS's tools ask programs for them."""
CLEAN, CLEAN_ARCHIVE = "clean", "clean, in an archive"
TOGETHER = "all together"
PIXELS = (100_000, 400_000)

KINDS: dict[str, list[dict[str, Any]]] = {
    # Longer, and at this pace the next one would be refused before it is over.
    "refuse": [{"kind": "refuse", "seconds": 0.001}],
    "reset": [{"kind": "reset"}],
    "reset in the body": [{"kind": "reset", "at": 1000}],
    "closed in the body": [{"kind": "hang-up", "at": 1000}],
    "500": [{"kind": "status", "status": 500}],
    "503": [{"kind": "status", "status": 503}],
    "429, 1 s": [{"kind": "status", "status": 429, "retry-after": 1}],
    "expired token": [{"kind": "expired"}],
    "stall of 2 s": [{"kind": "stall", "seconds": 2}],
    "stall for ever": [{"kind": "stall"}],
    "drip, 50 KB/s": [{"kind": "drip", "rate": 50_000}],
}
OF_RANGES = {
    "another range": [{"kind": "wrong-range"}],
    "no range told": [{"kind": "no-range"}],
    "range ignored": [{"kind": "whole-object"}],
}
WAYS: dict[str, list[dict[str, Any]]] = {
    CLEAN: [],
    **KINDS,
    TOGETHER: [fault for kind in KINDS.values() for fault in kind],
    CLEAN_ARCHIVE: [],
    **OF_RANGES,
}
"""All rows: a clean run, then those that are compared with it."""
SOURCES = {CLEAN: "s3://bench/train.jsonl", CLEAN_ARCHIVE: f"s3://bench/{ARCHIVE}"}


class Run(NamedTuple):
    """One run."""

    seconds: float
    requests: int
    retries: int
    faults: int


def main(argv: list[str]) -> int:
    """Measures."""
    command = Command(NAME)
    command.add("--rounds", type=at_least(1), default=3)
    command.add("--samples", type=at_least(8), default=400)
    command.add("--epochs", type=at_least(1), default=4, help="of each run")
    command.add("--step", type=float, default=0.04, help="seconds that the trainer sleeps")
    command.add("--profile", default="standard", help="latency of the store")
    faulty = [way for way in WAYS if way not in SOURCES]
    command.add("--only", action="append", choices=faulty, help="repeatable")
    arguments = command.parse(argv)
    chosen = arguments.only or faulty
    cleans = [clean for clean in SOURCES if clean in map(clean_of, chosen)]
    ways = [way for way in WAYS if way in cleans or way in chosen]
    server = filled(arguments.profile, arguments.samples)
    runs: dict[str, list[Run]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="stoker-") as folder, credentials(server, Path(folder)):
        base = {
            "model": str(arguments.model),
            "dataset": {"index-dir": folder},
            "fetch": {"endpoint": server.endpoint},
            "plan": {"epochs": arguments.epochs},
            "pack": {"batch-size": 8},
            "vision": {"pixels": "u8"},
        }
        recipes = {way: at(base, SOURCES[clean_of(way)]) for way in ways}
        for clean in cleans:
            # The index, and what a first run pays.
            once(recipes[clean], server, None, arguments.step)
        for number in range(arguments.rounds):
            for way in ways:
                run = once(recipes[way], server, script(way, number), arguments.step)
                print(f"{number + 1} {way}: {run}", file=sys.stderr, flush=True)
                runs[way].append(run)
    found = {
        "load": os.getloadavg(),
        "runs": {way: [run._asdict() for run in of_way] for way, of_way in runs.items()},
    }
    return command.keep(arguments, found, tables(runs))


@contextmanager
def credentials(server: S3Server, folder: Path) -> Iterator[None]:
    """Has this process find credentials of the server that it may ask for again."""
    program, profile = folder / "credentials", folder / "config"
    text = PROCESS.replace("{key}", server.access_key_id)
    program.write_text(text.replace("{secret}", server.secret_access_key))
    program.chmod(0o700)
    profile.write_text(f"[default]\ncredential_process = {program}\n")
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {"AWS_CONFIG_FILE": str(profile), "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def filled(profile: str, samples: int) -> S3Server:
    """A store with photos and chats about them, and an archive of both."""
    server = S3Server(profile=profile, seed=1)
    data = DemoDataset(seed=1, samples=samples, pixels=PIXELS)
    objects = [data.object(number) for number in range(len(data))]
    for key, content in objects:
        server.put("bench", key, content)
    server.put("bench", ARCHIVE, archive(dict(objects), data.key))
    return server


def archive(objects: dict[str, bytes], chats: str) -> bytes:
    """The photos with their chats as a shard of WebDataset."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as shard:
        for number, line in enumerate(objects[chats].splitlines()):
            chat = json.loads(line)
            images = [
                part.pop("image")
                for message in chat["messages"]
                if isinstance(message["content"], list)
                for part in message["content"]
                if part["type"] == "image"
            ]
            members = {f"{place}.jpg": objects[image] for place, image in enumerate(images)}
            for extension, content in (members | {"json": json.dumps(chat).encode()}).items():
                member = tarfile.TarInfo(f"{number:06}.{extension}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def clean_of(way: str) -> str:
    """The clean run that a way is compared with."""
    return CLEAN_ARCHIVE if way in (CLEAN_ARCHIVE, *OF_RANGES) else CLEAN


def at(recipe: dict[str, Any], source: str) -> dict[str, Any]:
    """The recipe over that source."""
    return recipe | {"dataset": recipe["dataset"] | {"source": source}}


def script(way: str, seed: int) -> dict[str, Any] | None:
    """The faults of a way; another seed hits other requests."""
    faults = WAYS[way]
    rules = [{"share": SHARE / len(faults), "fault": fault} for fault in faults]
    return {"seed": seed, "rules": rules} if rules else None


def once(
    recipe: dict[str, Any], server: S3Server, faults: dict[str, Any] | None, step: float
) -> Run:
    """All epochs, from opening to the end."""
    server.set_faults(faults)
    begin = time.perf_counter()
    with stoker.Loader(recipe) as loader:
        for _ in loader:
            time.sleep(step)
        seconds = time.perf_counter() - begin
        fetch = loader.report().fetch
    return Run(seconds, fetch.requests, fetch.retries, sum(server.injected().values()))


def tables(runs: dict[str, list[Run]]) -> str:
    """The figures as Markdown: medians, and what they are of the clean run."""

    def row(way: str, of_way: list[Run]) -> tuple[str, ...]:
        time, sent, faults = (
            median(getattr(run, of) for run in of_way) for of in ("seconds", "requests", "faults")
        )
        clean = runs[clean_of(way)]
        seconds, requests = (
            median(getattr(run, of) for run in clean) for of in ("seconds", "requests")
        )
        spread = (
            f"{min(run.seconds for run in of_way):.2f} to {max(run.seconds for run in of_way):.2f}"
        )
        return (
            way,
            f"{faults:.0f}",
            f"{sent:.0f} ({sent / requests:.2f})",
            f"{time:.2f} s ({time / seconds:.2f})",
            spread,
        )

    head = ("5 % of requests", "faults", "requests", "time", "from to")
    return table(head, (row(way, of_way) for way, of_way in runs.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
