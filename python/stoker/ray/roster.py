"""Which rank is on which node: each writes its own into Ray's key-value store, and reads all.

Nothing depends on it but where workers are put, so it may be late, incomplete or, for a moment
after a restart, wrong. Ranks of one Ray job find each other; ranks that came to Ray as drivers of
their own do not, and go by what their launcher says.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import ray
from ray.experimental import internal_kv

NAMESPACE = b"stoker"


class Roster:
    """The ranks of one run.

    Args:
        rank, of: This one, and how many there are.
        document: The recipe, which tells runs of the same job apart.
    """

    def __init__(self, rank: int, of: int, document: dict[str, Any]) -> None:
        context = ray.get_runtime_context()
        self.node: str = context.get_node_id()
        self._rank, self._of = rank, of
        run = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
        self._prefix = f"{context.get_job_id()}/{run}/{of}/"

    def enter(self) -> None:
        """Writes where this rank is."""
        internal_kv._internal_kv_put(
            self._key(self._rank), self.node.encode(), overwrite=True, namespace=NAMESPACE
        )

    def read(self) -> dict[int, str]:
        """The nodes of all ranks that have entered."""
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        keys = internal_kv._internal_kv_list(self._prefix.encode(), namespace=NAMESPACE)
        hosts = {self._rank: self.node}
        for key in keys:
            node = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
            if node is not None:
                hosts[int(key.rsplit(b"/", 1)[1])] = node.decode()
        if len(hosts) == 1 and local.isdigit() and 0 < int(local) <= self._of:
            # The launcher's ranks on this host follow each other.
            first = self._rank - self._rank % int(local)
            hosts |= dict.fromkeys(range(first, first + int(local)), self.node)
        return hosts

    def leave(self) -> None:
        """Takes this rank out."""
        internal_kv._internal_kv_del(self._key(self._rank), namespace=NAMESPACE)

    def _key(self, rank: int) -> bytes:
        return f"{self._prefix}{rank}".encode()
