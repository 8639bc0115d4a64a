"""Trains with Ray Train; the loader's state is in the checkpoint, so another run can go on from it.

    python examples/ray_train.py /tmp/colours/recipe.toml

The rank is Ray Train's. The number of workers may change from run to run: the state is the same for
all of them, and the batches that remain are the same too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model

EVERY = 3


def train(config: dict) -> None:
    """What each worker runs: guesses the brightness of pictures, for want of a larger model."""
    from stoker.ray import RayLoader

    model = prepare_model(torch.nn.Linear(1536, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with RayLoader(config["recipe"]) as loader:
        if checkpoint := ray.train.get_checkpoint():
            with checkpoint.as_directory() as folder:
                loader.load_state_dict(json.loads(Path(folder, "loader.json").read_text()))
        for step, batch in enumerate(loader, 1):
            pixels = batch.to("cpu")["pixel_values"]
            loss = (model(pixels).squeeze(1) - pixels.mean(1)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % EVERY == 0:
                with tempfile.TemporaryDirectory() as folder:
                    Path(folder, "loader.json").write_text(json.dumps(loader.state_dict()))
                    checkpoint = ray.train.Checkpoint.from_directory(folder)
                    ray.train.report({"loss": loss.item()}, checkpoint=checkpoint)
        print(loader.report())


if __name__ == "__main__":
    recipe = str(Path(sys.argv[1]).resolve())
    result = TorchTrainer(
        train,
        train_loop_config={"recipe": recipe},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=tempfile.mkdtemp()),
    ).fit()
    print(f"the last loss was {result.metrics['loss']:.3f}; checkpoint in {result.checkpoint.path}")
