"""Going through a loader pass by pass, as trainers do that count batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Loader(Protocol):
    """A `stoker.Loader` or a `stoker.ray.RayLoader`, or `stoker.torch.prefetch` of one."""

    rank: int
    world_size: int

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def __len__(self) -> int: ...
    def state_dict(self) -> dict[str, Any]:
        """Where to go on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on there."""

    def close(self) -> None:
        """Ends its threads."""


def is_loader(found: Any) -> bool:
    """Whether this is a `Loader`."""
    return all(hasattr(found, name) for name in ("state_dict", "world_size", "report", "__next__"))


def check_loader(loader: Any) -> Loader:
    """Gives a loader back.

    Raises:
        TypeError: It is none.
    """
    if is_loader(loader):
        return loader
    raise TypeError(
        f"a stoker.Loader or stoker.ray.RayLoader is expected, not {type(loader).__qualname__}"
    )


def length(loader: Loader) -> int | None:
    """Batches of this rank in a pass; None where the run has no end, or it is not known yet."""
    try:
        return len(loader)
    except TypeError:
        return None


class Passes:
    """Gives out the batches of a loader; `begin` before each loop over a pass.

    No loop is empty. A trainer that knows how many batches a pass has takes so many, and does not
    ask for one more, so the loader has not seen the end when the next loop begins; nor has one
    that loaded a state of after the last batch. For a loop of one's own that is a pass of no
    batches; these trainers have counted it already.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = check_loader(loader)
        self._begun = False

    def begin(self) -> None:
        """Begins the next pass, or goes on in one that was left."""
        iter(self.loader)
        self._begun = True

    def take(self) -> Any:
        """The next batch, with the `state_dict` that follows it.

        Raises:
            StopIteration: The pass is over.
        """
        try:
            batch = next(self.loader)
        except StopIteration:
            if not self._begun:
                raise
            iter(self.loader)
            batch = next(self.loader)
        self._begun = False
        return batch

    def complete(self, state: Mapping[str, Any]) -> bool:
        """Whether a state is that after the last batch of a pass, as far as is known."""
        return self._had(state) == length(self.loader)

    def place(self, state: Mapping[str, Any]) -> int:
        """How many batches of the pass that a state is in this rank has had."""
        return 0 if state["ended"] or self.complete(state) else self._had(state)

    def _had(self, state: Mapping[str, Any]) -> int:
        return state["batches"] // self.loader.world_size
