"""Makes Parquet files in the layouts that people have, with pyarrow, and rows.json with what each row
of them means: python make.py

A row is written as the tests write it: `role: parts` where the content is a list, `role= text` where
it is a string; an image is its content in brackets. A row that can't be used is the code of its flaw.
"""

import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

here = pathlib.Path(__file__).parent
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
rows = {}


def image(name, path=None):
    return {"bytes": name.encode(), "path": path}


def write(name, columns, expected, **options):
    arrays = {key: pa.array(values, kind) for key, (values, kind) in columns.items()}
    pq.write_table(pa.table(arrays), here / f"{name}.parquet", **options)
    rows[name] = expected


def llava(text, answer):
    return [{"from": "human", "value": text}, {"from": "gpt", "value": answer}]


# LLaVA-OneVision: one image, `<image>` where it is meant; some rows are text alone.
TURNS = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))
COUNT = 30
llava_columns = {
    "id": ([f"id-{i}" for i in range(COUNT)], pa.string()),
    "image": ([None if i % 5 == 4 else image(f"IMG{i}", f"{i}.jpg") for i in range(COUNT)], IMAGE),
    "conversations": (
        [
            llava("plain" if i % 5 == 4 else f"<image>\nWhat is {i}?", f"It is {i}.")
            for i in range(COUNT)
        ],
        TURNS,
    ),
    "data_source": (["x"] * COUNT, pa.string()),
    "embedding": ([[0.5] * 64 for _ in range(COUNT)], pa.list_(pa.float32())),
}
llava_rows = [
    f"user= plain / assistant= It is {i}."
    if i % 5 == 4
    else f"user: [IMG{i}]|\nWhat is {i}? / assistant= It is {i}."
    for i in range(COUNT)
]
write("llava", llava_columns, llava_rows)
write("llava_groups", llava_columns, llava_rows, row_group_size=7)
write("llava_v2", llava_columns, llava_rows, data_page_version="2.0", row_group_size=10)
write("llava_plain", llava_columns, llava_rows, use_dictionary=False, data_page_size=64)
write("llava_index", llava_columns, llava_rows, write_page_index=True, data_page_size=64)
write(
    "llava_chunked",
    llava_columns,
    llava_rows,
    write_page_index=True,
    use_content_defined_chunking=True,
)
for codec in ["none", "snappy", "gzip", "brotli", "lz4", "zstd"]:
    write(f"codec_{codec}", llava_columns, llava_rows, compression=codec)
write("no_arrow_schema", llava_columns, llava_rows, store_schema=False)

# The Cauldron: many images, questions and answers in one object; images are not mentioned.
write(
    "cauldron",
    {
        "images": (
            [[image("A")], [image("B"), image("C", "c.png")], [], None],
            pa.list_(IMAGE),
        ),
        "texts": (
            [
                [{"user": "Q1", "assistant": "A1", "source": "s"}, {"user": "Q2", "assistant": "A2", "source": "s"}],
                [{"user": "Q3", "assistant": "A3", "source": "s"}],
                [{"user": "Q4", "assistant": "A4", "source": "s"}],
                [],
            ],
            pa.list_(pa.struct([("user", pa.string()), ("assistant", pa.string()), ("source", pa.string())])),
        ),
    },
    [
        "user: [A]|Q1 / assistant= A1 / user= Q2 / assistant= A2",
        "user: [B]|[C]|Q3 / assistant= A3",
        "user= Q4 / assistant= A4",
        "empty-conversation",
    ],
)

# Messages in parts, with the order of struct fields turned around and large types.
PART = pa.struct([("type", pa.string()), ("text", pa.large_string()), ("image", pa.string())])
write(
    "messages",
    {
        "messages": (
            [
                [
                    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Q"}]},
                    {"role": "assistant", "content": [{"type": "text", "text": "A"}]},
                ],
                [{"role": "user", "content": [{"type": "image", "image": "two.jpg"}, {"type": "image", "image": "one.jpg"}]}],
                None,
            ],
            pa.list_(pa.struct([("role", pa.string()), ("content", pa.list_(PART))])),
        ),
        "images": (
            [[image("X")], [image("1", "one.jpg"), image("2", "a/two.jpg")], [image("Y")]],
            pa.large_list(pa.struct([("path", pa.string()), ("bytes", pa.large_binary())])),
        ),
    },
    ["user: [X]|Q / assistant: A", "user: [2]|[1]", "no-conversation"],
)

# Images within the messages.
write(
    "nested",
    {
        "messages": (
            [
                [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "text": None, "image": image("L", "same.jpg")},
                            {"type": "text", "text": "or", "image": None},
                            {"type": "image", "text": None, "image": image("R", "same.jpg")},
                        ],
                    }
                ]
            ],
            pa.list_(
                pa.struct(
                    [
                        ("role", pa.string()),
                        ("content", pa.list_(pa.struct([("type", pa.string()), ("text", pa.string()), ("image", IMAGE)]))),
                    ]
                )
            ),
        )
    },
    ["user: [L]|or|[R]"],
)

# Messages as JSON in a string, images as bytes alone, and as references.
SAID = json.dumps([{"role": "user", "content": "<image>?"}])
write("string", {"conversations": ([SAID, "no JSON"], pa.string()), "image": ([b"B1", b"B2"], pa.binary())},
      ["user: [B1]|?", "no-conversation"])
write("paths", {"messages": ([SAID] * 3, pa.string()),
                "image": (["a/b.jpg", "../c.jpg", None], pa.string())},
      ["user: [a/b.jpg]|?", "outside-root", "user= <image>?"])
write("paths_in_structs", {"messages": ([SAID], pa.string()), "images": ([[{"path": "d.png"}]], pa.list_(IMAGE))},
      ["user: [d.png]|?"])
write("some_paths", {"messages": ([json.dumps([{"role": "user", "content": "<image><image>"}])], pa.string()),
                     "images": ([[image("A", "a.jpg"), {"path": "d.png"}]], pa.list_(IMAGE))},
      ["bad-image"])

# Odd names: read with `fields`.
write("vqa", {"photo": ([image("P"), image("Q")], IMAGE), "map": ([image("M"), None], IMAGE),
              "query": (["Where?", "What?"], pa.string()), "label": (["Here.", ""], pa.string())},
      ["user: [P]|[M]|Where? / assistant= Here.", "no-conversation"])
write("captions", {"image": ([image("P"), None], IMAGE), "text": (["A cup.", "A box."], pa.string())},
      ["user: [P] / assistant= A cup.", "missing-image"])

# Numbers, booleans and nulls within messages; a weight of 0 is a mark for training.
write(
    "marks",
    {
        "messages": (
            [[{"role": "user", "content": "Q", "weight": None}, {"role": "assistant", "content": "A", "weight": 0.0}]],
            pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.float32())])),
        ),
        "tools": (["[{\"a\": 1}]"], pa.string()),
        "videos": ([None], pa.list_(pa.string())),
    },
    ["user= Q / assistant= A"],
)

(here / "rows.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
