"""Ends: of programs in whatever state a loader is, and of loaders in programs that go on.

Nothing is left: no thread, descriptor, file, shared memory or child, and no word on stderr.
"""

from __future__ import annotations

import os
import pickle

import pytest
import stoker

WAYS = {
    "falls off": ("", 0, ""),
    "exits": ("sys.exit(0)", 0, ""),
    "raises": ("raise ValueError('the trainer failed')", 1, "ValueError: the trainer failed"),
    "leaves at once": ("os._exit(0)", 0, ""),
    "in a thread": ("threading.Thread(target=lambda: list(loader)).start(); sys.exit(0)", 0, ""),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_program_ends_in_mid_iteration_and_leaves_nothing(programs, quick, way, tmp_path):
    """With a live iterator, batches, arrays, a thread that waits, and a slow interpreter."""
    end, code, told = WAYS[way]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = programs.start(
        quick | {"plan": {"epochs": None, "lanes": 2}} if way != "in a thread" else quick,
        f"""
class Slow:
    def __del__(self):
        time.sleep(0.4)

loader, slow = stoker.Loader(recipe), Slow()
other = stoker.Loader(recipe)
if {way != "in a thread"}:
    threading.Thread(target=lambda: list(other), daemon=True).start()
iterator = iter(loader)
batch = next(iterator)
arrays = [next(iterator).numpy() for _ in range(2)]
local = threading.local()
local.tensor = next(iterator)["labels"]
# Others may be busy there, so what is looked at is what this process has of it.
assert "/dev/shm" not in open("/proc/self/maps").read() + str(files())
{end}
""",
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    ended = program.end()
    assert ended.code == code, ended
    assert ended.errors.strip().splitlines()[-1:] == [told][: len(told)]
    assert told or ended.errors == ""
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(program.process.pid, 0)


def test_a_daemon_thread_that_waits_does_not_crash_the_end(programs, stalled):
    """It comes back from waiting when there is no interpreter any more."""
    output = programs.output(
        stalled,
        """
class Slow:
    def __del__(self):
        time.sleep(0.5)

slow = Slow()
loader = stoker.Loader(recipe)
for _ in range(4):
    threading.Thread(target=next, args=(loader,), daemon=True).start()
threading.Thread(target=stoker.Loader, args=(recipe,), daemon=True).start()
time.sleep(0.3)
print("ended")
""",
    )
    assert output == "ended\n"


def test_arrays_outlive_the_loader_and_the_interpreter(programs, quick):
    output = programs.output(
        quick,
        """
import atexit
import numpy

loader = stoker.Loader(recipe)
batch = next(loader)
ids = batch.numpy()["input_ids"]
pickled = pickle.loads(pickle.dumps(batch)).numpy()["input_ids"]
before = ids.tolist()
del batch
loader.close()
del loader
gc.collect()
until(lambda: not ours())
atexit.register(lambda: print(ids.tolist() == before == pickled.tolist(), flush=True))
for array in (ids, pickled):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))
""",
    )
    assert output == "True\n"


def test_tensors_of_torch_outlive_the_loader_and_the_interpreter(programs, quick):
    output = programs.output(
        quick,
        """
import torch

loader = stoker.Loader(recipe)
held = [batch.torch() for batch in loader]
sums = [int(one["input_ids"].sum()) for one in held]
loader.close()
del loader
gc.collect()
print(sums == [int(one["input_ids"].sum()) for one in held])
ctypes.pythonapi.Py_IncRef(ctypes.py_object(held[0]["pixel_values"]))
again = stoker.Loader(recipe)
next(again)
""",
    )
    assert output == "True\n"


def test_loaders_come_and_go_and_leave_nothing(programs, quick, store):
    """Closed, dropped, dropped in a cycle or another thread, or never opened."""
    output = programs.output(
        store.recipe(quick),
        """
class Holder:
    pass

def closed():
    with stoker.Loader(recipe) as loader:
        next(loader)

def dropped():
    next(stoker.Loader(recipe))

def in_a_cycle():
    holder = Holder()
    holder.loader, holder.self = stoker.Loader(recipe), holder
    next(holder.loader)
    del holder
    gc.collect()

def in_another_thread():
    loader = stoker.Loader(recipe)
    next(loader)
    held = [loader]
    del loader
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()

def never_used():
    stoker.Loader(recipe)

def never_opened():
    source = recipe["dataset"]["source"].replace("chats", "none")
    try:
        stoker.Loader(recipe, overrides={"dataset.source": source, "fetch.attempts": 1})
    except stoker.StokerError:
        return
    raise AssertionError

def of_no_recipe():
    try:
        stoker.Loader(recipe, overrides={"vision.min-pixels": 0, "pack.layuot": "x"})
    except stoker.RecipeError:
        return
    raise AssertionError

ways = [closed, dropped, in_a_cycle, in_another_thread, never_used, never_opened, of_no_recipe]
for way in ways:
    way()
until(lambda: not ours())
before = files()
for _ in range(4):
    for way in ways:
        way()
        until(lambda: not ours())
        assert len(files()) == len(before), (way, files())
loader = stoker.Loader(recipe)
next(loader)
loader.close()
until(lambda: not ours())
held = set(files().values()) - set(before.values())
print({it.rsplit(".", 1)[-1] for it in held}, multiprocessing.active_children())
""",
    )
    assert output == "{'stoker-index'} []\n", "a closed loader still has its index, to answer"


def test_closing_twice_at_once_and_while_others_wait(programs, stalled):
    output = programs.output(
        stalled,
        """
loader = stoker.Loader(recipe)
ends = []

def wait():
    try:
        next(loader)
    except stoker.StoppedError as error:
        ends.append(str(error))

threads = [threading.Thread(target=wait) for _ in range(3)]
threads += [threading.Thread(target=loader.close) for _ in range(4)]
for thread in threads[:3]:
    thread.start()
until(lambda: "stoker-fetch" in ours())
for thread in threads[3:]:
    thread.start()
loader.close()
for thread in threads:
    thread.join()
until(lambda: not ours())
print(set(ends), len(ends))
""",
    )
    assert output == "{'the loader was closed'} 3\n"


def test_use_after_close_is_told_and_what_is_known_stays_known(quick):
    loader = stoker.Loader(quick)
    ids = next(loader)["input_ids"]
    state = loader.state_dict()
    loader.close()
    loader.close()
    uses = [lambda: next(loader), lambda: list(loader), lambda: loader.load_state_dict(state)]
    for use in uses:
        with pytest.raises(stoker.StoppedError, match=r"^the loader was closed$"):
            use()
    with loader:
        pass
    assert loader.state_dict() == state
    assert (len(loader), loader.rank, loader.report().samples) == (6, 0, 4)
    assert ids.shape[0] == 4
    again = pickle.loads(pickle.dumps(loader))
    assert again.state_dict() == state
    assert len(list(again)) == 5


def test_two_loaders_do_not_notice_each_other(programs, quick):
    output = programs.output(
        quick,
        """
alone = digests(stoker.Loader(recipe))
one, two = stoker.Loader(recipe), stoker.Loader(recipe)
seen = [], []
for batches in range(3):
    for loader, into in zip((one, two), seen):
        into.append(digest(next(loader)))
one.close()
seen[1].extend(digests(two))
print(seen[0] == alone[:3], seen[1] == alone, len(ours()) > 0)
two.close()
until(lambda: not ours())
""",
    )
    assert output == "True True True\n"
