"""Every code block of the README and of `docs` runs, in the order of its page.

`sandbox.py` is the machine that they run on. A block of Python, TOML, JSON, YAML or commands that
is not run stands in `ELSEWHERE`, with the reason; blocks without a language are commands if they
begin with one, and else text. Python of one page shares its names. A block whose first line is `#
NAME.toml` (`.py`, `.yaml`) is that file. `# before: LIBRARY` is what people come from: it runs
where the rivals of the bench are set up.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re

import pytest
import stoker
from pages import ROOT, Block, blocks, name_of, pages
from sandbox import RIVALS, Sandbox

ELSEWHERE = {
    ("docs/guides/ray.md", "import ray, stoker.ray"): "needs a cluster: test_ray_guide.py",
    (
        "docs/guides/resume.md",
        "from torch.distributed.device_mesh import init_device_mesh",
    ): "needs four processes: test_rank.py",
    (
        "docs/guides/packing.md",
        "class Trainer(TrainerMixin, transformers.Trainer):",
    ): "is a part of an example: test_examples.py",
    ("docs/guides/waiting.md", "from stoker import ranks"): "needs several ranks: test_ranks.py",
}
CODE = [page for page in pages() if any(block.language != "text" for block in blocks(page))]


@pytest.fixture(scope="module")
def sandbox(folder, tmp_path_factory):
    sandbox = Sandbox(tmp_path_factory.mktemp("reader"), folder)
    yield sandbox
    sandbox.close()


@pytest.fixture
def reader(sandbox, monkeypatch):
    """The sandbox, with this process in it."""
    monkeypatch.chdir(sandbox.folder)
    for name, value in sandbox.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield sandbox
    sandbox.end_servers()


@pytest.mark.parametrize("page", CODE, ids=name_of)
def test_what_a_page_shows_runs(reader, page):
    found = blocks(page)
    names = reader.start(found)
    for block in found:
        try:
            run(reader, block, names)
        except BaseException as error:
            error.add_note(f"in the block at {block}")
            raise


def run(reader: Sandbox, block: Block, names: dict[str, object]) -> None:
    if block.language == "text" or (name_of(block.page), block.first) in ELSEWHERE:
        return
    before = re.match(r"# before: (\w+)", block.first)
    example = re.fullmatch(r"# examples/(\w+)\.py", block.first)
    if before:
        old(reader, block, before[1])
    elif example:
        excerpt(block, (ROOT / f"examples/{example[1]}.py").read_text())
    elif block.language == "python" and block.file:
        compile(block.code, str(block), "exec")
        assert used(block), f"{block}: no command on the page runs {block.file}"
    elif block.language == "python" and block.code.startswith("stoker.Loader(recipe, *,"):
        signature(block)
    elif block.language == "python":
        reader.python(block, names)
    elif block.language == "yaml":
        assert block.file, f"{block}: say in the first line which file it is"
        assert used(block), f"{block}: nothing on the page reads {block.file}"
    else:
        {"toml": reader.toml, "json": reader.json, "sh": reader.sh}[block.language](block)


def old(reader: Sandbox, block: Block, library: str) -> None:
    """What people come from: always Python, and run where that is installed."""
    compile(block.code, str(block), "exec")
    if importlib.util.find_spec(library):
        reader.python(block, {})
    elif RIVALS.exists():
        reader.python_with(block, RIVALS)


def excerpt(block: Block, example: str) -> None:
    """Holds that the parts between dots stand in the example, but for how they are indented."""
    lines = "\n".join(line.strip() for line in example.splitlines())
    _, _, code = block.code.partition("\n")
    for part in code.split("...\n"):
        assert "\n".join(line.strip() for line in part.strip().splitlines()) in lines, part


def used(block: Block) -> bool:
    others = [one for one in blocks(block.page) if one.language in {"sh", "python"}]
    return any(block.file in one.code for one in others if one != block)


def signature(block: Block) -> None:
    """Compares a line `stoker.NAME(…)` with what it is a line of."""
    found = inspect.signature(stoker.Loader)
    parameters = [one.replace(annotation=one.empty) for one in found.parameters.values()]
    plain = found.replace(parameters=parameters, return_annotation=found.empty)
    assert block.code.strip() == f"stoker.Loader{plain}"


def test_what_runs_elsewhere_is_still_there():
    found = {(name_of(page), block.first) for page in pages() for block in blocks(page)}
    assert found >= ELSEWHERE.keys(), "take what is gone out of ELSEWHERE"
    for reason in ELSEWHERE.values():
        test = re.search(r"test_\w+\.py", reason)[0]
        assert (ROOT / "python/tests" / test).exists(), test


def test_a_block_that_is_wrong_is_noticed(reader):
    def fails(language: str, code: str, error: type[BaseException] = AssertionError) -> None:
        block = Block(ROOT / "README.md", 1, language, code)
        with pytest.raises(error):
            run(reader, block, reader.start([]))

    fails("python", "stoker.Loader('recipe.toml', ranks=1)", TypeError)
    fails("python", "stoker.Loader(recipe, *, rank=None)")
    fails("python", "# examples/resume.py\nnot_there()")
    fails("python", "# lonely.py\n1")
    fails("python", "# before: webdataset\n(", SyntaxError)
    fails("toml", "[pack]\nbatch-sise = 8")
    fails("json", '{"messages": []}', stoker.StokerError)
    fails("yaml", "a: 1")
    fails("sh", "stoker run nowhere.toml")
    fails("sh", "stoker rum recipe.toml")
    fails("sh", "make coffee")
    fails("sh", "pip install 'stoker[gpu]'")
    fails("sh", "python -m bench.speed --nothing")
    fails("sh", "cargo run --example nothing")
    fails("sh", "frobnicate")
    assert os.environ["AWS_ENDPOINT_URL"] == reader.store.endpoint
