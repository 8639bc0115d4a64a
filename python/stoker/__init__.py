"""Finished batches for vision-language trainers, straight from object storage.

    import stoker

    with stoker.Loader("recipe.toml") as loader:
        for batch in loader:
            loss = model(**batch.to("cuda")).loss

Importing this package imports neither torch nor NumPy, starts no thread and reads no environment.
"""

from collections.abc import Mapping

from stoker._native import Batch, Loader, Tensor, Trace, __version__
from stoker._progress import progress
from stoker.errors import (
    BadSample,
    BudgetError,
    BugError,
    ClusterError,
    CursorError,
    DatasetError,
    FetchError,
    MachineError,
    Problem,
    RecipeError,
    SampleError,
    StokerError,
    StoppedError,
)
from stoker.report import Report

Mapping.register(Batch)

__all__ = [
    "BadSample",
    "Batch",
    "BudgetError",
    "BugError",
    "ClusterError",
    "CursorError",
    "DatasetError",
    "FetchError",
    "Loader",
    "MachineError",
    "Problem",
    "RecipeError",
    "Report",
    "SampleError",
    "StokerError",
    "StoppedError",
    "Tensor",
    "Trace",
    "__version__",
    "progress",
]
