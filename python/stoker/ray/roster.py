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
        self._entered = False
        self._hosts: dict[int, str] = {}

    def enter(self) -> None:
        """Writes where this rank is, once; an earlier attempt may have left it elsewhere."""
        if not self._entered:
            self.leave()
            key = f"{self._prefix}{self._rank}/{self.node}"
            internal_kv._internal_kv_put(key.encode(), b"", namespace=NAMESPACE)
            self._entered = True

    def read(self) -> dict[int, str]:
        """The nodes of all ranks that have entered; when those are all, it does not ask again."""
        if len(self._hosts) < self._of:
            self._hosts = {self._rank: self.node}
            for key in _keys(self._prefix):
                rank, node = key.decode().split("/")[-2:]
                self._hosts[int(rank)] = node
            self._hosts |= self._launched() if len(self._hosts) == 1 else {}
        return dict(self._hosts)

    def leave(self) -> None:
        """Takes this rank out."""
        for key in _keys(f"{self._prefix}{self._rank}/"):
            internal_kv._internal_kv_del(key, namespace=NAMESPACE)

    def _launched(self) -> dict[int, str]:
        """The ranks of the same launcher: those on one host follow each other."""
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        if not local.isdigit() or not 0 < int(local) <= self._of:
            return {}
        first = self._rank - self._rank % int(local)
        return dict.fromkeys(range(first, first + int(local)), self.node)


def _keys(prefix: str) -> list[bytes]:
    return internal_kv._internal_kv_list(prefix.encode(), namespace=NAMESPACE)
