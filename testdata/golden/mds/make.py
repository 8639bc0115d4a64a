"""Makes MDS datasets with mosaicml-streaming 0.13.0, and rows.json with what each row of them means:
python make.py

Rows are written as those of the Parquet files beside. Images are made-up bytes: the writer is given
encodings that take bytes as they are.
"""

import json
import pathlib
import shutil

from streaming import MDSWriter
from streaming.base.format.mds import encodings

here = pathlib.Path(__file__).parent
rows = {}


class Raw(encodings.Bytes):
    """Bytes in place of a picture."""


class RawList(encodings.JPEGList):
    """A list of them."""

    def underlying_encoder(self):
        return Raw()


encodings._encodings["jpeg"] = encodings._encodings["png"] = Raw
encodings._encodings["list[jpeg]"] = RawList


def write(name, columns, samples, expected, **options):
    shutil.rmtree(here / name, ignore_errors=True)
    with MDSWriter(out=str(here / name), columns=columns, **options) as writer:
        for sample in samples:
            writer.write(sample)
    rows[name] = expected


def chat(text, answer):
    return [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]


COUNT = 12
columns = {"id": "int", "image": "jpeg", "messages": "json", "score": "float32", "note": "str"}
samples = [
    {
        "id": i,
        "image": f"IMG{i}".encode(),
        "messages": chat(f"<image>{i}?", f"{i}!"),
        "score": 0.5,
        "note": "n" * i,
    }
    for i in range(COUNT)
]
expected = [f"user: [IMG{i}]|{i}? / assistant= {i}!" for i in range(COUNT)]
write("plain", columns, samples, expected, size_limit=900)
write("zstd", columns, samples, expected, size_limit=900, compression="zstd:3")
write("gz", columns, samples, expected, compression="gz")

write(
    "lists",
    {"images": "list[jpeg]", "texts": "json"},
    [
        {"images": [b"A", b"BB"], "texts": [{"user": "Q", "assistant": "A"}]},
        {"images": [], "texts": [{"user": "Q", "assistant": "A"}]},
    ],
    ["user: [A]|[BB]|Q / assistant= A", "user= Q / assistant= A"],
)
write(
    "array",
    {"image": "jpeg_array", "messages": "str"},
    [{"image": [b"A", b"B"], "messages": json.dumps(chat("<image>or<image>", "B"))}],
    ["user: [A]|or|[B] / assistant= B"],
)
write(
    "vqa",
    {"a_map": "bytes", "photo": "png", "query": "str", "label": "str"},
    [{"a_map": b"M", "photo": b"P", "query": "Where?", "label": "Here."}],
    ["user: [P]|[M]|Where? / assistant= Here."],
)
write(
    "pickled",
    {"image": "jpeg", "messages": "pkl"},
    [{"image": b"A", "messages": chat("<image>", "B")}],
    [],
)
write(
    "pickled_beside",
    {"image": "jpeg", "messages": "json", "other": "pkl"},
    [{"image": b"A", "messages": chat("<image>", "B"), "other": {1, 2}}],
    ["user: [A] / assistant= B"],
)
(here / "rows.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
