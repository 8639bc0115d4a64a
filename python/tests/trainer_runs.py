"""Runs examples in processes of their own, and writes down which batches the model was given.

Started as a program it imports what trainers need once, which takes seconds, and forks for each
run. A run is a new process: nothing but files connects it with another one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 240
"""Seconds for one run; the first of all compiles Python files."""


def digests(tensors: dict) -> dict[str, str]:
    """For each tensor, the same for two if all their bytes are."""
    import torch

    found = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            content = tensor.detach().contiguous().view(torch.uint8).numpy()
            found[name] = hashlib.sha256(content).hexdigest()
    return found


class Runs:
    """The process that forks, as seen from a test."""

    def __init__(self) -> None:
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # imports take four times as long else
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __call__(
        self, example: str, *arguments: str | Path | int, folder: Path, ranks: int | None = None
    ) -> list[list[dict[str, str]]]:
        """Runs an example; gives for each rank what its model was given, in order.

        With `ranks` it is started as torchrun does it.
        """
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        argv = [str(EXAMPLES / f"{example}.py"), *map(str, arguments)]
        folder.mkdir()
        job = {"argv": argv, "folder": str(folder), "ranks": ranks, "port": port}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        codes = json.loads(self._process.stdout.readline())
        said = [(folder / f"{rank}.txt").read_text() for rank in range(ranks or 1)]
        assert not any(codes), "\n".join(said)
        records = [(folder / f"{rank}.jsonl").read_text() for rank in range(ranks or 1)]
        return [[json.loads(line) for line in record.splitlines()] for record in records]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=30)


def serve() -> None:
    import lightning.pytorch  # noqa: F401
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp  # noqa: F401
    import transformers.trainer  # noqa: F401
    import trl.trainer.sft_trainer  # noqa: F401
    from transformers.models.qwen3_vl import modeling_qwen3_vl  # noqa: F401

    for line in sys.stdin:
        job = json.loads(line)
        children = [os.fork() or run(job, rank) for rank in range(job["ranks"] or 1)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), flush=True)


def run(job: dict, rank: int) -> None:
    """What a forked child does: it never returns."""
    code = 1
    try:
        folder = Path(job["folder"])
        output = os.open(folder / f"{rank}.txt", os.O_CREAT | os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        if job["ranks"]:
            launch(rank, job["ranks"], job["port"])
        record(folder / f"{rank}.jsonl")
        sys.argv = job["argv"]
        sys.path.insert(0, str(EXAMPLES))
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
        end_in(PATIENCE)
        runpy.run_path(job["argv"][0], run_name="__main__")
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def launch(rank: int, ranks: int, port: int) -> None:
    """What torchrun tells a process."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "none"}
    names |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), ranks)
    names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {name: str(value) for name, value in names.items()}


def end_in(seconds: int) -> None:
    """Ends this process should it hang."""
    import faulthandler

    faulthandler.dump_traceback_later(seconds, exit=True)


def record(path: Path) -> None:
    """Has the model write down what it is given, whoever calls it."""
    from transformers.models.qwen3_vl import modeling_qwen3_vl as models

    path.touch()
    whole, inner = models.Qwen3VLForConditionalGeneration, models.Qwen3VLModel
    labels: dict[str, str] = {}
    forward, inner_forward = whole.forward, inner.forward

    @functools.wraps(forward)
    def outer(self, *arguments, **tensors):
        labels.update(digests({"labels": tensors.get("labels")}))
        return forward(self, *arguments, **tensors)

    @functools.wraps(inner_forward)
    def recorded(self, *arguments, **tensors):
        with path.open("a") as lines:
            print(json.dumps(digests(tensors) | labels), file=lines)
        labels.clear()
        return inner_forward(self, *arguments, **tensors)

    whole.forward, inner.forward = outer, recorded


if __name__ == "__main__":
    serve()
