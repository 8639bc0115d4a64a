#!/usr/bin/env python3
"""Writes image_rgb.json: what the references make of the images beside it, as SHA-256 of RGB bytes.

    python make_image_rgb.py

Needs Pillow 13, torch, torchvision 0.29, transformers 5.24, qwen-vl-utils 0.0.14 and numpy.
`images/` is older than this script and only read; `odd/` is written by it (fixed bytes, no photos).

Routes, named after the presets of `compat`:
  as-displayed       Pillow: exif_transpose, then composited on white; 16-bit grey keeps its high byte
  transformers-path  torchvision decode_image(RGB, apply_exif_orientation), as load_image_as_tensor
                     calls it; 16-bit results keep their high byte (transformers itself scales them
                     wrongly)
  transformers-pil   transformers convert_to_rgb of the PIL image
  qwen-vl-utils      qwen_vl_utils to_rgb of the PIL image
A route that refuses a file has null. `odd/` has small files that bend one rule each.
"""

import hashlib
import io
import json
import pathlib
import random
import struct
import warnings
import zlib

warnings.filterwarnings("ignore")

import numpy as np
import torch
from PIL import Image, ImageOps
from qwen_vl_utils.vision_process import to_rgb
from torchvision.io import ImageReadMode, decode_image
from transformers.image_transforms import convert_to_rgb

HERE = pathlib.Path(__file__).parent


def png(width, height, depth, colour, rows, trns=None, palette=None, exif=None, tail=None):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    out += chunk(b"eXIf", exif) if exif else b""
    out += chunk(b"PLTE", bytes(palette)) if palette else b""
    out += chunk(b"tRNS", trns) if trns else b""
    out += chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return out + (chunk(b"IEND", b"") if tail is None else tail)


