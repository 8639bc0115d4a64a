"""The data path of Qwen's own finetuning code (Qwen3-VL, qwen-vl-finetune/qwenvl/data).

The same steps, written anew: a chat template call that does all the work of a sample, labels by a
scan for the word "assistant", both texts decoded again and thrown away, a collator that pads and
concatenates. It opens one file after the other; here each is a GET.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch.utils.data import Dataset

from bench.speed.work import Worker, chats, data_loader, endless, image_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.speed.job import Job

IGNORED, ASSISTANT, END_OF_TURN = -100, 77091, 151645


class Chats(Dataset):
    """The samples, one at a time."""

    def __init__(self, job: Job) -> None:
        self.chats = chats(job)
        self.work = Worker(job)

    def __len__(self) -> int:
        return len(self.chats)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        work, chat = self.work(), self.chats[row]
        processor = work.processor.processor
        image = Image.open(io.BytesIO(work.get(image_key(chat))))
        made = dict(
            processor.apply_chat_template(
                messages(chat, image), tokenize=True, return_dict=True, return_tensors="pt"
            )
        )
        made["labels"] = labels(made["input_ids"])
        padding = processor.tokenizer.pad_token_id
        processor.tokenizer.decode(made["input_ids"][0], skip_special_tokens=False)
        learned = [padding if label == IGNORED else label for label in made["labels"][0]]
        processor.tokenizer.decode(learned, skip_special_tokens=False)
        return made


def messages(chat: dict[str, Any], image: Image.Image) -> list[dict[str, Any]]:
    """The chat with the image in its place."""
    question, answer = chat["messages"]
    parts = [{"type": "image", "image": image}, *question["content"][1:]]
    said = [{"type": "text", "text": answer["content"]}]
    return [{"role": "user", "content": parts}, {"role": "assistant", "content": said}]


def labels(ids: torch.Tensor) -> torch.Tensor:
    """What follows the word "assistant", up to the line break after its turn."""
    found, tokens, at = torch.full_like(ids, IGNORED), ids[0].tolist(), 0
    while at < len(tokens):
        if tokens[at] == ASSISTANT:
            begin = at + 2
            at = tokens.index(END_OF_TURN, begin)
            found[0, begin : at + 2] = ids[0, begin : at + 2]
        at += 1
    return found


def open(job: Job) -> Iterator[dict[str, torch.Tensor]]:  # noqa: A001 (the adapters' word)
    """Batches in the order of the source."""
    dataset = Chats(job)
    yield from endless(data_loader(dataset, job, collate_fn=dataset.work.collate))
