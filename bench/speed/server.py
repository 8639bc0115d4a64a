"""The store, in a process of its own: `python -m bench.speed.server`.

stoker's own S3 server, with the latency of a real one, over objects in memory. It puts the files of
a folder into itself, says where it is on stdout (JSON), and ends when its stdin is closed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from pathlib import Path

from stoker import _native
from stoker.demo.server import die_with_parent

BUCKET = "bench"


def main() -> None:
    """Fills the store, then serves until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and closes our stdin
    threading.Thread(target=die_with_parent, daemon=True).start()
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    server = _native.S3Server(profile=arguments.profile, seed=arguments.seed)
    for file in sorted(arguments.root.rglob("*")):
        if file.is_file():
            server.put(BUCKET, str(file.relative_to(arguments.root)), file.read_bytes())
    where = {name: getattr(server, name) for name in ("endpoint", "access_key_id")}
    where |= {"secret_access_key": server.secret_access_key, "bucket": BUCKET}
    print(json.dumps(where | {"process": os.getpid()}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
