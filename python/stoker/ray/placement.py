"""On which node how many workers of a rank belong: a function of what the cluster is.

What crosses a network card decides. A worker on the rank's own node brings in compressed bytes and
hands over through shared memory; one elsewhere costs this node's card the finished batches. So a
rank is served by its own node first. Nodes without ranks are dealt out among all ranks: every rank
computes the same deal from the same list of nodes, and nobody has to be asked. One worker a node
uses all cores of its share, for one pool of connections and one cache serve them better than many.
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple, get_args

Placement = Literal["auto", "local", "spread", "packed"]

STORE_SHARE = 0.6
"""Share of an object store that batches may take. Ray begins to spill at 0.8."""

MEMORY_SHARE = 0.25
MOST_MEMORY = 16 << 30
LEAST_MEMORY = 256 << 20
"""What `engine.memory` is by default: a quarter of the machine's, at most 16 GiB."""


class Node(NamedTuple):
    """A living node."""

    id: str
    address: str
    cpus: int
    free: int
    """CPUs that nobody has reserved."""
    gpus: int
    memory: int
    store: int
    """Bytes of its object store."""
    labels: dict[str, str]


class Wish(NamedTuple):
    """What the user asked for."""

    placement: Placement = "auto"
    workers: int | None = None
    cpus_per_worker: int | None = None
    node_labels: dict[str, str] | None = None


class Place(NamedTuple):
    """Where the ranks are."""

    rank: int
    of: int
    node: str
    """This rank's."""
    cpus: float
    """CPUs that each rank has reserved for itself."""
    hosts: dict[int, str]
    """The nodes of all ranks, as far as they are known."""

    @property
    def here(self) -> int:
        """Ranks on this rank's node; what is unknown is taken to be as dense as what is known."""
        known = sum(node == self.node for node in self.hosts.values())
        if len(self.hosts) >= self.of:
            return max(1, known)
        return max(1, known, math.ceil(self.of / max(1, len(set(self.hosts.values())))))


class Seat(NamedTuple):
    """Where a worker belongs."""

    node: str
    number: int
    """Among the rank's workers on that node."""
    cpus: int
    memory: int
    """Bytes for its engine."""
    room: int
    """Bytes of the node's object store for its batches."""


def check(wish: Wish) -> None:
    """Refuses what can't be meant.

    Raises:
        ValueError: It says what is allowed.
    """
    if wish.placement not in get_args(Placement):
        allowed = ", ".join(map(repr, get_args(Placement)))
        raise ValueError(f"placement={wish.placement!r} is unknown: it is one of {allowed}")
    for name in ("workers", "cpus_per_worker"):
        value = getattr(wish, name)
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name}={value!r} is not a whole number from 1")
    for key, value in (wish.node_labels or {}).items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise ValueError(f"node_labels: {key!r}: {value!r} are not two strings")


def seats(nodes: list[Node], wish: Wish, place: Place, remote: int) -> list[Seat]:
    """Where the workers of a rank belong, the nearest first.

    Args:
        nodes: The nodes that live.
        wish: What the user asked for.
        place: Where the ranks are.
        remote: How many other nodes to use, where the placement is `auto`.
    """
    usable = [n for n in nodes if n.cpus >= 1 and matches(n.labels, wish.node_labels)]
    shares = _shares(usable, wish, place)
    if wish.placement == "local":
        shares = [share for share in shares if share.node.id == place.node]
    elif wish.placement == "packed":
        shares = _packed(usable, place)
    elif wish.placement == "auto":
        near = [share for share in shares if share.node.id == place.node]
        far = [share for share in shares if share.node.id != place.node]
        shares = near + far[: max(remote, not near)]
    return _seated(shares, wish)


def elsewhere(nodes: list[Node], wish: Wish, place: Place) -> int:
    """How many other nodes there are for a rank to use."""
    usable = [n for n in nodes if n.cpus >= 1 and matches(n.labels, wish.node_labels)]
    return sum(share.node.id != place.node for share in _shares(usable, wish, place))


def matches(labels: dict[str, str], wanted: dict[str, str] | None) -> bool:
    """Whether labels are as wanted, in Ray's language: `a`, `!a`, `in(a,b)`, `!in(a,b)`."""
    for key, condition in (wanted or {}).items():
        negated, listed, one = re.fullmatch(r"(!?)(?:in\((.*)\)|(.*))", condition).groups()
        values = [one] if listed is None else [value.strip() for value in listed.split(",")]
        if (labels.get(key) in values) == bool(negated):
            return False
    return True


class _Share(NamedTuple):
    """What a node gives to a rank."""

    node: Node
    cpus: int
    room: int


def _shares(usable: list[Node], wish: Wish, place: Place) -> list[_Share]:
    """The rank's own node, then those of the others that are dealt to it."""
    shares = []
    for node in usable:
        if node.id == place.node:
            # Where the ranks have reserved all, it was for their data too.
            left = math.floor((node.cpus - place.cpus * place.here) / place.here)
            cpus = left if left >= 1 else max(1, math.floor(place.cpus))
            shares.append(_Share(node, cpus, _room(node, place.here)))
    hosts = {place.node, *place.hosts.values()}
    # A node with accelerators belongs to somebody's training, unless its labels were asked for.
    free = [n for n in usable if n.id not in hosts and (n.gpus == 0 or wish.node_labels)]
    free.sort(key=lambda node: node.id)
    parts = math.ceil(place.of / len(free)) if free else 1
    dealt = [node for _ in range(parts) for node in free][place.rank :: place.of]
    shares += [_Share(n, max(1, n.cpus // parts), _room(n, parts)) for n in dealt]
    return shares


def _packed(usable: list[Node], place: Place) -> list[_Share]:
    """The largest node, for all workers of all ranks."""
    if not usable:
        return []
    node = min(usable, key=lambda node: (-node.cpus, node.id))
    ranks = sum(host == node.id for host in place.hosts.values())
    cpus = math.floor((node.cpus - ranks * place.cpus) / place.of)
    return [_Share(node, max(1, cpus), _room(node, place.of))]


def _room(node: Node, ranks: int) -> int:
    return int(node.store * STORE_SHARE / ranks)


def _seated(shares: list[_Share], wish: Wish) -> list[Seat]:
    """Deals workers out to the shares, in turn where their number is given."""
    counts = [share.cpus // (wish.cpus_per_worker or share.cpus) for share in shares]
    if not any(counts):
        # What was asked for is more than any share; a node that has as much may have it to spare.
        counts = [int(share.node.cpus >= (wish.cpus_per_worker or 1)) for share in shares]
        counts = [int(n and not any(counts[:place])) for place, n in enumerate(counts)]
    if wish.workers is not None and shares:
        if wish.placement == "auto":
            ends = [sum(counts[:place]) for place in range(len(counts))]
            counts = [
                max(0, min(n, wish.workers - end)) for n, end in zip(counts, ends, strict=True)
            ]
        else:
            rounds, rest = divmod(wish.workers, len(shares))
            counts = [rounds + (place < rest) for place in range(len(shares))]
    found = []
    for share, count in zip(shares, counts, strict=True):
        for number in range(count):
            cpus = wish.cpus_per_worker or max(1, share.cpus // count)
            memory = int(share.node.memory * MEMORY_SHARE * cpus / share.node.cpus)
            memory = min(MOST_MEMORY, max(LEAST_MEMORY, memory))
            found.append(Seat(share.node.id, number, cpus, memory, share.room // count))
    return found
