"""Recipes made of other loaders' settings are the same data in the same shares."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import shards
import stoker
from stoker.migrate import MigrationError, from_energon, from_mosaic, from_webdataset, to_toml
from stoker.migrate.__main__ import main

RIVALS = Path(__file__).parents[2] / ".setup/rivals/bin/python"
ENERGON = "__module__: megatron.energon\n__class__: "


def problems(error) -> list[str]:
    return error.value.problems


def read(toml: str) -> dict:
    return tomllib.loads(toml)


@pytest.mark.parametrize(
    ("urls", "source"),
    [
        ("s3://b/t-{000..127}.tar", "s3://b/t-{000..127}.tar"),
        ("a.tar::b.tar", ["a.tar", "b.tar"]),
        (["a.tar", "file:///b.tar"], ["a.tar", "/b.tar"]),
        ("pipe:aws s3 cp s3://b/{0..9}.tar -", "s3://b/{0..9}.tar"),
        ("pipe:gsutil cat gs://b/0.tar", "gs://b/0.tar"),
        ("pipe:curl -s -L 'https://x.org/a.tar?key=1'", "https://x.org/a.tar[?]key=1"),
        ("pipe:curl -fsSL --silent https://x.org/a.tar", "https://x.org/a.tar"),
        ("pipe:curl 'https://x.org/a.tar?b=1&c=2'", "https://x.org/a.tar[?]b=1&c=2"),
        ("pipe:aws s3 cp --quiet s3://b/a.tar -", "s3://b/a.tar"),
        ("pipe:cat /data/a.tar", "/data/a.tar"),
        ("pipe:cat '/data/a b.tar'", "/data/a b.tar"),
        ("odd[1]*.tar", "odd[[]1][*].tar"),
    ],
)
def test_urls_of_webdataset_are_sources(urls, source):
    assert from_webdataset(urls)["dataset"]["source"] == source


def test_urls_that_no_recipe_can_have_are_all_told():
    urls = ["pipe:zcat a.gz | tar2tar", "${HOME}/a.tar", "hf://x/a.tar"]
    urls.append("pipe:aws s3 cp --endpoint-url http://x.org s3://b/0.tar -")
    with pytest.raises(MigrationError, match="4 things have no translation") as error:
        from_webdataset(urls)
    words = ["more than bring one object", "write what it stands for", "`hf://` is no store"]
    for problem, said in zip(problems(error)[:3], words, strict=True):
        assert said in problem
    with pytest.raises(MigrationError, match="1 thing has no translation"):
        from_webdataset("hf://x/a.tar")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("aws s3 cp s3://b/a.tar -|openssl enc -d -aes256", "more than bring one object"),
        ("aws s3 cp s3://b/a.tar - &&rm x", "more than bring one object"),
        ("aws s3 cp s3://b/a.tar -;rm x", "more than bring one object"),
        ("cat a.tar>b.tar", "more than bring one object"),
        ("cat a.tar\ncat b.tar", "more than bring one object"),
        ("cat `ls`", "more than bring one object"),
        ("cat a.tar b.tar", "more than bring one object"),
        ("cat ';'", "more than bring one object"),
        ("cat -", "more than bring one object"),
        ("cat", "more than bring one object"),
        ("cat *.tar", "more than bring one object"),
        ("gsutil cat gs://b/*.tar", "more than bring one object"),
        ("curl https://x.org/[1-3].tar", "more than bring one object"),
        ("curl https://x.org/a.tar?b=1&c=2", "more than bring one object"),
        ("curlish https://x.org/a.tar", "more than bring one object"),
        ("aws s3 cp s3://b/a.tar /tmp/a.tar", "more than bring one object"),
        ("aws s3 cp - s3://b/a.tar", "more than bring one object"),
        ("curl -H 'Authorization: x' https://x.org/a.tar", "the option -H; take it out if"),
        ("curl -sk https://x.org/a.tar", "the option -sk; take it out if"),
        ("curl --header=x https://x.org/a.tar", "the option --header; take it out if"),
        ("aws s3 cp --profile other s3://b/a.tar -", "the option --profile; set AWS_PROFILE"),
        ("aws s3 cp --endpoint-url=http://x s3://b/a.tar -", "--endpoint-url; set fetch.endpoint"),
        ("gsutil cat -r 0-9 gs://b/a.tar", "the option -r; take it out if"),
        ("cat $DATA/a.tar", "a variable of the environment"),
        ("cat ~/a.tar", "a variable of the environment"),
        ("cat '/data/a.tar", "no shell can read (No closing quotation)"),
    ],
)
def test_what_a_command_does_beside_bringing_an_object_is_told(command, said):
    with pytest.raises(MigrationError) as error:
        from_webdataset(f"pipe:{command}")
    (problem,) = problems(error)
    assert said in problem


def test_what_has_no_ending_of_its_own_is_said_to_be_webdataset():
    assert from_webdataset("s3://b/shard?.bin")["dataset"]["format"] == "webdataset"
    assert "format" not in from_webdataset("s3://b/a.tar")["dataset"]


@pytest.mark.parametrize("name", ["a", "odd [1]*", "{x,y}"])
def test_shards_of_webdataset_load(recipe, folder, tmp_path, name):
    """Also by names in which a recipe would see patterns."""
    if "{" in name:
        for one in "xy":
            shards.archive(tmp_path / f"{one}.tar", shards.members(folder, range(3)))
    else:
        shards.archive(tmp_path / f"{name}.tar", shards.members(folder, range(6)))
    found = from_webdataset(f"{tmp_path}/{name}.tar")
    with stoker.Loader(recipe | found) as loader:
        assert sum(len(batch.samples) for batch in loader) >= 6


def test_streams_of_mosaic_are_a_mixture():
    streams = {
        "text": {"remote": "s3://b/text/", "split": "train", "proportion": 3},
        "vqa": {"local": "/data/vqa", "proportion": 0.5},
    }
    assert from_mosaic(streams, batch_size=8, shuffle=False, shuffle_seed=9) == {
        "datasets": [
            {"name": "text", "source": "s3://b/text/train/index.json", "weight": 3.0},
            {"name": "vqa", "source": "/data/vqa/index.json", "weight": 0.5},
        ],
        "plan": {"seed": 9, "shuffle": "none"},
        "pack": {"batch-size": 8},
    }
    alone = from_mosaic({"remote": "s3://b/text"}, shuffle=True)
    assert alone == {"dataset": {"source": "s3://b/text/index.json"}}


def test_repeats_and_choices_of_mosaic_are_epochs(folder, tmp_path):
    shards.mds(folder, tmp_path)
    streams = [{"remote": "s3://b/a", "repeat": 2}, {"remote": "s3://b/a"}]
    streams.append({"local": str(tmp_path), "choose": 36})
    datasets = from_mosaic(streams, shuffle=True)["datasets"]
    assert [one["epochs"] for one in datasets] == [2.0, 1.0, 1.5]
    assert [one["name"] for one in datasets][:2] == ["a", "a-2"]


def test_what_no_recipe_says_of_streams_is_told():
    streams = [
        {"remote": "s3://b/a", "proportion": 1},
        {"remote": "s3://b/c", "choose": 10},
        {"remote": "oci://b/d", "repeat": 1},
        {"split": "x"},
    ]
    with pytest.raises(MigrationError) as error:
        from_mosaic(streams, shuffle=True, epoch_size=1000)
    assert [problem.partition(": ")[0] for problem in problems(error)] == [
        "stream s3://b/c",
        "stream oci://b/d",
        "a stream",
        "streams",
        "epoch_size",
    ]


@pytest.fixture
def energon(folder, tmp_path):
    """Three prepared datasets and metadatasets over them."""
    for name in "abc":
        root = tmp_path / name
        shards.archive(root / "0.tar", shards.members(folder, range(8)))
        (root / ".nv-meta").mkdir()
        parts = "split_parts:\n  train: [0.tar]\n  val: [0.tar]\n"
        (root / ".nv-meta/split.yaml").write_text(parts)
        (root / ".nv-meta/dataset.yaml").write_text(ENERGON + "CrudeWebdataset\n")
    return tmp_path


def metadataset(folder: Path, name: str, splits: object, kind: str = "MetadatasetV2") -> str:
    path = folder / name
    path.write_text(f"{ENERGON}{kind}\nsplits: {json.dumps(splits)}\n")
    return str(path)


def test_a_blend_of_energon_is_a_mixture(energon, recipe):
    blend = {"blend": [{"weight": 3, "path": "a"}, {"weight": 1, "path": "b", "split_part": "val"}]}
    path = metadataset(energon, "meta.yaml", {"train": blend, "val": {"path": "./c"}})
    with pytest.warns(UserWarning, match="what its cooker does is not translated"):
        found = from_energon(path)
    assert found["datasets"] == [
        {"name": "a", "source": f"{energon}/a/.nv-meta/split.yaml", "weight": 3.0},
        {"name": "b", "source": f"{energon}/b/.nv-meta/split.yaml#val", "weight": 1.0},
    ]
    del recipe["dataset"]
    with stoker.Loader(recipe | read(to_toml(found))) as loader:
        drawn = [dataset for batch in loader for dataset, _ in batch.samples]
    assert (drawn.count(0), drawn.count(1)) == (12, 4)
    with pytest.warns(UserWarning, match="cooker"):
        alone = from_energon(path, split="val")
    assert alone == {"dataset": {"source": f"{energon}/c/.nv-meta/split.yaml#val"}}


def nested(energon: Path) -> str:
    """A blend of a dataset, a blend, and an old metadataset."""
    inner = {"blend": [{"weight": 1, "path": "b"}, {"weight": 3, "path": "c"}]}
    metadataset(energon, "inner.yaml", {"train": inner})
    old = {"datasets": [{"weight": 5, "path": "a"}, {"weight": 15, "path": "b"}]}
    metadataset(energon, "old.yaml", {"train": old}, "Metadataset")
    parts = [("a", 2), ("inner.yaml", 2), ("old.yaml", 4)]
    blend = {"blend": [{"path": path, "weight": weight} for path, weight in parts]}
    return metadataset(energon, "outer.yaml", {"train": blend})


EXPECTED = [("a", 2.0), ("b", 0.5), ("c", 1.5), ("a", 1.0), ("b", 3.0)]


@pytest.mark.filterwarnings("ignore:.*cooker")
def test_blends_within_blends_are_multiplied_out(energon):
    datasets = from_energon(nested(energon))["datasets"]
    assert [one["weight"] for one in datasets] == [weight for _, weight in EXPECTED]
    assert [one["name"] for one in datasets] == ["a", "b", "c", "a-2", "b-2"]


WEIGHTS = """
import json, sys
from megatron.energon import WorkerConfig
from megatron.energon.dataset_config import load_config
from megatron.energon.epathlib import EPath
from megatron.energon.metadataset import Metadataset
path = EPath(sys.argv[1])
loaded = load_config(path, default_type=Metadataset, default_kwargs={"path": path})
loaded.post_initialize()
found = loaded.get_datasets(
    training=True,
    split_part="train",
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
)
print(json.dumps([[one.dataset.path.name, one.weight] for one in found.datasets]))
"""


@pytest.mark.skipif(not RIVALS.exists(), reason="needs Energon: make .setup/rivals/done")
def test_energon_reckons_the_same_weights(energon):
    for name in "abc":
        info = {"shard_counts": {"0.tar": 8}, "energon_version": "7"}
        (energon / name / ".nv-meta/.info.json").write_text(json.dumps(info))
    command = [RIVALS, "-c", WEIGHTS, nested(energon)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    whole = sum(weight for _, weight in EXPECTED)
    assert [name for name, _ in found] == [name for name, _ in EXPECTED]
    assert [weight for _, weight in found] == pytest.approx(
        [weight / whole for _, weight in EXPECTED]
    )


@pytest.mark.filterwarnings("ignore:.*cooker")
def test_repetitions_are_epochs(energon):
    part = {"blend_epochized": [{"repetitions": 2, "path": "a"}, {"path": "b"}]}
    datasets = from_energon(metadataset(energon, "m.yaml", {"train": part}))["datasets"]
    assert [one["epochs"] for one in datasets] == [2.0, 1.0]


def test_fields_of_energons_own_samples_are_fields(energon, recipe, folder):
    photo = (folder / "0-0.jpg").read_bytes()
    rows = {f"{row}.{end}": it for row in range(4) for end, it in (("jpg", photo), ("txt", b"A."))}
    shards.archive(energon / "a/0.tar", rows)
    config = energon / "a/.nv-meta/dataset.yaml"
    kind = f"sample_type:\n  {ENERGON.strip().replace(chr(10), chr(10) + '  ')} CaptioningSample\n"
    config.write_text(kind + "field_map:\n  image: jpg\n  caption: txt\n")
    found = from_energon(str(energon / "a"))
    assert found["dataset"]["fields"] == {"images": "jpg", "answer": "txt"}
    with stoker.Loader(recipe | read(to_toml(found))) as loader:
        assert len(next(loader).samples) == 4


def test_what_no_recipe_says_of_energon_is_all_told(energon):
    (energon / "a/.nv-meta/dataset.yaml").write_text(
        ENERGON + "VQAWebdataset\nfield_map: {image: jpg, context: 'json[q]', answers: a.txt}\n"
    )
    (energon / "b/.nv-meta/dataset.yaml").write_text(ENERGON + "OCRWebdataset\n")
    (energon / "c/.nv-meta/dataset.yaml").write_text(
        ENERGON + "VQAWebdataset\nsample_loader: loader.py:load\n"
    )
    parts = [{"path": name} for name in ("a", "b", "c", "msc://store/d", "gone.yaml")]
    parts.append({"path": "x.jsonl", "subset": {"range": ["0%", "50%"]}})
    parts.append({"join": [{"path": "a"}], "joiner": "x"})
    path = metadataset(energon, "m.yaml", {"train": {"blend": parts}})
    with pytest.warns(UserWarning, match="dataset.fields"), pytest.raises(MigrationError) as error:
        from_energon(path)
    words = ["field_map.context is 'json[q]'", "samples of type 'OCRWebdataset'", "a sample_loader"]
    words += ["`msc://` is no store", "there is no such file", "`subset`", "`join`"]
    assert len(problems(error)) == len(words)
    for problem, said in zip(problems(error), words, strict=True):
        assert said in problem
    with pytest.raises(MigrationError, match=r"no split 'test'.*its splits are train"):
        from_energon(path, split="test")


@pytest.mark.filterwarnings("ignore:.*cooker")
def test_the_two_kinds_of_blends_are_not_mixed(energon):
    inner = {"blend_epochized": [{"repetitions": 2, "path": "a"}]}
    metadataset(energon, "inner.yaml", {"train": inner})
    outer = {"blend": [{"path": "inner.yaml"}, {"path": "b"}]}
    with pytest.raises(MigrationError, match="one within the other"):
        from_energon(metadataset(energon, "m.yaml", {"train": outer}))


def test_toml_is_read_as_it_was_meant():
    recipe = {
        "model": 'a "b" \\ \x7f é',
        "dataset": {"source": ["x", "y"], "fields": {"images": "a.jpg"}, "allow-http": True},
        "plan": {"epochs": 2, "temperature": 1.5},
    }
    assert read(to_toml(recipe)) == recipe
    many = {"datasets": [{"name": "a", "weight": 0.1}, {"name": "b", "weight": 1e-9}]}
    assert read(to_toml(many)) == many


def test_the_command_prints_a_recipe_and_says_the_rest_elsewhere(tmp_path, capsys):
    settings = {"batch_size": 4, "shuffle": True, "streams": {"a": {"remote": "s3://b/a"}}}
    streams = {"dataset": settings}
    (tmp_path / "s.json").write_text(json.dumps(streams))
    assert main(["mosaic", str(tmp_path / "s.json"), "--model", "m"]) == 0
    said = capsys.readouterr()
    wanted = {"model": "m", "dataset": {"source": "s3://b/a/index.json"}, "pack": {"batch-size": 4}}
    assert (read(said.out), said.err) == (wanted, "")
    (tmp_path / "s.yaml").write_text("remote: s3://b/a\nshuffle_seed: 3\n")
    assert main(["mosaic", str(tmp_path / "s.yaml")]) == 0
    said = capsys.readouterr()
    assert read(said.out)["plan"] == {"seed": 3}
    assert "add the model's folder" in said.err
    assert "note: shuffle is not given, for which Mosaic keeps the data's order" in said.err
    assert main(["webdataset", "a.tar", "hf://x"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("stoker.migrate: 1 thing has no translation:\n  hf://x: ")
    assert main(["mosaic", "/no/such.yaml"]) == 1
    assert "/no/such.yaml" in capsys.readouterr().err


def test_it_runs_as_a_program():
    command = [sys.executable, "-m", "stoker.migrate", "webdataset", "{a,b}.tar"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert read(result.stdout) == {"dataset": {"source": "{a,b}.tar"}}
