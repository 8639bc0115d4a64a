"""Two ranks on Ray, each fed by data workers of its own, on whatever nodes the cluster has.

    python examples/ray_loader.py /tmp/colours/recipe.toml

`ray.init()` joins the cluster that RAY_ADDRESS names, or starts one on this machine. In a real run
a rank is a training process with a GPU; here it counts tokens.
"""

from __future__ import annotations

import sys

import ray
import stoker.ray

WORLD_SIZE = 2


@ray.remote(num_cpus=1)
class Rank:
    """A trainer process."""

    def train(self, recipe: str, rank: int) -> tuple[list[int], int, str]:
        """Uses all batches; gives their numbers, the tokens in them, and the report."""
        tokens, seen = 0, []
        with stoker.ray.RayLoader(recipe, rank=rank, world_size=WORLD_SIZE) as loader:
            for batch in loader:
                tensors = batch.to("cpu")  # finished and private, as a model takes them
                tokens += int(tensors["attention_mask"].sum())
                seen.append(batch.sequence)
            return seen, tokens, str(loader.report())


def main(recipe: str) -> None:
    """Runs both ranks, and prints what they saw."""
    ray.init(log_to_driver=False)
    ranks = [Rank.remote() for _ in range(WORLD_SIZE)]
    runs = [actor.train.remote(recipe, rank) for rank, actor in enumerate(ranks)]
    for rank, (seen, tokens, report) in enumerate(ray.get(runs)):
        print(f"rank {rank}: batches {seen}, {tokens} tokens")
        print(report)


if __name__ == "__main__":
    main(sys.argv[1])
