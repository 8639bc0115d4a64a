"""A small data set on disk, and recipes over it."""

from __future__ import annotations

import copy
import json
import random
import signal
import socket
from pathlib import Path

import process_life
import pytest
from PIL import Image
from schedules.jobs import write_model

ROWS = 24
MODELS = Path(__file__).parents[2] / ".setup/models"
MODEL = MODELS / "qwen3-vl"
IDS = (
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)


def pytest_configure() -> None:
    """Has Ctrl-C heard, here and in what is started from here: shells have jobs ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def photo(seed: int) -> Image.Image:
    """A smooth picture with some noise, 40 to 120 pixels a side."""
    rng = random.Random(seed)
    small = Image.frombytes("RGB", (5, 4), rng.randbytes(60))
    return small.resize((rng.randint(40, 120), rng.randint(40, 120)), Image.Resampling.BICUBIC)


def sample(row: int, images: list[str]) -> dict:
    """A chat with the images in its question."""
    parts = [{"type": "image", "image": image} for image in images]
    question = [*parts, {"type": "text", "text": f"What is in picture {row}?"}]
    answer = f"Number {row}. " + "So it is. " * (row % 5)
    return {
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ]
    }


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    lines = []
    for row in range(ROWS):
        names = [f"{row}-{number}.jpg" for number in range(1 + row % 2)]
        for number, name in enumerate(names):
            photo(row * 10 + number).save(folder / name, quality=90)
        lines.append(json.dumps(sample(row, names)))
    (folder / "chats.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def plain_recipe(folder: Path) -> dict:
    """One pass over 24 samples, 4 a batch; not to be changed."""
    return {
        "model": str(MODEL),
        "dataset": {"source": str(folder / "chats.jsonl")},
        "plan": {"epochs": 1, "lanes": 2},
        "vision": {"min-pixels": 1024, "max-pixels": 65536},
        "pack": {"batch-size": 4},
        "engine": {"memory": "256MiB", "workers": 2, "prefetch": 2},
    }


def tiny_model(name: str):
    """A tiny model of that family with random weights."""
    import torch
    import transformers

    config = json.loads((MODELS / name / "config.json").read_text())
    text = {
        "vocab_size": 151936,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2]},
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 64,
    }
    if name == "qwen3-vl":
        vision |= {"num_position_embeddings": 256, "deepstack_visual_indexes": [0]}
        family, settings = "Qwen3VLForConditionalGeneration", transformers.Qwen3VLConfig
    else:
        vision |= {"fullatt_block_indexes": [1], "window_size": 56}
        family, settings = "Qwen2_5_VLForConditionalGeneration", transformers.Qwen2_5_VLConfig
    torch.manual_seed(0)
    ids = {name: config[name] for name in IDS}
    return getattr(transformers, family)(settings(text_config=text, vision_config=vision, **ids))


@pytest.fixture
def model():
    """A tiny Qwen3-VL."""
    return tiny_model("qwen3-vl")


@pytest.fixture(params=["qwen3-vl", "qwen2.5-vl"])
def either_model(request, recipe):
    """A tiny model of either family; the recipe becomes one for it."""
    recipe["model"] = str(MODELS / request.param)
    return tiny_model(request.param)


@pytest.fixture
def recipe(plain_recipe: dict) -> dict:
    """One pass over 24 samples, 4 a batch."""
    return copy.deepcopy(plain_recipe)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that is opened in no time."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def quick(recipe: dict, small_model: Path) -> dict:
    """The same with a model that is opened in no time."""
    recipe["model"] = str(small_model)
    recipe["vision"]["family"] = "qwen3-vl"
    return recipe


@pytest.fixture
def programs(tmp_path: Path):
    """Starts programs, and ends them after the test."""
    yield from process_life.programs(tmp_path)


@pytest.fixture
def store(folder: Path):
    """A store with the data."""
    store = process_life.Store(folder)
    yield store
    store.close()


@pytest.fixture
def stalled(recipe: dict, tmp_path: Path):
    """A recipe whose images lie in a store that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        recipe = copy.deepcopy(recipe)
        lines = [json.dumps(sample(row, [f"s3://bucket/{row}.jpg"])) for row in range(8)]
        source = tmp_path / "stalled.jsonl"
        source.write_text("\n".join(lines) + "\n")
        recipe["dataset"]["source"] = str(source)
        recipe["fetch"] = {
            "endpoint": f"http://127.0.0.1:{server.getsockname()[1]}",
            "anonymous": True,
        }
        yield recipe


ADDRESS = "127.0.0.2"
"""Loopback; Ray takes 127.0.0.1 to mean the machine's outer address."""

RAY = {
    "RAY_AUTH_MODE": "disabled",  # else Ray makes a token in the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # other programs' memory is no reason to kill ours
    "RAY_metrics_report_interval_ms": "1000",
    # A node that was killed is to be seen as dead in some seconds rather than in fifteen.
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
}


@pytest.fixture(scope="session")
def cluster():
    """A Ray cluster of one node with 4 CPUs, which this process is connected to.

    Tests may add nodes and remove them. Whatever becomes of the tests, all of it is ended.
    """
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 4, "object_store_memory": 200 << 20, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in RAY.items():
            patch.setenv(name, value)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        cluster = Cluster(initialize_head=True, head_node_args=head | {"node_ip_address": ADDRESS})
        try:
            ray.init(
                address=cluster.address,
                _node_ip_address=ADDRESS,
                log_to_driver=False,
                logging_level="warning",
            )
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.fixture
def node(cluster):
    """Adds nodes to the cluster; those that are left after the test are removed."""
    added = []

    def add(**arguments):
        size = {"num_cpus": 2, "object_store_memory": 200 << 20, "node_ip_address": ADDRESS}
        added.append(cluster.add_node(**size, **arguments))
        return added[-1]

    yield add
    for node in added:
        if node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)