def gif(width, height, frame, pixels, palette, transparent=None, background=0, bits=2):
    left, top, across, down = frame
    size = max(1, (len(palette) // 3 - 1).bit_length()) if palette else 1
    out = b"GIF89a" + struct.pack("<HHBBB", width, height, (0x80 if palette else 0) | (size - 1), background, 0)
    out += bytes(palette)
    if transparent is not None:
        out += b"\x21\xf9\x04" + bytes([1, 0, 0, transparent]) + b"\0"
    out += b"," + struct.pack("<HHHHB", left, top, across, down, 0) + bytes([bits])
    value = count = 0
    data = bytearray()
    clear = 1 << bits
    for code in [c for pixel in pixels for c in (clear, pixel)] + [clear + 1]:
        value |= code << count
        count += bits + 1
        while count >= 8:
            data.append(value & 255)
            value, count = value >> 8, count - 8
    data.append(value & 255)
    for at in range(0, len(data), 255):
        out += bytes([len(data[at : at + 255])]) + bytes(data[at : at + 255])
    return out + b"\0;"


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def bmp32(masks, pixels):
    header = struct.pack("<IiiHHIIiiII", 108, 2, -1, 1, 32, 3, 8, 0, 0, 0, 0) + struct.pack("<IIII", *masks) + bytes(52)
    return b"BM" + struct.pack("<IHHI", 14 + 108 + 8, 0, 0, 14 + 108) + header + pixels


def odd():
    rng = random.Random(7)
    palette = [10, 20, 30, 200, 0, 0, 0, 200, 0, 0, 0, 200]
    noise = lambda mode, size: Image.frombytes(
        mode, size, rng.randbytes(size[0] * size[1] * len(mode))
    )
    exif = lambda value, kind=3: b"MM\0*\0\0\0\x08\0\x01\x01\x12\0" + bytes([kind]) + b"\0\0\0\x01" + (
        struct.pack(">HH", value, 0) if kind == 3 else struct.pack(">I", value)
    ) + b"\0\0\0\0"
    every = np.stack(np.meshgrid(np.arange(256), np.arange(256)), -1).astype(np.uint8)
    rgb = noise("RGB", (7, 5))
    files = {
        "alpha_all_pairs.png": saved(Image.fromarray(every, "LA"), "PNG"),
        "grey16_trns.png": png(4, 1, 16, 0, [struct.pack(">4H", 0, 300, 7, 40000)], b"\x01\x2c"),
        "grey16_alpha.png": png(2, 1, 16, 4, [struct.pack(">4H", 300, 40000, 50000, 65535)]),
        "grey8_trns.png": png(4, 1, 8, 0, [bytes([0, 7, 8, 255])], b"\0\7"),
        "grey1_trns.png": png(4, 1, 1, 0, [bytes([0b10100000])], b"\0\1"),
        "grey2.png": png(4, 1, 2, 0, [bytes([0b00011011])]),
        "rgb16.png": png(2, 1, 16, 2, [struct.pack(">6H", 300, 40000, 50000, 1, 2, 3)]),
        "rgba16.png": png(2, 1, 16, 6, [struct.pack(">8H", 300, 40000, 50000, 32768, 1, 2, 3, 4)]),
        "rgb_trns.png": png(2, 1, 8, 2, [bytes([1, 2, 3, 4, 5, 6])], struct.pack(">3H", 1, 2, 3)),
        "palette_trns.png": png(4, 1, 2, 3, [bytes([0b00011011])], bytes([0, 128]), [9, 8, 7, 10, 11, 12, 200, 0, 0]),
        "no_iend.png": png(2, 1, 8, 2, [bytes([1, 2, 3, 4, 5, 6])], tail=b""),
        "exif6.png": png(2, 1, 8, 2, [bytes([1, 2, 3, 4, 5, 6])], exif=exif(6)),
        "plain.gif": gif(3, 2, (0, 0, 3, 2), [0, 1, 2, 3, 0, 1], palette),
        "offset.gif": gif(4, 3, (1, 1, 2, 2), [1, 2, 3, 1], palette, background=3),
        "transparent.gif": gif(3, 2, (0, 0, 3, 2), [0, 1, 2, 3, 0, 1], palette, transparent=1),
        "transparent_offset.gif": gif(4, 3, (1, 1, 2, 2), [1, 2, 3, 1], palette, transparent=2, background=3),
        "index_over_palette.gif": gif(2, 2, (0, 0, 2, 2), [1, 2, 7, 6], palette, bits=3),
        "no_palette.gif": gif(2, 2, (0, 0, 2, 2), [1, 2, 3, 0], []),
        "frames.gif": saved(noise("RGB", (9, 6)).quantize(16), "GIF", save_all=True,
                            append_images=[noise("RGB", (9, 6)).quantize(16)]),
        "lossy.webp": saved(noise("RGB", (17, 9)), "WEBP", quality=60),
        "lossy_alpha.webp": saved(noise("RGBA", (17, 9)), "WEBP", quality=60),
        "lossless_alpha.webp": saved(noise("RGBA", (17, 9)), "WEBP", lossless=True, exact=True),
        "exif8.webp": saved(rgb, "WEBP", lossless=True, exif=b"Exif\0\0" + exif(8)),
        "frames.webp": saved(noise("RGBA", (17, 9)), "WEBP", lossless=True, save_all=True,
                             append_images=[noise("RGBA", (17, 9))]),
        "rgb.bmp": saved(rgb, "BMP"),
        "palette.bmp": saved(rgb.quantize(8), "BMP"),
        "grey.bmp": saved(rgb.convert("L"), "BMP"),
        "bits.bmp": saved(rgb.convert("1"), "BMP"),
        "rgba_masks.bmp": bmp32([0xFF0000, 0xFF00, 0xFF, 0xFF000000], bytes([1, 2, 3, 128, 4, 5, 6, 0])),
        "rgbx.bmp": saved(noise("RGBA", (3, 2)).convert("RGBX").convert("RGB"), "BMP"),
        "grey.jpg": saved(noise("L", (19, 11)), "JPEG", quality=80),
        "cmyk.jpg": saved(noise("CMYK", (19, 11)), "JPEG", quality=80),
        "rgb_adobe.jpg": saved(noise("RGB", (19, 11)), "JPEG", quality=80, keep_rgb=True),
        "long_exif.jpg": saved(rgb, "JPEG", exif=b"Exif\0\0" + exif(3, kind=4)),
    }
    for value in range(10):
        files[f"exif{value}.jpg"] = saved(rgb, "JPEG", quality=95, exif=b"Exif\0\0" + exif(value))
    (HERE / "odd").mkdir(exist_ok=True)
    for name, data in files.items():
        (HERE / "odd" / name).write_bytes(data)


def on_white(image):
    if image.mode.startswith("I;16"):
        grey = Image.fromarray((np.array(image) >> 8).astype(np.uint8))
        if "transparency" not in image.info:
            return np.array(grey.convert("RGB"))
        alpha = np.where(np.array(image) == image.info["transparency"], 0, 255).astype(np.uint8)
        image = Image.merge("LA", (grey, Image.fromarray(alpha)))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return np.array(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"))
    return np.array(image.convert("RGB"))


def by_path(path, **_):
    data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    image = decode_image(data, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    image = image[0] if image.dim() == 4 else image
    if image.dtype == torch.uint16:
        image = (image.to(torch.int32) >> 8).to(torch.uint8)
    return image.permute(1, 2, 0).contiguous().numpy()


ROUTES = {
    "as-displayed": lambda path: on_white(ImageOps.exif_transpose(Image.open(path))),
    "transformers-path": by_path,
    "transformers-pil": lambda path: convert_to_rgb(Image.open(path), return_numpy=True),
    "qwen-vl-utils": lambda path: np.array(to_rgb(Image.open(path))),
}


def main():
    odd()
    rows = {}
    for path in sorted([*(HERE / "images").iterdir(), *(HERE / "odd").iterdir()]):
        row = rows[f"{path.parent.name}/{path.name}"] = {}
        for route, load in ROUTES.items():
            try:
                pixels = load(path)
                height, width, _ = pixels.shape
                row[route] = [width, height, hashlib.sha256(pixels.tobytes()).hexdigest()]
            except Exception as error:
                print(path.name, route, type(error).__name__, str(error)[:80])
                row[route] = None
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    (HERE / "image_rgb.json").write_text("{\n" + lines + "\n}\n")


main()
