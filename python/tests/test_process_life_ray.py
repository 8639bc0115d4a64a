"""Signals at data workers: a cluster's operator, or a terminal, may send them to any process."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("ray")

import ray
import stoker
from process_life import digest
from stoker.ray import RayLoader

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_a_data_worker_changes_no_batch(quick, number):
    """Whether Ray's process takes it, ignores it or ends by it."""
    quick["vision"]["pixels"] = "u8"
    quick["pack"]["batch-size"] = 1
    straight = [digest(batch) for batch in stoker.Loader(quick)]
    with RayLoader(quick, workers=1, deadline=2.0, prefetch_bytes=1 << 20) as loader:
        seen = [digest(next(loader)) for _ in range(4)]
        (hired,) = loader._fleet._hired.values()
        worker = ray.get(hired.handle.__ray_call__.remote(lambda _: os.getpid()))
        os.kill(worker, number)
        seen += [digest(batch) for batch in loader]
    assert seen == straight
