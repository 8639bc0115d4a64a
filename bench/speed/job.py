"""What an adapter is given, and how long it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Times:
    """How long each part of a run is measured, in seconds."""

    warm_up: float
    pace: float
    trainer: float


@dataclass(frozen=True)
class Job:
    """Samples from a store to a trainer; plain values, as they are sent between processes."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    bucket: str
    folder: str
    """Where the objects lie on this machine, for what needs no store: the check, the image step."""
    model: str
    """Folder of the model, with the scenario's limit of pixels."""
    samples: int
    """Each has one image."""
    batch_size: int
    cores: int
    """What the trainer, the loader and the store have together."""
    shards: int
    """Number of tar archives, and of Parquet files."""
    source: str
    """Where stoker reads: `objects` or `tar`."""
    step_seconds: float
    """What the demo's trainer takes for a batch of this scenario."""
    cache: str
    """Folder that all runs of an adapter in a scenario share: indexes."""
    scratch: str
    """Folder of this run alone, empty: what a rival caches belongs here."""
    options: dict[str, Any]
    """What the adapter's line in the table says beside its module."""
