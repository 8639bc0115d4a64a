"""For those who stay with Ray Data: batches as rows of a `ray.data.Dataset`, by their number.

A thin adapter: a pool of Ray Data's own actors, each around one engine. Order, resuming, bounds and
faults are Ray Data's here, not ours.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import ray.data

from stoker._native import Front, Maker, _document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

IN_A_BLOCK = 8
"""Batches that an actor is given at once: it looks ahead as far as that, and no further."""


class Makes:
    """Turns numbers of batches into batches; what the actors of the pool run."""

    def __init__(self, recipe: dict[str, Any], overrides: dict[str, Any]) -> None:
        self._maker = Maker(recipe, overrides=overrides)

    def __call__(self, numbers: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """Gives a row for each number."""
        sequences = numbers["id"].tolist()
        for place, sequence in enumerate(sequences):
            batch = self._maker.make(sequence, sequences[place + 1 :])
            row = {name: array[None] for name, array in batch.numpy().items()}
            mask = np.array([batch.sample_mask])
            yield {"sequence": np.array([sequence]), "sample_mask": mask, **row}


def dataset(
    recipe: str | PathLike[str] | dict[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    workers: int | tuple[int, int] = 1,
    cpus_per_worker: int = 1,
) -> ray.data.Dataset:
    """The batches of a recipe as a `ray.data.Dataset`: a row is a batch.

    A row has `sequence`, the batch's place in the global sequence, `sample_mask`, as the batch has
    it, and a column for each tensor, as `stoker.Batch.numpy()` has it: bfloat16 as its bits in
    uint16, and `u8` pixels not finished (see `stoker.torch.finish`). Columns that a batch does not
    have, such as those of images, are None where other batches of its block have them.

    The caveats are Ray Data's. Rows come in the order of `sequence` only with
    `ray.data.DataContext.get_current().execution_options.preserve_order = True`; which rows a rank
    gets of `streaming_split` may differ from run to run. There is no state to resume from: filter
    by `sequence`. Tensors are copied into Arrow blocks. Bad samples are replaced, but not counted.

    Args:
        recipe: As for `stoker.Loader`, with `plan.epochs`.
        overrides: Values by path that replace the recipe's.
        workers: Actors, or the fewest and the most.
        cpus_per_worker: Cores that each reserves and uses.

    Raises:
        RecipeError, DatasetError, FetchError: As for `stoker.Loader`.
        TypeError: The run is endless: set `plan.epochs`. With `pack.max-tokens`, not all samples
            are measured: see `stoker.Loader.__len__`.
    """
    document = _document(recipe, overrides)
    batches = len(Front(document, rank=0, world_size=1))
    fewest, most = (workers, workers) if isinstance(workers, int) else workers
    numbers = ray.data.range(batches, override_num_blocks=math.ceil(batches / IN_A_BLOCK))
    return numbers.map_batches(
        Makes,
        fn_constructor_args=(document, {"engine.workers": cpus_per_worker}),
        batch_size=IN_A_BLOCK,
        compute=ray.data.ActorPoolStrategy(min_size=fewest, max_size=most),
        num_cpus=cpus_per_worker,
    )
