"""The store of a run, in a process of its own, so that it shares no GIL with the trainer.

    python -m bench.waiting.store '{"server": {…}, "pixels": [4000, 8000], "prefixes": 1, …}'

It fills itself, says where it is on stdout (JSON), and ends when its stdin is closed.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stoker.demo.server import die_with_parent
from stoker.demo.store import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.waiting.scenarios import Way

BUCKET, SAMPLES, SEED = "bench", 64, 3
HUGE = (6400, 5000)
CHAT = [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "Yes."}]
SAME = json.dumps({"messages": CHAT, "images": [f"s3://{BUCKET}/one.jpg"]}) + "\n"
"""A sample with one image."""
TEXT = json.dumps({"messages": [CHAT[0] | {"content": "Is it?"}, CHAT[1]]}) + "\n"
"""A sample without."""


@contextmanager
def serve(way: Way) -> Iterator[dict[str, Any]]:
    """Runs the store for the block.

    Yields:
        `endpoint`, and `lines`: the samples, whose images are in the store.

    Raises:
        DemoError: It did not start.
    """
    said = {"server": {"profile": "none"} | way.store, "pixels": way.pixels}
    said |= {"prefixes": way.prefixes, "huge": way.huge, "size": way.size, "text": way.text}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.waiting.store", json.dumps(said)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        line = process.stdout.readline()
        if not line:
            raise DemoError(f"the store did not start (code {process.wait()}): its words are above")
        yield json.loads(line)
    finally:
        process.stdin.close()
        process.wait()


def main() -> None:
    """Fills the store, then serves until stdin ends."""
    from stoker import _native

    threading.Thread(target=die_with_parent, daemon=True).start()
    said = json.loads(sys.argv[1])
    server = _native.S3Server(**said["server"])
    data = _native.DemoDataset(seed=SEED, samples=SAMPLES, pixels=tuple(said["pixels"]))
    huge = photo(HUGE) if said["huge"] else b""
    lines = data.object(0)[1].decode()
    for place in range(len(data) - 1):
        key, content = data.object(place + 1)
        name = f"{place % said['prefixes']:02}/{key}"
        server.put(BUCKET, name, huge if huge and place % said["huge"] == 0 else content)
        lines = lines.replace(json.dumps(key), json.dumps(f"s3://{BUCKET}/{name}"))
    if said["size"]:
        server.put(BUCKET, "one.jpg", photo(tuple(said["size"])))
        lines = SAME * SAMPLES
    if said.get("text"):
        lines = TEXT * SAMPLES
    where = {"endpoint": server.endpoint, "lines": lines}
    where |= {"access_key_id": server.access_key_id, "secret_access_key": server.secret_access_key}
    print(json.dumps(where), flush=True)
    threading.Event().wait()


def photo(size: tuple[int, int]) -> bytes:
    """A JPEG of that size."""
    from PIL import Image

    noise = Image.effect_noise((400, 320), 60).convert("RGB")
    file = io.BytesIO()
    noise.resize(size).save(file, "jpeg", quality=85)
    return file.getvalue()


if __name__ == "__main__":
    main()
