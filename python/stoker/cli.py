"""The `stoker` command as the wheel installs it: the engine's own, and `stoker demo`."""

from __future__ import annotations

import sys

from stoker import _native


def main() -> int:
    """Runs the command that `sys.argv` asks for and gives its exit code back."""
    if sys.argv[1:2] == ["demo"]:
        from stoker.demo import main as demo

        return demo(sys.argv[2:])
    return _native.cli(["stoker", *sys.argv[1:]])
