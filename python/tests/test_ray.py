"""`RayLoader` gives what `Loader` gives, through Ray's shared memory, on a real cluster."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("ray")

import ray
import ray_double
import stoker
import torch
from stoker.ray import RayLoader
from stoker.ray import loader as loader_module
from stoker.ray.roster import Roster
from stoker.torch import prefetch
from trainer_runs import digests

ray.cloudpickle.register_pickle_by_value(ray_double)
pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def recipe(recipe):
    """24 batches of one sample, over the 100 kB up to which Ray sends values with its replies."""
    recipe["pack"]["batch-size"] = 1
    recipe["vision"] |= {"min-pixels": 160_000, "max-pixels": 200_000}
    return recipe


@pytest.fixture
def on_ray():
    """Opens loaders, and closes them after the test."""
    opened = []

    def start(recipe, **arguments):
        opened.append(RayLoader(recipe, **({"workers": 1} | arguments)))
        return opened[-1]

    yield start
    for loader in opened:
        loader.close()


def content(batch):
    arrays = {name: array.tobytes() for name, array in batch.numpy().items()}
    return {"name": batch.name, "samples": batch.samples, "state": batch.state_dict(), **arrays}


def contents(loader):
    return [content(batch) for batch in loader]


def test_the_same_bytes_in_the_same_order_as_without_ray(on_ray, recipe):
    recipe["vision"]["pixels"] = "f32"
    assert contents(on_ray(recipe, workers=2)) == contents(stoker.Loader(recipe))


def test_copied_ahead_they_are_the_same_and_so_is_the_state(on_ray, recipe):
    expected = [(digests(batch.to("cpu")), batch.state_dict()) for batch in stoker.Loader(recipe)]
    batches = prefetch(on_ray(recipe, workers=2), "cpu", depth=3)
    found = [(digests(batch), batches.state_dict()) for batch in islice(batches, 10)]
    batches.load_state_dict(batches.state_dict())
    found += [(digests(batch), batches.state_dict()) for batch in batches]
    assert found == expected
    assert batches.report().ray is not None


def test_workers_that_are_killed_and_stopped_change_no_byte(on_ray, recipe):
    recipe["vision"]["pixels"] = "u8"
    recipe["plan"]["epochs"] = 2
    loader = on_ray(recipe, workers=2, deadline=2.0, prefetch_bytes=1 << 20)
    seen = []
    for fault in (signal.SIGKILL, signal.SIGSTOP):
        seen += [content(next(loader)) for _ in range(8)]
        hired = min(loader._fleet._hired.values(), key=lambda hired: hired.number)
        pid = ray.get(hired.handle.__ray_call__.remote(lambda _: os.getpid()))
        os.kill(pid, fault)
    assert seen + contents(loader) == contents(stoker.Loader(recipe))
    assert loader.report().ray.moved > 0


def test_ranks_share_the_steps_of_one(on_ray, recipe):
    recipe["vision"]["pixels"] = "u8"
    alone = contents(stoker.Loader(recipe))
    ranks = [on_ray(recipe, rank=rank, world_size=2) for rank in range(2)]
    assert [len(rank) for rank in ranks] == [12, 12]
    shared = [content(batch) for step in zip(*ranks, strict=True) for batch in step]
    for one, other in zip(shared, alone, strict=True):
        # Of two ranks each batch's state is that after the whole step.
        assert one.pop("state") or True
        other.pop("state")
        assert one == other


def test_pixels_are_shipped_as_bytes_unless_the_recipe_names_them(on_ray, recipe):
    loader, plain = on_ray(recipe), stoker.Loader(recipe)
    for batch, other in zip(loader, plain, strict=True):
        assert batch["pixel_values"].dtype == "uint8"
        assert batch.finish["pixels"] == "u8"
        finished = batch.to("cpu")["pixel_values"]
        assert torch.equal(finished, other.torch()["pixel_values"])
    loader = on_ray(recipe, overrides={"vision.pixels": "bf16"})
    assert next(loader)["pixel_values"].dtype == "bfloat16"


def test_states_of_both_loaders_are_interchangeable(on_ray, recipe):
    recipe["vision"]["pixels"] = "u8"
    straight = contents(stoker.Loader(recipe))
    loader = on_ray(recipe)
    for done in range(7):
        assert content(next(loader)) == straight[done]
    state = json.loads(json.dumps(loader.state_dict()))
    plain = stoker.Loader(recipe)
    plain.load_state_dict(state)
    assert contents(plain) == straight[7:]
    plain = stoker.Loader(recipe)
    states = [next(plain).state_dict() for _ in range(20)]
    for done in (18, 3, 11):
        loader.load_state_dict(states[done])
        assert contents(loader) == straight[done + 1 :], "in place, forwards and back"


def test_a_loop_goes_on_where_the_last_one_stopped_and_an_ended_run_begins_anew(on_ray, recipe):
    loader = on_ray(recipe)
    head = [content(next(loader)), content(next(loader))]
    child = os.fork()
    if child == 0:
        try:
            next(loader)
        except RuntimeError as error:
            os._exit(7 if "before a fork" in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7, "a forked child is told so"
    straight = head + contents(loader)
    assert len(straight) == len(loader) == 24
    assert contents(loader) == straight


def test_an_endless_loader_has_no_length_is_true_and_is_not_pickled(on_ray, recipe):
    del recipe["plan"]["epochs"]
    loader = on_ray(recipe)
    assert loader
    with pytest.raises(TypeError, match=r"plan\.epochs"):
        len(loader)
    with pytest.raises(TypeError, match=r"belongs to the process.*in each rank"):
        pickle.dumps(loader)


def test_a_batch_lies_in_rays_shared_memory_and_can_not_be_written_to_by_mistake(on_ray, recipe):
    loader = on_ray(recipe)
    batch, *others = (next(loader) for _ in range(3))
    assert batch.shared
    assert "plasma" in mapped_at(batch.numpy()["pixel_values"].ctypes.data)
    assert "plasma" in mapped_at(batch.torch()["pixel_values"].data_ptr())
    before = content(batch)
    for array in batch.numpy().values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    for tensor in batch.to("cpu").values():
        tensor.zero_()
    assert content(batch) == before, "what `to` gives is private"
    for tensor in batch.torch().values():
        # torch says so after it has written: nothing goes on with such a batch unawares.
        with pytest.raises(RuntimeError, match="inference tensor"):
            tensor.zero_()
    kept = [content(batch) for batch in others]
    view = others[0].numpy()["input_ids"]
    for _ in loader:
        pass
    loader.close()
    del loader
    assert [content(batch) for batch in others] == kept, "batches outlive the loader"
    del batch, others
    assert view.tobytes() == kept[0]["input_ids"], "and views outlive the batch"


def mapped_at(address):
    """What is mapped at an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        if low <= address < high:
            return line
    return ""


