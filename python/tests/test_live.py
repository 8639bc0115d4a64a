"""A running loader seen from outside: over HTTP, and by `stoker top`."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stoker
from prometheus_client.parser import text_string_to_metric_families

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "stoker.json"


@pytest.fixture
def seen(quick):
    """A recipe whose loader is read over HTTP."""
    quick["engine"]["metrics"] = "127.0.0.1:0"
    return quick


def get(address, path="/metrics", method="GET"):
    connection = http.client.HTTPConnection(address, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def scraped(address):
    """Each sample that Prometheus' own parser finds, by name and labels."""
    status, headers, text = get(address)
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def test_the_metrics_are_the_numbers_of_the_report(seen):
    seen["plan"]["epochs"] = 4
    with stoker.Loader(seen, rank=1, world_size=2) as loader:
        before = scraped(loader.metrics_address)
        list(loader)
        report, found = loader.report(), scraped(loader.metrics_address)

    def value(name, **labels):
        return found[(name, *sorted({"rank": "1", **labels}.items()))]

    assert value("stoker_info", version=stoker.__version__, world_size="2") == 1
    assert value("stoker_samples_total") == report.samples > 0
    assert value("stoker_tokens_total") == report.tokens > 0
    assert value("stoker_batches_total") == report.wait.batches + 1
    assert value("stoker_wait_seconds_total") == report.wait.blocked_seconds
    assert value("stoker_wait_ratio") == report.wait.window_ratio
    assert value("stoker_requests_total") == report.fetch.requests
    assert value("stoker_arena_bytes") == report.memory.arena_bytes
    for room in report.rooms:
        assert value("stoker_room_busy_seconds_total", room=room.room) >= room.busy_seconds
        assert value("stoker_room_items_total", room=room.room) == room.items
    waits = report.wait_histogram
    assert value("stoker_batch_wait_seconds_count") == sum(waits.counts) == report.wait.batches
    assert value("stoker_batch_wait_seconds_sum") == pytest.approx(report.wait.blocked_seconds)
    below = [sum(wait <= end for wait in report.wait.window_seconds) for end in (0.01, 60.0)]
    assert [value("stoker_batch_wait_seconds_bucket", le=le) for le in ("0.01", "60")] == below
    first_bytes = value("stoker_request_first_byte_seconds_count")
    assert first_bytes == sum(report.first_byte_histogram.counts)
    # Series are there from the beginning, and all of one loader has few.
    new = {name for name, *_ in found.keys() - before.keys()}
    assert new == {
        *("stoker_wait_ratio", "stoker_first_batch_wait_seconds"),
        *("stoker_limit", "stoker_workers_busy_ratio"),
    }
    limits = {
        dict(key[1:])["kind"]: value for key, value in found.items() if key[0] == "stoker_limit"
    }
    assert [kind for kind, value in limits.items() if value == 1] == [report.advice.limit]
    assert sum(limits.values()) == 1
    assert len(limits) >= 8
    assert len(found) < 200
    assert {label for key in found for label, _ in key[1:]} == {
        *("rank", "room", "kind", "le", "version", "world_size")
    }


def test_the_report_is_served_as_json_and_nothing_else_is(seen):
    with stoker.Loader(seen) as loader:
        next(loader)
        status, headers, text = get(loader.metrics_address, "/report.json")
        glance = json.loads(text)
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert glance["report"]["samples"] == loader.report().samples == 4
        assert (glance["pid"], glance["rank"], glance["world_size"]) == (os.getpid(), 0, 1)
        assert glance["metrics"] == loader.metrics_address
        status, _, text = get(loader.metrics_address, "/")
        assert status == 404
        assert "/metrics" in text
        status, headers, _ = get(loader.metrics_address, method="POST")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        status, headers, text = get(loader.metrics_address, method="HEAD")
        assert (status, text) == (200, "")
        assert int(headers["Content-Length"]) > 1000


def test_who_reads_slowly_holds_up_neither_the_loader_nor_others_for_long(seen):
    with stoker.Loader(seen) as loader:
        host, port = loader.metrics_address.split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(12)]
        for number, slow in enumerate(silent[:6]):
            slow.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (number * 4000))
        assert len(list(loader)) == 6
        assert ("stoker_batches_total", ("rank", "0")) in scraped(loader.metrics_address)
        for slow in silent:
            slow.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                while slow.recv(1 << 16):
                    pass
            slow.close()


