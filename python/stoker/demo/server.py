"""The store of the demo, in a process of its own: `python -m stoker.demo.server`.

It shares neither the GIL nor the counters of the process that loads, as no real store would. It
fills itself with the made-up data set, says so line by line on stdout (JSON), and ends when its
stdin is closed: when its parent closes it, or dies in whatever way.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from stoker import _native

BUCKET = "demo"


def main() -> None:
    """Fills the store, then serves until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and closes our stdin
    threading.Thread(target=die_with_parent, daemon=True).start()
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()

    try:
        server = _native.S3Server(profile=arguments.profile, seed=arguments.seed)
    except ValueError as error:
        sys.exit(f"stoker demo: {error}")
    data = _native.DemoDataset(seed=arguments.seed, samples=arguments.samples)

    def put(number: int) -> tuple[int, int]:
        key, content = data.object(number)
        server.put(BUCKET, key, content)
        return len(content), data.pixels(number)

    sizes = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for size in pool.map(put, range(len(data))):
            sizes.append(size)
            say(filled=len(sizes), of=len(data))
    images = sizes[1:]
    say(
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        bucket=BUCKET,
        key=data.key,
        samples=arguments.samples,
        images=len(images),
        bytes=sum(size for size, _ in images),
        pixels=sum(pixels for _, pixels in images),
        process=os.getpid(),
    )
    threading.Event().wait()


def say(**fields: object) -> None:
    """Tells the parent."""
    print(json.dumps(fields), flush=True)


def die_with_parent() -> None:
    """Ends this process when nobody holds the other end of its stdin any more."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
