"""The metrics of a loader for OpenTelemetry, through the MeterProvider that the program has.

Needs `opentelemetry-api` (`pip install stoker[otel]`). Who exports, where to and how often is the
provider's matter; without an SDK nothing is measured, and nothing is asked.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import Observation, get_meter_provider

from stoker._native import __version__, _families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.metrics import CallbackOptions, MeterProvider

    from stoker import Loader
    from stoker.ray import RayLoader

FRESH = 0.2
"""Seconds for which a report serves: all instruments of one collection are told of the same."""

UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}
"""Units as OpenTelemetry writes them, by the ends of names."""


def observe(
    loader: Loader | RayLoader,
    *,
    meter_provider: MeterProvider | None = None,
    attributes: Mapping[str, str] | None = None,
) -> None:
    """Has a loader's metrics read whenever the provider collects, for as long as the loader lives.

    The instruments are those of the Prometheus endpoint, `stoker.wait_seconds` for
    `stoker_wait_seconds_total` and so on: observable counters and gauges, with the attributes
    `rank`, `room` and `kind`. Histograms are not among them, since OpenTelemetry has none that are
    observed.

    Args:
        loader: A `stoker.Loader` or a `stoker.ray.RayLoader`.
        meter_provider: In place of the global one.
        attributes: More attributes of all its metrics: what tells it from other loaders of this
            process, such as `{"loader": "evaluation"}`. Two with the same ones would overwrite each
            other.
    """
    more = dict(attributes or {})
    provider = meter_provider or get_meter_provider()
    # A meter of its own for each loader: instruments of one meter are told apart by name alone.
    meter = provider.get_meter("stoker", __version__, attributes=more)
    watched = _Watched(loader, more)
    for family in watched.families():
        create = {
            "counter": meter.create_observable_counter,
            "gauge": meter.create_observable_gauge,
        }.get(family["kind"])
        if create is not None:
            name = family["name"].removesuffix("_total")
            create(
                name.replace("_", ".", 1),
                callbacks=[watched.of(family["name"])],
                unit=UNITS.get(name.rpartition("_")[2], ""),
                description=family["help"],
            )


class _Watched:
    """A loader that is not kept alive by being watched."""

    def __init__(self, loader: Any, attributes: dict[str, str]) -> None:
        self.loader = weakref.ref(loader)
        self.attributes = attributes | {"rank": str(loader.rank)}
        self.known: tuple[float, list[dict[str, Any]]] | None = None

    def families(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        if self.known is None or now - self.known[0] > FRESH:
            self.known = now, self.read()
        return self.known[1]

    def read(self) -> list[dict[str, Any]]:
        loader = self.loader()
        if loader is None:
            return []
        try:
            report = loader.report()
        except RuntimeError:
            return []  # a forked child, whose provider goes on exporting: it has no loader
        return _families(report.as_dict(), loader.rank, loader.world_size)

    def of(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observed(_: CallbackOptions) -> Iterable[Observation]:
            for family in self.families():
                if family["name"] == name:
                    for point in family["points"]:
                        labels = dict(point["labels"])
                        yield Observation(point["value"], self.attributes | labels)

        return observed
