"""The `stoker` command as the wheel installs it: the engine's own, and `stoker demo`."""

from __future__ import annotations

import os
import sys

from stoker import _native


def main() -> int:
    """Runs the command that `sys.argv` asks for and gives its exit code back."""
    _fill_standard_streams()
    if sys.argv[1:2] == ["demo"]:
        from stoker.demo import main as demo

        return demo(sys.argv[2:])
    return _native.cli(["stoker", *sys.argv[1:]])


def _fill_standard_streams() -> None:
    """Opens those of the three that are closed: else the next file opened would be written to."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