def test_no_batch_is_ever_spilled_and_what_is_ahead_stays_in_bounds(tmp_path):
    """200 MiB of store, batches of 8, 400 MiB in all, and a trainer that lags behind."""
    recipe = {"batches": 50, "bytes": 8 << 20, "folder": str(tmp_path)}
    with ray_double.Loader(recipe, placement="local", workers=2, cpus_per_worker=1) as loader:
        pinned = [0.0]
        for batch in loader:
            time.sleep(0.05)
            if batch.sequence % 10 == 9:
                pinned.append(metric("ray_spill_manager_objects_bytes", State="Pinned"))
        assert loader.report().ray.room_bytes == int(0.6 * (200 << 20))
    assert 0 < max(pinned) <= 0.6 * (200 << 20), "Ray spills when they are 80 %"
    assert metric("ray_spill_manager_request_total") == 0
    assert metric("ray_object_store_fallback_memory") == 0


def metric(name, **labels):
    """The sum of a metric on this node, as Prometheus would read it there."""
    here = ray.get_runtime_context().get_node_id()
    (node,) = (node for node in ray.nodes() if node["NodeID"] == here)
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with no_proxy.open(url, timeout=10) as page:
        text = page.read().decode()
    found = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(float(value) for tags, value in found if all(one in tags for one in wanted))


def eventually(condition):
    """Whether something becomes true within half a minute: Ray exports once a second here."""
    for _ in range(300):
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_it_is_watched_as_any_loader_is(on_ray, recipe):
    recipe["engine"]["metrics"] = "127.0.0.1:0"
    loader, screen = on_ray(recipe), io.StringIO()
    next(loader)
    shown = stoker.progress(loader, file=screen, mininterval=0, ascii=True)
    assert len(list(shown)) == 23
    assert " 1/24 " in screen.getvalue()
    assert " 24/24 " in screen.getvalue()
    assert loader.stats()["stoker/samples"] == 24.0
    assert loader.left() == 0
    address = f"http://{loader.metrics_address}/metrics"
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert 'stoker_samples_total{rank="0"} 24\n' in answer.read().decode()
    loader.close()
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(address, timeout=30)


def test_the_report_and_rays_metrics_have_the_work_of_all_workers(on_ray, recipe):
    loader = on_ray(recipe, placement="local", workers=2, rank=5, world_size=8, overrides=EIGHT)
    batches = list(loader)
    assert len(batches) == 27

    def seen():
        return sum(room.items for room in loader.report().rooms if room.room == "vision")

    assert eventually(lambda: seen() >= 27)
    report = loader.report()
    assert (report.samples, report.wait.batches) == (27, 26)
    assert {room.room for room in report.rooms} >= {"fetch", "image", "vision", "text", "pack"}
    (node,) = report.ray.nodes
    assert (node.here, node.workers, node.pulled_bytes) == (True, 2, 0)
    assert node.batches >= 27
    assert report.ray.made_bytes >= sum(batch.nbytes for batch in batches)
    assert report.ray.shipped_per_fetched > 0
    assert report.as_dict()["ray"]["moved"] == 0
    for words in ("the trainer waited", "vision ", "on Ray: data workers: 2", "shipped / fetched"):
        assert words in str(report)
    assert eventually(lambda: metric("ray_stoker_batches_total", rank=5) == 27)
    assert eventually(lambda: metric("ray_stoker_workers", rank=5) == 2)
    made = report.ray.made_bytes
    assert eventually(lambda: metric("ray_stoker_made_bytes_total", rank=5) == made)


