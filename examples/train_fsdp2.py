"""Trains a sharded model (FSDP2), with torch.distributed.checkpoint. Run again, it goes on.

    torchrun --nproc-per-node 2 examples/train_fsdp2.py /tmp/colours/recipe.toml /tmp/fsdp2 6

The last number is that of the step to stop at. A loader is `Stateful`, so it stands in a checkpoint
as it is, and like the model it may be loaded on another number of ranks.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import stoker
import torch
from torch import distributed
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from train_tiny_qwen3_vl import tiny_model


def main(recipe: str, folder: Path, until: int) -> None:
    """Trains to a step, and saves."""
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),), mesh_dim_names=("dp",))
    model = tiny_model()
    for layer in [*model.model.visual.blocks, *model.model.language_model.layers]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with stoker.Loader(recipe, group=mesh) as loader:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "loader": loader, "step": 0}
        if folder.exists():
            checkpoint.load(state, checkpoint_id=folder)
            set_state_dict(
                model, optimizer, model_state_dict=weights, optim_state_dict=moments
            )  # the loader has loaded its own
        for batch in islice(loader, until - state["step"]):
            loss = model(**batch.to("cpu")).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            state["step"] += 1
            print(f"rank {loader.rank}, step {state['step']}: loss {loss.item():.2f}")
        state["model"], state["optimizer"] = get_state_dict(model, optimizer)
        checkpoint.save(state, checkpoint_id=folder)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
