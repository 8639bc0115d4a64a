"""What benches of one command have alike: its options, and what becomes of the figures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.demo.results import machine

from bench.page import PageError, write_between

if TYPE_CHECKING:
    from collections.abc import Mapping


class Command:
    """One bench: `python -m bench.NAME`.

    Args:
        name: Of the bench: of its module, its file of results, and its markers in a page.
        docs: Whether its figures stand in a page.
    """

    def __init__(self, name: str, *, docs: bool = True) -> None:
        self.name = name
        self._parser = argparse.ArgumentParser(prog=f"python -m bench.{name}")
        self.add = self._parser.add_argument
        self.add("--model", type=Path, default=Path(".setup/models/qwen3-vl"))
        self.add("--out", type=Path, default=Path("target"), help="folder for the results")
        if docs:
            self.add("--docs", type=Path, help="page that the figures go into")

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Reads the options, and makes the folder for the results; ends the program if it can't."""
        arguments = self._parser.parse_args(argv)
        if not arguments.model.is_dir():
            self._parser.error(
                f"there is no model folder at {arguments.model}: run make setup, or give one"
            )
        arguments.out.mkdir(parents=True, exist_ok=True)
        return arguments

    def keep(self, arguments: argparse.Namespace, found: Mapping[str, Any], figures: str) -> int:
        """Writes all that was found to a file, and prints the figures; into a page too if asked.

        Returns:
            The exit code: 0, or 1 if the page has no place for them.
        """
        whole = {"machine": machine(), **found}
        path = arguments.out / f"{self.name}.json"
        path.write_text(json.dumps(whole, indent=1) + "\n")
        print(figures)
        page = getattr(arguments, "docs", None)
        if page:
            try:
                write_between(page, self.name, figures)
            except PageError as error:
                print(f"{self.name}: {error}", file=sys.stderr)
                return 1
        return 0
