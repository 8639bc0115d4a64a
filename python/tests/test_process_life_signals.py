"""Signals: Ctrl-C and SIGTERM while a trainer waits, while data is opened, and while all is closed.

Where a program is to be interrupted while it waits, the store stays silent until it was: so that it
was waiting is no matter of time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_loader_that_was_interrupted_while_it_waits_goes_on(programs, quick, store):
    store.opened.clear()
    store.silent_about = ".jpg"
    quick["dataset"]["index-dir"] = str(programs.folder)
    program = programs.start(
        store.recipe(quick),
        """
loader = stoker.Loader(recipe)
print("waits", flush=True)
try:
    next(loader)
except KeyboardInterrupt:
    print("interrupted", loader.state_dict()["batches"], flush=True)
sys.stdin.readline()
print(*digests(loader))
""",
    )
    assert program.line() == "waits"
    store.asked.wait()
    program.signal(signal.SIGINT)
    assert program.line() == "interrupted 0"
    store.opened.set()
    ended = program.process.communicate("go on\n", timeout=60)
    assert (program.process.returncode, ended[1]) == (0, "")
    straight = programs.output(quick, "print(*digests(stoker.Loader(recipe)))")
    assert ended[0] == straight


def test_ctrl_c_is_heard_while_another_thread_waits_too(programs, stalled):
    output = programs.output(
        stalled,
        """
loader = stoker.Loader(recipe)
for _ in range(3):
    threading.Thread(target=next, args=(loader,), daemon=True).start()
time.sleep(0.3)
interrupted()
try:
    next(loader)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
""",
    )
    assert output == "interrupted\n"


@pytest.mark.parametrize("asked", ["head", "index"])
def test_an_opening_that_was_interrupted_leaves_nothing_behind(programs, quick, store, asked):
    """Neither the thread that opens nor one that fetches: not even while the store is silent."""
    store.opened.clear()
    store.silent_about = "" if asked == "head" else "chats.jsonl"
    recipe = store.recipe(quick)
    recipe["dataset"]["index-dir"] = str(programs.folder / "index")
    program = programs.start(
        recipe,
        """
before = files()
print("opens", flush=True)
try:
    stoker.Loader(recipe)
except KeyboardInterrupt:
    until(lambda: not ours() and set(files()) == set(before))
    print("ended", os.path.exists("index") and os.listdir("index"), flush=True)
sys.stdin.readline()
print(len(digests(stoker.Loader(recipe))))
""",
    )
    assert program.line() == "opens"
    store.asked.wait()
    program.signal(signal.SIGINT)
    assert program.line() in ("ended False", "ended []")
    store.opened.set()
    assert program.process.communicate("go on\n", timeout=60) == ("6\n", "")


def test_a_close_that_was_interrupted_has_closed(programs, quick, tmp_path):
    """The interruption comes when all is ended: half a second later, if a file does not answer."""
    os.mkfifo(tmp_path / "silent.jpg")
    line = {"messages": [{"role": "user", "content": [{"type": "image", "image": "silent.jpg"}]}]}
    line["messages"].append({"role": "assistant", "content": "Yes."})
    (tmp_path / "chats.jsonl").write_text((json.dumps(line) + "\n") * 8)
    quick["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    output = programs.output(
        quick,
        """
loader = stoker.Loader(recipe)
threading.Thread(target=lambda: list(loader), daemon=True).start()
until(lambda: ours().count("stoker-fetch-io") > 2)
threading.excepthook = lambda it: print(it.exc_type.__name__)
interrupted(0.1)
try:
    loader.close()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
until(lambda: threading.active_count() == 1)
loader.close()
try:
    next(loader)
except stoker.StoppedError as error:
    print(error)
# Who waits for the file is let go.
opened = [os.open("silent.jpg", os.O_RDWR)]
until(lambda: not ours())
""",
    )
    assert sorted(output.splitlines()) == ["StoppedError", "interrupted", "the loader was closed"]


def test_a_trainers_own_handler_runs_while_it_waits(programs, quick, store):
    """One that returns lets it wait on; one that raises ends the wait, with the state at hand."""
    store.silent_about = ".jpg"
    store.opened.clear()
    program = programs.start(
        store.recipe(quick),
        """
heard = []
signal.signal(signal.SIGUSR1, lambda *_: print("usr1", flush=True))

