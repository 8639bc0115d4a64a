"""Ray on hosts: a real cluster of several nodes, each with an object store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cluster.hosts import HostsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.cluster.hosts import Host, Network

GCS_PORT = 6379
METRICS_PORT = 8090
CPUS = 4
"""What each node believes to have; on one machine they all share its cores."""
OBJECT_STORE_BYTES = 400_000_000
START_SECONDS = 90
ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """The environment of all that runs on hosts.

    Proxies and clusters of the machine's own are unknown there. What is set of Ray, and why: each
    node sees the memory and cores of the whole machine, so none may act on that; nothing outside
    reaches the network, so nobody needs a token; counters are to be fresh when they are read.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith(("AWS_", "RAY_"))
    }
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # each worker would compile Ray anew
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {
        "PYTHONPATH": os.pathsep.join(str(Path(folder).resolve()) for folder in path),
        "AWS_ACCESS_KEY_ID": "stoker",
        "AWS_SECRET_ACCESS_KEY": "stoker-secret",
        "AWS_REGION": "us-east-1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_metrics_report_interval_ms": "1000",
        "RAY_debug_dump_period_milliseconds": "1000",
        "RAY_worker_niceness": "0",
    }


class Nodes:
    """The nodes of one cluster; they end with their hosts."""

    def __init__(self, network: Network, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Starts a node on each host named in `labels`, the head on the first of them."""
        self.network = network
        self.labels = labels
        self.head, *others = labels
        self._wait([self._start(self.head)])
        self._wait([self._start(name) for name in others])

    @property
    def address(self) -> str:
        """Where drivers find the cluster."""
        return f"{self.network[self.head].address}:{GCS_PORT}"

    def restart(self, name: str) -> None:
        """Starts a node again on a host whose node was killed."""
        self._wait([self._start(name)])

    def metrics(self, name: str) -> str:
        """What a node's own agent says of it, as Prometheus text."""
        fetch = (
            "import sys, urllib.request;"
            f"text = urllib.request.urlopen('http://127.0.0.1:{METRICS_PORT}/metrics', timeout=10);"
            "sys.stdout.buffer.write(text.read())"
        )
        return self.network[name].run(sys.executable, "-c", fetch, env=environment())

    def _start(self, name: str) -> tuple[Host, subprocess.Popen[str], Path]:
        host = self.network[name]
        if name == self.head:
            role = ["--head", f"--port={GCS_PORT}", "--include-dashboard=false"]
        else:
            role = [f"--address={self.address}"]
        labels = ",".join(f"{key}={value}" for key, value in self.labels[name].items())
        log = host.folder / "ray-start.log"
        with log.open("w") as out:
            process = host.start(
                *(Path(sys.executable).with_name("ray"), "start", *role, f"--labels={labels}"),
                *("--disable-usage-stats", f"--node-ip-address={host.address}"),
                *(f"--temp-dir={self.network.disk}", f"--num-cpus={CPUS}"),
                *(f"--object-store-memory={OBJECT_STORE_BYTES}",),
                f"--metrics-export-port={METRICS_PORT}",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        return host, process, log

    def _wait(self, starting: Iterable[tuple[Host, subprocess.Popen[str], Path]]) -> None:
        for host, process, log in starting:
            try:
                code = process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                code = f"none after {START_SECONDS} s"
            if code != 0:
                last = "\n".join(log.read_text().splitlines()[-20:])
                raise HostsError(f"Ray did not start on {host.name} (code {code}):\n{last}")
