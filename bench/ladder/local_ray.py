"""A Ray of the rungs' own, on this machine alone, and what its own counters say.

A run in which Ray spilled to disk or asked for an object twice measured the disk, not the memory:
it fails.
"""

from __future__ import annotations

import os
import shutil
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stoker.demo.store import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORE_BYTES = 3 << 30
"""The object store: Ray spills at 80 %, seven batches of 200 MB are half of it."""
REPORT_SECONDS = 1.0
"""How often Ray's processes tell their counters."""
ADDRESS = "127.0.0.2"
"""Loopback; Ray takes 127.0.0.1 to mean the machine's outer address."""

COUNTERS = {
    "spills": ("ray_spill_manager_request_total", 'Type="Spilled"'),
    "fallback_bytes": ("ray_object_store_fallback_memory", ""),
    "pull_retries": ("ray_pull_manager_retries_total", ""),
}


@contextmanager
def local_ray(cores: int, scratch: Path, counters: dict[str, float]) -> Iterator[None]:
    """Ray for the block.

    Args:
        cores: How many there are.
        scratch: Where its files may lie.
        counters: Gets `start_seconds` and, at the end of the block, `COUNTERS`.

    Raises:
        DemoError: There is too little shared memory, or a counter is not zero.
    """
    free = shutil.disk_usage("/dev/shm").free
    if free < STORE_BYTES:
        raise DemoError(
            f"Ray's object store needs {STORE_BYTES >> 30} GiB of /dev/shm, where {free >> 20} MiB "
            "are free: in a container, give it more (docker run --shm-size=4g)"
        )
    os.environ |= {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",  # other programs' memory is no reason to kill ours
        "RAY_worker_niceness": "0",  # by default workers come last on a busy core
    }
    os.environ.pop("RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", None)
    import ray

    began = time.perf_counter()
    ray.init(
        address="local",
        namespace="bench",
        num_cpus=cores,
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="warning",
        _node_ip_address=ADDRESS,
        _temp_dir=str(scratch / "ray"),
        _system_config={"metrics_report_interval_ms": int(REPORT_SECONDS * 1000)},
    )
    counters["start_seconds"] = time.perf_counter() - began
    try:
        yield
        time.sleep(2 * REPORT_SECONDS)
        counters |= counted(ray.nodes()[0])
    finally:
        ray.shutdown()
    check(counters)


def check(counters: dict[str, float]) -> None:
    """Refuses a run in which Ray moved more than it had to."""
    if wrong := {name: counters[name] for name in COUNTERS if counters[name]}:
        raise DemoError(
            "Ray moved more than it had to, so its rungs measured that: "
            + ", ".join(f"{name} {value:g}" for name, value in wrong.items())
            + "; close what else uses this machine's memory, and try again"
        )


def counted(node: dict) -> dict[str, float]:
    """What a node counted since it began."""
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: total(lines, *counter) for name, counter in COUNTERS.items()}


def total(lines: list[str], name: str, label: str) -> float:
    """A counter's sum over its series.

    Raises:
        DemoError: There is none, which is not the same as zero.
    """
    series = [line for line in lines if line.startswith(name + "{") and label in line]
    if not series:
        raise DemoError(f"this Ray does not count {name}: the ladder knows Ray 2.60")
    return sum(float(line.rpartition(" ")[2]) for line in series)
