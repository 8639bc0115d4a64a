"""Makes the data of a scenario: photos, chats about them, and the forms that rivals read.

All of it is a function of the scenario and the seed. Sample N has one image, and says its number,
so that a batch can be compared with the reference in whatever order it comes.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from stoker import _native

if TYPE_CHECKING:
    from pathlib import Path

    from bench.speed.scenarios import Scenario

SHARDS = 8
TEXT = (
    "a and around bird blue bridge bright building child cloud corner dark door far field glass "
    "green hand hill holds large left light metal near old on open person quiet red right river "
    "road round sea shadow shows small stands stone street tall the three tree two under wall "
    "water white window with wood yellow"
)
WORDS = TEXT.split()
TOKENS_OF_TEMPLATE = 30
"""Of a chat, beside words and image: role names, the question."""


class Data(NamedTuple):
    """What was made."""

    folder: Path
    samples: int
    bytes: int
    """Of all images."""
    pixels: int
    tokens: int
    """Of all samples, about: visual ones and words."""


def make(scenario: Scenario, folder: Path, seed: int) -> Data:
    """Writes objects, tar archives and Parquet files, unless they are there.

    Args:
        scenario: Of which photos and chats.
        folder: Where to; keys are paths under it.
        seed: Chooses them.
    """
    photos = _native.DemoDataset(seed=seed, samples=2 * scenario.samples, pixels=scenario.pixels)
    sizes = [photos.pixels(1 + number) for number in range(scenario.samples)]
    done = folder / "objects/train.jsonl"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            images = pool.map(lambda n: photos.object(1 + n)[1], range(scenario.samples))
            write(folder, scenario, list(images), seed)
    images = [folder / f"objects/{key(number)}" for number in range(scenario.samples)]
    most = scenario.max_pixels or max(sizes)
    visual = sum(min(size, most) // (32 * 32) for size in sizes)
    text = scenario.samples * (TOKENS_OF_TEMPLATE + scenario.answer_words)
    return Data(
        folder,
        scenario.samples,
        sum(image.stat().st_size for image in images),
        sum(sizes),
        visual + text,
    )


def key(number: int) -> str:
    """Where an image is, seen from the JSONL."""
    return f"images/{number:06}.jpg"


def chat(number: int, scenario: Scenario, seed: int, image: dict[str, str]) -> dict[str, Any]:
    """What is said about an image."""
    draw = random.Random(f"{seed}/{number}")
    answer = " ".join(draw.choices(WORDS, k=scenario.answer_words)).capitalize() + "."
    question = {"type": "text", "text": f"Photo {number}: what is to be seen?"}
    return {
        "messages": [
            {"role": "user", "content": [image, question]},
            {"role": "assistant", "content": answer},
        ]
    }


def write(folder: Path, scenario: Scenario, images: list[bytes], seed: int) -> None:
    """Writes all forms; the JSONL last."""
    for name in ("objects/images", "tar", "parquet"):
        (folder / name).mkdir(parents=True)
    lines = []
    for number, image in enumerate(images):
        (folder / f"objects/{key(number)}").write_bytes(image)
        told = chat(number, scenario, seed, {"type": "image", "image": key(number)})
        lines.append(json.dumps(told))
    rows = [
        {"image": image, "chat": json.dumps(chat(number, scenario, seed, {"type": "image"}))}
        for number, image in enumerate(images)
    ]
    each = -(-len(rows) // SHARDS)
    for shard in range(SHARDS):
        part = range(shard * each, min(len(rows), (shard + 1) * each))
        write_tar(folder / f"tar/{shard:04}.tar", {n: rows[n] for n in part})
        # Row groups of a batch or two: what streaming readers bring at once.
        table = pa.Table.from_pylist([rows[n] for n in part])
        pq.write_table(table, folder / f"parquet/{shard:04}.parquet", row_group_size=16)
    (folder / "objects/train.jsonl").write_text("\n".join(lines) + "\n")


def write_tar(path: Path, rows: dict[int, dict[str, Any]]) -> None:
    """A shard as WebDataset has it."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, row in rows.items():
            members = (("jpg", row["image"]), ("json", row["chat"].encode()))
            for extension, content in members:
                member = tarfile.TarInfo(f"{number:06}.{extension}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def limited(model: Path, folder: Path, max_pixels: int | None) -> Path:
    """The model's folder with a limit of pixels, which all adapters then read from there."""
    shutil.copytree(model, folder, dirs_exist_ok=True)
    if max_pixels is not None:
        file = folder / "preprocessor_config.json"
        config = json.loads(file.read_text())
        config["size"] = config["size"] | {"longest_edge": max_pixels}
        file.write_text(json.dumps(config, indent=2))
    return folder
