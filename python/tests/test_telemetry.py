"""The metrics of a loader through OpenTelemetry's own SDK."""

from __future__ import annotations

import gc
import gzip
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import stoker
from prometheus_client import REGISTRY

pytest.importorskip("opentelemetry.sdk.metrics")

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from stoker import telemetry


def collected(reader):
    """Values by name and attributes."""
    data, found = reader.get_metrics_data(), {}
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    key = (metric.name, *sorted(point.attributes.items()))
                    assert key not in found
                    found[key] = point.value
    return found


@pytest.fixture
def reader():
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    reader.provider = provider
    yield reader
    provider.shutdown()


def test_a_provider_collects_what_the_report_says(quick, reader):
    with stoker.Loader(quick, rank=1, world_size=2) as loader:
        telemetry.observe(loader, meter_provider=reader.provider, attributes={"loader": "train"})
        list(loader)
        loader.close()
        report = loader.report()
        telemetry.FRESH, fresh = 0.0, telemetry.FRESH
        found = collected(reader)
        telemetry.FRESH = fresh

    def value(name, **labels):
        return found[(name, *sorted({"rank": "1", "loader": "train", **labels}.items()))]

    assert value("stoker.samples") == report.samples > 0
    assert value("stoker.wait_seconds") == report.wait.blocked_seconds
    assert value("stoker.wait_ratio") == report.wait.window_ratio
    assert value("stoker.info", version=stoker.__version__, world_size="2") == 1
    busy = {room.room: room.busy_seconds for room in report.rooms}
    assert value("stoker.room_busy_seconds", room="image") == busy["image"] > 0


def test_two_loaders_are_told_apart_and_neither_is_kept_alive(quick, reader):
    train, check = stoker.Loader(quick), stoker.Loader(quick)
    for name, loader in [("train", train), ("evaluation", check)]:
        attributes = {"loader": name}
        telemetry.observe(loader, meter_provider=reader.provider, attributes=attributes)
    loaders = {dict(key[1:])["loader"] for key in collected(reader)}
    assert loaders == {"train", "evaluation"}
    watched = telemetry._Watched(train, {})
    del train, loader
    gc.collect()
    assert watched.families() == []
    check.close()


def test_names_are_those_of_the_endpoint_by_way_of_prometheus_too(quick):
    exported = PrometheusMetricReader()
    provider = MeterProvider(metric_readers=[exported])
    try:
        with stoker.Loader(quick) as loader:
            list(loader)
            telemetry.observe(loader, meter_provider=provider)
            families = stoker._native._families(loader.report().as_dict(), 0, 1)
            names = {sample.name for it in REGISTRY.collect() for sample in it.samples}
    finally:
        provider.shutdown()
    ours = {it["name"] for it in families if it["points"] and it["kind"] != "histogram"}
    assert len(ours) > 30
    assert {name for name in names if name.startswith("stoker_")} == ours


def test_a_forked_child_has_nothing_to_tell(programs, quick):
    """Its provider goes on exporting, of a loader that stayed with the parent."""
    output = programs.output(
        quick,
        """
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from stoker import telemetry

telemetry.FRESH = 0.0
reader = InMemoryMetricReader()
loader = stoker.Loader(recipe)
telemetry.observe(loader, meter_provider=MeterProvider(metric_readers=[reader]))
assert reader.get_metrics_data() is not None
child = os.fork()
if child == 0:
    print(reader.get_metrics_data(), flush=True)
    os._exit(0)
print(ended(child))
""",
    )
    assert output == "None\n0\n"


def test_a_collector_is_sent_them_over_otlp(quick):
    """As a real exporter sends them, to what stands in for a collector."""
    otlp = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            bodies.append((self.path, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    exporter = otlp.OTLPMetricExporter(f"http://127.0.0.1:{collector.server_port}/v1/metrics")
    provider = MeterProvider(metric_readers=[PeriodicExportingMetricReader(exporter)])
    with stoker.Loader(quick) as loader:
        telemetry.observe(loader, meter_provider=provider)
        list(loader)
        telemetry.FRESH, fresh = 0.0, telemetry.FRESH
        provider.shutdown()  # after a last export
        telemetry.FRESH = fresh
    collector.shutdown()
    collector.server_close()
    path, body = bodies[-1]
    assert path == "/v1/metrics"
    sent = ExportMetricsServiceRequest.FromString(body)
    metrics = {it.name: it for it in sent.resource_metrics[0].scope_metrics[0].metrics}
    samples = metrics["stoker.samples"].sum
    assert samples.is_monotonic
    assert samples.data_points[0].as_double == 24.0
    assert metrics["stoker.wait_seconds"].unit == "s"