def test_an_address_that_is_taken_is_told_and_ranks_of_a_machine_share_ports(seen):
    with stoker.Loader(seen) as first:
        seen["engine"]["metrics"] = first.metrics_address
        with pytest.raises(stoker.RecipeError, match="in use already") as caught:
            stoker.Loader(seen)
        (problem,) = caught.value.problems
        assert problem.path == "engine.metrics"
        assert '"engine.metrics": null' in problem.hint
        seen["engine"]["local-world-size"] = 64
        with stoker.Loader(seen) as second:
            ports = [int(one.metrics_address.split(":")[1]) for one in (first, second)]
            assert 0 < ports[1] - ports[0] < 64
        with stoker.Loader(seen, overrides={"engine.metrics": None}) as silent:
            assert silent.metrics_address is None
    with pytest.raises(stoker.RecipeError, match="no address with a port"):
        stoker.Loader(seen, overrides={"engine.metrics": ":9464"})


def test_being_seen_is_no_part_of_the_plan(seen):
    with stoker.Loader(seen) as loader:
        next(loader)
        state = loader.state_dict()
    with stoker.Loader(seen, overrides={"engine.metrics": None}) as other:
        other.load_state_dict(state)
        assert len(list(other)) == 5


def test_a_closed_loader_is_gone_and_its_port_free(seen):
    loader = stoker.Loader(seen)
    host, port = loader.metrics_address.split(":")
    here = sockets_of(os.getpid())
    assert here
    loader.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    assert sockets_of(os.getpid()) < here
    assert loader.metrics_address == f"{host}:{port}"
    seen["engine"]["metrics"] = loader.metrics_address
    stoker.Loader(seen).close()


def test_a_forked_child_neither_answers_for_its_parent_nor_keeps_its_port(programs, seen):
    """It has the sockets too, and nobody who listens."""
    output = programs.output(
        seen,
        """
loader = stoker.Loader(recipe)
next(loader)
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.close(write)
    os.read(read, 1)
    sys.exit(0)
os.close(read)
host, port = loader.metrics_address.split(":")
name = f"\\0stoker/{os.getpid()}/0"

def refused(family, address):
    with socket.socket(family) as client:
        try:
            client.connect(address)
        except ConnectionRefusedError:
            return True
        return False

where = [(socket.AF_INET, (host, int(port))), (socket.AF_UNIX, name)]
print([refused(*one) for one in where])
loader.close()
print([refused(*one) for one in where])
recipe["engine"]["metrics"] = loader.metrics_address
again = stoker.Loader(recipe)
print(again.metrics_address == loader.metrics_address, len(again))
os.close(write)
print(ended(child))
""",
    )
    assert output.splitlines() == ["[False, False]", "[True, True]", "True 6", "0"]


def sockets_of(pid):
    """Names of the sockets by which the loaders of a process are found."""
    return set(re.findall(rf"@(stoker/{pid}/\d+)$", Path("/proc/net/unix").read_text(), re.M))


def top(*arguments):
    command = [sys.executable, "-m", "stoker", "top", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_top_sees_the_loaders_of_a_process_with_nothing_set(quick):
    with stoker.Loader(quick, rank=1, world_size=2) as one, stoker.Loader(quick) as two:
        list(two)
        shown = top(os.getpid(), "--once", "--json")
        assert (shown.returncode, shown.stderr) == (0, "")
        loaders = [json.loads(line) for line in shown.stdout.splitlines()]
        loaders = {loader["world_size"]: loader for loader in loaders}
        assert loaders[2]["rank"] == one.rank == 1
        assert loaders[1]["report"]["samples"] == 24
        assert loaders[1]["report"]["rooms"] == two.report().as_dict()["rooms"]
        assert loaders[1]["rates"]["samples_per_second"] == 0.0
        assert 0.5 < loaders[1]["rates"]["seconds"] < 30
        assert loaders[1]["source"].endswith("chats.jsonl")
        lines = top(os.getpid(), "--once").stdout.splitlines()
        assert any(re.match(rf"loader {os.getpid()}/\d+ rank 1 of 2: wait \? ", it) for it in lines)
        assert all("0.0 samples/s" in line for line in lines)
        assert top("--once").stdout.count(f"loader {os.getpid()}/") == len(lines)


def test_top_follows_in_place_on_a_terminal_and_ends_with_the_loaders(programs, quick):
    quick["plan"]["epochs"] = 1_000_000
    program = programs.start(
        quick,
        """
with stoker.Loader(recipe) as loader:
    print(os.getpid(), flush=True)
    for batch in loader:
        time.sleep(0.02)
        if os.path.exists("enough"):
            break
sys.stdin.read()
""",
    )
    pid = program.line()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "stoker", "top", pid]
    shown = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    picture, begun = b"", time.monotonic()
    try:
        while time.monotonic() - begun < 60:
            with contextlib.suppress(OSError):  # the other end is closed
                picture += os.read(ours, 4096)
            if picture.count(b"\x1b[J") == 2:
                (programs.folder / "enough").touch()
            if shown.poll() is not None:
                break
        assert (shown.wait(timeout=60), shown.stderr.read()) == (0, b"")
    finally:
        shown.kill()
        os.close(ours)
    text = picture.decode()
    frame = text.split("\x1b[J")[2]
    for words in (f"loader {pid}/0 rank 0 of 1", "samples/s", "tokens/s", "images/s", "busy"):
        assert words in frame
    rate = float(re.search(r"([\d.]+) samples/s", frame)[1])
    assert 0 < rate < 4 / 0.02
    # Back over as many lines as were drawn.
    lines = int(re.findall(r"\x1b\[(\d+)F", text)[1])
    assert text.split("\x1b[J")[1].count("\n") == lines


