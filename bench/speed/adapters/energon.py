"""Megatron-Energon: tar archives with its index, through NVIDIA's Multi-Storage Client."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.speed.job import Job

DATASET = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"


def configure(job: Job) -> None:
    """Tells the client of the store; it reads its file when it is imported."""
    profile = {
        "storage_provider": {
            "type": "s3",
            "options": {
                "base_path": "",
                "region_name": "us-east-1",
                "endpoint_url": job.endpoint,
            },
        },
        "credentials_provider": {
            "type": "S3Credentials",
            "options": {"access_key": job.access_key_id, "secret_key": job.secret_access_key},
        },
    }
    file = Path(job.scratch) / "msc.json"
    file.write_text(json.dumps({"profiles": {"store": profile}}))
    os.environ["MSC_CONFIG"] = str(file)


def prepare(job: Job) -> None:
    """Writes its index, as `energon prepare` does."""
    configure(job)
    from megatron.energon.flavors import BaseWebdatasetFactory

    from bench.speed.work import upload

    folder = Path(job.scratch) / "tar"
    shutil.copytree(Path(job.folder) / "tar", folder)
    names = sorted(file.name for file in folder.glob("*.tar"))
    BaseWebdatasetFactory.prepare_dataset(
        folder, names, split_parts_patterns=[("train", ".*")], shuffle_seed=None, workers=1
    )
    (folder / ".nv-meta/dataset.yaml").write_text(DATASET)
    for file in folder.glob("*.tar"):
        file.unlink()
    upload(job, folder, "tar")


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches of one worker and the other in turn."""
    configure(job)
    from megatron.energon import (
        Cooker,
        DefaultTaskEncoder,
        SampleDecoder,
        WorkerConfig,
        basic_sample_keys,
        get_loader,
        get_train_dataset,
        stateless,
    )

    from bench.speed.work import Worker, hang_up

    work = Worker(job)

    @stateless
    def cook(sample: dict[str, Any]) -> dict[str, Any]:
        return basic_sample_keys(sample) | {"chat": sample["json"], "image": sample["jpg"]}

    class Encoder(DefaultTaskEncoder):
        cookers = (Cooker(cook),)
        decoder = SampleDecoder(image_decode="pilrgb")

        @stateless
        def encode_sample(self, sample: dict[str, Any]) -> dict[str, Any]:
            made = work().processor.prepare(sample["chat"], [sample["image"]])
            return basic_sample_keys(sample) | {"made": made}

        def batch(self, samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            return work.collate([sample["made"] for sample in samples])

        def encode_batch(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return batch

    dataset = get_train_dataset(
        f"msc://store/{job.bucket}/tar",
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=job.cores),
        batch_size=job.batch_size,
        shuffle_buffer_size=None,
        max_samples_per_sequence=None,
        task_encoder=Encoder(),
    )
    hang_up()
    yield from get_loader(dataset)
