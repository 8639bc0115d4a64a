"""A folder in which what the documentation shows can be run: data, a store, a model, a trainer.

It stands for the reader's machine. `s3://bucket` is a store on this machine, `models/qwen3-vl` a
folder with a small tokenizer and the settings of the family, `model` a function that takes
batches, and `"cuda"` the CPU.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from types import SimpleNamespace
from typing import TYPE_CHECKING

import shards
import stoker
import torch
from pages import ROOT
from schedules.jobs import write_model
from stoker import _native

if TYPE_CHECKING:
    from pathlib import Path

    from pages import Block

RIVALS = ROOT / ".setup/rivals/bin/python"
IMAGE = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "size": {"shortest_edge": 1024, "longest_edge": 16777216},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2]},
}
VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 256,
    "deepstack_visual_indexes": [0],
}
RECIPE = """\
model = "models/qwen3-vl"

[dataset]
source = "train.jsonl"

[plan]
epochs = 1

[pack]
batch-size = 4

[engine]
memory = "256MiB"
workers = 2
"""


class Model(torch.nn.Module):
    """Tokens in, logits and a loss out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_ids, **_):
        logits = self.weight * torch.ones(*input_ids.shape, 512)
        return SimpleNamespace(logits=logits, loss=self.weight.sum())


def lacks(code: str, name: str, names: dict[str, object]) -> bool:
    """Whether code uses a name that neither it nor what came before it makes."""
    if name in names:
        return False
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    found = [node.ctx for node in found if node.id == name]
    bound = any(isinstance(context, ast.Store) for context in found)
    given = re.search(rf"def (\w+\(.*\b)?{name}\b", code)
    return bool(found) and not bound and not given


def check_stats(stats: dict[str, float], *, step: int) -> None:
    """Takes what W&B takes."""
    assert stats
    for name, value in stats.items():
        check_scalar(name, value, step)


def check_scalar(name: str, value: float, step: int) -> None:
    """Takes what TensorBoard takes."""
    assert isinstance(name, str)
    assert isinstance(value, int | float), name
    assert step >= 0


