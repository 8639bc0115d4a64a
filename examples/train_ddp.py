"""Trains on several ranks with DistributedDataParallel. Run again, it goes on from its checkpoint.

    torchrun --nproc-per-node 2 examples/train_ddp.py /tmp/colours/recipe.toml /tmp/ddp 6

The last number is that of the step to stop at. One checkpoint, of rank 0, is enough for all ranks,
and another number of them may go on from it.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import stoker
import torch
from stoker.torch import prefetch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from train_tiny_qwen3_vl import tiny_model


def main(recipe: str, folder: Path, until: int) -> None:
    """Trains to a step, and saves."""
    distributed.init_process_group("gloo")  # on GPUs: nccl
    model = DistributedDataParallel(tiny_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    done = 0
    # Its rank is that of torch.distributed. On GPUs: "cuda", of which each process has its own.
    with prefetch(stoker.Loader(recipe), "cpu") as batches:
        if (saved := folder / "checkpoint.pt").exists():
            checkpoint = torch.load(saved)
            model.module.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            batches.load_state_dict(checkpoint["loader"])
            done = checkpoint["step"]
        for batch in islice(batches, until - done):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            print(f"rank {batches.rank}, step {done}: loss {loss.item():.2f}")
        if batches.rank == 0:
            checkpoint = {
                "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict(),
                "loader": batches.state_dict(),
                "step": done,
            }
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(checkpoint, saved)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
