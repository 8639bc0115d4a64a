"""Writes the pages of the reference that are made of the code: `help.md` and `api.md`.

    make reference

`help.md` is what each command says of itself. `api.md` is what the stubs and modules say of the
Python interface, in Markdown: signatures, and docstrings with their arguments, results and errors.
Nothing is imported for it. A test holds that both pages are what this program writes.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs/reference"
PACKAGE = ROOT / "python/stoker"

HELP = """\
# Every option of every command

Written by `make reference` of what the commands say of themselves; a test holds it to them. What
the commands are for, and what they print, is told in [the command](command.md).
"""

API = """\
# Python, in full

Written by `make reference` of the docstrings; a test holds it to them. [Python](python.md) is the
same in short, with the shapes of all tensors.
"""

INTERFACE = {
    "stoker": [
        ("_native.pyi", "Loader Trace"),
        ("_batch.pyi", "Batch Tensor"),
        ("_progress.py", "progress"),
        ("report.py", "Report"),
        (
            "errors.py",
            "StokerError RecipeError DatasetError SampleError FetchError BudgetError CursorError "
            "ClusterError MachineError StoppedError BugError Problem BadSample",
        ),
    ],
    "stoker.torch": [("torch.py", "prefetch")],
    "stoker.ranks": [("ranks.py", "gathered compare Ranks RankPace")],
    "stoker.trace": [("trace.py", "merge")],
    "stoker.telemetry": [("telemetry.py", "observe")],
    "stoker.ray": [("ray/loader.py", "RayLoader"), ("ray/data.py", "dataset")],
    "stoker.trainers": [("trainers/data_loader.py", "DataLoader Batches")],
    "stoker.trainers.transformers": [("trainers/transformers.py", "TrainerMixin LoaderState")],
    "stoker.trainers.lightning": [("trainers/lightning.py", "DataModule")],
    "stoker.trainers.torchtitan": [("trainers/torchtitan.py", "DataLoader")],
    "stoker.migrate": [
        ("migrate/energon.py", "from_energon"),
        ("migrate/mosaic.py", "from_mosaic"),
        ("migrate/webdataset.py", "from_webdataset"),
        ("migrate/recipe.py", "to_toml MigrationError"),
    ],
}
"""What is for users: by module, where it is written and what it is called."""

SECTIONS = re.compile(r"^(Args|Raises|Returns|Yields):\n((?:(?:    .*)?\n)*(?:    .*)?)", re.M)


def main() -> None:
    """Writes both pages."""
    (PAGES / "help.md").write_text(help_page())
    (PAGES / "api.md").write_text(api_page())


def help_page() -> str:
    """What `stoker COMMAND --help` prints, of all commands."""
    whole = said("--help")
    listed = re.search(r"^Commands:\n(.*?)\n\n", whole, re.M | re.S)
    commands = re.findall(r"^  (\w[\w-]*) ", listed[1] + "\n", re.M)
    commands = [command for command in commands if command != "help"]
    parts = [HELP, "## stoker\n", block(whole)]
    for command in commands:
        parts += [f"## stoker {command}\n", block(said(command, "--help"))]
    return "\n".join(parts)


def said(*arguments: str) -> str:
    """What the command prints, as wide as a page."""
    command = [sys.executable, "-m", "stoker", *arguments]
    environment = {"COLUMNS": "100", "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
    environment |= {"PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return result.stdout


def block(text: str) -> str:
    """A block that is read and not run."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return "\n".join(["```text", *lines, "```", ""])


def api_page() -> str:
    """The Python interface."""
    parts = [API]
    for module, files in INTERFACE.items():
        parts.append(f"## {module}\n")
        for file, names in files:
            tree = ast.parse((PACKAGE / file).read_text())
            found = {getattr(node, "name", None): node for node in tree.body}
            for name in names.split():
                parts += entry(f"{module}.{name}", found[name])
    return "\n".join(parts)


def entry(name: str, node: ast.AST) -> list[str]:
    """A class or a function, with what is in it."""
    parts = [f"### `{name}`\n"]
    if isinstance(node, ast.FunctionDef):
        return [*parts, signature(name, node), prose(node)]
    makers = [one for one in node.body if getattr(one, "name", "") in ("__new__", "__init__")]
    bases = [ast.unparse(base) for base in node.bases]
    if any(base.endswith("Error") or base == "Exception" for base in bases):
        parts.append(f"Is a `{bases[0]}`.\n")
    elif makers:
        parts.append(signature(name, makers[0]))
    parts.append(prose(node))
    fields = attributes(node)
    if fields:
        parts.append("".join(f"- `{field}`: {flat(text)}\n" for field, text in fields))
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and ast.get_docstring(one) and is_public(one.name):
            short = name.rpartition(".")[2]
            parts.append(f"#### `{short}.{one.name}`\n")
            decorators = [ast.unparse(decorator) for decorator in one.decorator_list]
            if "property" in decorators:
                parts.append(f"`{ast.unparse(one.returns)}`\n" if one.returns else "")
            else:
                parts.append(signature(one.name, one))
            parts.append(prose(one))
    return [part for part in parts if part]


def is_public(name: str) -> bool:
    """Methods that are called by name, and those behind `for` and `next`."""
    return not name.startswith("_") or name in ("__iter__", "__next__", "__len__", "__getitem__")


def signature(name: str, node: ast.FunctionDef) -> str:
    """How it is called, without what Python passes itself."""
    arguments = node.args
    own = arguments.posonlyargs or arguments.args
    if own and own[0].arg in ("self", "cls"):
        own.pop(0)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    returns = "" if node.name in ("__new__", "__init__") else returns
    given = split_arguments(ast.unparse(arguments))
    whole = f"{name}({', '.join(given)}){returns}"
    if len(whole) > 100:
        whole = f"{name}(\n" + "".join(f"    {one},\n" for one in given) + f"){returns}"
    return block(whole)


def split_arguments(text: str) -> list[str]:
    """The arguments of a signature, at the commas that divide them."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    parts = [*parts, text[begin:].strip()] if text else []
    return [re.sub(r"^(\w+: [^=]+)=", r"\1 = ", part) for part in parts]


def attributes(node: ast.ClassDef) -> list[tuple[str, str]]:
    """Fields with the words below them."""
    found: list[tuple[str, str]] = []
    waiting: list[str] = []
    for one in node.body:
        if isinstance(one, ast.AnnAssign):
            waiting.append(one.target.id)
        elif waiting and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            found.append(("`, `".join(waiting), inspect.cleandoc(str(one.value.value))))
            waiting = []
    return [*found, *((name, "") for name in waiting)]


def flat(text: str) -> str:
    """Some lines as one, for a list."""
    return re.sub(r"\s+", " ", text).strip()


def prose(node: ast.AST) -> str:
    """A docstring as Markdown: its sections become lists."""
    text = ast.get_docstring(node) or ""

    def section(found: re.Match[str]) -> str:
        body = textwrap.dedent(found[2]).strip()
        if found[1] in ("Returns", "Yields"):
            return f"**{found[1]}** {flat(body)}\n\n"
        items = re.findall(r"^(\S[^:\n]*): (.*(?:\n(?: .*)?)*)", body, re.M)
        lines = [f"- `{name}`: {flat(words)}" for name, words in items]
        title = found[1].replace("Args", "Arguments")
        return "\n".join([f"**{title}**", "", *lines, "", ""])

    text = SECTIONS.sub(section, text + "\n").strip()
    return text + "\n" if text else ""


if __name__ == "__main__":
    main()
