"""What is trained on: tiny datasets whose samples say in text and colour who they are."""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LANES = 8
SIDE = 32


def _model() -> Any:
    """The model of the order."""
    path = Path(__file__).parents[3] / "testdata" / "golden" / "plan" / "model.py"
    spec = importlib.util.spec_from_file_location("order_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


model = _model()

REPLACED = ("not-json", "missing")
"""Kinds of bad samples that are found out before a batch is laid out."""

NEUTRALISED = ("corrupt",)
"""Those that are found out when their image is decoded."""


@dataclass(frozen=True)
class Job:
    """A recipe as the model of the order has it, and what else decides what comes."""

    name: str
    order: Any
    """The `model.Recipe`."""
    batch_size: int
    epochs: int | None = None
    """`plan.epochs`."""
    batches: int | None = None
    """Where an endless run is left."""
    passes: int = 1
    """How often one loader is gone through."""
    bad: dict[tuple[int, int], str] = field(default_factory=dict)
    """Bad samples, by dataset and row."""

    @property
    def total(self) -> int:
        """Batches of the global sequence in one pass."""
        if self.batches is not None:
            return self.batches
        weights = model.weights_at_first(self.order)
        by_epochs = any(one.epochs is not None for one in self.order.datasets)
        epoch = sum(weights) if by_epochs else sum(one.rows for one in self.order.datasets)
        return -(-self.epochs * epoch // self.batch_size)

    def write(self, folder: Path) -> dict[str, Any]:
        """Writes the data; gives the recipe."""
        order = self.order
        plan: dict[str, Any] = {
            "seed": order.seed,
            "shuffle": order.shuffle,
            "lanes": LANES,
            "epochs": self.epochs,
        }
        if order.shuffle == "block":
            plan["window"] = order.window
        names = [f"set{number}" for number in range(len(order.datasets))]
        plan["stages"] = [
            {"from": start, "weights": dict(zip(names, map(float, weights), strict=True))}
            for start, weights in order.stages
        ]
        datasets = []
        for number, (name, one) in enumerate(zip(names, order.datasets, strict=True)):
            source = {"name": name, "source": str(self._write(folder / name, number, one.rows))}
            shares = {"weight": one.weight, "epochs": one.epochs}
            datasets.append(source | {key: float(value) for key, value in shares.items() if value})
        return {
            "model": str(write_model(folder / "model")),
            "datasets": datasets,
            "plan": plan,
            "vision": {"family": "qwen3-vl", "min-pixels": SIDE**2, "pixels": "u8"},
            "pack": {"batch-size": self.batch_size},
            "engine": {"bad-sample-limit": 1.0},
        }

    def _write(self, folder: Path, dataset: int, rows: int) -> Path:
        folder.mkdir(parents=True)
        lines = []
        for row in range(rows):
            kind = self.bad.get((dataset, row))
            if kind != "missing":
                image = png(colour(dataset, row), corrupt=kind == "corrupt")
                (folder / f"{row}.png").write_bytes(image)
            line = json.dumps(chat(dataset, row))
            lines.append(line[: len(line) // 2] if kind == "not-json" else line)
        source = folder / "chats.jsonl"
        source.write_text("\n".join(lines) + "\n")
        return source


def said(dataset: int, row: int) -> str:
    """What a sample says of itself."""
    name = f"{dataset}/{row}"
    return f"{name}/{zlib.crc32(name.encode()):08x}"


def colour(dataset: int, row: int) -> tuple[int, int, int]:
    """The colour of its image."""
    return row % 256, 7 + 50 * dataset, zlib.crc32(said(dataset, row).encode()) % 251


def chat(dataset: int, row: int) -> dict[str, Any]:
    """A sample, as a line of a JSONL."""
    question = [{"type": "image", "image": f"{row}.png"}, {"type": "text", "text": "Which?"}]
    answer = said(dataset, row) + "!" * (row % 7)
    return {
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
    }


def png(rgb: tuple[int, int, int], *, corrupt: bool = False) -> bytes:
    """A picture of one colour; if it is corrupt, its header is sound all the same."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    pixels = zlib.compress((b"\0" + bytes(rgb) * SIDE) * SIDE)
    if corrupt:
        pixels = pixels[:2] + b"\xff" * (len(pixels) - 2)
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks)


def write_model(folder: Path) -> Path:
    """A model folder whose tokenizer has a token for each byte, of that number: quick to open."""
    folder.mkdir(parents=True, exist_ok=True)
    # As GPT-2 spells bytes: printable ones as themselves, the others from U+0100 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    letters = {byte: chr(byte if byte in printable else next(others)) for byte in range(256)}
    names = ("endoftext", "im_start", "im_end", "vision_start", "vision_end")
    specials = [f"<|{name}|>" for name in (*names, "image_pad", "video_pad")]
    plain = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 256 + number, "content": content, "special": True} | plain
            for number, content in enumerate(specials)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level | {"use_regex": False},
        "post_processor": byte_level | {"use_regex": False},
        "decoder": byte_level | {"use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {letters[byte]: byte for byte in range(256)},
            "merges": [],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}{%- else -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- else -%}{{- part.text -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
)


def _datasets(rows: tuple[int, ...], **shares: tuple[str, ...]) -> tuple[Any, ...]:
    each = [{key: values[number] for key, values in shares.items()} for number in range(len(rows))]
    return tuple(model.Dataset((count,), **own) for count, own in zip(rows, each, strict=True))


def _bad(dataset: int, rows: dict[int, str]) -> dict[tuple[int, int], str]:
    return {(dataset, row): kind for row, kind in rows.items()}


def jobs() -> list[Job]:
    """The jobs: between them they take every way through the order."""
    plain = model.Recipe(_datasets((97,)), seed=5)
    bad = _bad(
        0, {0: "not-json", 7: "missing", 8: "corrupt", 9: "missing", 30: "corrupt", 52: "not-json"}
    )
    mixed = _datasets((61, 7, 1), weight=("5", "2", "0.5"))
    changing = ((40, ("1", "2", "0.25")), (77, ("0.123456789", "1", "0")))
    counted = _datasets((53, 31, 2), epochs=("1", "0.5", "3"))
    return [
        Job("plain", plain, batch_size=3, epochs=2),
        Job("two-passes", model.Recipe(_datasets((29,)), seed=6), batch_size=2, epochs=1, passes=2),
        Job(
            "bad-in-order",
            model.Recipe(_datasets((53,)), shuffle="none"),
            batch_size=4,
            epochs=2,
            bad=bad,
        ),
        Job(
            "mixture",
            model.Recipe(mixed, seed=11, stages=changing),
            batch_size=3,
            epochs=2,
            bad=_bad(0, {3: "not-json", 20: "corrupt"}) | _bad(1, {1: "missing", 4: "corrupt"}),
        ),
        Job(
            "by-epochs-in-blocks",
            model.Recipe(counted, seed=(1 << 63) - 1, shuffle="block", window=2),
            batch_size=2,
            epochs=1,
            passes=2,
            bad=_bad(1, {30: "corrupt"}),
        ),
        Job("endless", plain, batch_size=5, batches=50, bad=_bad(0, {96: "missing"})),
    ]
