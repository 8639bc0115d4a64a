"""Hosts on one machine, with cards that limit them: what a cluster is made of here.

A host is a process that holds three namespaces: a network of its own with one card, a mount table
of its own (its own shared memory and its own disk) and process numbers of its own. Cards are `tbf`
queues at both ends of a virtual cable, so that they limit both ways; the cables meet in a bridge,
which is a host too.

Nothing can be left behind: namespaces have no names, so that two runs can't meet, and the holder is
process 1 of its host and ends when its stdin is closed, that is, when the run closes it or dies in
whatever way. The kernel then ends all processes of the host, and with the last one the namespaces
go. Only the run's folder outlives a run that is killed; the next run finds it by its lock and
removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path("/tmp")
"""Where runs have their folders: Ray's sockets lie in there, and their paths may have 107 bytes."""
PREFIX = "stoker-cluster-"
NETWORK = "10.77.0"
BURST_SECONDS = 0.025
"""How long a card may go faster than its rate: a `tbf` needs some, and a switch has buffers too."""
QUEUE = "400ms"
"""How long a packet may wait for the card before it is dropped: as many packets as a switch holds
for a card a hundred times faster. With a quarter of it, a fifth of what the store sent was lost."""
SHARED_MEMORY = "1g"

HOLD = """
mount --bind "$1" "$2"
mount -t tmpfs -o size="$3",mode=1777 tmpfs /dev/shm
ip link set lo up
echo ready
exec env --ignore-signal=CHLD cat   # the host's orphans come to it: ignored, they leave no zombies
"""


class HostsError(Exception):
    """Hosts can't be had on this machine; the message says why and what to do."""


@dataclass(frozen=True)
class Traffic:
    """What went over a card so far, headers included."""

    received: int
    sent: int


