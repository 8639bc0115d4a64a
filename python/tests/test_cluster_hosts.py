"""Hosts on one machine, and short runs on them; as root, where the kernel lets them be made."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.cluster import hosts, nodes
from bench.cluster.hosts import HostsError, Network, remove_leftovers

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "bench.cluster", "--short"]
ATTEMPT = ["unshare", "--net", "--mount", "--pid", "--fork"]
ATTEMPT += ["tc", "qdisc", "add", "dev", "lo", "root", "tbf"]
ATTEMPT += ["rate", "1mbit", "burst", "10kb", "latency", "10ms"]


def why_no_hosts() -> str | None:
    """Why hosts can't be had here, whatever our own code does."""
    if os.geteuid() != 0:
        return "hosts need root"
    try:
        tried = subprocess.run(ATTEMPT, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return f"hosts need {error.filename}"
    return f"hosts need namespaces and tbf: {tried.stderr}" if tried.returncode else None


WHY_NO_HOSTS = why_no_hosts()
needs_hosts = pytest.mark.skipif(WHY_NO_HOSTS is not None, reason=str(WHY_NO_HOSTS))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the runs of a test have their folders."""
    monkeypatch.setattr(hosts, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def network(root: Path):  # noqa: ARG001 (where its folder goes)
    with Network({"a": 100, "b": 100}) as network:
        yield network


def reaches(network: Network, source: str, target: str, seconds: float = 10) -> bool:
    """Whether one host hears another."""
    try:
        network[source].run(
            "timeout", seconds, "bash", "-c", f"</dev/tcp/{network[target].address}/1"
        )
    except HostsError as error:
        return "refused" in str(error)  # it answered, that there is nobody
    return True


@needs_hosts
def test_hosts_reach_each_other_and_nothing_else(network: Network):
    assert reaches(network, "a", "b")
    assert network["a"].run("ip", "-json", "-brief", "link").count("ifname") == 2
    with pytest.raises(HostsError, match=r"nreachable|timed out|code 124"):
        network["a"].run("timeout", "1", "bash", "-c", "</dev/tcp/192.0.2.1/80")


@needs_hosts
def test_two_runs_at_once_do_not_meet(network: Network):
    with Network({"a": 100, "b": 100}) as other:
        assert other["a"].address == network["a"].address
        assert other.folder != network.folder
        other.cut("b")
        assert not reaches(other, "a", "b", 0.5)
        assert reaches(network, "a", "b")
    assert network.folder.exists()
    assert reaches(network, "a", "b")


@needs_hosts
def test_a_card_is_limited_both_ways(network: Network):
    def rate_of(links: list[dict], name: str) -> int:
        (queue,) = (q for q in links if q["kind"] == "tbf" and q["dev"] == name)
        return queue["options"]["rate"] * 8

    show = ["tc", "-json", "qdisc", "show"]
    assert rate_of(json.loads(network["a"].run(*show)), "card") == 100e6
    assert rate_of(json.loads(network._in_switch(*show)), "a") == 100e6


@needs_hosts
def test_a_cut_cable_is_silent_and_a_mended_one_as_good_as_before(network: Network):
    network.cut("b")
    assert not reaches(network, "a", "b", 0.5)
    network.mend("b")
    assert reaches(network, "a", "b")
    assert "tbf" in network._in_switch("tc", "qdisc", "show", "dev", "b")


@needs_hosts
def test_traffic_counts_what_crosses_a_card(network: Network):
    before = network.traffic()
    receive = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True); "
    receive += "c, _ = s.accept(); [None for _ in iter(lambda: c.recv(1 << 16), b'')]"
    listener = network["b"].start(
        sys.executable, "-c", receive, env=os.environ, stdout=subprocess.PIPE
    )
    assert listener.stdout.readline() == "up\n"
    send = "import socket; s = socket.create_connection(('{}', 7000)); s.sendall(bytes(10**6))"
    network["a"].run(sys.executable, "-c", send.format(network["b"].address))
    listener.wait()
    after = network.traffic()
    for host, way in (("a", "sent"), ("b", "received")):
        counted = getattr(after[host], way) - getattr(before[host], way)
        assert 1.0e6 < counted < 1.2e6
    assert after["a"].received - before["a"].received < 1e5


@needs_hosts
def test_hosts_have_their_own_disk_and_shared_memory(network: Network):
    for folder in (network.disk, Path("/dev/shm")):
        network["a"].run("touch", folder / "mine")
        with pytest.raises(HostsError, match="No such file"):
            network["b"].run("ls", folder / "mine")
        assert not (folder / "mine").exists()
    assert (network["a"].folder / "mine").exists()


@needs_hosts
def test_a_killed_host_has_lost_its_processes_and_goes_on(network: Network):
    # As a node's processes are: some are orphans, some have children.
    network["a"].run("sh", "-c", "setsid sh -c 'sleep 999 & sleep 999' > /dev/null 2>&1 &")
    sleeper = network["a"].start("sleep", "1000", env=os.environ)
    other = network["b"].start("sleep", "1000", env=os.environ)
    while sum("sleep" in line for line in network["a"].processes().values()) < 4:
        time.sleep(0.01)
    network["a"].kill()
    sleeper.wait()
    assert network["a"].processes() == {}
    assert other.poll() is None
    assert network["a"].run("echo", "still here") == "still here\n"


@needs_hosts
def test_an_error_takes_the_hosts_down_with_all_that_runs_on_them(root: Path):
    sleepers = []

    def fail_with_a_host() -> None:
        with Network({"a": 100}) as network:
            sleepers.append(network["a"].start("sleep", "1000", env=os.environ))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_with_a_host()
    sleepers[0].wait()
    assert list(root.iterdir()) == []


@needs_hosts
def test_of_a_killed_run_only_its_folder_is_left_and_the_next_run_removes_it(root: Path):
    script = (
        "import os, sys; from pathlib import Path; from bench.cluster import hosts;"
        f"hosts.ROOT = Path({str(root)!r});"
        "network = hosts.Network({'a': 100}).__enter__();"
        "network['a'].start('sleep', '1000', env=os.environ);"
        "print(network['a']._first, flush=True); sys.stdin.read()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    first = int(run.stdout.readline())
    namespace = hosts._namespace(first, "pid")
    (folder,) = root.iterdir()
    assert remove_leftovers() == []  # it lives
    run.kill()
    run.wait()
    while any(_in_namespace(entry, namespace) for entry in Path("/proc").iterdir()):
        time.sleep(0.01)
    assert remove_leftovers() == [folder]
    assert list(root.iterdir()) == []


def _in_namespace(entry: Path, namespace: str) -> bool:
    with contextlib.suppress(OSError):
        return entry.name.isdigit() and hosts._namespace(entry.name, "pid") == namespace
    return False


def test_folders_that_are_not_of_a_run_stay(root: Path):
    (root / f"{hosts.PREFIX}without-a-lock").mkdir()
    (root / "something-else").mkdir()
    (root / "something-else/lock").touch()
    assert remove_leftovers() == []
    assert len(list(root.iterdir())) == 2


def test_without_root_it_is_said_that_root_is_needed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostsError, match="only root"), Network({"a": 1}):
        pass


def test_a_missing_tool_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with (
        pytest.raises(HostsError, match=r"there is no ip: run scripts/system\.sh"),
        Network({"a": 1}),
    ):
        pass


@needs_hosts
def test_without_namespaces_it_is_said_what_a_container_needs(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    tools = root / "tools"
    tools.mkdir()
    for tool in ("ip", "tc", "nsenter", "unshare"):
        (tools / tool).write_text(
            "#!/bin/sh\necho unshare failed: Operation not permitted >&2\nexit 1"
        )
        (tools / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with pytest.raises(HostsError, match=r"not permitted.*--privileged"), Network({"a": 1}):
        pass
    assert list(root.iterdir()) == [tools]


@needs_hosts
def test_without_tbf_it_is_said_what_the_kernel_needs(root: Path, monkeypatch: pytest.MonkeyPatch):
    wrong = ["tc", "qdisc", "add", "dev", "lo", "root", "no-such-queue"]
    monkeypatch.setattr(hosts, "_limit", lambda *_: wrong)
    with pytest.raises(HostsError, match="CONFIG_NET_SCH_TBF"), Network({"a": 1}):
        pass
    assert list(root.iterdir()) == []


@needs_hosts
def test_a_node_that_does_not_start_is_told_with_its_last_words(
    network: Network, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nodes, "CPUS", "many")
    with pytest.raises(HostsError, match=r"(?s)Ray did not start on a .*many"):
        nodes.Nodes(network, {"a": {"host": "a"}})


@needs_hosts
@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_told_to_end_takes_everything_down(by: int, code: int, tmp_path: Path):
    before = set(hosts.ROOT.glob(f"{hosts.PREFIX}*"))
    run = subprocess.Popen([*COMMAND, "--out", tmp_path], cwd=ROOT, stderr=subprocess.PIPE)
    while not (mine := [folder for folder in _new(before) if (folder / "h4").exists()]):
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(by)
    assert run.wait() == code, run.stderr.read()
    assert not any(folder.exists() for folder in mine)


def _new(before: set[Path]) -> set[Path]:
    return set(hosts.ROOT.glob(f"{hosts.PREFIX}*")) - before


@needs_hosts
def test_a_short_run_shows_the_same_batches_after_a_killed_worker(tmp_path: Path):
    run = subprocess.run([*COMMAND, "--out", tmp_path], cwd=ROOT, capture_output=True, check=False)
    assert run.returncode == 0, (run.stdout + run.stderr).decode()
    document = json.loads((tmp_path / "cluster.json").read_text())
    asked_for = {"packed_bytes_per_second", "spread_bytes_per_second", "ratio"}
    assert asked_for <= document["A"].keys()
    assert min(document["A"][name] for name in asked_for) > 0
    assert [row["fault"] for row in document["C"]] == ["none", "worker killed"]
    assert all(row["identical"] and row["batches"] == 40 for row in document["C"])
    for row in (document["A"], *document["C"]):
        assert not any(row["ray"].values())
