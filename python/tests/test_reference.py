"""The pages of the reference say what the code says."""

from __future__ import annotations

import importlib.util
import inspect
import re

import pytest
import stoker
import stoker.migrate
import stoker.trainers
from pages import ROOT, blocks

PAGES = ROOT / "docs/reference"
FAMILIES = ROOT / "crates/stoker-engine/src/vision/family.rs"


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts/reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["help", "api"])
def test_what_is_made_of_the_code_is_up_to_date(reference, name):
    wanted = getattr(reference, f"{name}_page")()
    assert (PAGES / f"{name}.md").read_text() == wanted, "run: make reference"


def test_docstrings_become_markdown(reference):
    code = '''
class Thing(Base):
    """A thing.

    Args:
        first: Of one
            line and another.
        second: Of one.

    Raises:
        ValueError: It is none.
    """

    size: int
    """How large
    it is."""

    def __init__(self, first: dict[str, int], *, second: int = 3) -> None: ...

    def go(self, /, far: bool = False) -> int:
        """Goes.

        Returns:
            How far.
        """
'''
    node = reference.ast.parse(code).body[0]
    assert "\n".join(reference.entry("a.Thing", node)).splitlines() == [
        "### `a.Thing`",
        "",
        "```text",
        "a.Thing(first: dict[str, int], *, second: int = 3)",
        "```",
        "",
        "A thing.",
        "",
        "**Arguments**",
        "",
        "- `first`: Of one line and another.",
        "- `second`: Of one.",
        "",
        "**Raises**",
        "",
        "- `ValueError`: It is none.",
        "",
        "- `size`: How large it is.",
        "",
        "#### `Thing.go`",
        "",
        "```text",
        "go(far: bool = False) -> int",
        "```",
        "",
        "Goes.",
        "",
        "**Returns** How far.",
    ]


def test_the_interface_has_all_that_is_public(reference):
    listed = {
        f"{module}.{name}"
        for module, files in reference.INTERFACE.items()
        for _, names in files
        for name in names.split()
    }
    for module in (stoker, stoker.trainers, stoker.migrate):
        public = {f"{module.__name__}.{name}" for name in module.__all__}
        assert public - {"stoker.__version__"} <= listed, "name it in scripts/reference.py"


def test_the_page_about_python_names_all_that_a_loader_and_a_batch_have():
    text = (PAGES / "python.md").read_text()
    mapping = {"get", "items", "keys", "values"}
    for thing in (stoker.Loader, stoker.Batch):
        for name in vars(thing):
            if not name.startswith("_") and name not in mapping:
                assert re.search(rf"\b{name}\b", text), f"{thing.__name__}.{name}"
    for name in stoker.__all__:
        if name not in {"Problem", "BadSample", "__version__"}:
            assert name in text, name


def test_the_page_about_the_command_has_each_command_and_option():
    text = (PAGES / "command.md").read_text()
    pages = {block.code.partition("\n")[0]: block.code for block in blocks(PAGES / "help.md")}
    whole, *_ = pages.values()
    commands = re.search(r"^Commands:\n(.*?)\n\n", whole, re.M | re.S)[1]
    for command in re.findall(r"^  (\w+) ", commands, re.M):
        assert command == "help" or f"`stoker {command}" in text, command


def numbers() -> dict[str, tuple[int, int, int]]:
    """Patch size, fewest and most pixels of each family, as the engine has them."""
    code = FAMILIES.read_text()
    models = {}
    for name, body in re.findall(r"^const (\w+): Model = Model \{(.*?)^\};", code, re.M | re.S):
        found = [
            re.search(rf"\b{key}: ([\d_* ]+)", body)[1].replace("_", "")
            for key in ("patch_size", "min_pixels", "max_pixels")
        ]
        products = [[int(factor) for factor in one.split("*")] for one in found]
        models[name] = tuple(one[0] * (one[1] if len(one) > 1 else 1) for one in products)
    families = re.findall(r'Family \{ name: "([^"]+)", model: (\w+) \}', code)
    return {name: models[model] for name, model in families}


def test_the_page_about_models_has_the_families_of_the_code():
    text = (ROOT / "docs/guides/models.md").read_text()
    rows = re.findall(r"^\| `([\w.-]+)` \| [^|]+ \| (\d+) \| ([\d,]+) to ([\d,]+) \|$", text, re.M)
    shown = {name: tuple(int(one.replace(",", "")) for one in figures) for name, *figures in rows}
    assert len(shown) >= 4
    assert shown == numbers()


def test_the_engine_knows_the_families_that_the_page_names(recipe):
    recipe["vision"]["family"] = "nothing"
    recipe["vision"]["config"] = None
    recipe["model"] = None
    with pytest.raises(stoker.RecipeError) as error:
        stoker.Loader(recipe)
    hints = " ".join(problem.hint or "" for problem in error.value.problems)
    assert set(numbers()) <= set(re.findall(r"[\w.-]+\w", hints))


def test_help_is_the_help_of_what_is_documented():
    """So that a page made of stubs is that of the compiled classes."""
    assert inspect.getdoc(stoker.Loader).partition("\n")[0] in (PAGES / "api.md").read_text()
