"""Which rank a loader takes itself for: as given, as groups and meshes say, as launchers say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import stoker
from stoker import _rank

# Four processes that torch is imported for once. Each says what every question gives it.
FOUR = """
import json, os, re, sys, traceback
import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
import stoker
from stoker import _rank

folder, recipe, guide = sys.argv[1], json.load(open(sys.argv[2])), open(sys.argv[3]).read()
os.chdir(folder)

def answer(ask):
    try:
        return ask()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def main(rank):
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4
    )
    given = lambda group: answer(lambda: _rank.resolve(None, None, group))
    mesh = lambda shape, *names: init_device_mesh("cpu", shape, mesh_dim_names=names or None)
    square = mesh((2, 2), "dp", "tp")
    sharded = mesh((2, 2, 1), "dp_replicate", "dp_shard", "tp")
    evens, odds = distributed.new_group([0, 2]), distributed.new_group([1, 3])
    said = {
        "nothing": given(None),
        "dp x tp": given(square),
        "tp x dp": given(mesh((2, 2), "tp", "dp")),
        "pp x batch x cp": given(mesh((2, 2, 1), "pp", "batch", "cp")),
        "dp alone": given(square["dp"]),
        "group of dp": given(square.get_group("dp")),
        "dp_replicate x dp_shard x tp": given(sharded),
        "dp_replicate x dp_shard": given(sharded["dp_replicate", "dp_shard"]),
        "flattened": given(sharded["dp_replicate", "dp_shard"]._flatten("dp")),
        "evens or odds": given(evens if rank % 2 == 0 else odds),
        "fsdp alone": given(mesh((4,), "fsdp")),
        "unnamed alone": given(mesh((4,))),
        "dp_shard_cp alone": given(mesh((4,), "dp_shard_cp")),
        "unnamed": given(mesh((2, 2))),
        "dp x fsdp": given(mesh((2, 2), "dp", "fsdp")),
        "dp x fsdp of one": given(mesh((4, 1), "dp", "fsdp")),
        "pp x tp": given(mesh((2, 2), "pp", "tp")),
        "tp alone": given(square["tp"]),
        "not a member": given(evens),
        "mesh of others": given(DeviceMesh("cpu", [0, 1], mesh_dim_names=("dp",))),
        "no group": given("dp"),
        "both": answer(lambda: _rank.resolve(0, 4, square)),
    }
    with stoker.Loader(recipe, group=square) as loader:
        said["loader"] = [loader.rank, loader.world_size, [batch.sequence for batch in loader]]
    shown, = re.findall(r"```python\\n([^`]*mesh[^`]*)```", guide)
    names = {"stoker": stoker}
    exec(shown.replace("cuda", "cpu").replace("recipe.toml", "recipe.json"), names)
    said["guide"] = [names["loader"].rank, names["loader"].world_size]
    names["loader"].close()
    json.dump(said, open(f"{folder}/{rank}.json", "w"))
    distributed.barrier()
    distributed.destroy_process_group()

children = []
for rank in range(4):
    child = os.fork()
    if child == 0:
        try:
            main(rank)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


@pytest.fixture(scope="module")
def said(plain_recipe, tmp_path_factory):
    """What each of four processes was told, by the question."""
    home = tmp_path_factory.mktemp("four")
    (home / "recipe.json").write_text(json.dumps(plain_recipe))
    (home / "four.py").write_text(FOUR)
    guide = Path(__file__).parents[2] / "docs/guides/resume.md"
    command = [sys.executable, home / "four.py", home, home / "recipe.json", guide]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((home / f"{rank}.json").read_text()) for rank in range(4)]
    return {question: [rank[question] for rank in ranks] for question in ranks[0]}


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("nothing", [[0, 4], [1, 4], [2, 4], [3, 4]]),
        ("dp x tp", [[0, 2], [0, 2], [1, 2], [1, 2]]),
        ("tp x dp", [[0, 2], [1, 2], [0, 2], [1, 2]]),
        ("pp x batch x cp", [[0, 2], [1, 2], [0, 2], [1, 2]]),
        ("guide", [[0, 2], [0, 2], [1, 2], [1, 2]]),
        ("dp alone", [[0, 2], [0, 2], [1, 2], [1, 2]]),
        ("group of dp", [[0, 2], [0, 2], [1, 2], [1, 2]]),
        ("dp_replicate x dp_shard x tp", [[0, 4], [1, 4], [2, 4], [3, 4]]),
        ("dp_replicate x dp_shard", [[0, 4], [1, 4], [2, 4], [3, 4]]),
        ("flattened", [[0, 4], [1, 4], [2, 4], [3, 4]]),
        ("evens or odds", [[0, 2], [0, 2], [1, 2], [1, 2]]),
        ("fsdp alone", [[0, 4], [1, 4], [2, 4], [3, 4]]),
        ("unnamed alone", [[0, 4], [1, 4], [2, 4], [3, 4]]),
        ("dp x fsdp of one", [[0, 4], [1, 4], [2, 4], [3, 4]]),
    ],
)
def test_the_rank_is_that_among_those_with_different_data(said, question, answers):
    assert said[question] == answers


