"""Makes the golden values of the room `vision` by running the reference implementations.

Needs torch, torchvision 0.29, transformers 5.24, Pillow 13 and qwen-vl-utils 0.0.14.
  python make.py IMAGES     IMAGES: a folder with the source images named in PHOTOS
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import PIL
import torch
from PIL import Image
from qwen_vl_utils.vision_process import smart_resize as utils_smart_resize
from torchvision.transforms.v2 import functional
from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

HERE = Path(__file__).parent
PHOTOS = ["a_444.jpg", "b_420_odd.jpg", "c_prog.jpg", "d_tall.png", "e_ties.png", "n_thin.png", "o_noise64x96.png"]
CLIP = dict(
    image_mean=[0.48145466, 0.4578275, 0.40821073],
    image_std=[0.26862954, 0.26130258, 0.27577711],
    patch_size=14,
)
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, patch_size=16)
CONFIGS = {
    "qwen2_vl": dict(CLIP, size=dict(shortest_edge=3136, longest_edge=12845056)),
    "qwen3_vl": dict(HALF, size=dict(shortest_edge=65536, longest_edge=16777216)),
    "qwen3_vl_small": dict(HALF, size=dict(shortest_edge=4096, longest_edge=32768)),
    "qwen2_vl_small": dict(CLIP, size=dict(shortest_edge=3136, longest_edge=28224)),
}


def sha(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def resized(pixels: np.ndarray, height: int, width: int) -> dict:
    """The digests of both references' results."""
    tensor = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()[None]
    mode = functional.InterpolationMode.BICUBIC
    vision = functional.resize(tensor, [height, width], interpolation=mode, antialias=True)
    pillow = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
    return dict(torchvision=sha(vision[0].permute(1, 2, 0).numpy()), pillow13=sha(np.asarray(pillow)))


def photo_resizes(photos: dict) -> list:
    rows = []
    for name, pixels in photos.items():
        h, w = pixels.shape[:2]
        sizes = [
            (224, 256),
            (64, 96),
            (h, w // 2),
            (h // 2, w),
            (h * 2, w * 2 - 1),
            (max(1, h - 3), w + 5),
            (h + 5, w - 3),
            (max(1, h - 20), w - 3),
            (max(1, h // 7), w // 3),
        ]
        rows += [dict(image=name, to=list(size), **resized(pixels, *size)) for size in sizes]
    return rows


def generated(kind: int, height: int, width: int) -> np.ndarray:
    """Pixels that the Rust test makes too: a 32-bit LCG, one step a byte."""
    count, state, out = height * width * 3, height * 65536 + width, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(state >> 24)
    values = np.array(out, dtype=np.uint8)
    if kind == 1:  # nothing but extremes, which overshoot and are clamped
        values = np.where(values < 128, 0, 255).astype(np.uint8)
    elif kind == 2:  # smooth
        values = ((np.arange(count) // 7 + values // 32) % 256).astype(np.uint8)
    return values.reshape(height, width, 3)


def generated_resizes() -> list:
    rng, rows = np.random.default_rng(20), []
    for case in range(240):
        limit = [12, 60, 240][case % 3]
        height, width, to_height, to_width = (int(side) for side in rng.integers(1, limit + 1, 4))
        if case % 8 == 6:
            to_width = width
        if case % 8 == 7:
            to_height = height
        kind = case // 3 % 3
        digests = resized(generated(kind, height, width), to_height, to_width)
        rows.append(dict(kind=kind, size=[height, width], to=[to_height, to_width], **digests))
    return rows


def patches(photos: dict) -> list:
    rows = []
    for config, settings in CONFIGS.items():
        settings = dict(settings, temporal_patch_size=2, merge_size=2)
        routes = dict(torchvision=Qwen2VLImageProcessor(**settings), pillow13=Qwen2VLImageProcessorPil(**settings))
        for name, pixels in photos.items():
            row = dict(config=config, image=name)
            for route, processor in routes.items():
                out = processor(images=Image.fromarray(pixels), return_tensors="np")
                row["grid"] = out["image_grid_thw"][0].tolist()
                row[route] = sha(np.asarray(out["pixel_values"], dtype="<f4"))
            rows.append(row)
    return rows


def sizes() -> list:
    rng = np.random.default_rng(11)
    fixed = [
        (80, 64),
        (112, 64),
        (16, 64),
        (48, 48),
        (42, 70),
        (70, 42),
        (14, 14),
        (1, 200),
        (200, 1),
        (1, 201),
        (8, 300),
        (10, 2000),
        (4096, 4096),
        (4097, 4095),
        (9000, 45),
        (823, 1234),
        (1080, 1920),
        (33, 6500),
    ]
    for low, high, count in [(1, 5000, 60), (1, 120, 40), (1, 20, 20)]:
        fixed += [tuple(int(side) for side in rng.integers(low, high, 2)) for _ in range(count)]
    fixed += [(1363, 8), (6400, 32)]
    fixed += [(int(rng.integers(1, 40)), int(rng.integers(200, 3000))) for _ in range(40)]
    rows = []
    for factor, least, most in ((32, 65536, 16777216), (28, 3136, 12845056), (28, 12544, 451584), (32, 4096, 262144)):
        for size in fixed:
            row = [factor, least, most, *size]
            for rule in (smart_resize, utils_smart_resize):
                try:
                    row.append([int(side) for side in rule(*size, factor, least, most)])
                except ValueError:
                    row.append(None)
            rows.append(row)
    return rows


def main() -> None:
    assert PIL.__version__.startswith("13."), PIL.__version__
    torch.set_num_threads(1)
    photos = {}
    for name in PHOTOS:
        image = Image.open(Path(sys.argv[1]) / name).convert("RGB")
        image.save(HERE / f"{name}.ppm")
        photos[name] = np.array(image)
    golden = dict(
        configs=CONFIGS,
        size_columns=["factor", "min_pixels", "max_pixels", "height", "width", "transformers", "qwen_vl_utils"],
        sizes=sizes(),
        photo_resizes=photo_resizes(photos),
        generated_resizes=generated_resizes(),
        patches=patches(photos),
    )
    body = ",\n".join(
        f"{json.dumps(key)}: "
        + (
            "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
            if key not in ("configs", "size_columns")
            else json.dumps(value)
        )
        for key, value in golden.items()
    )
    (HERE / "golden.json").write_text("{\n" + body + "\n}\n")


if __name__ == "__main__":
    main()
