"""Rung 5: stoker's data workers as Ray actors, as they would be spread over machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stoker.ray import RayLoader

from bench.ladder.rungs import stoker_here

if TYPE_CHECKING:
    import stoker


class Loader(stoker_here.Loader):
    """The same recipe, through Ray's object store."""

    def open(self, document: dict[str, Any]) -> stoker.Loader:
        """The loader of a recipe."""
        return RayLoader(document, rank=0, world_size=1)
