"""Makes a tiny data set for the other examples: pictures of one colour, and chats about them.

    python examples/make_data.py /tmp/colours --model .setup/models/qwen3-vl

writes `images/*.jpg`, `train.jsonl` and `recipe.toml` to the folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from PIL import Image

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 200)}
SAMPLES = 24

RECIPE = """\
model = {model}

[dataset]
source = "train.jsonl"

[plan]
epochs = 2

[vision]
min-pixels = 1024           # the model's own minimum would enlarge these small pictures

[pack]
batch-size = 4
"""


def main() -> None:
    """Writes pictures, chats and a recipe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, default=Path(".setup/models/qwen3-vl"))
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    (folder / "images").mkdir(parents=True, exist_ok=True)
    lines = []
    for row in range(SAMPLES):
        name, rgb = list(COLOURS.items())[row % len(COLOURS)]
        path = f"images/{row:03}.jpg"
        Image.new("RGB", (64 + 4 * row, 96), rgb).save(folder / path, quality=90)
        image, text = {"type": "image", "image": path}, {"type": "text", "text": "Which colour?"}
        question = {"role": "user", "content": [image, text]}
        lines.append({"messages": [question, {"role": "assistant", "content": f"It is {name}."}]})
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = json.dumps(str(arguments.model.resolve()))
    (folder / "recipe.toml").write_text(RECIPE.format(model=model))
    print(folder / "recipe.toml")


if __name__ == "__main__":
    main()
