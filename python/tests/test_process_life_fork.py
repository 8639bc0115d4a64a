"""Children: forked in mid-iteration, spawned, or started by a DataLoader, and what they inherit.

A forked child has its parent's memory and none of its threads. It is to hear so, to end like any
other program, and to leave its parent alone.
"""

from __future__ import annotations

import json

import pytest
import stoker

WAYS_TO_END = {
    "returns": "",
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "drops": "del loader, batch, array; gc.collect(); sys.exit(0)",
    "finalises": "import atexit; atexit.register(gc.collect); sys.exit(0)",
}


@pytest.mark.parametrize("way", WAYS_TO_END)
def test_children_forked_in_mid_iteration_end_clean_and_their_parent_goes_on(programs, quick, way):
    """Again and again, while the engine's threads are at work and hold its locks."""
    quick["plan"]["epochs"] = 4
    quick["engine"] |= {"memory": "64MiB", "prefetch": 4}
    output = programs.output(
        quick,
        f"""
def main():
    straight = digests(stoker.Loader(recipe))
    loader = stoker.Loader(recipe)
    seen = []
    for batch in loader:
        seen.append(digest(batch))
        array = batch.numpy()["input_ids"]
        child = os.fork()
        if child == 0:
            {WAYS_TO_END[way]}
            return
        assert ended(child) == 0
    print(seen == straight, len(seen))

main()
""",
    )
    assert output == "True 24\n"


def test_a_child_forked_while_the_tokenizer_is_built_ends_clean_and_may_open_its_own(
    programs, recipe
):
    output = programs.output(
        recipe,
        """
loader = stoker.Loader(recipe)
assert set(ours()) - {"stoker-fetch", "stoker-fetch-io"}, "it is not built yet"
read, write = os.pipe()
child = os.fork()
if child == 0:
    del loader
    os.write(write, "".join(digests(stoker.Loader(recipe))).encode())
    sys.exit(0)
os.close(write)
theirs = os.fdopen(read).read()
print(ended(child), theirs == "".join(digests(loader)))
""",
    )
    assert output == "0 True\n"


