"""A bar that says how far a loader is, how fast, and how long its trainer waits."""

from __future__ import annotations

import time
from collections import deque

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from stoker import Batch, Loader
    from stoker.ray import RayLoader

EVERY = 0.5
"""Seconds between two looks at the report."""

RECENT = 10.0
"""Seconds that rates are taken over, so that the numbers can be read; of slow steps two looks."""


def progress(loader: Loader | RayLoader, **options: Any) -> Iterator[Batch]:
    """Gives the batches of a loader, and shows a bar of tqdm in a terminal or a notebook.

    It counts batches of this rank, from where the loader is: after a state was loaded, from there.
    Beside it stand samples and tokens a second, of the last ten seconds, and the share of the time
    that the trainer waited, of the latest 1024 batches. Where the run is endless or its length not
    known it has no end. It is shown by rank 0 alone.

    Args:
        loader: A `stoker.Loader` or a `stoker.ray.RayLoader`.
        options: tqdm's own, such as `desc`, `leave` or `disable=None` (only on a terminal), in
            place of those that follow from the loader.

    Raises:
        ImportError: There is no tqdm.
        TypeError: `loader` is something else.
    """
    if not all(hasattr(loader, name) for name in ("report", "left", "state_dict", "rank")):
        raise TypeError(
            "stoker.progress shows a stoker.Loader or stoker.ray.RayLoader, not "
            f"{type(loader).__qualname__}"
        )
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "stoker.progress draws with tqdm, which is not installed: pip install tqdm, or iterate "
            "over the loader itself"
        ) from None
    return _shown(loader, tqdm, options)


def _shown(loader: Loader | RayLoader, tqdm: Any, options: dict[str, Any]) -> Iterator[Batch]:
    batches = iter(loader)  # where it begins anew after its end
    done, total = _place(loader)
    own = {"initial": done, "total": total, "unit": "batch", "disable": loader.rank != 0}
    looks: deque[tuple[float, int, int]] = deque()
    with tqdm(**own | options) as bar:
        for batch in batches:
            yield batch
            if not bar.disable:
                _tell(bar, loader, looks)
                bar.update()


def _place(loader: Loader | RayLoader) -> tuple[int, int | None]:
    """Batches of this rank before the next one, and in all."""
    try:
        total, left = len(loader), loader.left()
    except TypeError:
        return loader.state_dict()["batches"] // loader.world_size, None
    return max(0, total - left), total


def _tell(bar: Any, loader: Loader | RayLoader, looks: deque[tuple[float, int, int]]) -> None:
    now = time.monotonic()
    if looks and now - looks[-1][0] < EVERY:
        return
    report = loader.report()
    looks.append((now, report.samples, report.tokens))
    while len(looks) > 2 and looks[1][0] <= now - RECENT:
        looks.popleft()
    told = {}
    begun, samples, tokens = looks[0]
    if now > begun:
        told["samples/s"] = f"{(report.samples - samples) / (now - begun):.1f}"
        told["tokens/s"] = f"{(report.tokens - tokens) / (now - begun):.0f}"
    if report.wait.window_ratio is not None:
        told["wait"] = f"{report.wait.window_ratio:.0%}"
    bar.set_postfix(told, refresh=False)