EIGHT = {"plan.lanes": 8, "plan.epochs": 9}


def test_the_network_is_named_where_it_is_what_the_trainer_waits_for(node, tmp_path):
    """Another node makes large batches faster than they can be brought here."""
    other = node(labels={"role": "data"})
    recipe = {"batches": 30, "bytes": 16 << 20, "seconds": 0.0, "folder": str(tmp_path)}
    wish = {"placement": "spread", "node_labels": {"role": "data"}, "cpus_per_worker": 1}
    with ray_double.Loader(recipe, **wish) as loader:
        for _ in loader:
            pass
        report = loader.report()
    (place,) = report.ray.nodes
    assert (place.node, place.here) == (other.node_id, False)
    assert place.pulled_bytes == 30 * (16 << 20)
    assert report.ray.link_bytes_per_second > 0
    assert report.ray.network_seconds > 0
    if report.ray.network_seconds > report.wait.blocked_seconds / 2:
        assert "network card of this node is the limit" in str(report)
    # Ray counts the first request for each object too.
    assert eventually(lambda: metric("ray_pull_manager_requested_bundles") >= 30)
    assert metric("ray_pull_manager_retries_total") <= 30


def test_a_recipe_file_means_the_same_on_every_host(on_ray, recipe, folder, tmp_path, monkeypatch):
    recipe["dataset"]["source"] = "chats.jsonl"
    monkeypatch.chdir(tmp_path)
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe))
    from_file = contents(on_ray(path))
    monkeypatch.chdir(folder)
    assert contents(on_ray(recipe)) == from_file


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"placement": "everywhere"}, "'auto', 'local'"),
        ({"deadline": 0.5}, "deadline=0.5"),
        ({"deadline": float("nan")}, "deadline=nan"),
        ({"prefetch_bytes": 0}, "prefetch_bytes=0"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_arguments_that_can_not_be_meant_are_refused(recipe, arguments, says):
    with pytest.raises(ValueError, match=says):
        RayLoader(recipe, **arguments)


def test_without_a_node_of_ray_it_says_what_is_missing(recipe, monkeypatch):
    monkeypatch.setattr(loader_module.client, "is_connected", lambda: True)
    with pytest.raises(RuntimeError, match=r"Ray Client.*on a node of the cluster"):
        RayLoader(recipe)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(RuntimeError, match=r"ray\.init\(\)"):
        RayLoader(recipe)


def test_a_recipe_with_problems_is_refused_before_any_worker_is_started(recipe):
    recipe["pack"]["batchsize"] = 1
    with pytest.raises(stoker.RecipeError, match="batch-size"):
        RayLoader(recipe)


def test_ranks_of_a_run_find_each_other_and_those_of_other_runs_do_not(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    one, other = (Roster(rank, 4, {"plan": {"seed": 1}}) for rank in (0, 2))
    stranger = Roster(1, 4, {"plan": {"seed": 2}})
    for roster in (one, other, stranger):
        roster.enter()
    assert one.read() == other.read() == {0: one.node, 2: one.node}
    assert stranger.read() == {1: one.node}
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert stranger.read() == {0: one.node, 1: one.node}, "its launcher knows"
    other.leave()
    stranger.leave()
    assert one.read() == {0: one.node, 1: one.node}
    one.leave()


def test_ray_that_is_shut_down_under_a_loader_is_an_error_and_not_a_hang(cluster, tmp_path):
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import ray, ray_double
ray.cloudpickle.register_pickle_by_value(ray_double)
ray.init(address=sys.argv[3], _node_ip_address=sys.argv[4], log_to_driver=False)
loader = ray_double.Loader({"batches": 1000, "folder": sys.argv[2]})
print(next(loader).pid)
ray.shutdown()
try:
    for _ in loader:
        pass
except RuntimeError as error:
    print(error)
assert not ray.is_initialized()
"""
    node = cluster.head_node.node_ip_address
    arguments = [str(Path(__file__).parent), str(tmp_path), cluster.address, node]
    command = [sys.executable, "-c", program, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    pid, said = result.stdout.splitlines()[-2:]
    assert "close loaders first" in said
    assert eventually(lambda: not Path(f"/proc/{pid}").exists())
