"""Rung (a): the loader that people start with, before they have a reason to write another.

One sample after the other in the trainer's own process: GET, Pillow, NumPy, the model's tokenizer.
It is meant to be good code: one client and one tokenizer for all samples, no copy that the obvious
spelling does not make, and the arithmetic of transformers' own processor.
"""

from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING, Any

import boto3
import numpy as np
import torch
from PIL import Image
from transformers import AutoTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMAGE = "<|image_pad|>"
ANSWER, END = "<|im_start|>assistant\n", "<|im_end|>\n"


class PythonLoader:
    """Batches of the samples of a JSONL in a bucket, in its order."""

    def __init__(self, endpoint: str, bucket: str, key: str, model: Path, batch_size: int) -> None:
        self.s3 = boto3.client("s3", endpoint_url=endpoint)
        self.bucket = bucket
        self.folder = key.rpartition("/")[0]
        self.batch_size = batch_size
        self.samples = [json.loads(line) for line in self.get(key).splitlines()]
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.config = json.loads((model / "preprocessor_config.json").read_text())

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for start in range(0, len(self.samples), self.batch_size):
            yield self.collate([self.example(s) for s in self.samples[start:][: self.batch_size]])

    def get(self, key: str) -> bytes:
        """An object's bytes."""
        return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def example(self, sample: dict[str, Any]) -> dict[str, list]:
        """A sample as meant becomes tokens, labels and patches."""
        messages = sample["messages"]
        parts = [p for m in messages if isinstance(m["content"], list) for p in m["content"]]
        keys = [f"{self.folder}/{p['image']}".lstrip("/") for p in parts if p["type"] == "image"]
        images = [self.patches(Image.open(io.BytesIO(self.get(key)))) for key in keys]

        head, *tails = self.tokenizer.apply_chat_template(messages, tokenize=False).split(IMAGE)
        merged = self.config["merge_size"] ** 2
        for (_, grid), tail in zip(images, tails, strict=True):
            head += IMAGE * (math.prod(grid) // merged) + tail
        encoded = self.tokenizer(head, return_offsets_mapping=True)
        return {
            "input_ids": encoded["input_ids"],
            "attention_mask": encoded["attention_mask"],
            "labels": self.labels(head, encoded["input_ids"], encoded["offset_mapping"]),
            "images": images,
        }

    def labels(self, text: str, ids: list[int], offsets: list[tuple[int, int]]) -> list[int]:
        """Learns what the assistant says, up to the line break after it."""
        labels, token, end = [-100] * len(ids), 0, 0
        while (start := text.find(ANSWER, end)) >= 0:
            start += len(ANSWER)
            end = text.index(END, start) + len(END)
            while offsets[token][0] < start:
                token += 1
            while token < len(ids) and offsets[token][0] < end:
                labels[token] = ids[token]
                token += 1
        return labels

    def patches(self, image: Image.Image) -> tuple[np.ndarray, tuple[int, int, int]]:
        """Resizes, normalises and cuts an image into rows, as Qwen2VLImageProcessor does."""
        config = self.config
        patch, merge = config["patch_size"], config["merge_size"]
        frames = config["temporal_patch_size"]
        image = image.convert("RGB")
        width, height = self.smart_resize(*image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        values = np.asarray(image, dtype=np.float32) / 255
        values = (values - np.float32(config["image_mean"])) / np.float32(config["image_std"])
        values = np.tile(values.transpose(2, 0, 1), (frames, 1, 1, 1))
        grid = (1, height // patch, width // patch)
        blocks = (grid[1] // merge, merge, patch, grid[2] // merge, merge, patch)
        values = values.reshape(1, frames, 3, *blocks).transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)
        return values.reshape(math.prod(grid), 3 * frames * patch * patch), grid

    def smart_resize(self, width: int, height: int) -> tuple[int, int]:
        """The size nearest to the image's that the model takes."""
        side = self.config["patch_size"] * self.config["merge_size"]
        least, most = self.config["size"]["shortest_edge"], self.config["size"]["longest_edge"]
        area = round(width / side) * round(height / side) * side**2
        shrink, to_blocks = 1.0, round
        if area > most:
            shrink, to_blocks = math.sqrt(width * height / most), math.floor
        elif area < least:
            shrink, to_blocks = math.sqrt(width * height / least), math.ceil
        width, height = (to_blocks(length / shrink / side) * side for length in (width, height))
        return max(width, side), max(height, side)

    def collate(self, examples: list[dict[str, list]]) -> dict[str, torch.Tensor]:
        """Examples of different lengths become one batch, padded on the right."""
        paddings = {"input_ids": self.tokenizer.pad_token_id, "attention_mask": 0, "labels": -100}
        batch = {
            name: torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(e[name]) for e in examples], batch_first=True, padding_value=padding
            )
            for name, padding in paddings.items()
        }
        images = [image for e in examples for image in e["images"]]
        if images:
            batch["pixel_values"] = torch.from_numpy(np.concatenate([rows for rows, _ in images]))
            batch["image_grid_thw"] = torch.tensor([grid for _, grid in images])
        return batch
