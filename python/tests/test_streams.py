"""Streams of a device, by doubles of torch's; and what stands in for them on the CPU."""

from __future__ import annotations

import stoker
import torch
from stoker._streams import Streams, resolve
from stoker.torch import prefetch


def test_streams_have_torch_wait_and_know_who_uses_a_tensor(monkeypatch):
    log = []

    class Stream:
        def wait_event(self, event):
            log.append(("wait", event))

    class Tensor:
        def record_stream(self, stream):
            log.append(("use", stream))

    class Module:
        Stream = staticmethod(lambda device: f"stream of {device}")
        stream = staticmethod(lambda stream: f"on {stream}")
        device = staticmethod(lambda device: f"at {device}")
        current = None
        asked = None

        class Event:
            def record(self, stream):
                log.append(("record", stream))

        @classmethod
        def current_stream(cls, device):
            cls.asked = device
            return cls.current

    Module.current = Stream()
    monkeypatch.setattr(torch, "get_device_module", lambda _: Module)
    device = torch.device("cuda", 1)
    streams = Streams(device)
    assert streams.asynchronous
    side = streams.new()
    assert (side, streams.on(side)) == ("stream of cuda:1", "on stream of cuda:1")
    assert streams.here() == "at cuda:1"
    event = streams.mark(side)
    streams.follow(event, [Tensor()])
    assert Module.asked == device
    assert log == [("record", side), ("wait", event), ("use", Module.current)]


def test_on_the_cpu_streams_do_nothing(quick, monkeypatch):
    monkeypatch.delattr(torch.cpu.Stream, "wait_event", raising=False)  # torch 2.4 to 2.6
    streams = Streams(resolve("cpu"))
    assert not streams.asynchronous
    with streams.on(streams.new()):
        event = streams.mark(streams.new())
    streams.follow(event, [torch.zeros(1)])
    assert event.query()
    streams.launch()
    with stoker.Loader(quick) as loader:
        batches = prefetch(loader, "cpu")
        plain = next(batches)
        assert plain["pixel_values"].untyped_storage().nbytes() > 0


def test_a_device_without_an_index_is_the_current_one(monkeypatch):
    class Module:
        current_device = staticmethod(lambda: 3)

    monkeypatch.setattr(torch, "get_device_module", lambda _: Module)
    assert resolve("cuda") == torch.device("cuda", 3)
    assert resolve("cuda:1") == torch.device("cuda", 1)
    assert resolve("cpu") == torch.device("cpu")
