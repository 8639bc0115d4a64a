"""What all experiments need: hosts, a store with photos, Ray's nodes, and recipes over them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.cluster import store
from bench.cluster.counters import NONE, Counters, counters, latest_state
from bench.cluster.driver import Trainer
from bench.cluster.hosts import Network
from bench.cluster.measure import Window
from bench.cluster.nodes import Nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOSTS = ("h1", "h2", "h3", "h4")
"""In A three of them have trainers; in B and C one has, and three load. The first is Ray's head."""
STORE_MBIT = 1000
"""The store's card is no limit: a real store has many."""
PHOTO_PIXELS = (1_000_000, 2_000_000)
"""Photos are about 360 KB each, at two bits a pixel."""
MEMORY = "24MiB"
CONCURRENCY = 16
"""What a worker's engine may hold, and request at once: some seconds of such a card, so that a run
soon is steady and no connection starves."""
COUNTERS_LAG_SECONDS = 2.5
"""How old what the nodes say of themselves may be: they say it every second, by way of an agent."""


@dataclass(frozen=True)
class Scale:
    """How large a run is."""

    mbit: float
    """Rate of a host's card. The cores must keep up with four of them at once."""
    samples: int
    batch_size: int
    window: Window
    batches: int
    """Batches of one run of C."""


FULL = Scale(mbit=40, samples=128, batch_size=4, window=Window(6, 16), batches=80)
SHORT = Scale(mbit=40, samples=48, batch_size=4, window=Window(1, 4), batches=40)


@dataclass(frozen=True)
class Bench:
    """A cluster that is up."""

    scale: Scale
    network: Network
    nodes: Nodes
    photos: store.Photos
    endpoint: str
    model: Path
    tell: Callable[[str], None]
    dead: dict[str, Counters] = field(default_factory=dict)
    """The last counters of nodes that were killed."""

    def recipe(self, pixels: str, max_pixels: int) -> dict[str, Any]:
        """A recipe whose batches are of that element type, images scaled down to `max_pixels`."""
        return {
            "model": str(self.model),
            "dataset": {
                "source": self.photos.source,
                "index-dir": str(self.network.disk / "index"),
            },
            "plan": {"lanes": 48},  # three ranks divide them
            "fetch": {"endpoint": self.endpoint, "concurrency": CONCURRENCY},
            "vision": {"pixels": pixels, "min-pixels": 1024, "max-pixels": max_pixels},
            "pack": {"batch-size": self.scale.batch_size},
            "engine": {"memory": MEMORY},
        }

    def trainer(self, name: str) -> Trainer:
        """A trainer on a host."""
        return Trainer(self.network[name], self.nodes.address)

    def kill_node(self, name: str) -> None:
        """`kill -9` of all that runs on a host, after a last look at its counters."""
        self.dead[name] = self._counters(name)
        self.network[name].kill()

    def counters(self) -> Counters:
        """Ray's counters of all nodes since they were started, those that were killed included."""
        time.sleep(COUNTERS_LAG_SECONDS)
        counted = NONE
        for name in self.nodes.labels:
            counted += self.dead[name] if name in self.dead else self._counters(name)
        return counted

    def _counters(self, name: str) -> Counters:
        return counters(self.nodes.metrics(name), latest_state(self.network[name].folder))


@contextlib.contextmanager
def bench(scale: Scale, model: Path, tell: Callable[[str], None]) -> Iterator[Bench]:
    """Brings the cluster up, and takes it down."""
    cards = {"store": STORE_MBIT} | dict.fromkeys(HOSTS, scale.mbit)
    began = time.monotonic()
    with Network(cards) as network:
        photos = store.write(network.folder / "photos", scale.samples, PHOTO_PIXELS)
        endpoint = store.serve(network["store"], photos)
        nodes = Nodes(network, {name: {"host": name} for name in HOSTS})
        tell(f"{len(HOSTS)} hosts and a store are up after {time.monotonic() - began:.0f} s")
        yield Bench(scale, network, nodes, photos, endpoint, model.resolve(), tell)
