"""Who is compared, in words; imports none of what they use.

Each rival is used as its own documentation advises for many images on few cores, and does the same
work: transformers' processor with its default backend, on images that Pillow has decoded, unless
its line says otherwise. Two workers, as there are two cores, each with one thread of torch's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ADAPTERS = "bench.speed.adapters"
Kind = Literal["limit", "image step", "loader", "stoker"]


@dataclass(frozen=True)
class Rival:
    """One way to get batches."""

    name: str
    title: str
    module: str
    """The adapter."""
    means: str
    """How it is used."""
    copies: int
    """How often finished pixels are copied on their way to the trainer, by construction."""
    kind: Kind = "loader"
    place: Literal["rivals", "project"] = "rivals"
    """The virtual environment it runs in."""
    options: dict[str, Any] = field(default_factory=dict)


def stoker(pixels: str) -> Rival:
    """stoker, with pixels of that type."""
    means = "the engine as it comes, in the trainer's process, with 1 GiB"
    options = {"pixels": pixels}
    return Rival(
        f"stoker-{pixels}",
        f"stoker, {pixels}",
        f"{ADAPTERS}.stoker_here",
        means,
        copies=0,
        kind="stoker",
        place="project",
        options=options,
    )


# Copies of a DataLoader with workers: into the batch, and to shared memory.
RIVALS = (
    Rival(
        "libjpeg-turbo",
        "libjpeg-turbo alone",
        f"{ADAPTERS}.decode",
        "simplejpeg decodes the images from memory into memory that is used again, in a thread for "
        "each core, and nothing else: the limit of what is exact on a CPU",
        copies=0,
        kind="limit",
    ),
    Rival(
        "hf-processors-rs",
        "hf-processors-rs",
        f"{ADAPTERS}.hf_processors",
        "the image step alone, of bytes in memory: no store, no text; an image at a time in a "
        "thread for each core",
        copies=1,  # into the batch
        kind="image step",
    ),
    Rival(
        "dataloader",
        "DataLoader",
        f"{ADAPTERS}.data_loader",
        "torch's DataLoader; each worker brings the images of a batch at once with boto3",
        copies=2,
        options={"decoder": "pillow"},
    ),
    Rival(
        "dataloader-torchvision",
        "DataLoader, torchvision",
        f"{ADAPTERS}.data_loader",
        "the same, but torchvision decodes, and the processor takes its tensors",
        copies=2,
        options={"decoder": "torchvision"},
    ),
    Rival(
        "qwen-finetune",
        "Qwen's finetuning code",
        f"{ADAPTERS}.qwen_finetune",
        "the data path of Qwen3-VL's qwen-vl-finetune, step by step, in a DataLoader; images come "
        "by boto3, where it opens files; its position ids are left out",
        copies=2,
    ),
    Rival(
        "spdl",
        "SPDL",
        f"{ADAPTERS}.spdl_pipeline",
        "a pipeline of threads in the trainer's process: eight for the same GETs, two for the work",
        copies=1,  # into the batch
    ),
    Rival(
        "litdata-raw",
        "LitData, raw",
        f"{ADAPTERS}.litdata_raw",
        "StreamingRawDataset (obstore, look-ahead) in a DataLoader",
        copies=2,
    ),
    Rival(
        "webdataset",
        "WebDataset",
        f"{ADAPTERS}.webdataset_tar",
        "tar archives through curl, batches made in the workers of a WebLoader",
        copies=2,
    ),
    Rival(
        "mosaic-streaming",
        "Mosaic Streaming",
        f"{ADAPTERS}.mosaic",
        "MDS shards, brought to a new local cache while they are read, in a DataLoader",
        copies=2,
    ),
    Rival(
        "megatron-energon",
        "Megatron-Energon",
        f"{ADAPTERS}.energon",
        "tar archives with its index, through the Multi-Storage Client; a task encoder in two "
        "workers",
        copies=2,
    ),
    Rival(
        "ray-data",
        "Ray Data",
        f"{ADAPTERS}.ray_data",
        "`download` and a pool of two actors that make whole batches, read in place; Ray's start "
        "counts as first batch",
        copies=3,  # into the batch, to Arrow, to the object store
    ),
    Rival(
        "daft",
        "Daft",
        f"{ADAPTERS}.daft_frame",
        "`download` in Rust, then a class of the user's in two processes; rows are collated by the "
        "trainer's process",
        copies=4,  # pickled, through a socket, unpickled, into the batch
    ),
    Rival(
        "hf-datasets",
        "HF datasets, streaming",
        f"{ADAPTERS}.hf_datasets",
        "Parquet files through fsspec, in a DataLoader",
        copies=2,
    ),
    *map(stoker, ("f32", "bf16", "u8")),
)


def named(name: str) -> Rival:
    """The one of this name."""
    return next(rival for rival in RIVALS if rival.name == name)
