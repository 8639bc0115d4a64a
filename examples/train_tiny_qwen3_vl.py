"""Trains a tiny Qwen3-VL with random weights on the CPU, and tells how long it waited for data.

    python examples/train_tiny_qwen3_vl.py /tmp/colours/recipe.toml

A real run differs in the model, the device and a checkpoint with `loader.state_dict()` in it.
"""

from __future__ import annotations

import sys

import stoker
import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

TEXT = {
    "vocab_size": 151936,  # as the tokenizer of Qwen3
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2]},
}
VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 256,
    "deepstack_visual_indexes": [0],
}


def tiny_model() -> Qwen3VLForConditionalGeneration:
    """The same on all ranks."""
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=TEXT, vision_config=VISION))


def main(recipe: str) -> None:
    """Trains for as long as the recipe lasts."""
    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with stoker.Loader(recipe, rank=0, world_size=1) as loader:
        for step, batch in enumerate(loader):
            loss = model(**batch.to("cpu")).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step}: loss {loss.item():.2f}")
        print(loader.report())


if __name__ == "__main__":
    main(sys.argv[1])
