"""Small limits: of files, threads, memory and shared memory; and places that are not there.

stoker works within them, or says which limit it was and what to do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import stoker
from process_life import digest

FEW = """
def allow(files):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
"""


def straight(recipe: dict) -> str:
    """What `ALL` prints."""
    return "".join(f"{digest(batch)}\n" for batch in stoker.Loader(recipe))


ALL = 'print(*digests(stoker.Loader(recipe)), sep="\\n")'


@pytest.mark.parametrize("files", [64, 256])
@pytest.mark.parametrize("place", ["store", "disk"])
def test_few_files_are_enough(programs, quick, store, files, place):
    """Of a store as of a disk: with fewer requests at a time, and no attempt that fails."""
    recipe = store.recipe(quick) if place == "store" else quick
    recipe["fetch"] = recipe.get("fetch", {}) | {"concurrency": 512, "attempts": 1}
    recipe["engine"]["prefetch"] = 6
    recipe["pack"]["batch-size"] = 24
    recipe["plan"]["epochs"] = 8
    output = programs.output(recipe, f"{FEW}\nallow({files})\n{ALL}")
    assert output == straight(recipe)


def test_many_shards_need_no_more_files_than_there_may_be(programs, quick, folder, tmp_path):
    """Every row comes: one whose index could not be opened would count as a bad sample."""
    lines = (folder / "chats.jsonl").read_text().splitlines()
    for number in range(150):
        (tmp_path / f"{number:03}.jsonl").write_text(lines[number % 24] + "\n")
    quick["dataset"] |= {"source": str(tmp_path / "*.jsonl"), "media-root": str(folder)}
    quick["pack"]["batch-size"] = 15
    output = programs.output(
        quick,
        f"""
{FEW}
allow(64)
loader = stoker.Loader(recipe)
print(sum(len(batch.samples) for batch in loader), loader.report().flaws)
""",
    )
    assert output == "150 []\n"


NO_FILES = """
def take_all():
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return taken
"""


def test_where_no_file_is_left_the_limit_is_named(programs, quick, store):
    """Whichever it is that can't be opened: a file of the model's, an index, a connection."""
    recipe = store.recipe(quick)
    recipe["fetch"]["attempts"] = 2
    output = programs.output(
        recipe,
        f"""
import encodings.idna, numpy
{FEW}
{NO_FILES}
allow(200)
stoker.Loader(recipe).close()
taken = take_all()
for left in range(12):
    for one in taken[:left]:
        os.close(one)
    try:
        index = {{}} if left % 2 else {{"dataset.index-dir": f"index-{{left}}"}}
        with stoker.Loader(recipe, overrides=index) as loader:
            told = len(digests(loader))
    except stoker.StokerError as error:
        told = f"{{type(error).__name__}} {{error}}".replace("\\n", " ")
    print(told)
    taken = taken[left:] + take_all()
