"""The same chats are the same batches, whatever they are stored as."""

from __future__ import annotations

import io
import json
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import shards
import stoker
import torch
from PIL import Image


@pytest.fixture(params=shards.WRITERS)
def stored(request, recipe, folder, tmp_path):
    """The recipe over the same chats in another format."""
    source = shards.WRITERS[request.param](folder, tmp_path)
    return {**recipe, "dataset": {"source": source}}


def batches(recipe):
    with stoker.Loader(recipe) as loader:
        return [(batch.name, batch.samples, batch.torch()) for batch in loader]


def test_the_same_chats_are_the_same_batches(recipe, stored):
    expected, found = batches(recipe), batches(stored)
    assert len(found) == len(expected) == 6
    for one, other in zip(expected, found, strict=True):
        assert one[:2] == other[:2]
        assert one[2].keys() == other[2].keys()
        assert all(torch.equal(one[2][name], other[2][name]) for name in one[2])


def test_a_state_goes_on_in_the_same_data_and_is_refused_where_fields_differ(stored):
    with stoker.Loader(stored) as loader:
        next(loader)
        state = loader.state_dict()
        following = [batch.samples for batch in loader]
    with stoker.Loader(stored) as loader:
        loader.load_state_dict(state)
        assert [batch.samples for batch in loader] == following
    named = {**stored["dataset"], "fields": {"messages": "messages"}}
    with (
        stoker.Loader({**stored, "dataset": named}) as loader,
        pytest.raises(stoker.CursorError, match="dataset"),
    ):
        loader.load_state_dict(state)


def test_a_pickled_column_is_refused_and_never_read(recipe, folder, tmp_path):
    shards.mds(folder, tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    for shard in index["shards"]:
        shard["column_encodings"] = ["jpeg_array", "pkl"]
    (tmp_path / "index.json").write_text(json.dumps(index))
    recipe["dataset"] = {"source": str(tmp_path / "index.json")}
    with pytest.raises(stoker.DatasetError, match="`messages` is pickled"):
        stoker.Loader(recipe)


@pytest.fixture(scope="module")
def bucket(folder, tmp_path_factory):
    """What the recipes of the guide name: of each 24 samples, or so many as there are shards."""
    pa = pytest.importorskip("pyarrow")
    root = tmp_path_factory.mktemp("bucket")
    for shard in range(128):
        shards.archive(root / f"shards/train-{shard:03}.tar", shards.members(folder, range(1)))
    (root / "mds/train").mkdir(parents=True)
    shards.mds(folder, root / "mds/train")
    shards.archive(root / "energon/a/0.tar", shards.members(folder, range(14)))
    shards.archive(root / "energon/a/1.tar", shards.members(folder, range(14, 24)))
    (root / "energon/.nv-meta").mkdir()
    (root / "energon/.nv-meta/split.yaml").write_text("split_parts:\n  train:\n  - a/{0..1}.tar\n")
    photo = (folder / "0-0.jpg").read_bytes()
    answered = {"photo.jpg": photo, "q.txt": b"What?", "a.txt": b"That."}
    rows = {f"{row:03}.{name}": it for row in range(24) for name, it in answered.items()}
    shards.archive(root / "photos/0.tar", rows)
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    here = {"bytes": photo, "path": "x.jpg"}
    turn = pa.struct({"from": pa.string(), "value": pa.string()})
    said = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "That."}]
    columns = {"id": pa.string(), "image": image, "conversations": pa.list_(turn)}
    rows = [{"id": str(row), "image": here, "conversations": said} for row in range(24)]
    shards.table(root / "data/llava-onevision/a/0.parquet", rows[:5], columns)
    shards.table(root / "data/llava-onevision/b/0.parquet", rows[5:], columns)
    columns = {"image": image, "question": pa.string(), "answer": pa.string()}
    rows = [{"image": here, "question": "What?", "answer": "That."}] * 24
    shards.table(root / "data/vqa/train-0.parquet", rows, columns)
    return root


GUIDE = (Path(__file__).parents[2] / "docs/guides/data.md").read_text()
RECIPES = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", RECIPES)
def test_the_recipes_of_the_guide_load_what_it_says(recipe, bucket, tmp_path, text):
    text = text.replace('"s3://bucket/', f'"{bucket}/').replace('"data/', f'"{bucket}/data/')
    dataset = tomllib.loads(text)["dataset"]
    recipe["dataset"] = dataset | {"index-dir": str(tmp_path)}
    recipe["engine"]["on-bad-sample"] = "stop"
    seen = [batch.samples for batch in stoker.Loader(recipe)]
    rows = sorted(row for samples in seen for _, row in samples)
    assert rows == list(range(128 if "127" in text else 24))


INDEXED = """
import json, resource, sys
import stoker
recipe = json.loads(sys.argv[1])
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before = peak()
with stoker.Loader(recipe) as loader:
    rows = sorted(row for batch in loader for _, row in batch.samples)
print(json.dumps({"grown": peak() - before, "rows": rows}))
"""


@pytest.mark.parametrize("dictionary", [False, True])
def test_row_groups_of_pyarrow_are_read_a_few_rows_at_a_time(recipe, tmp_path, dictionary):
    """Two groups of 128 MiB: in pages of some MiB, or in one page, as pyarrow does by default."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    picture = io.BytesIO()
    Image.new("RGB", (60, 40), (9, 99, 199)).save(picture, "JPEG")
    rng = random.Random(7)
    text = [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "That."}]
    rows = [
        {
            "image": {"bytes": picture.getvalue() + rng.randbytes(1 << 21), "path": None},
            "messages": text,
        }
        for _ in range(64)
    ]
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    turn = pa.struct({"role": pa.string(), "content": pa.string()})
    schema = pa.schema({"image": image, "messages": pa.list_(turn)})
    with pq.ParquetWriter(
        tmp_path / "x.parquet", schema, use_dictionary=dictionary, compression="none"
    ) as writer:
        for _ in range(2):
            writer.write_table(pa.Table.from_pylist(rows, schema), row_group_size=64)
    recipe["dataset"] = {"source": str(tmp_path / "x.parquet")}
    recipe["engine"]["memory"] = "64MiB"
    done = subprocess.run(
        [sys.executable, "-c", INDEXED, json.dumps(recipe)], capture_output=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["rows"] == list(range(128))
    # A page is read whole, so one that holds a group takes its size twice; nothing takes more.
    limit = (320 << 20) if dictionary else (160 << 20)
    assert found["grown"] < limit, found["grown"] >> 20
