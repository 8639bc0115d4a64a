"""The report of a loader whose batches are made elsewhere.

All workers' engines are told as one. Ray's part says who made what where, what crossed the network,
and whether that is what the trainer waits for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from stoker import report
from stoker._native import _advice, _report_words
from stoker.ray import counts

if TYPE_CHECKING:
    from stoker.ray.dispatch import Dispatcher
    from stoker.ray.fleet import Fleet

WAIT = 0.05
"""Share of its time that a trainer may wait before a reason is looked for."""

MADE = ("rooms", "fetch", "memory", *counts.SUMS, "first_byte_histogram")
"""What of a report the workers know."""

BUSY = 0.7
"""Share of the workers' time from which on cores are what is short."""


def read(
    front: report.Report, dispatcher: Dispatcher, fleet: Fleet, placement: str
) -> report.Report:
    """Puts together what the front door, the workers and Ray's side know."""
    with dispatcher.changed:
        reports = dispatcher.counts.reports()
        evidence = dispatcher.counts.evidence(time.monotonic())
        on_ray = _numbers(dispatcher, reports, placement)
    on_ray["starting"] = fleet.starting
    numbers = front.as_dict()
    if reports:
        # What was delivered and waited for is the front's to know; how it was made, the workers'.
        made = counts.merged(reports)
        numbers = numbers | {name: made[name] for name in MADE}
    # A worker tells of itself once a second; before it does there is nothing to go by.
    advice = _advice(evidence) if evidence and evidence.get("workers") else None
    numbers = numbers | {"advice": advice}
    words = _report_words(numbers) + _words(on_ray, numbers["wait"], advice)
    return report.read(words, numbers | {"ray": on_ray})


def _numbers(
    dispatcher: Dispatcher, reports: list[dict[str, Any]], placement: str
) -> dict[str, Any]:
    known, schedule = dispatcher.counts, dispatcher.schedule
    workers = schedule.workers.values()
    nodes = [
        {
            "node": node.node,
            "address": node.address,
            "here": node.local,
            "workers": sum(worker.node == node.node for worker in workers),
            "batches": node.batches,
            "made_bytes": node.made_bytes,
            "pulls": node.pulls,
            "pulled_bytes": node.pulled_bytes,
            "fetched_bytes": counts.fetched(known.reports(node.node)),
        }
        for node in known.nodes.values()
    ]
    return {
        "placement": placement,
        "workers": len(workers),
        "nodes": sorted(nodes, key=lambda node: (not node["here"], node["address"])),
        "moved": schedule.moved,
        "made_bytes": known.made_bytes,
        "pulled_bytes": known.pulled_bytes,
        "fetched_bytes": counts.fetched(reports),
        "shipped_per_fetched": known.ratio,
        "network_seconds": known.network_seconds,
        "link_bytes_per_second": schedule.link.rate,
        "room_bytes": schedule.room,
        "busy_seconds": counts.busy(reports),
    }


def _words(
    on_ray: dict[str, Any], wait: dict[str, Any], advice: dict[str, Any] | None = None
) -> str:
    lines = [
        f"on Ray: data workers: {on_ray['workers']}, and {on_ray['starting']} starting (placement "
        f"{on_ray['placement']}); batches asked of one more worker: {on_ray['moved']}"
    ]
    for node in on_ray["nodes"]:
        where = "here" if node["here"] else f"{size(node['pulled_bytes'])} pulled"
        lines.append(
            f"  {node['address']:<15} workers: {node['workers']}, batches: {node['batches']}, "
            f"{size(node['made_bytes'])} made of {size(node['fetched_bytes'])} fetched, {where}"
        )
    if on_ray["shipped_per_fetched"] is not None:
        lines.append(f"shipped / fetched: {on_ray['shipped_per_fetched']:.2f}")
    reason = _reason(on_ray, wait) if advice is None else _arriving(on_ray)
    return "\n".join([*lines, *([reason] if reason else []), ""])


def _arriving(on_ray: dict[str, Any]) -> str | None:
    rate = on_ray["link_bytes_per_second"]
    return f"{size(rate)}/s arrive from other nodes" if rate else None


def _reason(on_ray: dict[str, Any], wait: dict[str, Any]) -> str | None:
    """That the trainer waits for the network of its node, as long as there is no advice."""
    ratio = wait["ratio"]
    if ratio is None or ratio <= WAIT or not wait["blocked_seconds"]:
        return None
    if on_ray["network_seconds"] < wait["blocked_seconds"] / 2:
        return None
    speed = _arriving(on_ray) or "nothing has arrived yet"
    return (
        f"the trainer waits {ratio * 100:.0f} %: the network card of this node is the limit: "
        f"{speed}; "
        'use vision.pixels = "u8", or more workers on this node (placement = "local")'
    )


def size(nbytes: float) -> str:
    """Bytes as people write them."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"
