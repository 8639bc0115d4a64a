"""Programs of their own that use stoker, and a store that answers when it is told to.

What becomes of a process is only seen from outside: each test starts one, and ends it whatever it
does. Nothing here is about time but that a program has to end in it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60.0
"""After which a program hangs; busy machines are slow."""


def digest(batch: Any) -> str:
    """The same for two batches if all their bytes are."""
    hashed = hashlib.sha256()
    for name, array in sorted(batch.numpy().items()):
        hashed.update(name.encode() + array.tobytes())
    return hashed.hexdigest()


HEAD = (
    f"from typing import Any\nimport hashlib\n\n{inspect.getsource(digest)}"
    + '''
import ctypes, gc, json, multiprocessing, os, pickle, resource, signal, socket, subprocess
import sys, threading, time
import stoker

recipe = json.load(open(sys.argv[1]))


def digests(loader):
    return [digest(batch) for batch in loader]


def ours():
    """Names of stoker's threads here; one that has just ended may still be among them."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                names.append(file.read().strip())
        except OSError:
            pass
    return sorted(name for name in names if name.startswith("stoker"))


def until(true):
    """Waits; whoever started the program does not wait for ever."""
    while not true():
        time.sleep(0.01)


def files():
    """What is open here: descriptors and what they are."""
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found[int(descriptor)] = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            pass
    return found


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def interrupted(after=0.3):
    """Ctrl-C, in a moment."""
    threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()
'''
)


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    output: str
    errors: str


class Program:
    """A running program, in a session of its own: Ctrl-C at the tests does not reach it."""

    def __init__(self, command: list[Any], **options: Any) -> None:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(
            [str(part) for part in command], text=True, start_new_session=True, **(pipes | options)
        )

    def line(self) -> str:
        """The next line that it prints; empty at the end."""
        return self.process.stdout.readline().rstrip("\n")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = SECONDS) -> Ended:
        """Waits for its end."""
        try:
            output, errors = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            where = Path(f"/proc/{self.process.pid}/task")
            threads = [(it / "comm").read_text().strip() for it in where.iterdir()]
            self.kill()
            raise AssertionError(f"it hangs; its threads are {sorted(threads)}") from None
        return Ended(self.process.returncode, output, errors)

    def kill(self) -> None:
        """Ends it, and the children that it forked."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


class Programs:
    """Starts programs that have `recipe` and what `HEAD` has; all are ended after the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Program] = []

    def write(self, recipe: dict, body: str = "") -> list[Any]:
        """The command that runs the body."""
        (self.folder / "recipe.json").write_text(json.dumps(recipe))
        (self.folder / "program.py").write_text(HEAD + body)
        # Newer Pythons warn of each fork of a process with threads, which is what is tried here.
        options = ["-W", "ignore::DeprecationWarning"]
        return [sys.executable, *options, self.folder / "program.py", self.folder / "recipe.json"]

    def start(self, recipe: dict, body: str, **options: Any) -> Program:
        return self.run(self.write(recipe, body), **options)

    def run(self, command: list[Any], **options: Any) -> Program:
        self._started.append(Program(command, **({"cwd": self.folder} | options)))
        return self._started[-1]

    def output(self, recipe: dict, body: str, **options: Any) -> str:
        """What a program printed that ended well and said nothing on stderr."""
        ended = self.start(recipe, body, **options).end()
        assert (ended.code, ended.errors) == (0, ""), ended
        return ended.output

    def close(self) -> None:
        for program in self._started:
            program.kill()


class Store:
    """A folder over the S3 protocol, for readers without credentials.

    While it is closed it takes connections and requests, and answers none.
    """

    def __init__(self, folder: Path) -> None:
        self.opened = threading.Event()
        self.opened.set()
        self.asked = threading.Event()
        """Set when a request has come that is not answered."""
        self.silent_about = ""
        """While it is closed, only about these keys: those that end so."""
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool = False) -> None:
                key = self.path.removeprefix("/bucket/")
                if key.endswith(store.silent_about) and (body or not store.silent_about):
                    if not store.opened.is_set():
                        store.asked.set()
                    store.opened.wait()
                content = (folder / key).read_bytes()
                part = self.headers["Range"]
                start, end = 0, len(content)
                if part:
                    first, last = part.removeprefix("bytes=").split("-")
                    start, end = int(first), min(end, int(last) + 1)
                self.send_response(206 if part else 200)
                self.send_header("Content-Length", str(end - start))
                self.send_header("ETag", f'"{len(content)}"')
                if part:
                    self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
                self.end_headers()
                if body:
                    self.wfile.write(content[start:end])

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """Readers that go away are what is tried here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def recipe(self, recipe: dict) -> dict:
        """The recipe over the same data, from this store."""
        name = Path(recipe["dataset"]["source"]).name
        address = f"http://127.0.0.1:{self._server.server_address[1]}"
        index = {"index-dir": str(Path(recipe["dataset"]["source"]).parent)}
        dataset = recipe["dataset"] | {"source": f"s3://bucket/{name}"} | index
        return recipe | {"dataset": dataset, "fetch": {"endpoint": address, "anonymous": True}}

    def close(self) -> None:
        self.opened.set()
        self._server.shutdown()
        self._server.server_close()


def programs(folder: Path) -> Iterator[Programs]:
    """For a fixture."""
    started = Programs(folder)
    try:
        yield started
    finally:
        started.close()