def leave(*_):
    json.dump(loader.state_dict(), open("state.json", "w"))
    sys.exit(3)

signal.signal(signal.SIGTERM, leave)
loader = stoker.Loader(recipe)
print("waits", flush=True)
next(loader)
""",
    )
    assert program.line() == "waits"
    store.asked.wait()
    program.signal(signal.SIGUSR1)
    assert program.line() == "usr1"
    program.signal(signal.SIGTERM)
    ended = program.end()
    assert (ended.code, ended.errors) == (3, "")
    assert json.loads((programs.folder / "state.json").read_text())["batches"] == 0


def test_a_run_that_was_terminated_goes_on_with_a_whole_ledger(programs, quick, folder, tmp_path):
    """SIGTERM ends a process that does not handle it; state and ledger are fit to go on from."""
    lines = (folder / "chats.jsonl").read_text().splitlines()
    for row in (2, 7, 12, 20):
        lines[row] = "no json"
    source = tmp_path / "chats.jsonl"
    source.write_text("\n".join(lines) + "\n")
    quick["dataset"] |= {"source": str(source), "media-root": str(folder)}
    trainer = """
loader = stoker.Loader(recipe)
if os.path.exists("state"):
    loader.load_state_dict(json.load(open("state")))
for batch in loader:
    seen = digest(batch)
    json.dump(loader.state_dict(), open("new", "w"))
    os.replace("new", "state")
    print(seen, flush=True)
    if sys.stdin.readline() != "go on\\n":
        break
"""
    ledgers, orders = [], []
    for name, batches_at_a_time in [("straight", [6]), ("ended", [1, 2, 2, 1])]:
        quick["engine"]["ledger"] = str(tmp_path / name)
        seen = []
        for batches in batches_at_a_time:
            run = programs.start(quick, trainer)
            for number in range(batches):
                if number > 0:
                    run.process.stdin.write("go on\n")
                    run.process.stdin.flush()
                seen.append(run.line())
            run.signal(signal.SIGTERM)
            assert run.end() == (-signal.SIGTERM, "", "")
        (tmp_path / "state").unlink()
        orders.append(seen)
        ledgers.append((tmp_path / name / "rank-0.jsonl").read_text())
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == 6
    assert ledgers[0] == ledgers[1]
    assert len(ledgers[0].splitlines()) == 4


COMMANDS = {
    "run": (".jpg", ["run"]),
    "verify": (".jpg", ["verify"]),
    "index": ("chats.jsonl", ["index"]),
    "sizes": (".jpg", ["index", "--sizes"]),
    "peek": (".jpg", ["peek"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_ends_a_command_as_a_shell_expects(programs, quick, store, name):
    """By code 130, or by the signal itself, which shells show as 130."""
    store.silent_about, arguments = COMMANDS[name]
    store.opened.clear()
    recipe = store.recipe(quick)
    recipe["dataset"]["index-dir"] = str(programs.folder / "index")
    programs.write(recipe)
    command = [sys.executable, "-m", "stoker", *arguments, "recipe.json"]
    program = programs.run(command)
    store.asked.wait()
    if name in ("run", "verify"):  # before that they open, in which they are ended at once
        while "stoker-cpu-0" not in threads(program.process.pid):
            assert program.process.poll() is None
    program.signal(signal.SIGINT)
    ended = program.end()
    assert ended.code in (130, -signal.SIGINT), ended
    assert "Traceback" not in ended.errors
    assert "panicked" not in ended.errors
    if name in ("run", "verify"):
        assert ended.code == 130
        assert ended.output != "", "they say how far they came"


def threads(process: int) -> set[str]:
    names = set()
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            names.add((task / "comm").read_text().strip())
    return names


def test_a_command_in_the_background_ignores_ctrl_c_as_it_was_told(programs, quick, store):
    """A shell starts background jobs with the signal ignored; Ctrl-C is for the one in front."""
    store.opened.clear()
    programs.write(store.recipe(quick))
    script = f"trap '' INT; exec {sys.executable} -m stoker index recipe.json"
    program = programs.run(["sh", "-c", script])
    store.asked.wait()
    program.signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(timeout=0.5)
    store.opened.set()
    ended = program.end()
    assert ended.code == 0
    assert "rows" in ended.output
