from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

OPEN = """
import hashlib, json, multiprocessing, os, signal, sys, time
import stoker
recipe = json.load(open(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path):
    """Starts a program of its own that has `recipe` and what `OPEN` imports."""

    def start(recipe: dict, body: str) -> subprocess.Popen:
        (tmp_path / "recipe.json").write_text(json.dumps(recipe))
        (tmp_path / "program.py").write_text(OPEN + body)
        # Newer Pythons warn of each fork of a process with threads, which is what is tried here.
        options = ["-W", "ignore::DeprecationWarning"]
        command = [sys.executable, *options, tmp_path / "program.py", tmp_path / "recipe.json"]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, **pipes, text=True, cwd=tmp_path)

    return start


def finish(process: subprocess.Popen, seconds: float = 30, told: str | None = None) -> str:
    """What it printed, if it ended well and in time."""
    try:
        output, errors = process.communicate(told, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert (process.returncode, errors) == (0, "")
    return output


def test_a_program_may_end_in_the_middle_of_iteration(script, recipe):
    begun = time.monotonic()
    process = script(
        recipe,
        """
loader = stoker.Loader(recipe)
for batch in loader:
    tensors = batch.numpy()
    break
print(len(tensors))
""",
    )
    assert int(finish(process)) > 3
    assert time.monotonic() - begun < 20


def test_a_program_may_end_while_a_thread_waits(script, stalled):
    process = script(
        stalled,
        """
import threading
loader = stoker.Loader(recipe)
threading.Thread(target=next, args=(loader,), daemon=True).start()
time.sleep(0.3)
print("ended")
""",
    )
    assert finish(process) == "ended\n"


def test_a_forked_child_gets_an_error_and_ends(script, recipe):
    process = script(
        recipe,
        """
loader = stoker.Loader(recipe)
batch = next(loader)
first = batch.numpy()["input_ids"].tolist()
for use in ["next", "iter", "len", "state", "load", "report", "close"]:
    child = os.fork()
    if child == 0:
        uses = dict(
            next=lambda: next(loader), iter=lambda: iter(loader), len=lambda: len(loader),
            state=loader.state_dict, load=lambda: loader.load_state_dict({}),
            report=loader.report, close=loader.close,
        )
        try:
            uses[use]()
        except RuntimeError as error:
            assert "before a fork" in str(error) and "spawn" in str(error)
            assert batch.numpy()["input_ids"].tolist() == first
            del batch
            sys.exit(7)
        sys.exit(1)
    signal.alarm(10)
    print(use, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(sum(1 for _ in loader) + 1 == len(loader))
""",
    )
    lines = finish(process, seconds=60).splitlines()
    assert lines.pop() == "True", "the parent goes on"
    assert [line.split()[1] for line in lines] == ["7"] * 7


def test_a_forked_child_may_make_its_own_loader(script, recipe):
    process = script(
        recipe,
        """
def digest(loader):
    hashed = hashlib.sha256()
    for batch in loader:
        for array in batch.numpy().values():
            hashed.update(array.tobytes())
    return hashed.hexdigest()

if __name__ == "__main__":
    loader = stoker.Loader(recipe)
    print(digest(loader))
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        print(digest(stoker.Loader(recipe)))
        sys.exit(0)
    print(os.waitpid(child, 0)[1])
""",
    )
    mine, *rest = finish(process).splitlines()
    assert sorted(rest) == sorted([mine, "0"])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_loader_goes_on_in_a_spawned_process(script, recipe, method):
    process = script(
        recipe,
        f"""
def digests(loader):
    return [hashlib.sha256(batch.numpy()["pixel_values"]).hexdigest() for batch in loader]

if __name__ == "__main__":
    loader = stoker.Loader(recipe)
    next(loader)
    with multiprocessing.get_context("{method}").Pool(1) as pool:
        print(pool.apply(digests, (loader,)) == digests(loader))
""",
    )
    assert finish(process, seconds=60) == "True\n"


TRAINER = """
state = "state.json"
with stoker.Loader(recipe) as loader, open("log", "a") as log:
    if os.path.exists(state):
        loader.load_state_dict(json.load(open(state)))
    for batch in loader:
        arrays = sorted(batch.numpy().items())
        seen = b"".join(name.encode() + array.tobytes() for name, array in arrays)
        log.write(hashlib.sha256(seen).hexdigest() + "\\n")
        log.flush()
        with open("new", "w") as new:
            json.dump(loader.state_dict(), new)
        os.replace("new", state)
        print("saved", flush=True)
        if sys.stdin.readline() != "go on\\n":
            break
"""


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_killed_run_goes_on_with_the_same_bytes(script, recipe, tmp_path, at):
    """SIGKILL after every save but the first `at`; the log then is that of a run never killed."""

    def batches() -> list[str]:
        lines = (tmp_path / "log").read_text().split()
        for name in ("log", "state.json"):
            (tmp_path / name).unlink()
        return lines

    finish(script(recipe, TRAINER), 60, "go on\n" * 100)
    straight = batches()
    assert len(straight) == 6
    kills, run = 0, script(recipe, TRAINER)
    while run.stdout.readline() == "saved\n":
        if at > 0:
            at -= 1
            run.stdin.write("go on\n")
            run.stdin.flush()
            continue
        run.send_signal(signal.SIGKILL)
        run.wait()
        kills, run = kills + 1, script(recipe, TRAINER)
    finish(run)
    assert kills > 0
    assert batches() == straight


IMPORT = """
import os, sys
heard = []
sys.addaudithook(lambda event, arguments: heard.append((event, arguments)))
before = set(sys.modules)
import stoker
new = {name.split(".")[0] for name in set(sys.modules) - before}
opened = [str(arguments[0]) for event, arguments in heard if event == "open"]
print(sorted(new - set(sys.stdlib_module_names)))
print(*sorted(new & set(sys.stdlib_module_names)))
print(*sorted({event for event, _ in heard}))
print([path for path in opened if not path.endswith((".py", ".pyc", ".so")) and os.sep in path])
print(len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))
"""
SMALL_MODULES = {
    *("__future__", "_collections", "_operator", "_types", "collections", "itertools"),
    *("keyword", "operator", "reprlib", "types"),
}
"""Those of the standard library that any program of some size has."""
OF_IMPORTING = {
    *("import", "open", "os.listdir", "os.scandir", "compile", "exec", "code.__new__"),
    *("marshal.loads", "builtins.id", "object.__getattr__"),
}
"""What the interpreter says of itself while it imports."""


def test_importing_stoker_imports_no_other_library_and_does_no_work(tmp_path):
    command = [sys.executable, "-I", "-B", "-c", IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    libraries, standard, events, opened, counts = done.stdout.splitlines()
    assert libraries == "['stoker']"
    # A large one would be felt by every process that imports stoker.
    assert set(standard.split()) <= SMALL_MODULES
    # No socket, process, file or folder of anybody's.
    assert set(events.split()) <= OF_IMPORTING
    assert opened == "[]"
    # One thread; of files the three standard ones, and the folder that is just being listed.
    assert counts == "1 4"


@pytest.mark.parametrize(
    "command", [["-m", "stoker"], ["-c", "from stoker.cli import main; main()"]]
)
def test_the_command_comes_with_the_package(command):
    command = [sys.executable, *command, "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    for word in ("run", "peek", "index", "s3"):
        assert word in result.stdout