""",
    )
    lines = output.splitlines()
    assert len(lines) == 12
    assert lines[-1] == "6"
    told = [line for line in lines if line != "6"]
    for line in told:
        assert "this process may have 200 files and connections open: raise that (ulimit" in line
    assert {line.split()[0] for line in told} >= {"RecipeError", "MachineError", "FetchError"}


NO_THREADS = """
def allow_threads(more):
    # The system does not limit root, nor who may raise limits or administrate.
    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
    class Data(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        os.setresuid(NOBODY, 0, 0)
        header, data = Header(0x20080522, 0), (Data * 2)()
        assert libc.capget(ctypes.byref(header), data) == 0
        for capability in (21, 24):
            data[0].effective &= ~(1 << capability)
        assert libc.capset(ctypes.byref(header), data) == 0, ctypes.get_errno()
    else:
        more += threads_of(os.getuid())
    resource.setrlimit(resource.RLIMIT_NPROC, (1 + more, 1 + more))

def threads_of(user):
    found = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{process}").st_uid == user:
                found += len(os.listdir(f"/proc/{process}/task"))
        except OSError:
            pass
    return found - 1
"""


def test_where_no_thread_is_left_the_limit_is_named(programs, quick):
    """Whichever of its threads it is that can't be started."""
    quick["engine"]["workers"] = 8
    output = programs.output(
        quick,
        f"""
import numpy  # has threads of its own
NOBODY = 61_234
{NO_THREADS}
stoker.Loader(recipe).close()
for threads in range(12):
    child = os.fork()
    if child == 0:
        allow_threads(threads)
        try:
            with stoker.Loader(recipe) as loader:
                print(threads, len(digests(loader)))
        except stoker.MachineError as error:
            print(threads, error.what, "|", error)
        except stoker.StokerError as error:
            print(threads, type(error).__name__, error)
        sys.stdout.flush()
        os._exit(0)
    assert ended(child) == 0, threads
child = os.fork()
if child == 0:
    allow_threads(60)
    print(60, len(digests(stoker.Loader(recipe))), flush=True)
    os._exit(0)
assert ended(child) == 0
""",
    )
    *few, enough = [line.split(" ", 1)[1] for line in output.splitlines()]
    assert enough == "6"
    assert len(few) == 12
    told = [line for line in few if line != "6"]
    assert len(told) > 6
    for line in told:
        what, _, error = line.partition(" | ")
        assert re.fullmatch(r"the thread stoker-\S+ can't be started", what), line
        assert "raise the limit on threads, of the user (ulimit -u) or of the container" in error
    names = {line.split()[2].rstrip("0123456789") for line in told}
    assert {"stoker-open", "stoker-cpu-"} < names


def test_shared_memory_and_locked_memory_are_not_needed(programs, quick):
    """`/dev/shm` of 1 MiB, as containers have it, full; no locked memory, no huge pages."""
    inner = programs.write(
        quick,
        f"""
assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 1 << 20
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
PR_SET_THP_DISABLE = 41
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
with open("/dev/shm/full", "wb") as full:
    try:
        full.write(bytes(2 << 20))
    except OSError:
        pass
{ALL}
""",
    )
    mount = 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"'
    spaces = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    program = programs.run(["unshare", *spaces, "sh", "-c", mount, "sh", *inner])
    assert program.end() == (0, straight(quick), "")


def test_no_place_for_temporary_files_and_no_home_are_needed(programs, quick, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    for temporary in ("/nonexistent", "/proc"):
        output = programs.output(quick, ALL, env=environment | {"TMPDIR": temporary})
        assert output == straight(quick)
    # Sizes of samples are kept beside the index, or else in a file without a name.
    media = str(Path(quick["dataset"]["source"]).parent)
    source = tmp_path / "read-only" / "chats.jsonl"
    source.parent.mkdir()
    source.write_text("\n".join(_absolute(quick)) + "\n")
    quick["dataset"] |= {"source": str(source), "media-root": media}
    quick["pack"] = {"max-tokens": 4096}
    want = straight(quick)
    assert programs.output(quick, ALL, env=environment | {"TMPDIR": "/nonexistent"}) == want


def _absolute(recipe: dict) -> list[str]:
    """The lines of its source, good in any folder."""
    source, lines = Path(recipe["dataset"]["source"]), []
    for line in source.read_text().splitlines():
        sample = json.loads(line)
        for part in sample["messages"][0]["content"]:
            if part["type"] == "image":
                part["image"] = str(source.parent / part["image"])
        lines.append(json.dumps(sample))
    return lines


def test_the_current_folder_may_be_gone(programs, quick, tmp_path):
    (tmp_path / "gone").mkdir()
    output = programs.output(
        quick,
        """
os.chdir("gone")
os.rmdir("../gone")
print(len(digests(stoker.Loader(recipe))))
for relative in ("recipe.toml", recipe | {"dataset": {"source": "chats.jsonl"}}):
    try:
        stoker.Loader(relative)
    except (OSError, stoker.RecipeError) as error:
        print(error)
""",
    )
    works, path, source = output.split("\n", 2)
    assert works == "6"
    assert re.search(r"recipe\.toml is looked for in the current folder, and there is none", path)
    assert re.search(r"chats\.jsonl` has no absolute path", source)


def closed_streams():
    for descriptor in range(3):
        os.close(descriptor)


def test_closed_standard_streams_do_no_harm(programs, quick, tmp_path):
    command = programs.write(
        quick, 'open("told", "w").write("\\n".join(digests(stoker.Loader(recipe))))'
    )
    assert programs.run(command, preexec_fn=closed_streams).end().code == 0
    assert (tmp_path / "told").read_text() + "\n" == straight(quick)


def test_what_a_command_says_goes_into_no_file_of_its_own(programs, quick, tmp_path):
    """Where stdout is closed, the next file opened has its number: the index that is written."""
    (tmp_path / "chats.jsonl").write_text("\n".join(_absolute(quick)) + "\n")
    media = str(Path(quick["dataset"]["source"]).parent)
    quick["dataset"] |= {"source": str(tmp_path / "chats.jsonl"), "media-root": media}
    quick["dataset"]["index-dir"] = str(tmp_path / "index")
    programs.write(quick)
    for arguments in (["index", "--sizes"], ["run"]):
        command = [sys.executable, "-m", "stoker", *arguments, "recipe.json"]
        assert programs.run(command, preexec_fn=closed_streams).end().code == 0
    written = [path.read_bytes() for path in (tmp_path / "index").iterdir()]
    assert len(written) == 2
    assert not any(b"rows" in content or b"samples" in content for content in written)
    again = subprocess.run(
        [*map(str, command[:-1]), "recipe.json"], capture_output=True, cwd=tmp_path, timeout=60
    )
    assert again.returncode == 0
    assert b"samples" in again.stdout
