"""Makes the small JPEGs beside it, whose entropy coding differs in each way that baseline allows, and a progressive one.

    python make_jpeg.py

Pillow 13.0.0. The picture is a crop of ``../images/a_444.jpg`` with noise over a part of it, so that
short and long codes occur.
"""

import random
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
SIZE = (83, 61)
KINDS = {
    "420": {"quality": 85, "subsampling": "4:2:0"},
    "422": {"quality": 85, "subsampling": "4:2:2"},
    "444": {"quality": 85, "subsampling": "4:4:4"},
    "grey": {"quality": 85},
    "restarts": {"quality": 85, "subsampling": "4:2:0", "restart_marker_blocks": 3},
    "restart_rows": {"quality": 85, "subsampling": "4:2:2", "restart_marker_rows": 1},
    "optimised": {"quality": 30, "subsampling": "4:2:0", "optimize": True},
    "best": {"quality": 100, "subsampling": "4:4:4"},
    "progressive": {"quality": 85, "subsampling": "4:2:0", "progressive": True},
}


def main() -> None:
    with Image.open(HERE / "../images/a_444.jpg") as image:
        picture = image.convert("RGB").crop((20, 20, 20 + SIZE[0], 20 + SIZE[1]))
    noise = random.Random(1)
    for x in range(30):
        for y in range(30):
            picture.putpixel((x, y), tuple(noise.randbytes(3)))
    for name, options in KINDS.items():
        kind = picture.convert("L") if name == "grey" else picture
        kind.save(HERE / f"{name}.jpg", **options)


if __name__ == "__main__":
    main()
