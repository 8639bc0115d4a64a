"""Loaders and trainers that are wrong in ways that must be noticed: the negative controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import stoker

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = {
    "cursor-ahead": "a loader that goes on one batch too late, so that one is never seen",
    "cursor-behind": "a loader that goes on one batch too early, so that one is seen twice",
    "batch-dropped": "a loader that counts a batch as delivered that it did not deliver",
    "batch-twice": "a loader that delivers one batch twice",
    "ranks-swapped": "ranks that take one another's batches",
    "held-forgotten": "a trainer that saves what was fetched rather than what it trained on",
    "seed-forgotten": "a loader that goes on in the order of another seed",
    "byte-changed": "a loader whose batches are not the same bytes after resuming",
}


class Broken:
    """A loader in between that spoils something."""

    def __init__(self, recipe: dict[str, Any], **arguments: Any) -> None:
        self.recipe, self.arguments = recipe, arguments
        self.loader = stoker.Loader(recipe, **arguments)
        self.taken = 0

    def __iter__(self) -> Broken:
        iter(self.loader)
        return self

    def __next__(self) -> Any:
        self.taken += 1
        return next(self.loader)

    def state_dict(self, **arguments: Any) -> dict[str, Any]:
        return self.loader.state_dict(**arguments)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loader.load_state_dict(state)

    def close(self) -> None:
        self.loader.close()


class CursorAhead(Broken):
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({**state, "batches": state["batches"] + 1})


class CursorBehind(Broken):
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({**state, "batches": max(0, state["batches"] - 1)})


class BatchDropped(Broken):
    def __next__(self) -> Any:
        if self.taken == 3:
            super().__next__()
        return super().__next__()


class BatchTwice(Broken):
    last = None

    def __next__(self) -> Any:
        if self.taken == 3 and self.last is not None:
            self.taken += 1
            return self.last
        self.last = super().__next__()
        return self.last


class SeedForgotten(Broken):
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loader.close()
        seed = self.recipe["plan"]["seed"] ^ 1
        overrides = self.arguments["overrides"] | {"plan.seed": seed}
        self.loader = stoker.Loader(self.recipe, **(self.arguments | {"overrides": overrides}))
        self.loader.load_state_dict({**state, "plan": state["plan"] | {"plan.seed": str(seed)}})

    def state_dict(self, **arguments: Any) -> dict[str, Any]:
        state = super().state_dict(**arguments)
        return state | {"plan": state["plan"] | {"plan.seed": str(self.recipe["plan"]["seed"])}}


class ByteChanged(Broken):
    resumed = False

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.resumed = True

    def __next__(self) -> Any:
        batch = super().__next__()
        if self.resumed:
            batch.numpy()["attention_mask"][0, 0] = 0
        return batch


LOADERS = {
    "cursor-ahead": CursorAhead,
    "cursor-behind": CursorBehind,
    "batch-dropped": BatchDropped,
    "batch-twice": BatchTwice,
    "seed-forgotten": SeedForgotten,
    "byte-changed": ByteChanged,
}


def loader(
    kind: str | None, recipe: dict[str, Any], rank: int, world: int, overrides: dict[str, Any]
) -> Any:
    """A rank's loader, broken if that is asked for."""
    if kind == "ranks-swapped":
        rank = world - 1 - rank
    return LOADERS.get(kind, stoker.Loader)(
        recipe, rank=rank, world_size=world, overrides=overrides
    )
