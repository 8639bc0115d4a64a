"""What Python loaders do to a sample: Pillow, transformers' own processor, and the labels.

All that are compared do exactly this work, so that they differ only in when, where and how often at
once.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from transformers import AutoProcessor

if TYPE_CHECKING:
    from pathlib import Path

IGNORED = -100


class Processor:
    """Makes examples of samples and batches of examples.

    torch is held to one thread: with more, these small operations take as long and twice the CPU.
    """

    def __init__(self, model: Path) -> None:
        torch.set_num_threads(1)
        self.processor = AutoProcessor.from_pretrained(model)
        number = self.processor.tokenizer.convert_tokens_to_ids
        self.start, self.end = number("<|im_start|>"), number("<|im_end|>")
        self.assistant = number("assistant")

    def example(self, sample: dict[str, Any], images: list[bytes]) -> dict[str, torch.Tensor]:
        """Pixels, tokens and labels of one sample."""
        return self.prepare(
            sample, [Image.open(io.BytesIO(image)).convert("RGB") for image in images]
        )

    def prepare(self, sample: dict[str, Any], pictures: list[Any]) -> dict[str, torch.Tensor]:
        """The same from decoded images, as the processor takes them."""
        text = self.processor.apply_chat_template(sample["messages"], tokenize=False)
        made = dict(self.processor(text=[text], images=pictures or None, return_tensors="pt"))
        return made | {"labels": self.labels(made["input_ids"][0])[None]}

    def labels(self, ids: torch.Tensor) -> torch.Tensor:
        """Learns what the assistant says, up to the line break after it."""
        labels, tokens, at = torch.full_like(ids, IGNORED), ids.tolist(), 0
        while at < len(tokens):
            if tokens[at : at + 2] == [self.start, self.assistant]:
                begin = at + 3  # after the line break
                at = tokens.index(self.end, begin) + 2
                labels[begin:at] = ids[begin:at]
            else:
                at += 1
        return labels

    def collate(self, examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """One batch of examples of different lengths, padded on the right."""
        batch = {}
        for name in dict.fromkeys(name for example in examples for name in example):
            parts = [example[name] for example in examples if name in example]
            if name in {"pixel_values", "image_grid_thw"}:
                batch[name] = torch.cat(parts)
                continue
            batch[name] = torch.nn.utils.rnn.pad_sequence(
                [part[0] for part in parts], batch_first=True, padding_value=self.padding(name)
            )
        return batch

    def padding(self, name: str) -> int:
        """What stands where a shorter sample has ended."""
        if name == "labels":
            return IGNORED
        return self.processor.tokenizer.pad_token_id if name == "input_ids" else 0
