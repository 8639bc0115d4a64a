"""Data in shards on Ray: the same batches, and indexes that go where they lack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("ray")

import ray
import ray_double
import shards
import stoker
from stoker.ray import RayLoader, fleet, worker

ray.cloudpickle.register_pickle_by_value(ray_double)
pytestmark = pytest.mark.usefixtures("cluster")


def contents(loader):
    return [(batch.name, batch.samples, batch.state_dict(), arrays(batch)) for batch in loader]


def arrays(batch):
    return {name: array.tobytes() for name, array in batch.numpy().items()}


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_shards_are_fed_as_a_loader_feeds_them(recipe, folder, tmp_path, kind):
    recipe["dataset"] = {"source": shards.WRITERS[kind](folder, tmp_path)}
    recipe["plan"]["shuffle"] = "block"
    recipe["vision"]["pixels"] = "u8"
    with stoker.Loader(recipe) as loader:
        expected = contents(loader)
    assert len(expected) == 6
    with RayLoader(recipe, workers=1) as loader:
        assert contents(loader) == expected


def test_an_index_is_sent_to_workers_whose_host_lacks_it(tmp_path, monkeypatch):
    monkeypatch.setattr(worker.tempfile, "gettempdir", lambda: str(tmp_path / "there"))
    (tmp_path / "there").mkdir()
    path, content_ = str(tmp_path / "gone" / "data.stoker-index"), bytes(range(256)) * 40000
    recipe = {"index": ["data.stoker-index"]}
    there = worker.StokerWorker(ray_double.Maker)
    size = len(content_)
    assert there.lacks([[(path, size)]]) == [path]
    half = size // 2
    there.keep([worker.Piece(path, 0, size, content_[:half])])
    assert there.lacks([[(path, size)]]) == [path], "half of it is none of it"
    there.keep([worker.Piece(path, half, size, content_[half:])])
    assert there.lacks([[(path, size)]]) == []
    assert there.open(recipe, {"engine.workers": 1}).error is None
    assert worker.StokerWorker(ray_double.Maker).lacks([[(path, size)]]) == [], "sent once a host"


def test_a_parcel_holds_many_small_files_or_a_part_of_a_large_one(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "PARCEL", 10)
    sizes = {"a": 4, "b": 0, "c": 3, "d": 25, "e": 1}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(name.encode() * size)
    left, offset, sent, parcels = [str(tmp_path / name) for name in sizes], 0, {}, 0
    while left:
        pieces, left, offset = fleet.parcel(left, offset)
        assert sum(len(piece.content) for piece in pieces) <= 10
        parcels += 1
        for piece in pieces:
            before = sent.setdefault(piece.path, b"")
            assert (piece.offset, piece.size) == (len(before), Path(piece.path).stat().st_size)
            sent[piece.path] = before + piece.content
    assert sent == {str(tmp_path / name): name.encode() * size for name, size in sizes.items()}
    assert parcels == 4


def test_only_the_datasets_whose_index_was_sent_look_for_it_there(tmp_path):
    recipe = {"datasets": [{"name": "a"}, {"name": "b", "index-dir": "/own"}, {"name": "c"}]}
    found = worker.indexed_in(tmp_path, recipe, [True, False, True])
    there = str(tmp_path)
    assert [one.get("index-dir") for one in found["datasets"]] == [there, "/own", there]
    assert worker.indexed_in(tmp_path, recipe, [False, False, False]) == recipe
    one = {"dataset": {"source": "s3://b/x.tar"}}
    expected = {"dataset": {"source": "s3://b/x.tar", "index-dir": there}}
    assert worker.indexed_in(tmp_path, one, [True]) == expected


def test_an_index_of_several_pieces_comes_whole(tmp_path):
    """Its path is good in this process alone, so that the worker's host seems to lack it."""
    name = f"{os.getpid()}.stoker-index"
    (tmp_path / name).write_bytes(bytes(range(256)) * 40000)
    folder = os.open(tmp_path, os.O_RDONLY)
    recipe = {"batches": 3, "folder": str(tmp_path), "index": [name]}
    recipe["index_files"] = [f"/proc/self/fd/{folder}/{name}"]
    try:
        with ray_double.Loader(recipe, placement="local") as loader:
            assert [batch.sequence for batch in loader] == [0, 1, 2]
    finally:
        os.close(folder)
        (worker._folder() / name).unlink(missing_ok=True)


class Opened(NamedTuple):
    overrides: dict

    def sizes_known(self) -> list[int]:
        return [0]


def test_a_worker_whose_host_has_the_index_uses_it_where_it_lies(tmp_path):
    path = tmp_path / "data.stoker-index"
    path.write_bytes(b"index")
    here = worker.StokerWorker(lambda _, overrides: Opened(overrides))
    assert here.lacks([[(str(path), 5)]]) == []
    assert here.open({}, {"engine.workers": 2}).error is None
    assert here._maker.overrides == {"engine.workers": 2}