def test_forked_children_write_nothing_into_the_ledger(programs, quick, folder, tmp_path):
    for picture in folder.glob("*.jpg"):
        (tmp_path / picture.name).symlink_to(picture)
    for row in (3, 9, 15):
        (tmp_path / f"{row}-0.jpg").unlink()
        (tmp_path / f"{row}-0.jpg").write_bytes(b"no picture")
    (tmp_path / "chats.jsonl").write_text((folder / "chats.jsonl").read_text())
    quick["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    ledgers = []
    for fork in (False, True):
        quick["engine"]["ledger"] = str(tmp_path / f"ledger-{fork}")
        programs.output(
            quick,
            f"""
loader = stoker.Loader(recipe)
for batch in loader:
    child = os.fork() if {fork} else None
    if child == 0:
        try:
            next(loader)
        except RuntimeError:
            sys.exit(0)
    assert child is None or ended(child) == 0
""",
        )
        ledgers.append((tmp_path / f"ledger-{fork}" / "rank-0.jsonl").read_text())
    assert ledgers[0] == ledgers[1]
    assert {json.loads(line)["row"] for line in ledgers[0].splitlines()} == {3, 9, 15}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_of_any_kind_makes_its_own_loader_and_hears_of_its_parents(
    programs, quick, method
):
    output = programs.output(
        quick,
        f"""
def made_here(recipe, queue):
    queue.put(digests(stoker.Loader(recipe)))

def handed(loader, queue):
    try:
        queue.put(digests(loader))
    except RuntimeError as error:
        queue.put(str(error))

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    loader = stoker.Loader(recipe)
    first = digest(next(loader))
    answers = []
    for target, given in [(made_here, recipe), (handed, loader)]:
        queue = context.Queue()
        process = context.Process(target=target, args=(given, queue))
        process.start()
        answers.append(queue.get())
        process.join()
        assert process.exitcode == 0
    rest = digests(loader)
    print(answers[0] == [first, *rest])
    print("goes on" if answers[1] == rest else answers[1])
""",
    )
    made, handed = output.splitlines()
    assert made == "True"
    if method == "fork":
        assert "made before a fork" in handed
        assert "make the loader in the child" in handed
    else:
        assert handed == "goes on"


def test_a_data_loader_around_a_loader_explains_itself(programs, quick):
    """Each of its workers would give the same batches; one alone, or none, is fine."""
    output = programs.output(
        quick,
        """
from torch.utils.data import DataLoader, IterableDataset, _utils

# Torch waits so many seconds for each worker whose dataset has failed.
_utils.MP_STATUS_CHECK_INTERVAL = 0.1

class Handed(IterableDataset):
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:
            yield batch.torch()

class Made(IterableDataset):
    def __init__(self, **rank):
        self.rank = rank

    def __iter__(self):
        rank = {name: value() for name, value in self.rank.items()}
        for batch in stoker.Loader(recipe, **rank):
            yield batch.torch()

def worker():
    from torch.utils.data import get_worker_info
    return get_worker_info().id

def two():
    return 2

def ids(batches):
    return sorted(batch["input_ids"].tolist() for batch in batches)

if __name__ == "__main__":
    straight = ids(batch.torch() for batch in stoker.Loader(recipe))
    loader = stoker.Loader(recipe)
    for name, data, workers, method in [
        ("list", loader, 0, None),
        ("handed, alone", Handed(loader), 0, None),
        ("handed, forked", Handed(loader), 2, "fork"),
        ("made, two", Made(), 2, "fork"),
        ("made, one", Made(), 1, "fork"),
        ("made, ranks", Made(rank=worker, world_size=two), 2, "fork"),
    ]:
        batches = DataLoader(data, batch_size=None, num_workers=workers,
                             multiprocessing_context=method)
        try:
            print(name, ids(batches) == straight, sep=": ")
        except Exception as error:
            told = type(error).__name__ + " " + str(error).splitlines()[-1]
            print(name, told, sep=": ")
        # Else the next children inherit it, and torch says on stderr that it is not theirs.
        del batches
        gc.collect()
    # A worker that is spawned gets the loader pickled; to start one takes torch some seconds.
    from torch.utils.data._utils import worker as inside
    theirs = pickle.loads(pickle.dumps(loader))
    inside._worker_info = inside.WorkerInfo(id=0, num_workers=2, seed=0, dataset=None)
    try:
        iter(theirs)
    except RuntimeError as error:
        print("handed, spawned", f"RuntimeError {error}", sep=": ")
""",
    )
    told = dict(line.split(": ", 1) for line in output.splitlines())
    assert told["list"].startswith("TypeError")
    assert "not wrapped in a torch" in told["list"]
    for name in ("handed, alone", "made, one", "made, ranks"):
        assert told[name] == "True", name
    assert "made before a fork" in told["handed, forked"]
    spawned = told["handed, spawned"]
    assert spawned.startswith("RuntimeError")
    assert "handed to several worker" in spawned
    assert "one of 2 worker processes" in told["made, two"]


def test_a_loader_says_that_it_is_no_list(quick):
    with stoker.Loader(quick) as loader, pytest.raises(TypeError, match="in order and by no index"):
        loader[0]


def test_programs_that_are_started_meanwhile_inherit_no_file(programs, quick, store):
    """Also where the parent does not close files itself, as Python's Popen does by default."""
    output = programs.output(
        store.recipe(quick),
        """
own = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')\
 if int(n) > 2 and os.path.exists(f'/proc/self/fd/{n}')), sep='\\\\n')"
loader = stoker.Loader(recipe)
next(loader)
theirs = set(files().values())
assert any(it.startswith("socket") for it in theirs) and len(ours()) > 2
child = subprocess.run([sys.executable, "-c", own], close_fds=False, stdout=subprocess.PIPE)
leaked = set(child.stdout.decode().split()) & theirs
print(sorted(leaked), len(digests(loader)))
""",
    )
    assert output == "[] 5\n"


def test_a_server_that_a_child_inherits_does_not_keep_it_from_ending(programs, quick):
    output = programs.output(
        quick,
        """
from stoker._native import S3Server
server = S3Server()
child = os.fork()
if child == 0:
    try:
        server.stats()
    except RuntimeError as error:
        print(error, flush=True)
    server.close()
    del server
    sys.exit(0)
print(ended(child), server.stats()[0])
""",
    )
    assert output == "the server runs in the process that started it\n0 0\n"