class Host:
    """A host, up until it is closed."""

    def __init__(self, name: str, number: int, folder: Path, disk: Path) -> None:
        """Starts the holder of a host.

        Args:
            name: What the host is called in messages and folders.
            number: The last part of its address.
            folder: What the host has as its disk.
            disk: Where the host finds it.
        """
        self.name = name
        self.address = f"{NETWORK}.{number}"
        self.folder = folder
        folder.mkdir()
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        script = ["sh", "-ec", HOLD, "hold", folder, disk, SHARED_MEMORY]
        self._holder = subprocess.Popen(
            ["unshare", *namespaces, *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the run's; it takes the hosts down in order
        )
        if self._holder.stdout.readline() != b"ready\n":
            said = self._holder.stderr.read().decode(errors="replace").strip()
            self.close()
            raise HostsError(
                f"no host can be made of network, mount and process namespaces ({said}): be root, "
                "in a container one that was started with --privileged"
            )
        self._namespace = _namespace(self._holder.pid, "pid_for_children")
        self._first = next(pid for pid in self._members() if _number_inside(pid) == 1)

    def command(self, *argv: object, folder: Path | None = None) -> list[str]:
        """The command line that runs another one on this host."""
        enter = ["nsenter", f"--target={self._first}", "--net", "--mount", "--pid", "--"]
        return [*enter, "env", "--chdir", str(folder or Path.cwd()), *map(str, argv)]

    def run(self, *argv: object, env: Mapping[str, str] | None = None) -> str:
        """Runs a command on this host to its end and gives back what it wrote.

        Raises:
            HostsError: It failed.
        """
        return _run(self.command(*argv), env=env)

    def start(
        self, *argv: object, env: Mapping[str, str], **files: int | object
    ) -> subprocess.Popen[str]:
        """Starts a command on this host; it ends with the host at the latest."""
        command = self.command(*argv)
        return subprocess.Popen(command, env=env, text=True, start_new_session=True, **files)

    def processes(self) -> dict[int, str]:
        """What runs on this host: process numbers, as the machine counts, and command lines."""
        lines = {}
        for pid in self._members():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                lines[pid] = b" ".join(words).decode(errors="replace")
        lines.pop(self._first, None)
        return lines

    def kill(self) -> None:
        """Kills all that runs on this host, as if it had crashed; the host itself stays."""
        while doomed := self.processes():
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def close(self) -> None:
        """Ends the host and all that runs on it."""
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()
        self._holder.stderr.close()

    def _members(self) -> list[int]:
        """All processes of this host, its first one included."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # it may end meanwhile
                if entry.name.isdigit() and _namespace(entry.name, "pid") == self._namespace:
                    found.append(int(entry.name))
        return found


class Network:
    """Hosts on one switch.

    Use it in a `with` statement: it makes the hosts, and ends them with all that runs on them.
    """

    def __init__(self, cards: Mapping[str, float]) -> None:
        """Plans hosts.

        Args:
            cards: Name of each host and the rate of its card, in Mbit/s each way.
        """
        self.cards = dict(cards)
        self.hosts: dict[str, Host] = {}
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Network:
        if os.geteuid() != 0:
            raise HostsError("hosts are made of network namespaces, which only root can make")
        for tool in ("ip", "tc", "unshare", "nsenter"):
            if shutil.which(tool) is None:
                raise HostsError(
                    f"there is no {tool}: run scripts/system.sh (iproute2, util-linux)"
                )
        remove_leftovers()
        with contextlib.ExitStack() as undo:
            self.folder = undo.enter_context(_run_folder())
            self.disk = self.folder / "disk"
            self.disk.mkdir()
            self._switch = self._host(undo, "switch", 254)
            self._in_switch("ip", "link", "add", "bridge", "type", "bridge")
            self._in_switch("ip", "link", "set", "bridge", "up")
            for number, (name, mbit) in enumerate(self.cards.items(), 1):
                self.hosts[name] = self._host(undo, name, number)
                self._plug_in(self.hosts[name], mbit)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        self.hosts.clear()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def cut(self, name: str) -> None:
        """Takes a host's cable out: its peers hear nothing, not even an end of connections."""
        self._in_switch("ip", "link", "set", "dev", name, "down")

    def mend(self, name: str) -> None:
        """Puts the cable back."""
        self._in_switch("ip", "link", "set", "dev", name, "up")

    def traffic(self) -> dict[str, Traffic]:
        """What went over each host's card so far, as the switch counts it."""
        links = json.loads(self._in_switch("ip", "-statistics", "-json", "link"))
        counted = {link["ifname"]: link["stats64"] for link in links}
        return {
            name: Traffic(received=counted[name]["tx"]["bytes"], sent=counted[name]["rx"]["bytes"])
            for name in self.hosts
        }

    def _host(self, undo: contextlib.ExitStack, name: str, number: int) -> Host:
        host = Host(name, number, self.folder / name, self.disk)
        undo.callback(host.close)
        return host

    def _plug_in(self, host: Host, mbit: float) -> None:
        """Gives a host its card: a cable to the switch, limited at both ends."""
        peer = ["type", "veth", "peer", "name", "card", "netns", host._first]
        self._in_switch("ip", "link", "add", "name", host.name, *peer)
        self._in_switch("ip", "link", "set", "dev", host.name, "master", "bridge", "up")
        host.run("ip", "address", "add", f"{host.address}/24", "dev", "card")
        host.run("ip", "link", "set", "card", "up")
        # Ray asks which address leads outside to find its own.
        host.run("ip", "route", "add", "default", "dev", "card")
        try:
            self._in_switch(*_limit(host.name, mbit))
            host.run(*_limit("card", mbit))
        except HostsError as error:
            raise HostsError(
                f"a card can't be limited ({error}): the kernel needs CONFIG_NET_SCH_TBF"
            ) from error

    def _in_switch(self, *argv: object) -> str:
        # By the machine's process numbers, as `netns` of `ip link` names a host by one of them.
        first = self._switch._first
        return _run(["nsenter", f"--target={first}", "--net", "--", *map(str, argv)])


def remove_leftovers() -> list[Path]:
    """Removes the folders of runs that were killed.

    Returns:
        What was removed.
    """
    removed = []
    for folder in ROOT.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            continue  # a run that has only just begun, or not ours
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
        except BlockingIOError:
            pass  # a run that lives
        finally:
            os.close(lock)
    return removed


@contextlib.contextmanager
def _run_folder() -> Iterator[Path]:
    """A new folder that is known to be in use as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=ROOT))
    # Locked before it has its name, so that nobody finds it unlocked.
    lock = os.open(folder / "lock.new", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "lock.new").rename(folder / "lock")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _limit(device: str, mbit: float) -> list[str]:
    """The command that makes a device no faster than a card of that rate."""
    # The least that lets a full segment of a large send pass as one.
    burst = max(64 * 1024 + 1024, int(mbit * 1e6 / 8 * BURST_SECONDS))
    rate = ["rate", f"{mbit}mbit", "burst", f"{burst}b", "latency", QUEUE]
    return ["tc", "qdisc", "add", "dev", device, "root", "tbf", *rate]


def _namespace(pid: int | str, kind: str) -> str:
    """Which namespace of a kind a process is in."""
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def _number_inside(pid: int) -> int:
    """What a process is called by those on its host."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def _run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise HostsError(f"{' '.join(command)} ended with code {done.returncode}: {said}")
    return done.stdout
