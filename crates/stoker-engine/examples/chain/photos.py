"""Makes the two folders of photos that the chain is measured on.

    python photos.py OUT PHOTO...

Each photo of a megapixel or more is scaled to 0.8 to 1.3 megapixels and saved as JPEG of quality 90
with halved chroma, as cameras and web sites do: in ``OUT/any`` in the size that comes of it, which is
hardly ever a multiple of 32, so that both passes of the resize run; in ``OUT/whole`` in the nearest
multiples of 32, so that none does; in ``OUT/large`` in its own size, up to 12 megapixels.
"""

import math
import sys
from pathlib import Path

from PIL import Image

MEGAPIXEL = 1_000_000
SIDE = 32
LARGE = 12 * MEGAPIXEL


def main(out: Path, sources: list[Path]) -> None:
    for folder in ("any", "whole", "large"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    photos = 0
    for source in sources:
        with Image.open(source) as image:
            photo = image.convert("RGB")
        if photo.width * photo.height < MEGAPIXEL:
            continue
        area = MEGAPIXEL * (0.8 + 0.5 * (photos * 7 % 10) / 9)
        scale = math.sqrt(area / (photo.width * photo.height))
        size = round(photo.width * scale), round(photo.height * scale)
        save(photo, size, out / "any" / f"{photos:02}.jpg")
        whole = round(size[0] / SIDE) * SIDE, round(size[1] / SIDE) * SIDE
        save(photo, whole, out / "whole" / f"{photos:02}.jpg")
        shrink = min(1, math.sqrt(LARGE / (photo.width * photo.height)))
        large = round(photo.width * shrink), round(photo.height * shrink)
        if large[0] * large[1] >= 2 * MEGAPIXEL:
            save(photo, large, out / "large" / f"{photos:02}.jpg")
        photos += 1


def save(photo: Image.Image, size: tuple[int, int], path: Path) -> None:
    scaled = photo if photo.size == size else photo.resize(size, Image.Resampling.LANCZOS)
    scaled.save(path, quality=90, subsampling="4:2:0")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sorted(map(Path, sys.argv[2:])))
