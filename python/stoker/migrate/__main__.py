"""The translations as a command: a recipe on stdout, and all else on stderr."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from stoker.migrate import MigrationError, from_energon, from_mosaic, from_webdataset, to_toml
from stoker.migrate import __doc__ as about


def main(argv: list[str]) -> int:
    """Prints a recipe; gives 0, or 1 where something has no translation."""
    arguments = parse(argv)
    try:
        with warnings.catch_warnings(record=True, action="always") as noted:
            recipe = translate(arguments)
    except (MigrationError, ModuleNotFoundError, OSError) as error:
        print(f"stoker.migrate: {error}", file=sys.stderr)
        return 1
    for warning in noted:
        print(f"note: {warning.message}", file=sys.stderr)
    if arguments.model:
        recipe = {"model": arguments.model} | recipe
    else:
        print("note: add the model's folder: model = …", file=sys.stderr)
    print(to_toml(recipe), end="")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m stoker.migrate",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="loader", required=True, metavar="LOADER")
    energon = commands.add_parser(
        "energon", help="a metadataset.yaml, a prepared dataset or a JSONL"
    )
    energon.add_argument("source", metavar="PATH")
    energon.add_argument("--split", default="train", help="which part (train)")
    mosaic = commands.add_parser(
        "mosaic", help="a YAML or JSON file with `streams`, or the folder of an MDS dataset"
    )
    mosaic.add_argument("source", metavar="PATH")
    webdataset = commands.add_parser("webdataset", help="URLs of shards, with braces")
    webdataset.add_argument("source", metavar="URL", nargs="+")
    for command in (energon, mosaic, webdataset):
        command.add_argument("--model", help="folder of the model, for the recipe")
    return parser.parse_args(argv)


def translate(arguments: argparse.Namespace) -> dict[str, Any]:
    """The recipe."""
    if arguments.loader == "energon":
        return from_energon(arguments.source, split=arguments.split)
    if arguments.loader == "webdataset":
        return from_webdataset(arguments.source)
    if not arguments.source.endswith((".yaml", ".yml", ".json")):
        return from_mosaic({"remote": arguments.source})
    return from_mosaic(**mosaic_arguments(Path(arguments.source)))


def mosaic_arguments(path: Path) -> dict[str, Any]:
    """The arguments of a `StreamingDataset` in a file, alone or under `dataset`."""
    if path.suffix == ".json":
        document = json.loads(path.read_text())
    else:
        try:
            import yaml
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("this file is YAML: pip install pyyaml") from error
        document = yaml.safe_load(path.read_text())
    document = document.get("dataset", document)
    known = ("batch_size", "shuffle", "shuffle_seed", "epoch_size")
    arguments = {key: document[key] for key in known if key in document}
    return arguments | {"streams": document.get("streams", document)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
