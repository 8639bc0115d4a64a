"""Stops in the middle of a run and goes on, on twice as many ranks, with exactly the rest.

    python examples/resume.py /tmp/colours/recipe.toml

The state is a small JSON document: keep it in the checkpoint, beside the optimizer's. One state is
enough for all ranks, and every rank loads the same one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys

import stoker

BEFORE = 3


def digest(batch: stoker.Batch) -> str:
    """The same for two batches if all their bytes are."""
    content = hashlib.sha256()
    for array in batch.numpy().values():
        content.update(array)
    return content.hexdigest()[:12]


def main(recipe: str) -> None:
    """Compares an interrupted run with one that was not."""
    with stoker.Loader(recipe, rank=0, world_size=1) as loader:
        straight = [digest(batch) for batch in loader]

    with stoker.Loader(recipe, rank=0, world_size=1) as loader:
        begun = [digest(batch) for batch in itertools.islice(loader, BEFORE)]
        checkpoint = json.dumps(loader.state_dict())
    print(f"stopped after {len(begun)} batches with a state of {len(checkpoint)} bytes")

    # In a training run these are two processes; here they take turns.
    ranks = [stoker.Loader(recipe, rank=rank, world_size=2) for rank in range(2)]
    for loader in ranks:
        loader.load_state_dict(json.loads(checkpoint))
    rest = [digest(batch) for step in zip(*ranks, strict=True) for batch in step]
    for loader in ranks:
        loader.close()

    # All ranks take the same number of steps: the last one may need a batch of the next epoch.
    same = begun + rest[: len(straight) - len(begun)] == straight
    print(f"went on with {len(rest)} batches on 2 ranks; the same as without a stop: {same}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main(sys.argv[1])