def test_ranks_that_share_data_get_the_same_batches(said):
    evens, odds = [0, 2, 4], [1, 3, 5]
    first, second = [0, 2, evens], [1, 2, odds]
    assert said["loader"] == [first, first, second, second]


INSTEAD = (
    ": give its data-parallel dimension alone, that one's process group, or rank and world_size"
)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (
            "dp_shard_cp alone",
            "ValueError: the mesh (dp_shard_cp=4) does not say whether data differ along "
            "dp_shard_cp" + INSTEAD,
        ),
        (
            "unnamed",
            "ValueError: the mesh (dimension 0=2, dimension 1=2) does not say whether data differ "
            "along dimension 0 and dimension 1" + INSTEAD,
        ),
        (
            "dp x fsdp",
            "ValueError: the mesh (dp=2, fsdp=2) does not say whether data differ along fsdp"
            + INSTEAD,
        ),
        (
            "pp x tp",
            "ValueError: the mesh (pp=2, tp=2) has no data-parallel dimension: give the mesh that "
            "has it, or rank=0 and world_size=1 where all processes are to have the same batches",
        ),
        ("no group", "TypeError: group is a DeviceMesh or a ProcessGroup of torch.distributed"),
        ("both", "TypeError: group says rank and world_size: give either it or them"),
    ],
)
def test_what_does_not_say_the_rank_for_certain_is_refused_with_what_to_give(
    said, question, answer
):
    for told in said[question]:
        assert told.startswith(answer)


def test_a_dimension_along_which_data_are_the_same_is_no_data_parallel_group(said):
    for told in said["tp alone"]:
        assert told.startswith("ValueError: the mesh (tp=2) has no data-parallel dimension")


def test_a_process_outside_of_the_group_is_told_so(said):
    member, other = [[0, 2], [1, 2]], "ValueError: this process is not in "
    assert said["not a member"][::2] == member
    assert all(told.startswith(other + "the group: give") for told in said["not a member"][1::2])
    assert said["mesh of others"][:2] == member
    assert all(told.startswith(other + "the mesh (dp=2)") for told in said["mesh of others"][2:])


def test_a_group_is_refused_where_there_is_no_torch_distributed(recipe):
    with pytest.raises(TypeError, match=r"not SimpleNamespace; without torch\.distributed give"):
        stoker.Loader(recipe, group=SimpleNamespace())


def test_torchruns_processes_know_their_rank_without_torch(recipe, tmp_path):
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    (tmp_path / "program.py").write_text("""
import json, sys
import stoker
loader = stoker.Loader(json.load(open("recipe.json")))
sequences = [batch.sequence for batch in loader]
assert "torch" not in sys.modules
json.dump([loader.world_size, sequences], open(f"rank-{loader.rank}.json", "w"))
""")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["--local-addr=127.0.0.1", "program.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert ranks == [[2, [0, 2, 4]], [2, [1, 3, 5]]]


@pytest.mark.parametrize("name", _rank.LAUNCHERS)
def test_one_of_several_processes_is_not_taken_for_the_only_one(recipe, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert stoker.Loader(recipe).world_size == 1
    monkeypatch.setenv(name, "4")
    with pytest.raises(ValueError, match=rf"{name}=4 says .* one of several .* initialise torch"):
        stoker.Loader(recipe)
    assert stoker.Loader(recipe, rank=1, world_size=2).rank == 1
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert stoker.Loader(recipe).rank == 1, "torchrun, started by such a launcher"