class Sandbox:
    """That folder, and what runs in it."""

    def __init__(self, folder: Path, chats: Path) -> None:
        self.folder = folder
        self.servers: list[subprocess.Popen[str]] = []
        self.fill(chats)
        self.store = _native.S3Server(profile="none")
        for path in folder.rglob("*.*"):
            if path.suffix in {".jsonl", ".jpg", ".tar", ".mds"} or path.name == "index.json":
                self.store.put("bucket", str(path.relative_to(folder)), path.read_bytes())
        self.environment = {
            "AWS_ENDPOINT_URL": self.store.endpoint,
            "AWS_ACCESS_KEY_ID": self.store.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.store.secret_access_key,
            "AWS_REGION": "us-east-1",
            "HOME": str(folder),
            "TOKENIZERS_PARALLELISM": "false",
        }

    def fill(self, chats: Path) -> None:
        """Writes the data that pages speak of: the same 24 chats in several forms."""
        model = write_model(self.folder / "models/qwen3-vl")
        (model / "preprocessor_config.json").write_text(json.dumps(IMAGE))
        for image in chats.glob("*.jpg"):
            shutil.copy(image, self.folder)
        lines = (chats / "chats.jsonl").read_text()
        for name in ("train", "captions", "documents", "text"):
            (self.folder / f"{name}.jsonl").write_text(lines)
        for number in range(4):
            rows = shards.members(chats, range(number * 6, number * 6 + 6))
            shards.archive(self.folder / f"shards/train-{number:06}.tar", rows)
        (self.folder / "mds").mkdir()
        shards.mds(chats, self.folder / "mds")
        for name in ("captions", "documents", "nested/text"):
            self.prepared(self.folder / name, shards.members(chats, range(24)))
        nested = "__class__: MetadatasetV2\nsplits:\n  train:\n    path: text\n"
        (self.folder / "nested/metadataset.yaml").write_text(nested)
        (self.folder / "pictures").mkdir()
        (self.folder / "buckets/bucket").mkdir(parents=True)
        shutil.copytree(chats, self.folder / "buckets/bucket", dirs_exist_ok=True)
        shutil.copy(chats / "chats.jsonl", self.folder / "buckets/bucket/train.jsonl")

    @staticmethod
    def prepared(folder: Path, members: dict[str, bytes]) -> None:
        """Writes a dataset as `energon prepare` leaves it, as far as it is read here."""
        shards.archive(folder / "0.tar", members)
        (folder / ".nv-meta").mkdir()
        parts = "split_parts:\n  train: [0.tar]\n  val: [0.tar]\n"
        (folder / ".nv-meta/split.yaml").write_text(parts)
        (folder / ".nv-meta/dataset.yaml").write_text("__class__: CrudeWebdataset\n")

    def add_weights(self) -> None:
        """Makes a tiny model of the model's folder, for those who train it."""
        import transformers

        with (self.folder / "models/qwen3-vl/tokenizer.json").open() as file:
            tokens = {one["content"]: one["id"] for one in json.load(file)["added_tokens"]}
        names = {"image": "image_pad", "video": "video_pad"}
        names |= {name: name for name in ("vision_start", "vision_end")}
        ids = {f"{name}_token_id": tokens[f"<|{token}|>"] for name, token in names.items()}
        text = {**TEXT, "vocab_size": max(tokens.values()) + 1}
        config = transformers.Qwen3VLConfig(text_config=text, vision_config=VISION, **ids)
        model = transformers.Qwen3VLForConditionalGeneration(config)
        model.save_pretrained(self.folder / "models/qwen3-vl")

    def close(self) -> None:
        self.end_servers()
        self.store.close()

    def end_servers(self) -> None:
        while self.servers:
            server = self.servers.pop()
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=20)

    def start(self, blocks: list[Block]) -> dict[str, object]:
        """Makes ready for a page; gives the names that its Python finds."""
        self.endpoint = self.store.endpoint
        self.recipe: dict = tomllib.loads(RECIPE)
        (self.folder / "recipe.toml").write_text(RECIPE)
        for block in reversed(blocks):  # the first of a name stays
            if block.file:
                self.write(block.file, block.code)
        if any("from_pretrained(" in block.code and block.file for block in blocks):
            self.add_weights()
        return {
            "stoker": stoker,
            "model": Model(),
            "train": lambda batch: batch.to("cpu"),
            "device": "cpu",
            "dtype": torch.bfloat16,
            "recipe": "recipe.toml",
            "rank": 0,
            "world_size": 1,
            "step": 0,
            "wandb": SimpleNamespace(log=check_stats),
            "writer": SimpleNamespace(add_scalar=check_scalar),
            "score": lambda batch: [0.0] * len(batch.sample_mask),
        }

    def write(self, name: str, text: str) -> None:
        """Writes a file of a page; a recipe becomes one that ends."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if name == "recipe.toml" and "model" in tomllib.loads(text):
            settings = {**tomllib.loads(RECIPE)["engine"], "prefetch": 2}
            given = [f"engine.{key}={value}" for key, value in settings.items()]
            sets = [part for pair in [*given, "plan.epochs=1"] for part in ("--set", pair)]
            path.write_text(self.stoker(["recipe", name, *sets]))

    # One method for each kind of block.

    def toml(self, block: Block) -> None:
        """Reads a recipe, or a part of one that goes on from those before it on the page."""
        document = tomllib.loads(block.code)
        if block.file and block.file != "recipe.toml":
            return  # what runs says whether it is right
        if "model" in document:
            self.recipe = {}
        for given, instead in (("dataset", "datasets"), ("datasets", "dataset")):
            if given in document:
                self.recipe.pop(instead, None)
        self.recipe |= document
        part = self.folder / "part.json"
        part.write_text(json.dumps(self.recipe))
        said = tomllib.loads(self.stoker(["recipe", "part.json"]))
        for section, value in document.items():
            assert section in said, section
            if isinstance(value, dict):
                assert value.keys() <= said[section].keys(), section

    def json(self, block: Block) -> None:
        """Reads a sample as a line of a data set."""
        sample = json.loads(block.code)
        names = re.findall(r'"image": "([^"]+)"', block.code)
        for name in names:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.folder / "0-0.jpg", self.folder / name)
        (self.folder / "one.jsonl").write_text(json.dumps(sample) + "\n")
        one = {"dataset.source": "one.jsonl", "engine.on-bad-sample": "stop", "pack.batch-size": 1}
        with stoker.Loader("recipe.toml", overrides=one) as loader:
            batch = next(loader)
        assert batch["image_grid_thw"].shape[0] == len(names)

    def python(self, block: Block, names: dict[str, object]) -> None:
        """Runs it with the names that those before it on the page made."""
        code = compile(block.code.replace('"cuda"', '"cpu"'), str(block), "exec")
        if not lacks(block.code, "loader", names):
            exec(code, names)
            return
        with stoker.Loader("recipe.toml") as loader:
            names["loader"] = loader
            exec(code, names)
            names.pop("loader")

    def python_with(self, block: Block, interpreter: Path) -> None:
        """Runs it by itself with another Python."""
        command = [interpreter, "-c", block.code]
        subprocess.run(command, cwd=self.folder, env=os.environ | self.environment, check=True)

    def sh(self, block: Block) -> None:
        """Runs the commands; of a block with prompts, the lines that have one."""
        code = block.code.replace("\\\n", " ")
        lines = [line for line in code.splitlines() if line.strip()]
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        for line in lines:
            words = shlex.split(line, comments=True)
            if words:
                to = words[words.index(">") + 1] if ">" in words else None
                words = words[: words.index(">")] if to else words
                if "|" in words:
                    assert words[words.index("|") + 1] == "jq", "teach it"
                    words = words[: words.index("|")]
                said = self.command(words)
                if to:
                    self.write(to, said)

    def command(self, words: list[str]) -> str:
        """Runs a command of a reader; what only sets a machine up is looked at instead."""
        program, *rest = words
        if program == "stoker":
            longer = {"s3": self.serve, "top": self.top}
            return longer.get(rest[0], self.stoker)(rest)
        if program in {"python", ".venv/bin/python"}:
            return self.run_python(rest)
        if program == "make":
            assert re.search(rf"^{rest[0]}:.*##", (ROOT / "Makefile").read_text(), re.M), rest
        elif program == "pip":
            self.pip(rest)
        elif program == "cargo":
            self.cargo(rest)
        elif program == "hf":  # brings files into a folder that is here already
            assert rest[0] == "download"
            assert (self.folder / rest[rest.index("--local-dir") + 1]).is_dir()
        else:
            raise AssertionError(f"{program}: sandbox.py does not know how to run it; teach it")
        return ""

    def stoker(self, arguments: list[str]) -> str:
        """What `stoker` prints."""
        given = [re.sub(r"http://127\.0\.0\.1:9000", self.endpoint, one) for one in arguments]
        wrong = {3} if arguments[0] == "verify" else set()
        return self.run([sys.executable, "-m", "stoker", *given], {0, *wrong})

    def top(self, arguments: list[str]) -> str:
        """What it shows of a loader, once."""
        given = [str(os.getpid()) if one.isdigit() else one for one in arguments]
        once = [] if "--once" in given else ["--once"]
        with stoker.Loader("recipe.toml") as loader:
            next(loader)
            said = self.stoker([*given, *once])
        assert str(os.getpid()) in said
        return said

    def run(self, command: list[str], fine: set[int] = frozenset({0})) -> str:
        result = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode in fine, f"{command}: {result.returncode}\n{result.stderr}"
        return result.stdout

    def serve(self, arguments: list[str]) -> str:
        """Starts a store, on a port that is free."""
        given = [re.sub(r"^127\.0\.0\.1:\d+$", "127.0.0.1:0", one) for one in arguments]
        command = [sys.executable, "-m", "stoker", *given]
        server = subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.servers.append(server)
        self.endpoint = server.stdout.readline().strip()
        assert self.endpoint.startswith("http://"), server.communicate()
        return ""

    def run_python(self, arguments: list[str]) -> str:
        if arguments[0] == "-m" and arguments[1].startswith("bench."):
            path = ROOT.joinpath(*arguments[1].split("."))
            files = [*path.glob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
            files.append(ROOT / "bench/command.py")
            text = "".join(file.read_text() for file in files)
            flags = [one for one in arguments[2:] if one.startswith("--")]
            assert all(f'"{flag}"' in text for flag in flags), arguments
            return ""
        return self.run([sys.executable, *arguments])

    @staticmethod
    def pip(arguments: list[str]) -> None:
        assert arguments[0] == "install"
        project = tomllib.loads((ROOT / "python/pyproject.toml").read_text())["project"]
        for one in arguments[1:]:
            extras = re.fullmatch(r"(?:stoker|\./python)\[(.+)\]", one)
            if extras:
                assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()
            elif one.startswith("./"):
                assert (ROOT / one / "pyproject.toml").exists()

    @staticmethod
    def cargo(arguments: list[str]) -> None:
        if "--example" in arguments:
            name = arguments[arguments.index("--example") + 1]
            assert list(ROOT.glob(f"crates/*/examples/{name}*")), name
        if "--path" in arguments:
            assert (ROOT / arguments[arguments.index("--path") + 1] / "Cargo.toml").exists()