def test_top_where_there_is_nothing_says_so():
    idle = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        shown = top(idle.pid)
        assert (shown.returncode, shown.stdout) == (5, "")
        assert f"no loader runs in process {idle.pid}" in shown.stderr
    finally:
        idle.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_other_users_are_refused(quick):
    ask = """
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect("\\0" + sys.argv[1])
    print(client.makefile().read())
"""
    with stoker.Loader(quick):
        for name in sockets_of(os.getpid()):
            # Nobody has no way into the folder of the virtual environment, and needs none.
            command = ["/usr/bin/env", "python3", "-S", "-c", ask, name]
            other = subprocess.run(
                command, capture_output=True, text=True, timeout=60, user=65534, check=False
            )
            assert other.stdout.startswith("refused: only the user"), other
            assert "report" not in other.stdout


def test_the_dashboard_asks_for_metrics_that_there_are(seen):
    with stoker.Loader(seen) as loader:
        next(loader)
        _, _, text = get(loader.metrics_address)
    kinds, labels = {}, {}
    for family in text_string_to_metric_families(text):
        ends = {"counter": ("_total",), "histogram": ("_bucket",), "gauge": ("",)}[family.type]
        for end in ends:
            kinds[family.name + end] = family.type
    for line in text.splitlines():
        if not line.startswith("#"):
            name, rest = line.split("{")
            labels.setdefault(name, set()).update(re.findall(r'(\w+)="', rest))
    labels["stoker_bad_samples_total"] = {"rank", "room", "kind"}  # none are bad here
    # Not known after one batch.
    labels |= {"stoker_limit": {"rank", "kind"}, "stoker_workers_busy_ratio": {"rank"}}
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert set(variables) == {"datasource", "job", "rank"}
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    expressions += [it["definition"] for it in variables.values() if "definition" in it]
    for expression in expressions:
        names = set(re.findall(r"stoker_\w+", expression))
        assert names, expression
        assert names <= set(kinds), expression
        for name, selector in re.findall(r"(stoker_\w+)\{([^}]*)\}", expression):
            of_scrape = {"job"}
            assert set(re.findall(r"(\w+)=", selector)) <= labels[name] | of_scrape, expression
        for by in re.findall(r"by \(([^)]*)\)", expression):
            shared = set.intersection(*(labels[name] for name in names))
            assert {label.strip() for label in by.split(",")} <= shared, expression
        counted = {name for name in names if kinds[name] != "gauge"}
        # What only grows is looked at by how fast it does, and nothing else is.
        assert counted == set(re.findall(r"(?:rate|increase)\((stoker_\w+)\{", expression))


def test_what_stands_beside_the_bar_of_a_run(quick, tmp_path):
    (tmp_path / "recipe.json").write_text(json.dumps(quick | {"plan": {"epochs": 400}}))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "stoker", "run", str(tmp_path / "recipe.json")]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    drawn = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(ours, 4096):
            drawn += part
    os.close(ours)
    assert b"2400 batches in" in run.communicate()[0]
    assert re.search(rb"\d samples/s  \d+ tokens/s  wait \d+ %", drawn), drawn[-500:]
