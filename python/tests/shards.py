"""The chats of a folder as people store them: by Python's tarfile, by pyarrow, and as MDS."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def chats(folder: Path) -> Iterator[tuple[list[dict], list[bytes]]]:
    """Messages and images of each line, as they stand."""
    for line in (folder / "chats.jsonl").read_text().splitlines():
        messages = json.loads(line)["messages"]
        names = [part["image"] for part in messages[0]["content"] if part["type"] == "image"]
        yield messages, [(folder / name).read_bytes() for name in names]


def unnamed(messages: list[dict]) -> list[dict]:
    """The messages with all content in parts, and images that are the next ones of the row."""

    def part(one: dict) -> dict:
        return {"type": one["type"], "text": one.get("text")}

    def parts(content: str | list[dict]) -> list[dict]:
        text = [{"type": "text", "text": content}]
        return text if isinstance(content, str) else [part(one) for one in content]

    return [{"role": turn["role"], "content": parts(turn["content"])} for turn in messages]


def archive(path: Path, members: dict[str, bytes]) -> None:
    """Writes a tar of these files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


def members(folder: Path, rows: range) -> dict[str, bytes]:
    """Some of the chats as WebDataset has them."""
    found = {}
    for row, (messages, images) in list(enumerate(chats(folder)))[rows.start : rows.stop]:
        found |= {f"{row:06}.{n}.jpg": image for n, image in enumerate(images)}
        found[f"{row:06}.json"] = json.dumps({"messages": unnamed(messages)}).encode()
    return found


def tar(folder: Path, to: Path) -> list[str]:
    """WebDataset: three shards, the last of them compressed."""
    for name, rows in {
        "0.tar": range(10),
        "1.tar": range(10, 20),
        "2.tar.gz": range(20, 24),
    }.items():
        archive(to / name, members(folder, rows))
    return [str(to / "{0..1}.tar"), str(to / "2.tar.gz")]


def table(path: Path, rows: list[dict], columns: dict[str, Any]) -> None:
    """Writes a Parquet file of several row groups."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(columns)), path, row_group_size=4)


def parquet(folder: Path, to: Path) -> str:
    """As the Hugging Face hub has it: image structs, several row groups, two files."""
    import pyarrow as pa

    part = pa.struct({"type": pa.string(), "text": pa.string()})
    turn = pa.struct({"role": pa.string(), "content": pa.list_(part)})
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    columns = {"id": pa.int64(), "images": pa.list_(image), "messages": pa.list_(turn)}
    rows = [
        {
            "id": row,
            "images": [
                {"bytes": image, "path": f"{row}-{n}.jpg"} for n, image in enumerate(images)
            ],
            "messages": unnamed(messages),
        }
        for row, (messages, images) in enumerate(chats(folder))
    ]
    for shard, some in enumerate((rows[:15], rows[15:])):
        table(to / f"train-{shard}.parquet", some, columns)
    return str(to / "train-*.parquet")


def mds(folder: Path, to: Path) -> str:
    """Mosaic's MDS, by the layout that its writer documents."""
    names, shards = ["images", "messages"], []
    rows = list(chats(folder))
    for shard, some in enumerate((rows[:9], rows[9:])):
        samples = []
        for messages, images in some:
            sizes = struct.pack(f"<{len(images) + 1}I", len(images), *map(len, images))
            columns = [sizes + b"".join(images), json.dumps(unnamed(messages)).encode()]
            samples.append(struct.pack("<2I", *map(len, columns)) + b"".join(columns))
        info = {"column_names": names, "column_encodings": ["jpeg_array", "json"]}
        info |= {"column_sizes": [None, None], "format": "mds", "version": 2, "compression": None}
        head = json.dumps(info).encode()
        ends = [4 + 4 * (len(samples) + 1) + len(head)]
        for sample in samples:
            ends.append(ends[-1] + len(sample))
        offsets = struct.pack(f"<{len(ends) + 1}I", len(samples), *ends)
        content = offsets + head + b"".join(samples)
        name = f"shard.{shard:05}.mds"
        (to / name).write_bytes(content)
        raw = {"basename": name, "bytes": len(content), "hashes": {}}
        info |= {"hashes": [], "size_limit": 1 << 26}
        shards.append(info | {"raw_data": raw, "zip_data": None, "samples": len(samples)})
    (to / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return str(to / "index.json")


WRITERS: dict[str, Callable[[Path, Path], str | list[str]]] = {
    "tar": tar,
    "parquet": parquet,
    "mds": mds,
}
